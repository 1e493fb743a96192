//! Attempts: fencing, inheritance, locks.

use std::sync::Arc;

use weir_model::{Attempt, CheckpointId, TaskId};

use super::faults::{Fault, FaultyStore};
use super::{JOB, Job, files, manifest, memory, over, restore, write};
use crate::*;

#[test]
fn attempts_and_checkpoints_count_upwards_for_ever() {
    let store = memory();
    let storage = over(&store);
    for expected in 1..=30 {
        assert_eq!(storage.new_attempt().unwrap(), Attempt(expected));
    }
    let entries = storage.inner.backend.list(&storage.inner.path("attempts")).unwrap();
    assert!(entries.len() < 30, "old entries are removed: {entries:?}");

    let mut job = Job::start(over(&store), 2).unwrap();
    assert_eq!(job.attempt, Attempt(31));
    assert_eq!(job.checkpoint(b"a").unwrap(), CheckpointId(1));
    // A file that no manifest names counts too.
    write(&job.storage, job.attempt, CheckpointId(9), b"aborted").unwrap();
    assert_eq!(over(&store).next_checkpoint_id().unwrap(), CheckpointId(10));
    storage.clear().unwrap();
    assert_eq!(over(&store).new_attempt().unwrap(), Attempt(32), "also after all state was cleared");
    write(&storage, Attempt(32), CheckpointId(40), b"aborted").unwrap();
    let last = Job::start(over(&store), 2).unwrap();
    assert_eq!(files(&last.storage).len(), 0);
    assert_eq!(last.next, CheckpointId(41), "also after the file was swept");
}

#[test]
fn attempts_that_begin_at_once_get_different_numbers() {
    let store = memory();
    let mut numbers: Vec<Attempt> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| over(&store).new_attempt().unwrap())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    numbers.sort();
    numbers.dedup();
    assert_eq!(numbers.len(), 8);
}

#[test]
fn s41_an_older_attempt_is_refused_and_named() {
    let store = memory();
    let mut old = Job::start(over(&store), 2).unwrap();
    old.checkpoint(b"a").unwrap();
    let mut new = Job::start(over(&store), 2).unwrap();
    let error = old.checkpoint(b"lost").unwrap_err();
    assert!(matches!(error, StorageError::Fenced { attempt: Attempt(1), newest: Attempt(2), .. }), "{error}");
    assert_eq!(error.kind(), ErrorKind::Fenced);
    // Both took number 2; only the new attempt's counts.
    assert_eq!(new.checkpoint(b"b").unwrap(), CheckpointId(2));
    assert_eq!(restore(&new.storage, CheckpointId(2)).unwrap(), b"ab");
    let never_begun = manifest(Attempt(77), CheckpointId(50), vec![], vec![]);
    assert_eq!(new.storage.put_manifest(&never_begun).unwrap_err().kind(), ErrorKind::Bug);
}

/// The new attempt begins between any two requests of the old one's `put_manifest`.
#[test]
fn s41_taking_over_in_the_middle_of_a_manifest_commits_it_exactly_when_it_is_restored() {
    let mut outcomes = (0, 0);
    for request in 0..12 {
        let store = memory();
        let mut old = Job::start(over(&store), 2).unwrap();
        old.checkpoint(b"a").unwrap();
        let id = old.next;
        let (segment, file) = write(&old.storage, old.attempt, id, b"b").unwrap();
        let chain = [old.chain.clone(), vec![segment]].concat();
        let manifest = manifest(old.attempt, id, chain, vec![file]);

        // Everything up to `request`, then nothing until the new attempt has begun, then the rest.
        let faulty = FaultyStore::new(&store, Fault::None);
        let (reached, taken_over) = faulty.pause_at(request);
        let old = JobStorage::with_store(Arc::new(faulty.clone()), "memory:", JOB).unwrap();
        let (result, new) = std::thread::scope(|scope| {
            let putting = scope.spawn(|| {
                let result = old.put_manifest(&manifest);
                faulty.end_pause();
                result
            });
            // Fewer requests than that: the manifest is complete before the new attempt begins.
            let paused = reached.recv().is_ok();
            let new = Job::start(over(&store), 2).unwrap();
            drop(taken_over);
            let result = putting.join().unwrap();
            assert!(paused || result.is_ok(), "{result:?}");
            (result, new)
        });
        match result {
            Ok(()) => {
                outcomes.0 += 1;
                assert_eq!(new.state, b"ab", "request {request}: committed by the old attempt, so it must be restored");
            }
            Err(error) => {
                outcomes.1 += 1;
                assert!(matches!(error, StorageError::Fenced { .. }), "request {request}: {error}");
            }
        }
        // What the new attempt went on from stays the newest, for the next one too.
        let third = Job::start(over(&store), 2).unwrap();
        assert_eq!(third.state, new.state, "request {request}");
        let left = files(&third.storage);
        assert_eq!(left, super::needed(&third.storage), "request {request}");
    }
    assert!(outcomes.0 > 0 && outcomes.1 > 0, "{outcomes:?}");
}

#[test]
fn s36_a_successor_that_writes_the_same_checkpoint_and_task_replaces_nothing() {
    let store = memory();
    let mut first = Job::start(over(&store), 8).unwrap();
    first.checkpoint(b"a").unwrap();
    let id = first.next;
    // The first attempt has stored its part, and dies before the manifest.
    let (dead, dead_file) = write(&first.storage, first.attempt, id, b"dead").unwrap();

    let second = Job::start(over(&store), 8).unwrap();
    let (live, live_file) = write(&second.storage, second.attempt, id, b"live").unwrap();
    // A task that did not notice its death writes once more.
    let mut late = first.storage.writer(first.attempt, id, TaskId(0));
    late.append(b"late").unwrap();
    let late_file = late.finish().unwrap();
    assert_eq!(std::collections::BTreeSet::from([&dead_file.name, &live_file.name, &late_file.name]).len(), 3);
    assert_eq!(dead.file, dead_file.name);

    let chain = [second.chain.clone(), vec![live]].concat();
    second.storage.put_manifest(&manifest(second.attempt, id, chain, vec![live_file])).unwrap();
    assert_eq!(restore(&second.storage, id).unwrap(), b"alive");
    let third = Job::start(over(&store), 8).unwrap();
    assert_eq!(third.state, b"alive");
    assert!(!files(&third.storage).contains(&late_file.name), "what the dead attempt wrote is swept");
}

#[test]
fn one_process_at_a_time_works_on_a_job_in_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("file://{}", folder.path().display());
    let first = JobStorage::open(&url, JOB).unwrap();
    let lock = first.lock().unwrap();
    let second = JobStorage::open(&url, JOB).unwrap();
    let error = second.lock().unwrap_err();
    assert!(matches!(error, StorageError::Locked { .. }), "{error}");
    assert!(error.to_string().contains(&format!("process {}", std::process::id())), "{error}");
    assert!(error.to_string().contains(JOB), "{error}");
    JobStorage::open(&url, "another").unwrap().lock().unwrap();
    drop(lock);
    second.lock().unwrap();
}

#[test]
fn a_job_remembers_which_file_it_came_from() {
    let folder = tempfile::tempdir().unwrap();
    for storage in [over(&memory()), JobStorage::open(folder.path().to_str().unwrap(), "größe / b").unwrap()] {
        assert_eq!(storage.job_info().unwrap(), None);
        let mut info = JobInfo {
            origin: "jobs/a.toml".to_owned(),
            created_at_ms: 5,
            key_groups: 128,
            started_over: false,
            gone_back_to: None,
            void: Vec::new(),
        };
        storage.put_job_info(&info).unwrap();
        assert_eq!(storage.job_info().unwrap().as_ref(), Some(&info));
        info.origin = "jobs/b.toml".to_owned();
        storage.put_job_info(&info).unwrap();
        storage.clear().unwrap();
        assert_eq!(storage.job_info().unwrap(), Some(info), "also when its checkpoints are forgotten");
    }
}
