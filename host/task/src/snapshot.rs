//! What becomes of a barrier in a task: the marker goes out, state and rows in flight are captured, and what is captured goes to
//! the worker.
//!
//! Instances are captured from the barrier on, each before its next call, so what was worked off before the barrier is in an
//! instance's state and what was not is captured as rows in flight, in the same moment. The snapshot ends when all instances are
//! captured and, of an unaligned one, all rows have come that were before its markers.

use std::collections::BTreeMap;
use std::time::Duration;

use weir_checkpoint::align::{Action, Event};
use weir_model::{Barrier, BarrierKind, CheckpointId, OperatorUid, TaskId};

use crate::TaskError;
use crate::operator::Operator;
use crate::report::{InFlight, InFlightSource, Outlet, Report, SnapshotPart, TaskState};
use crate::task::{Head, Task};

/// Longest time a background capture step may take before the loop looks at its input again.
const CAPTURE_SLICE: Duration = Duration::from_millis(1);

/// A snapshot that is being taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Snapshot {
    checkpoint: CheckpointId,
    /// Some instance is not captured.
    instances_left: bool,
    /// Rows that belong to it may still come.
    rows_left: bool,
}

impl Task {
    pub(crate) fn align(&mut self, event: Event) -> Result<(), TaskError> {
        let mut actions = std::mem::take(&mut self.run.actions);
        self.aligner.handle(event, &mut actions);
        for action in actions.drain(..) {
            match action {
                Action::Block(channel) => self.set_blocked(channel, true),
                Action::Unblock(channel) => self.set_blocked(channel, false),
                Action::Snapshot(barrier) => self.snapshot(barrier)?,
                Action::Capture { channel, barrier } => self.capture_channel(channel, barrier),
                Action::CaptureDone(checkpoint) => self.captured(checkpoint),
                Action::Announce(barrier) => self.chain.announce(barrier),
                Action::Decline { checkpoint, reason } => {
                    self.abandon(checkpoint);
                    self.outlet.report(self.id, Report::Declined { checkpoint, reason });
                }
                Action::Aborted(checkpoint) => self.abandon(checkpoint),
            }
        }
        self.run.actions = actions;
        Ok(())
    }

    fn set_blocked(&mut self, channel: usize, blocked: bool) {
        if let Head::Gate { gate, .. } = &mut self.head {
            gate.set_blocked(channel, blocked);
        }
    }

    /// Steps 2 and 3 of a barrier: push what is unsent and the marker, then take the snapshot.
    fn snapshot(&mut self, barrier: Barrier) -> Result<(), TaskError> {
        let started = self.clock.now();
        let checkpoint = barrier.checkpoint;
        while self.run.snapshot.is_some_and(|earlier| earlier.checkpoint != checkpoint && earlier.instances_left) {
            // More than one checkpoint is pending: the earlier snapshot is completed first.
            self.capture_step()?;
        }
        debug_assert!(self.run.snapshot.is_none(), "an unaligned checkpoint was not given up for a newer one");
        if !self.run.finished {
            // Nothing follows the end of a channel; there it counts as the marker.
            self.chain.send_barrier(barrier);
        }
        let prepare = self.chain.begin_snapshot(checkpoint)?;
        let mut state = TaskState { finished: self.run.finished, ..TaskState::default() };
        match &mut self.head {
            Head::Source(source) => state.source = Some(source.state()),
            Head::Gate { watermarks, .. } => state.watermarks = watermarks.channels(),
        }
        self.run.snapshot = Some(Snapshot { checkpoint, instances_left: true, rows_left: barrier.unaligned });
        if barrier.kind == BarrierKind::Stop {
            (self.run.stopped, self.run.halted) = (true, Some(checkpoint));
        }
        self.outlet.snapshot(self.id, SnapshotPart::Begin { checkpoint, state, prepare });
        // What was taken from a channel, or comes from a restore, and is not worked off. Of an aligned checkpoint there is none.
        let pieces = self.work_in_flight();
        self.in_flight(checkpoint, pieces);
        self.stats.pauses.record(self.clock.now().saturating_sub(started));
        Ok(())
    }

    fn in_flight(&mut self, checkpoint: CheckpointId, pieces: Vec<InFlight>) {
        if !pieces.is_empty() {
            self.outlet.snapshot(self.id, SnapshotPart::InFlight { checkpoint, pieces });
        }
    }

    fn capture_channel(&mut self, channel: usize, barrier: Barrier) {
        if let Head::Gate { gate, .. } = &mut self.head {
            gate.capture(channel, barrier);
        }
    }

    /// All rows have come that were before the markers of an unaligned checkpoint.
    fn captured(&mut self, checkpoint: CheckpointId) {
        if let Head::Gate { gate, .. } = &mut self.head {
            let pieces = gate.take_captured().into_iter();
            let piece = |(channel, frames)| InFlight { source: InFlightSource::Channel(channel), groups: None, frames };
            let pieces = pieces.map(piece).collect();
            self.in_flight(checkpoint, pieces);
        }
        if let Some(snapshot) = self.run.snapshot.as_mut().filter(|snapshot| snapshot.checkpoint == checkpoint) {
            snapshot.rows_left = false;
        }
        self.end_snapshot();
    }

    /// Captures instances in the background: for a slice of time, less if persisting cannot keep up, one at least where
    /// `idle`. Returns whether there was anything to do.
    pub(crate) fn capture_some(&mut self, idle: bool) -> Result<bool, TaskError> {
        if !self.has_instances_left() {
            return Ok(false);
        }
        if self.outlet.is_congested() && !idle {
            return Ok(false);
        }
        let started = self.clock.now();
        loop {
            self.capture_step()?;
            let took = self.clock.now().saturating_sub(started);
            if !self.has_instances_left() || took >= CAPTURE_SLICE {
                self.stats.pauses.record(took);
                return Ok(true);
            }
        }
    }

    fn has_instances_left(&self) -> bool {
        self.run.snapshot.is_some_and(|snapshot| snapshot.instances_left)
    }

    /// Captures one more instance, hands over what was captured, and ends the snapshot when all is.
    fn capture_step(&mut self) -> Result<(), TaskError> {
        let Some(snapshot) = &mut self.run.snapshot else { return Ok(()) };
        let mut all = true;
        let mut worked = false;
        for operator in self.chain.operators() {
            if !worked {
                worked = operator.capture_next()?;
            }
            all &= operator.is_captured();
            hand_over(operator, snapshot.checkpoint, self.id, &mut *self.outlet);
        }
        snapshot.instances_left = !all;
        self.end_snapshot();
        Ok(())
    }

    /// Ends the snapshot once nothing more belongs to it.
    fn end_snapshot(&mut self) {
        let Some(snapshot) = self.run.snapshot.filter(|snapshot| !snapshot.instances_left && !snapshot.rows_left) else { return };
        self.chain.operators().for_each(Operator::end_capture);
        self.run.snapshot = None;
        self.outlet.snapshot(self.id, SnapshotPart::End { checkpoint: snapshot.checkpoint });
    }

    pub(crate) fn abandon(&mut self, checkpoint: CheckpointId) {
        if self.run.snapshot.is_some_and(|snapshot| snapshot.checkpoint == checkpoint) {
            self.chain.operators().for_each(Operator::end_capture);
            if let Head::Gate { gate, .. } = &mut self.head {
                drop(gate.take_captured());
            }
            self.run.snapshot = None;
        }
        self.outlet.snapshot(self.id, SnapshotPart::Abandon { checkpoint });
    }

    /// A checkpoint is complete: its pages are safe, and sinks may show what belongs to it.
    pub(crate) fn completed(
        &mut self,
        checkpoint: CheckpointId,
        commit: Vec<(OperatorUid, Vec<serde_json::Value>)>,
    ) -> Result<(), TaskError> {
        self.chain.operators().for_each(|operator| operator.checkpoint_completed(checkpoint));
        if let Head::Source(source) = &mut self.head {
            source.checkpoint_completed(checkpoint);
        }
        let mut commit: BTreeMap<OperatorUid, Vec<serde_json::Value>> = commit.into_iter().collect();
        for (uid, sink) in self.chain.sinks() {
            for committable in commit.remove(uid).unwrap_or_default() {
                sink.commit(&committable).map_err(TaskError::connector(uid))?;
            }
        }
        self.outlet.report(self.id, Report::Committed(checkpoint));
        Ok(())
    }
}

fn hand_over(operator: &mut Operator, checkpoint: CheckpointId, task: TaskId, outlet: &mut dyn Outlet) {
    if !operator.has_captured() {
        return;
    }
    let uid = operator.uid().clone();
    for captured in operator.take_captured() {
        let part = SnapshotPart::Instance {
            checkpoint,
            uid: uid.clone(),
            instance: captured.id,
            capture: captured.capture,
            watermark: captured.watermark,
            finished: captured.finished,
        };
        outlet.snapshot(task, part);
    }
}
