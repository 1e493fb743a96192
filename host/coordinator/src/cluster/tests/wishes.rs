//! What people want is done, in whatever phase a job is and whatever fails meanwhile; and what is said of it is true.

use std::sync::atomic::Ordering;
use std::time::Duration;

use weir_protocol::api::{ClusterApi, JobState, JobSubmission};
use weir_protocol::{Failure, FailureKind, Report};

use super::super::Cluster;
use super::fakes::{FakeWorker, World, by, job, one_with_a_job, until, wait_event, wait_state};

/// Where a job is when somebody wants something of it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    /// It has never run, and there are no slots.
    WaitingAtFirst,
    /// It has run, and its worker is gone.
    Waiting,
    /// It is to start over, and its operators are being opened.
    Claiming,
    Deploying,
    Running,
    RestartDelay,
    /// Its execution has failed, and its tasks have not ended.
    Ending,
}

const PHASES: [Phase; 7] = [
    Phase::WaitingAtFirst,
    Phase::Waiting,
    Phase::Claiming,
    Phase::Deploying,
    Phase::Running,
    Phase::RestartDelay,
    Phase::Ending,
];

fn fail(a: &FakeWorker, cluster: &Cluster) {
    a.say(cluster, |execution, _| {
        let failure = Failure { kind: FailureKind::Transient, uid: None, reason: "its disk is full".to_owned() };
        Report::Failed { execution, failure }
    });
}

/// A job `j` in that phase, on a worker that does not answer any more. Gives the worker and the last event.
fn reach(phase: Phase, cluster: &Cluster, restart_delay: &str) -> (FakeWorker, u64) {
    let mut submission = job("j", 1);
    submission.spec.text = submission.spec.text.replace("delay = \"1ms\"", &format!("delay = \"{restart_delay}\""));
    let mut a = FakeWorker::new("a", 1);
    if phase == Phase::WaitingAtFirst {
        cluster.submit(&by(), submission).unwrap();
        return (a, wait_event(cluster, "j", 0, "waiting").number);
    }
    a.join(cluster);
    if phase == Phase::Deploying {
        a.mute.store(true, Ordering::SeqCst);
        cluster.submit(&by(), submission).unwrap();
        return (a, wait_event(cluster, "j", 0, "deploying").number);
    }
    cluster.submit(&by(), submission.clone()).unwrap();
    let before = wait_event(cluster, "j", 0, "checkpoint").number;
    let reached = match phase {
        Phase::Waiting => {
            a.leave(cluster);
            wait_event(cluster, "j", before, "waiting").number
        }
        Phase::Claiming => {
            cluster.cancel(&by(), "j").unwrap();
            let over = wait_event(cluster, "j", before, "cancelled").number;
            until("it is over", || cluster.job("j").unwrap().status.state.is_over().then_some(()));
            a.mute.store(true, Ordering::SeqCst);
            cluster.submit(&by(), JobSubmission { fresh: true, ..submission }).unwrap();
            wait_event(cluster, "j", over, "deploying").number
        }
        Phase::Running => {
            a.mute.store(true, Ordering::SeqCst);
            before
        }
        Phase::RestartDelay => {
            fail(&a, cluster);
            wait_event(cluster, "j", before, "restarting").number
        }
        Phase::Ending => {
            a.stuck.store(true, Ordering::SeqCst);
            fail(&a, cluster);
            wait_state(cluster, "j", JobState::Restarting);
            before
        }
        Phase::WaitingAtFirst | Phase::Deploying => unreachable!("reached above"),
    };
    (a, reached)
}

/// The worker is lost, and with it whatever it had begun.
fn lose(a: &mut FakeWorker, cluster: &Cluster) {
    a.leave(cluster);
    a.mute.store(false, Ordering::SeqCst);
    a.stuck.store(false, Ordering::SeqCst);
}

#[test]
fn s82_a_stop_is_done_in_every_phase_and_claims_no_checkpoint_that_was_not_taken() {
    for phase in PHASES {
        let world = World::new();
        let cluster = world.open();
        let (mut a, before) = reach(phase, &cluster, if phase == Phase::Waiting { "1ms" } else { "1h" });
        cluster.stop(&by(), "j").unwrap();
        lose(&mut a, &cluster);
        let stopped = wait_event(&cluster, "j", before, "stopped");
        assert!(!stopped.message.contains("has stopped with a last checkpoint"), "{phase:?}: {}", stopped.message);
        assert!(stopped.message.contains("last checkpoint"), "{phase:?}: {}", stopped.message);
        if phase == Phase::Running {
            assert!(stopped.message.contains("worker a is lost"), "it says why: {}", stopped.message);
        }
        wait_state(&cluster, "j", JobState::Stopped);
        cluster.leave();
    }
}

#[test]
fn s82_a_stop_of_a_job_that_runs_is_with_a_last_checkpoint_and_says_so() {
    let world = World::new();
    let cluster = world.open();
    let _a = one_with_a_job(&cluster, 1);
    wait_event(&cluster, "j", 0, "checkpoint");
    cluster.stop(&by(), "j").unwrap();
    let stopped = wait_event(&cluster, "j", 0, "stopped");
    assert!(stopped.message.contains("has stopped with a last checkpoint"), "{}", stopped.message);
    cluster.leave();
}

#[test]
fn s82_a_cancel_is_done_in_every_phase() {
    for phase in PHASES {
        let world = World::new();
        let cluster = world.open();
        let (mut a, before) = reach(phase, &cluster, if phase == Phase::Waiting { "1ms" } else { "1h" });
        cluster.cancel(&by(), "j").unwrap();
        lose(&mut a, &cluster);
        wait_event(&cluster, "j", before, "cancelled");
        wait_state(&cluster, "j", JobState::Cancelled);
        cluster.leave();
    }
}

#[test]
fn s82_another_parallelism_is_had_whatever_fails_meanwhile_in_every_phase() {
    for phase in PHASES {
        let world = World::new();
        let cluster = world.open();
        let (mut a, before) = reach(phase, &cluster, "100ms");
        let asked = cluster.rescale(&by(), "j", 2);
        if matches!(phase, Phase::WaitingAtFirst | Phase::Waiting) {
            let refusal = asked.unwrap_err();
            assert!(refusal.message.contains("it would need 2 slots"), "there are none: {}", refusal.message);
            cluster.leave();
            continue;
        }
        asked.unwrap();
        lose(&mut a, &cluster);
        let mut b = FakeWorker::new("b", 2);
        b.join(&cluster);
        let running = until(&format!("{phase:?}: it runs with two tasks"), || {
            (b.runs().last().map(|(_, tasks)| *tasks) == Some(2)).then_some(b.runs())
        });
        assert_eq!(running.len(), 1, "{phase:?}");
        wait_event(&cluster, "j", before, "running");
        until("the record says so", || (cluster.job("j").unwrap().status.slots == 2).then_some(()));
        assert_eq!(cluster.rescale(&by(), "j", 2).unwrap().slots, 2, "{phase:?}: it has it");
        cluster.leave();
    }
}

#[test]
fn s82_a_job_that_waits_for_slots_runs_at_once_with_fewer_if_that_is_wanted() {
    let world = World::new();
    let cluster = world.open();
    let mut a = FakeWorker::new("a", 1);
    a.join(&cluster);
    cluster.submit(&by(), job("j", 4)).unwrap();
    wait_event(&cluster, "j", 0, "waiting");
    cluster.rescale(&by(), "j", 2).unwrap();
    until("it runs", || (a.runs() == [(1, 2)]).then_some(()));
    wait_event(&cluster, "j", 0, "rescaling");
    cluster.leave();
}

#[test]
fn s82_the_last_of_two_wishes_for_a_parallelism_counts() {
    let world = World::new();
    let cluster = world.open();
    let a = one_with_a_job(&cluster, 1);
    wait_event(&cluster, "j", 0, "checkpoint");
    a.mute.store(true, Ordering::SeqCst);
    cluster.rescale(&by(), "j", 2).unwrap();
    cluster.rescale(&by(), "j", 1).unwrap();
    a.mute.store(false, Ordering::SeqCst);
    let refused = wait_event(&cluster, "j", 0, "rescale-refused");
    assert!(refused.message.contains("no vertex would change"), "{}", refused.message);
    let events = cluster.events("j", refused.number, Duration::ZERO).unwrap();
    assert!(!events.iter().any(|event| event.kind == "rescaling"), "{events:?}");
    cluster.leave();
}
