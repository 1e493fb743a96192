//! Deletion. What is deleted was forgotten by an entry before, or belongs to an attempt that is over and that no entry names, so a
//! deletion that comes late or twice takes nothing from anybody, and one that is lost leaves garbage for the next sweep.

use std::collections::BTreeSet;

use weir_model::{Attempt, CheckpointId};

use super::pen::{DELETED_AT_ONCE, Pen, TAIL, dispensable};
use super::references::References;
use crate::layout::{self, EntryName};
use crate::{ErrorKind, JobStorage, StorageError};

/// Files that are to go and are remembered. More are left to the next sweep.
const FILES_MAX: usize = 100_000;

/// What is to be deleted, and was not yet.
#[derive(Debug, Default)]
pub(super) struct Trash {
    /// Manifests that no entry names any more.
    manifests: BTreeSet<String>,
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

/// What the deletion of a job's trash needs to know: the job, its log as far as it is read, and what its manifests name.
pub(super) struct Yard<'a> {
    pub(super) storage: &'a JobStorage,
    pub(super) pen: &'a Pen,
    pub(super) references: &'a mut References,
    /// Manifests that no entry names any more and whose files somebody may still build on.
    pub(super) unheard: &'a [String],
}

impl Trash {
    /// Manifests and files that are to go.
    pub(super) fn backlog(&self) -> usize {
        self.manifests.len() + self.files.len()
    }

    /// Manifests that no entry names any more.
    pub(super) fn add_manifests(&mut self, names: impl IntoIterator<Item = String>) {
        self.manifests.extend(names);
    }

    /// Files that are to go unless a checkpoint needs them. Too many are left to the next sweep.
    pub(super) fn add_files(&mut self, names: impl IntoIterator<Item = String>) {
        for name in names {
            if self.files.len() < FILES_MAX {
                self.files.insert(name);
            }
        }
    }

    /// Deletes manifests, files that only they need, and old entries. The log must have been read: a checkpoint may be complete without
    /// anybody having heard of it. What can't be deleted now stays.
    pub(super) fn delete(&mut self, yard: &mut Yard<'_>) -> Deleted {
        let mut deleted = Deleted::default();
        let manifests = self.collect_files(yard);
        let files = self.dispensable_files(yard);
        let folder = &yard.storage.folder;
        let paths = manifests.iter().map(|name| folder.path(layout::MANIFESTS).join(&**name));
        let paths = paths.chain(files.iter().map(|name| folder.file_path(name))).collect();
        let failed = folder.backend.delete(paths);
        let kept: BTreeSet<&str> = failed.iter().filter_map(|(path, _)| path.filename()).collect();
        for name in manifests.iter().filter(|name| !kept.contains(&***name)) {
            deleted.manifests += usize::from(self.manifests.remove(name));
            yard.references.forget(name);
        }
        for name in files.iter().filter(|name| !kept.contains(&***name)) {
            deleted.files += usize::from(self.files.remove(name));
        }
        deleted.backlog = self.backlog();
        if let Some((_, error)) = failed.first() {
            let backlog = deleted.backlog;
            tracing::warn!(%error, backlog, "could not delete what nobody needs any more; trying again later");
        }
        self.delete_old_entries(yard);
        deleted
    }

    /// The files that may go now. Without knowing the needed ones, none may; their names stay.
    fn dispensable_files(&mut self, yard: &mut Yard<'_>) -> Vec<String> {
        if self.files.is_empty() {
            return Vec::new();
        }
        match yard.references.needed(yard.storage, yard.pen.state(), yard.unheard) {
            Ok(needed) => {
                self.files.retain(|name| !needed.contains(name));
                self.files.iter().cloned().collect()
            }
            Err(error) => {
                tracing::warn!(%error, "a manifest cannot be read: no file is deleted, because it may need any");
                Vec::new()
            }
        }
    }

    /// Finds what crashes and attempts before `current` have left behind. Lists everything. Gives the greatest number of a checkpoint that
    /// any file has.
    ///
    /// # Errors
    /// If something cannot be listed.
    pub(super) fn sweep(&mut self, yard: &Yard<'_>, current: Attempt) -> Result<CheckpointId, StorageError> {
        let folder = &yard.storage.folder;
        let manifests = folder.backend.list(&folder.path(layout::MANIFESTS))?;
        let state = yard.pen.state();
        let is_named = |name: &String| state.checkpoints.iter().any(|checkpoint| checkpoint.manifest == *name);
        let is_old = |name: &String| layout::parse_manifest_name(name).is_some_and(|(_, attempt)| attempt < current);
        self.add_manifests(manifests.into_iter().filter(|name| is_old(name) && !is_named(name)));

        let files = folder.backend.list(&folder.path(layout::FILES))?;
        let used = files.iter().filter_map(|name| layout::parse_file_name(name)).map(|(_, checkpoint)| checkpoint).max();
        let is_old = |name: &str| layout::parse_file_name(name).is_some_and(|(attempt, _)| attempt < current);
        self.add_files(files.into_iter().filter(|name| is_old(name)));
        self.entries_from = 0;
        Ok(used.unwrap_or(CheckpointId(0)))
    }

    /// The manifests that are to go, and can. Their files are to go too.
    fn collect_files(&mut self, yard: &mut Yard<'_>) -> Vec<String> {
        let mut manifests = Vec::new();
        for name in self.manifests.clone() {
            match yard.references.of_forgotten(yard.storage, &name) {
                Ok(references) => self.add_files(references.iter().cloned()),
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

    /// Deletes entries that are old, some at a time. The first time, whatever others have left.
    fn delete_old_entries(&mut self, yard: &Yard<'_>) {
        let folder = &yard.storage.folder;
        let (newest, from, state) = (yard.pen.number(), self.entries_from, yard.pen.state());
        let old = if from == 0 {
            match folder.entry_numbers(0) {
                Ok(there) => dispensable(newest, TAIL, state, there.into_iter()),
                Err(error) => {
                    tracing::warn!(%error, "the entries of a log cannot be listed: old ones are deleted later");
                    return;
                }
            }
        } else if newest < from + TAIL + DELETED_AT_ONCE {
            return;
        } else {
            dispensable(newest, TAIL, state, from..newest)
        };
        let failed = folder.backend.delete(old.iter().map(|number| folder.entry_path(*number)).collect());
        if let Some((_, error)) = failed.first() {
            tracing::warn!(%error, entries = failed.len(), "could not delete old entries of a log; the next attempt does it");
        }
        self.entries_from = (newest + 1).saturating_sub(TAIL).max(1);
    }
}

/// Deletes what interrupted writes of attempts before `current` have left in a folder. What can't be deleted is left to the next sweep.
/// `newest`: the number of the newest entry.
pub(super) fn remove_staging(storage: &JobStorage, newest: u64, current: Attempt) {
    let folder = &storage.folder;
    let Some(local) = &folder.backend.local else { return };
    let is_old_file = |name: &str| layout::parse_file_name(name).is_some_and(|(attempt, _)| attempt < current);
    let is_old_manifest = |name: &str| layout::parse_manifest_name(name).is_some_and(|(_, attempt)| attempt < current);
    // One of a number that is taken can't become an entry any more.
    let is_taken = |name: &str| EntryName::parse(name).is_some_and(|name| name.0 <= newest);
    let removed = [
        local.remove_staging(&folder.path(layout::FILES), is_old_file),
        local.remove_staging(&folder.path(layout::MANIFESTS), is_old_manifest),
        local.remove_staging(&folder.path(layout::LOG), is_taken),
    ];
    for error in removed.into_iter().filter_map(Result::err) {
        tracing::warn!(%error, "could not delete what interrupted writes left behind; the next attempt does it");
    }
}
