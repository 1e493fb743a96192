//! The `file` sink: exactly-once by rename.
//!
//! Rows go to a file in the hidden folder `.pending` beside the finished ones. A checkpoint closes it; making it durable and
//! naming it is the first phase. The rename to its final name, once the checkpoint is complete, is the second. So a file
//! without the leading dot is complete and is never changed, and nothing is visible that a checkpoint does not cover.

mod commit;
mod pending;
#[cfg(test)]
mod tests;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Map, Value};
use weir_model::{BatchRef, CheckpointId};

use self::commit::{Committable, is_same_folder};
use self::pending::{Compression, PendingFile};
use super::format::Format;
use crate::reach::Folder;
use crate::settings::{Settings, at_home, error};
use crate::{ConnectorError, Guarantee, Prepared, Reach, SettingError, Sink, SinkContext, SinkFactory};

/// Folder of files that are not complete, within the sink's.
const PENDING: &str = ".pending";

/// Folder of finished files whose rows are written again, within the sink's.
const SUPERSEDED: &str = ".superseded";

/// Makes `file` sinks.
pub(crate) struct FileSinkFactory {
    reach: Reach,
    folder: PathBuf,
    format: Format,
    compression: Compression,
}

impl FileSinkFactory {
    pub(crate) fn from_settings(map: &Map<String, Value>, reach: &Reach) -> Result<FileSinkFactory, SettingError> {
        let settings = Settings::new("a file sink", map, &["path", "format", "compression"])?;
        let folder = settings.required("path", "path is the folder that finished files appear in")?;
        Ok(FileSinkFactory {
            reach: reach.clone(),
            folder: PathBuf::from(at_home(folder).map_err(|message| error("path", message, None))?),
            format: Format::from_settings(&settings)?,
            compression: settings.choice("compression", &Compression::CHOICES)?,
        })
    }
}

impl SinkFactory for FileSinkFactory {
    fn create(&self, context: &SinkContext) -> Result<Box<dyn Sink>, ConnectorError> {
        let pending = self.folder.join(PENDING);
        self.reach.make_folder(&pending).map_err(|error| ConnectorError::io("create the folder", &pending, error))?;
        Ok(Box::new(FileSink {
            reach: self.reach.clone(),
            folder: self.folder.clone(),
            format: self.format,
            compression: self.compression,
            uid: file_name_part(&context.uid),
            context: context.clone(),
            files_begun: 0,
            current: None,
            buffer: Vec::new(),
            failure: Arc::default(),
        }))
    }

    fn guarantee(&self) -> Guarantee {
        Guarantee::ExactlyOnce
    }

    fn describe(&self) -> String {
        format!("files in {}, visible when their checkpoint is complete", self.folder.display())
    }
}

/// Why the sink cannot go on, if it cannot: shared with the closures that make its files durable.
type Failure = Arc<Mutex<Option<String>>>;

struct FileSink {
    reach: Reach,
    folder: PathBuf,
    format: Format,
    compression: Compression,
    /// `context.uid` as part of a file name.
    uid: String,
    context: SinkContext,
    /// Files begun by this subtask in this attempt.
    files_begun: u64,
    current: Option<PendingFile>,
    buffer: Vec<u8>,
    failure: Failure,
}

impl FileSink {
    /// A sink one of whose files did not reach the disk must not go on: a later checkpoint would complete without its rows.
    fn check_usable(&self) -> Result<(), ConnectorError> {
        match &*self.failure.lock().unwrap_or_else(PoisonError::into_inner) {
            None => Ok(()),
            Some(reason) => Err(ConnectorError::Unusable { path: self.folder.clone(), reason: reason.clone() }),
        }
    }

    /// Notes what made the sink unusable.
    fn fail(&self, error: ConnectorError) -> ConnectorError {
        note_failure(&self.failure, error.to_string());
        error
    }

    /// `<uid>~<attempt>~<subtask>~<number>`: never the same twice, and told apart by sink and attempt.
    fn begin(&mut self) -> Result<PendingFile, ConnectorError> {
        let SinkContext { index, attempt, .. } = &self.context;
        let name = format!("{}~{attempt}~{index}~{}", self.uid, self.files_begun);
        self.files_begun += 1;
        PendingFile::create(&self.reach, &self.folder.join(PENDING), name, self.compression)
    }

    /// A name for a finished file that no file has.
    fn final_name(&self, checkpoint: CheckpointId) -> Result<String, ConnectorError> {
        let SinkContext { index, attempt, .. } = &self.context;
        let stem = format!("{}-c{:08}-a{attempt}-s{index}", self.uid, checkpoint.0);
        let ending = format!(".{}{}", self.format.extension(), self.compression.extension());
        // Output of a job that was started over with --fresh, whose numbers begin again, is not overwritten.
        let numbered = (2..).map(|number: u64| format!("{stem}-{number}{ending}"));
        let mut names = std::iter::once(format!("{stem}{ending}")).chain(numbered);
        let folder = open(&self.reach, &self.folder)?;
        free_name(&folder, &mut names)
    }
}

impl Sink for FileSink {
    fn write(&mut self, rows: BatchRef<'_>) -> Result<(), ConnectorError> {
        self.check_usable()?;
        if rows.is_empty() {
            return Ok(());
        }
        let mut pending = match self.current.take() {
            Some(pending) => pending,
            None => self.begin().map_err(|error| self.fail(error))?,
        };
        self.buffer.clear();
        self.format.write(rows, &mut self.buffer);
        pending.write(&self.buffer, rows.len()).map_err(|error| self.fail(error))?;
        self.current = Some(pending);
        Ok(())
    }

    fn prepare(&mut self, checkpoint: CheckpointId) -> Result<Prepared, ConnectorError> {
        self.check_usable()?;
        let Some(pending) = self.current.take() else { return Ok(Box::new(|| Ok(None))) };
        let to = self.final_name(checkpoint)?;
        let (reach, folder) = (self.reach.clone(), self.folder.clone());
        let guard = Guard { failure: Arc::clone(&self.failure), is_durable: false };
        Ok(Box::new(move || {
            let mut guard = guard;
            let from = pending.name().to_owned();
            let (rows, bytes) =
                pending.make_durable(&reach).inspect_err(|error| note_failure(&guard.failure, error.to_string()))?;
            guard.is_durable = true;
            Ok(Some(Committable { folder, from, to, bytes, rows }.to_json()))
        }))
    }

    fn commit(&mut self, committable: &Value) -> Result<(), ConnectorError> {
        Committable::from_json(committable)?.commit(&self.reach, &self.folder)
    }

    fn recover(&mut self, keep: &[Value]) -> Result<(), ConnectorError> {
        let keep = keep.iter().map(Committable::from_json).collect::<Result<Vec<_>, _>>()?;
        let folder = open(&self.reach, &self.folder.join(PENDING))?;
        for name in list(&folder)? {
            let Some(subtask) = name.to_str().and_then(|name| subtask_of(name, &self.uid)) else { continue };
            let is_kept = keep.iter().any(|kept| *kept.from == *name && is_same_folder(&kept.folder, &self.folder));
            // Each cleans up after its predecessor, whatever the attempt: numbers begin again with --fresh. The others may already
            // have begun files. Those of subtasks that are no more fall to the first.
            let is_mine = subtask == self.context.index || self.context.index == 0 && subtask >= self.context.parallelism;
            if is_mine && !is_kept {
                let failed = |error| ConnectorError::io("remove the unfinished file", &folder.path().join(&name), error);
                folder.remove(&name).map_err(failed)?;
            }
        }
        Ok(())
    }

    /// Moves the files into the hidden folder `.superseded`: nobody reads them there, and nothing is deleted.
    fn retract(&mut self, checkpoint: CheckpointId) -> Result<u64, ConnectorError> {
        let folder = open(&self.reach, &self.folder)?;
        let mut superseded = None;
        let mut moved = 0;
        for name in list(&folder)? {
            let Some(of) = name.to_str().and_then(|name| checkpoint_of(name, &self.uid)) else { continue };
            if of > checkpoint.0 {
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

/// The folder of a sink, or its pending one.
fn open(reach: &Reach, folder: &Path) -> Result<Folder, ConnectorError> {
    reach.folder(folder).map_err(|error| ConnectorError::io("open the folder", folder, error))
}

/// The names in a folder.
fn list(folder: &Folder) -> Result<Vec<OsString>, ConnectorError> {
    let entries = folder.list().map_err(|error| ConnectorError::io("list the folder", folder.path(), error))?;
    Ok(entries.into_iter().map(|entry| entry.name).collect())
}

/// Waits until the names in a folder are on the disk.
fn sync(folder: &Folder) -> Result<(), ConnectorError> {
    folder.sync().map_err(|error| ConnectorError::io("sync the folder", folder.path(), error))
}

/// The first of these names that nothing in the folder has.
fn free_name(folder: &Folder, names: &mut dyn Iterator<Item = String>) -> Result<String, ConnectorError> {
    for name in names {
        let failed = |error| ConnectorError::io("look at", &folder.path().join(&name), error);
        if !folder.has(OsStr::new(&name)).map_err(failed)? {
            return Ok(name);
        }
    }
    Ok(String::new())
}

/// The checkpoint in the name of a finished file, if it is one of the sink called `uid`: `<uid>-c<checkpoint>-a<attempt>-s<subtask>...`.
fn checkpoint_of(name: &str, uid: &str) -> Option<u64> {
    let (checkpoint, rest) = name.strip_prefix(uid)?.strip_prefix("-c")?.split_once("-a")?;
    let (attempt, subtask) = rest.split_once("-s")?;
    let _attempt: u64 = attempt.parse().ok()?;
    subtask.starts_with(|first: char| first.is_ascii_digit()).then(|| checkpoint.parse().ok())?
}

/// Makes the sink unusable if a file was not made durable, whatever the reason.
struct Guard {
    failure: Failure,
    is_durable: bool,
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.is_durable {
            note_failure(&self.failure, "a file that belongs to a checkpoint was not made durable".to_owned());
        }
    }
}

/// Keeps the first reason.
fn note_failure(failure: &Failure, reason: String) {
    failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(reason);
}

/// The subtask in the name of a pending file, if it is one of the sink called `uid`.
fn subtask_of(name: &str, uid: &str) -> Option<u32> {
    let mut parts = name.strip_prefix(uid)?.strip_prefix('~')?.split('~');
    let _attempt: u64 = parts.next()?.parse().ok()?;
    let subtask = parts.next()?.parse().ok()?;
    let _number: u64 = parts.next()?.parse().ok()?;
    parts.next().is_none().then_some(subtask)
}

/// A uid as part of a file name: other bytes than letters, digits, `_`, `.` and `-` as `%xx`, also a dot that would hide the file.
fn file_name_part(uid: &str) -> String {
    let mut part = String::new();
    for (at, byte) in uid.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' => part.push(char::from(byte)),
            b'.' if at > 0 => part.push('.'),
            _ => part.push_str(&format!("%{byte:02x}")),
        }
    }
    part
}
