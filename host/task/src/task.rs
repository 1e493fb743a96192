//! The loop that one thread runs: input -> chain -> routers, with barriers handled between guest calls. What a gate gives is
//! worked off in `work.rs`.
//!
//! A task owns everything it runs. It hears from its worker through its mailbox and answers through its outlet; it never
//! waits for either.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use weir_channel::{Frame, Watermarks};
use weir_checkpoint::align::{Action, Aligner, Event};
use weir_model::{Barrier, BarrierKind, CheckpointId, OperatorUid, TaskId, WATERMARK_END};

use crate::TaskError;
use crate::chain::{Chain, Target};
use crate::gate::Gate;
use crate::report::{Control, Outlet, Report, SnapshotPart, TaskState};
use crate::signal::Signal;
use crate::source::{Read, SourceHead};
use crate::stats::TaskStats;
use crate::work::Work;

/// What a task starts with.
pub(crate) enum Head {
    Source(Box<SourceHead>),
    /// Channels, with the input of the chain's first node that each belongs to.
    Gate {
        gate: Gate,
        inputs: Vec<u32>,
        watermarks: Watermarks,
        /// Whether all channels idle, as it was told downstream.
        idle: bool,
    },
}

/// A task, ready to run.
pub struct Task {
    pub(crate) id: TaskId,
    pub(crate) name: String,
    pub(crate) head: Head,
    pub(crate) chain: Chain,
    pub(crate) aligner: Aligner,
    pub(crate) mailbox: Receiver<Control>,
    pub(crate) signal: Arc<Signal>,
    pub(crate) outlet: Box<dyn Outlet>,
    pub(crate) stats: Arc<TaskStats>,
    pub(crate) run: Run,
}

/// Where a task is in its life.
#[derive(Debug, Default)]
pub(crate) struct Run {
    /// The snapshot whose instances are being captured.
    pub(crate) snapshot: Option<CheckpointId>,
    /// All inputs have ended.
    pub(crate) finished: bool,
    /// A stop barrier has passed: sources give nothing more.
    pub(crate) stopped: bool,
    pub(crate) actions: Vec<Action>,
    /// What was read from a channel and is not worked off. Nothing more is read before it is.
    pub(crate) work: VecDeque<Work>,
}

/// Whether the loop goes on.
enum Flow {
    Go,
    Cancelled,
}

/// Longest time a background capture step may take before the loop looks at its input again.
const CAPTURE_SLICE: Duration = Duration::from_millis(1);

impl Task {
    /// The task's number.
    pub fn id(&self) -> TaskId {
        self.id
    }

    /// Name of its thread: the uids of its chain and its index.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs until cancelled or failed. Reports a failure through the outlet before it returns.
    pub fn run(mut self) {
        if let Err(error) = self.work() {
            self.outlet.report(self.id, Report::Failed(error));
        }
    }

    fn work(&mut self) -> Result<(), TaskError> {
        loop {
            let started = Instant::now();
            if let Flow::Cancelled = self.hear()? {
                return Ok(());
            }
            if !self.chain.drain() {
                // No guest frame is on the stack here, so a barrier can be handled while waiting for room.
                if !self.capture_some(true)? {
                    self.signal.wait(None);
                    self.stats.add_backpressured(started.elapsed());
                }
                continue;
            }
            let wait = self.step()?;
            if let Some(timeout) = wait {
                self.chain.flush();
                if self.chain.is_drained() && !self.capture_some(true)? {
                    self.stats.add_busy(started.elapsed());
                    self.signal.wait(timeout);
                }
                continue;
            }
            self.capture_some(false)?;
            self.stats.add_busy(started.elapsed());
        }
    }

    /// Handles what the worker has said.
    fn hear(&mut self) -> Result<Flow, TaskError> {
        loop {
            match self.mailbox.try_recv() {
                Ok(Control::Trigger(barrier)) => self.align(Event::Trigger(barrier))?,
                Ok(Control::Abort(checkpoint)) => {
                    self.align(Event::Abort(checkpoint))?;
                    self.abandon(checkpoint);
                }
                Ok(Control::Completed { checkpoint, commit }) => self.completed(checkpoint, commit)?,
                Ok(Control::Cancel) | Err(TryRecvError::Disconnected) => return Ok(Flow::Cancelled),
                Err(TryRecvError::Empty) => return Ok(Flow::Go),
            }
        }
    }

    /// Does a piece of work. Returns how long to wait where there is none: for ever, or for a time.
    fn step(&mut self) -> Result<Option<Option<Duration>>, TaskError> {
        match &mut self.head {
            Head::Source(source) => {
                if self.run.finished || self.run.stopped {
                    return Ok(Some(None));
                }
                match source.read(&mut self.chain)? {
                    Read::Rows => Ok(None),
                    Read::Nothing { retry_in } => Ok(Some(Some(retry_in))),
                    Read::Ended => {
                        self.finish_source()?;
                        Ok(None)
                    }
                }
                .inspect(|_| {
                    if let Head::Source(source) = &self.head
                        && !self.run.finished
                    {
                        self.stats.set_watermark(source.watermark());
                    }
                })
            }
            Head::Gate { gate, .. } => {
                if self.run.work.is_empty() {
                    let Some((channel, frame)) = gate.poll() else { return Ok(Some(None)) };
                    self.receive(channel, frame)?;
                }
                self.work_off()?;
                Ok(None)
            }
        }
    }

    /// Everything a source will ever give has been worked off.
    fn finish_source(&mut self) -> Result<(), TaskError> {
        let Head::Source(source) = &self.head else { unreachable!("gates finish step by step") };
        for target in source.targets().to_vec() {
            self.chain.advance_target(target, WATERMARK_END)?;
            self.chain.finish_target(target)?;
        }
        self.finished();
        Ok(())
    }

    pub(crate) fn finished(&mut self) {
        debug_assert!(!self.run.finished, "a task finishes once");
        self.stats.set_watermark(WATERMARK_END);
        self.run.finished = true;
        self.outlet.report(self.id, Report::Finished);
    }

    pub(crate) fn align(&mut self, event: Event) -> Result<(), TaskError> {
        let mut actions = std::mem::take(&mut self.run.actions);
        self.aligner.handle(event, &mut actions);
        for action in actions.drain(..) {
            match action {
                Action::Block(channel) => self.set_blocked(channel, true),
                Action::Unblock(channel) => self.set_blocked(channel, false),
                Action::Snapshot(barrier) => self.snapshot(barrier)?,
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

    /// Steps 2 and 3 of a barrier: push what is unsent and the marker, then take the snapshot. Instances are captured from
    /// here on, each before its next call.
    fn snapshot(&mut self, barrier: Barrier) -> Result<(), TaskError> {
        let started = Instant::now();
        let checkpoint = barrier.checkpoint;
        while self.run.snapshot.is_some_and(|earlier| earlier != checkpoint) {
            // More than one checkpoint is pending: the earlier snapshot is completed first.
            self.capture_step()?;
        }
        if !self.run.finished {
            // Nothing follows the end of a channel; there it counts as the marker.
            self.chain.send_barrier(&Frame::Barrier(barrier));
        }
        let prepare = self.chain.begin_snapshot(checkpoint)?;
        let mut state = TaskState { finished: self.run.finished, ..TaskState::default() };
        match &mut self.head {
            Head::Source(source) => state.source = Some(source.state()),
            Head::Gate { watermarks, .. } => state.watermarks = watermarks.channels(),
        }
        self.run.snapshot = Some(checkpoint);
        self.run.stopped |= barrier.kind == BarrierKind::Stop;
        self.outlet.snapshot(self.id, SnapshotPart::Begin { checkpoint, state, prepare });
        self.stats.pauses.record(started.elapsed());
        Ok(())
    }

    /// Captures instances in the background: for a slice of time, less if persisting cannot keep up, one at least where
    /// `idle`. Returns whether there was anything to do.
    fn capture_some(&mut self, idle: bool) -> Result<bool, TaskError> {
        if self.run.snapshot.is_none() {
            return Ok(false);
        }
        if self.outlet.is_congested() && !idle {
            return Ok(false);
        }
        let started = Instant::now();
        while self.run.snapshot.is_some() && started.elapsed() < CAPTURE_SLICE {
            self.capture_step()?;
        }
        self.stats.pauses.record(started.elapsed());
        Ok(true)
    }

    /// Captures one more instance, hands over what was captured, and ends the snapshot when all is.
    fn capture_step(&mut self) -> Result<(), TaskError> {
        let Some(checkpoint) = self.run.snapshot else { return Ok(()) };
        let mut all = true;
        let mut worked = false;
        for operator in self.chain.operators() {
            if !worked {
                worked = operator.capture_next()?;
            }
            all &= operator.is_captured();
            hand_over(operator, checkpoint, self.id, &mut *self.outlet);
        }
        if all {
            self.chain.operators().for_each(|operator| operator.end_capture());
            self.run.snapshot = None;
            self.outlet.snapshot(self.id, SnapshotPart::End { checkpoint });
        }
        Ok(())
    }

    fn abandon(&mut self, checkpoint: CheckpointId) {
        if self.run.snapshot == Some(checkpoint) {
            self.chain.operators().for_each(|operator| operator.end_capture());
            self.run.snapshot = None;
        }
        self.outlet.snapshot(self.id, SnapshotPart::Abandon { checkpoint });
    }

    /// A checkpoint is complete: its pages are safe, and sinks may show what belongs to it.
    fn completed(
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

fn hand_over(operator: &mut crate::operator::Operator, checkpoint: CheckpointId, task: TaskId, outlet: &mut dyn Outlet) {
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

/// Where the rows of a source go first.
pub(crate) type Targets = Vec<Target>;
