//! Completed checkpoints: writing a manifest, finding and reading them.

use std::collections::BTreeSet;
use std::sync::Arc;

use weir_model::{Attempt, CheckpointId};

use crate::job::{Inner, Ledger};
use crate::layout::{self, ManifestName};
use crate::manifest::{MANIFEST_FORMAT, MANIFEST_FORMAT_MIN, Manifest};
use crate::{JobStorage, StorageError, document};

impl JobStorage {
    /// Completes a checkpoint: once this has returned, and only then, a restore finds it and its sinks may commit.
    ///
    /// Nothing but the manifest decides whether the checkpoint exists. On `Unavailable` or `Full` that is uncertain: the
    /// same manifest can be put again, any number of times.
    ///
    /// # Errors
    /// `Fenced` if a newer attempt has begun: it has settled whether this checkpoint counts, so this attempt must not
    /// commit it. `Dangling` if a file it names is gone. `Exists` if the number is taken.
    pub fn put_manifest(&self, manifest: &Manifest) -> Result<(), StorageError> {
        let inner = &self.inner;
        if manifest.format != MANIFEST_FORMAT || manifest.job != inner.job {
            let (format, job) = (manifest.format, &manifest.job);
            return Err(StorageError::Misuse(format!("a manifest of format {format} and job `{job}` in job `{}`", inner.job)));
        }
        let mut ledger = inner.ledger.lock();
        inner.refuse_older(manifest)?;
        let name = ManifestName { checkpoint: manifest.id(), attempt: manifest.attempt };
        let path = inner.manifest_path(name);
        let others = inner.valid_manifests(&mut ledger)?;
        let exists = || StorageError::Exists { checkpoint: name.checkpoint, path: inner.backend.place(&path) };
        if others.iter().any(|other| other.checkpoint == name.checkpoint && *other != name) {
            return Err(exists());
        }
        inner.refuse_dangling(&mut ledger, manifest, &others)?;
        let document = document::encode(manifest)?;
        if !inner.backend.put_new(&path, document.clone())? {
            // It may be the same one, put before with an uncertain end.
            if inner.backend.get(&path)? != document {
                return Err(exists());
            }
            inner.backend.settle(&inner.path(layout::MANIFESTS))?;
        }
        ledger.references.insert(name, Arc::new(manifest.references()));
        // An attempt that began before the manifest was there may not have seen it, and so may not restore it.
        inner.refuse_older(manifest)
    }

    /// Completed checkpoints, newest first.
    pub fn checkpoints(&self) -> Result<Vec<CheckpointId>, StorageError> {
        let names = self.inner.valid_manifests(&mut self.inner.ledger.lock())?;
        Ok(names.iter().map(|name| name.checkpoint).collect())
    }

    /// Reads a completed checkpoint.
    ///
    /// # Errors
    /// `Missing`, `Damaged`, `UnknownFormat`, and what the storage says.
    pub fn manifest(&self, id: CheckpointId) -> Result<Manifest, StorageError> {
        let inner = &self.inner;
        let names = inner.valid_manifests(&mut inner.ledger.lock())?;
        match names.iter().find(|name| name.checkpoint == id) {
            Some(name) => inner.load(*name),
            None => Err(StorageError::Missing {
                action: "read the manifest of checkpoint",
                path: inner.backend.place(&inner.path(layout::MANIFESTS).join(format!("{:020}-*.json", id.0))),
            }),
        }
    }

    /// Whether every file that a restore of `manifest` reads is there and long enough. Reads no content: a restore that
    /// passes this can still find damage in [`JobStorage::read`].
    pub fn check(&self, manifest: &Manifest) -> Result<(), StorageError> {
        let inner = &self.inner;
        let mut needed = std::collections::BTreeMap::new();
        for segment in manifest.segments() {
            let end: &mut u64 = needed.entry(&segment.file).or_default();
            *end = (*end).max(segment.offset.saturating_add(segment.length));
        }
        for file in manifest.files.iter() {
            needed.entry(&file.name).and_modify(|end| *end = (*end).max(file.bytes));
        }
        let sizes = inner.backend.sizes(needed.keys().map(|name| inner.file_path(name)).collect())?;
        for ((name, needed), size) in needed.into_iter().zip(sizes) {
            let path = inner.backend.place(&inner.file_path(name));
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

impl Inner {
    /// Reads the manifest of that name.
    pub(crate) fn load(&self, name: ManifestName) -> Result<Manifest, StorageError> {
        let path = self.manifest_path(name);
        let place = self.backend.place(&path);
        let manifest: Manifest =
            document::decode(&place, &self.backend.get(&path)?, Some(MANIFEST_FORMAT_MIN..=MANIFEST_FORMAT))?;
        if manifest.job == self.job && manifest.id() == name.checkpoint && manifest.attempt == name.attempt {
            return Ok(manifest);
        }
        let reason = format!("it holds checkpoint {} of attempt {} of job `{}`", manifest.id(), manifest.attempt, manifest.job);
        Err(StorageError::Damaged { path: place, reason })
    }

    /// The files that a manifest names.
    pub(crate) fn references(&self, ledger: &mut Ledger, name: ManifestName) -> Result<Arc<BTreeSet<String>>, StorageError> {
        if let Some(references) = ledger.references.get(&name) {
            return Ok(Arc::clone(references));
        }
        let references = Arc::new(self.load(name)?.references());
        ledger.references.insert(name, Arc::clone(&references));
        Ok(references)
    }

    fn refuse_older(&self, manifest: &Manifest) -> Result<(), StorageError> {
        let newest = self.attempts()?.newest().unwrap_or(Attempt(0));
        match newest.cmp(&manifest.attempt) {
            std::cmp::Ordering::Equal => Ok(()),
            std::cmp::Ordering::Less => Err(StorageError::Misuse(format!(
                "checkpoint {} of attempt {}, which was never begun",
                manifest.checkpoint, manifest.attempt
            ))),
            std::cmp::Ordering::Greater => {
                Err(StorageError::Fenced { job: self.job.clone(), checkpoint: manifest.id(), attempt: manifest.attempt, newest })
            }
        }
    }

    /// Refuses a manifest that names a file that is gone. Files that it wrote itself, and files that a completed checkpoint
    /// holds, are there; any other is looked at.
    fn refuse_dangling(&self, ledger: &mut Ledger, manifest: &Manifest, others: &[ManifestName]) -> Result<(), StorageError> {
        let mut unknown = manifest.references();
        for file in &manifest.files {
            unknown.remove(&file.name);
        }
        for other in others {
            if unknown.is_empty() {
                return Ok(());
            }
            // One that cannot be read vouches for nothing.
            if let Ok(references) = self.references(ledger, *other) {
                unknown.retain(|name| !references.contains(name));
            }
        }
        let sizes = self.backend.sizes(unknown.iter().map(|name| self.file_path(name)).collect())?;
        match unknown.into_iter().zip(sizes).find(|(_, size)| size.is_none()) {
            Some((file, _)) => Err(StorageError::Dangling { checkpoint: manifest.id(), file }),
            None => Ok(()),
        }
    }
}
