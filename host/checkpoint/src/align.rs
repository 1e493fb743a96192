//! Barriers in the input channels of one task: when to block a channel and when to snapshot.
//!
//! Owns which checkpoint is being aligned, which channels wait for it and which ids are dead. Never touches rows: the task
//! reads channels that are not blocked, in order, and tells each marker and each end it meets.
//!
//! What holds at each [`Action::Snapshot`], so that the checkpoint is a consistent cut: in mode [`Mode::ExactlyOnce`] exactly
//! the rows before the marker of every channel were read, where a channel that ended has its marker behind its last row; in
//! mode [`Mode::AtLeastOnce`] at least those. At most one snapshot is asked for per id, and ids only grow.
//!
//! Two ways lead to a snapshot: the markers in the channels, and, for a task that has no open channel (a source, or one that
//! has read all its input), the coordinator's trigger. Since nobody sends a marker behind an end, a task whose channels
//! end before the marker would wait for ever: that is why every task is told every trigger, and remembers it until its
//! channels have answered.

use std::collections::BTreeSet;
use std::fmt;

use weir_model::{Attempt, Barrier, CheckpointId};

/// Aborted ids remembered at most. Beyond it the oldest ones, and every id below them, count as dead.
const ABORTED_MAX: usize = 1_024;

/// What a checkpoint promises about the rows in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// A channel whose marker was read is blocked until all markers are in.
    ExactlyOnce,
    /// No channel is ever blocked; rows behind a marker may be in the snapshot and come again after a restore.
    AtLeastOnce,
}

/// What a task tells its aligner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A marker was read from a channel that is neither blocked nor ended.
    Barrier {
        /// Index of the channel.
        channel: usize,
        /// The marker.
        barrier: Barrier,
    },
    /// The coordinator started a checkpoint. Told to every task, in the coordinator's order.
    Trigger(Barrier),
    /// The coordinator gave a checkpoint up.
    Abort(CheckpointId),
    /// The end of a channel was read; nothing follows on it.
    End {
        /// Index of the channel.
        channel: usize,
    },
    /// A marker waits in a channel; rows may be before it.
    Arrived {
        /// Index of the channel.
        channel: usize,
        /// The marker.
        barrier: Barrier,
    },
    /// An unaligned marker is on its way to a channel; rows may be before it that have not come yet either.
    Announced {
        /// Index of the channel.
        channel: usize,
        /// The marker.
        barrier: Barrier,
    },
    /// The end of a channel waits in it; rows may be before it.
    EndArrived {
        /// Index of the channel.
        channel: usize,
    },
    /// The coordinator has waited long enough: this checkpoint goes on unaligned.
    Unalign(CheckpointId),
}

/// What the task has to do, in the order given, before it reads on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Read nothing more from this channel.
    Block(usize),
    /// Read from this channel again.
    Unblock(usize),
    /// Push unsent output and this marker into every output channel that was not ended yet, then snapshot.
    ///
    /// It may come with the end of the last input channel, so before the task has told its operators of the end. The task
    /// may do that first or afterwards, as long as the marker goes out before its own end does.
    Snapshot(Barrier),
    /// Capture the rows of this channel that are before this marker, those that wait and those to come until the marker does. Only
    /// right after the snapshot that they belong to. The rows are processed as well.
    Capture {
        /// Index of the channel.
        channel: usize,
        /// The marker.
        barrier: Barrier,
    },
    /// All rows have come that belong to an unaligned checkpoint. Said once for each unaligned snapshot that is not declined or aborted
    /// first.
    CaptureDone(CheckpointId),
    /// The marker of this checkpoint was sent as an aligned one: say on every output channel that it does not wait.
    Announce(Barrier),
    /// Tell the coordinator that this task will not acknowledge the checkpoint.
    Decline {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// Why.
        reason: DeclineReason,
    },
    /// The checkpoint was aborted before this task had snapshotted it, and now never will be.
    Aborted(CheckpointId),
}

/// Why a task does not take part in a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeclineReason {
    /// A marker of a newer checkpoint came while this one was waiting for markers. Not counted as a failure.
    Subsumed {
        /// The newer one.
        by: CheckpointId,
    },
    /// The task could not do it (never said by the aligner).
    Failed(String),
}

impl fmt::Display for DeclineReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeclineReason::Subsumed { by } => write!(f, "overtaken by checkpoint {by}"),
            DeclineReason::Failed(reason) => f.write_str(reason),
        }
    }
}

impl From<String> for DeclineReason {
    fn from(reason: String) -> DeclineReason {
        DeclineReason::Failed(reason)
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Channel {
    ended: bool,
    /// Its marker of the pending checkpoint is in.
    marked: bool,
    blocked: bool,
}

#[derive(Clone, Copy, Debug)]
struct Pending {
    barrier: Barrier,
    /// Channels that are neither marked nor ended; at least one.
    missing: usize,
}

/// Barrier handling of one task in one attempt.
#[derive(Clone, Debug)]
pub struct Aligner {
    attempt: Attempt,
    mode: Mode,
    channels: Vec<Channel>,
    /// Number of channels that have not ended.
    open: usize,
    pending: Option<Pending>,
    /// Every smaller id is dead: snapshotted, aborted or overtaken.
    alive_from: CheckpointId,
    /// Aborted ids from `alive_from` on.
    aborted: BTreeSet<CheckpointId>,
    /// Triggers that the channels have not answered yet, alive, in order of their ids.
    triggers: Vec<Barrier>,
}

impl Aligner {
    /// An aligner of a task with this many input channels, all open. A source has none.
    pub fn new(attempt: Attempt, channels: usize, mode: Mode) -> Aligner {
        Aligner {
            attempt,
            mode,
            channels: vec![Channel::default(); channels],
            open: channels,
            pending: None,
            alive_from: CheckpointId(0),
            aborted: BTreeSet::new(),
            triggers: Vec::new(),
        }
    }

    /// Takes an event in and appends what is to be done to `actions`.
    ///
    /// # Panics
    /// If the channel does not exist.
    pub fn handle(&mut self, event: Event, actions: &mut Vec<Action>) {
        match event {
            Event::Barrier { channel, barrier } => self.on_barrier(channel, barrier, actions),
            Event::Trigger(barrier) => self.on_trigger(barrier, actions),
            Event::Abort(checkpoint) => self.on_abort(checkpoint, actions),
            Event::End { channel } => self.on_end(channel, actions),
            Event::Arrived { .. } | Event::Announced { .. } | Event::EndArrived { .. } | Event::Unalign(_) => {}
        }
        debug_assert!(self.pending.is_none_or(|pending| pending.missing > 0), "an alignment that waits for nothing");
        debug_assert!(self.open > 0 || self.triggers.is_empty(), "all input is read and a trigger was left unanswered");
    }

    /// Whether this channel must not be read.
    pub fn is_blocked(&self, channel: usize) -> bool {
        self.channels[channel].blocked
    }

    /// The checkpoint that waits for markers.
    pub fn pending(&self) -> Option<CheckpointId> {
        self.pending.map(|pending| pending.barrier.checkpoint)
    }

    /// Number of channels that have not ended.
    pub fn open_channels(&self) -> usize {
        self.open
    }

    fn on_barrier(&mut self, channel: usize, barrier: Barrier, actions: &mut Vec<Action>) {
        debug_assert!(!self.channels[channel].ended, "channel {channel}: a marker behind the end");
        debug_assert!(!self.is_blocked(channel), "channel {channel}: read while blocked");
        if barrier.attempt != self.attempt || self.is_dead(barrier.checkpoint) {
            return;
        }
        match self.pending {
            Some(pending) if pending.barrier.checkpoint == barrier.checkpoint => {
                if !self.channels[channel].marked {
                    self.mark(channel, actions);
                }
            }
            Some(pending) => {
                let reason = DeclineReason::Subsumed { by: barrier.checkpoint };
                actions.push(Action::Decline { checkpoint: pending.barrier.checkpoint, reason });
                self.open_all(actions);
                self.begin(channel, barrier, actions);
            }
            None => self.begin(channel, barrier, actions),
        }
    }

    fn on_trigger(&mut self, barrier: Barrier, actions: &mut Vec<Action>) {
        if barrier.attempt != self.attempt || self.is_dead(barrier.checkpoint) {
            return;
        }
        if self.open == 0 {
            self.snapshot(barrier, actions);
        } else if self.pending() != Some(barrier.checkpoint) {
            // The pending one is settled by its channels, whatever happens; only the others may need the trigger.
            let known = self.triggers.binary_search_by_key(&barrier.checkpoint, |trigger| trigger.checkpoint);
            if let Err(place) = known {
                self.triggers.insert(place, barrier);
            }
        }
    }

    fn on_abort(&mut self, checkpoint: CheckpointId, actions: &mut Vec<Action>) {
        if self.is_dead(checkpoint) {
            return;
        }
        actions.push(Action::Aborted(checkpoint));
        if self.pending() == Some(checkpoint) {
            self.open_all(actions);
            self.bury_through(checkpoint);
            return;
        }
        // Older ids stay alive: they may still complete, and nobody would tell the coordinator if they were dropped here.
        self.aborted.insert(checkpoint);
        self.triggers.retain(|trigger| trigger.checkpoint != checkpoint);
        if self.aborted.len() > ABORTED_MAX {
            self.forget_oldest_abort(actions);
        }
    }

    /// Keeps the memory of aborted ids bounded. What is older than a thousand aborted checkpoints is given up, and said so.
    fn forget_oldest_abort(&mut self, actions: &mut Vec<Action>) {
        let Some(oldest) = self.aborted.pop_first() else { return };
        let waiting = self.pending().into_iter().chain(self.triggers.iter().map(|trigger| trigger.checkpoint));
        for checkpoint in waiting.filter(|checkpoint| *checkpoint < oldest) {
            actions.push(Action::Decline { checkpoint, reason: DeclineReason::Subsumed { by: oldest } });
        }
        if self.pending().is_some_and(|checkpoint| checkpoint < oldest) {
            self.open_all(actions);
        }
        self.bury_through(oldest);
    }

    fn on_end(&mut self, channel: usize, actions: &mut Vec<Action>) {
        debug_assert!(!self.is_blocked(channel), "channel {channel}: read while blocked");
        if std::mem::replace(&mut self.channels[channel].ended, true) {
            return;
        }
        self.open -= 1;
        if self.pending.is_some() && !self.channels[channel].marked {
            self.arrived(actions);
        }
        if self.open == 0 {
            debug_assert!(self.pending.is_none(), "no channel is left that could bring a marker");
            // All of them are at the same cut, the end of all input.
            for barrier in std::mem::take(&mut self.triggers) {
                self.snapshot(barrier, actions);
            }
        }
    }

    fn is_dead(&self, checkpoint: CheckpointId) -> bool {
        checkpoint < self.alive_from || self.aborted.contains(&checkpoint)
    }

    /// Starts to align a checkpoint whose first marker came from `channel`.
    fn begin(&mut self, channel: usize, barrier: Barrier, actions: &mut Vec<Action>) {
        debug_assert!(self.channels.iter().all(|channel| !channel.marked), "the alignment before was not cleared");
        // Channels keep their order: with this marker here, nothing older can be aligned any more.
        self.bury_below(barrier.checkpoint);
        self.triggers.retain(|trigger| trigger.checkpoint != barrier.checkpoint);
        self.pending = Some(Pending { barrier, missing: self.open });
        self.mark(channel, actions);
    }

    fn mark(&mut self, channel: usize, actions: &mut Vec<Action>) {
        let is_last = self.pending.is_some_and(|pending| pending.missing == 1);
        let blocked = self.mode == Mode::ExactlyOnce && !is_last;
        if blocked {
            actions.push(Action::Block(channel));
        }
        self.channels[channel].marked = true;
        self.channels[channel].blocked = blocked;
        self.arrived(actions);
    }

    /// One of the missing channels has reached its marker or its end.
    fn arrived(&mut self, actions: &mut Vec<Action>) {
        let Some(pending) = &mut self.pending else { return };
        debug_assert!(pending.missing > 0);
        pending.missing -= 1;
        let Pending { barrier, missing } = *pending;
        if missing == 0 {
            debug_assert!(self.channels.iter().all(|channel| channel.marked || channel.ended), "a channel was counted twice");
            self.snapshot(barrier, actions);
        }
    }

    fn snapshot(&mut self, barrier: Barrier, actions: &mut Vec<Action>) {
        debug_assert!(barrier.checkpoint >= self.alive_from, "snapshots go up");
        actions.push(Action::Snapshot(barrier));
        self.open_all(actions);
        self.bury_through(barrier.checkpoint);
    }

    /// Ends the pending alignment, if there is one, and opens the channels that it blocked.
    fn open_all(&mut self, actions: &mut Vec<Action>) {
        if self.pending.take().is_none() {
            return;
        }
        for (index, channel) in self.channels.iter_mut().enumerate() {
            channel.marked = false;
            if std::mem::take(&mut channel.blocked) {
                actions.push(Action::Unblock(index));
            }
        }
    }

    fn bury_through(&mut self, checkpoint: CheckpointId) {
        self.bury_below(CheckpointId(checkpoint.0.saturating_add(1)));
    }

    fn bury_below(&mut self, checkpoint: CheckpointId) {
        self.alive_from = self.alive_from.max(checkpoint);
        self.aborted = self.aborted.split_off(&self.alive_from);
        self.triggers.retain(|trigger| trigger.checkpoint >= self.alive_from);
    }
}

#[cfg(test)]
mod tests;
