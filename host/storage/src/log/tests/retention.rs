//! What is deleted, and above all what is not; what it costs.

use std::collections::BTreeSet;
use std::sync::Arc;

use weir_model::{CheckpointId, TaskId};

use super::super::pen::{DELETED_AT_ONCE, TAIL};
use super::job::{Job, assert_tidy, checkpoints, needed, open, restore, through};
use crate::tests::faults::{EIO, Fault, faulty};
use crate::tests::{JOB, files, manifest, memory, over, write};
use crate::*;

#[test]
fn s142_a_completed_checkpoint_costs_its_files_and_two_requests() {
    let faulty = faulty(&memory(), Fault::None);
    let mut job = Job::start(through(&faulty), 4).unwrap();
    let entries = 3 * (TAIL + DELETED_AT_ONCE);
    for round in 0..entries {
        let before = faulty.requests();
        job.state.truncate(8);
        job.checkpoint(&[round as u8]).unwrap();
        assert_eq!(faulty.requests() - before, 3, "one file, its manifest, the entry; nothing is read or listed");
        let before = faulty.requests();
        job.log.delete_trash();
        let deleted = faulty.requests() - before;
        assert!(deleted <= 2 + 4 + DELETED_AT_ONCE, "{deleted} requests to delete one checkpoint");
    }
    let entries_left = job.storage.folder.entry_numbers(0).unwrap().len() as u64;
    assert!(entries_left <= TAIL + DELETED_AT_ONCE + 2, "{entries_left} entries are left");
    assert_tidy(&job.storage, "all that was forgotten is gone");
}

#[test]
fn s142_the_log_is_bounded_also_for_a_job_that_restarts_for_ever() {
    let store = memory();
    for _ in 0..400 {
        let mut job = Job::over(&store, 1);
        job.checkpoint(b"x").unwrap();
    }
    let entries = over(&store).folder.entry_numbers(0).unwrap().len() as u64;
    assert!(entries <= 256 + TAIL + DELETED_AT_ONCE, "{entries}");
}

#[test]
fn s142_the_log_is_bounded_also_for_a_coordinator_that_has_taken_over() {
    let store = memory();
    let mut job = Job::over(&store, 1);
    let mut successor = open(&over(&store));
    successor.lead(job.attempt).unwrap();
    job.log = successor;
    for _ in 0..200 {
        job.checkpoint(b"x").unwrap();
        job.log.delete_trash();
    }
    let entries = over(&store).folder.entry_numbers(0).unwrap().len() as u64;
    assert!(entries <= TAIL + DELETED_AT_ONCE + 3, "{entries}");
}

#[test]
fn s80_with_one_retained_a_checkpoint_that_was_given_up_and_is_complete_takes_nothing_from_the_next() {
    let store = memory();
    let faulty = faulty(&store, Fault::None);
    let mut job = Job::start(through(&faulty), 2).unwrap();
    job.retained = 1;
    job.checkpoint(b"a").unwrap();
    job.checkpoint(b"b").unwrap();
    // It merges the chain, the answer to its entry is lost, and it is given up.
    let merged = job.prepare(b"c").unwrap();
    faulty.set(Fault::LostAnswer(faulty.requests() + 1));
    assert_eq!(job.log.complete(&merged, 1).unwrap_err().kind(), ErrorKind::Retry);
    faulty.set(Fault::None);
    job.log.discard(merged.files.iter().map(|file| file.name.clone()).collect());
    assert_eq!(checkpoints(&job.storage).unwrap(), [merged.id()], "it counts all the same");
    // The next one builds on the last that anybody knows to be complete.
    let id = job.take_id();
    let (segment, file) = write(&job.storage, job.attempt, id, b"d").unwrap();
    let chain = job.chain.iter().cloned().chain([segment]).collect();
    job.log.complete(&Arc::new(manifest(job.attempt, id, chain, vec![file])), 1).unwrap();
    assert_eq!(restore(&job.storage, id).unwrap(), b"abd");
    job.log.delete_trash();
    assert_tidy(&job.storage, "nothing stays that was kept for it");
}

#[test]
fn s35_with_one_retained_a_checkpoint_of_another_kind_between_incrementals_leaves_the_next_restorable() {
    let mut job = Job::over(&memory(), 8);
    let storage = job.storage.clone();
    job.retained = 1;
    job.checkpoint(b"base").unwrap();
    job.checkpoint(b"+1").unwrap();
    job.log.delete_trash();
    // One that holds everything itself, and that the chain does not build on.
    let whole = job.take_id();
    let (segment, file) = write(&storage, job.attempt, whole, b"base+1").unwrap();
    let before = files(&storage);
    // It is the newest: with it alone retained, the files that the next incremental builds on would go.
    job.log.complete(&Arc::new(manifest(job.attempt, whole, vec![segment], vec![file])), 2).unwrap();
    job.log.delete_trash();
    assert_eq!(files(&storage), before);
    let next = job.checkpoint(b"+2").unwrap();
    job.log.delete_trash();
    assert_eq!(checkpoints(&storage).unwrap(), [next]);
    assert_eq!(restore(&storage, next).unwrap(), b"base+1+2");
    assert_tidy(&storage, "at the end");
}

#[test]
fn savepoints_stay_whatever_is_retained() {
    let mut job = Job::over(&memory(), 8);
    job.retained = 1;
    job.checkpoint(b"a").unwrap();
    let id = job.take_id();
    let (segment, file) = write(&job.storage, job.attempt, id, b"all of it").unwrap();
    let mut savepoint = manifest(job.attempt, id, vec![segment], vec![file]);
    savepoint.kind = ManifestKind::Savepoint;
    job.log.complete(&Arc::new(savepoint), 1).unwrap();
    let newest = job.checkpoint(b"b").unwrap();
    job.log.delete_trash();
    assert_eq!(checkpoints(&job.storage).unwrap(), [newest, id]);
    assert_eq!(restore(&job.storage, id).unwrap(), b"all of it");
    assert_eq!(Job::start_without(job.storage.clone(), 8, &[newest]).err().unwrap().kind(), ErrorKind::Damaged);
    assert_eq!(Job::start(job.storage, 8).unwrap().state, b"ab", "nobody goes on from a savepoint unless told to");
}

#[test]
fn s35_a_checkpoint_whose_base_was_deleted_is_refused_instead_of_being_unrestorable() {
    let mut job = Job::over(&memory(), 8);
    let storage = job.storage.clone();
    job.checkpoint(b"base").unwrap();
    let whole = job.take_id();
    let (segment, file) = write(&storage, job.attempt, whole, b"whole").unwrap();
    job.log.complete(&Arc::new(manifest(job.attempt, whole, vec![segment], vec![file])), 1).unwrap();
    job.log.delete_trash();
    let base = job.chain[0].file.clone();
    let error = job.checkpoint(b"+1").unwrap_err();
    assert!(matches!(&error, StorageError::Dangling { file, .. } if *file == base), "{error}");
    assert_eq!(checkpoints(&storage).unwrap(), [whole]);
}

#[test]
fn s30_files_of_an_aborted_checkpoint_go_and_shared_ones_stay() {
    let mut job = Job::over(&memory(), 8);
    let storage = job.storage.clone();
    let id = job.checkpoint(b"base").unwrap();
    let shared = job.chain[0].file.clone();
    let (segment, private) = write(&storage, job.attempt, job.next, b"aborted").unwrap();
    assert_eq!(files(&storage), BTreeSet::from([shared.clone(), segment.file]));
    job.log.discard(vec![private.name.clone(), shared.clone(), "1-9-9-9".to_owned()]);
    assert_eq!(files(&storage), BTreeSet::from([shared]));
    job.log.discard(vec![private.name]);
    assert_eq!(restore(&storage, id).unwrap(), b"base");
}

#[test]
fn files_of_a_pending_checkpoint_outlive_retention() {
    let mut job = Job::over(&memory(), 1);
    let storage = job.storage.clone();
    job.retained = 1;
    job.checkpoint(b"a").unwrap();
    let pending = CheckpointId(100);
    let (segment, file) = write(&storage, job.attempt, pending, b"pending").unwrap();
    job.checkpoint(b"b").unwrap();
    job.log.delete_trash();
    job.log.complete(&Arc::new(manifest(job.attempt, pending, vec![segment], vec![file])), 1).unwrap();
    assert_eq!(restore(&storage, pending).unwrap(), b"pending");
}

#[test]
fn s39_ten_thousand_checkpoints_leave_a_bounded_number_of_files() {
    const RETAINED: usize = 3;
    const CHAIN: usize = 4;
    let mut job = Job::over(&memory(), CHAIN);
    let storage = job.storage.clone();
    for round in 0..10_000_u32 {
        // The state stays small: what is measured is the number of files.
        job.state.truncate(8);
        if round % 100 == 99 {
            job.aborted_checkpoint().unwrap();
        }
        job.chain = if job.chain.len() >= CHAIN { Vec::new() } else { std::mem::take(&mut job.chain) };
        job.checkpoint(&round.to_le_bytes()).unwrap();
        assert_eq!(job.log.delete_trash().backlog, 0);
        if round % 500 == 0 {
            let count = files(&storage).len();
            assert!(count <= RETAINED + CHAIN, "{count} files after {round} checkpoints");
        }
    }
    assert_tidy(&storage, "at the end");
    assert_eq!(checkpoints(&storage).unwrap().len(), RETAINED);
}

#[test]
fn files_that_cannot_be_deleted_are_shown_and_deleted_later() {
    let faulty = faulty(&memory(), Fault::None);
    let mut job = Job::start(through(&faulty), 1).unwrap();
    job.retained = 1;
    job.checkpoint(b"a").unwrap();
    job.checkpoint(b"b").unwrap();
    faulty.set(Fault::DeletesFail(EIO));
    assert_eq!(job.log.delete_trash(), Deleted { manifests: 0, files: 0, backlog: 2 });
    assert_eq!(checkpoints(&job.storage).unwrap().len(), 1, "it is forgotten all the same");
    faulty.set(Fault::None);
    assert_eq!(job.log.delete_trash(), Deleted { manifests: 1, files: 1, backlog: 0 });
    assert_eq!(files(&job.storage), needed(&job.storage));
}

#[test]
fn starting_over_leaves_no_state_and_touches_no_other_job() {
    let store = memory();
    let other = JobStorage::with_store(Arc::clone(&store), "memory:", "pageviews-2").unwrap();
    let mut log = super::job::open(&other);
    log.claim(&super::owner()).unwrap();
    let begun = log.begin(&[]).unwrap();
    let mut writer = other.writer(begun.attempt, CheckpointId(1), TaskId(0));
    let segment = writer.append(b"other").unwrap();
    let file = writer.finish().unwrap();
    let mut others = manifest(begun.attempt, CheckpointId(1), vec![segment], vec![file]);
    others.job = "pageviews-2".to_owned();
    log.complete(&Arc::new(others), 3).unwrap();

    let mut job = Job::over(&store, 8);
    job.checkpoint(b"a").unwrap();
    job.log.start_over(&super::owner()).unwrap();
    assert_eq!(checkpoints(&job.storage).unwrap(), []);
    assert_eq!(files(&job.storage), BTreeSet::new());
    assert_eq!(restore(&other, CheckpointId(1)).unwrap(), b"other");
    assert_eq!(Job::over(&store, 8).state, b"");
}

#[test]
fn a_sweep_removes_what_a_killed_process_was_writing_in_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let open = || JobStorage::open(folder.path().to_str().unwrap(), JOB).unwrap();
    let mut job = Job::start(open(), 8).unwrap();
    job.checkpoint(b"a").unwrap();
    let place = folder.path().join(JOB).join("files");
    std::fs::write(place.join("1-2-0-9#1"), b"half").unwrap();
    std::fs::write(place.join("1-2-0-8"), b"whole, but no manifest names it").unwrap();
    std::fs::write(place.join("notes.txt"), b"a person's").unwrap();
    let log = folder.path().join(JOB).join("log");
    std::fs::write(log.join("00000000000000000001.json#1"), b"half").unwrap();
    let next = Job::start(open(), 8).unwrap();
    assert_eq!(next.state, b"a");
    let names = |place: &std::path::Path| -> BTreeSet<String> {
        std::fs::read_dir(place).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    };
    assert_eq!(names(&place), BTreeSet::from([next.chain[0].file.clone(), "notes.txt".to_owned()]));
    assert!(names(&log).iter().all(|name| !name.contains('#')));
}
