//! Which files the manifests of a job name, as far as anybody has asked. Manifests never change, so what is known stays true.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::decision::StoredCheckpoint;
use super::state::JobState;
use crate::{JobStorage, StorageError};

/// Names of files.
pub(super) type Files = Arc<BTreeSet<String>>;

/// Files by the manifest that names them.
#[derive(Debug, Default)]
pub(super) struct References(HashMap<String, Files>);

impl References {
    /// What a manifest names that was just written.
    pub(super) fn learn(&mut self, manifest: String, files: Files) {
        self.0.insert(manifest, files);
    }

    /// A manifest is no more.
    pub(super) fn forget(&mut self, manifest: &str) {
        self.0.remove(manifest);
    }

    /// The files that a checkpoint of the log needs.
    ///
    /// # Errors
    /// If its manifest cannot be read.
    pub(super) fn of(&mut self, storage: &JobStorage, checkpoint: &StoredCheckpoint) -> Result<Files, StorageError> {
        if let Some(files) = self.0.get(&checkpoint.manifest) {
            return Ok(Arc::clone(files));
        }
        let files = Arc::new(storage.stored_manifest(checkpoint)?.references());
        self.0.insert(checkpoint.manifest.clone(), Arc::clone(&files));
        Ok(files)
    }

    /// The files that a manifest names which no entry names any more.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(super) fn of_forgotten(&mut self, storage: &JobStorage, manifest: &str) -> Result<Files, StorageError> {
        if let Some(files) = self.0.get(manifest) {
            return Ok(Arc::clone(files));
        }
        let files = Arc::new(storage.manifest_of_name(manifest)?.references());
        self.0.insert(manifest.to_owned(), Arc::clone(&files));
        Ok(files)
    }

    /// Every file that a checkpoint of the log needs, or one of these manifests.
    ///
    /// # Errors
    /// If a manifest cannot be read.
    pub(super) fn needed(
        &mut self,
        storage: &JobStorage,
        state: &JobState,
        others: &[String],
    ) -> Result<BTreeSet<String>, StorageError> {
        let mut needed = BTreeSet::new();
        for manifest in others {
            needed.extend(self.of_forgotten(storage, manifest)?.iter().cloned());
        }
        for checkpoint in &state.checkpoints {
            needed.extend(self.of(storage, checkpoint)?.iter().cloned());
        }
        Ok(needed)
    }
}
