//! Examples, and all that must hold for random orders of events.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

const WALL_MS: u64 = 1_700_000_000_000;

fn at(ms: u64) -> Now {
    Now { steady_ms: ms, wall_ms: WALL_MS + ms }
}

fn candidate(name: &str, incarnation: u64, now: Now) -> Candidate {
    Candidate {
        name: name.into(),
        incarnation,
        from: format!("10.0.0.1:{incarnation}"),
        version: "1".to_owned(),
        slots: 2,
        address: "10.0.0.1:7".to_owned(),
        clock_ms: now.wall_ms,
    }
}

fn refusal(changes: &[MemberChange]) -> &str {
    match changes {
        [MemberChange::Refused { reason, .. }] => reason,
        other => panic!("not a refusal: {other:?}"),
    }
}

fn lost(worker: &str, link: LinkId, reason: &str) -> MemberChange {
    MemberChange::Lost { worker: worker.into(), link, reason: reason.to_owned() }
}

fn joined(worker: &str, link: LinkId) -> MemberChange {
    MemberChange::Joined { worker: worker.into(), link }
}

#[test]
fn another_version_is_refused_by_name() {
    let mut registry = Registry::new("1");
    let old = Candidate { version: "0.9".to_owned(), ..candidate("a", 1, at(0)) };
    let changes = registry.register(at(0), 1, old);
    assert!(refusal(&changes).contains("worker a at 10.0.0.1:1 is weir 0.9, this coordinator is weir 1"), "{changes:?}");
    assert_eq!(registry.heard(at(0), 1), None, "what it says does not count");
}

#[test]
fn a_clock_that_is_off_is_refused_with_the_number() {
    let mut registry = Registry::new("1");
    let ahead = Candidate { clock_ms: WALL_MS + CLOCK_SKEW_MS_MAX + 1, ..candidate("a", 1, at(0)) };
    assert!(refusal(&registry.register(at(0), 1, ahead)).contains("is 60.001 s ahead of the coordinator's"));
    let behind = Candidate { clock_ms: WALL_MS - 61_000, ..candidate("a", 1, at(0)) };
    assert!(refusal(&registry.register(at(0), 2, behind)).contains("61.000 s behind"));
    let tolerated = Candidate { clock_ms: WALL_MS - CLOCK_SKEW_MS_MAX, ..candidate("a", 1, at(0)) };
    assert_eq!(registry.register(at(0), 3, tolerated), [joined("a", 3)]);
    assert_eq!(registry.member("a").unwrap().skew_ms, -60_000);
}

#[test]
fn the_second_of_two_processes_with_one_name_waits_until_the_first_is_silent() {
    let mut registry = Registry::new("1");
    assert_eq!(registry.register(at(0), 1, candidate("a", 1, at(0))), [joined("a", 1)]);
    let changes = registry.register(at(RIVAL_HEARD_MS - 1), 2, candidate("a", 2, at(0)));
    assert!(refusal(&changes).contains("a worker named a is connected already, from 10.0.0.1:1"), "{changes:?}");
    assert!(registry.heard(at(700), 1).is_some());
    assert!(matches!(registry.register(at(RIVAL_HEARD_MS), 3, candidate("a", 2, at(0)))[..], [MemberChange::Refused { .. }]));
    let changes = registry.register(at(700 + RIVAL_HEARD_MS), 4, candidate("a", 2, at(0)));
    assert_eq!(changes, [lost("a", 1, "it was started anew"), joined("a", 4)]);
    assert_eq!(registry.heard(at(1_500), 1), None, "the old process is not listened to");
    assert_eq!(registry.closed(at(1_501), 1, "closed"), [], "and is not lost twice");
    assert!(registry.heard(at(1_500), 4).is_some());
}

#[test]
fn a_process_that_has_the_address_of_another_has_taken_its_place() {
    let mut registry = Registry::new("1");
    registry.register(at(0), 1, candidate("a", 1, at(0)));
    let again = Candidate { from: "10.0.0.1:1".to_owned(), ..candidate("a", 2, at(1)) };
    assert_eq!(registry.register(at(1), 2, again), [lost("a", 1, "it was started anew"), joined("a", 2)]);
}

#[test]
fn a_process_takes_the_place_of_one_that_seems_to_have_ended() {
    let mut registry = Registry::new("1");
    registry.register(at(0), 1, candidate("a", 1, at(0)));
    registry.suspect(at(1), "a", 1);
    assert_eq!(registry.register(at(2), 2, candidate("a", 2, at(2))), [lost("a", 1, "it was started anew"), joined("a", 2)]);
    // The one before ends late: that is not the one that is there now.
    registry.suspect(at(3), "a", 1);
    assert!(matches!(registry.register(at(4), 3, candidate("a", 3, at(4)))[..], [MemberChange::Refused { .. }]));
}

#[test]
fn a_worker_is_lost_when_it_was_not_heard_for_the_timeout_and_not_before() {
    let mut registry = Registry::new("1");
    registry.register(at(0), 1, candidate("a", 1, at(0)));
    registry.heard(at(1_000), 1);
    for ms in (1_000..1_000 + HEARTBEAT_TIMEOUT_MS).step_by(250).chain([1_000 + HEARTBEAT_TIMEOUT_MS - 1]) {
        assert_eq!(registry.tick(at(ms)), []);
    }
    assert_eq!(registry.tick(at(1_000 + HEARTBEAT_TIMEOUT_MS)), [lost("a", 1, "it was not heard for 2000 ms")]);
    assert_eq!(registry.tick(at(1_000 + 2 * HEARTBEAT_TIMEOUT_MS)), []);
    assert_eq!(registry.members().count(), 1, "it is still shown");
    registry.tick(at(1_000 + 2 * HEARTBEAT_TIMEOUT_MS + LOST_SHOWN_MS));
    assert_eq!(registry.members().count(), 0);
}

#[test]
fn a_process_that_seems_to_have_ended_is_lost_soon_unless_it_is_heard() {
    let mut registry = Registry::new("1");
    for (link, name) in [(1, "a"), (2, "b")] {
        registry.register(at(0), link, candidate(name, 1, at(0)));
        registry.suspect(at(100), name, 1);
    }
    registry.suspect(at(100), "b", 2);
    registry.heard(at(100 + LAST_WORDS_MS - 1), 1);
    registry.heard(at(100 + LAST_WORDS_MS), 2);
    assert_eq!(registry.tick(at(100 + SUSPECTED_MS - 1)), []);
    assert_eq!(registry.tick(at(100 + SUSPECTED_MS)), [lost("a", 1, "its process has ended")]);
    assert_eq!(registry.tick(at(1_000)), [], "b is alive");
}

#[test]
fn a_process_that_certainly_has_ended_is_lost_at_once() {
    let mut registry = Registry::new("1");
    registry.register(at(0), 1, candidate("a", 1, at(0)));
    assert_eq!(registry.suspect(at(1), "a", 2), None);
    assert_eq!(registry.suspect(at(1), "a", 1), Some("10.0.0.1:7".to_owned()));
    assert_eq!(registry.ended(at(2), "a", 2), [], "another process");
    assert_eq!(registry.ended(at(2), "a", 1), [lost("a", 1, "its process has ended")]);
    assert_eq!(registry.ended(at(3), "a", 1), [], "once");
    registry.register(at(4), 2, candidate("b", 1, at(4)));
    registry.suspect(at(5), "b", 1);
    registry.heard(at(5 + LAST_WORDS_MS), 2);
    let late = [lost("b", 2, "its process has ended")];
    assert_eq!(registry.ended(at(6 + LAST_WORDS_MS), "b", 1), late, "what it said last was read late");
}

#[test]
fn an_older_process_that_ends_is_not_the_one_that_is_there() {
    let mut registry = Registry::new("1");
    registry.register(at(0), 1, candidate("a", 2, at(0)));
    registry.suspect(at(1), "a", 1);
    assert_eq!(registry.tick(at(900)), []);
}

#[test]
fn no_worker_is_lost_because_the_coordinator_stood_still() {
    let mut registry = Registry::new("1");
    registry.register(at(0), 1, candidate("a", 1, at(0)));
    registry.tick(at(100));
    assert_eq!(registry.tick(at(60_000)), []);
    assert_eq!(registry.tick(at(60_900)), []);
    registry.tick(at(61_800));
    assert_eq!(registry.tick(at(62_000)), [lost("a", 1, "it was not heard for 2000 ms")]);
}

#[test]
fn the_same_process_on_a_new_connection_is_lost_and_joins() {
    let mut registry = Registry::new("1");
    registry.register(at(0), 1, candidate("a", 1, at(0)));
    assert_eq!(registry.register(at(1), 2, candidate("a", 1, at(1))), [lost("a", 1, "it connected anew"), joined("a", 2)]);
    assert_eq!(registry.closed(at(2), 2, "closed"), [lost("a", 2, "closed")]);
    assert_eq!(registry.register(at(3), 3, candidate("a", 1, at(3))), [joined("a", 3)]);
}

#[test]
fn registering_twice_on_one_connection_loses_it() {
    let mut registry = Registry::new("1");
    registry.register(at(0), 1, candidate("a", 1, at(0)));
    let changes = registry.register(at(1), 1, candidate("b", 2, at(1)));
    assert_eq!(changes, [lost("a", 1, "worker a registered twice on one connection")]);
    assert_eq!(registry.heard(at(1), 1), None);
}

#[derive(Clone, Debug)]
enum Event {
    Register { name: usize, incarnation: u64 },
    Heard(u64),
    Closed(u64),
    Pass(u64),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        (0..2usize, 0..3u64).prop_map(|(name, incarnation)| Event::Register { name, incarnation }),
        (0..12u64).prop_map(Event::Heard),
        (0..12u64).prop_map(Event::Closed),
        (1..1_200u64).prop_map(Event::Pass),
    ]
}

proptest! {
    #[test]
    fn joins_and_losses_alternate_and_only_the_last_connection_counts(events in prop::collection::vec(event(), 1..60)) {
        let mut registry = Registry::new("1");
        let (mut now, mut next_link) = (0, 0);
        let mut current: BTreeMap<Arc<str>, (LinkId, u64, u64)> = BTreeMap::new();
        let mut dead: BTreeSet<LinkId> = BTreeSet::new();
        for event in events {
            let mut incarnation_of_new = 0;
            let changes = match event {
                Event::Register { name, incarnation } => {
                    next_link += 1;
                    incarnation_of_new = incarnation;
                    registry.register(at(now), next_link, candidate(["a", "b"][name], incarnation, at(now)))
                }
                Event::Heard(link) => {
                    let worker = registry.heard(at(now), link);
                    let expected = current.iter().find(|(_, (current, ..))| *current == link).map(|(worker, _)| worker.clone());
                    assert_eq!(worker, expected);
                    if let Some(worker) = worker {
                        current.get_mut(&worker).unwrap().2 = now;
                    }
                    Vec::new()
                }
                Event::Closed(link) => registry.closed(at(now), link, "closed"),
                Event::Pass(ms) => {
                    let until = now + ms;
                    let mut changes = Vec::new();
                    while now < until {
                        now = until.min(now + 250);
                        changes.extend(registry.tick(at(now)));
                    }
                    changes
                }
            };
            for change in changes {
                match change {
                    MemberChange::Lost { worker, link, .. } => {
                        let (expected, ..) = current.remove(&worker).expect("only what joined is lost");
                        assert_eq!(link, expected);
                        assert!(dead.insert(link), "a connection is lost once");
                    }
                    MemberChange::Joined { worker, link } => {
                        assert_eq!(link, next_link);
                        let before = current.insert(worker, (link, incarnation_of_new, now));
                        assert!(before.is_none(), "the process before is lost first");
                    }
                    MemberChange::Refused { link, .. } => {
                        assert_eq!(link, next_link);
                        assert!(dead.insert(link));
                    }
                }
            }
            for (worker, (link, _, heard)) in &current {
                assert_eq!(registry.link(worker), Some(*link));
                assert!(now - heard < HEARTBEAT_TIMEOUT_MS || !matches!(event, Event::Pass(_)), "{worker} is silent and there");
            }
        }
    }
}
