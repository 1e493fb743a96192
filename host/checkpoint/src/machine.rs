//! The coordinator's decisions about checkpoints: when one starts, is complete, has failed, and what follows.
//!
//! Owns the ids, who has acknowledged what, the count of failures and the schedule. Never writes a file, sends a message or
//! reads a clock. One machine serves one attempt of a job; the next attempt gets a new one.
//!
//! A checkpoint is complete when every task has acknowledged it and its manifest is written. Manifests are written one at a
//! time, so a checkpoint that is overtaken by a newer complete one is never in the middle of becoming durable. Nothing can
//! be undone while its manifest is written, so the timeout does not apply then: the caller must answer each
//! [`Action::WriteManifest`], with [`Event::ManifestWritten`] or [`Event::ManifestFailed`].

mod pending;
mod reason;
mod schedule;

use std::collections::{BTreeMap, BTreeSet};

use weir_model::{Attempt, Barrier, BarrierKind, CheckpointId, TaskId};

use crate::align::DeclineReason;
pub use pending::PendingCheckpoint;
use pending::{Phase, TaskSet};
pub use reason::{AbortReason, JobFailure};
use schedule::Schedule;

/// Aborted checkpoints whose late acknowledgements are still recognised; files of older ones wait for the next sweep.
const ABORTED_MAX: usize = 1_024;

/// When checkpoints are taken and how much may go wrong. Times are in milliseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// From the start of one periodic checkpoint to the next; `None`: none are taken, only those asked for, the last one
    /// of a stop and the final one of a job that ends. 0 counts as 1.
    pub interval_ms: Option<u64>,
    /// From the completion of any checkpoint to the start of the next periodic one, at least.
    pub min_pause_ms: u64,
    /// A checkpoint that is not acknowledged by all tasks this long after its start has failed. 0 counts as 1.
    pub timeout_ms: u64,
    /// Failures in a row that are tolerated; one more fails the job.
    pub tolerable_failures: u32,
    /// Checkpoints in progress at the same time. 0 counts as 1. With more than 1, and tasks in at-least-once mode, a slow
    /// checkpoint may be overtaken by the next, again and again: keep it at 1 there.
    pub max_concurrent: u32,
    /// A checkpoint that is not acknowledged by all tasks this long after its start goes on unaligned: its markers overtake rows.
    /// 0: from its start; `None`: never, which is the only choice where tasks are in at-least-once mode. The last checkpoint of a
    /// stop does so as well; the one of a job whose input has ended has nothing to overtake and stays aligned. While this is set one checkpoint is in progress at a time, whatever `max_concurrent` says: what
    /// is captured in flight for one must not wait for a marker that another has made pointless.
    pub unaligned_after_ms: Option<u64>,
}

/// What the coordinator is told. Answers of another attempt, and about ids it no longer waits for, are harmless.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Time has passed; due at [`CheckpointMachine::deadline_ms`].
    Tick,
    /// Take a last checkpoint at which the sources stop, then be done. No other is started meanwhile; it is retried until
    /// the failures are too many.
    RequestStop,
    /// Take a checkpoint as soon as one may start, whatever the interval and pause. Several requests before it starts are one.
    RequestCheckpoint,
    /// A task's snapshot is durable.
    Acknowledged {
        /// The task.
        task: TaskId,
        /// Its attempt.
        attempt: Attempt,
        /// The checkpoint.
        checkpoint: CheckpointId,
    },
    /// A task will not snapshot.
    Declined {
        /// The task.
        task: TaskId,
        /// Its attempt.
        attempt: Attempt,
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// Why.
        reason: DeclineReason,
    },
    /// A task has taken its snapshot but could not make it durable, and has removed what it wrote.
    PersistFailed {
        /// The task.
        task: TaskId,
        /// Its attempt.
        attempt: Attempt,
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// What went wrong.
        reason: String,
    },
    /// The manifest is durable.
    ManifestWritten(CheckpointId),
    /// The manifest could not be written, or nobody knows whether it was.
    ManifestFailed {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// What went wrong.
        reason: String,
    },
    /// A task has all of the state that the attempt goes on from. Said again without effect; counts where the machine waits for it
    /// ([`CheckpointMachine::restoring`]).
    TaskRestored {
        /// The task.
        task: TaskId,
        /// Its attempt.
        attempt: Attempt,
    },
    /// A task has reached the end of all its inputs. It stays alive for checkpoints. A source that only stopped because of a
    /// stop barrier does not say this. Said again without effect, so a machine that is made anew is told it for every task
    /// known to have finished.
    TaskFinished {
        /// The task.
        task: TaskId,
        /// Its attempt.
        attempt: Attempt,
    },
}

/// What has to be done, in the order given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Tell every task; sources, and tasks that have read all their input, snapshot.
    Trigger(Barrier),
    /// Tell every task that this checkpoint goes on unaligned. Said once at most, and not where the barrier was unaligned from
    /// the start.
    Unalign(CheckpointId),
    /// Tell every task that this checkpoint is given up.
    Abort {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// Why; also for logs and displays.
        reason: AbortReason,
    },
    /// All tasks have acknowledged: write the manifest and answer.
    WriteManifest {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// What completes with it.
        kind: CompletionKind,
    },
    /// The checkpoint counts: tell every task, commit sinks, then remove checkpoints that are not retained.
    Complete {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// What completes with it.
        kind: CompletionKind,
    },
    /// Remove the files that tasks wrote for this checkpoint alone, and nothing else. Not said after a failed manifest, since it may
    /// be there all the same: those files wait for the sweep at the next start.
    Discard(CheckpointId),
    /// Remove the files that this one task wrote for this checkpoint alone: its acknowledgement came after the abort.
    DiscardOf {
        /// The task.
        task: TaskId,
        /// The checkpoint.
        checkpoint: CheckpointId,
    },
    /// Too many failures: end the attempt. Nothing is triggered any more.
    FailJob {
        /// Why.
        reason: JobFailure,
    },
    /// The last checkpoint is complete: end all tasks. Nothing is triggered any more.
    Done(CompletionKind),
}

/// What the completion of a checkpoint means for the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompletionKind {
    /// It goes on.
    Checkpoint,
    /// It was asked to stop, and resumes from here.
    Stop,
    /// All input is processed.
    Final,
}

/// A completed checkpoint, for display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completed {
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// What completed with it.
    pub kind: CompletionKind,
    /// When it started.
    pub triggered_at_ms: u64,
    /// When its manifest was written.
    pub completed_at_ms: u64,
    /// Whether its markers were allowed to overtake rows, from the start or later.
    pub unaligned: bool,
}

/// The machine. See the module's documentation.
#[derive(Clone, Debug)]
pub struct CheckpointMachine {
    config: Config,
    attempt: Attempt,
    next_id: CheckpointId,
    now_ms: u64,
    pending: BTreeMap<CheckpointId, PendingCheckpoint>,
    schedule: Schedule,
    /// Tasks that have all their state; none where nothing is waited for.
    restored: Option<TaskSet>,
    finished: TaskSet,
    stop_requested: bool,
    /// Aborted ids whose files were discarded, so that a late acknowledgement of one is told from a repeated one.
    aborted: BTreeSet<CheckpointId>,
    failures_in_row: u32,
    failures: u64,
    completed: u64,
    last_completed: Option<Completed>,
    last_failure: Option<(CheckpointId, AbortReason)>,
    /// The job is done or has failed.
    over: bool,
}

impl CheckpointMachine {
    /// A machine for one attempt with tasks `0..tasks`. `next_id` must be greater than any id used before, also of aborted ones. The first
    /// periodic checkpoint starts one interval from now.
    pub fn new(config: Config, attempt: Attempt, tasks: usize, next_id: CheckpointId, now_ms: u64) -> CheckpointMachine {
        debug_assert!(tasks > 0, "a job without tasks");
        CheckpointMachine {
            schedule: Schedule::new(config.interval_ms, config.min_pause_ms, now_ms),
            config,
            attempt,
            next_id,
            now_ms,
            pending: BTreeMap::new(),
            restored: None,
            finished: TaskSet::new(tasks),
            stop_requested: false,
            aborted: BTreeSet::new(),
            failures_in_row: 0,
            failures: 0,
            completed: 0,
            last_completed: None,
            last_failure: None,
            over: false,
        }
    }

    /// The same, which starts no checkpoint of any kind before every task has said [`Event::TaskRestored`]: one that began earlier could
    /// name state that nobody has looked at yet. What is due by then starts at once.
    #[must_use]
    pub fn restoring(mut self) -> CheckpointMachine {
        self.restored = Some(TaskSet::new(self.finished.len()));
        self
    }

    /// Whether tasks are waited for that have not all of their state yet.
    pub fn is_restoring(&self) -> bool {
        self.restored.as_ref().is_some_and(|restored| !restored.is_full())
    }

    /// Tasks that are waited for.
    pub fn not_restored(&self) -> impl Iterator<Item = TaskId> {
        self.restored.iter().flat_map(TaskSet::missing)
    }

    /// Takes an event in and appends what is to be done to `actions`.
    pub fn handle(&mut self, now_ms: u64, event: Event, actions: &mut Vec<Action>) {
        self.now_ms = self.now_ms.max(now_ms);
        self.take_in(event, actions);
        if self.over {
            return;
        }
        self.time_out(actions);
        self.unalign(actions);
        self.write_manifest(actions);
        self.trigger(actions);
        debug_assert!(self.pending.len() <= self.concurrent_max());
        debug_assert!(self.deadline_ms().is_none_or(|deadline_ms| deadline_ms > self.now_ms), "a tick that changes nothing");
    }

    /// When [`Event::Tick`] is due next; `None` while only another event can change anything. Always later than the time last handed in.
    pub fn deadline_ms(&self) -> Option<u64> {
        if self.over {
            return None;
        }
        let timeout_ms =
            self.pending.values().filter(|pending| pending.phase == Phase::Collecting).map(|pending| self.expires_ms(pending));
        let unalign_ms = self.pending.values().filter_map(|pending| self.unalign_ms(pending));
        let start_ms = if self.may_start() {
            match self.last_kind() {
                Some(_) => self.schedule.retry_ms(),
                None => self.schedule.periodic_ms(),
            }
        } else {
            None
        };
        timeout_ms.chain(unalign_ms).chain(start_ms).min()
    }

    /// Checkpoints in progress, oldest first.
    pub fn pending(&self) -> impl Iterator<Item = &PendingCheckpoint> {
        self.pending.values()
    }

    /// The checkpoint completed last in this attempt.
    pub fn last_completed(&self) -> Option<Completed> {
        self.last_completed
    }

    /// The checkpoint that failed last in this attempt, and why.
    pub fn last_failure(&self) -> Option<(CheckpointId, &AbortReason)> {
        self.last_failure.as_ref().map(|(checkpoint, reason)| (*checkpoint, reason))
    }

    /// Checkpoints completed in this attempt.
    pub fn completed(&self) -> u64 {
        self.completed
    }

    /// Checkpoints failed in this attempt. Overtaken ones do not count.
    pub fn failed(&self) -> u64 {
        self.failures
    }

    /// Failures since the last success.
    pub fn failed_in_row(&self) -> u32 {
        self.failures_in_row
    }

    /// Whether [`Action::Done`] or [`Action::FailJob`] was said.
    pub fn is_over(&self) -> bool {
        self.over
    }

    fn take_in(&mut self, event: Event, actions: &mut Vec<Action>) {
        match event {
            Event::Tick => {}
            Event::RequestStop => self.stop_requested = true,
            Event::RequestCheckpoint => self.schedule.request(),
            Event::Acknowledged { task, attempt, checkpoint } if attempt == self.attempt => {
                self.acknowledged(task, checkpoint, actions);
            }
            Event::Declined { task, attempt, checkpoint, reason } if attempt == self.attempt => {
                let reason = match reason {
                    DeclineReason::Subsumed { by } => AbortReason::Subsumed { by },
                    DeclineReason::Failed(reason) => AbortReason::Declined { task, reason },
                };
                self.fail_collecting(checkpoint, reason, actions);
            }
            Event::PersistFailed { task, attempt, checkpoint, reason } if attempt == self.attempt => {
                self.fail_collecting(checkpoint, AbortReason::PersistFailed { task, reason }, actions);
            }
            Event::TaskRestored { task, attempt } if attempt == self.attempt => {
                if let Some(restored) = &mut self.restored {
                    restored.insert(task);
                }
            }
            Event::TaskFinished { task, attempt } if attempt == self.attempt => self.finished.insert(task),
            Event::Acknowledged { .. }
            | Event::Declined { .. }
            | Event::PersistFailed { .. }
            | Event::TaskRestored { .. }
            | Event::TaskFinished { .. } => {}
            Event::ManifestWritten(checkpoint) => self.manifest_written(checkpoint, actions),
            Event::ManifestFailed { checkpoint, reason } => {
                if self.phase(checkpoint) == Some(Phase::Writing) {
                    self.fail(checkpoint, AbortReason::ManifestFailed { reason }, actions);
                }
            }
        }
    }

    fn acknowledged(&mut self, task: TaskId, checkpoint: CheckpointId, actions: &mut Vec<Action>) {
        if let Some(pending) = self.pending.get_mut(&checkpoint) {
            pending.acknowledge(task);
        } else if self.aborted.contains(&checkpoint) {
            actions.push(Action::DiscardOf { task, checkpoint });
        }
    }

    fn manifest_written(&mut self, checkpoint: CheckpointId, actions: &mut Vec<Action>) {
        if self.over || self.phase(checkpoint) != Some(Phase::Writing) {
            return;
        }
        let Some(pending) = self.pending.remove(&checkpoint) else { return };
        let kind = pending.kind();
        actions.push(Action::Complete { checkpoint, kind });
        self.schedule.completed(self.now_ms);
        self.failures_in_row = 0;
        self.completed += 1;
        let triggered_at_ms = pending.since_ms();
        let unaligned = pending.is_unaligned();
        self.last_completed = Some(Completed { checkpoint, kind, triggered_at_ms, completed_at_ms: self.now_ms, unaligned });
        let older: Vec<CheckpointId> = self.pending.range(..checkpoint).map(|(older, _)| *older).collect();
        for older in older {
            self.give_up(older, AbortReason::Subsumed { by: checkpoint }, actions);
        }
        if kind != CompletionKind::Checkpoint {
            debug_assert!(self.pending.is_empty(), "nothing is started after the last checkpoint");
            self.over = true;
            actions.push(Action::Done(kind));
        }
    }

    fn time_out(&mut self, actions: &mut Vec<Action>) {
        let expired = |(checkpoint, pending): (&CheckpointId, &PendingCheckpoint)| {
            (pending.phase == Phase::Collecting && self.expires_ms(pending) <= self.now_ms).then_some(*checkpoint)
        };
        let expired: Vec<CheckpointId> = self.pending.iter().filter_map(expired).collect();
        for checkpoint in expired {
            let Some(pending) = self.pending.get(&checkpoint) else { continue };
            let reason = AbortReason::TimedOut {
                after_ms: self.now_ms - pending.since_ms(),
                tasks: pending.tasks(),
                missing: pending.missing().collect(),
            };
            self.fail(checkpoint, reason, actions);
        }
    }

    fn unalign(&mut self, actions: &mut Vec<Action>) {
        let due = |pending: &PendingCheckpoint| self.unalign_ms(pending).is_some_and(|due_ms| due_ms <= self.now_ms);
        let due: Vec<CheckpointId> =
            self.pending.values().filter(|pending| due(pending)).map(PendingCheckpoint::checkpoint).collect();
        for checkpoint in due {
            if let Some(pending) = self.pending.get_mut(&checkpoint) {
                pending.unaligned = true;
                actions.push(Action::Unalign(checkpoint));
            }
        }
    }

    /// Fails a checkpoint on a task's word; once all tasks have acknowledged it, no task has a say any more.
    fn fail_collecting(&mut self, checkpoint: CheckpointId, reason: AbortReason, actions: &mut Vec<Action>) {
        if self.phase(checkpoint) == Some(Phase::Collecting) {
            self.fail(checkpoint, reason, actions);
        }
    }

    fn fail(&mut self, checkpoint: CheckpointId, reason: AbortReason, actions: &mut Vec<Action>) {
        if self.over {
            return;
        }
        let Some(pending) = self.give_up(checkpoint, reason.clone(), actions) else { return };
        if pending.kind() != CompletionKind::Checkpoint {
            self.schedule.retry_later(self.now_ms);
        }
        if matches!(reason, AbortReason::Subsumed { .. }) {
            return;
        }
        self.failures += 1;
        self.failures_in_row = self.failures_in_row.saturating_add(1);
        self.last_failure = Some((checkpoint, reason.clone()));
        if self.failures_in_row > self.config.tolerable_failures {
            let others: Vec<CheckpointId> = self.pending.keys().copied().collect();
            for other in others {
                self.give_up(other, AbortReason::JobFailed, actions);
            }
            let failures = self.failures_in_row;
            self.over = true;
            actions.push(Action::FailJob { reason: JobFailure { checkpoint, failures, last: reason } });
        }
    }

    /// Aborts a checkpoint, and discards its files unless its manifest may be there.
    fn give_up(&mut self, checkpoint: CheckpointId, reason: AbortReason, actions: &mut Vec<Action>) -> Option<PendingCheckpoint> {
        let pending = self.pending.remove(&checkpoint)?;
        actions.push(Action::Abort { checkpoint, reason });
        if pending.phase != Phase::Writing {
            actions.push(Action::Discard(checkpoint));
            self.aborted.insert(checkpoint);
            if self.aborted.len() > ABORTED_MAX {
                self.aborted.pop_first();
            }
        }
        Some(pending)
    }

    fn write_manifest(&mut self, actions: &mut Vec<Action>) {
        if self.over || self.pending.values().any(|pending| pending.phase == Phase::Writing) {
            return;
        }
        if let Some((checkpoint, pending)) = self.pending.iter_mut().find(|(_, pending)| pending.phase == Phase::Acknowledged) {
            pending.phase = Phase::Writing;
            actions.push(Action::WriteManifest { checkpoint: *checkpoint, kind: pending.kind() });
        }
    }

    fn trigger(&mut self, actions: &mut Vec<Action>) {
        if self.over || !self.may_start() {
            return;
        }
        let last_kind = self.last_kind();
        let start_ms =
            if last_kind.is_some() { self.schedule.retry_ms().or(Some(self.now_ms)) } else { self.schedule.periodic_ms() };
        if start_ms.is_none_or(|start_ms| start_ms > self.now_ms) {
            return;
        }
        let kind = last_kind.unwrap_or(CompletionKind::Checkpoint);
        let checkpoint = self.next_id;
        self.next_id = CheckpointId(checkpoint.0 + 1);
        self.schedule.started(self.now_ms);
        let mut pending = PendingCheckpoint::new(checkpoint, kind, self.now_ms, self.finished.len());
        pending.unaligned = kind != CompletionKind::Final && self.config.unaligned_after_ms == Some(0);
        let unaligned = pending.unaligned;
        self.pending.insert(checkpoint, pending);
        let barrier_kind = if kind == CompletionKind::Stop { BarrierKind::Stop } else { BarrierKind::Checkpoint };
        actions.push(Action::Trigger(Barrier { attempt: self.attempt, checkpoint, kind: barrier_kind, unaligned }));
    }

    /// Whether there is room for one more. Nothing is started beside the last checkpoint, or while state is restored.
    fn may_start(&self) -> bool {
        !self.is_restoring()
            && self.pending.len() < self.concurrent_max()
            && self.pending.values().all(|pending| pending.kind() == CompletionKind::Checkpoint)
    }

    /// The kind of last checkpoint that the job is to end with, if it is to end.
    fn last_kind(&self) -> Option<CompletionKind> {
        if self.finished.is_full() { Some(CompletionKind::Final) } else { self.stop_requested.then_some(CompletionKind::Stop) }
    }

    fn phase(&self, checkpoint: CheckpointId) -> Option<Phase> {
        self.pending.get(&checkpoint).map(|pending| pending.phase)
    }

    fn expires_ms(&self, pending: &PendingCheckpoint) -> u64 {
        pending.since_ms().saturating_add(self.config.timeout_ms.max(1))
    }

    /// When a checkpoint that is being aligned stops to be.
    fn unalign_ms(&self, pending: &PendingCheckpoint) -> Option<u64> {
        let may = pending.phase == Phase::Collecting && pending.kind() != CompletionKind::Final && !pending.unaligned;
        let after_ms = self.config.unaligned_after_ms.filter(|_| may)?;
        Some(pending.since_ms().saturating_add(after_ms))
    }

    fn concurrent_max(&self) -> usize {
        if self.config.unaligned_after_ms.is_some() { 1 } else { self.config.max_concurrent.max(1) as usize }
    }
}

#[cfg(test)]
mod tests;
