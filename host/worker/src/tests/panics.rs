//! A panic anywhere ends one attempt: it is told with its text and place, and the job goes on or fails, but never hangs.

use weir_coordinator::{JobError, Notice, Outcome};

use super::store::Fault;
use super::world::{JOB, NUMBERS, Panic, World};

/// Runs the job to half of its numbers, where `panic` is told what is to panic; lets it go on after its restart. Gives why it
/// was restarted.
fn restarted(world: &World, panic: impl Fn()) -> Vec<String> {
    world.source.hold(NUMBERS / 2);
    let (mut restarts, mut told) = (Vec::new(), false);
    let outcome = world.run(JOB, |notice, _| match notice {
        Notice::Completed { .. } if world.source.is_holding() && !std::mem::replace(&mut told, true) => {
            panic();
            // A checkpoint without new rows would have little to do.
            world.source.hold(NUMBERS * 3 / 4);
        }
        Notice::Restarting { reason, .. } => {
            restarts.push(reason.clone());
            world.source.go_on();
        }
        _ => {}
    });
    assert!(matches!(outcome, Ok(Outcome::Finished(_))), "{outcome:?}");
    world.assert_exact();
    restarts
}

fn assert_told(reason: &str, text: &str) {
    assert!(reason.contains(text) && reason.contains("panicked at ") && reason.contains(".rs:"), "{reason}");
    assert!(reason.contains("this is a bug in weir, please report it"), "{reason}");
}

#[test]
fn a_panic_of_a_running_task_is_told_and_the_job_restarts() {
    for place in [Panic::Poll, Panic::Position, Panic::Write, Panic::Prepare] {
        let world = World::new();
        let reasons = restarted(&world, || world.source.panics().next(place));
        assert_eq!(reasons.len(), 1, "{place:?}: {reasons:?}");
        assert_told(&reasons[0], &format!("told to panic in {place:?}"));
    }
}

#[test]
fn a_panic_of_a_thread_that_stores_snapshots_is_told_and_the_job_restarts() {
    let world = World::new();
    let reasons = restarted(&world, || world.source.panics().next(Panic::Prepared));
    assert_told(&reasons[0], "told to panic in Prepared");
    assert!(reasons[0].starts_with("a thread that stores snapshots"), "{reasons:?}");
    let world = World::new();
    let reasons = restarted(&world, || world.store.set(Fault::Panic("files")));
    assert_told(&reasons[0], "the store was told to panic");
}

#[test]
fn a_panic_of_the_thread_that_writes_manifests_is_told_and_the_job_restarts() {
    let world = World::new();
    let reasons = restarted(&world, || world.store.set(Fault::Panic("manifests")));
    assert_told(&reasons[0], "the store was told to panic");
    assert!(reasons[0].starts_with("the thread that writes manifests"), "{reasons:?}");
}

#[test]
fn a_panic_while_an_attempt_is_built_is_told_and_the_next_one_is_whole() {
    for place in [Panic::OpenStorage, Panic::CreateSource, Panic::CreateSink, Panic::Recover, Panic::Commit] {
        let world = World::new();
        let reasons = restarted(&world, || {
            world.source.panics().next(place);
            // While it runs only a commit is due.
            if place != Panic::Commit {
                world.source.fail_once();
            }
        });
        let told = reasons.last().unwrap();
        assert_told(told, &format!("told to panic in {place:?}"));
    }
}

#[test]
fn a_panic_before_the_first_execution_is_told_at_once() {
    for place in [Panic::OpenStorage, Panic::CreateSource, Panic::CreateSink, Panic::Recover] {
        let world = World::new();
        world.source.panics().next(place);
        let error = world.run(JOB, |_, _| {}).unwrap_err();
        let JobError::Failed { reason, why_not_restarted } = &error else { panic!("{error}") };
        assert_told(reason, &format!("told to panic in {place:?}"));
        assert!(why_not_restarted.contains("it had not begun to run"), "{error}");
        world.run(JOB, |_, _| {}).unwrap();
        world.assert_exact();
    }
}

#[test]
fn a_panic_while_images_are_restored_is_told() {
    let world = World::new();
    world.stop_half_way(JOB);
    world.store.set(Fault::Panic("files"));
    let error = world.run(JOB, |_, _| {}).unwrap_err().to_string();
    assert_told(&error, "the store was told to panic");
    world.run(JOB, |_, _| {}).unwrap();
    world.assert_exact();
}

#[test]
fn a_panic_while_an_attempt_is_begun_is_told_and_another_begins() {
    let world = World::new();
    world.source.hold(NUMBERS / 2);
    let (mut restarts, mut told) = (Vec::new(), false);
    // The log is read when an attempt begins; nothing is decided between two executions.
    let outcome = world.run(JOB, |notice, _| match notice {
        Notice::Completed { .. } if world.source.is_holding() && !std::mem::replace(&mut told, true) => world.source.fail_once(),
        Notice::Restarting { reason, .. } => {
            restarts.push(reason.clone());
            if restarts.len() == 1 {
                world.store.set(Fault::Panic("log"));
            }
            world.source.go_on();
        }
        _ => {}
    });
    assert!(matches!(outcome, Ok(Outcome::Finished(_))), "{outcome:?}");
    assert!(restarts[0].contains("told to fail"), "{restarts:?}");
    assert_told(&restarts[1], "the store was told to panic");
    assert!(restarts[1].starts_with("the thread that writes manifests"), "{restarts:?}");
    world.assert_exact();
}
