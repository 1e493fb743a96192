//! What is deleted, and above all what is not.

use std::collections::BTreeSet;
use std::sync::Arc;

use weir_model::{CheckpointId, TaskId};

use super::faults::{EIO, Fault, FaultyStore};
use super::{ANY, JOB, Job, chain_of, files, manifest, memory, needed, over, restore, write};
use crate::*;

#[test]
fn s35_with_one_retained_a_checkpoint_of_another_kind_between_incrementals_leaves_the_next_restorable() {
    let mut job = Job::start(over(&memory()), 8).unwrap();
    let storage = job.storage.clone();
    job.checkpoint(b"base").unwrap();
    storage.retain(ANY, 1).unwrap();
    job.checkpoint(b"+1").unwrap();
    storage.retain(ANY, 1).unwrap();
    // One that holds everything itself, as a savepoint does, and that the chain does not build on.
    let whole = job.take_id();
    let (segment, file) = write(&storage, job.attempt, whole, b"base+1").unwrap();
    storage.put_manifest(&manifest(job.attempt, whole, vec![segment], vec![file])).unwrap();
    let before = files(&storage);
    // It is the newest: with it alone retained, the files that the next incremental builds on would go.
    storage.retain(ANY, 2).unwrap();
    assert_eq!(files(&storage), before);
    let next = job.checkpoint(b"+2").unwrap();
    storage.retain(ANY, 1).unwrap();
    assert_eq!(storage.checkpoints().unwrap(), [next]);
    assert_eq!(restore(&storage, next).unwrap(), b"base+1+2");
    assert_eq!(files(&storage), needed(&storage));
}

#[test]
fn s35_a_checkpoint_whose_base_was_deleted_is_refused_instead_of_being_unrestorable() {
    let mut job = Job::start(over(&memory()), 8).unwrap();
    let storage = job.storage.clone();
    job.checkpoint(b"base").unwrap();
    let whole = job.take_id();
    let (segment, file) = write(&storage, job.attempt, whole, b"whole").unwrap();
    storage.put_manifest(&manifest(job.attempt, whole, vec![segment], vec![file])).unwrap();
    storage.retain(ANY, 1).unwrap();
    let base = job.chain[0].file.clone();
    let error = job.checkpoint(b"+1").unwrap_err();
    assert!(matches!(&error, StorageError::Dangling { file, .. } if *file == base), "{error}");
    assert_eq!(storage.checkpoints().unwrap(), [whole]);
}

#[test]
fn s30_files_of_an_aborted_checkpoint_go_and_shared_ones_stay() {
    let mut job = Job::start(over(&memory()), 8).unwrap();
    let storage = job.storage.clone();
    let id = job.checkpoint(b"base").unwrap();
    let shared = job.chain[0].file.clone();
    let (segment, private) = write(&storage, job.attempt, job.next, b"aborted").unwrap();
    assert_eq!(files(&storage), BTreeSet::from([shared.clone(), segment.file]));
    storage.remove_files(&[private.name.clone(), shared.clone(), "1-9-9-9".to_owned()]).unwrap();
    assert_eq!(files(&storage), BTreeSet::from([shared]));
    storage.remove_files(&[private.name]).unwrap();
    assert_eq!(restore(&storage, id).unwrap(), b"base");
}

#[test]
fn files_of_a_pending_checkpoint_outlive_retention_and_sweep() {
    let mut job = Job::start(over(&memory()), 1).unwrap();
    let storage = job.storage.clone();
    job.checkpoint(b"a").unwrap();
    let pending = CheckpointId(100);
    let (segment, file) = write(&storage, job.attempt, pending, b"pending").unwrap();
    job.checkpoint(b"b").unwrap();
    storage.retain(ANY, 1).unwrap();
    storage.sweep(job.attempt).unwrap();
    storage.put_manifest(&manifest(job.attempt, pending, vec![segment], vec![file])).unwrap();
    assert_eq!(restore(&storage, pending).unwrap(), b"pending");
}

#[test]
fn s39_ten_thousand_checkpoints_leave_a_bounded_number_of_files_at_a_constant_price() {
    const RETAINED: usize = 3;
    const CHAIN: usize = 4;
    let faulty = FaultyStore::new(&memory(), Fault::None);
    let storage = JobStorage::with_store(Arc::new(faulty.clone()), "memory:", JOB).unwrap();
    let mut job = Job::start(storage.clone(), CHAIN).unwrap();
    let mut price_max = 0;
    for round in 0..10_000_u32 {
        // The state stays small: what is measured is the number of files.
        job.state.truncate(8);
        if round % 100 == 99 {
            job.aborted_checkpoint().unwrap();
        }
        let before = faulty.requests();
        job.chain = if job.chain.len() >= CHAIN { Vec::new() } else { std::mem::take(&mut job.chain) };
        job.checkpoint(&round.to_le_bytes()).unwrap();
        let removed = storage.retain(ANY, RETAINED).unwrap();
        assert_eq!(removed.backlog, 0);
        price_max = price_max.max(faulty.requests() - before);
        if round % 500 == 0 {
            let count = files(&storage).len();
            assert!(count <= RETAINED + CHAIN, "{count} files after {round} checkpoints");
        }
    }
    assert_eq!(files(&storage), needed(&storage));
    assert_eq!(storage.checkpoints().unwrap().len(), RETAINED);
    assert!(price_max < 30, "{price_max} requests for one checkpoint");
}

#[test]
fn files_that_cannot_be_deleted_are_shown_and_deleted_later() {
    let store = memory();
    let faulty = FaultyStore::new(&store, Fault::None);
    let storage = JobStorage::with_store(Arc::new(faulty.clone()), "memory:", JOB).unwrap();
    let mut job = Job::start(storage.clone(), 1).unwrap();
    job.checkpoint(b"a").unwrap();
    job.checkpoint(b"b").unwrap();
    faulty.set(Fault::DeletesFail(EIO));
    assert_eq!(storage.retain(ANY, 1).unwrap_err().kind(), ErrorKind::Retry);
    assert_eq!(storage.checkpoints().unwrap().len(), 2, "nothing is lost");
    faulty.set(Fault::None);
    // The manifest goes, then deletion fails again: the listing, the deletion of the manifest, then the file.
    let probe = faulty.requests();
    assert_eq!(storage.retain(ANY, 1).unwrap(), Removed { manifests: 1, files: 1, backlog: 0 });
    let requests = faulty.requests() - probe;
    job.checkpoint(b"c").unwrap();
    faulty.set(Fault::CrashBefore(faulty.requests() + requests - 1));
    assert_eq!(storage.retain(ANY, 1).unwrap(), Removed { manifests: 1, files: 0, backlog: 1 });
    faulty.set(Fault::None);
    assert_eq!(storage.retain(ANY, 1).unwrap(), Removed { manifests: 0, files: 1, backlog: 0 });
    assert_eq!(files(&storage), needed(&storage));
}

#[test]
fn removing_one_checkpoint_keeps_what_the_others_need() {
    let mut job = Job::start(over(&memory()), 8).unwrap();
    let storage = job.storage.clone();
    let first = job.checkpoint(b"a").unwrap();
    let second = job.checkpoint(b"b").unwrap();
    let removed = storage.remove_manifest(second).unwrap();
    assert_eq!(removed, Removed { manifests: 1, files: 1, backlog: 0 });
    assert_eq!(storage.checkpoints().unwrap(), [first]);
    assert_eq!(restore(&storage, first).unwrap(), b"a");
    assert_eq!(storage.remove_manifest(second).unwrap(), Removed::default());
}

#[test]
fn clearing_leaves_no_state_and_touches_no_other_job() {
    let store = memory();
    let other = JobStorage::with_store(Arc::clone(&store), "memory:", "pageviews-2").unwrap();
    let other_attempt = other.new_attempt().unwrap();
    let mut writer = other.writer(other_attempt, CheckpointId(1), TaskId(0));
    let segment = writer.append(b"other").unwrap();
    let file = writer.finish().unwrap();
    let mut others = manifest(other_attempt, CheckpointId(1), vec![segment], vec![file]);
    others.job = "pageviews-2".to_owned();
    other.put_manifest(&others).unwrap();

    let mut job = Job::start(over(&store), 8).unwrap();
    job.checkpoint(b"a").unwrap();
    job.storage.clear().unwrap();
    assert_eq!(job.storage.checkpoints().unwrap(), []);
    assert_eq!(files(&job.storage), BTreeSet::new());
    assert_eq!(restore(&other, CheckpointId(1)).unwrap(), b"other");
    let fresh = Job::start(over(&store), 8).unwrap();
    assert_eq!(fresh.state, b"");
}

#[test]
fn an_attempt_that_is_over_deletes_no_checkpoint() {
    let store = memory();
    let mut job = Job::start(over(&store), 8).unwrap();
    job.checkpoint(b"a").unwrap();
    job.checkpoint(b"b").unwrap();
    let newer = over(&store).new_attempt().unwrap();
    assert_eq!(job.storage.retain(job.attempt, 1).unwrap(), Removed::default());
    assert_eq!(job.storage.checkpoints().unwrap().len(), 2, "the newer one may be going back to the first");
    assert_eq!(job.storage.retain(newer, 1).unwrap().manifests, 1);
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
    let next = Job::start(open(), 8).unwrap();
    assert_eq!(next.state, b"a");
    let left: BTreeSet<String> =
        std::fs::read_dir(&place).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(left, BTreeSet::from([next.chain[0].file.clone(), "notes.txt".to_owned()]));
    assert_eq!(chain_of(&next.storage.manifest(CheckpointId(1)).unwrap()), next.chain);
}
