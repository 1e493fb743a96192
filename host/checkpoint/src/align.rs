//! Barriers in the input channels of one task: when to block a channel, when to snapshot, and which rows are in flight.
//!
//! Owns which checkpoint is being taken, which channels wait for it and which ids are dead. Never touches rows: the task
//! reads channels that are not blocked, in order, and tells each marker and each end that it reads, and each that has come
//! into a channel or is announced.
//!
//! What holds at each [`Action::Snapshot`], so that the checkpoint is a consistent cut: every row before the marker of its
//! channel was either read, or is in a channel that an [`Action::Capture`] names, and no row behind a marker was read. A channel
//! that ended has its marker behind its last row. Of an aligned checkpoint all those rows were read; in mode
//! [`Mode::AtLeastOnce`] more may have been. At most one snapshot is asked for per id, and ids only grow.
//!
//! A checkpoint is aligned unless its barrier says otherwise or the coordinator does later ([`Event::Unalign`]). Of an aligned
//! one, a channel whose marker was read is blocked until all are. An unaligned one is taken as soon as any of its markers has
//! come, wherever it waits: what is before markers is captured, and nothing is blocked. The captured part is complete when
//! every marker has come ([`Action::CaptureDone`]); reading up to them is no part of it.
//!
//! Ids grow on a channel. So a channel that brings a newer marker first will never bring the older one: that checkpoint cannot be
//! completed here any more.
//!
//! Two ways lead to a snapshot: the markers in the channels, and, for a task that has no open channel (a source, or one that
//! has read all its input), the coordinator's trigger. Since nobody sends a marker behind an end, a task whose channels
//! end before the marker would wait for ever: that is why every task is told every trigger, and remembers it until its
//! channels have answered.

mod words;

use std::collections::{BTreeSet, VecDeque};

use weir_model::{Attempt, Barrier, BarrierKind, CheckpointId};

pub use words::{Action, DeclineReason, Event, Mode};

/// Aborted ids remembered at most. Beyond it the oldest ones, and every id below them, count as dead.
const ABORTED_MAX: usize = 1_024;

#[derive(Clone, Debug, Default)]
struct Channel {
    /// Its end was read.
    ended: bool,
    /// Its end waits in it, or was read.
    end_has_come: bool,
    /// Markers of live checkpoints that wait in it, in order.
    waiting: VecDeque<Barrier>,
    /// The newest marker that has come.
    newest: Option<CheckpointId>,
    /// The pending checkpoint needs nothing more from it: its marker was read or, while rows are captured, has come.
    marked: bool,
    blocked: bool,
}

impl Channel {
    fn waiting(&self, checkpoint: CheckpointId) -> Option<Barrier> {
        self.waiting.iter().find(|barrier| barrier.checkpoint == checkpoint).copied()
    }
}

/// What a pending checkpoint waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Markers that are to be read before the snapshot is taken.
    Aligning,
    /// Markers that are to come, up to which rows are captured; the snapshot was taken.
    Capturing,
}

#[derive(Clone, Copy, Debug)]
struct PendingBarrier {
    barrier: Barrier,
    phase: Phase,
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
    pending: Option<PendingBarrier>,
    /// Every smaller id is dead: snapshotted, aborted or overtaken.
    alive_from: CheckpointId,
    /// Aborted ids from `alive_from` on.
    aborted: BTreeSet<CheckpointId>,
    /// Triggers that the channels have not answered yet, alive, in order of their ids.
    triggers: Vec<Barrier>,
    /// The newest checkpoint that the coordinator has let go on unaligned.
    unaligned: Option<CheckpointId>,
    /// The barrier of the last snapshot, as it was sent on.
    taken: Option<Barrier>,
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
            unaligned: None,
            taken: None,
        }
    }

    /// Takes an event in and appends what is to be done to `actions`. What is told of a channel must be told in its order, but that
    /// something has come may be left out where it was read already.
    ///
    /// # Panics
    /// If the channel does not exist.
    pub fn handle(&mut self, event: Event, actions: &mut Vec<Action>) {
        match event {
            Event::Barrier { channel, barrier } => self.on_barrier(channel, barrier, actions),
            Event::Arrived { channel, barrier } => self.on_arrived(channel, barrier, actions),
            Event::Announced { barrier, .. } => {
                if let Some(barrier) = self.alive(Barrier { unaligned: true, ..barrier }) {
                    self.overtake_if_unaligned(barrier, actions);
                }
            }
            Event::Trigger(barrier) => self.on_trigger(barrier, actions),
            Event::Unalign(checkpoint) => self.on_unalign(checkpoint, actions),
            Event::Abort(checkpoint) => self.on_abort(checkpoint, actions),
            Event::End { channel } => self.on_end(channel, actions),
            Event::EndArrived { channel } => {
                self.channels[channel].end_has_come = true;
                self.has_come(channel, actions);
            }
        }
        self.answer_triggers(actions);
        debug_assert!(self.pending.is_none_or(|pending| pending.missing > 0), "a checkpoint that waits for nothing");
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
        self.see(channel, barrier, actions);
        if let Some(barrier) = self.alive(barrier) {
            self.on_live_barrier(channel, barrier, actions);
        }
        if barrier.attempt == self.attempt {
            self.channels[channel].waiting.retain(|waiting| waiting.checkpoint > barrier.checkpoint);
        }
    }

    fn on_live_barrier(&mut self, channel: usize, barrier: Barrier, actions: &mut Vec<Action>) {
        if self.pending() != Some(barrier.checkpoint) {
            self.subsume(barrier.checkpoint, actions);
            self.begin(barrier, actions);
        }
        if self.pending.is_none() || self.channels[channel].marked {
            return;
        }
        if barrier.unaligned && self.phase() == Some(Phase::Aligning) {
            self.channels[channel].marked = true;
            self.overtake(barrier, actions);
        } else {
            self.mark(channel, actions);
        }
    }

    /// A marker has come into a channel. It matters now if it need not be read to count; else it is kept in mind.
    fn on_arrived(&mut self, channel: usize, barrier: Barrier, actions: &mut Vec<Action>) {
        self.see(channel, barrier, actions);
        let Some(barrier) = self.alive(barrier) else { return };
        let checkpoint = barrier.checkpoint;
        if self.pending() == Some(checkpoint) && self.channels[channel].marked {
            return;
        }
        self.channels[channel].waiting.push_back(barrier);
        if self.overtake_if_unaligned(barrier, actions) {
            return;
        }
        if self.pending() == Some(checkpoint) {
            self.has_come(channel, actions);
        }
    }

    /// A marker is in a channel or was read from it, whether it is of a live checkpoint or not: what pends and is older will not
    /// come there any more.
    fn see(&mut self, channel: usize, barrier: Barrier, actions: &mut Vec<Action>) {
        if barrier.attempt != self.attempt {
            return;
        }
        let newest = &mut self.channels[channel].newest;
        *newest = (*newest).max(Some(barrier.checkpoint));
        if self.pending().is_some_and(|pending| self.is_skipped(channel, pending)) {
            self.subsume(barrier.checkpoint, actions);
        }
    }

    fn on_trigger(&mut self, barrier: Barrier, actions: &mut Vec<Action>) {
        let Some(barrier) = self.alive(barrier) else { return };
        if self.open == 0 {
            self.snapshot_without_input(barrier, actions);
        } else if self.pending() != Some(barrier.checkpoint) {
            // The pending one is settled by its channels, whatever happens; only the others may need the trigger.
            let known = self.triggers.binary_search_by_key(&barrier.checkpoint, |trigger| trigger.checkpoint);
            if let Err(place) = known {
                self.triggers.insert(place, barrier);
            }
        }
    }

    fn on_unalign(&mut self, checkpoint: CheckpointId, actions: &mut Vec<Action>) {
        self.unaligned = self.unaligned.max(Some(checkpoint));
        if let Some(taken) = self.taken.filter(|taken| taken.checkpoint == checkpoint && !taken.unaligned)
            && let announced @ Barrier { unaligned: true, .. } = self.as_unaligned(taken)
        {
            self.taken = Some(announced);
            actions.push(Action::Announce(announced));
        }
        let aligning = self.pending.map(|pending| pending.barrier).filter(|barrier| barrier.checkpoint == checkpoint);
        let known = aligning.or_else(|| self.channels.iter().find_map(|channel| channel.waiting(checkpoint)));
        if let Some(barrier) = known.and_then(|barrier| self.alive(barrier)) {
            self.overtake_if_unaligned(barrier, actions);
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
        self.channels.iter_mut().for_each(|channel| channel.waiting.retain(|waiting| waiting.checkpoint != checkpoint));
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
        if self.channels[channel].ended {
            return;
        }
        if self.pending.is_some() && !self.channels[channel].marked {
            self.mark_without_blocking(channel, actions);
        }
        let of = &mut self.channels[channel];
        (of.ended, of.end_has_come) = (true, true);
        of.waiting.clear();
        self.open -= 1;
        if self.open == 0 {
            debug_assert!(self.pending.is_none(), "no channel is left that could bring a marker");
            // All of them are at the same cut, the end of all input.
            for barrier in std::mem::take(&mut self.triggers) {
                self.snapshot_without_input(barrier, actions);
            }
        }
    }

    /// Where every end has come, and no marker will, an unaligned checkpoint need not wait until the ends are read.
    fn answer_triggers(&mut self, actions: &mut Vec<Action>) {
        if self.triggers.is_empty() || self.pending.is_some() || !self.channels.iter().all(|channel| channel.end_has_come) {
            return;
        }
        let triggers: Vec<Barrier> = self.triggers.iter().filter_map(|trigger| self.alive(*trigger)).collect();
        for barrier in triggers.into_iter().filter(|barrier| barrier.unaligned) {
            if !self.is_dead(barrier.checkpoint) {
                self.overtake(barrier, actions);
            }
        }
    }

    /// The barrier as it is to be acted on, if it is of this attempt and not of a dead id.
    fn alive(&self, barrier: Barrier) -> Option<Barrier> {
        let is_alive = barrier.attempt == self.attempt && !self.is_dead(barrier.checkpoint);
        let unaligned = barrier.unaligned || self.unaligned == Some(barrier.checkpoint);
        is_alive.then(|| if unaligned { self.as_unaligned(barrier) } else { barrier })
    }

    /// The barrier, made unaligned if it may be.
    fn as_unaligned(&self, barrier: Barrier) -> Barrier {
        let may = match barrier.kind {
            BarrierKind::Checkpoint | BarrierKind::Stop => self.mode == Mode::ExactlyOnce,
        };
        Barrier { unaligned: may, ..barrier }
    }

    fn is_dead(&self, checkpoint: CheckpointId) -> bool {
        checkpoint < self.alive_from || self.aborted.contains(&checkpoint)
    }

    fn phase(&self) -> Option<Phase> {
        self.pending.map(|pending| pending.phase)
    }

    /// Whether the marker of a checkpoint will never come on a channel that has brought a newer one.
    fn is_skipped(&self, channel: usize, checkpoint: CheckpointId) -> bool {
        let of = &self.channels[channel];
        !of.marked && of.newest > Some(checkpoint) && of.waiting(checkpoint).is_none()
    }

    /// Starts to align a checkpoint, unless it cannot be completed. Its first marker is about to be marked.
    fn begin(&mut self, barrier: Barrier, actions: &mut Vec<Action>) {
        debug_assert!(self.channels.iter().all(|channel| !channel.marked), "the checkpoint before was not cleared");
        // Channels keep their order: with this marker here, nothing older can be taken any more.
        self.bury_below(barrier.checkpoint);
        self.triggers.retain(|trigger| trigger.checkpoint != barrier.checkpoint);
        if !self.give_up_if_skipped(barrier.checkpoint, actions) {
            self.pending = Some(PendingBarrier { barrier, phase: Phase::Aligning, missing: self.open });
        }
    }

    /// Takes the snapshot of an unaligned barrier that has come or is announced somewhere, unless it was taken. Gives whether the
    /// barrier is unaligned and the checkpoint was not being captured already.
    fn overtake_if_unaligned(&mut self, barrier: Barrier, actions: &mut Vec<Action>) -> bool {
        if !barrier.unaligned {
            return false;
        }
        if self.pending() != Some(barrier.checkpoint) {
            self.subsume(barrier.checkpoint, actions);
        } else if self.phase() == Some(Phase::Capturing) {
            return false;
        }
        self.overtake(barrier, actions);
        true
    }

    /// Takes the snapshot of an unaligned barrier now. Marked channels are those whose marker was read.
    fn overtake(&mut self, barrier: Barrier, actions: &mut Vec<Action>) {
        let checkpoint = barrier.checkpoint;
        if self.give_up_if_skipped(checkpoint, actions) {
            return;
        }
        // What waits behind rows that were overtaken is overtaken as well.
        let waiting = self.channels.iter().flat_map(|channel| &channel.waiting).chain(&self.triggers);
        let older: BTreeSet<CheckpointId> = waiting.map(|barrier| barrier.checkpoint).filter(|id| *id < checkpoint).collect();
        let decline = |older| Action::Decline { checkpoint: older, reason: DeclineReason::Subsumed { by: checkpoint } };
        actions.extend(older.into_iter().map(decline));
        self.bury_below(checkpoint);
        self.triggers.retain(|trigger| trigger.checkpoint != checkpoint);
        self.say_snapshot(barrier, actions);
        let mut missing = 0;
        for (index, channel) in self.channels.iter_mut().enumerate() {
            if std::mem::take(&mut channel.blocked) {
                actions.push(Action::Unblock(index));
            }
            if !channel.ended && !channel.marked {
                actions.push(Action::Capture { channel: index, barrier });
                channel.marked = channel.end_has_come || channel.waiting(checkpoint).is_some();
                missing += usize::from(!channel.marked);
            }
        }
        self.pending = Some(PendingBarrier { barrier, phase: Phase::Capturing, missing });
        if missing == 0 {
            self.settle(actions);
        }
    }

    /// The marker or the end of a channel has come. While rows are captured, that is all that matters.
    fn has_come(&mut self, channel: usize, actions: &mut Vec<Action>) {
        if self.phase() == Some(Phase::Capturing) && !self.channels[channel].marked && !self.channels[channel].ended {
            self.mark_without_blocking(channel, actions);
        }
    }

    fn mark(&mut self, channel: usize, actions: &mut Vec<Action>) {
        let must_wait = self.pending.is_some_and(|pending| pending.phase == Phase::Aligning && pending.missing > 1);
        if self.mode == Mode::ExactlyOnce && must_wait {
            actions.push(Action::Block(channel));
            self.channels[channel].blocked = true;
        }
        self.mark_without_blocking(channel, actions);
    }

    fn mark_without_blocking(&mut self, channel: usize, actions: &mut Vec<Action>) {
        let Some(pending) = &mut self.pending else { return };
        debug_assert!(pending.missing > 0 && !self.channels[channel].marked, "channel {channel} was counted twice");
        pending.missing -= 1;
        self.channels[channel].marked = true;
        if pending.missing == 0 {
            debug_assert!(self.channels.iter().all(|channel| channel.marked || channel.ended), "a channel was counted twice");
            self.settle(actions);
        }
    }

    /// Nothing more is waited for.
    fn settle(&mut self, actions: &mut Vec<Action>) {
        let Some(PendingBarrier { barrier, phase, .. }) = self.pending else { return };
        match phase {
            Phase::Aligning => self.say_snapshot(barrier, actions),
            Phase::Capturing => actions.push(Action::CaptureDone(barrier.checkpoint)),
        }
        self.open_all(actions);
        self.bury_through(barrier.checkpoint);
    }

    fn snapshot_without_input(&mut self, barrier: Barrier, actions: &mut Vec<Action>) {
        let Some(barrier) = self.alive(barrier) else { return };
        if self.give_up_if_skipped(barrier.checkpoint, actions) {
            return;
        }
        self.say_snapshot(barrier, actions);
        if barrier.unaligned {
            actions.push(Action::CaptureDone(barrier.checkpoint));
        }
        self.bury_through(barrier.checkpoint);
    }

    fn say_snapshot(&mut self, barrier: Barrier, actions: &mut Vec<Action>) {
        debug_assert!(barrier.checkpoint >= self.alive_from, "snapshots go up");
        self.taken = Some(barrier);
        actions.push(Action::Snapshot(barrier));
    }

    /// Gives a checkpoint up that some channel will not bring any more.
    fn give_up_if_skipped(&mut self, checkpoint: CheckpointId, actions: &mut Vec<Action>) -> bool {
        let skipped = (0..self.channels.len()).find(|channel| self.is_skipped(*channel, checkpoint));
        if let Some(by) = skipped.and_then(|channel| self.channels[channel].newest) {
            self.give_up(checkpoint, by, actions);
        }
        skipped.is_some()
    }

    /// Gives the pending checkpoint up for a newer one.
    fn subsume(&mut self, by: CheckpointId, actions: &mut Vec<Action>) {
        if let Some(checkpoint) = self.pending() {
            self.give_up(checkpoint, by, actions);
        }
    }

    /// Declines a checkpoint, whether it pends or not, since a newer one has come. No other pends.
    fn give_up(&mut self, checkpoint: CheckpointId, by: CheckpointId, actions: &mut Vec<Action>) {
        actions.push(Action::Decline { checkpoint, reason: DeclineReason::Subsumed { by } });
        self.open_all(actions);
        self.bury_through(checkpoint);
    }

    /// Ends the pending checkpoint, if there is one, and opens the channels that it blocked.
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
        let alive_from = self.alive_from.max(checkpoint);
        self.alive_from = alive_from;
        self.aborted = self.aborted.split_off(&alive_from);
        self.triggers.retain(|trigger| trigger.checkpoint >= alive_from);
        self.channels.iter_mut().for_each(|channel| channel.waiting.retain(|waiting| waiting.checkpoint >= alive_from));
    }
}

#[cfg(test)]
mod tests;
