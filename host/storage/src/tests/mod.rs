//! Scenarios over the whole crate: damage, files. Those of the log are beside it.
#![allow(clippy::unwrap_used)]

mod damage;
pub(crate) mod faults;
mod writing;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use object_store::ObjectStore;
use object_store::memory::InMemory;
use weir_model::{Attempt, CheckpointId, TaskId};

use crate::*;

pub(crate) const JOB: &str = "pageviews";

/// A store in memory; keeps its content while storages over it come and go.
pub(crate) fn memory() -> Arc<dyn ObjectStore> {
    Arc::new(InMemory::new())
}

pub(crate) fn over(store: &Arc<dyn ObjectStore>) -> JobStorage {
    JobStorage::with_store(Arc::clone(store), "memory:", JOB).unwrap()
}

/// A manifest of one operator with one instance.
pub(crate) fn manifest(attempt: Attempt, checkpoint: CheckpointId, chain: Vec<Segment>, files: Vec<StoredFile>) -> Manifest {
    let instance = InstanceState::of_memory(chain, 17, false);
    let operator =
        OperatorState { parallelism: 1, instances: BTreeMap::from([("g0".to_owned(), instance)]), ..OperatorState::default() };
    Manifest {
        format: MANIFEST_FORMAT,
        job: JOB.to_owned(),
        attempt,
        checkpoint: checkpoint.0,
        kind: ManifestKind::Checkpoint,
        triggered_at_ms: 1,
        completed_at_ms: 2,
        key_groups: 128,
        bytes_written: files.iter().map(|file| file.bytes).sum(),
        origin: None,
        operators: BTreeMap::from([("count".to_owned(), operator)]),
        files,
    }
}

/// Writes one payload as one file.
pub(crate) fn write(
    storage: &JobStorage,
    attempt: Attempt,
    id: CheckpointId,
    payload: &[u8],
) -> Result<(Segment, StoredFile), StorageError> {
    let mut writer = storage.writer(attempt, id, TaskId(0));
    let segment = writer.append(payload)?;
    Ok((segment, writer.finish()?))
}

pub(crate) fn chain_of(manifest: &Manifest) -> Vec<Segment> {
    manifest.operators["count"].instances["g0"].memory().to_vec()
}

/// Names of all files in the job's `files` folder.
pub(crate) fn files(storage: &JobStorage) -> BTreeSet<String> {
    storage.folder.backend.list(&storage.folder.path("files")).unwrap().into_iter().collect()
}
