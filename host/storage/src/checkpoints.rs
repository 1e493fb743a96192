//! Reading what a completed checkpoint consists of.

use weir_model::CheckpointId;

use crate::log::StoredCheckpoint;
use crate::manifest::{MANIFEST_FORMAT, Manifest};
use crate::{JobStorage, StorageError, document, layout};

impl JobStorage {
    /// Numbers of the checkpoints that count, newest first.
    ///
    /// # Errors
    /// Those of [`JobStorage::state`].
    pub fn checkpoints(&self) -> Result<Vec<CheckpointId>, StorageError> {
        Ok(self.state()?.checkpoints.iter().rev().map(|checkpoint| checkpoint.id).collect())
    }

    /// Reads the manifest of a checkpoint that counts.
    ///
    /// # Errors
    /// `Missing` if it does not count, and those of [`JobStorage::state`] and [`JobStorage::stored_manifest`].
    pub fn manifest(&self, id: CheckpointId) -> Result<Manifest, StorageError> {
        match self.state()?.checkpoint(id) {
            Some(checkpoint) => self.stored_manifest(checkpoint),
            None => Err(StorageError::Missing {
                action: "read the manifest of checkpoint",
                path: self.place_of_manifest(&format!("{:020}-*.json", id.0)),
            }),
        }
    }

    /// Reads the manifest of a checkpoint that the log names.
    ///
    /// # Errors
    /// `Missing`, `Damaged`, `UnknownFormat`, and what the storage says.
    pub fn stored_manifest(&self, checkpoint: &StoredCheckpoint) -> Result<Manifest, StorageError> {
        let manifest = self.manifest_of_name(&checkpoint.manifest)?;
        if manifest.id() == checkpoint.id && manifest.attempt == checkpoint.attempt {
            return Ok(manifest);
        }
        let reason = format!("it holds checkpoint {} of attempt {}", manifest.id(), manifest.attempt);
        Err(StorageError::Damaged { path: self.place_of_manifest(&checkpoint.manifest), reason })
    }

    pub(crate) fn manifest_of_name(&self, name: &str) -> Result<Manifest, StorageError> {
        let folder = &self.folder;
        let place = self.place_of_manifest(name);
        let bytes = folder.backend.get(&folder.path(layout::MANIFESTS).join(name))?;
        let manifest: Manifest = document::decode(&place, &bytes, Some(MANIFEST_FORMAT..=MANIFEST_FORMAT))?;
        if manifest.job == folder.job {
            return Ok(manifest);
        }
        Err(StorageError::Damaged { path: place, reason: format!("it is of job `{}`", manifest.job) })
    }

    pub(crate) fn place_of_manifest(&self, name: &str) -> String {
        self.folder.backend.place(&self.folder.path(layout::MANIFESTS).join(name))
    }

    pub(crate) fn place_of_log(&self) -> String {
        self.folder.backend.place(&self.folder.path(layout::LOG))
    }

    /// Whether every file that a restore of `manifest` reads is there and long enough. Reads no content: a restore that
    /// passes this can still find damage in [`JobStorage::read`].
    pub fn check(&self, manifest: &Manifest) -> Result<(), StorageError> {
        let folder = &self.folder;
        let mut needed = std::collections::BTreeMap::new();
        for segment in manifest.segments() {
            let end: &mut u64 = needed.entry(&segment.file).or_default();
            *end = (*end).max(segment.offset.saturating_add(segment.length));
        }
        for file in manifest.files.iter() {
            needed.entry(&file.name).and_modify(|end| *end = (*end).max(file.bytes));
        }
        let sizes = folder.backend.sizes(needed.keys().map(|name| folder.file_path(name)).collect())?;
        for ((name, needed), size) in needed.into_iter().zip(sizes) {
            let path = folder.backend.place(&folder.file_path(name));
            match size {
                None => return Err(StorageError::Missing { action: "restore from", path }),
                Some(size) if size < needed => {
                    let reason = format!("it is cut off: {size} bytes, but {needed} are needed");
                    return Err(StorageError::Damaged { path, reason });
                }
                Some(_) => {}
            }
        }
        Ok(())
    }
}
