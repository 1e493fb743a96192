//! What a job lives through: failing sources, a store that is down or full, damaged checkpoints, a second process.

use std::time::Duration;

use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use weir_storage::JobStorage;

use weir_coordinator::{JobError, Notice, Outcome, Wish};

use super::store::{EIO, ENOSPC, Fault};
use super::world::{JOB, NUMBERS, World};

#[test]
fn a_job_that_fails_again_and_again_in_the_middle_ends_exactly() {
    let world = World::new();
    let mut completed = 0;
    let mut restarts = Vec::new();
    world.source.hold(NUMBERS / 2);
    let outcome = world.run(JOB, |notice, _| match notice {
        Notice::Completed { .. } => {
            completed += 1;
            match completed {
                2 | 4 | 5 => world.source.fail_once(),
                7 => world.source.go_on(),
                9 => world.source.fail_once(),
                _ => {}
            }
        }
        Notice::Restarting { reason, .. } => restarts.push(reason.clone()),
        _ => {}
    });
    assert!(matches!(outcome, Ok(Outcome::Finished(_))), "{outcome:?}");
    assert!(restarts.len() >= 3, "{restarts:?}");
    assert!(restarts[0].contains("numbers: cannot read numbers: told to fail"), "{restarts:?}");
    world.assert_exact();
}

#[test]
fn s33_a_job_whose_checkpoints_fail_too_often_in_a_row_fails_over() {
    let world = World::new();
    world.source.hold(NUMBERS / 2);
    let mut failed_in_row = 0;
    let mut restarts = Vec::new();
    let job = JOB.replace("\"5ms\"", "\"5ms\"\ntolerable_failures = 2");
    let outcome = world.run(&job, |notice, _| match notice {
        Notice::Completed { .. } if restarts.is_empty() && world.source.is_holding() => world.store.set(Fault::Manifests(EIO)),
        Notice::Completed { .. } if !restarts.is_empty() => world.source.go_on(),
        Notice::Completed { .. } => failed_in_row = 0,
        Notice::CheckpointFailed { .. } => failed_in_row += 1,
        Notice::Restarting { reason, .. } => {
            assert_eq!(failed_in_row, 3, "two in a row are tolerated");
            restarts.push(reason.clone());
            world.store.set(Fault::None);
        }
        _ => {}
    });
    assert!(matches!(outcome, Ok(Outcome::Finished(_))), "{outcome:?}");
    assert_eq!(restarts.len(), 1);
    assert!(restarts[0].contains("test:store"), "it says where: {restarts:?}");
    world.assert_exact();
}

#[test]
fn s40_a_full_disk_fails_checkpoints_by_name_and_loses_nothing() {
    for fault in [Fault::Files(ENOSPC), Fault::Manifests(ENOSPC), Fault::Down(EIO)] {
        let world = World::new();
        world.source.hold(NUMBERS / 2);
        let mut failed = Vec::new();
        let job = JOB.replace("\"5ms\"", "\"5ms\"\ntolerable_failures = 100000");
        let outcome = world.run(&job, |notice, _| match notice {
            Notice::Completed { .. } if failed.is_empty() => {
                world.store.set(fault);
                // A checkpoint without new state writes no file.
                world.source.hold(world.source.given() + 10);
            }
            Notice::Completed { .. } => world.source.go_on(),
            Notice::CheckpointFailed { reason, .. } => {
                failed.push(reason.clone());
                if failed.len() == 5 {
                    world.store.set(Fault::None);
                }
            }
            Notice::Restarting { reason, .. } => panic!("the job waits, it does not fail: {reason}"),
            _ => {}
        });
        assert!(matches!(outcome, Ok(Outcome::Finished(_))), "{outcome:?}");
        let named = if fault == Fault::Down(EIO) { "is not available" } else { "the storage is full" };
        assert!(failed[0].contains(named) && failed[0].contains("test:store"), "{failed:?}");
        world.assert_exact();
    }
}

#[test]
fn s40_a_job_that_fails_while_the_storage_is_down_waits_for_it() {
    let world = World::new();
    world.source.hold(NUMBERS / 2);
    let mut restarts = Vec::new();
    let outcome = world.run(JOB, |notice, _| match notice {
        Notice::Completed { .. } if restarts.is_empty() && world.source.is_holding() => {
            world.store.set(Fault::Down(EIO));
            world.source.fail_once();
        }
        Notice::Restarting { reason, .. } => {
            restarts.push(reason.clone());
            if restarts.len() == 5 {
                world.store.set(Fault::None);
                world.source.go_on();
            }
        }
        _ => {}
    });
    assert!(matches!(outcome, Ok(Outcome::Finished(_))), "{outcome:?}");
    assert!(restarts[0].contains("told to fail"), "{restarts:?}");
    assert!(restarts[1..].iter().all(|reason| reason.contains("the storage is not available")), "{restarts:?}");
    world.assert_exact();
}

#[test]
fn s40_a_job_whose_templates_cannot_be_stored_does_not_begin_and_says_why() {
    let world = World::new();
    world.store.set(Fault::Files(ENOSPC));
    let error = world.run(JOB, |_, _| {}).unwrap_err().to_string();
    assert!(
        error.contains("the storage is full") && error.contains("test:store") && error.contains("it had not begun"),
        "{error}"
    );
    world.store.set(Fault::None);
    world.run(JOB, |_, _| {}).unwrap();
    world.assert_exact();
}

#[test]
fn s41_a_job_that_another_process_has_taken_over_ends_and_takes_nothing_back() {
    let world = World::new();
    world.source.hold(NUMBERS / 2);
    let mut other = None;
    let outcome = world.run(JOB, |notice, _| {
        if matches!(notice, Notice::Completed { .. }) && other.is_none() {
            other = Some(world.other_log().begin(&[]).unwrap().attempt);
        }
    });
    let Err(JobError::Failed { reason, .. }) = outcome else { panic!("{outcome:?}") };
    let other = other.unwrap();
    assert!(reason.contains("has taken over") && reason.contains(&format!("with attempt {other}")), "{reason}");
    world.source.go_on();
    world.run(JOB, |_, _| {}).unwrap();
    world.assert_exact();
}

pub(super) fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

/// Changes a byte of every file that only the newest checkpoint has written, or of its manifest where it has written none: what it
/// needs is there, but not whole, and older ones are.
pub(super) fn damage_newest(world: &World, storage: &JobStorage) {
    let state = storage.state().unwrap();
    let newest = state.newest().unwrap();
    let files = storage.stored_manifest(newest).unwrap().files;
    let mut places: Vec<String> = files.iter().map(|file| format!("files/{}", file.name)).collect();
    if places.is_empty() {
        places.push(format!("manifests/{}", newest.manifest));
    }
    for place in places {
        let path = Path::from(format!("numbers/{place}"));
        wait(async {
            let mut bytes = world.store.inner().get(&path).await.unwrap().bytes().await.unwrap().to_vec();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            world.store.inner().put(&path, bytes.into()).await.unwrap();
        });
    }
}

/// Runs the job until its last checkpoint is complete and not all of its output committed.
pub(super) fn leave_uncommitted(world: &World) {
    world.source.hold(NUMBERS / 2);
    let mut completed = 0;
    let once = JOB.replace("fixed\"\ndelay = \"1ms\"\nattempts = 200", "none\"");
    let outcome = world.run(&once, |notice, _| {
        completed += u32::from(matches!(notice, Notice::Completed { .. }));
        if completed >= 3 && world.source.is_holding() {
            world.output.fail_commits(u32::MAX);
            world.source.hold(NUMBERS * 3 / 4);
        }
    });
    assert!(outcome.is_err(), "{outcome:?}");
    world.output.fail_commits(0);
    world.source.go_on();
}

#[test]
fn s40_a_damaged_checkpoint_is_left_for_an_older_one_and_nothing_of_it_is_committed() {
    let world = World::new();
    leave_uncommitted(&world);
    damage_newest(&world, &world.storage());
    let mut fell_back = Vec::new();
    let outcome = world.run(JOB, |notice, _| {
        if let Notice::FellBack { reason, .. } = notice {
            fell_back.push(reason.clone());
        }
    });
    assert!(matches!(outcome, Ok(Outcome::Finished(_))), "{outcome:?}");
    assert_eq!(fell_back.len(), 1);
    assert!(fell_back[0].contains("is damaged"), "{fell_back:?}");
    world.assert_exact();
}

#[test]
fn s40_output_of_a_damaged_checkpoint_that_was_committed_is_taken_back() {
    let world = World::new();
    // Enough that the checkpoint half way is still there, however many come after it.
    let job = &JOB.replace("\"5ms\"", "\"5ms\"\nretained = 1000");
    world.output.allow_retract();
    world.stop_half_way_and_further_on(job);
    let storage = world.storage();
    // All that was written since half way: the checkpoints after it need it.
    damage_newest(&world, &storage);
    let mut fell_back = 0;
    let outcome = world.run(job, |notice, _| fell_back += u32::from(matches!(notice, Notice::FellBack { .. })));
    assert!(matches!(outcome, Ok(Outcome::Finished(_))), "{outcome:?}");
    assert!(fell_back > 0);
    world.assert_exact();
}

#[test]
fn files_of_failed_executions_are_removed_when_the_next_one_starts() {
    let world = World::new();
    world.source.hold(NUMBERS / 2);
    let job = JOB.replace("\"5ms\"", "\"off\"");
    let mut restarts = 0;
    let outcome = world.run(&job, |notice, _| match notice {
        Notice::Started { .. } if restarts < 20 => world.source.fail_once(),
        Notice::Started { .. } => world.source.go_on(),
        Notice::Restarting { .. } => restarts += 1,
        _ => {}
    });
    assert!(matches!(outcome, Ok(Outcome::Finished(_))), "{outcome:?}");
    let list = world.store.inner().list(Some(&Path::from("numbers/files")));
    let files = wait(futures::StreamExt::count(list));
    assert!(files <= 8, "{files} files after {restarts} restarts without a checkpoint");
}

#[test]
fn s86_a_job_whose_snapshots_hang_is_cancelled_within_its_bound_and_goes_on_when_the_storage_heals() {
    let world = World::new();
    world.source.hold(NUMBERS / 2);
    let (mut asked, mut completed) = (None, 0);
    let outcome = world.run(JOB, |notice, control| match notice {
        Notice::Completed { .. } if world.source.is_holding() && asked.is_none() => {
            completed += 1;
            if completed >= 3 {
                world.store.set(Fault::Hang("files"));
                world.source.hold(NUMBERS * 3 / 4);
                asked = Some(std::time::Instant::now());
            }
        }
        Notice::Progress(_) if asked.is_some_and(|at: std::time::Instant| at.elapsed() > Duration::from_secs(1)) => {
            control.wish(Wish::Cancel);
        }
        _ => {}
    });
    assert!(matches!(outcome, Ok(Outcome::Cancelled)), "{outcome:?}");
    // Nothing but the patience of master and worker with threads that do not end.
    assert!(asked.unwrap().elapsed() < Duration::from_secs(20), "{:?}", asked.unwrap().elapsed());
    world.store.set(Fault::None);
    world.source.go_on();
    world.run(JOB, |_, _| {}).unwrap();
    world.assert_exact();
}
