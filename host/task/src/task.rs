//! The loop that one thread runs: input -> chain -> routers, with barriers handled between guest calls. Alone knows all parts of a
//! task: what it starts with (`head.rs`), what is read and not done (`backlog.rs`), the chain, the snapshot that is taken.
//!
//! A task owns everything it runs. It hears from its worker through its mailbox and answers through its outlet; it never
//! waits for either.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration;

use weir_checkpoint::align::{Action, Aligner, Event};
use weir_model::{Barrier, BarrierKind, CheckpointId, TaskId, WATERMARK_END};

use crate::backlog::Step;
use crate::chain::Chain;
use crate::clock::Clock;
use crate::head::Head;
use crate::mailbox::{TaskHandle, mailbox};
use crate::node::Node;
use crate::operator::Meters;
use crate::report::{Control, Outlet, TaskReport, TaskState};
use crate::snapshot::Snapshots;
use crate::source::Read;
use crate::spec::TaskSpec;
use crate::stats::TaskStats;
use crate::{TaskError, build};

/// Time after which the rest of the backlog is left to the next round of the loop.
const ROUND_TARGET: Duration = Duration::from_millis(5);

/// A task, ready to run.
pub struct Task {
    id: TaskId,
    name: String,
    head: Head,
    chain: Chain,
    aligner: Aligner,
    mailbox: Receiver<Control>,
    outlet: Box<dyn Outlet>,
    stats: Arc<TaskStats>,
    clock: Arc<dyn Clock>,
    snapshots: Snapshots,
    run: Run,
}

/// Where a task is in its life.
#[derive(Debug, Default)]
struct Run {
    /// Its operators have been told what they go on from.
    begun: bool,
    /// All instances of the checkpoint are here.
    restored: bool,
    /// All inputs have ended.
    finished: bool,
    /// A stop barrier has passed: sources give nothing more.
    stopped: bool,
    /// The stop whose snapshot was taken: what is behind it is left for who goes on from there, and nothing more is worked off
    /// unless that stop is given up.
    halted: Option<CheckpointId>,
    /// Nothing happens any more.
    over: bool,
    /// Since when there is no room downstream.
    waiting_since: Option<Duration>,
    actions: Vec<Action>,
    arrivals: Vec<Event>,
}

/// What comes after a turn of a task's loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Another one.
    Go,
    /// Another one once the task is woken, or after this time.
    Wait(Option<Duration>),
    /// None: the task was cancelled, or has failed and said so.
    Over,
}

/// Whether the loop goes on.
enum Flow {
    Go,
    Cancelled,
}

impl Task {
    /// Makes the task. Instances and positions of a checkpoint are put in place; nothing runs yet.
    ///
    /// # Errors
    /// If an instance cannot be made, or a source cannot go on from its position.
    pub fn build(spec: TaskSpec) -> Result<(Task, TaskHandle), TaskError> {
        let meters = Meters { clock: spec.clock.clone(), stats: spec.stats.clone() };
        let nodes = spec.nodes.into_iter().map(|node| build::node(node, &meters)).collect::<Result<Vec<Node>, TaskError>>()?;
        let (head, channels) = build::head(spec.head, &spec.clock)?;
        let (handle, mailbox) = mailbox(spec.wake);
        let task = Task {
            id: spec.id,
            name: spec.name,
            head,
            chain: Chain::new(nodes, spec.routers, spec.clock.clone()),
            aligner: Aligner::new(spec.attempt, channels, spec.mode),
            mailbox,
            outlet: spec.outlet,
            stats: spec.stats,
            clock: spec.clock,
            snapshots: Snapshots::new(spec.id),
            run: Run::default(),
        };
        Ok((task, handle))
    }

    /// The task's number.
    pub fn id(&self) -> TaskId {
        self.id
    }

    /// Name of its thread: the uids of its chain and its index.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Makes one turn of the loop: hears, reads a piece of input, works on it for some milliseconds, captures what is due. Never
    /// waits: whoever runs it does, for the wake that it was made with. A failure is reported through the outlet.
    pub fn turn(&mut self) -> Turn {
        if self.run.over {
            return Turn::Over;
        }
        let turn = self.try_turn().unwrap_or_else(|error| {
            self.outlet.report(self.id, TaskReport::Failed(error));
            Turn::Over
        });
        self.run.over = turn == Turn::Over;
        turn
    }

    fn try_turn(&mut self) -> Result<Turn, TaskError> {
        let started = self.clock.now();
        if let Some(since) = self.run.waiting_since.take() {
            let waited = started.saturating_sub(since);
            self.stats.add_backpressured(waited);
            self.head.has_waited(waited);
        }
        let may_work = self.restore()?;
        if let Flow::Cancelled = self.hear()? {
            return Ok(Turn::Over);
        }
        if !may_work {
            return Ok(Turn::Wait(None));
        }
        if !self.chain.drain() {
            // No guest frame is on the stack here, so a barrier can be handled while waiting for room.
            if self.capture_some(true)? {
                return Ok(Turn::Go);
            }
            self.run.waiting_since = Some(started);
            return Ok(Turn::Wait(None));
        }
        let wait = self.step()?;
        debug_assert!(self.chain.holds_nothing(), "what was worked off is on its way at the end of a turn");
        let turn = match wait {
            Some(timeout) => {
                self.chain.flush();
                let idle = self.chain.is_drained() && !self.capture_some(true)?;
                if idle { Turn::Wait(timeout) } else { Turn::Go }
            }
            None => {
                self.capture_some(false)?;
                Turn::Go
            }
        };
        let now = self.clock.now();
        self.chain.flush_if_due(now);
        self.stats.add_busy(now.saturating_sub(started));
        Ok(turn)
    }

    /// Takes in instances that have come from the checkpoint. Says whether any work can be done: rows wait for instances of their
    /// own in the backlog.
    fn restore(&mut self) -> Result<bool, TaskError> {
        if self.run.restored {
            return Ok(true);
        }
        let all = self.chain.arrive();
        if !all && !self.chain.is_ready(self.head.first_needed()) {
            return Ok(false);
        }
        // Before a barrier is heard of, so that every checkpoint has them as they go on: none begins before all are here.
        if !std::mem::replace(&mut self.run.begun, true) {
            self.chain.begin()?;
        }
        if all {
            self.run.restored = true;
            self.head.all_are_here();
            self.outlet.report(self.id, TaskReport::Restored);
        }
        Ok(true)
    }

    /// Handles what the worker has said, and which barriers have come into the channels.
    fn hear(&mut self) -> Result<Flow, TaskError> {
        loop {
            match self.mailbox.try_recv() {
                Ok(Control::Trigger(barrier)) => {
                    // A new coordinator takes another last checkpoint: its marker is to be read.
                    self.run.halted = self.run.halted.filter(|stop| *stop >= barrier.checkpoint);
                    self.align(Event::Trigger(barrier))?;
                }
                Ok(Control::Unalign(checkpoint)) => self.align(Event::Unalign(checkpoint))?,
                Ok(Control::Abort(checkpoint)) => {
                    self.run.halted = self.run.halted.filter(|stop| *stop > checkpoint);
                    self.align(Event::Abort(checkpoint))?;
                    self.abandon(checkpoint);
                }
                Ok(Control::Completed(checkpoint)) => self.completed(checkpoint),
                Ok(Control::Cancel) | Err(TryRecvError::Disconnected) => return Ok(Flow::Cancelled),
                Err(TryRecvError::Empty) => break,
            }
        }
        let mut arrivals = std::mem::take(&mut self.run.arrivals);
        self.head.take_arrivals(&mut arrivals);
        let heard = arrivals.drain(..).try_for_each(|event| self.align(event));
        self.run.arrivals = arrivals;
        heard.map(|()| Flow::Go)
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
            Head::Gate(_) if self.run.halted.is_some() => Ok(Some(None)),
            Head::Gate(head) => {
                if head.backlog.is_empty() && !head.backlog.take_restored(&self.chain)? {
                    let Some((channel, frame)) = head.poll() else { return Ok(Some(None)) };
                    if let Some(barrier) = head.receive(channel, frame, &self.chain, &self.stats)? {
                        self.align(Event::Barrier { channel, barrier })?;
                    }
                }
                // Where rows wait for an instance on its way, whoever brings it wakes the task.
                Ok(if self.work_off()? { None } else { Some(None) })
            }
        }
    }

    /// Works for a round, less where there is no room downstream. Says whether work can go on.
    fn work_off(&mut self) -> Result<bool, TaskError> {
        let started = self.chain.start_watch();
        let mut waits = false;
        while let Head::Gate(head) = &mut self.head {
            match head.backlog.step(&mut self.chain)? {
                None => break,
                Some(Step::Waits) => {
                    waits = true;
                    break;
                }
                Some(Step::Done) => {}
                Some(Step::Finish) => self.finished(),
                Some(Step::End { channel }) => {
                    self.align(Event::End { channel })?;
                    self.chain.start_watch();
                }
            }
            if !self.chain.is_drained() || self.chain.time().saturating_sub(started) >= ROUND_TARGET {
                break;
            }
        }
        self.chain.pass_on_all()?;
        Ok(!waits)
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

    fn finished(&mut self) {
        debug_assert!(!self.run.finished, "a task finishes once");
        self.stats.set_watermark(WATERMARK_END);
        self.run.finished = true;
        self.outlet.report(self.id, TaskReport::Finished);
    }

    fn align(&mut self, event: Event) -> Result<(), TaskError> {
        let mut actions = std::mem::take(&mut self.run.actions);
        self.aligner.handle(event, &mut actions);
        for action in actions.drain(..) {
            match action {
                Action::Block(channel) => self.head.set_blocked(channel, true),
                Action::Unblock(channel) => self.head.set_blocked(channel, false),
                Action::Snapshot(barrier) => self.snapshot(barrier)?,
                Action::Capture { channel, barrier } => self.head.capture(channel, barrier),
                Action::CaptureDone(checkpoint) => {
                    let pieces = self.head.take_captured();
                    self.snapshots.rows_captured(checkpoint, pieces, &mut self.chain, &mut *self.outlet);
                }
                Action::Announce(barrier) => self.chain.announce(barrier),
                Action::Decline { checkpoint, reason } => {
                    self.abandon(checkpoint);
                    self.outlet.report(self.id, TaskReport::Declined { checkpoint, reason });
                }
                Action::Aborted(checkpoint) => self.abandon(checkpoint),
            }
        }
        self.run.actions = actions;
        Ok(())
    }

    /// Steps 2 and 3 of a barrier: push what is unsent and the marker, then take the snapshot.
    fn snapshot(&mut self, barrier: Barrier) -> Result<(), TaskError> {
        let started = self.clock.now();
        let checkpoint = barrier.checkpoint;
        self.snapshots.complete_earlier(checkpoint, &mut self.chain, &mut *self.outlet)?;
        if self.run.finished {
            // Nothing follows the end of a channel; there it counts as the marker, and goes beyond the channels' bounds as one does: a
            // receiver that a stop has halted makes no room for it.
            self.chain.flush_beyond_bound();
        } else {
            self.chain.send_barrier(barrier)?;
        }
        let prepare = self.chain.begin_snapshot(checkpoint)?;
        let state = TaskState { finished: self.run.finished, ..self.head.state() };
        if barrier.kind == BarrierKind::Stop {
            (self.run.stopped, self.run.halted) = (true, Some(checkpoint));
        }
        let pieces = self.head.in_flight(&self.chain);
        self.snapshots.begin(barrier, state, prepare, pieces, &mut *self.outlet);
        self.stats.pauses.record(self.clock.now().saturating_sub(started));
        Ok(())
    }

    fn capture_some(&mut self, idle: bool) -> Result<bool, TaskError> {
        self.snapshots.capture_some(idle, &mut self.chain, &mut *self.outlet, &*self.clock, &self.stats)
    }

    fn abandon(&mut self, checkpoint: CheckpointId) {
        if self.snapshots.abandon(checkpoint, &mut self.chain, &mut *self.outlet) {
            drop(self.head.take_captured());
        }
    }

    /// A checkpoint is complete: its pages are safe, and positions before it are never asked for again.
    fn completed(&mut self, checkpoint: CheckpointId) {
        self.chain.checkpoint_completed(checkpoint);
        self.head.checkpoint_completed(checkpoint);
    }
}
