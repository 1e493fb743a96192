//! Two coordinators of one job.

use std::sync::Arc;

use weir_model::{Attempt, CheckpointId, Epoch};

use super::job::{Job, assert_tidy, checkpoints, open, restore, straggle, through};
use super::{owner, writer};
use crate::tests::faults::{Fault, faulty};
use crate::tests::{manifest, memory, over, write};
use crate::*;

#[test]
fn s41_an_older_attempt_completes_no_checkpoint() {
    let store = memory();
    let mut old = Job::over(&store, 2);
    old.checkpoint(b"a").unwrap();
    let mut new = Job::over(&store, 2);
    let error = old.checkpoint(b"lost").unwrap_err();
    assert!(matches!(error, StorageError::Deposed { newest: Attempt(2), .. }), "{error}");
    assert_eq!(error.kind(), ErrorKind::Fenced);
    // Both took number 2; only the new attempt's counts.
    assert_eq!(new.checkpoint(b"b").unwrap(), CheckpointId(2));
    assert_eq!(restore(&new.storage, CheckpointId(2)).unwrap(), b"ab");
    let never_begun = Arc::new(manifest(Attempt(77), CheckpointId(50), vec![], vec![]));
    assert_eq!(new.log.complete(&never_begun, 3).unwrap_err().kind(), ErrorKind::Bug);
    assert_eq!(old.log.discard(Vec::new()), Deleted::default(), "it deletes nothing that counts");
    assert_eq!(checkpoints(&new.storage).unwrap().len(), 2);
}

/// The new attempt begins between any two requests of the old one's completion.
#[test]
fn s41_taking_over_in_the_middle_of_a_completion_commits_it_exactly_when_it_is_restored() {
    let mut outcomes = (0, 0);
    for request in 0..3 {
        let store = memory();
        Job::over(&store, 2).checkpoint(b"a").unwrap();
        let faulty = faulty(&store, Fault::None);
        let mut old = Job::start(through(&faulty), 2).unwrap();
        let manifest = old.prepare(b"b").unwrap();

        // Everything up to `request`, then nothing until the new attempt has begun, then the rest.
        let (reached, taken_over) = faulty.pause_at(faulty.requests() + request);
        let (result, new) = std::thread::scope(|scope| {
            let completing = scope.spawn(|| {
                let result = old.log.complete(&manifest, 3);
                faulty.end_pause();
                result
            });
            // Fewer requests than that: it is complete before the new attempt begins.
            let paused = reached.recv().is_ok();
            let new = Job::over(&store, 2);
            drop(taken_over);
            let result = completing.join().unwrap();
            assert!(paused || result.is_ok(), "{result:?}");
            (result, new)
        });
        match result {
            Ok(_) => {
                outcomes.0 += 1;
                assert_eq!(new.state, b"ab", "request {request}: committed by the old attempt, so it must be restored");
            }
            Err(error) => {
                outcomes.1 += 1;
                assert!(matches!(error, StorageError::Deposed { .. }), "request {request}: {error}");
            }
        }
        // What the new attempt went on from stays the newest, for the next one too.
        let third = Job::over(&store, 2);
        assert_eq!(third.state, new.state, "request {request}");
        assert_tidy(&third.storage, &format!("request {request}"));
    }
    assert_eq!(outcomes, (1, 2));
}

#[test]
fn s36_a_successor_that_writes_the_same_checkpoint_and_task_replaces_nothing() {
    let store = memory();
    let mut first = Job::over(&store, 8);
    first.checkpoint(b"a").unwrap();
    let id = first.next;
    // The first attempt has stored its part, and dies before the manifest.
    let (dead, _) = write(&first.storage, first.attempt, id, b"dead").unwrap();

    let mut second = Job::over(&store, 8);
    second.next = id;
    second.checkpoint(b"live").unwrap();
    // A task that did not notice its death writes once more.
    let late = straggle(&first.storage, first.attempt, id);
    assert_ne!(dead.file, late.name);
    assert_eq!(restore(&second.storage, id).unwrap(), b"alive");
    let third = Job::over(&store, 8);
    assert_eq!(third.state, b"alive");
    assert_tidy(&third.storage, "what the dead attempt wrote is swept");
}

#[test]
fn s84_going_back_is_decided_before_it_is_said_and_stays_so_when_the_damage_heals() {
    let store = memory();
    let mut job = Job::over(&store, 8);
    let older = job.checkpoint(b"a").unwrap();
    let newest = job.checkpoint(b"b").unwrap();
    let back = Job::start_without(over(&store), 8, &[newest]).unwrap();
    assert_eq!((back.state.as_slice(), back.retract_after), (b"a".as_slice(), Some(older)));
    // It dies before its first checkpoint. The next one finds the same, and not what is whole again.
    let mut again = Job::over(&store, 8);
    assert_eq!((again.state.as_slice(), again.retract_after), (b"a".as_slice(), Some(older)));
    assert!(again.next > newest, "its number is not used again");
    again.checkpoint(b"c").unwrap();
    let after = Job::over(&store, 8);
    assert_eq!((after.state.as_slice(), after.retract_after), (b"ac".as_slice(), None));
    assert_tidy(&after.storage, "what is void is deleted");
}

/// Killed between any two requests of going back.
#[test]
fn s84_killed_while_going_back_either_nothing_or_all_of_it_was_decided() {
    let mut seen = (0, 0);
    for crash in [Fault::CrashBefore as fn(u64) -> Fault, Fault::CrashAfter, Fault::LostAnswer] {
        for request in 0..40 {
            let store = memory();
            let mut job = Job::over(&store, 8);
            let older = job.checkpoint(b"a").unwrap();
            let newest = job.checkpoint(b"b").unwrap();
            let fault = crash(request);
            let begun = Job::start_without(through(&faulty(&store, fault)), 8, &[newest]).is_ok();
            let next = Job::over(&store, 8);
            match next.retract_after {
                // As if nobody had ever wanted to.
                None => {
                    assert!(!begun, "{fault:?}: who was told to take back is not the only one who knows");
                    assert_eq!(next.state, b"ab", "{fault:?}");
                    seen.0 += 1;
                }
                Some(after) => {
                    assert_eq!((after, next.state.as_slice()), (older, b"a".as_slice()), "{fault:?}");
                    seen.1 += 1;
                }
            }
            assert_tidy(&next.storage, &format!("{fault:?}"));
        }
    }
    assert!(seen.0 > 5 && seen.1 > 5, "{seen:?}");
}

#[test]
fn starting_over_is_durable_before_anything_is_deleted() {
    for request in 0..30 {
        let store = memory();
        let mut job = Job::over(&store, 8);
        job.checkpoint(b"a").unwrap();
        let faulty = faulty(&store, Fault::CrashBefore(request));
        let started_over = open(&through(&faulty)).start_over(&owner());
        let next = Job::over(&store, 8);
        match next.retract_after {
            None => {
                assert!(started_over.is_err(), "request {request}");
                assert_eq!(next.state, b"a", "request {request}");
            }
            Some(after) => assert_eq!((after, next.state.len()), (CheckpointId(0), 0), "request {request}"),
        }
        assert!(next.attempt > job.attempt, "a process that still runs the older one is refused");
        assert_eq!(job.checkpoint(b"b").unwrap_err().kind(), ErrorKind::Fenced);
    }
}

#[test]
fn a_coordinator_goes_on_with_the_attempt_of_another_only_while_it_is_the_newest() {
    let store = memory();
    let mut first = Job::over(&store, 8);
    let id = first.checkpoint(b"a").unwrap();
    let mut second = open(&over(&store));
    let led = second.lead(first.attempt).unwrap();
    assert_eq!((led.newest_attempt, led.newest.map(|newest| newest.id())), (first.attempt, Some(id)));
    assert_eq!(led.next_checkpoint, first.next);
    // The first believes that it leads: both use the same numbers, of the same attempt.
    assert_eq!(first.checkpoint(b"old").unwrap_err().kind(), ErrorKind::Fenced);
    let (segment, file) = write(&first.storage, first.attempt, led.next_checkpoint, b"new").unwrap();
    let chain = vec![first.chain[0].clone(), segment];
    let new = Arc::new(manifest(first.attempt, led.next_checkpoint, chain, vec![file]));
    second.complete(&new, 3).unwrap();
    assert_eq!(restore(&over(&store), led.next_checkpoint).unwrap(), b"anew");
    // A new attempt: there is nothing to go on with, and nothing is decided.
    let third = Job::over(&store, 8);
    let entry = third.log.pen.number();
    assert_eq!(second.lead(first.attempt).unwrap().newest_attempt, third.attempt);
    let mut reader = open(&over(&store));
    reader.newest_whole().unwrap();
    assert_eq!(reader.pen.number(), entry);
}

#[test]
fn an_earlier_life_of_the_coordinator_leads_no_more() {
    let store = memory();
    let of = |count| Writer { epoch: Epoch { origin: [9; 16], count }, nonce: 1_000_000 + count };
    let mut late = JobLog::new(over(&store), of(2));
    late.claim(&owner()).unwrap();
    late.begin(&[]).unwrap();
    let mut early = JobLog::new(over(&store), of(1));
    assert_eq!(early.begin(&[]).unwrap_err().kind(), ErrorKind::Fenced);
    assert_eq!(early.lead(Attempt(1)).unwrap_err().kind(), ErrorKind::Fenced);
    assert_eq!(late.begin(&[]).unwrap().attempt, Attempt(2));
    let mut of_another = JobLog::new(over(&store), writer(1_000_009));
    assert_eq!(of_another.begin(&[]).unwrap().attempt, Attempt(3), "metadata that was lost does not lock a job");
}

#[test]
fn s84_what_may_be_complete_is_not_deleted_by_whoever_has_given_it_up() {
    let store = memory();
    let faulty = faulty(&store, Fault::None);
    let mut job = Job::start(through(&faulty), 8).unwrap();
    job.checkpoint(b"a").unwrap();
    let manifest = job.prepare(b"b").unwrap();
    // The entry is there, and nobody has heard of it; so its files are discarded.
    faulty.set(Fault::LostAnswer(faulty.requests() + 1));
    job.log.complete(&manifest, 3).unwrap_err();
    let files: Vec<String> = manifest.files.iter().map(|file| file.name.clone()).collect();
    faulty.set(Fault::Down(crate::tests::faults::EIO));
    assert_eq!(job.log.discard(files.clone()).files, 0, "not while nobody knows");
    faulty.set(Fault::None);
    assert_eq!(job.log.discard(files.clone()).files, 0);
    assert_eq!(Job::over(&store, 8).state, b"ab");
    // Nor by a writer that has read nothing yet.
    assert_eq!(open(&over(&store)).discard(files), Deleted { manifests: 0, files: 0, backlog: 0 });
    assert_eq!(Job::over(&store, 8).state, b"ab");
}

#[test]
fn a_job_remembers_which_file_it_came_from() {
    let folder = tempfile::tempdir().unwrap();
    for storage in [over(&memory()), JobStorage::open(folder.path().to_str().unwrap(), "größe / b").unwrap()] {
        assert_eq!(storage.state().unwrap(), JobState::default());
        assert_eq!(open(&storage).claim(&owner()).unwrap(), owner());
        let other = Owner { origin: "jobs/b.toml".to_owned(), ..owner() };
        assert_eq!(open(&storage).claim(&other).unwrap(), owner(), "another job file's is not taken");
        open(&storage).start_over(&other).unwrap();
        assert_eq!(storage.state().unwrap().owner, Some(other));
    }
}
