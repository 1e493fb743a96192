//! What a task starts with: a source, or a gate with what came through it.
//!
//! Owns what is known of each channel: what it may bring, how far its event time is, whether it has ended. Turns frames into work;
//! barriers it hands on.

use std::time::Duration;

use weir_channel::{Frame, Watermarks};
use weir_checkpoint::align::Event;
use weir_model::{Barrier, CheckpointId};

use crate::TaskError;
use crate::backlog::Backlog;
use crate::chain::Chain;
use crate::gate::Gate;
use crate::in_flight::outside;
use crate::report::{InFlight, InFlightSource, TaskState};
use crate::source::SourceHead;
use crate::spec::{GateChannel, RestoredInFlight};
use crate::stats::TaskStats;

/// What a task starts with.
pub(crate) enum Head {
    Source(Box<SourceHead>),
    Gate(GateHead),
}

/// Channels, with what each of them brings.
pub(crate) struct GateHead {
    gate: Gate,
    channels: Vec<GateChannel>,
    watermarks: Watermarks,
    /// Whether all channels idle, as it was told downstream.
    idle: bool,
    pub(crate) backlog: Backlog,
}

impl Head {
    /// There was no room downstream for some time.
    pub(crate) fn has_waited(&mut self, time: Duration) {
        if let Head::Source(source) = self {
            source.has_waited(time);
        }
    }

    /// The first node of the chain whose instances have to be here before anything is read: rows of a gate wait in its backlog for
    /// those of the first.
    pub(crate) fn first_needed(&self) -> usize {
        match self {
            Head::Source(_) => 0,
            Head::Gate(_) => 1,
        }
    }

    /// All instances of the chain are here.
    pub(crate) fn all_are_here(&mut self) {
        if let Head::Gate(head) = self {
            head.backlog.all_are_here();
        }
    }

    /// Which barriers have come into the channels, or were announced.
    pub(crate) fn take_arrivals(&mut self, events: &mut Vec<Event>) {
        if let Head::Gate(head) = self {
            head.gate.take_arrivals(events);
        }
    }

    pub(crate) fn set_blocked(&mut self, channel: usize, blocked: bool) {
        if let Head::Gate(head) = self {
            head.gate.set_blocked(channel, blocked);
        }
    }

    pub(crate) fn capture(&mut self, channel: usize, barrier: Barrier) {
        if let Head::Gate(head) = self {
            head.gate.capture(channel, barrier);
        }
    }

    /// What was captured in the channels.
    pub(crate) fn take_captured(&mut self) -> Vec<InFlight> {
        let Head::Gate(head) = self else { return Vec::new() };
        let piece = |(channel, frames)| InFlight { source: InFlightSource::Channel(channel), groups: None, frames };
        head.gate.take_captured().into_iter().map(piece).collect()
    }

    /// What was taken from a channel, or comes from a restore, and is not worked off. Of an aligned checkpoint there is none.
    pub(crate) fn in_flight(&self, chain: &Chain) -> Vec<InFlight> {
        match self {
            Head::Source(_) => Vec::new(),
            Head::Gate(head) => head.backlog.in_flight(chain),
        }
    }

    /// Its part of the task's state at a barrier.
    pub(crate) fn state(&mut self) -> TaskState {
        match self {
            Head::Source(source) => TaskState { source: Some(source.state()), ..TaskState::default() },
            Head::Gate(head) => TaskState { watermarks: head.watermarks.channels(), ..TaskState::default() },
        }
    }

    pub(crate) fn checkpoint_completed(&mut self, checkpoint: CheckpointId) {
        if let Head::Source(source) = self {
            source.checkpoint_completed(checkpoint);
        }
    }
}

impl GateHead {
    /// Begins with what a checkpoint had in flight.
    pub(crate) fn new(gate: Gate, channels: Vec<GateChannel>, restored: Vec<RestoredInFlight>) -> GateHead {
        let watermarks = Watermarks::new(channels.len());
        GateHead { gate, channels, watermarks, idle: false, backlog: Backlog::new(restored) }
    }

    /// The next frame of a channel that is not blocked.
    pub(crate) fn poll(&mut self) -> Option<(usize, Frame)> {
        self.gate.poll()
    }

    /// Takes a frame in: notes what there is to do. Gives the barrier that it is, if it is one.
    pub(crate) fn receive(
        &mut self,
        channel: usize,
        frame: Frame,
        chain: &Chain,
        stats: &TaskStats,
    ) -> Result<Option<Barrier>, TaskError> {
        let (from, input) = (InFlightSource::Channel(channel), self.channels[channel].input);
        self.channels[channel].check(&frame)?;
        let mut is_end = false;
        let risen = match frame {
            Frame::Rows(rows) => {
                self.is_active(channel);
                self.backlog.push_rows(chain, from, input, rows, None);
                return Ok(None);
            }
            Frame::Keyed(rows) => {
                self.is_active(channel);
                self.backlog.push_keyed(chain, from, input, rows);
                return Ok(None);
            }
            Frame::Watermark(watermark) => {
                self.idle = false;
                self.watermarks.advance(channel, watermark)
            }
            Frame::Idle => self.watermarks.idle(channel),
            Frame::Barrier(barrier) => return Ok(Some(barrier)),
            Frame::End => {
                is_end = true;
                self.watermarks.end(channel)
            }
        };
        if let Some(watermark) = risen {
            stats.set_watermark(watermark);
            self.backlog.push_watermark(watermark);
        }
        // Also where a channel has ended and only idle ones are left.
        if self.watermarks.is_idle() && !std::mem::replace(&mut self.idle, true) {
            self.backlog.push_idle();
        }
        if is_end {
            if self.watermarks.all_ended() {
                self.backlog.push_finish();
            }
            self.backlog.push_end(channel);
        }
        Ok(None)
    }

    fn is_active(&mut self, channel: usize) {
        self.watermarks.active(channel);
        self.idle = false;
    }
}

impl GateChannel {
    /// Rows may come from another process: rows of key groups that the task does not own, or rows for all of its instances where
    /// each belongs to one, would be processed where they do not belong.
    fn check(&self, frame: &Frame) -> Result<(), TaskError> {
        let reason = match (frame, self.groups) {
            (Frame::Keyed(rows), Some(groups)) => match outside(rows, groups) {
                None => return Ok(()),
                Some(group) => format!("it sent rows of key group {group}, and this task owns {groups}"),
            },
            (Frame::Keyed(_), None) => "it sent rows divided by key group over an edge that does not divide them".to_owned(),
            (Frame::Rows(_), Some(_)) => "it sent rows that are not divided by key group over a hash edge".to_owned(),
            _ => return Ok(()),
        };
        Err(TaskError::Peer { from: self.from.clone(), reason })
    }
}
