//! The proof that a checkpoint is complete.

use std::ops::Deref;
use std::sync::Arc;

use crate::{JobStorage, Manifest, StorageError};

/// A manifest that is in the storage and counts. Nobody but the storage makes one, so whoever demands it (a master, before it has
/// sinks commit) cannot be told of a checkpoint that may not be there.
#[derive(Clone, Debug, PartialEq)]
pub struct Durable(Arc<Manifest>);

impl Durable {
    /// Of a manifest that the log names.
    pub(crate) fn new(manifest: Arc<Manifest>) -> Durable {
        Durable(manifest)
    }
}

impl Deref for Durable {
    type Target = Manifest;

    fn deref(&self) -> &Manifest {
        &self.0
    }
}

impl JobStorage {
    /// Completes a checkpoint, as [`JobStorage::put_manifest`] does, and gives the proof.
    ///
    /// # Errors
    /// Those of [`JobStorage::put_manifest`].
    pub fn complete(&self, manifest: &Arc<Manifest>) -> Result<Durable, StorageError> {
        self.put_manifest(manifest)?;
        Ok(Durable(manifest.clone()))
    }

    /// The newest checkpoint, if there is one.
    ///
    /// # Errors
    /// What the storage says. A checkpoint that cannot be read is an error: it is complete all the same.
    pub fn newest(&self) -> Result<Option<Durable>, StorageError> {
        let newest = self.checkpoints()?.first().map(|id| self.manifest(*id)).transpose()?;
        Ok(newest.map(|manifest| Durable(Arc::new(manifest))))
    }
}
