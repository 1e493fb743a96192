//! Coordinators end in the middle of everything, and others come after them.

use std::sync::atomic::Ordering;
use std::time::Duration;

use weir_protocol::api::{ClusterApi, JobState};
use weir_protocol::{Command, Failure, FailureKind, Report};

use super::super::Cluster;
use super::fakes::{FakeWorker, World, by, job, kinds, one_with_a_job, two_with_a_job, until, value_of, wait_event, wait_state};
use crate::faulty::Fault;

/// The coordinator ends; workers do not notice and go on.
fn end(cluster: &Cluster, workers: &mut [&mut FakeWorker]) {
    workers.iter_mut().for_each(|worker| worker.abandon());
    cluster.leave();
}

#[test]
fn a_healthy_job_is_taken_over_without_restarting_a_task() {
    let world = World::new();
    let cluster = world.open();
    let (mut a, mut b) = two_with_a_job(&cluster, 2);
    let before = wait_event(&cluster, "j", 0, "checkpoint");
    end(&cluster, &mut [&mut a, &mut b]);

    let cluster = world.open();
    assert!(matches!(a.join(&cluster), Command::Welcome { keep, .. } if keep.len() == 1));
    assert_eq!(cluster.job("j").unwrap().status.state, JobState::Running, "its tasks run all the time");
    let reason = until("the reason follows", || cluster.job("j").unwrap().status.reason);
    assert!(reason.contains("waits for the workers of attempt 1: a, b"), "{reason}");
    b.join(&cluster);
    wait_event(&cluster, "j", before.number, "taken-over");
    wait_event(&cluster, "j", before.number, "checkpoint");
    assert_eq!((a.starts(), b.starts()), (1, 1));
    assert_eq!((a.runs(), b.runs()), (vec![(1, 1)], vec![(1, 1)]));
    let status = cluster.job("j").unwrap().status;
    assert_eq!((status.attempt, status.restarts, status.reason), (1, 0, None));
    assert_eq!(cluster.status().slots_used, 2);
    cluster.leave();
}

#[test]
fn what_a_worker_reports_while_the_others_are_waited_for_counts() {
    let world = World::new();
    let cluster = world.open();
    let (mut a, mut b) = two_with_a_job(&cluster, 2);
    let before = wait_event(&cluster, "j", 0, "checkpoint");
    end(&cluster, &mut [&mut a, &mut b]);

    let cluster = world.open();
    a.join(&cluster);
    a.say(&cluster, |execution, _| {
        let failure = Failure { kind: FailureKind::Transient, uid: None, reason: "its disk is full".to_owned() };
        Report::Failed { execution, failure }
    });
    b.join(&cluster);
    wait_event(&cluster, "j", before.number, "taken-over");
    let restarting = wait_event(&cluster, "j", before.number, "restarting");
    assert!(restarting.message.starts_with("its disk is full"), "{}", restarting.message);
    let before = wait_event(&cluster, "j", restarting.number, "checkpoint");
    end(&cluster, &mut [&mut a, &mut b]);

    // All input has ended on one of them before the other is back.
    let cluster = world.open();
    let finished = |execution, task| Report::Finished { execution, task };
    a.join(&cluster);
    a.say(&cluster, finished);
    b.join(&cluster);
    b.say(&cluster, finished);
    wait_event(&cluster, "j", before.number, "taken-over");
    wait_state(&cluster, "j", JobState::Finished);
    cluster.leave();
}

#[test]
fn a_job_whose_worker_does_not_come_back_begins_anew_after_the_wait() {
    let world = World::new();
    let cluster = world.open();
    let (mut a, mut b) = two_with_a_job(&cluster, 2);
    let before = wait_event(&cluster, "j", 0, "checkpoint");
    end(&cluster, &mut [&mut a, &mut b]);

    let cluster = world.open();
    a.join(&cluster);
    for _ in 0..7 {
        world.pass(&cluster, 1_000);
        a.heartbeat(&cluster);
    }
    assert!(!kinds(&cluster, "j").contains(&"not-taken-over".to_owned()), "it still waits");
    assert_eq!(a.runs(), [(1, 1)]);
    world.pass(&cluster, 1_000);
    let event = wait_event(&cluster, "j", before.number, "not-taken-over");
    assert!(event.message.ends_with("these workers are not back: b"), "{}", event.message);
    let running = wait_event(&cluster, "j", event.number, "running");
    assert!(running.message.contains("attempt 2 runs from checkpoint"), "{}", running.message);
    until("a runs both and nothing else", || (a.runs() == [(2, 2)]).then_some(()));
    // The other one was only late: what it runs is over.
    assert_eq!(b.join(&cluster), Command::Welcome { keep: Vec::new(), succeeds: Vec::new() });
    cluster.leave();
}

#[test]
fn a_job_whose_worker_was_started_anew_does_not_wait() {
    let world = World::new();
    let cluster = world.open();
    let (mut a, mut b) = two_with_a_job(&cluster, 2);
    let before = wait_event(&cluster, "j", 0, "checkpoint");
    end(&cluster, &mut [&mut a, &mut b]);

    let cluster = world.open();
    a.join(&cluster);
    let mut b = FakeWorker::new("b", 3);
    b.join(&cluster);
    let event = wait_event(&cluster, "j", before.number, "not-taken-over");
    assert!(event.message.contains("worker b does not run it any more"), "{}", event.message);
    wait_event(&cluster, "j", event.number, "running");
    until("one task of the new attempt on each", || (a.runs() == [(2, 1)] && b.runs() == [(2, 1)]).then_some(()));
    assert!(a.was_told("Cancel { execution: Execution { job: \"j\", attempt: Attempt(1) }, finish: false }"));
    cluster.leave();
}

#[test]
fn slots_of_an_execution_that_may_go_on_are_not_given_away() {
    let world = World::new();
    let cluster = world.open();
    let mut a = one_with_a_job(&cluster, 2);
    let before = wait_event(&cluster, "j", 0, "checkpoint");
    cluster.submit(&by(), job("i", 1)).unwrap();
    wait_event(&cluster, "i", 0, "waiting");
    end(&cluster, &mut [&mut a]);

    let cluster = world.open();
    a.join(&cluster);
    wait_event(&cluster, "j", before.number, "taken-over");
    assert_eq!(cluster.job("i").unwrap().status.state, JobState::Waiting);
    cluster.leave();
}

#[test]
fn what_people_wished_is_done_by_the_next_coordinator() {
    let world = World::new();
    let cluster = world.open();
    let mut a = one_with_a_job(&cluster, 1);
    cluster.submit(&by(), job("k", 1)).unwrap();
    wait_event(&cluster, "j", 0, "checkpoint");
    wait_event(&cluster, "k", 0, "checkpoint");
    // The wishes are written, and nothing follows from them before the coordinator is killed.
    a.mute.store(true, Ordering::SeqCst);
    cluster.stop(&by(), "j").unwrap();
    cluster.cancel(&by(), "k").unwrap();
    let copy = world.folder.path().join("copy");
    copy_folder(&world.folder.path().join("data"), &copy);
    a.leave(&cluster);
    cluster.leave();

    let cluster = world.open_at(&copy);
    a.mute.store(false, Ordering::SeqCst);
    wait_state(&cluster, "k", JobState::Cancelled);
    let Command::Welcome { keep, .. } = a.join(&cluster) else { panic!("it may join") };
    assert_eq!(keep.iter().map(|execution| execution.job.as_str()).collect::<Vec<_>>(), ["j"]);
    wait_state(&cluster, "j", JobState::Stopped);
    assert_eq!(a.runs(), []);
    a.abandon();
    cluster.leave();
    drop(cluster);
    let cluster = world.open_at(&copy);
    assert_eq!(cluster.job("j").unwrap().status.state, JobState::Stopped, "what is over stays over");
    cluster.leave();
}

#[test]
fn s38_a_coordinator_that_ends_between_manifest_and_commit_loses_no_commit_and_makes_none_twice() {
    let world = World::new();
    let cluster = world.open();
    let (mut a, mut b) = two_with_a_job(&cluster, 2);
    wait_event(&cluster, "j", 0, "checkpoint");
    // From now on manifests are written, and one of the workers does not hear of them.
    b.deaf_to_completed.store(true, Ordering::SeqCst);
    let newest = || world.storage("j").checkpoints().unwrap()[0];
    let first = newest();
    until("more checkpoints are complete", || (newest().0 >= first.0 + 3).then_some(()));
    end(&cluster, &mut [&mut a, &mut b]);
    let last = newest();
    assert!(b.commits().iter().all(|(_, value)| *value < last.0 * 100), "b has not committed checkpoint {last}");

    let cluster = world.open();
    b.deaf_to_completed.store(false, Ordering::SeqCst);
    a.join(&cluster);
    b.join(&cluster);
    until("everything of that checkpoint is committed", || {
        let tasks = [weir_model::TaskId(0), weir_model::TaskId(1)];
        let all: Vec<_> = a.commits().into_iter().chain(b.commits()).collect();
        tasks.iter().all(|task| all.contains(&(*task, value_of(*task, last)))).then_some(())
    });
    assert_eq!((a.starts(), b.starts()), (1, 1), "no task was restarted for it");
    for worker in [&a, &b] {
        let mut values: Vec<u64> = worker.commits().into_iter().map(|(_, value)| value).collect();
        assert!(values.is_sorted(), "in order: {values:?}");
        values.dedup();
        assert_eq!(values.len(), worker.commits().len());
    }
    cluster.leave();
}

#[test]
fn s81_storage_that_cannot_be_read_at_a_takeover_never_makes_a_complete_checkpoint_count_as_aborted() {
    let world = World::new();
    let cluster = world.open();
    let mut a = one_with_a_job(&cluster, 1);
    let before = wait_event(&cluster, "j", 0, "checkpoint");
    end(&cluster, &mut [&mut a]);
    let last = world.storage("j").checkpoints().unwrap()[0];
    drop(cluster);

    world.store.set(Fault::ReadManifests);
    let cluster = world.open();
    a.join(&cluster);
    let restarting = wait_event(&cluster, "j", before.number, "restarting");
    assert!(restarting.message.contains("cannot be taken over"), "{}", restarting.message);
    assert!(
        !a.was_told(&format!("Abort {{ execution: Execution {{ job: \"j\", attempt: Attempt(1) }}, checkpoint: {last:?} }}"))
    );
    assert!(a.was_told("Cancel"), "nobody leads its tasks any more");
    world.store.set(Fault::None);
    let running = wait_event(&cluster, "j", restarting.number, "running");
    // Which attempt it is depends on how many began before the storage could be read again.
    assert!(running.message.ends_with(&format!(" runs from checkpoint {last}")), "{}", running.message);
    wait_event(&cluster, "j", running.number, "checkpoint");
    cluster.leave();
}

#[test]
fn s41_of_two_coordinators_on_copies_of_a_folder_the_one_that_began_last_owns_the_job() {
    let world = World::new();
    let cluster = world.open();
    let a = one_with_a_job(&cluster, 1);
    wait_event(&cluster, "j", 0, "checkpoint");
    let copy = world.folder.path().join("copy");
    copy_folder(&world.folder.path().join("data"), &copy);

    // The copy has workers of its own and does not know of the first one.
    let other = world.open_at(&copy);
    let mut b = FakeWorker::new("b", 2);
    b.join(&other);
    for _ in 0..8 {
        world.pass(&other, 1_000);
        b.heartbeat(&other);
    }
    let running = wait_event(&other, "j", 0, "not-taken-over").number;
    wait_event(&other, "j", running, "running");
    // The first one is fenced by its next entry, and commits nothing more.
    let failed = wait_state(&cluster, "j", JobState::Failed);
    assert!(failed.reason.unwrap().contains("attempt"), "it says what happened");
    let theirs = a.commits();
    until("the second one goes on", || (b.commits().len() >= 3).then_some(()));
    assert_eq!(a.commits(), theirs);
    let of_a: Vec<u64> = theirs.iter().map(|(_, value)| *value).collect();
    assert!(b.commits().iter().all(|(_, value)| !of_a.contains(value)), "nothing is committed by both");
    other.leave();
    cluster.leave();
}

pub(super) fn copy_folder(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            copy_folder(&entry.path(), &to.join(entry.file_name()));
        } else {
            std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}

#[test]
fn a_job_that_never_began_starts_under_the_next_coordinator() {
    let world = World::new();
    let cluster = world.open();
    cluster.submit(&by(), job("j", 1)).unwrap();
    wait_event(&cluster, "j", 0, "waiting");
    cluster.leave();
    drop(cluster);
    let cluster = world.open();
    let mut a = FakeWorker::new("a", 1);
    a.join(&cluster);
    wait_state(&cluster, "j", JobState::Running);
    let all = cluster.events("j", 0, Duration::ZERO).unwrap();
    assert!(all.iter().any(|event| event.kind == "coordinator-restarted"), "{all:?}");
    cluster.leave();
}

#[test]
fn what_a_job_had_done_when_it_ended_is_shown_by_the_next_coordinator() {
    let world = World::new();
    let cluster = world.open();
    let mut a = one_with_a_job(&cluster, 1);
    cluster.submit(&by(), job("k", 1)).unwrap();
    wait_event(&cluster, "j", 0, "checkpoint");
    wait_event(&cluster, "k", 0, "checkpoint");
    a.heartbeat_of(&cluster, "k", 11);
    until("it is shown", || (cluster.job("k").unwrap().status.rows_read == 11).then_some(()));
    cluster.stop(&by(), "j").unwrap();
    cluster.cancel(&by(), "k").unwrap();
    wait_state(&cluster, "j", JobState::Stopped);
    wait_state(&cluster, "k", JobState::Cancelled);
    let before = [cluster.job("j").unwrap(), cluster.job("k").unwrap()];
    // Its worker says the last counts when it ends.
    assert_eq!((before[0].status.rows_read, before[0].status.rows_written), (7, 7));
    assert!(before[0].status.checkpoint.is_some() && before[0].checkpoints_completed > 0, "{:?}", before[0]);
    assert_eq!(before[0].metrics.get("out.whole"), Some(&1.0));
    end(&cluster, &mut [&mut a]);
    drop(cluster);

    let cluster = world.open();
    assert_eq!([cluster.job("j").unwrap(), cluster.job("k").unwrap()], before);
    // Submitted again, it begins to count anew.
    assert_eq!(cluster.submit(&by(), job("j", 1)).unwrap().rows_read, 0);
    cluster.leave();
}

#[test]
fn slots_that_were_held_for_an_execution_in_vain_go_to_a_job_that_waits() {
    let world = World::new();
    let cluster = world.open();
    let (mut a, mut b) = two_with_a_job(&cluster, 4);
    wait_event(&cluster, "j", 0, "checkpoint");
    cluster.submit(&by(), job("k", 1)).unwrap();
    wait_event(&cluster, "k", 0, "waiting");
    end(&cluster, &mut [&mut a, &mut b]);

    let cluster = world.open();
    a.join(&cluster);
    for _ in 0..8 {
        world.pass(&cluster, 1_000);
        a.heartbeat(&cluster);
    }
    wait_event(&cluster, "j", 0, "not-taken-over");
    wait_state(&cluster, "k", JobState::Running);
    assert_eq!(cluster.job("j").unwrap().status.state, JobState::Waiting);
    cluster.leave();
}
