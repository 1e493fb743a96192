//! Reads the files there are, each once. A split is a file, called by its path.
//!
//! Where rows have times, the file whose rows are oldest is read on, batch by batch, so that event time moves on evenly through
//! files that overlap; and every file that waits holds event time back at its first rows, whatever the order.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;
use weir_model::{Batch, OddExample, OddKind, Oddities, WATERMARK_START};

use super::super::formats::refuse_foreign;
use super::super::lines::Room;
use super::discover::{Discovery, natural_order, open_file};
use super::input::{Got, Head, Input, Kind, REPLACED_HINT, head_content};
use super::known::{Position, Todo, Why, resolve};
use super::tailed::Inode;
use super::{FileSettings, Order, names, owner};
use crate::{ConnectorError, Polled, Slot, Source, SplitTimes};

/// Blocks read in one poll at most, where they give no row.
const POLL_BLOCKS: usize = 64;

/// Files whose first rows are looked at in one poll.
const HEADS_PER_POLL: usize = 32;

/// First rows of a file that are looked at, and their bytes.
const HEAD_ROOM: Room = Room { rows_max: 64, bytes_target: 64 << 10 };

/// Files that are read by turns at most: each holds buffers, and a place where a resume has to find it again.
const OPEN_FILES_MAX: usize = 16;

/// One subtask of a `file` source that does not follow.
pub(super) struct BoundedFiles {
    settings: FileSettings,
    index: u32,
    parallelism: u32,
    /// Files as they were found; until the first poll, or `restore`, has said what to do with them.
    found: Option<Discovery>,
    /// Files that are not begun by this source.
    waiting: Vec<WaitingFile>,
    /// Files of `waiting` whose first rows are not looked at.
    unseen: usize,
    /// `waiting` is in its final order.
    is_sorted: bool,
    open: Vec<Open>,
    /// Files that ended with the last poll.
    ended: Vec<(String, Slot)>,
    /// Files that were begun, by id: also those that are done.
    positions: BTreeMap<String, Position>,
    times: SplitTimes,
    oddities: Oddities,
}

struct WaitingFile {
    todo: Todo,
    slot: Slot,
}

struct Open {
    id: String,
    slot: Slot,
    input: Input,
    /// It is taken for the compressed form of a file that was read to its end.
    is_copy: bool,
}

impl BoundedFiles {
    pub(super) fn new(settings: FileSettings, index: u32, parallelism: u32) -> Result<BoundedFiles, ConnectorError> {
        let found = settings.pattern.files(&settings.reach)?;
        if found.files.is_empty() {
            return Err(settings.pattern.no_file(&settings.reach));
        }
        Ok(BoundedFiles {
            settings,
            index,
            parallelism,
            found: Some(found),
            waiting: Vec::new(),
            unseen: 0,
            is_sorted: false,
            open: Vec::new(),
            ended: Vec::new(),
            positions: BTreeMap::new(),
            times: SplitTimes::default(),
            oddities: Oddities::new(),
        })
    }

    /// Sorts out what there is to read.
    fn begin(&mut self, positions: BTreeMap<String, Position>) -> Result<(), ConnectorError> {
        let Some(found) = self.found.take() else { return Ok(()) };
        for (path, reason) in &found.skipped {
            let path = names::shown(path);
            tracing::warn!(path, reason, "passed over");
            self.oddities.add(OddKind::SkippedInput, || OddExample::new(path.as_bytes(), reason));
        }
        let is_mine = |id: &str| owner(id, self.parallelism) == self.index;
        let FileSettings { pattern, reach, .. } = &self.settings;
        let resolved = resolve(found.files, positions, pattern.text(), reach, is_mine)?;
        self.positions = resolved.done.into_iter().filter(|(id, _)| is_mine(id)).collect();
        for todo in resolved.todo.into_iter().filter(|todo| is_mine(&todo.id)) {
            let known = todo.position.as_ref().map_or(WATERMARK_START, |position| position.event_time_max);
            let slot = self.times.open(known);
            self.positions.extend(todo.position.clone().map(|position| (todo.id.clone(), position)));
            self.waiting.push(WaitingFile { todo, slot });
        }
        // Rows of all of them were given, whichever of them is read on.
        for position in self.positions.values() {
            self.times.reach_max(position.event_time_max);
        }
        self.unseen = self.waiting.len();
        Ok(())
    }

    /// Puts the file to be read next last.
    fn sort(&mut self) {
        let (times, order) = (&self.times, self.settings.order);
        let by_time = |a: &WaitingFile, b: &WaitingFile| times.time(a.slot).cmp(&times.time(b.slot));
        let by_age = |a: &WaitingFile, b: &WaitingFile| a.todo.modified.cmp(&b.todo.modified);
        let by_name = |a: &WaitingFile, b: &WaitingFile| natural_order(&a.todo.path, &b.todo.path);
        self.waiting.sort_by(|b, a| match order {
            Order::Time => by_time(a, b).then_with(|| by_age(a, b)).then_with(|| by_name(a, b)),
            Order::Modified => by_age(a, b).then_with(|| by_name(a, b)),
            Order::Name => by_name(a, b),
        });
    }

    /// Looks at the first rows of some files that wait. What is wrong with one is found when it is read.
    fn look_at_heads(&mut self) {
        for _ in 0..HEADS_PER_POLL {
            let Some(at) = self.unseen.checked_sub(1) else { return };
            self.unseen = at;
            let WaitingFile { todo, slot } = &self.waiting[at];
            // One that was begun goes on where it was; if nothing is known of that, it is read first.
            if todo.position.is_some() {
                continue;
            }
            let mut rows = Batch::default();
            let opened = Input::open(&self.settings.reach, &todo.path, 0);
            let head = opened.and_then(|mut input| input.head(&mut rows, HEAD_ROOM, self.settings.rules));
            match head {
                // A file without rows holds nothing back.
                Ok(true) if rows.is_empty() => self.times.set_holds(*slot, false),
                Ok(_) => self.times.show_head(*slot, rows),
                Err(error) => tracing::debug!(file = names::shown(&todo.path), %error, "first rows cannot be read"),
            }
        }
    }

    /// The file to read on: of those that are open, or one that is opened for it. `None`: there is none.
    fn choose(&mut self) -> Result<Option<usize>, ConnectorError> {
        loop {
            let furthest_behind = (0..self.open.len()).min_by_key(|&at| self.times.time(self.open[at].slot));
            let is_by_turns = self.times.is_timed() && self.settings.order == Order::Time && self.open.len() < OPEN_FILES_MAX;
            let next = match (self.waiting.last(), furthest_behind) {
                (None, open) => return Ok(open),
                (Some(waiting), None) => waiting,
                (Some(waiting), Some(at)) => {
                    let order = self.times.time(waiting.slot).cmp(&self.times.time(self.open[at].slot));
                    if !is_by_turns || order != Ordering::Less {
                        return Ok(Some(at));
                    }
                    waiting
                }
            };
            let slot = next.slot;
            let Some(WaitingFile { todo, .. }) = self.waiting.pop() else { return Ok(None) };
            match self.open(todo, slot)? {
                true => return Ok(Some(self.open.len() - 1)),
                false => self.times.close(slot),
            }
        }
    }

    /// Opens a file where the checkpoint left it, or at its beginning. Whether it is there.
    fn open(&mut self, todo: Todo, slot: Slot) -> Result<bool, ConnectorError> {
        let Todo { id, path, position, why, .. } = todo;
        let offset = position.as_ref().map_or(0, |position| position.offset);
        let Some(file) = open_file(&self.settings.reach, &path)? else {
            if position.is_some() {
                return Err(ConnectorError::io("open", &path, std::io::ErrorKind::NotFound.into()));
            }
            tracing::warn!(file = names::shown(&path), "the file was gone before it was read");
            let reason = "it was gone before it was read";
            self.oddities.add(OddKind::SkippedInput, || OddExample::new(names::shown(&path).as_bytes(), reason));
            return Ok(false);
        };
        let input = Input::over(file, &path, offset)?;
        let (_, content) = head_content(&input.file, &path)?;
        refuse_foreign(&input.name, &content)?;
        let metadata = input.file.metadata().map_err(|error| ConnectorError::io("look at", &path, error))?;
        if let Some(position) = &position {
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
            event_time_max: position.map_or(WATERMARK_START, |position| position.event_time_max),
        };
        self.positions.insert(id.clone(), position);
        self.open.push(Open { id, slot, input, is_copy: why == Why::Compressed });
        Ok(true)
    }

    /// Reads file `at` on by one block.
    fn read(&mut self, at: usize, rows: &mut Batch, room: Room) -> Result<Got, ConnectorError> {
        let Open { input, is_copy, .. } = &mut self.open[at];
        let got = match input.read(rows, room, self.settings.rules) {
            // What has less than was read is no copy of it, however it begins.
            Err(ConnectorError::Replaced { reason, .. }) if *is_copy => {
                tracing::warn!(file = input.name, reason, "it is not the file it was taken for, and is read from its beginning");
                (*input, *is_copy) = (Input::open(&self.settings.reach, &input.path, 0)?, false);
                Got::More
            }
            got => got?,
        };
        if got == Got::Eof {
            input.finish(rows, self.settings.rules)?;
        }
        input.lines.give_oddities(&mut self.oddities);
        Ok(got)
    }

    /// Notes how far file `at` was read.
    fn note(&mut self, at: usize, is_done: bool) {
        let Open { id, input, .. } = &self.open[at];
        if let Some(position) = self.positions.get_mut(id) {
            position.offset = input.lines.offset();
            position.is_done = is_done;
        }
    }

    /// Notes how far event time is in what was read with the last poll.
    fn note_times(&mut self) {
        if self.times.is_timed() {
            let open = self.open.iter().map(|Open { id, slot, .. }| (id, slot));
            for (id, slot) in open.chain(self.ended.iter().map(|(id, slot)| (id, slot))) {
                if let Some(position) = self.positions.get_mut(id) {
                    position.event_time_max = self.times.time(*slot);
                }
            }
        }
    }

    /// Whether the next rows may be read: with times, the first rows of all files must be known.
    fn is_ready(&mut self) -> bool {
        if self.times.is_timed() && self.unseen > 0 {
            self.look_at_heads();
            return false;
        }
        // The times of what was looked at last are known one poll later.
        if !std::mem::replace(&mut self.is_sorted, true) {
            self.sort();
        }
        true
    }
}

impl Source for BoundedFiles {
    fn restore(&mut self, splits: &BTreeMap<String, Value>) -> Result<(), ConnectorError> {
        self.begin(Position::all(splits)?)
    }

    fn poll(&mut self, rows: &mut Batch, rows_max: usize, bytes_target: usize) -> Result<Polled, ConnectorError> {
        self.begin(BTreeMap::new())?;
        self.note_times();
        self.ended.clear();
        self.times.begin();
        let room = Room { rows_max, bytes_target };
        if !self.is_ready() {
            return Ok(Polled::Idle { retry_in: Duration::ZERO });
        }
        let mut chosen = None;
        for _ in 0..POLL_BLOCKS {
            let at = match chosen {
                Some(at) => at,
                None => match self.choose()? {
                    Some(at) => at,
                    None => return Ok(if rows.is_empty() { Polled::Ended } else { Polled::Rows }),
                },
            };
            chosen = Some(at);
            let slot = self.open[at].slot;
            let got = self.read(at, rows, room)?;
            self.times.rows_until(slot, rows.len());
            match got {
                Got::Full => break,
                Got::More => {}
                Got::Eof => {
                    self.note(at, true);
                    self.times.close(slot);
                    let Open { id, slot, .. } = self.open.swap_remove(at);
                    self.ended.push((id, slot));
                    chosen = None;
                }
            }
        }
        Ok(if rows.is_empty() { Polled::Idle { retry_in: Duration::ZERO } } else { Polled::Rows })
    }

    fn position(&mut self) -> BTreeMap<String, Value> {
        self.note_times();
        (0..self.open.len()).for_each(|at| self.note(at, false));
        self.positions.iter().map(|(id, position)| (id.clone(), position.to_json())).collect()
    }

    fn split_times(&mut self) -> Option<&mut SplitTimes> {
        Some(&mut self.times)
    }

    fn oddities(&self) -> &Oddities {
        &self.oddities
    }
}
