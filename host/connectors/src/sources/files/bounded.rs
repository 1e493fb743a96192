//! Reads the files there are, each once, in the order of their names. A split is a file, called by its path.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use weir_model::Batch;

use super::super::lines::Room;
use super::input::{Got, Head, Input, Kind, REPLACED_HINT, head_content};
use super::{FileSettings, owner};
use crate::{ConnectorError, Polled, Source};

/// Blocks read in one poll at most, where they give no row.
const POLL_BLOCKS: usize = 64;

/// Where a split is.
#[derive(Clone, Debug)]
struct Position {
    offset: u64,
    is_done: bool,
    head: Head,
    /// Size of the file when its reading began.
    size_bytes: u64,
}

impl Position {
    fn to_json(&self) -> Value {
        json!({"offset": self.offset, "done": self.is_done, "size": self.size_bytes, "head": self.head.to_json()})
    }

    fn from_json(value: &Value) -> Option<Position> {
        Some(Position {
            offset: value["offset"].as_u64()?,
            is_done: value["done"].as_bool()?,
            head: Head::from_json(&value["head"])?,
            size_bytes: value["size"].as_u64()?,
        })
    }
}

/// One subtask of a `file` source that does not follow.
pub(super) struct Bounded {
    settings: FileSettings,
    index: u32,
    parallelism: u32,
    /// Files to be read, by name.
    waiting: VecDeque<PathBuf>,
    /// Files that were begun, by path: also those that are done.
    positions: BTreeMap<String, Position>,
    current: Option<Input>,
}

impl Bounded {
    pub(super) fn new(settings: FileSettings, index: u32, parallelism: u32) -> Result<Bounded, ConnectorError> {
        let files = settings.pattern.files()?;
        if files.is_empty() {
            return Err(settings.pattern.no_file());
        }
        let is_mine = |path: &PathBuf| owner(&path.to_string_lossy(), parallelism) == index;
        let waiting = files.into_iter().map(|(path, _)| path).filter(is_mine).collect();
        Ok(Bounded { settings, index, parallelism, waiting, positions: BTreeMap::new(), current: None })
    }

    /// Opens the next file where the checkpoint left it, or at its beginning.
    fn open(&mut self, path: &Path) -> Result<Input, ConnectorError> {
        let id = path.to_string_lossy().into_owned();
        let offset = self.positions.get(&id).map_or(0, |position| position.offset);
        let input = Input::open(path, offset)?;
        let (_, content) = head_content(&input.file, path)?;
        let size_bytes = input.file.metadata().map_err(|error| ConnectorError::io("look at", path, error))?.len();
        if let Some(position) = self.positions.get(&id) {
            let replaced = |reason: String| ConnectorError::Replaced { input: id.clone(), reason, hint: REPLACED_HINT };
            if !position.head.matches(&content) {
                return Err(replaced("the file was replaced since the checkpoint: it begins differently".to_owned()));
            }
            if input.kind == Kind::Plain && size_bytes < offset {
                return Err(replaced(format!("the file was cut since the checkpoint: {size_bytes} bytes, read up to {offset}")));
            }
        }
        self.positions.insert(id, Position { offset, is_done: false, head: Head::of(&content), size_bytes });
        Ok(input)
    }

    /// Notes how far the current file was read.
    fn note(&mut self, is_done: bool) {
        if let Some(input) = &self.current
            && let Some(position) = self.positions.get_mut(&input.name)
        {
            position.offset = input.lines.offset();
            position.is_done = is_done;
        }
    }
}

impl Source for Bounded {
    fn restore(&mut self, splits: &BTreeMap<String, Value>) -> Result<(), ConnectorError> {
        for (id, value) in splits.iter().filter(|(id, _)| owner(id, self.parallelism) == self.index) {
            let Some(position) = Position::from_json(value) else {
                let reason = format!("{value} is not a position in a file that is read once");
                return Err(ConnectorError::Position { split: id.clone(), reason });
            };
            let waiting = self.waiting.iter().position(|path| path.to_str() == Some(id));
            match waiting {
                None if !position.is_done => {
                    let reason = format!("it is half read, and is gone or no longer means {}", self.settings.pattern.text());
                    return Err(ConnectorError::Replaced { input: id.clone(), reason, hint: REPLACED_HINT });
                }
                Some(at) if position.is_done => {
                    self.waiting.remove(at);
                }
                _ => {}
            }
            self.positions.insert(id.clone(), position);
        }
        Ok(())
    }

    fn poll(&mut self, rows: &mut Batch, rows_max: usize, bytes_target: usize) -> Result<Polled, ConnectorError> {
        let room = Room { rows_max, bytes_target };
        for _ in 0..POLL_BLOCKS {
            if self.current.is_none() {
                let Some(path) = self.waiting.pop_front() else {
                    return Ok(if rows.is_empty() { Polled::Ended } else { Polled::Rows });
                };
                self.current = Some(self.open(&path)?);
            }
            let Some(input) = &mut self.current else { continue };
            match input.read(rows, room, self.settings.rules)? {
                Got::Full => break,
                Got::More => {}
                Got::Eof => {
                    input.finish(rows, self.settings.rules)?;
                    self.note(true);
                    self.current = None;
                }
            }
        }
        Ok(if rows.is_empty() { Polled::Idle { retry_in: Duration::ZERO } } else { Polled::Rows })
    }

    fn position(&mut self) -> BTreeMap<String, Value> {
        self.note(false);
        self.positions.iter().map(|(id, position)| (id.clone(), position.to_json())).collect()
    }
}
