//! The half of a `file` sink that removes leftovers, takes back, and gives finished files their visible names.

use std::ffi::OsStr;
use std::path::PathBuf;

use serde_json::Value;
use weir_model::CheckpointId;

use super::commit::Committable;
use super::folders::{PENDING, free_name, is_same_folder, list, open, sync};
use crate::{Commit, Committer, ConnectorError, Reach, Recovery, SinkContext};

/// Folder of finished files whose rows are written again, within the sink's.
pub(super) const SUPERSEDED: &str = ".superseded";

/// Commits the files of one subtask, and of any other that it is given.
pub(super) struct FileCommitter {
    reach: Reach,
    folder: PathBuf,
    /// `context.uid` as part of a file name.
    uid: String,
    context: SinkContext,
    /// Files of this subtask in this attempt that were committed: all up to the one of this number.
    committed: Option<u64>,
}

/// What the name of a pending file says.
struct PendingName {
    attempt: u64,
    subtask: u32,
    number: u64,
}

impl FileCommitter {
    pub(super) fn new(reach: Reach, folder: PathBuf, uid: String, context: SinkContext) -> FileCommitter {
        FileCommitter { reach, folder, uid, context, committed: None }
    }

    /// The number of a file that this subtask has begun in this attempt.
    fn own_number(&self, committable: &Committable) -> Option<u64> {
        let name = pending_of(&committable.from, &self.uid)?;
        let is_own = name.attempt == self.context.attempt.0 && name.subtask == self.context.index;
        (is_own && is_same_folder(&committable.folder, &self.folder)).then_some(name.number)
    }
}

impl Committer for FileCommitter {
    fn commit(&mut self, committable: &Value) -> Result<Commit, ConnectorError> {
        let committable = Committable::from_json(committable)?;
        let own = self.own_number(&committable);
        // Of files of this attempt it is known whether they were committed; of others, that they are not there says so.
        let is_first = own.is_some_and(|number| self.committed.is_none_or(|committed| committed < number));
        let done = committable.commit(&self.reach, &self.folder, is_first)?;
        if !matches!(done, Commit::Gone { .. }) {
            self.committed = self.committed.max(own);
        }
        Ok(done)
    }

    fn recover(&mut self, recovery: &Recovery) -> Result<(), ConnectorError> {
        let keep = recovery.keep.iter().map(Committable::from_json).collect::<Result<Vec<_>, _>>()?;
        let folder = open(&self.reach, &self.folder.join(PENDING))?;
        for name in list(&folder)? {
            let Some(PendingName { attempt, subtask, .. }) = name.to_str().and_then(|name| pending_of(name, &self.uid)) else {
                continue;
            };
            let is_kept = keep.iter().any(|kept| *kept.from == *name && is_same_folder(&kept.folder, &self.folder));
            // Each cleans up after its predecessors, never after a newer attempt, which may run by now: this one may come late. Those
            // of subtasks that are no more fall to the first.
            let is_mine = subtask == self.context.index || self.context.index == 0 && subtask >= self.context.parallelism;
            if attempt <= self.context.attempt.0 && is_mine && !is_kept {
                let failed = |error| ConnectorError::io("remove the unfinished file", &folder.path().join(&name), error);
                folder.remove(&name).map_err(failed)?;
            }
        }
        Ok(())
    }

    /// Moves the files into the hidden folder `.superseded`: nobody reads them there, and nothing is deleted. What a newer attempt has
    /// committed stays: this one comes late.
    fn retract(&mut self, checkpoint: CheckpointId) -> Result<u64, ConnectorError> {
        let folder = open(&self.reach, &self.folder)?;
        let mut superseded = None;
        let mut moved = 0;
        for name in list(&folder)? {
            let Some((of, attempt)) = name.to_str().and_then(|name| finished_of(name, &self.uid)) else { continue };
            if of > checkpoint.0 && attempt <= self.context.attempt.0 {
                let made = |error| ConnectorError::io("create the folder", &self.folder.join(SUPERSEDED), error);
                let aside = match superseded.take() {
                    Some(aside) => aside,
                    None => folder.make_folder(OsStr::new(SUPERSEDED)).map_err(made)?,
                };
                let plain = name.to_string_lossy();
                let numbered = (2..).map(|number: u64| format!("{plain}.{number}"));
                let to = free_name(&aside, &mut std::iter::once(plain.to_string()).chain(numbered))?;
                let failed = |error| ConnectorError::io("move aside", &self.folder.join(&name), error);
                folder.rename(&name, &aside, OsStr::new(&to)).map_err(failed)?;
                superseded = Some(aside);
                moved += 1;
            }
        }
        if let Some(superseded) = superseded {
            sync(&superseded)?;
            sync(&folder)?;
        }
        Ok(moved)
    }
}

/// The checkpoint and the attempt in the name of a finished file, if it is one of the sink called `uid`:
/// `<uid>-c<checkpoint>-a<attempt>-s<subtask>...`.
fn finished_of(name: &str, uid: &str) -> Option<(u64, u64)> {
    let (checkpoint, rest) = name.strip_prefix(uid)?.strip_prefix("-c")?.split_once("-a")?;
    let (attempt, subtask) = rest.split_once("-s")?;
    let of = (checkpoint.parse().ok()?, attempt.parse().ok()?);
    subtask.starts_with(|first: char| first.is_ascii_digit()).then_some(of)
}

/// Who has begun a pending file, by its name, if it is one of the sink called `uid`.
fn pending_of(name: &str, uid: &str) -> Option<PendingName> {
    let mut parts = name.strip_prefix(uid)?.strip_prefix('~')?.split('~');
    let attempt = parts.next()?.parse().ok()?;
    let subtask = parts.next()?.parse().ok()?;
    let number = parts.next()?.parse().ok()?;
    parts.next().is_none().then_some(PendingName { attempt, subtask, number })
}
