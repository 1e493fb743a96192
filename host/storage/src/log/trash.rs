//! Deletion. What is deleted was forgotten by an entry before, or belongs to an attempt that is over and that no entry names, so a
//! deletion that comes late or twice takes nothing from anybody, and one that is lost leaves garbage for the next sweep.

use std::collections::BTreeSet;
use std::sync::Arc;

use weir_model::{Attempt, CheckpointId};

use super::entry::StoredCheckpoint;
use super::job_log::JobLog;
use super::pen::{DELETED_AT_ONCE, TAIL, dispensable};
use crate::layout::{self, EntryName};
use crate::{ErrorKind, StorageError};

/// Files that are to go and are remembered. More are left to the next sweep.
const FILES_MAX: usize = 100_000;

/// What is to be deleted, and was not yet.
#[derive(Debug, Default)]
pub(super) struct Trash {
    /// Manifests that no entry names any more.
    pub(super) manifests: BTreeSet<String>,
    /// Files that they named, and those of checkpoints that were given up. Retained ones may still need some.
    files: BTreeSet<String>,
    /// Entries below this number are deleted, but for fences. 0: nobody has looked yet.
    entries_from: u64,
}

/// What was deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deleted {
    /// Manifests.
    pub manifests: usize,
    /// Files of checkpoints.
    pub files: usize,
    /// Manifests and files that nobody needs and that could not be deleted yet; tried again next time.
    pub backlog: usize,
}

impl JobLog {
    /// Deletes what was forgotten: manifests, files that only they need, old entries. Files of checkpoints that are still being taken are
    /// never touched. Costs in proportion to what is deleted. What can't be deleted now is remembered, and told of once in the log of the
    /// process.
    pub fn delete_trash(&mut self) -> Deleted {
        let mut deleted = Deleted { backlog: self.trash.manifests.len() + self.trash.files.len(), ..Deleted::default() };
        // A checkpoint may be complete without anybody having heard of it: what it needs must not go.
        if let Err(error) = self.catch_up() {
            tracing::warn!(%error, backlog = deleted.backlog, "nothing is deleted before the log was read; trying again later");
            return deleted;
        }
        let manifests = self.collect_files();
        let needed = self.needed();
        let inner = &self.storage.inner;
        // Without the needed ones, nobody knows which files may go. Their names stay.
        let files: Vec<String> = match &needed {
            Ok(needed) => {
                self.trash.files.retain(|name| !needed.contains(name));
                self.trash.files.iter().cloned().collect()
            }
            Err(error) => {
                tracing::warn!(%error, "a manifest cannot be read: no file is deleted, because it may need any");
                Vec::new()
            }
        };
        let paths = manifests.iter().map(|name| inner.path(layout::MANIFESTS).join(&**name));
        let paths = paths.chain(files.iter().map(|name| inner.file_path(name))).collect();
        let failed = inner.backend.delete(paths);
        let kept: BTreeSet<&str> = failed.iter().filter_map(|(path, _)| path.filename()).collect();
        for name in manifests.iter().filter(|name| !kept.contains(&***name)) {
            deleted.manifests += usize::from(self.trash.manifests.remove(name));
            self.references.remove(name);
        }
        for name in files.iter().filter(|name| !kept.contains(&***name)) {
            deleted.files += usize::from(self.trash.files.remove(name));
        }
        deleted.backlog = self.trash.manifests.len() + self.trash.files.len();
        if let Some((_, error)) = failed.first() {
            let backlog = deleted.backlog;
            tracing::warn!(%error, backlog, "could not delete what nobody needs any more; trying again later");
        }
        self.delete_old_entries();
        deleted
    }

    /// Deletes files of a checkpoint that was given up. What a completed one needs stays.
    pub fn discard(&mut self, names: Vec<String>) -> Deleted {
        self.remember(names);
        self.delete_trash()
    }

    /// Deletes what crashes and attempts before `current` have left behind. `current` must be this writer's own. Lists everything. Gives the
    /// greatest number of a checkpoint that any file has.
    ///
    /// # Errors
    /// If something cannot be listed.
    pub(super) fn sweep(&mut self, current: Attempt) -> Result<CheckpointId, StorageError> {
        let inner = self.storage.inner.clone();
        let manifests = inner.backend.list(&inner.path(layout::MANIFESTS))?;
        let state = self.pen.state();
        let is_named = |name: &String| state.checkpoints.iter().any(|checkpoint| checkpoint.manifest == *name);
        let is_old = |name: &String| layout::parse_manifest_name(name).is_some_and(|(_, attempt)| attempt < current);
        self.trash.manifests.extend(manifests.into_iter().filter(|name| is_old(name) && !is_named(name)));

        let files = inner.backend.list(&inner.path(layout::FILES))?;
        let used = files.iter().filter_map(|name| layout::parse_file_name(name)).map(|(_, checkpoint)| checkpoint).max();
        let is_old = |name: &str| layout::parse_file_name(name).is_some_and(|(attempt, _)| attempt < current);
        self.remember(files.into_iter().filter(|name| is_old(name)));

        self.trash.entries_from = 0;
        self.delete_trash();
        self.remove_staging(current);
        Ok(used.unwrap_or(CheckpointId(0)))
    }

    /// Deletes what interrupted writes of attempts before `current` have left in a folder. What can't be deleted is left to the next sweep.
    fn remove_staging(&self, current: Attempt) {
        let inner = &self.storage.inner;
        let Some(local) = &inner.backend.local else { return };
        let is_old_file = |name: &str| layout::parse_file_name(name).is_some_and(|(attempt, _)| attempt < current);
        let is_old_manifest = |name: &str| layout::parse_manifest_name(name).is_some_and(|(_, attempt)| attempt < current);
        // One of a number that is taken can't become an entry any more.
        let newest = self.pen.number();
        let is_taken = |name: &str| EntryName::parse(name).is_some_and(|name| name.0 <= newest);
        let removed = [
            local.remove_staging(&inner.path(layout::FILES), is_old_file),
            local.remove_staging(&inner.path(layout::MANIFESTS), is_old_manifest),
            local.remove_staging(&inner.path(layout::LOG), is_taken),
        ];
        for error in removed.into_iter().filter_map(Result::err) {
            tracing::warn!(%error, "could not delete what interrupted writes left behind; the next attempt does it");
        }
    }

    /// The files that a checkpoint of the log needs.
    pub(super) fn references_of(&mut self, checkpoint: &StoredCheckpoint) -> Result<Arc<BTreeSet<String>>, StorageError> {
        if let Some(references) = self.references.get(&checkpoint.manifest) {
            return Ok(Arc::clone(references));
        }
        let references = Arc::new(self.storage.stored_manifest(checkpoint)?.references());
        self.references.insert(checkpoint.manifest.clone(), Arc::clone(&references));
        Ok(references)
    }

    /// Every file that a checkpoint of the log needs.
    fn needed(&mut self) -> Result<BTreeSet<String>, StorageError> {
        let mut needed = BTreeSet::new();
        if self.trash.files.is_empty() {
            return Ok(needed);
        }
        for checkpoint in self.pen.state().checkpoints.clone() {
            needed.extend(self.references_of(&checkpoint)?.iter().cloned());
        }
        Ok(needed)
    }

    /// The manifests that are to go, and can. Their files are to go too.
    fn collect_files(&mut self) -> Vec<String> {
        let mut manifests = Vec::new();
        for name in self.trash.manifests.clone() {
            let references = match self.references.get(&name).cloned() {
                Some(references) => Ok(references),
                None => self.storage.manifest_of_name(&name).map(|manifest| Arc::new(manifest.references())),
            };
            match references {
                Ok(references) => {
                    self.remember(references.iter().cloned());
                    self.references.insert(name.clone(), references);
                }
                Err(error) if error.kind() == ErrorKind::Damaged => {
                    tracing::debug!(%error, "the files of a forgotten manifest are left to the next sweep");
                }
                // Nobody else knows its files: it stays until it can be read.
                Err(error) => {
                    tracing::debug!(%error, "a forgotten manifest cannot be read");
                    continue;
                }
            }
            manifests.push(name);
        }
        manifests
    }

    fn remember(&mut self, names: impl IntoIterator<Item = String>) {
        for name in names {
            if self.trash.files.len() < FILES_MAX {
                self.trash.files.insert(name);
            }
        }
    }

    /// Deletes entries that are old, some at a time. The first time, whatever others have left.
    fn delete_old_entries(&mut self) {
        let (newest, from) = (self.pen.number(), self.trash.entries_from);
        let old = if from == 0 {
            match self.storage.inner.entry_numbers(0) {
                Ok(there) => dispensable(newest, TAIL, self.pen.state(), there.into_iter()),
                Err(error) => {
                    tracing::warn!(%error, "the entries of a log cannot be listed: old ones are deleted later");
                    return;
                }
            }
        } else if newest < from + TAIL + DELETED_AT_ONCE {
            return;
        } else {
            dispensable(newest, TAIL, self.pen.state(), from..newest)
        };
        self.delete_entries(&old);
        self.trash.entries_from = (newest + 1).saturating_sub(TAIL).max(1);
    }

    fn delete_entries(&self, numbers: &[u64]) {
        let inner = &self.storage.inner;
        let failed = inner.backend.delete(numbers.iter().map(|number| inner.entry_path(*number)).collect());
        if let Some((_, error)) = failed.first() {
            tracing::warn!(%error, entries = failed.len(), "could not delete old entries of a log; the next attempt does it");
        }
    }
}
