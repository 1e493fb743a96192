//! The `file` sink: exactly-once by rename.
//!
//! Rows go to a file in the hidden folder `.pending` beside the finished ones. A checkpoint closes it; making it durable and
//! naming it is the first phase. The rename to its final name, once the checkpoint is complete, is the second. So a file
//! without the leading dot is complete and is never changed, and nothing is visible that a checkpoint does not cover.

mod commit;
mod committer;
mod folders;
mod pending;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Map, Value};
use weir_model::{BatchRef, CheckpointId};

use self::commit::Committable;
use self::committer::FileCommitter;
use self::folders::{PENDING, free_name, open};
use self::pending::{Compression, PendingFile};
use super::format::Format;
use crate::settings::{Settings, at_home, error};
use crate::{Committer, ConnectorError, Guarantee, Prepared, Reach, SettingError, Sink, SinkContext, SinkFactory, TakeBack};

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

    fn make_folder(&self) -> Result<(), ConnectorError> {
        let pending = self.folder.join(PENDING);
        let made = self.reach.make_folder(&pending);
        made.map(drop).map_err(|error| ConnectorError::io("create the folder", &pending, error))
    }
}

impl SinkFactory for FileSinkFactory {
    fn create(&self, context: &SinkContext) -> Result<Box<dyn Sink>, ConnectorError> {
        self.make_folder()?;
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

    fn committer(&self, context: &SinkContext) -> Result<Box<dyn Committer>, ConnectorError> {
        self.make_folder()?;
        let uid = file_name_part(&context.uid);
        Ok(Box::new(FileCommitter::new(self.reach.clone(), self.folder.clone(), uid, context.clone())))
    }

    fn guarantee(&self) -> Guarantee {
        Guarantee::ExactlyOnce
    }

    fn take_back(&self) -> TakeBack {
        TakeBack::Possible
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
        // Output of a job of the same name whose `storage` was another is not overwritten: its numbers may be the same.
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
