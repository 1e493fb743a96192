//! A process that dies, or a storage that does not answer, between any two requests.

use std::sync::Arc;

use object_store::ObjectStore;
use weir_model::CheckpointId;

use super::faults::{Fault, FaultyStore};
use super::{ANY, Job, files, memory, needed, over, restore};
use crate::{JobStorage, StorageError};

/// What a job had completed when it died.
#[derive(Default)]
struct Progress {
    completed: Vec<(CheckpointId, Vec<u8>)>,
    /// The state that the checkpoint has that was under way.
    tried: Vec<u8>,
}

/// A life of a job: chains that grow and are merged, aborts, retention, a restart.
fn live(storage: &JobStorage, progress: &mut Progress) -> Result<(), StorageError> {
    for life in 0..2_u8 {
        let mut job = Job::start(storage.clone(), 2)?;
        for step in 0..5_u8 {
            let added = [life * 16 + step; 3];
            progress.tried = [job.state.as_slice(), &added].concat();
            let id = job.checkpoint(&added)?;
            progress.completed.push((id, job.state.clone()));
            if step == 2 {
                job.aborted_checkpoint()?;
            }
            storage.retain(ANY, 2)?;
        }
    }
    Ok(())
}

/// After a death at any point: what is listed can be restored, nothing completed is lost, no garbage is left, life goes on.
fn assert_recovers(store: &Arc<dyn ObjectStore>, progress: &Progress, fault: Fault) {
    let storage = over(store);
    for id in storage.checkpoints().unwrap() {
        let state = restore(&storage, id).unwrap_or_else(|error| panic!("{fault:?}: checkpoint {id} is listed, but {error}"));
        let completed = progress.completed.iter().find(|(known, _)| *known == id).map_or(&progress.tried, |(_, state)| state);
        assert_eq!(&state, completed, "{fault:?}: checkpoint {id}");
    }
    let mut job = Job::start(storage.clone(), 2).unwrap_or_else(|error| panic!("{fault:?}: {error}"));
    let last = progress.completed.last();
    let lost = last.is_some_and(|(_, state)| *state != job.state) && job.state != progress.tried;
    assert!(!lost, "{fault:?}: {last:?} was completed, but {:?} is restored", job.state);
    assert_eq!(files(&storage), needed(&storage), "{fault:?}: after the sweep");
    let id = job.checkpoint(b"on").unwrap_or_else(|error| panic!("{fault:?}: {error}"));
    storage.retain(ANY, 1).unwrap();
    assert_eq!(storage.checkpoints().unwrap(), [id], "{fault:?}");
    assert_eq!(restore(&storage, id).unwrap(), job.state, "{fault:?}");
    assert_eq!(files(&storage), needed(&storage), "{fault:?}: after retention");
}

#[test]
fn s38_dying_between_any_two_requests_loses_nothing_and_leaves_no_garbage() {
    for crash in [Fault::CrashBefore as fn(u64) -> Fault, Fault::CrashAfter] {
        let mut survived = false;
        for request in 0..10_000 {
            let store = memory();
            let fault = crash(request);
            let storage = JobStorage::with_store(Arc::new(FaultyStore::new(&store, fault)), "memory:", super::JOB).unwrap();
            let mut progress = Progress::default();
            survived = live(&storage, &mut progress).is_ok();
            // Retention may end well although its last deletions failed, so only the very end is the end.
            let end = survived && request > total_requests();
            drop(storage);
            assert_recovers(&store, &progress, fault);
            if end {
                break;
            }
        }
        assert!(survived);
    }
}

#[test]
fn s40_one_lost_answer_anywhere_loses_nothing() {
    for request in 0..=total_requests() {
        let store = memory();
        let fault = Fault::LostAnswer(request);
        let storage = JobStorage::with_store(Arc::new(FaultyStore::new(&store, fault)), "memory:", super::JOB).unwrap();
        let mut progress = Progress::default();
        let _ended_early = live(&storage, &mut progress);
        drop(storage);
        assert_recovers(&store, &progress, fault);
    }
}

#[test]
fn a_manifest_whose_answer_was_lost_can_be_put_again() {
    let store = memory();
    let faulty = FaultyStore::new(&store, Fault::None);
    let storage = JobStorage::with_store(Arc::new(faulty.clone()), "memory:", super::JOB).unwrap();
    let job = Job::start(storage.clone(), 2).unwrap();
    let (segment, file) = super::write(&storage, job.attempt, job.next, b"state").unwrap();
    let manifest = super::manifest(job.attempt, job.next, vec![segment], vec![file]);
    let mut uncertain = 0;
    for request in 0..8 {
        faulty.set(Fault::LostAnswer(faulty.requests() + request));
        uncertain += u32::from(storage.put_manifest(&manifest).is_err());
        faulty.set(Fault::None);
        storage.put_manifest(&manifest).unwrap();
        assert_eq!(restore(&storage, job.next).unwrap(), b"state");
    }
    assert!(uncertain > 2, "{uncertain}");
    let mut other = manifest;
    other.bytes_written += 1;
    assert!(matches!(storage.put_manifest(&other), Err(StorageError::Exists { .. })));
}

/// Requests of a life without faults.
fn total_requests() -> u64 {
    let faulty = FaultyStore::new(&memory(), Fault::None);
    let storage = JobStorage::with_store(Arc::new(faulty.clone()), "memory:", super::JOB).unwrap();
    live(&storage, &mut Progress::default()).unwrap();
    faulty.requests()
}
