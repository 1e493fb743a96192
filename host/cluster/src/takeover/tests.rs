//! All orders in which workers come back, and everything that can be wrong with one of them.

use weir_model::{Attempt, CheckpointId};
use weir_protocol::{Failure, FailureKind, JobSpec, Placement, Prepare, WorkerAddress};

use super::*;

const WORKERS: [&str; 3] = ["a", "b", "c"];

fn execution(attempt: u64) -> Execution {
    Execution { job: "j".to_owned(), attempt: Attempt(attempt) }
}

/// A source of parallelism 4 and a sink of parallelism 2: six tasks, four slots.
fn takeover() -> Takeover {
    let text = "[job]\nname = \"j\"\nparallelism = 4\n[[source]]\nid = \"in\"\nconnector = \"generator\"\n[[sink]]\nid = \"out\"\n\
                connector = \"blackhole\"\nparallelism = 2\ninput = { from = \"in\", exchange = \"rebalance\" }\n";
    let spec = JobSpec::new("j.toml", text);
    let address = |worker: &&str| WorkerAddress { worker: (*worker).to_owned(), address: String::new() };
    let prepare = Prepare {
        execution: execution(3),
        spec,
        placement: Placement { workers: WORKERS.iter().map(address).collect(), tasks: vec![0, 1, 2, 0, 0, 1] },
        storage: "memory:".to_owned(),
        restore: None,
        first_checkpoint: CheckpointId(1),
        edges_apart: Vec::new(),
        retract_after: None,
    };
    Takeover::new(Begun { prepare, templates: Vec::new() }, 1_000)
}

fn running(worker: &str) -> Running {
    Running {
        execution: execution(3),
        tasks: takeover().begun.prepare.placement.tasks_of(worker),
        started: true,
        restored: Vec::new(),
        finished: Vec::new(),
        committed: Vec::new(),
        last_checkpoint: CheckpointId(7),
        failure: None,
    }
}

fn anew(verdict: Option<Verdict>) -> String {
    match verdict {
        Some(Verdict::Anew(reason)) => reason,
        other => panic!("not a new attempt: {other:?}"),
    }
}

#[test]
fn an_execution_goes_on_when_its_last_worker_is_back_in_whatever_order() {
    for first in 0..3 {
        for second in (0..3).filter(|second| *second != first) {
            let mut takeover = takeover();
            let order = [first, second, 3 - first - second];
            for (position, index) in order.into_iter().enumerate() {
                let worker = Arc::from(WORKERS[index]);
                let verdict = takeover.registered(&worker, &[running(&worker)]);
                match (position, verdict) {
                    (0 | 1, None) => {}
                    (2, Some(Verdict::Adopt(adopted))) => {
                        let back: Vec<&str> = adopted.running.iter().map(|(worker, _)| &**worker).collect();
                        assert_eq!(back, WORKERS);
                        assert_eq!(adopted.last_checkpoint(), CheckpointId(7));
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
    }
}

#[test]
fn a_worker_that_is_lost_again_is_waited_for_again() {
    let mut takeover = takeover();
    let back = |takeover: &mut Takeover, worker: &str| takeover.registered(&worker.into(), &[running(worker)]);
    assert!(back(&mut takeover, "a").is_none() && back(&mut takeover, "b").is_none());
    takeover.lost("a");
    assert!(back(&mut takeover, "c").is_none());
    assert_eq!(takeover.missing(), ["a"]);
    assert!(matches!(back(&mut takeover, "a"), Some(Verdict::Adopt(_))));
}

#[test]
fn what_is_wrong_with_one_worker_ends_the_wait_at_once() {
    let b = Arc::from("b");
    let with = |change: fn(&mut Running)| {
        let mut running = running("b");
        change(&mut running);
        anew(takeover().registered(&b, &[running]))
    };
    assert_eq!(anew(takeover().registered(&b, &[])), "worker b does not run it any more");
    assert_eq!(with(|running| running.execution = execution(2)), "worker b does not run it any more");
    assert_eq!(with(|running| running.started = false), "worker b had not started its tasks yet");
    assert_eq!(with(|running| running.tasks.truncate(running.tasks.len() - 1)), "worker b does not run task 5 of it");
    let reason = with(|running| {
        running.failure = Some(Failure { kind: FailureKind::Transient, uid: None, reason: "disk full".to_owned() });
    });
    assert_eq!(reason, "worker b has failed with it: disk full");
}

#[test]
fn a_worker_that_has_no_part_in_it_changes_nothing() {
    let mut takeover = takeover();
    assert!(takeover.registered(&"z".into(), &[]).is_none());
    assert!(!takeover.keeps("z", &running("a")), "and may not go on with anything of it");
    assert!(takeover.keeps("a", &running("a")));
    assert_eq!(takeover.missing(), WORKERS);
}

#[test]
fn the_wait_ends_with_those_named_who_are_not_back() {
    let mut takeover = takeover();
    takeover.registered(&"b".into(), &[running("b")]);
    assert!(takeover.tick(999).is_none());
    assert_eq!(anew(takeover.tick(1_000)), "these workers are not back: a, c");
}

#[test]
fn slots_are_where_the_subtasks_of_the_widest_chain_are() {
    let slots = takeover().slots();
    assert_eq!(slots.iter().map(|worker| &**worker).collect::<Vec<_>>(), ["a", "b", "c", "a"]);
}
