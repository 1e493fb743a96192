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
    assert_eq!(schedule.reserve("j", 0, 5).unwrap(), names(&["a", "b", "a", "b", "c"]));
    assert_eq!(schedule.reserve("k", 0, 4).unwrap(), names(&["a", "b", "a", "b"]));
}

#[test]
fn a_job_gets_all_or_nothing_and_learns_how_many_are_missing() {
    let mut schedule = schedule(&[("a", 2), ("b", 2)]);
    schedule.reserve("j", 0, 3).unwrap();
    assert_eq!(schedule.reserve("k", 0, 2), Err(Shortage { needed: 2, free: 1, ahead: 0, workers: 2 }));
    schedule.release("j");
    assert_eq!(schedule.reserve("k", 0, 2).unwrap().len(), 2);
}

#[test]
fn what_a_job_holds_counts_as_free_for_itself() {
    let mut schedule = schedule(&[("a", 2)]);
    schedule.reserve("j", 0, 2).unwrap();
    assert_eq!(schedule.reserve("j", 0, 2).unwrap(), names(&["a", "a"]));
    assert_eq!(schedule.reserve("j", 0, 3), Err(Shortage { needed: 3, free: 2, ahead: 0, workers: 1 }));
}

#[test]
fn subtasks_stay_where_they_were_when_a_worker_is_lost() {
    let mut schedule = schedule(&[("a", 3), ("b", 3), ("c", 3)]);
    let first = schedule.reserve("j", 0, 6).unwrap();
    schedule.lose("b");
    let second = schedule.reserve("j", 0, 6).unwrap();
    for (before, now) in first.iter().zip(&second).filter(|(before, _)| &***before != "b") {
        assert_eq!(before, now);
    }
    schedule.offer(&name("b"), 3);
    let third = schedule.reserve("j", 0, 6).unwrap();
    assert_eq!(third.iter().filter(|worker| &***worker == "b").count(), 2, "it is even again: {third:?}");
}

#[test]
fn slots_can_be_held_on_a_worker_that_is_not_there_yet() {
    let mut schedule = schedule(&[]);
    schedule.hold("j", names(&["a", "a"]));
    schedule.offer(&name("a"), 3);
    assert_eq!(schedule.reserve("k", 0, 2), Err(Shortage { needed: 2, free: 1, ahead: 0, workers: 1 }));
    assert_eq!((schedule.used("a"), schedule.jobs_on("a")), (2, vec!["j".to_owned()]));
    schedule.lose("a");
    assert_eq!(schedule.used("a"), 0);
}

#[test]
fn a_large_job_is_not_overtaken_by_small_ones_that_come_and_go() {
    let mut schedule = schedule(&[("a", 4)]);
    for (job, submitted_ms) in [("one", 1), ("two", 2), ("three", 3)] {
        schedule.reserve(job, submitted_ms, 1).unwrap();
    }
    assert_eq!(schedule.reserve("large", 4, 3), Err(Shortage { needed: 3, free: 1, ahead: 0, workers: 1 }));
    assert_eq!(schedule.reserve("small", 5, 1), Err(Shortage { needed: 1, free: 1, ahead: 3, workers: 1 }));
    assert_eq!(schedule.waiting().collect::<Vec<_>>(), ["large", "small"]);
    schedule.release("one");
    schedule.reserve("small", 5, 1).unwrap_err();
    schedule.release("two");
    schedule.reserve("small", 5, 1).unwrap_err();
    schedule.release("three");
    // There is enough for both, whoever asks first.
    schedule.reserve("small", 5, 1).unwrap();
    schedule.reserve("large", 4, 3).unwrap();
    assert_eq!(schedule.waiting().count(), 0);
}

#[test]
fn a_job_that_waits_no_longer_holds_up_nobody() {
    let mut schedule = schedule(&[("a", 4)]);
    schedule.reserve("j", 1, 2).unwrap();
    schedule.reserve("large", 2, 3).unwrap_err();
    schedule.reserve("small", 3, 2).unwrap_err();
    schedule.release("large");
    schedule.reserve("small", 3, 2).unwrap();
}

#[test]
fn a_job_that_needs_more_than_all_workers_offer_is_passed_by_until_they_offer_as_many() {
    let mut schedule = schedule(&[("a", 4)]);
    schedule.reserve("large", 1, 5).unwrap_err();
    schedule.reserve("small", 2, 2).unwrap();
    schedule.offer(&name("b"), 1);
    assert_eq!(schedule.reserve("another", 3, 1), Err(Shortage { needed: 1, free: 3, ahead: 5, workers: 2 }));
    assert_eq!(schedule.shortage("another", 0, 1), None, "had it been submitted before");
}

#[test]
fn a_job_that_starts_again_keeps_its_slots_and_gets_no_more_before_its_turn() {
    let mut schedule = schedule(&[("a", 4)]);
    schedule.reserve("early", 1, 1).unwrap();
    schedule.reserve("late", 3, 2).unwrap();
    schedule.reserve("large", 2, 3).unwrap_err();
    schedule.reserve("late", 3, 2).unwrap();
    assert_eq!((schedule.within_reach("late", 3), schedule.within_reach("early", 1)), (2, 2));
    assert_eq!(schedule.reserve("late", 3, 3), Err(Shortage { needed: 3, free: 3, ahead: 3, workers: 1 }));
    schedule.reserve("early", 1, 2).unwrap();
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
fn check(before: &Schedule, after: &Schedule, job: &str, since: u64, needed: u32, answer: &Result<Vec<Name>, Shortage>) {
    let mut without = before.clone();
    without.release(job);
    let (others, free) = (before.free(None).values().sum::<u32>(), without.free(None));
    let total: u32 = free.values().sum();
    let all: u32 = before.offers.values().sum();
    let first = |((submitted_ms, name), needed): (&(u64, String), &u32)| {
        ((*submitted_ms, name.as_str()) < (since, job) && *needed <= all).then_some(*needed)
    };
    let ahead: u32 = before.waiting.iter().filter_map(first).sum();
    let takes = needed.saturating_sub(total - others);
    let slots = match answer {
        Err(shortage) => {
            assert!(takes + ahead > others, "{others} were free");
            assert_eq!(*shortage, Shortage { needed, free: total, ahead, workers: before.offers.len() as u32 });
            assert_eq!(after.waiting[&(since, job.to_owned())], needed);
            return;
        }
        Ok(slots) => slots,
    };
    assert!(takes == 0 || takes + ahead <= others, "what others wait for is not touched");
    assert_eq!(after.waits_for(job), None);
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
                    // The last in the alphabet was submitted first.
                    let (job, since) = (format!("j{job}"), 9 - job as u64);
                    let before = schedule.clone();
                    let answer = schedule.reserve(&job, since, needed);
                    assert_eq!(answer, before.clone().reserve(&job, since, needed), "the same call gives the same answer");
                    check(&before, &schedule, &job, since, needed, &answer);
                }
            }
        }
    }
}
