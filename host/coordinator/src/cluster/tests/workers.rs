//! Workers come and go under running jobs.

use std::sync::atomic::Ordering;
use std::time::Duration;

use weir_protocol::Command;
use weir_protocol::api::{ClusterApi, JobState};

use super::fakes::{FakeWorker, World, by, job, kinds, one_with_a_job, two_with_a_job, until, wait_event, wait_state};

#[test]
fn a_job_waits_for_slots_says_so_and_starts_when_there_are_enough() {
    let world = World::new();
    let cluster = world.open();
    let status = cluster.submit(&by(), job("j", 3)).unwrap();
    assert_eq!((status.state, status.slots), (JobState::Waiting, 3));
    assert!(status.reason.unwrap().contains("it needs 3 slots, and no worker is connected"));
    wait_event(&cluster, "j", 0, "waiting");
    let mut a = FakeWorker::new("a", 1);
    a.join(&cluster);
    let reason = until("the numbers are right", || {
        let reason = cluster.job("j").unwrap().status.reason?;
        reason.contains("the 1 worker that is connected has 2 slots free").then_some(reason)
    });
    assert!(reason.contains("start `weir worker` with 1 slot more"), "{reason}");
    let mut b = FakeWorker::new("b", 2);
    b.join(&cluster);
    let status = wait_state(&cluster, "j", JobState::Running);
    assert_eq!((status.attempt, status.restarts, status.reason), (1, 0, None));
    until("both have started", || (a.starts() == 1 && b.starts() == 1).then_some(()));
    let workers = cluster.workers();
    assert_eq!(workers.iter().map(|worker| (worker.name.as_str(), worker.slots_used)).collect::<Vec<_>>(), [("a", 2), ("b", 1)]);
    assert!(workers.iter().all(|worker| worker.alive && worker.jobs == ["j"]));
    assert_eq!((cluster.status().workers, cluster.status().slots, cluster.status().slots_used), (2, 4, 3));
    assert_eq!(kinds(&cluster, "j")[..2], ["submitted", "waiting"]);
    wait_event(&cluster, "j", 0, "checkpoint");
    cluster.leave();
}

#[test]
fn a_job_whose_worker_is_lost_goes_on_with_the_others() {
    let world = World::new();
    let cluster = world.open();
    let (a, mut b) = two_with_a_job(&cluster, 2);
    wait_event(&cluster, "j", 0, "checkpoint");
    b.leave(&cluster);
    let lost = wait_event(&cluster, "j", 0, "worker-lost");
    assert_eq!(lost.message, "worker b is lost: its connection broke");
    let restarting = wait_event(&cluster, "j", lost.number, "restarting");
    let running = wait_event(&cluster, "j", restarting.number, "running");
    assert!(running.message.contains("attempt 2 runs from checkpoint"), "{}", running.message);
    until("both tasks are on a", || (a.runs() == [(2, 2)]).then_some(()));
    assert_eq!(cluster.job("j").unwrap().status.restarts, 1);
    let b = &cluster.workers()[1];
    assert_eq!((b.alive, b.slots_used), (false, 0));
    cluster.leave();
}

#[test]
fn a_subtask_that_is_stuck_is_told_of_and_does_not_hold_up_the_others_for_long() {
    let world = World::new();
    let cluster = world.open();
    let (a, mut b) = two_with_a_job(&cluster, 2);
    wait_event(&cluster, "j", 0, "checkpoint");
    a.stuck.store(true, Ordering::SeqCst);
    b.leave(&cluster);
    let lost = wait_event(&cluster, "j", 0, "worker-lost");
    let status = wait_state(&cluster, "j", JobState::Restarting);
    assert_eq!(status.reason.unwrap(), "worker b is lost: its connection broke; its tasks are being ended");
    let slow = wait_event(&cluster, "j", lost.number, "slow-end");
    assert_eq!(slow.number, lost.number + 1, "it is restarting before that, which is no event");
    assert!(slow.message.starts_with("worker a has not ended the tasks of this job yet"), "{}", slow.message);
    let given_up = wait_event(&cluster, "j", slow.number, "slow-end");
    assert!(given_up.message.starts_with("worker a has not ended the tasks of this job within 3 s"), "{}", given_up.message);
    let running = wait_event(&cluster, "j", wait_event(&cluster, "j", given_up.number, "restarting").number, "running");
    assert!(running.message.contains("attempt 2 runs from checkpoint"), "{}", running.message);
    until("a runs the old one and the new one", || (a.runs() == [(1, 1), (2, 2)]).then_some(()));

    cluster.cancel(&by(), "j").unwrap();
    assert_eq!(wait_state(&cluster, "j", JobState::Stopping).reason, None);
    wait_event(&cluster, "j", running.number, "slow-end");
    wait_state(&cluster, "j", JobState::Cancelled);
    cluster.leave();
}

#[test]
fn a_worker_that_is_silent_is_lost_after_the_timeout() {
    let world = World::new();
    let cluster = world.open();
    let (a, mut b) = two_with_a_job(&cluster, 4);
    wait_event(&cluster, "j", 0, "checkpoint");
    // Whatever a worker says is a sign of life, so it must not say anything at all.
    b.abandon();
    for _ in 0..7 {
        world.pass(&cluster, 300);
        a.heartbeat(&cluster);
    }
    let lost = wait_event(&cluster, "j", 0, "worker-lost");
    assert_eq!(lost.message, "worker b is lost: it was not heard for 2000 ms");
    let waiting = wait_event(&cluster, "j", lost.number, "waiting");
    assert!(
        waiting.message.contains("it needs 4 slots, and the 1 worker that is connected has 2 slots free"),
        "{}",
        waiting.message
    );
    assert!(cluster.workers()[0].alive);
    cluster.leave();
}

#[test]
fn a_worker_that_connects_anew_without_being_missed_ends_what_it_ran() {
    let world = World::new();
    let cluster = world.open();
    let mut a = one_with_a_job(&cluster, 2);
    wait_event(&cluster, "j", 0, "checkpoint");
    let old = a.register();
    assert_eq!(old.running.len(), 1);
    assert_eq!(a.join(&cluster), Command::Welcome { keep: Vec::new(), succeeds: Vec::new() }, "the job has gone on without it");
    let running = wait_event(&cluster, "j", wait_event(&cluster, "j", 0, "worker-lost").number, "running");
    assert!(running.message.contains("attempt 2"), "{}", running.message);
    cluster.leave();
}

#[test]
fn a_worker_that_may_not_join_is_named_to_jobs_that_wait() {
    let world = World::new();
    let cluster = world.open();
    cluster.submit(&by(), job("j", 1)).unwrap();
    wait_event(&cluster, "j", 0, "waiting");
    let mut a = FakeWorker::new("a", 1);
    for _ in 0..3 {
        let wrong = weir_protocol::Register { version: "9.9.9".to_owned(), ..a.register() };
        let answer = a.join_as(&cluster, wrong);
        assert!(matches!(&answer, Command::Refused { reason } if reason.contains("is weir 9.9.9")), "{answer:?}");
    }
    let event = wait_event(&cluster, "j", 0, "worker-refused");
    assert!(event.message.contains("worker a at 10.0.0.1:1 is weir 9.9.9, this coordinator is weir 1.2.3"), "{}", event.message);
    assert_eq!(kinds(&cluster, "j").iter().filter(|kind| *kind == "worker-refused").count(), 1, "it is said once");
    a.join(&cluster);
    wait_state(&cluster, "j", JobState::Running);
    cluster.leave();
}

#[test]
fn slots_that_a_job_gives_back_go_to_the_one_that_waits() {
    let world = World::new();
    let cluster = world.open();
    let _a = one_with_a_job(&cluster, 2);
    wait_state(&cluster, "j", JobState::Running);
    cluster.submit(&by(), job("k", 1)).unwrap();
    wait_event(&cluster, "k", 0, "waiting");
    cluster.cancel(&by(), "j").unwrap();
    wait_state(&cluster, "j", JobState::Cancelled);
    wait_state(&cluster, "k", JobState::Running);
    cluster.leave();
}

#[test]
fn jobs_that_wait_are_served_in_the_order_in_which_they_were_submitted() {
    let world = World::new();
    let cluster = world.open();
    let mut a = FakeWorker::new("a", 1);
    a.join(&cluster);
    let submit = |name: &str, slots: u32| {
        world.pass(&cluster, 50);
        cluster.submit(&by(), job(name, slots)).unwrap()
    };
    submit("j", 1);
    submit("k", 1);
    for name in ["j", "k"] {
        wait_state(&cluster, name, JobState::Running);
    }
    submit("large", 2);
    wait_event(&cluster, "large", 0, "waiting");
    let reason = submit("a-small-one", 1).reason.unwrap();
    assert!(reason.contains("it needs 1 slot after jobs that were submitted before it and wait for 2 slots"), "{reason}");
    wait_event(&cluster, "a-small-one", 0, "waiting");
    cluster.cancel(&by(), "j").unwrap();
    let expected = "wait for 2 slots, and the 1 worker that is connected has 1 slot free";
    until("the reason follows", || cluster.job("a-small-one").unwrap().status.reason.filter(|reason| reason.contains(expected)));
    let told =
        cluster.events("a-small-one", 0, Duration::ZERO).unwrap().into_iter().filter(|event| event.kind == "waiting").count();
    assert_eq!(told, 1, "other numbers ahead of it are no event");
    cluster.cancel(&by(), "k").unwrap();
    wait_state(&cluster, "large", JobState::Running);
    assert_eq!(cluster.job("a-small-one").unwrap().status.state, JobState::Waiting);
    cluster.cancel(&by(), "large").unwrap();
    wait_state(&cluster, "a-small-one", JobState::Running);

    // One that gives up its wait is not waited for.
    submit("next", 2);
    wait_event(&cluster, "next", 0, "waiting");
    submit("last", 1);
    wait_event(&cluster, "last", 0, "waiting");
    cluster.cancel(&by(), "next").unwrap();
    wait_state(&cluster, "last", JobState::Running);
    cluster.leave();
}

#[test]
fn a_worker_that_does_not_finish_a_step_of_the_start_is_named_while_it_is_waited_for() {
    let world = World::new();
    let cluster = world.open();
    let mut a = FakeWorker::new("a", 1);
    a.mute.store(true, Ordering::SeqCst);
    a.join(&cluster);
    cluster.submit(&by(), job("j", 1)).unwrap();
    let told = wait_event(&cluster, "j", 0, "slow-step");
    assert!(told.message.starts_with("worker a has not taken the job in: "), "{told:?}");
    let again = wait_event(&cluster, "j", told.number, "slow-step");
    assert_eq!(told.message.split(" (").next(), again.message.split(" (").next());
    assert_eq!(cluster.job("j").unwrap().status.state, JobState::Deploying, "it goes on waiting");
}
