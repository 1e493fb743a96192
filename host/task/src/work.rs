//! Working off what a gate gives, in steps of one guest call, so that between two steps the worker is heard and room
//! downstream is waited for: neither a slow operator, nor one that turns each row into many, nor a watermark at which every
//! key group has something to say, holds a task up for more than a call or fills memory with more than a call's output.
//!
//! Nothing is read from the gate while there is work left. Rows that are left over when a barrier overtakes them are in flight,
//! and are captured from here.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use weir_channel::Frame;
use weir_checkpoint::align::Event;
use weir_model::{Batch, KeyGroupRange, KeyedBatch, Timestamp};

use crate::TaskError;
use crate::build::{GateChannel, RestoredInFlight};
use crate::in_flight::{kind_of, outside};
use crate::report::{InFlight, InFlightSource};
use crate::task::{Head, Task};

/// Time after which the rest of the work is left to the next round of the loop.
const ROUND_TARGET: Duration = Duration::from_millis(5);

/// The head of the chain.
const HEAD: usize = 0;

/// Something that was read and is to be done, with how far it is.
#[derive(Debug)]
pub(crate) enum Work {
    /// Rows for every instance up to `slots_end` (one, or all of a broadcast input).
    Rows { from: InFlightSource, input: u32, rows: Arc<Batch>, slot: usize, first: usize, slots_end: usize },
    /// Rows divided by key group.
    Keyed { from: InFlightSource, input: u32, rows: KeyedBatch, section: usize, first: usize },
    /// Event time has come further.
    Advance { watermark: Timestamp, slot: usize },
    /// All channels idle.
    Idle,
    /// All channels have ended.
    Finish { slot: usize },
    /// A channel has ended; after what that causes, so that a snapshot taken now holds it.
    End { channel: usize },
}

/// In-flight data of a checkpoint that is not worked off yet.
#[derive(Debug, Default)]
pub(crate) struct Restored {
    /// With the index that each had at the start.
    left: VecDeque<(usize, RestoredInFlight)>,
}

/// A frame that comes from a restore, and where it belongs.
pub(crate) struct Again {
    index: usize,
    input: u32,
    groups: Option<KeyGroupRange>,
    frame: Frame,
}

/// Rows may come from another process: rows of key groups that the task does not own, or rows for all of its instances where
/// each belongs to one, would be processed where they do not belong.
fn check(channel: &GateChannel, frame: &Frame) -> Result<(), TaskError> {
    let reason = match (frame, channel.groups) {
        (Frame::Keyed(rows), Some(groups)) => match outside(rows, groups) {
            None => return Ok(()),
            Some(group) => format!("it sent rows of key group {group}, and this task owns {groups}"),
        },
        (Frame::Keyed(_), None) => "it sent rows divided by key group over an edge that does not divide them".to_owned(),
        (Frame::Rows(_), Some(_)) => "it sent rows that are not divided by key group over a hash edge".to_owned(),
        _ => return Ok(()),
    };
    Err(TaskError::Peer { from: channel.from.clone(), reason })
}

impl Restored {
    pub(crate) fn new(restored: Vec<RestoredInFlight>) -> Restored {
        let mut left: VecDeque<(usize, RestoredInFlight)> = restored.into_iter().enumerate().collect();
        // Taken from the end.
        left.iter_mut().for_each(|(_, of)| of.frames.reverse());
        Restored { left }
    }

    pub(crate) fn next(&mut self) -> Option<Again> {
        while let Some((index, of)) = self.left.front_mut() {
            if let Some(frame) = of.frames.pop() {
                return Some(Again { index: *index, input: of.input, groups: of.groups, frame });
            }
            self.left.pop_front();
        }
        None
    }

    /// What is left, as it would have to be restored.
    fn pieces(&self) -> impl Iterator<Item = InFlight> {
        self.left.iter().filter(|(_, of)| !of.frames.is_empty()).map(|(index, of)| InFlight {
            source: InFlightSource::Restored(*index),
            groups: of.groups,
            frames: of.frames.iter().rev().cloned().collect(),
        })
    }
}

impl Task {
    /// Takes a frame in: handles a barrier, and notes what else there is to do.
    pub(crate) fn receive(&mut self, channel: usize, frame: Frame) -> Result<(), TaskError> {
        let Head::Gate { channels, watermarks, idle, .. } = &mut self.head else { unreachable!("only gates receive frames") };
        check(&channels[channel], &frame)?;
        let mut is_end = false;
        let risen = match frame {
            Frame::Rows(rows) => {
                watermarks.active(channel);
                *idle = false;
                self.chain.count_in(HEAD, rows.len());
                let (from, input) = (InFlightSource::Channel(channel), channels[channel].input);
                let slots_end = self.chain.slots(HEAD);
                self.run.work.push_back(Work::Rows { from, input, rows, slot: 0, first: 0, slots_end });
                return Ok(());
            }
            Frame::Keyed(rows) => {
                watermarks.active(channel);
                *idle = false;
                self.chain.count_in(HEAD, rows.len());
                let (from, input) = (InFlightSource::Channel(channel), channels[channel].input);
                self.run.work.push_back(Work::Keyed { from, input, rows, section: 0, first: 0 });
                return Ok(());
            }
            Frame::Watermark(watermark) => {
                *idle = false;
                watermarks.advance(channel, watermark)
            }
            Frame::Idle => watermarks.idle(channel),
            Frame::Barrier(barrier) => return self.align(Event::Barrier { channel, barrier }),
            Frame::End => {
                is_end = true;
                watermarks.end(channel)
            }
        };
        if let Some(watermark) = risen {
            self.stats.set_watermark(watermark);
            self.run.work.push_back(Work::Advance { watermark, slot: 0 });
        }
        // Also where a channel has ended and only idle ones are left.
        if watermarks.is_idle() && !std::mem::replace(idle, true) {
            self.run.work.push_back(Work::Idle);
        }
        if is_end {
            if watermarks.all_ended() {
                self.run.work.push_back(Work::Finish { slot: 0 });
            }
            self.run.work.push_back(Work::End { channel });
        }
        Ok(())
    }

    /// Takes a frame in that comes from a restore.
    pub(crate) fn receive_again(&mut self, again: Again) -> Result<(), TaskError> {
        let Again { index, input, groups, frame } = again;
        let from = InFlightSource::Restored(index);
        self.chain.count_in(HEAD, frame.rows_len());
        match frame {
            Frame::Rows(rows) => {
                let slots = self.chain.slots_of(HEAD, groups);
                self.run.work.push_back(Work::Rows { from, input, rows, slot: slots.start, first: 0, slots_end: slots.end });
            }
            Frame::Keyed(rows) => self.run.work.push_back(Work::Keyed { from, input, rows, section: 0, first: 0 }),
            frame => {
                return Err(TaskError::Peer {
                    from: "the checkpoint".to_owned(),
                    reason: format!("it has {} among rows in flight", kind_of(&frame)),
                });
            }
        }
        Ok(())
    }

    /// What was read and is not worked off, and what a restore has left: captured with a barrier that comes now.
    pub(crate) fn work_in_flight(&self) -> Vec<InFlight> {
        let mut pieces = Vec::new();
        self.run.work.iter().for_each(|work| self.left_of(work, &mut pieces));
        if let Head::Gate { restored, .. } = &self.head {
            pieces.extend(restored.pieces());
        }
        pieces
    }

    /// The rows of a piece of work that are left. Of rows for several instances, the one they are at has had some.
    fn left_of(&self, work: &Work, pieces: &mut Vec<InFlight>) {
        match work {
            Work::Rows { from, rows, slot, first, slots_end, .. } => {
                let mut piece = |slots: std::ops::Range<usize>, rows: Arc<Batch>| {
                    if !slots.is_empty() {
                        let groups = self.chain.groups_of(HEAD, slots);
                        pieces.push(InFlight { source: *from, groups, frames: vec![Frame::Rows(rows)] });
                    }
                };
                if *first > 0 {
                    let mut rest = Batch::default();
                    rest.extend_range(rows.view(), *first..rows.len());
                    piece(*slot..*slot + 1, Arc::new(rest));
                    piece(*slot + 1..*slots_end, rows.clone());
                } else {
                    piece(*slot..*slots_end, rows.clone());
                }
            }
            Work::Keyed { from, rows, section, first, .. } => {
                let rest = rows.rest(*section, *first);
                if !rest.is_empty() {
                    pieces.push(InFlight { source: *from, groups: None, frames: vec![Frame::Keyed(rest)] });
                }
            }
            // Said again by the senders after a restore. What instances were told is with them.
            Work::Advance { .. } | Work::Idle | Work::Finish { .. } | Work::End { .. } => {}
        }
    }

    /// Works for a round, less where there is no room downstream.
    pub(crate) fn work_off(&mut self) -> Result<(), TaskError> {
        let started = self.clock.now();
        while let Some(mut work) = self.run.work.pop_front() {
            if self.work_step(&mut work)? {
                self.run.work.push_front(work);
            }
            if !self.chain.is_drained() || self.clock.now().saturating_sub(started) >= ROUND_TARGET {
                break;
            }
        }
        Ok(())
    }

    /// Makes one guest call. Gives whether there is more of the same to do.
    fn work_step(&mut self, work: &mut Work) -> Result<bool, TaskError> {
        match work {
            Work::Rows { input, rows, slot, first, slots_end, .. } => {
                *first += self.chain.some_rows(HEAD, *slot, *input, rows.view(), *first)?;
                if *first == rows.len() {
                    (*slot, *first) = (*slot + 1, 0);
                }
                Ok(*slot < *slots_end)
            }
            Work::Keyed { input, rows, section, first, .. } => {
                if *section == rows.sections_len() {
                    return Ok(false);
                }
                let (group, part) = rows.section(*section);
                let slot = self.chain.slot_of(HEAD, group);
                *first += self.chain.some_rows(HEAD, slot, *input, part, *first)?;
                if *first == part.len() {
                    (*section, *first) = (*section + 1, 0);
                }
                Ok(*section < rows.sections_len())
            }
            Work::Advance { watermark, slot } => self.chain.advance_some(HEAD, slot, *watermark),
            Work::Idle => {
                self.chain.send_to_all(&Frame::Idle);
                Ok(false)
            }
            Work::Finish { slot } => {
                let more = self.chain.finish_some(HEAD, slot)?;
                if !more {
                    self.finished();
                }
                Ok(more)
            }
            Work::End { channel } => {
                self.align(Event::End { channel: *channel })?;
                Ok(false)
            }
        }
    }
}
