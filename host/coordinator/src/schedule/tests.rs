//! What must hold of reservations, by example and for random calls.

use proptest::prelude::*;

use super::*;

fn name(text: &str) -> Name {
    Name::from(text)
}

fn names(texts: &[&str]) -> Vec<Name> {
    texts.iter().map(|text| name(text)).collect()
}

fn schedule(offers: &[(&str, u32)]) -> Schedule {
    let mut schedule = Schedule::default();
    for (worker, slots) in offers {
        schedule.offer(&name(worker), *slots);
    }
    schedule
}

#[test]
fn a_job_is_spread_evenly() {
    let mut schedule = schedule(&[("a", 4), ("b", 4), ("c", 1)]);
    assert_eq!(schedule.reserve("j", 5).unwrap(), names(&["a", "b", "a", "b", "c"]));
    assert_eq!(schedule.reserve("k", 4).unwrap(), names(&["a", "b", "a", "b"]));
}

#[test]
fn a_job_gets_all_or_nothing_and_learns_how_many_are_missing() {
    let mut schedule = schedule(&[("a", 2), ("b", 2)]);
    schedule.reserve("j", 3).unwrap();
    assert_eq!(schedule.reserve("k", 2), Err(Shortage { needed: 2, free: 1, workers: 2 }));
    assert_eq!(schedule.reserve("l", 1).unwrap().len(), 1);
    schedule.release("j");
    assert_eq!(schedule.reserve("k", 2).unwrap().len(), 2);
}

#[test]
fn what_a_job_holds_counts_as_free_for_itself() {
    let mut schedule = schedule(&[("a", 2)]);
    schedule.reserve("j", 2).unwrap();
    assert_eq!(schedule.reserve("j", 2).unwrap(), names(&["a", "a"]));
    assert_eq!(schedule.reserve("j", 3), Err(Shortage { needed: 3, free: 2, workers: 1 }));
}

#[test]
fn subtasks_stay_where_they_were_when_a_worker_is_lost() {
    let mut schedule = schedule(&[("a", 3), ("b", 3), ("c", 3)]);
    let first = schedule.reserve("j", 6).unwrap();
    schedule.lose("b");
    let second = schedule.reserve("j", 6).unwrap();
    for (before, now) in first.iter().zip(&second).filter(|(before, _)| &***before != "b") {
        assert_eq!(before, now);
    }
    schedule.offer(&name("b"), 3);
    let third = schedule.reserve("j", 6).unwrap();
    assert_eq!(third.iter().filter(|worker| &***worker == "b").count(), 2, "it is even again: {third:?}");
}

#[test]
fn slots_can_be_held_on_a_worker_that_is_not_there_yet() {
    let mut schedule = schedule(&[]);
    schedule.hold("j", names(&["a", "a"]));
    schedule.offer(&name("a"), 3);
    assert_eq!(schedule.reserve("k", 2), Err(Shortage { needed: 2, free: 1, workers: 1 }));
    assert_eq!((schedule.used("a"), schedule.jobs_on("a")), (2, vec!["j".to_owned()]));
    schedule.lose("a");
    assert_eq!(schedule.used("a"), 0);
}

#[derive(Clone, Debug)]
enum Call {
    Offer(usize, u32),
    Lose(usize),
    Reserve(usize, u32),
    Release(usize),
}

fn call() -> impl Strategy<Value = Call> {
    prop_oneof![
        (0..5usize, 0..6u32).prop_map(|(worker, slots)| Call::Offer(worker, slots)),
        (0..5usize).prop_map(Call::Lose),
        (0..4usize, 1..9u32).prop_map(|(job, slots)| Call::Reserve(job, slots)),
        (0..4usize).prop_map(Call::Release),
    ]
}

/// Checks an answer against the state before it.
fn check(before: &Schedule, after: &Schedule, job: &str, needed: u32, answer: &Result<Vec<Name>, Shortage>) {
    let mut without = Schedule { offers: before.offers.clone(), held: before.held.clone(), before: BTreeMap::new() };
    without.release(job);
    let free = without.free();
    let total: u32 = free.values().sum();
    let slots = match answer {
        Err(shortage) => {
            assert!(total < needed, "{total} were free");
            assert_eq!(*shortage, Shortage { needed, free: total, workers: before.offers.len() as u32 });
            return;
        }
        Ok(slots) => slots,
    };
    assert_eq!(slots.len(), needed as usize);
    let count = |worker: &Name| slots.iter().filter(|slot| *slot == worker).count() as u32;
    for (worker, slots) in &free {
        assert!(count(worker) <= *slots, "{worker} gives more than it has");
    }
    for (a, b) in free.keys().flat_map(|a| free.keys().map(move |b| (a, b))) {
        assert!(count(a) <= count(b) + 1 || count(b) == free[b], "{a} gives {}, {b} gives {}", count(a), count(b));
    }
    // A slot that moved was on a worker that gives all it can to slots that stayed.
    let old = before.before.get(job).cloned().unwrap_or_default();
    for (index, (old_worker, new)) in old.iter().zip(slots).enumerate().filter(|(_, (old, new))| old != new) {
        let stayed = old.iter().zip(slots).filter(|(old, new)| old == new && *new == old_worker).count() as u32;
        assert_eq!(stayed, count(old_worker), "slot {index} moved from {old_worker} to {new} for nothing");
    }
    assert_eq!(after.held[job], *slots);
}

proptest! {
    #[test]
    fn reservations_are_even_bounded_and_keep_subtasks_in_place(calls in prop::collection::vec(call(), 1..40)) {
        let mut schedule = Schedule::default();
        for call in calls {
            match call {
                Call::Offer(worker, slots) => schedule.offer(&name(&format!("w{worker}")), slots),
                Call::Lose(worker) => schedule.lose(&format!("w{worker}")),
                Call::Release(job) => schedule.release(&format!("j{job}")),
                Call::Reserve(job, needed) => {
                    let job = format!("j{job}");
                    let before = Schedule {
                        offers: schedule.offers.clone(),
                        held: schedule.held.clone(),
                        before: schedule.before.clone(),
                    };
                    let mut twin =
                        Schedule { offers: before.offers.clone(), held: before.held.clone(), before: before.before.clone() };
                    let answer = schedule.reserve(&job, needed);
                    assert_eq!(answer, twin.reserve(&job, needed), "the same call gives the same answer");
                    check(&before, &schedule, &job, needed, &answer);
                }
            }
        }
    }
}
