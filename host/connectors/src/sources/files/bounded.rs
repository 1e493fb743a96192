//! Reads the files there are, each once, oldest first. A split is a file, called by its path.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use serde_json::Value;
use weir_model::{Batch, WATERMARK_START};

use super::super::lines::Room;
use super::discover::{Found, natural_order};
use super::input::{Got, Head, Input, Kind, REPLACED_HINT, head_content};
use super::known::{Position, Todo, resolve};
use super::tailed::Inode;
use super::{FileSettings, names, owner};
use crate::{ConnectorError, Polled, Source};

/// Blocks read in one poll at most, where they give no row.
const POLL_BLOCKS: usize = 64;

/// One subtask of a `file` source that does not follow.
pub(super) struct Bounded {
    settings: FileSettings,
    index: u32,
    parallelism: u32,
    /// Files as they were found; until the first poll, or `restore`, has said what to do with them.
    found: Option<Found>,
    /// Files to be read, by name.
    waiting: VecDeque<Todo>,
    /// Files that were begun, by path: also those that are done.
    positions: BTreeMap<String, Position>,
    current: Option<Input>,
}

impl Bounded {
    pub(super) fn new(settings: FileSettings, index: u32, parallelism: u32) -> Result<Bounded, ConnectorError> {
        let found = settings.pattern.files()?;
        if found.files.is_empty() {
            return Err(settings.pattern.no_file());
        }
        let (waiting, positions) = (VecDeque::new(), BTreeMap::new());
        Ok(Bounded { settings, index, parallelism, found: Some(found), waiting, positions, current: None })
    }

    /// Sorts out what there is to read.
    fn begin(&mut self, positions: BTreeMap<String, Position>) -> Result<(), ConnectorError> {
        let Some(found) = self.found.take() else { return Ok(()) };
        for (path, reason) in &found.skipped {
            tracing::warn!(path = names::shown(path), reason, "passed over");
        }
        let resolved = resolve(found.files, positions, self.settings.pattern.text())?;
        let is_mine = |id: &str| owner(id, self.parallelism) == self.index;
        self.positions = resolved.done.into_iter().filter(|(id, _)| is_mine(id)).collect();
        let mut waiting: Vec<Todo> = resolved.todo.into_iter().filter(|todo| is_mine(&todo.id)).collect();
        waiting.sort_by(|a, b| a.modified.cmp(&b.modified).then_with(|| natural_order(&a.path, &b.path)));
        self.waiting = waiting.into();
        for todo in &self.waiting {
            self.positions.extend(todo.position.clone().map(|position| (todo.id.clone(), position)));
        }
        Ok(())
    }

    /// Opens the next file where the checkpoint left it, or at its beginning.
    fn open(&mut self, todo: Todo) -> Result<Input, ConnectorError> {
        let Todo { id, path, position, .. } = todo;
        let offset = position.as_ref().map_or(0, |position| position.offset);
        let input = Input::open(&path, offset)?;
        let (_, content) = head_content(&input.file, &path)?;
        let metadata = input.file.metadata().map_err(|error| ConnectorError::io("look at", &path, error))?;
        if let Some(position) = position {
            let replaced = |reason: String| ConnectorError::Replaced { input: names::shown(&path), reason, hint: REPLACED_HINT };
            if !position.head.matches(&content) {
                return Err(replaced("the file was replaced since the checkpoint: it begins differently".to_owned()));
            }
            if input.kind == Kind::Plain && metadata.len() < offset {
                let size_bytes = metadata.len();
                return Err(replaced(format!("the file was cut since the checkpoint: {size_bytes} bytes, read up to {offset}")));
            }
        }
        let position = Position {
            offset,
            is_done: false,
            head: Head::of(&content),
            size_bytes: metadata.len(),
            inode: Some(Inode::of(&metadata)),
            event_time_max: WATERMARK_START,
        };
        self.positions.insert(id, position);
        Ok(input)
    }

    /// Notes how far the current file was read.
    fn note(&mut self, is_done: bool) {
        if let Some(input) = &self.current
            && let Some(position) = self.positions.get_mut(&names::to_text(&input.path))
        {
            position.offset = input.lines.offset();
            position.is_done = is_done;
        }
    }
}

impl Source for Bounded {
    fn restore(&mut self, splits: &BTreeMap<String, Value>) -> Result<(), ConnectorError> {
        self.begin(Position::all(splits)?)
    }

    fn poll(&mut self, rows: &mut Batch, rows_max: usize, bytes_target: usize) -> Result<Polled, ConnectorError> {
        self.begin(BTreeMap::new())?;
        let room = Room { rows_max, bytes_target };
        for _ in 0..POLL_BLOCKS {
            if self.current.is_none() {
                let Some(todo) = self.waiting.pop_front() else {
                    return Ok(if rows.is_empty() { Polled::Ended } else { Polled::Rows });
                };
                self.current = Some(self.open(todo)?);
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
