//! Scenarios over the whole crate: what must hold whatever fails.
#![allow(clippy::unwrap_used)]

mod attempts;
mod crashes;
mod damage;
pub(crate) mod faults;
mod retention;
mod writing;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use object_store::ObjectStore;
use object_store::memory::InMemory;
use weir_model::{Attempt, CheckpointId, TaskId};

use crate::*;

pub(crate) const JOB: &str = "pageviews";
/// As whom checkpoints are deleted where no attempt is newer.
const ANY: Attempt = Attempt(u64::MAX);

/// A store in memory; keeps its content while storages over it come and go.
pub(crate) fn memory() -> Arc<dyn ObjectStore> {
    Arc::new(InMemory::new())
}

pub(crate) fn over(store: &Arc<dyn ObjectStore>) -> JobStorage {
    JobStorage::with_store(Arc::clone(store), "memory:", JOB).unwrap()
}

/// A manifest of one operator with one instance.
pub(crate) fn manifest(attempt: Attempt, checkpoint: CheckpointId, chain: Vec<Segment>, files: Vec<StoredFile>) -> Manifest {
    let instance = InstanceState { chain, watermark: 17, finished: false };
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
    manifest.operators["count"].instances["g0"].chain.clone()
}

/// What a restore would read.
fn restore(storage: &JobStorage, id: CheckpointId) -> Result<Vec<u8>, StorageError> {
    let manifest = storage.manifest(id)?;
    storage.check(&manifest)?;
    let mut state = Vec::new();
    for segment in manifest.segments() {
        state.extend_from_slice(&storage.read(segment)?);
    }
    Ok(state)
}

/// A job that appends to its state: each checkpoint adds a segment, and now and then rewrites the chain as one.
struct Job {
    storage: JobStorage,
    attempt: Attempt,
    next: CheckpointId,
    chain: Vec<Segment>,
    state: Vec<u8>,
    chain_max: usize,
}

impl Job {
    /// Starts, resuming from the newest checkpoint.
    fn start(storage: JobStorage, chain_max: usize) -> Result<Job, StorageError> {
        let attempt = storage.new_attempt()?;
        storage.sweep(attempt)?;
        let (chain, state) = match storage.checkpoints()?.first() {
            Some(id) => (chain_of(&storage.manifest(*id)?), restore(&storage, *id)?),
            None => (Vec::new(), Vec::new()),
        };
        let next = storage.next_checkpoint_id()?;
        Ok(Job { storage, attempt, next, chain, state, chain_max })
    }

    fn take_id(&mut self) -> CheckpointId {
        let id = self.next;
        self.next = CheckpointId(id.0 + 1);
        id
    }

    /// Takes a checkpoint in which `added` is new. Gives its number once it is complete.
    fn checkpoint(&mut self, added: &[u8]) -> Result<CheckpointId, StorageError> {
        let id = self.take_id();
        let mut state = self.state.clone();
        state.extend_from_slice(added);
        let merged = self.chain.len() >= self.chain_max;
        let (segment, file) = write(&self.storage, self.attempt, id, if merged { &state } else { added })?;
        let mut chain = if merged { Vec::new() } else { self.chain.clone() };
        chain.push(segment);
        self.storage.put_manifest(&manifest(self.attempt, id, chain.clone(), vec![file]))?;
        (self.chain, self.state) = (chain, state);
        Ok(id)
    }

    /// Begins a checkpoint and gives it up.
    fn aborted_checkpoint(&mut self) -> Result<(), StorageError> {
        let id = self.take_id();
        let (_, file) = write(&self.storage, self.attempt, id, b"never counts")?;
        self.storage.remove_files(&[file.name, "1-1-1-never-written".to_owned()])
    }
}

/// Names of all files in the job's `files` folder.
pub(crate) fn files(storage: &JobStorage) -> BTreeSet<String> {
    storage.inner.backend.list(&storage.inner.path("files")).unwrap().into_iter().collect()
}

/// Names of all files that completed checkpoints need.
fn needed(storage: &JobStorage) -> BTreeSet<String> {
    let ids = storage.checkpoints().unwrap();
    ids.iter().flat_map(|id| storage.manifest(*id).unwrap().references()).collect()
}
