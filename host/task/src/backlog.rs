//! What a task has read and not worked off, in steps of one guest call, so that between two steps the worker is heard and room
//! downstream is waited for: neither a slow operator, nor one that turns each row into many, nor a watermark at which every
//! key group has something to say, holds a task up for more than a call or fills memory with more than a call's output.
//!
//! Owns the order of the work, and rows that come back from a checkpoint, which are worked off before any other. Rows that are left
//! when a barrier overtakes them are in flight, and are captured from here. Knows a chain, nothing of channels.
//!
//! While instances of a checkpoint are on their way, rows for one that is not here wait, and all behind them. What concerns all
//! instances (watermarks, idleness, ends) is held instead until all are here, so that rows need not wait for it: a watermark that
//! goes on late makes nothing late.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use weir_channel::Frame;
use weir_model::{Batch, KeyGroupRange, KeyedBatch, Timestamp};

use crate::TaskError;
use crate::chain::Chain;
use crate::in_flight::kind_of;
use crate::report::{InFlight, InFlightSource};
use crate::spec::RestoredInFlight;

/// The node at the head of a chain.
const FIRST: usize = 0;

/// Something that was read and is to be done, with how far it is.
#[derive(Debug)]
enum Work {
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

/// What a step has brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing: the next rows are for an instance that is on its way.
    Waits,
    /// Nothing that the task has to know.
    Done,
    /// The chain has been told the end of all its inputs.
    Finish,
    /// All that came before the end of this channel is worked off.
    End { channel: usize },
}

/// What was read and is to be done.
#[derive(Debug)]
pub(crate) struct Backlog {
    work: VecDeque<Work>,
    /// What is for all instances of the first node, in order, while some are on their way; none once all are here.
    held: Option<Vec<Work>>,
    /// Rows of a checkpoint, each with the index that it had at the start, its frames from the last to the first.
    restored: VecDeque<(usize, RestoredInFlight)>,
}

impl Backlog {
    /// Begins with what a checkpoint had in flight.
    pub(crate) fn new(restored: Vec<RestoredInFlight>) -> Backlog {
        let mut restored: VecDeque<(usize, RestoredInFlight)> = restored.into_iter().enumerate().collect();
        restored.iter_mut().for_each(|(_, of)| of.frames.reverse());
        Backlog { work: VecDeque::new(), held: Some(Vec::new()), restored }
    }

    /// Whether all that was read is worked off. Nothing more is to be read before it is.
    pub(crate) fn is_empty(&self) -> bool {
        self.work.is_empty()
    }

    /// Takes the next frame of the checkpoint in. Gives whether there was one.
    pub(crate) fn take_restored(&mut self, chain: &Chain) -> Result<bool, TaskError> {
        while let Some((index, of)) = self.restored.front_mut() {
            let (from, input, groups) = (InFlightSource::Restored(*index), of.input, of.groups);
            match of.frames.pop() {
                Some(Frame::Rows(rows)) => self.push_rows(chain, from, input, rows, groups),
                Some(Frame::Keyed(rows)) => self.push_keyed(chain, from, input, rows),
                Some(frame) => {
                    let reason = format!("it has {} among rows in flight", kind_of(&frame));
                    return Err(TaskError::Peer { from: "the checkpoint".to_owned(), reason });
                }
                None => {
                    self.restored.pop_front();
                    continue;
                }
            }
            return Ok(true);
        }
        Ok(false)
    }

    /// Rows for every instance of these key groups, or for all.
    pub(crate) fn push_rows(
        &mut self,
        chain: &Chain,
        from: InFlightSource,
        input: u32,
        rows: Arc<Batch>,
        groups: Option<KeyGroupRange>,
    ) {
        chain.count_in(FIRST, rows.len());
        let slots = chain.slots_of(FIRST, groups);
        self.work.push_back(Work::Rows { from, input, rows, slot: slots.start, first: 0, slots_end: slots.end });
    }

    /// Rows divided by key group.
    pub(crate) fn push_keyed(&mut self, chain: &Chain, from: InFlightSource, input: u32, rows: KeyedBatch) {
        chain.count_in(FIRST, rows.len());
        self.work.push_back(Work::Keyed { from, input, rows, section: 0, first: 0 });
    }

    pub(crate) fn push_watermark(&mut self, watermark: Timestamp) {
        self.work.push_back(Work::Advance { watermark, slot: 0 });
    }

    pub(crate) fn push_idle(&mut self) {
        self.work.push_back(Work::Idle);
    }

    pub(crate) fn push_finish(&mut self) {
        self.work.push_back(Work::Finish { slot: 0 });
    }

    pub(crate) fn push_end(&mut self, channel: usize) {
        self.work.push_back(Work::End { channel });
    }

    /// All instances are here: what was held comes next, as if it were read now.
    pub(crate) fn all_are_here(&mut self) {
        for work in self.held.take().into_iter().flatten().rev() {
            self.work.push_front(work);
        }
    }

    /// Makes one guest call. None where there is nothing to do.
    pub(crate) fn step(&mut self, chain: &mut Chain) -> Result<Option<Step>, TaskError> {
        let Some(mut work) = self.work.pop_front() else { return Ok(None) };
        if let Some(held) = &mut self.held {
            if !work.is_rows() {
                hold(held, work, chain);
                return Ok(Some(Step::Done));
            }
            if work.waits(chain) {
                self.work.push_front(work);
                return Ok(Some(Step::Waits));
            }
            // Passed on after rows that came later, it would say of a channel that has rows that it has none.
            held.retain(|held| !matches!(held, Work::Idle));
        }
        if work.step(chain)? {
            self.work.push_front(work);
            return Ok(Some(Step::Done));
        }
        Ok(Some(match work {
            Work::Finish { .. } => Step::Finish,
            Work::End { channel } => Step::End { channel },
            Work::Rows { .. } | Work::Keyed { .. } | Work::Advance { .. } | Work::Idle => Step::Done,
        }))
    }

    /// What was read and is not worked off, and what a restore has left: captured with a barrier that comes now.
    pub(crate) fn in_flight(&self, chain: &Chain) -> Vec<InFlight> {
        let mut pieces = Vec::new();
        self.work.iter().for_each(|work| work.left(chain, &mut pieces));
        let restored = self.restored.iter().filter(|(_, of)| !of.frames.is_empty());
        pieces.extend(restored.map(|(index, of)| InFlight {
            source: InFlightSource::Restored(*index),
            groups: of.groups,
            frames: of.frames.iter().rev().cloned().collect(),
        }));
        pieces
    }
}

/// Holds what is for all instances. Of watermarks without anything but idleness between them the newest says all.
fn hold(held: &mut Vec<Work>, work: Work, chain: &mut Chain) {
    if let Work::Advance { watermark, .. } = work {
        chain.note(FIRST, watermark);
        held.pop_if(|last| matches!(last, Work::Idle));
        held.pop_if(|last| matches!(last, Work::Advance { .. }));
    }
    held.push(work);
}

impl Work {
    fn is_rows(&self) -> bool {
        matches!(self, Work::Rows { .. } | Work::Keyed { .. })
    }

    /// Whether the next call is of an instance that is on its way. It is hurried then, and with it what else the rows are for.
    fn waits(&self, chain: &Chain) -> bool {
        let slots: Vec<usize> = match self {
            Work::Rows { slot, slots_end, .. } => (*slot..*slots_end).collect(),
            Work::Keyed { rows, section, .. } => {
                (*section..rows.sections_len()).map(|section| chain.slot_of(FIRST, rows.section(section).0)).collect()
            }
            Work::Advance { .. } | Work::Idle | Work::Finish { .. } | Work::End { .. } => return false,
        };
        let waits = slots.first().is_some_and(|slot| !chain.is_here(FIRST, *slot));
        if waits {
            slots.iter().for_each(|slot| chain.hurry(FIRST, *slot));
        }
        waits
    }

    /// Makes one guest call. Gives whether there is more of the same to do.
    fn step(&mut self, chain: &mut Chain) -> Result<bool, TaskError> {
        match self {
            Work::Rows { input, rows, slot, first, slots_end, .. } => {
                *first += chain.some_rows(FIRST, *slot, *input, rows.view(), *first)?;
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
                let slot = chain.slot_of(FIRST, group);
                *first += chain.some_rows(FIRST, slot, *input, part, *first)?;
                if *first == part.len() {
                    (*section, *first) = (*section + 1, 0);
                }
                Ok(*section < rows.sections_len())
            }
            Work::Advance { watermark, slot } => chain.advance_some(FIRST, slot, *watermark),
            Work::Idle => chain.send_idle().map(|()| false),
            Work::Finish { slot } => chain.finish_some(FIRST, slot),
            Work::End { .. } => Ok(false),
        }
    }

    /// The rows that are left. Of rows for several instances, the one they are at has had some.
    fn left(&self, chain: &Chain, pieces: &mut Vec<InFlight>) {
        match self {
            Work::Rows { from, rows, slot, first, slots_end, .. } => {
                let mut piece = |slots: Range<usize>, rows: Arc<Batch>| {
                    if !slots.is_empty() {
                        let groups = chain.groups_of(FIRST, slots);
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
}
