//! The loop that one thread runs: input -> chain -> routers, with barriers handled between guest calls. What a gate gives is
//! worked off in `work.rs`; what becomes of a barrier is in `snapshot.rs`.
//!
//! A task owns everything it runs. It hears from its worker through its mailbox and answers through its outlet; it never
//! waits for either.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration;

use weir_channel::Watermarks;
use weir_checkpoint::align::{Action, Aligner, Event};
use weir_model::{CheckpointId, TaskId, WATERMARK_END};

use crate::TaskError;
use crate::build::GateChannel;
use crate::chain::{Chain, Target};
use crate::clock::Clock;
use crate::gate::Gate;
use crate::report::{Control, Outlet, Report};
use crate::snapshot::Snapshot;
use crate::source::{Read, SourceHead};
use crate::stats::TaskStats;
use crate::work::{Restored, Work};

/// What a task starts with.
pub(crate) enum Head {
    Source(Box<SourceHead>),
    /// Channels, with what each of them brings.
    Gate {
        gate: Gate,
        channels: Vec<GateChannel>,
        watermarks: Watermarks,
        /// Whether all channels idle, as it was told downstream.
        idle: bool,
        /// What is worked off before anything from the channels.
        restored: Restored,
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
    pub(crate) outlet: Box<dyn Outlet>,
    pub(crate) stats: Arc<TaskStats>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) run: Run,
}

/// Where a task is in its life.
#[derive(Debug, Default)]
pub(crate) struct Run {
    /// The snapshot that is being taken.
    pub(crate) snapshot: Option<Snapshot>,
    /// Its operators have been told what they go on from.
    pub(crate) begun: bool,
    /// All inputs have ended.
    pub(crate) finished: bool,
    /// A stop barrier has passed: sources give nothing more.
    pub(crate) stopped: bool,
    /// The stop whose snapshot was taken: what is behind it is left for who goes on from there, and nothing more is worked off
    /// unless that stop is given up.
    pub(crate) halted: Option<CheckpointId>,
    /// Nothing happens any more.
    pub(crate) over: bool,
    /// Since when there is no room downstream.
    pub(crate) waiting_since: Option<Duration>,
    pub(crate) actions: Vec<Action>,
    pub(crate) arrivals: Vec<Event>,
    /// What was read from a channel and is not worked off. Nothing more is read before it is.
    pub(crate) work: VecDeque<Work>,
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
            self.outlet.report(self.id, Report::Failed(error));
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
            if let Head::Source(source) = &mut self.head {
                source.has_waited(waited);
            }
        }
        // Before a barrier is heard of, so that every checkpoint has them as they go on.
        if !std::mem::replace(&mut self.run.begun, true) {
            self.chain.begin()?;
        }
        if let Flow::Cancelled = self.hear()? {
            return Ok(Turn::Over);
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
                Ok(Control::Completed { checkpoint, commit }) => self.completed(checkpoint, commit)?,
                Ok(Control::Cancel) | Err(TryRecvError::Disconnected) => return Ok(Flow::Cancelled),
                Err(TryRecvError::Empty) => break,
            }
        }
        let mut arrivals = std::mem::take(&mut self.run.arrivals);
        if let Head::Gate { gate, .. } = &mut self.head {
            gate.take_arrivals(&mut arrivals);
        }
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
            Head::Gate { .. } if self.run.halted.is_some() => Ok(Some(None)),
            Head::Gate { gate, restored, .. } => {
                if self.run.work.is_empty() {
                    if let Some(again) = restored.next() {
                        self.receive_again(again)?;
                    } else {
                        let Some((channel, frame)) = gate.poll() else { return Ok(Some(None)) };
                        self.receive(channel, frame)?;
                    }
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
}

/// Where the rows of a source go first.
pub(crate) type Targets = Vec<Target>;
