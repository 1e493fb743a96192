//! A job that appends to its state: each checkpoint adds a segment, and now and then rewrites the chain as one.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use object_store::ObjectStore;
use weir_model::{Attempt, CheckpointId, TaskId};

use super::{owner, writer};
use crate::tests::{JOB, chain_of, manifest, over, write};
use crate::*;

/// Writers of one test process.
static WRITERS: AtomicU64 = AtomicU64::new(1);

/// The job, as the coordinator that leads it knows it.
pub(crate) struct Job {
    pub(crate) storage: JobStorage,
    pub(crate) log: JobLog,
    pub(crate) attempt: Attempt,
    pub(crate) next: CheckpointId,
    pub(crate) chain: Vec<Segment>,
    pub(crate) state: Vec<u8>,
    pub(crate) retract_after: Option<CheckpointId>,
    pub(crate) retained: usize,
    chain_max: usize,
}

impl Job {
    /// Starts, resuming from the newest checkpoint.
    pub(crate) fn start(storage: JobStorage, chain_max: usize) -> Result<Job, StorageError> {
        Job::start_without(storage, chain_max, &[])
    }

    /// The same, but `damaged` ones could not be restored.
    pub(crate) fn start_without(storage: JobStorage, chain_max: usize, damaged: &[CheckpointId]) -> Result<Job, StorageError> {
        let mut log = open(&storage);
        log.claim(&owner())?;
        let begun = log.begin(damaged)?;
        let chain = begun.from.as_ref().map_or_else(Vec::new, |from| chain_of(from));
        let state = read(&storage, &chain)?;
        let Begun { attempt, first_checkpoint: next, retract_after, .. } = begun;
        Ok(Job { storage, log, attempt, next, chain, state, retract_after, retained: 3, chain_max })
    }

    pub(crate) fn over(store: &Arc<dyn ObjectStore>, chain_max: usize) -> Job {
        Job::start(over(store), chain_max).unwrap()
    }

    pub(crate) fn take_id(&mut self) -> CheckpointId {
        let id = self.next;
        self.next = CheckpointId(id.0 + 1);
        id
    }

    /// What a checkpoint in which `added` is new is made of: files first, then this.
    pub(crate) fn prepare(&mut self, added: &[u8]) -> Result<Arc<Manifest>, StorageError> {
        let id = self.take_id();
        let mut state = self.state.clone();
        state.extend_from_slice(added);
        let merged = self.chain.len() >= self.chain_max;
        let (segment, file) = write(&self.storage, self.attempt, id, if merged { &state } else { added })?;
        let mut chain = if merged { Vec::new() } else { self.chain.clone() };
        chain.push(segment);
        Ok(Arc::new(manifest(self.attempt, id, chain, vec![file])))
    }

    /// Completes it. Gives its number.
    pub(crate) fn complete(&mut self, manifest: &Arc<Manifest>, added: &[u8]) -> Result<CheckpointId, StorageError> {
        let durable = self.log.complete(manifest, self.retained)?;
        self.chain = chain_of(&durable);
        self.state.extend_from_slice(added);
        Ok(durable.id())
    }

    /// Takes a checkpoint in which `added` is new. Gives its number once it is complete.
    pub(crate) fn checkpoint(&mut self, added: &[u8]) -> Result<CheckpointId, StorageError> {
        let manifest = self.prepare(added)?;
        self.complete(&manifest, added)
    }

    /// Begins a checkpoint and gives it up.
    pub(crate) fn aborted_checkpoint(&mut self) -> Result<(), StorageError> {
        let id = self.take_id();
        let (_, file) = write(&self.storage, self.attempt, id, b"never counts")?;
        self.log.discard(vec![file.name, "1-1-1-never-written".to_owned()]);
        Ok(())
    }
}

/// The log, for a writer that there was not yet.
pub(crate) fn open(storage: &JobStorage) -> JobLog {
    JobLog::new(storage.clone(), writer(WRITERS.fetch_add(1, Ordering::SeqCst)))
}

/// Content of segments, one after the other.
pub(crate) fn read(storage: &JobStorage, chain: &[Segment]) -> Result<Vec<u8>, StorageError> {
    let segments: Result<Vec<_>, _> = chain.iter().map(|segment| storage.read(segment)).collect();
    Ok(segments?.concat())
}

/// Numbers of the checkpoints that count, newest first.
pub(crate) fn checkpoints(storage: &JobStorage) -> Result<Vec<CheckpointId>, StorageError> {
    Ok(storage.state()?.checkpoints.iter().rev().map(|checkpoint| checkpoint.id).collect())
}

/// The manifest of a checkpoint that counts.
pub(crate) fn manifest_of(storage: &JobStorage, id: CheckpointId) -> Result<Manifest, StorageError> {
    let state = storage.state()?;
    storage.stored_manifest(state.checkpoint(id).unwrap_or_else(|| panic!("{id} does not count: {state:?}")))
}

/// What a restore would read.
pub(crate) fn restore(storage: &JobStorage, id: CheckpointId) -> Result<Vec<u8>, StorageError> {
    let manifest = manifest_of(storage, id)?;
    storage.check(&manifest)?;
    read(storage, &manifest.segments().cloned().collect::<Vec<_>>())
}

/// Names of all files that completed checkpoints need.
pub(crate) fn needed(storage: &JobStorage) -> BTreeSet<String> {
    let state = storage.state().unwrap();
    state.checkpoints.iter().flat_map(|checkpoint| storage.stored_manifest(checkpoint).unwrap().references()).collect()
}

/// Nothing is stored that nothing needs.
pub(crate) fn assert_tidy(storage: &JobStorage, when: &str) {
    let list = |folder: &str| -> BTreeSet<String> {
        storage.folder.backend.list(&storage.folder.path(folder)).unwrap().into_iter().collect()
    };
    assert_eq!(list("files"), needed(storage), "{when}");
    let named = storage.state().unwrap().checkpoints.into_iter().map(|checkpoint| checkpoint.manifest).collect();
    assert_eq!(list("manifests"), named, "{when}");
}

/// A task's late write.
pub(crate) fn straggle(storage: &JobStorage, attempt: Attempt, id: CheckpointId) -> StoredFile {
    let mut writer = storage.writer(attempt, id, TaskId(0));
    writer.append(b"late").unwrap();
    writer.finish().unwrap()
}

/// A storage whose requests fail as told.
pub(crate) fn through(faulty: &crate::tests::faults::FaultyStore) -> JobStorage {
    JobStorage::with_store(Arc::new(faulty.clone()), "memory:", JOB).unwrap()
}
