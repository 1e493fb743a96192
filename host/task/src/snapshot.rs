//! The snapshot that a task takes at a barrier: state and rows in flight are captured, and what is captured goes to the worker.
//!
//! Instances are captured from the barrier on, each before its next call, so what was worked off before the barrier is in an
//! instance's state and what was not is captured as rows in flight, in the same moment. The snapshot ends when all instances are
//! captured and, of an unaligned one, all rows have come that were before its markers.
//!
//! Owns how far the snapshot is. The task hands it the chain and the way to the worker for each step.

use std::time::Duration;

use weir_model::{Barrier, CheckpointId, OperatorUid, TaskId};

use crate::TaskError;
use crate::chain::Chain;
use crate::clock::Clock;
use crate::operator::Operator;
use crate::report::{InFlight, Outlet, SinkPrepare, SnapshotPart, TaskState};
use crate::stats::TaskStats;

/// Longest time a background capture step may take before the loop looks at its input again.
const CAPTURE_SLICE: Duration = Duration::from_millis(1);

/// The snapshots of a task, one at a time.
#[derive(Debug)]
pub(crate) struct Snapshots {
    task: TaskId,
    current: Option<Snapshot>,
}

/// A snapshot that is being taken.
#[derive(Clone, Copy, Debug)]
struct Snapshot {
    checkpoint: CheckpointId,
    /// Some instance is not captured.
    instances_left: bool,
    /// Rows that belong to it may still come.
    rows_left: bool,
}

impl Snapshots {
    pub(crate) fn new(task: TaskId) -> Snapshots {
        Snapshots { task, current: None }
    }

    /// Completes the snapshot of an earlier checkpoint, where more than one is pending.
    pub(crate) fn complete_earlier(
        &mut self,
        checkpoint: CheckpointId,
        chain: &mut Chain,
        outlet: &mut dyn Outlet,
    ) -> Result<(), TaskError> {
        while self.current.is_some_and(|earlier| earlier.checkpoint != checkpoint && earlier.instances_left) {
            self.capture_step(chain, outlet)?;
        }
        debug_assert!(self.current.is_none(), "an unaligned checkpoint was not given up for a newer one");
        Ok(())
    }

    /// Begins: the task's own state, what its sinks have yet to make durable, and rows that were read and not worked off.
    pub(crate) fn begin(
        &mut self,
        barrier: Barrier,
        state: TaskState,
        prepare: Vec<(OperatorUid, SinkPrepare)>,
        pieces: Vec<InFlight>,
        outlet: &mut dyn Outlet,
    ) {
        let checkpoint = barrier.checkpoint;
        self.current = Some(Snapshot { checkpoint, instances_left: true, rows_left: barrier.unaligned });
        outlet.snapshot(self.task, SnapshotPart::Begin { checkpoint, state, prepare });
        self.in_flight(checkpoint, pieces, outlet);
    }

    fn in_flight(&self, checkpoint: CheckpointId, pieces: Vec<InFlight>, outlet: &mut dyn Outlet) {
        if !pieces.is_empty() {
            outlet.snapshot(self.task, SnapshotPart::InFlight { checkpoint, pieces });
        }
    }

    /// All rows have come that were before the markers of an unaligned checkpoint: these.
    pub(crate) fn rows_captured(
        &mut self,
        checkpoint: CheckpointId,
        pieces: Vec<InFlight>,
        chain: &mut Chain,
        outlet: &mut dyn Outlet,
    ) {
        self.in_flight(checkpoint, pieces, outlet);
        if let Some(snapshot) = self.current.as_mut().filter(|snapshot| snapshot.checkpoint == checkpoint) {
            snapshot.rows_left = false;
        }
        self.end_if_done(chain, outlet);
    }

    /// Captures instances in the background: for a slice of time, less if persisting cannot keep up, one at least where
    /// `idle`. Returns whether there was anything to do.
    pub(crate) fn capture_some(
        &mut self,
        idle: bool,
        chain: &mut Chain,
        outlet: &mut dyn Outlet,
        clock: &dyn Clock,
        stats: &TaskStats,
    ) -> Result<bool, TaskError> {
        if !self.has_instances_left() {
            return Ok(false);
        }
        if outlet.is_congested() && !idle {
            return Ok(false);
        }
        let started = clock.now();
        loop {
            self.capture_step(chain, outlet)?;
            let took = clock.now().saturating_sub(started);
            if !self.has_instances_left() || took >= CAPTURE_SLICE {
                stats.pauses.record(took);
                return Ok(true);
            }
        }
    }

    fn has_instances_left(&self) -> bool {
        self.current.is_some_and(|snapshot| snapshot.instances_left)
    }

    /// Captures one more instance, hands over what was captured, and ends the snapshot when all is.
    fn capture_step(&mut self, chain: &mut Chain, outlet: &mut dyn Outlet) -> Result<(), TaskError> {
        let Some(snapshot) = &mut self.current else { return Ok(()) };
        let mut all = true;
        let mut worked = false;
        for operator in chain.operators() {
            if !worked {
                worked = operator.capture_next()?;
            }
            all &= operator.is_captured();
            hand_over(operator, snapshot.checkpoint, self.task, outlet);
        }
        snapshot.instances_left = !all;
        self.end_if_done(chain, outlet);
        Ok(())
    }

    /// Ends the snapshot once nothing more belongs to it.
    fn end_if_done(&mut self, chain: &mut Chain, outlet: &mut dyn Outlet) {
        let Some(snapshot) = self.current.filter(|snapshot| !snapshot.instances_left && !snapshot.rows_left) else { return };
        chain.operators().for_each(Operator::end_capture);
        self.current = None;
        outlet.snapshot(self.task, SnapshotPart::End { checkpoint: snapshot.checkpoint });
    }

    /// A checkpoint is dead. Gives whether its snapshot was being taken, so that what channels capture for it is to be dropped.
    pub(crate) fn abandon(&mut self, checkpoint: CheckpointId, chain: &mut Chain, outlet: &mut dyn Outlet) -> bool {
        let is_current = self.current.is_some_and(|snapshot| snapshot.checkpoint == checkpoint);
        if is_current {
            chain.operators().for_each(Operator::end_capture);
            self.current = None;
        }
        outlet.snapshot(self.task, SnapshotPart::Abandon { checkpoint });
        is_current
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
