//! The checkpoint storage does not answer, and later does.

use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use weir_protocol::api::{ClusterApi, JobState};
use weir_protocol::{Failure, FailureKind, Report};

use super::super::Cluster;
use super::fakes::{FakeWorker, World, by, job, one_with_a_job, until, wait_event, wait_state};
use crate::Limits;
use crate::faulty::Fault;

/// A world in which a storage is slow sooner.
fn world() -> World {
    let mut world = World::new();
    world.limits = Limits { slow_storage_ms: 100, store_ms_max: 1_000, store_begin_ms_max: 1_500, ..world.limits };
    world
}

/// A job that runs, the storage of which has stopped to answer; it is told of. Gives the last event.
fn hung(world: &World, cluster: &Cluster) -> (FakeWorker, u64) {
    let a = one_with_a_job(cluster, 1);
    let before = wait_event(cluster, "j", 0, "checkpoint");
    world.store.set(Fault::Hang);
    let told = wait_event(cluster, "j", before.number, "slow-storage");
    assert!(told.message.contains("the checkpoint storage memory: of job j has not answered for"), "{}", told.message);
    assert!(told.message.contains("the manifest of checkpoint "), "{}", told.message);
    (a, told.number)
}

/// All goes on: from the last checkpoint that is complete, and checkpoints complete again.
fn heals(world: &World, cluster: &Cluster, after: u64) {
    world.store.set(Fault::None);
    let running = wait_event(cluster, "j", after, "running");
    assert!(running.message.contains("runs from checkpoint "), "{}", running.message);
    wait_event(cluster, "j", running.number, "checkpoint");
}

#[test]
fn s86_a_job_can_be_cancelled_while_its_storage_never_answers() {
    let world = world();
    let cluster = world.open();
    let (_a, told) = hung(&world, &cluster);
    cluster.cancel(&by(), "j").unwrap();
    wait_event(&cluster, "j", told, "cancelled");
    assert!(world.store.hanging() > 0, "it does not answer to this day");
    world.store.set(Fault::None);
    cluster.leave();
}

#[test]
fn s86_a_stop_ends_while_the_storage_never_answers_and_says_that_no_last_checkpoint_was_taken() {
    let world = world();
    let cluster = world.open();
    let (_a, told) = hung(&world, &cluster);
    cluster.stop(&by(), "j").unwrap();
    let stopped = wait_event(&cluster, "j", told, "stopped");
    assert!(stopped.message.starts_with("it has stopped without a last checkpoint"), "{}", stopped.message);
    assert!(stopped.message.contains("has not answered for"), "{}", stopped.message);
    assert!(world.store.hanging() > 0);
    world.store.set(Fault::None);
    // Submitted again it goes on, from whatever the storage has.
    until("its old thread has let go of the job", || cluster.submit(&by(), job("j", 1)).ok());
    heals(&world, &cluster, stopped.number);
    cluster.leave();
}

#[test]
fn s86_a_lost_worker_is_noticed_while_the_storage_never_answers_and_the_job_goes_on_when_it_does() {
    let world = world();
    let cluster = world.open();
    let (mut a, told) = hung(&world, &cluster);
    a.leave(&cluster);
    let lost = wait_event(&cluster, "j", told, "worker-lost");
    let restarting = wait_event(&cluster, "j", lost.number, "restarting");
    let mut b = FakeWorker::new("b", 2);
    b.join(&cluster);
    // An attempt cannot begin; that is told, and tried again.
    let slow = wait_event(&cluster, "j", restarting.number, "slow-storage");
    assert!(slow.message.contains("an attempt is being begun"), "{}", slow.message);
    let again = wait_event(&cluster, "j", slow.number, "restarting");
    assert!(again.message.contains("has not answered for 1 s"), "{}", again.message);
    assert!(world.store.hanging() <= 2, "one thread waits, however often it is tried: {}", world.store.hanging());
    heals(&world, &cluster, again.number);
    cluster.leave();
}

#[test]
fn s86_another_parallelism_is_had_once_the_storage_answers() {
    let world = world();
    let cluster = world.open();
    let (a, told) = hung(&world, &cluster);
    cluster.rescale(&by(), "j", 2).unwrap();
    // The manifest that does not come ends the execution; the wish stays.
    wait_event(&cluster, "j", told, "restarting");
    world.store.set(Fault::None);
    until("it runs with two tasks", || (a.runs().last().map(|(_, tasks)| *tasks) == Some(2)).then_some(()));
    cluster.leave();
}

#[test]
fn s86_a_coordinator_ends_while_a_storage_never_answers_and_the_next_one_takes_the_job_over() {
    let world = world();
    let cluster = world.open();
    let (mut a, told) = hung(&world, &cluster);
    a.abandon();
    let (done, ended) = sync_channel(1);
    let leaving = {
        let cluster = cluster.clone();
        std::thread::spawn(move || {
            cluster.leave();
            let _ = done.send(());
        })
    };
    assert_ne!(ended.recv_timeout(Duration::from_secs(20)), Err(RecvTimeoutError::Timeout), "it waits for the storage");
    leaving.join().unwrap();
    drop(cluster);
    world.store.set(Fault::None);
    let cluster = world.open();
    a.join(&cluster);
    let taken = wait_event(&cluster, "j", told, "taken-over");
    wait_event(&cluster, "j", taken.number, "checkpoint");
    cluster.leave();
}

#[test]
fn s87_a_worker_that_is_stuck_in_a_step_ends_the_attempt_after_its_bound_and_another_begins() {
    let mut world = World::new();
    world.limits = Limits { step_ms_max: 600, ..world.limits };
    let cluster = world.open();
    let mut a = FakeWorker::new("a", 1);
    a.mute.store(true, Ordering::SeqCst);
    a.join(&cluster);
    cluster.submit(&by(), job("j", 1)).unwrap();
    let slow = wait_event(&cluster, "j", 0, "slow-step");
    assert!(slow.message.starts_with("worker a has not taken the job in"), "{}", slow.message);
    let restarting = wait_event(&cluster, "j", slow.number, "restarting");
    assert!(restarting.message.contains("worker a has not taken the job in"), "{}", restarting.message);
    a.mute.store(false, Ordering::SeqCst);
    wait_state(&cluster, "j", JobState::Running);
    a.say(&cluster, |execution, _| {
        let failure = Failure { kind: FailureKind::Transient, uid: None, reason: "its disk is full".to_owned() };
        Report::Failed { execution, failure }
    });
    let again = wait_event(&cluster, "j", restarting.number, "restarting");
    wait_event(&cluster, "j", again.number, "running");
    cluster.leave();
}
