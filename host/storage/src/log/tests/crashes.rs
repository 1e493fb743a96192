//! A process that dies, or a storage that does not answer, between any two requests.

use std::sync::Arc;

use object_store::ObjectStore;
use weir_model::CheckpointId;

use super::job::{Job, assert_tidy, checkpoints, restore, through};
use crate::tests::faults::{Fault, faulty};
use crate::tests::{memory, over};
use crate::{ErrorKind, JobStorage, StorageError};

/// What a job had completed when it died.
#[derive(Default)]
struct Progress {
    completed: Vec<(CheckpointId, Vec<u8>)>,
    /// The state that the checkpoint has that was under way.
    tried: Vec<u8>,
}

/// A life of a job: chains that grow and are merged, aborts, retention, a restart. Many entries, so that old ones are deleted.
fn live(storage: &JobStorage, progress: &mut Progress) -> Result<(), StorageError> {
    for life in 0..2_u8 {
        let mut job = Job::start(storage.clone(), 2)?;
        job.retained = 2;
        for step in 0..5_u8 {
            let added = [life * 16 + step; 3];
            progress.tried = [job.state.as_slice(), &added].concat();
            let id = job.checkpoint(&added)?;
            progress.completed.push((id, job.state.clone()));
            if step == 2 {
                job.aborted_checkpoint()?;
            }
            job.log.delete_trash();
        }
    }
    Ok(())
}

/// After a death at any point: what counts can be restored, nothing completed is lost, no garbage is left, life goes on.
fn assert_recovers(store: &Arc<dyn ObjectStore>, progress: &Progress, fault: Fault) {
    let storage = over(store);
    for id in checkpoints(&storage).unwrap() {
        let state = restore(&storage, id).unwrap_or_else(|error| panic!("{fault:?}: checkpoint {id} counts, but {error}"));
        let completed = progress.completed.iter().find(|(known, _)| *known == id).map_or(&progress.tried, |(_, state)| state);
        assert_eq!(&state, completed, "{fault:?}: checkpoint {id}");
    }
    let mut job = Job::start(storage.clone(), 2).unwrap_or_else(|error| panic!("{fault:?}: {error}"));
    assert_eq!(job.retract_after, None, "{fault:?}: nothing was gone back");
    let last = progress.completed.last();
    let lost = last.is_some_and(|(_, state)| *state != job.state) && job.state != progress.tried;
    assert!(!lost, "{fault:?}: {last:?} was completed, but {:?} is restored", job.state);
    assert_tidy(&storage, &format!("{fault:?}: after the sweep"));
    job.retained = 1;
    let id = job.checkpoint(b"on").unwrap_or_else(|error| panic!("{fault:?}: {error}"));
    job.log.delete_trash();
    assert_eq!(checkpoints(&storage).unwrap(), [id], "{fault:?}");
    assert_eq!(restore(&storage, id).unwrap(), job.state, "{fault:?}");
    assert_tidy(&storage, &format!("{fault:?}: after retention"));
}

/// Requests of a life without faults.
fn total_requests() -> u64 {
    let faulty = faulty(&memory(), Fault::None);
    live(&through(&faulty), &mut Progress::default()).unwrap();
    faulty.requests()
}

#[test]
fn s38_dying_between_any_two_requests_loses_nothing_and_leaves_no_garbage() {
    for crash in [Fault::CrashBefore as fn(u64) -> Fault, Fault::CrashAfter] {
        for request in 0..=total_requests() {
            let store = memory();
            let fault = crash(request);
            let mut progress = Progress::default();
            let survived = live(&through(&faulty(&store, fault)), &mut progress).is_ok();
            assert!(!survived || request + 20 > total_requests(), "{fault:?}: only deletions are allowed to fail");
            assert_recovers(&store, &progress, fault);
        }
    }
}

#[test]
fn s40_one_lost_answer_anywhere_loses_nothing() {
    for request in 0..=total_requests() {
        let store = memory();
        let fault = Fault::LostAnswer(request);
        let mut progress = Progress::default();
        let _ended_early = live(&through(&faulty(&store, fault)), &mut progress);
        assert_recovers(&store, &progress, fault);
    }
}

#[test]
fn s142_an_entry_whose_answer_was_lost_can_be_put_again_and_is_one() {
    let store = memory();
    let faulty = faulty(&store, Fault::None);
    let mut job = Job::start(through(&faulty), 2).unwrap();
    let mut uncertain = 0;
    for request in 0..4 {
        let added = [request as u8];
        let manifest = job.prepare(&added).unwrap();
        let entry = job.log.pen.number();
        faulty.set(Fault::LostAnswer(faulty.requests() + request));
        let first = job.log.complete(&manifest, 3);
        uncertain += u32::from(first.is_err_and(|error| error.kind() == ErrorKind::Retry));
        faulty.set(Fault::None);
        let id = job.complete(&manifest, &added).unwrap();
        assert_eq!(restore(&job.storage, id).unwrap(), job.state);
        assert_eq!(job.log.pen.number(), entry + 1, "one entry, however often it was put");
        let mut other = (*manifest).clone();
        other.bytes_written += 1;
        assert!(matches!(job.log.complete(&Arc::new(other), 3), Err(StorageError::Exists { .. })));
    }
    assert_eq!(uncertain, 2, "the manifest and the entry");
    // What is unknown is found out before anything else is decided.
    let manifest = job.prepare(b"!").unwrap();
    faulty.set(Fault::LostAnswer(faulty.requests() + 1));
    assert_eq!(job.log.complete(&manifest, 3).unwrap_err().kind(), ErrorKind::Retry);
    faulty.set(Fault::None);
    let begun = job.log.begin(&[]).unwrap();
    assert_eq!(begun.from.as_deref(), Some(&*manifest));
}
