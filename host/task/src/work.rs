//! Working off what a gate gives, in steps of one guest call, so that between two steps the worker is heard and room
//! downstream is waited for: neither a slow operator, nor one that turns each row into many, nor a watermark at which every
//! key group has something to say, holds a task up for more than a call or fills memory with more than a call's output.
//!
//! Nothing is read from the gate while there is work left, so a barrier still meets whole frames only.

use std::sync::Arc;
use std::time::{Duration, Instant};

use weir_channel::Frame;
use weir_checkpoint::align::Event;
use weir_model::{Batch, KeyedBatch, Timestamp};

use crate::TaskError;
use crate::task::{Head, Task};

/// Time after which the rest of the work is left to the next round of the loop.
const ROUND_TARGET: Duration = Duration::from_millis(5);

/// The head of the chain.
const HEAD: usize = 0;

/// Something that was read and is to be done, with how far it is.
#[derive(Debug)]
pub(crate) enum Work {
    /// Rows for every instance (one, or all of a broadcast input).
    Rows { input: u32, rows: Arc<Batch>, slot: usize, first: usize },
    /// Rows divided by key group.
    Keyed { input: u32, rows: KeyedBatch, section: usize, first: usize },
    /// Event time has come further.
    Advance { watermark: Timestamp, slot: usize },
    /// All channels idle.
    Idle,
    /// All channels have ended.
    Finish { slot: usize },
    /// A channel has ended; after what that causes, so that a snapshot taken now holds it.
    End { channel: usize },
}

impl Task {
    /// Takes a frame in: handles a barrier, and notes what else there is to do.
    pub(crate) fn receive(&mut self, channel: usize, frame: Frame) -> Result<(), TaskError> {
        let Head::Gate { inputs, watermarks, idle, .. } = &mut self.head else { unreachable!("only gates receive frames") };
        let mut is_end = false;
        let risen = match frame {
            Frame::Rows(rows) => {
                watermarks.active(channel);
                *idle = false;
                self.chain.count_in(HEAD, rows.len());
                self.run.work.push_back(Work::Rows { input: inputs[channel], rows, slot: 0, first: 0 });
                return Ok(());
            }
            Frame::Keyed(rows) => {
                watermarks.active(channel);
                *idle = false;
                self.chain.count_in(HEAD, rows.len());
                self.run.work.push_back(Work::Keyed { input: inputs[channel], rows, section: 0, first: 0 });
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

    /// Works for a round, less where there is no room downstream.
    pub(crate) fn work_off(&mut self) -> Result<(), TaskError> {
        let started = Instant::now();
        while let Some(mut work) = self.run.work.pop_front() {
            if self.work_step(&mut work)? {
                self.run.work.push_front(work);
            }
            if !self.chain.is_drained() || started.elapsed() >= ROUND_TARGET {
                break;
            }
        }
        Ok(())
    }

    /// Makes one guest call. Gives whether there is more of the same to do.
    fn work_step(&mut self, work: &mut Work) -> Result<bool, TaskError> {
        match work {
            Work::Rows { input, rows, slot, first } => {
                *first += self.chain.some_rows(HEAD, *slot, *input, rows.view(), *first)?;
                if *first == rows.len() {
                    (*slot, *first) = (*slot + 1, 0);
                }
                Ok(*slot < self.chain.slots(HEAD))
            }
            Work::Keyed { input, rows, section, first } => {
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
