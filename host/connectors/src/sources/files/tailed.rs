//! One followed file: its content so far, and what happened to it under the reader.

use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use weir_model::{Batch, Timestamp, WATERMARK_START};

use super::super::lines::{Room, Rules};
use super::discover::open_file;
use super::input::{Got, HEAD_BYTES, Head, Input, Kind, TRUNCATED, head_content, read_at};
use super::names;
use crate::{ConnectorError, Reach, Slot};

/// A file and its inode: what stays the same when it is renamed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Inode {
    pub(super) device: u64,
    pub(super) number: u64,
}

impl Inode {
    /// Of a file that is no more.
    pub(super) const NONE: Inode = Inode { device: 0, number: 0 };

    pub(super) fn of(metadata: &Metadata) -> Inode {
        Inode { device: metadata.dev(), number: metadata.ino() }
    }

    /// Id of the split.
    pub(super) fn id(self) -> String {
        format!("{}:{}", self.device, self.number)
    }
}

/// Whether a file is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Yes.
    Reading,
    /// A copy of a file that is being read. If that one is cut before it was read to its end, the rest is read here.
    CopyOf(Inode),
    /// Read to the end and never to grow (compressed), or a copy of such.
    Done,
}

/// A followed file.
pub(super) struct TailedFile {
    pub(super) inode: Inode,
    pub(super) path: PathBuf,
    pub(super) state: State,
    pub(super) head: Head,
    /// Where to continue while `input` is not open.
    pub(super) offset: u64,
    pub(super) input: Option<Input>,
    /// The file while it is too short for `input`: held, so that it is not lost when it is moved.
    held: Option<File>,
    /// Since when it is no longer found under the setting's path: rotated away or removed.
    pub(super) gone_since: Option<Instant>,
    /// Since when it has another name: what writes to it will soon stop, and its last line then ends without line feed.
    pub(super) renamed_at: Option<Instant>,
    /// Before the file was cut: how it began and how far it was read.
    pub(super) previous: Option<(Head, u64)>,
    /// Compressed, and its data ends in the middle: size at which that was found.
    stalled_bytes: Option<u64>,
    /// Size and modification time when it was last caught up with: nothing to do while they stay.
    caught: Option<Stamp>,
    /// The same when a file that is not read was last looked at.
    seen: Option<Stamp>,
    /// Where its event time is kept while it is read.
    pub(super) slot: Option<Slot>,
    /// Greatest event time read from it, as far as it is known while it has no slot.
    pub(super) event_time_max: Timestamp,
    /// Batch that it was last read for.
    pub(super) turn: u64,
}

/// Size and modification time.
type Stamp = (u64, i64, i64);

fn stamp(metadata: &Metadata) -> Stamp {
    (metadata.len(), metadata.mtime(), metadata.mtime_nsec())
}

/// What reading a followed file gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The batch is full.
    Full,
    /// Nothing more now.
    Caught,
    /// Content that is behind is being skipped.
    Busy,
    /// The file was cut or written anew: its content is another one.
    Cut,
}

/// What opening a followed file gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OpenOutcome {
    Yes,
    /// It is empty, or its writer is not done with it.
    NothingYet,
    /// It is not what was read before.
    OtherContent,
}

impl TailedFile {
    pub(super) fn new(inode: Inode, path: PathBuf, state: State, offset: u64) -> TailedFile {
        TailedFile {
            inode,
            path,
            state,
            head: Head::default(),
            offset,
            input: None,
            held: None,
            gone_since: None,
            renamed_at: None,
            previous: None,
            stalled_bytes: None,
            caught: None,
            seen: None,
            slot: None,
            event_time_max: WATERMARK_START,
            turn: 0,
        }
    }

    /// Position of the first line that is not a row yet.
    pub(super) fn offset(&self) -> u64 {
        self.input.as_ref().map_or(self.offset, |input| input.lines.offset())
    }

    /// Reads to the end or until the batch is full.
    pub(super) fn read(&mut self, reach: &Reach, rows: &mut Batch, room: Room, rules: Rules) -> Result<Step, ConnectorError> {
        if self.input.is_none() {
            let Some(file) = self.held.take().map_or_else(|| open_file(reach, &self.path), |file| Ok(Some(file)))? else {
                // Moved since the last look; it is found again by the next.
                return Ok(Step::Caught);
            };
            match self.open(file)? {
                OpenOutcome::Yes => {}
                OpenOutcome::NothingYet => return Ok(Step::Caught),
                OpenOutcome::OtherContent => return Ok(Step::Cut),
            }
        }
        match &self.input {
            Some(input) if input.kind == Kind::Plain => self.read_plain(rows, room, rules),
            _ => self.read_compressed(rows, room, rules),
        }
    }

    fn read_plain(&mut self, rows: &mut Batch, room: Room, rules: Rules) -> Result<Step, ConnectorError> {
        let Some(input) = &mut self.input else { return Ok(Step::Caught) };
        loop {
            if input.lines.split(&input.name, rows, room, rules)? {
                return Ok(Step::Full);
            }
            let now = stamp(&input.file.metadata().map_err(|error| ConnectorError::io("look at", &input.path, error))?);
            if self.caught == Some(now) {
                return Ok(Step::Caught);
            }
            let bytes = input.fill()?;
            if !still_same(input, &mut self.head)? {
                input.lines.unread(bytes);
                return Ok(Step::Cut);
            }
            if bytes == 0 {
                // Taken before the read: what was added since changes it.
                self.caught = Some(now);
                return Ok(Step::Caught);
            }
        }
    }

    fn read_compressed(&mut self, rows: &mut Batch, room: Room, rules: Rules) -> Result<Step, ConnectorError> {
        let Some(input) = &mut self.input else { return Ok(Step::Caught) };
        loop {
            match input.read(rows, room, rules) {
                // Still being written, perhaps.
                Err(ConnectorError::Broken { reason, .. }) if reason == TRUNCATED => {
                    let bytes = input.file.metadata().map_or(0, |metadata| metadata.len());
                    self.close();
                    self.stalled_bytes = Some(bytes);
                    return Ok(Step::Caught);
                }
                Err(error) => return Err(error),
                Ok(Got::Full) => return Ok(Step::Full),
                Ok(Got::More) if !input.is_at_position() => return Ok(Step::Busy),
                Ok(Got::More) => {}
                Ok(Got::Eof) => {
                    input.finish(rows, rules)?;
                    self.close();
                    self.state = State::Done;
                    return Ok(Step::Caught);
                }
            }
        }
    }

    /// Takes the open file up where it was left.
    pub(super) fn open(&mut self, file: File) -> Result<OpenOutcome, ConnectorError> {
        let metadata = file.metadata().map_err(|error| ConnectorError::io("look at", &self.path, error))?;
        if Inode::of(&metadata) != self.inode || self.stalled_bytes == Some(metadata.len()) {
            return Ok(OpenOutcome::NothingYet);
        }
        let (kind, content) = head_content(&file, &self.path)?;
        if !self.head.matches(&content) {
            return Ok(OpenOutcome::OtherContent);
        }
        let Some(kind) = kind else {
            self.held = Some(file);
            return Ok(OpenOutcome::NothingYet);
        };
        if kind == Kind::Plain && metadata.len() < self.offset {
            return Ok(OpenOutcome::OtherContent);
        }
        self.head = Head::of(&content);
        (self.stalled_bytes, self.caught) = (None, None);
        self.input = Some(Input::over(file, &self.path, self.offset)?);
        Ok(OpenOutcome::Yes)
    }

    /// Whether a file that is not read is still the one it was: without a handle its inode may have become another file's.
    pub(super) fn is_still_there(&mut self, reach: &Reach, metadata: &Metadata) -> Result<bool, ConnectorError> {
        let now = stamp(metadata);
        if self.input.is_some() || self.state == State::Reading || self.seen == Some(now) {
            return Ok(true);
        }
        self.seen = Some(now);
        match open_file(reach, &self.path)? {
            None => Ok(false),
            Some(file) => Ok(self.head.matches(&head_content(&file, &self.path)?.1)),
        }
    }

    /// Gives the handle back, keeps the place.
    pub(super) fn close(&mut self) {
        self.offset = self.offset();
        self.input = None;
    }

    /// The file was cut: what was held of it is its last line, and it begins anew.
    pub(super) fn begin_anew(&mut self, rows: Option<&mut Batch>, rules: Rules) -> Result<(), ConnectorError> {
        if let (Some(input), Some(rows)) = (&mut self.input, rows) {
            input.finish(rows, rules)?;
        }
        self.previous = Some((std::mem::take(&mut self.head), self.offset()));
        (self.input, self.held, self.caught, self.stalled_bytes) = (None, None, None, None);
        self.offset = 0;
        Ok(())
    }

    /// It was caught up with; if it was rotated away long enough ago, its last line counts.
    /// Whether the file can be forgotten.
    pub(super) fn settle(&mut self, rows: &mut Batch, wait: Duration, rules: Rules) -> Result<bool, ConnectorError> {
        let is_over = |since: Option<Instant>| since.is_some_and(|since| since.elapsed() >= wait);
        if !is_over(self.gone_since) && !is_over(self.renamed_at) {
            return Ok(false);
        }
        self.renamed_at = None;
        if self.gone_since.is_some() && self.stalled_bytes.is_some() {
            let input = names::shown(&self.path);
            let check = "gzip -t";
            return Err(ConnectorError::Broken { input, offset: self.offset, reason: TRUNCATED.to_owned(), check });
        }
        if let Some(input) = &mut self.input {
            input.finish(rows, rules)?;
        }
        Ok(self.gone_since.is_some())
    }

    pub(super) fn to_json(&self) -> Value {
        let mut position = json!({
            "path": names::to_text(&self.path), "device": self.inode.device, "inode": self.inode.number,
            "offset": self.offset(), "head": self.head.to_json(), "state": "reading",
        });
        match self.state {
            State::Reading => {}
            State::CopyOf(original) => {
                position["state"] = json!("copy");
                position["copy_of"] = json!({"device": original.device, "inode": original.number});
            }
            State::Done => position["state"] = json!("done"),
        }
        if self.event_time_max != WATERMARK_START {
            position["event_time"] = json!(self.event_time_max);
        }
        if let Some((head, offset)) = &self.previous {
            position["previous"] = json!({"head": head.to_json(), "offset": offset});
        }
        position
    }

    pub(super) fn from_json(value: &Value) -> Option<TailedFile> {
        let inode = |value: &Value| Some(Inode { device: value["device"].as_u64()?, number: value["inode"].as_u64()? });
        let state = match value["state"].as_str()? {
            "reading" => State::Reading,
            "copy" => State::CopyOf(inode(&value["copy_of"])?),
            "done" => State::Done,
            _ => return None,
        };
        let path = names::from_text(value["path"].as_str()?)?;
        let mut tailed = TailedFile::new(inode(value)?, path, state, value["offset"].as_u64()?);
        tailed.head = Head::from_json(&value["head"])?;
        tailed.event_time_max = value["event_time"].as_i64().unwrap_or(WATERMARK_START);
        if let Some(previous) = value.get("previous") {
            tailed.previous = Some((Head::from_json(&previous["head"])?, previous["offset"].as_u64()?));
        }
        Some(tailed)
    }

    /// Whether a file that begins with `content` and is called `path` holds what this one holds.
    pub(super) fn is_copied_in(&self, path: &Path, content: &[u8]) -> bool {
        is_copy(&self.head, &self.path, path, content)
    }
}

/// Whether the file `copy`, which begins with `content`, is a copy of what began with `head` under the name `original`.
/// A short beginning proves little: then the name must say so too, `access.log.1` of `access.log`.
pub(super) fn is_copy(head: &Head, original: &Path, copy: &Path, content: &[u8]) -> bool {
    const SHORT_HEAD_BYTES_MIN: usize = 32;
    let extends_name = || {
        let (original, copy) = (original.as_os_str().as_encoded_bytes(), copy.as_os_str().as_encoded_bytes());
        copy.len() > original.len() && copy.starts_with(original)
    };
    (head.is_full() || head.bytes >= SHORT_HEAD_BYTES_MIN && extends_name()) && head.matches(content)
}

/// Whether the file still is what was read of it so far. Learns more of its beginning as it grows.
fn still_same(input: &Input, head: &mut Head) -> Result<bool, ConnectorError> {
    let failed = |error| ConnectorError::io("look at", &input.path, error);
    if input.file.metadata().map_err(failed)?.len() < input.lines.read_offset() {
        return Ok(false);
    }
    let mut begin = [0; HEAD_BYTES];
    let count = read_at(&input.file, &mut begin).map_err(failed)?;
    let is_same = head.matches(&begin[..count]);
    if is_same && !head.is_full() {
        *head = Head::of(&begin[..count]);
    }
    Ok(is_same)
}
