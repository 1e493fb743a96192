//! Native operators that can be captured: what a component would be, without a sandbox.
//!
//! Each checks what it is told: watermarks rise, the end comes once and after the last watermark. A capture has what changed since
//! the last completed checkpoint, as that of a component's memory does: entries instead of pages.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use weir_model::{Batch, BatchRef, CheckpointId, RowRef, Timestamp, WATERMARK_END, WATERMARK_START};
use weir_sandbox::{CallError, EmittedRows, EncodedImage, Rejection, SandboxError};
use weir_task::{CapturedState, InstanceFactory, OperatorInstance};

use crate::clock::SimClock;
use crate::outside::Outside;
use crate::random::mix;
use crate::scenario::{DIGEST, RowId, VALUE_HEAD};

/// What an operator does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Gives each row so many times. Keeps no state.
    Map(u8),
    /// Numbers the rows of each key. Rows of its second input it numbers by their id, and gives without a key.
    Count,
    /// Remembers all rows and says at its end which they were.
    All,
}

/// Makes instances of one operator.
#[derive(Clone)]
pub(crate) struct Factory {
    pub(crate) uid: String,
    pub(crate) kind: Kind,
    pub(crate) row_us: u64,
    /// A row may come again after a restore: the job is at-least-once.
    pub(crate) may_repeat: bool,
    pub(crate) clock: Arc<SimClock>,
    pub(crate) outside: Arc<Outside>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    watermark: Timestamp,
    finished: bool,
    /// How often each key was seen.
    keys: BTreeMap<Vec<u8>, u32>,
    /// How often each row was that every instance gets.
    seen: BTreeMap<RowId, u32>,
}

impl State {
    /// The state that captures give one after the other, oldest first.
    fn of_chain(images: &[&[u8]]) -> State {
        let mut state = State { watermark: WATERMARK_START, ..State::default() };
        for newer in images.iter().map(|image| State::decode(image)) {
            (state.watermark, state.finished) = (newer.watermark, newer.finished);
            state.keys.extend(newer.keys);
            state.seen.extend(newer.seen);
        }
        state
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = self.watermark.to_le_bytes().to_vec();
        bytes.push(u8::from(self.finished));
        bytes.extend((self.keys.len() as u32).to_le_bytes());
        for (key, count) in &self.keys {
            bytes.push(key.len() as u8);
            bytes.extend(key);
            bytes.extend(count.to_le_bytes());
        }
        for (id, count) in &self.seen {
            bytes.extend(id);
            bytes.extend(count.to_le_bytes());
        }
        bytes
    }

    /// What [`State::encode`] gave; anything else is a bug here.
    fn decode(mut bytes: &[u8]) -> State {
        let mut take = |count: usize| {
            let (head, rest) = bytes.split_at(count.min(bytes.len()));
            bytes = rest;
            head
        };
        let number = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().unwrap_or_default());
        let watermark = Timestamp::from_le_bytes(take(8).try_into().unwrap_or_default());
        let finished = take(1) == [1];
        let count = number(take(4));
        let mut state = State { watermark, finished, ..State::default() };
        for _ in 0..count {
            let len = take(1).first().map_or(0, |len| usize::from(*len));
            let key = take(len).to_vec();
            state.keys.insert(key, number(take(4)));
        }
        loop {
            let Ok(id) = RowId::try_from(take(7)) else { return state };
            state.seen.insert(id, number(take(4)));
        }
    }
}

struct StateBytes(Vec<u8>);

impl CapturedState for StateBytes {
    fn raw_bytes(&self) -> usize {
        self.0.len()
    }

    fn encode(self: Box<Self>, image: &mut EncodedImage) {
        image.set(&self.0);
    }

    fn merge(self: Box<Self>, older: &[&[u8]], image: &mut EncodedImage) -> Result<(), String> {
        let images: Vec<&[u8]> = older.iter().copied().chain([self.0.as_slice()]).collect();
        image.set(&State::of_chain(&images).encode());
        Ok(())
    }
}

impl InstanceFactory for Factory {
    fn instantiate(&self) -> Result<Box<dyn OperatorInstance>, SandboxError> {
        self.restore(&[])
    }

    fn restore(&self, images: &[&[u8]]) -> Result<Box<dyn OperatorInstance>, SandboxError> {
        Ok(Box::new(Native {
            of: self.clone(),
            state: State::of_chain(images),
            captured: CheckpointId(0),
            changed: ChangeSet::default(),
            uncommitted: Vec::new(),
        }))
    }
}

/// Which entries have changed.
#[derive(Clone, Debug, Default)]
struct ChangeSet {
    keys: BTreeSet<Vec<u8>>,
    seen: BTreeSet<RowId>,
}

struct Native {
    of: Factory,
    state: State,
    captured: CheckpointId,
    /// Since the last capture.
    changed: ChangeSet,
    /// What captures hold whose checkpoints are not known to be complete.
    uncommitted: Vec<(CheckpointId, ChangeSet)>,
}

fn row_id(value: &[u8]) -> RowId {
    let mut id = [0; 7];
    id.copy_from_slice(&value[..7]);
    id
}

impl Native {
    fn complain(&self, what: &str) {
        self.of.outside.complain(format!("{}: {what} (watermark {})", self.of.uid, self.state.watermark));
    }

    fn numbered(&mut self, input: u32, rows: BatchRef<'_>, out: &mut Batch) {
        for row in rows.rows() {
            let (key, value) = (row.key_bytes(), row.value_bytes());
            let count = match input {
                0 => {
                    self.changed.keys.insert(key.to_vec());
                    self.state.keys.entry(key.to_vec()).or_default()
                }
                _ => {
                    self.changed.seen.insert(row_id(value));
                    self.state.seen.entry(row_id(value)).or_default()
                }
            };
            *count += 1;
            let mut value = value.to_vec();
            value[7..VALUE_HEAD].copy_from_slice(&count.to_le_bytes());
            out.push_row(RowRef { key: row.key.filter(|_| input == 0), value: Some(&value), ..row });
        }
    }
}

impl OperatorInstance for Native {
    fn process(&mut self, input: u32, rows: BatchRef<'_>, emitted: &mut EmittedRows) -> Result<Vec<Rejection>, CallError> {
        self.of.clock.spend(self.of.row_us * rows.len() as u64);
        if self.state.finished {
            self.complain("rows after the end");
        }
        let mut out = Batch::default();
        match self.of.kind {
            Kind::Map(fan) => {
                for row in rows.rows() {
                    for copy in 0..fan {
                        let mut value = row.value_bytes().to_vec();
                        value[6] = value[6] * fan + copy;
                        out.push_row(RowRef { value: Some(&value), ..row });
                    }
                }
            }
            Kind::Count => self.numbered(input, rows, &mut out),
            Kind::All => {
                for value in rows.values.iter() {
                    self.changed.seen.insert(row_id(value));
                    let count = self.state.seen.entry(row_id(value)).or_default();
                    *count += 1;
                    if *count > 1 && !self.of.may_repeat {
                        let what = format!("a broadcast row came twice: {:?}", row_id(value));
                        self.complain(&what);
                    }
                }
            }
        }
        if !out.is_empty() {
            emitted.rows_to(0).extend(out.view());
        }
        Ok(Vec::new())
    }

    fn advance(&mut self, watermark: Timestamp, _: &mut EmittedRows) -> Result<(), CallError> {
        // One whose input had ended goes on where rows come again all the same: event time is where its input had ended.
        let goes_on = self.state.watermark == WATERMARK_END && (self.of.may_repeat || matches!(self.of.kind, Kind::Map(_)));
        if goes_on {
            self.state.finished = false;
        } else if watermark <= self.state.watermark {
            self.complain(&format!("time went from there to {watermark}"));
        }
        self.state.watermark = watermark;
        self.of.outside.saw_watermark(&self.of.uid, self.of.clock.now_us(), watermark);
        Ok(())
    }

    fn finish(&mut self, emitted: &mut EmittedRows) -> Result<(), CallError> {
        // A map keeps nothing: one that is restored after the last watermark has not heard it.
        let is_early = self.state.watermark != WATERMARK_END && !matches!(self.of.kind, Kind::Map(_));
        if self.state.finished || is_early {
            self.complain("the end came twice, or before the last watermark");
        }
        self.state.finished = true;
        if self.of.kind == Kind::All {
            let mut value = vec![DIGEST; 7];
            value.extend((self.state.seen.len() as u32).to_le_bytes());
            value.extend(digest(self.state.seen.keys()).to_le_bytes());
            let mut rows = Batch::default();
            rows.push(0, b"", &value);
            emitted.rows_to(0).extend(rows.view());
        }
        Ok(())
    }

    fn capture(&mut self, checkpoint: CheckpointId) -> Result<Option<Box<dyn CapturedState>>, SandboxError> {
        if checkpoint <= self.captured {
            self.complain(&format!("captured for {checkpoint} after {}", self.captured));
        }
        self.captured = checkpoint;
        if matches!(self.of.kind, Kind::Map(_)) {
            return Ok(None);
        }
        self.uncommitted.push((checkpoint, std::mem::take(&mut self.changed)));
        let mut image = State { watermark: self.state.watermark, finished: self.state.finished, ..State::default() };
        for (_, changed) in &self.uncommitted {
            image.keys.extend(changed.keys.iter().filter_map(|key| Some((key.clone(), *self.state.keys.get(key)?))));
            image.seen.extend(changed.seen.iter().filter_map(|id| Some((*id, *self.state.seen.get(id)?))));
        }
        Ok(Some(Box::new(StateBytes(image.encode()))))
    }

    fn checkpoint_completed(&mut self, checkpoint: CheckpointId) {
        self.uncommitted.retain(|(captured, _)| *captured > checkpoint);
    }
}

/// Which rows these are, whatever their order.
pub(crate) fn digest<'a>(ids: impl Iterator<Item = &'a RowId>) -> u64 {
    let hash = |id: &RowId| {
        let mut word = [0; 8];
        word[..7].copy_from_slice(id);
        mix(u64::from_le_bytes(word))
    };
    ids.map(hash).fold(0, u64::wrapping_add)
}
