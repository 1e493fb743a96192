//! The proof that a checkpoint is complete.

use std::ops::Deref;
use std::sync::Arc;

use weir_model::CheckpointId;

use crate::{ErrorKind, JobStorage, Manifest, StorageError};

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

    /// The newest checkpoint that is whole, and newer ones that are damaged. `void`: those that do not count.
    ///
    /// # Errors
    /// If the storage cannot be read.
    #[allow(clippy::type_complexity, reason = "it is taken apart where it is asked for")]
    pub fn newest_whole(
        &self,
        void: &[CheckpointId],
    ) -> Result<(Option<Durable>, Vec<(CheckpointId, StorageError)>), StorageError> {
        let mut damaged = Vec::new();
        for id in self.checkpoints()?.into_iter().filter(|id| !void.contains(id)) {
            match self.manifest(id).and_then(|manifest| self.check(&manifest).map(|()| manifest)) {
                Ok(manifest) => return Ok((Some(Durable(Arc::new(manifest))), damaged)),
                Err(error) if error.kind() == ErrorKind::Damaged => damaged.push((id, error)),
                Err(error) => return Err(error),
            }
        }
        Ok((None, damaged))
    }
}
