//! Deletion, by reachability from the manifests that are kept.
//!
//! Order is everything: manifests go before the files they name, durably, so that a crash in between leaves files that
//! nothing names (garbage, found by `sweep` or `retain`) and never a manifest whose files are gone.

use std::collections::BTreeSet;

use weir_model::{Attempt, CheckpointId};

use crate::job::{Inner, Ledger};
use crate::layout::{self, ManifestName};
use crate::{ErrorKind, JobStorage, StorageError};

/// Files that could not be deleted and are remembered for the next time. More are left to the next sweep.
const BACKLOG_FILES_MAX: usize = 100_000;

/// What was deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Manifests.
    pub manifests: usize,
    /// Files of checkpoints.
    pub files: usize,
    /// Files that nothing needs and that could not be deleted yet; tried again next time.
    pub backlog: usize,
}

impl JobStorage {
    /// Keeps the newest `keep` checkpoints (at least one) and deletes older ones with the files that only they need.
    ///
    /// Files of checkpoints that are still being taken are never touched: only files that a removed manifest names are
    /// looked at. Costs in proportion to what is deleted, however many files there are.
    ///
    /// Nothing is deleted where an attempt is newer than `current`: it may be going back to one of the older ones.
    ///
    /// # Errors
    /// If manifests cannot be listed or deleted; nothing is lost, the next call goes on. A file that cannot be deleted is
    /// no error but part of [`Removed::backlog`].
    pub fn retain(&self, current: Attempt, keep: usize) -> Result<Removed, StorageError> {
        let inner = &self.inner;
        let mut ledger = inner.ledger.lock();
        if inner.attempts()?.newest() > Some(current) {
            return Ok(Removed::default());
        }
        let names = inner.valid_manifests(&mut ledger)?;
        let (kept, removed) = names.split_at(keep.max(1).min(names.len()));
        inner.remove(&mut ledger, kept, removed)
    }

    /// Deletes what crashes and older attempts left behind: files of attempts before `current` that no checkpoint needs.
    /// Call it at start, once `current` has begun and before any of its tasks runs. Lists the whole folder.
    ///
    /// If a manifest cannot be read, nothing is deleted, because nobody knows which files it needs.
    pub fn sweep(&self, current: Attempt) -> Result<Removed, StorageError> {
        let inner = &self.inner;
        let mut ledger = inner.ledger.lock();
        let mut removed = Removed::default();

        let valid = inner.valid_manifests(&mut ledger)?;
        let stale = inner.manifest_names()?.into_iter().filter(|name| name.attempt < current && !valid.contains(name));
        removed.manifests = inner.remove_manifests(&mut ledger, stale.collect())?;

        // Files are listed before manifests are read: whatever is completed in between is read too.
        let mut garbage: BTreeSet<String> = inner.backend.list(&inner.path(layout::FILES))?.into_iter().collect();
        garbage.retain(|name| layout::parse_file_name(name).is_some_and(|(attempt, _)| attempt < current));
        ledger.backlog.append(&mut garbage);
        let valid = inner.valid_manifests(&mut ledger)?;
        match inner.all_references(&mut ledger, &valid) {
            Ok(needed) => {
                ledger.backlog.retain(|name| !needed.contains(name));
                inner.remove_backlog(&mut ledger, &mut removed);
            }
            Err(error) => inner.report_unreadable(&error),
        }
        removed.backlog = ledger.backlog.len();
        if let Some(local) = &inner.backend.local {
            let old = |name: &str| layout::parse_file_name(name).is_some_and(|(attempt, _)| attempt < current);
            removed.files += local.remove_staging(&inner.path(layout::FILES), old)?;
            let old = |name: &str| ManifestName::parse(name).is_some_and(|name| name.attempt < current);
            local.remove_staging(&inner.path(layout::MANIFESTS), old)?;
        }
        Ok(removed)
    }

    /// Deletes one checkpoint and the files that only it needs. A restore that falls back from a damaged checkpoint does
    /// this with it, so that a later restore does not go back to it.
    pub fn remove_manifest(&self, id: CheckpointId) -> Result<Removed, StorageError> {
        let inner = &self.inner;
        let mut ledger = inner.ledger.lock();
        let names = inner.valid_manifests(&mut ledger)?;
        let (removed, kept): (Vec<_>, Vec<_>) = names.into_iter().partition(|name| name.checkpoint == id);
        inner.remove(&mut ledger, &kept, &removed)
    }

    /// Deletes the private files of a checkpoint that was aborted. Files that are gone already, and files that a completed
    /// checkpoint needs, are left out.
    ///
    /// # Errors
    /// If the storage refuses; the files are remembered for the next [`JobStorage::retain`].
    pub fn remove_files(&self, names: &[String]) -> Result<(), StorageError> {
        let inner = &self.inner;
        let mut ledger = inner.ledger.lock();
        ledger.backlog.extend(names.iter().cloned());
        let valid = inner.valid_manifests(&mut ledger)?;
        let mut wanted: BTreeSet<String> = names.iter().cloned().collect();
        for name in valid {
            match inner.references(&mut ledger, name) {
                Ok(needed) => wanted.retain(|name| !needed.contains(name)),
                // It cannot be restored, so it needs nothing.
                Err(error) if error.kind() == ErrorKind::Damaged => {}
                Err(error) => return Err(error),
            }
        }
        match inner.delete_files(&mut ledger, wanted.into_iter().collect()).1 {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Deletes all checkpoints of the job. Numbers of attempts go on, so that a process that still runs an older one is refused;
    /// what is known of the job beside its checkpoints stays, so that a crash in between does not make it another job's.
    pub fn clear(&self) -> Result<(), StorageError> {
        let inner = &self.inner;
        let mut ledger = inner.ledger.lock();
        inner.remove_manifests(&mut ledger, inner.manifest_names()?)?;
        let files = inner.backend.list(&inner.path(layout::FILES))?.iter().map(|name| inner.file_path(name)).collect();
        let mut failed = inner.backend.delete(files);
        ledger.backlog.clear();
        if let Some((_, error)) = failed.pop() {
            return Err(error);
        }
        if let Some(local) = &inner.backend.local {
            local.remove_staging(&inner.path(layout::FILES), |_| true)?;
        }
        Ok(())
    }
}

impl Inner {
    /// Deletes the manifests `removed`, then the files that none of `kept` needs.
    fn remove(&self, ledger: &mut Ledger, kept: &[ManifestName], removed: &[ManifestName]) -> Result<Removed, StorageError> {
        let mut garbage = BTreeSet::new();
        for name in removed {
            match self.references(ledger, *name) {
                Ok(references) => garbage.extend(references.iter().cloned()),
                Err(error) if error.kind() == ErrorKind::Damaged => {
                    tracing::warn!(%error, "removing a manifest that cannot be read; its files are left to the next start");
                }
                Err(error) => return Err(error),
            }
        }
        // From here on the backlog knows what is to go, whatever fails. It may hold files that a manifest needs: whoever
        // deletes takes those out first.
        ledger.backlog.append(&mut garbage);
        if ledger.backlog.is_empty() && removed.is_empty() {
            return Ok(Removed::default());
        }
        let mut done = Removed { manifests: self.remove_manifests(ledger, removed.to_vec())?, ..Removed::default() };
        match self.all_references(ledger, kept) {
            Ok(needed) => {
                ledger.backlog.retain(|name| !needed.contains(name));
                self.remove_backlog(ledger, &mut done);
            }
            Err(error) => self.report_unreadable(&error),
        }
        done.backlog = ledger.backlog.len();
        Ok(done)
    }

    /// Deletes manifests, oldest first, durably. Gives how many.
    fn remove_manifests(&self, ledger: &mut Ledger, mut names: Vec<ManifestName>) -> Result<usize, StorageError> {
        if names.is_empty() {
            return Ok(0);
        }
        names.sort_unstable();
        for name in &names {
            if let Some((_, error)) = self.backend.delete(vec![self.manifest_path(*name)]).pop() {
                return Err(error);
            }
            ledger.references.remove(name);
        }
        self.backend.settle(&self.path(layout::MANIFESTS))?;
        Ok(names.len())
    }

    /// Every file that one of `names` needs.
    fn all_references(&self, ledger: &mut Ledger, names: &[ManifestName]) -> Result<BTreeSet<String>, StorageError> {
        let mut needed = BTreeSet::new();
        for name in names {
            needed.extend(self.references(ledger, *name)?.iter().cloned());
        }
        Ok(needed)
    }

    /// Deletes the files of the backlog, which nothing needs; what cannot be deleted now stays there.
    fn remove_backlog(&self, ledger: &mut Ledger, removed: &mut Removed) {
        let (deleted, error) = self.delete_files(ledger, ledger.backlog.iter().cloned().collect());
        removed.files += deleted;
        if let Some(error) = error {
            let backlog = ledger.backlog.len();
            tracing::warn!(%error, backlog, job = self.job, "could not delete files that nothing needs; trying again later");
        }
    }

    fn report_unreadable(&self, error: &StorageError) {
        tracing::warn!(%error, job = self.job, "a manifest cannot be read: no file is deleted, because it may need any");
    }

    /// Deletes files that nothing needs and takes them out of the backlog. Gives how many are gone, and one of the errors.
    fn delete_files(&self, ledger: &mut Ledger, names: Vec<String>) -> (usize, Option<StorageError>) {
        let total = names.len();
        let failed = self.backend.delete(names.iter().map(|name| self.file_path(name)).collect());
        for name in names {
            ledger.backlog.remove(&name);
        }
        let deleted = total - failed.len();
        let mut first = None;
        for (path, error) in failed {
            if ledger.backlog.len() < BACKLOG_FILES_MAX {
                ledger.backlog.extend(path.filename().map(str::to_owned));
            }
            first.get_or_insert(error);
        }
        (deleted, first)
    }
}
