//! One running execution: the checkpoint machine is fed with what workers report, and what it says is done.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use weir_checkpoint::align::DeclineReason;
use weir_checkpoint::machine::{AbortReason, Action, CheckpointMachine, CompletionKind, Config, Event};
use weir_model::{BarrierKind, CheckpointId, TaskId};
use weir_plan::{CheckpointMode, Job, VertexKind};
use weir_protocol::manifest::{Header, assemble};
use weir_protocol::{Acknowledgement, Command, Commits, Report, WorkerId};
use weir_storage::{Durable, Manifest, ManifestKind};

use crate::commits::{CommitWatch, SlowCommits};
use crate::deployed::{Deployed, Planned};
use crate::ended::Ended;
use crate::limits::Limits;
use crate::meters::{CheckpointCounts, Meters};
use crate::requests::Requests;
use crate::{
    Adopted, CheckpointProgress, Notice, Now, Output, Progress, RequestId, Store, StoreFailure, StoreFailureKind, Stored,
};

#[derive(Clone, Copy)]
struct Triggered {
    at_ms: u64,
    wall_ms: u64,
    unaligned: bool,
}

/// What surrounds a running execution in its master.
pub(crate) struct Around<'a> {
    pub(crate) now: Now,
    pub(crate) limits: &'a Limits,
    pub(crate) requests: &'a mut Requests,
    pub(crate) out: &'a mut Vec<Output>,
}

impl Around<'_> {
    pub(crate) fn ask(&mut self, what: Store) -> RequestId {
        self.requests.ask(self.now.steady_ms, self.limits, what, self.out)
    }

    fn tell(&mut self, what: Store) {
        self.requests.tell(self.now.steady_ms, self.limits, what, self.out);
    }

    fn notice(&mut self, notice: Notice) {
        self.out.push(Output::Notice(notice));
    }
}

/// Another parallelism that is wanted of a running job.
enum Rescale {
    /// Whether the newest checkpoint fits it is being read.
    Asked { request: RequestId, wanted: Box<Planned> },
    /// It is gone on with, once a checkpoint from this number on is complete.
    Waits { from: CheckpointId, parallelism: u32 },
}

/// A running execution, as its master knows it.
pub(crate) struct Run {
    pub(crate) deployed: Deployed,
    /// The checkpoint that it goes on from.
    from: Option<CheckpointId>,
    /// When more of its state was with its tasks than before, last.
    restored_ms: u64,
    checkpoints: CheckpointMachine,
    meters: Meters,
    acknowledgements: BTreeMap<CheckpointId, Vec<Acknowledgement>>,
    triggered: BTreeMap<CheckpointId, Triggered>,
    counts: CheckpointCounts,
    last_completed: CheckpointId,
    commits: CommitWatch,
    /// The manifest that is being written.
    writing: Option<(CheckpointId, RequestId)>,
    /// Set once the job ends with its last completed checkpoint.
    done: Option<CompletionKind>,
    rescale: Option<Rescale>,
    progress_at_ms: u64,
}

impl Run {
    /// An execution whose tasks start now, and have their state later.
    pub(crate) fn new(
        deployed: Deployed,
        from: Option<CheckpointId>,
        first_checkpoint: CheckpointId,
        now_ms: u64,
        limits: &Limits,
    ) -> Run {
        let tasks = deployed.topology.tasks();
        let attempt = deployed.id.attempt;
        Run {
            checkpoints: CheckpointMachine::new(config(&deployed.job), attempt, tasks, first_checkpoint, now_ms).restoring(),
            meters: Meters::new(attempt, now_ms),
            deployed,
            from,
            restored_ms: now_ms,
            acknowledgements: BTreeMap::new(),
            triggered: BTreeMap::new(),
            counts: CheckpointCounts::default(),
            last_completed: CheckpointId(0),
            commits: CommitWatch::new(tasks),
            writing: None,
            done: None,
            rescale: None,
            progress_at_ms: now_ms.saturating_add(limits.progress_ms),
        }
    }

    /// Takes over what workers have said to the coordinator before this one. What that one had begun and not completed is
    /// given up; what it had completed is said again, since it may not have reached everyone. `newest`: the newest checkpoint
    /// in the storage, whichever attempt took it.
    pub(crate) fn adopt(&mut self, adopted: &Adopted, newest: Option<Durable>, around: &mut Around<'_>) -> Option<Ended> {
        let attempt = self.deployed.id.attempt;
        let last = adopted.last_checkpoint();
        for (_, running) in &adopted.running {
            for (task, checkpoint) in &running.committed {
                self.commits.committed(*task, *checkpoint, CheckpointId(0), around.now.steady_ms);
            }
        }
        let own = newest.filter(|manifest| manifest.attempt == attempt);
        if last > own.as_ref().map_or(CheckpointId(0), |manifest| manifest.id()) {
            self.deployed.tell_all(|execution| Command::Abort { execution, checkpoint: last }, around.out);
        }
        if let Some(durable) = own {
            self.last_completed = durable.id();
            self.say_completed(&durable, around);
            // The one before had taken the last checkpoint, and did not live to see its end.
            self.done = match durable.kind {
                ManifestKind::Checkpoint | ManifestKind::Savepoint => None,
                ManifestKind::Stop => Some(CompletionKind::Stop),
                ManifestKind::Final => Some(CompletionKind::Final),
            };
            if self.done.is_some() {
                return self.all_committed();
            }
        }
        let restored: Vec<TaskId> = adopted.running.iter().flat_map(|(_, running)| &running.restored).copied().collect();
        let ended = restored.into_iter().find_map(|task| self.tell(Event::TaskRestored { task, attempt }, around));
        if ended.is_some() {
            return ended;
        }
        if self.from.is_some() && !self.checkpoints.is_restoring() {
            // The one before may not have lived to say it.
            self.deployed.tell_all(|execution| Command::Settle { execution }, around.out);
        }
        let finished = adopted.running.iter().flat_map(|(_, running)| &running.finished);
        finished.copied().find_map(|task| self.tell(Event::TaskFinished { task, attempt }, around))
    }

    /// Whether the last checkpoint is being taken or was, or the job has failed.
    pub(crate) fn is_about_to_end(&self) -> bool {
        self.done.is_some() || self.checkpoints.is_over()
    }

    /// A worker of this execution says something.
    pub(crate) fn report(&mut self, worker: &WorkerId, report: Report, around: &mut Around<'_>) -> Option<Ended> {
        let attempt = self.deployed.id.attempt;
        let event = match report {
            Report::Heartbeat { progress } => {
                let before = self.meters.restore();
                for (_, progress) in progress.into_iter().filter(|(execution, _)| *execution == self.deployed.id) {
                    self.meters.hear(worker, progress);
                }
                if self.meters.restore() != before {
                    self.restored_ms = around.now.steady_ms;
                }
                return None;
            }
            Report::Failed { failure, .. } => {
                // What tasks read of the checkpoint they read until all is restored.
                let from = self.from.filter(|_| self.checkpoints.is_restoring());
                return Some(Ended::of_failure(&self.deployed.job, &failure, from));
            }
            Report::TaskRestored { task, .. } => return self.restored(task, around),
            Report::Finished { task, .. } => Event::TaskFinished { task, attempt },
            Report::Declined { task, checkpoint, subsumed_by, reason, .. } => {
                let reason = subsumed_by.map_or(DeclineReason::Failed(reason), |by| DeclineReason::Subsumed { by });
                Event::Declined { task, attempt, checkpoint, reason }
            }
            Report::Committed { task, checkpoint, .. } => {
                self.commits.committed(task, checkpoint, self.last_completed, around.now.steady_ms);
                return self.all_committed();
            }
            Report::Acknowledged { acknowledgement, .. } => {
                let (task, checkpoint) = (acknowledgement.task, acknowledgement.checkpoint);
                self.acknowledgements.entry(checkpoint).or_default().push(*acknowledgement);
                Event::Acknowledged { task, attempt, checkpoint }
            }
            Report::PersistFailed { task, checkpoint, reason, .. } => Event::PersistFailed { task, attempt, checkpoint, reason },
            Report::Ended { .. } => return Some(Ended::Failed(format!("worker {worker} has ended its part of the job"))),
            Report::Register(_)
            | Report::Certificate { .. }
            | Report::Stuck { .. }
            | Report::Need { .. }
            | Report::Prepared { .. }
            | Report::Looked { .. }
            | Report::Opened { .. }
            | Report::Restored { .. }
            | Report::Built { .. } => return None,
        };
        self.tell(event, around)
    }

    /// A task has all its state. Checkpoints that are due begin with the last of them.
    fn restored(&mut self, task: TaskId, around: &mut Around<'_>) -> Option<Ended> {
        let was_restoring = self.checkpoints.is_restoring();
        self.restored_ms = around.now.steady_ms;
        let ended = self.tell(Event::TaskRestored { task, attempt: self.deployed.id.attempt }, around);
        if let Some(checkpoint) = self.from.filter(|_| was_restoring && !self.checkpoints.is_restoring()) {
            around.notice(Notice::Restored { checkpoint });
            self.deployed.tell_all(|execution| Command::Settle { execution }, around.out);
        }
        ended
    }

    /// Says that something has to wait until all is restored, if that is so.
    fn say_waits(&self, what: &'static str, around: &mut Around<'_>) {
        if let Some(checkpoint) = self.from.filter(|_| self.checkpoints.is_restoring()) {
            let restore = self.meters.restore();
            around.notice(Notice::WaitsForRestore { what, checkpoint, restore });
        }
    }

    /// A person wants it to stop.
    pub(crate) fn stop(&mut self, around: &mut Around<'_>) -> Option<Ended> {
        self.forget_rescale(around);
        around.notice(Notice::Stopping);
        self.say_waits("the last checkpoint", around);
        self.tell(Event::RequestStop, around)
    }

    /// Another parallelism is wanted: if the job can have it, a checkpoint is taken to go on from. What was wanted before counts
    /// no more. The error is for people.
    ///
    /// # Errors
    /// If it cannot be had.
    pub(crate) fn rescale(&mut self, wanted: Planned, around: &mut Around<'_>) -> Result<(), String> {
        let parallelism = wanted.job.parallelism;
        match &self.rescale {
            Some(Rescale::Waits { parallelism: waits, .. }) if *waits == parallelism => return Ok(()),
            Some(Rescale::Asked { wanted, .. }) if wanted.job.parallelism == parallelism => return Ok(()),
            _ => {}
        }
        self.forget_rescale(around);
        if self.is_about_to_end() {
            return Err("the job is about to end".to_owned());
        }
        let parallelism_of = |job: &Job| job.vertices.iter().map(|vertex| vertex.parallelism).collect::<Vec<_>>();
        if parallelism_of(&wanted.job) == parallelism_of(&self.deployed.job) {
            return Err(format!(
                "no vertex would change: all of them have parallelism {parallelism} already, or one of their own in the job file"
            ));
        }
        let request = around.ask(Store::Newest);
        self.rescale = Some(Rescale::Asked { request, wanted: Box::new(wanted) });
        Ok(())
    }

    /// The job, if whether it can have another parallelism was asked for with this request.
    pub(crate) fn asked_for(&self, request: RequestId) -> Option<&Planned> {
        match &self.rescale {
            Some(Rescale::Asked { request: asked, wanted }) if *asked == request => Some(wanted),
            _ => None,
        }
    }

    /// Another parallelism can be had, or not: then it goes on as it is.
    pub(crate) fn may_rescale(&mut self, may: bool, around: &mut Around<'_>) -> Option<Ended> {
        let Some(Rescale::Asked { wanted, .. }) = self.rescale.take() else { return None };
        if !may {
            return None;
        }
        let newest = self.triggered.last_key_value().map_or(self.last_completed, |(id, _)| *id);
        self.rescale = Some(Rescale::Waits { from: CheckpointId(newest.0 + 1), parallelism: wanted.job.parallelism });
        self.say_waits("the checkpoint to go on from with another parallelism", around);
        self.tell(Event::RequestCheckpoint, around)
    }

    fn forget_rescale(&mut self, around: &mut Around<'_>) {
        if let Some(Rescale::Asked { request, .. }) = self.rescale.take() {
            around.requests.answered(request);
        }
    }

    /// What became of the manifest that was written.
    pub(crate) fn written(
        &mut self,
        request: RequestId,
        answer: Result<Stored, StoreFailure>,
        around: &mut Around<'_>,
    ) -> Option<Ended> {
        let (checkpoint, _) = self.writing.take_if(|(_, writing)| *writing == request)?;
        match answer {
            Ok(Stored::Completed(durable)) => self.complete(&durable, around),
            Ok(other) => {
                Some(Ended::Failed(format!("the storage answered {other:?} to the manifest of checkpoint {checkpoint}")))
            }
            Err(failure) => match failure.kind {
                StoreFailureKind::Fenced => Some(Ended::FailedForGood(failure.reason)),
                // It may be written later: a new attempt settles what counts before anything else is decided.
                StoreFailureKind::TimedOut | StoreFailureKind::Broken => Some(Ended::Failed(failure.reason)),
                StoreFailureKind::Transient | StoreFailureKind::Permanent | StoreFailureKind::Damaged => {
                    self.tell(Event::ManifestFailed { checkpoint, reason: failure.reason }, around)
                }
            },
        }
    }

    /// A manifest is durable: pages are safe, and sinks may show what belongs to it.
    fn complete(&mut self, durable: &Durable, around: &mut Around<'_>) -> Option<Ended> {
        let checkpoint = durable.id();
        self.last_completed = checkpoint;
        self.counts.completed += 1;
        let triggered = self.triggered.get(&checkpoint);
        let since = |triggered: &Triggered| around.now.steady_ms.saturating_sub(triggered.at_ms);
        let duration = Duration::from_millis(triggered.map_or(0, since));
        let unaligned = triggered.is_some_and(|triggered| triggered.unaligned);
        let of_tasks = self.acknowledgements.get(&checkpoint).map_or(&[][..], Vec::as_slice);
        let sum = |bytes: fn(&Acknowledgement) -> u64| of_tasks.iter().map(bytes).sum();
        let in_flight_bytes = sum(|acknowledgement| acknowledgement.in_flight_bytes);
        let bytes = durable.bytes_written;
        self.counts.last = Some(CheckpointProgress {
            id: checkpoint.0,
            duration,
            bytes,
            captured_bytes: sum(|acknowledgement| acknowledgement.captured_bytes),
            merged_bytes: sum(|acknowledgement| acknowledgement.merged_bytes),
            in_flight_bytes,
            unaligned,
        });
        let ended = self.tell_with(Event::ManifestWritten(checkpoint), Some(durable), around);
        around.notice(Notice::Completed { checkpoint, duration, bytes, in_flight_bytes, unaligned });
        ended.or(match self.rescale {
            Some(Rescale::Waits { from, parallelism }) if checkpoint >= from => Some(Ended::Rescaled(parallelism)),
            _ => None,
        })
    }

    /// Feeds the machine and does what it says.
    fn tell(&mut self, event: Event, around: &mut Around<'_>) -> Option<Ended> {
        self.tell_with(event, None, around)
    }

    fn tell_with(&mut self, event: Event, durable: Option<&Durable>, around: &mut Around<'_>) -> Option<Ended> {
        // An execution whose last checkpoint was complete before it was taken over takes none.
        if self.done.is_some() {
            return None;
        }
        let mut actions = Vec::new();
        self.checkpoints.handle(around.now.steady_ms, event, &mut actions);
        actions.into_iter().find_map(|action| self.act(action, durable, around))
    }

    fn act(&mut self, action: Action, durable: Option<&Durable>, around: &mut Around<'_>) -> Option<Ended> {
        match action {
            Action::Trigger(barrier) => {
                let (checkpoint, unaligned) = (barrier.checkpoint, barrier.unaligned);
                let Now { steady_ms: at_ms, wall_ms, .. } = around.now;
                self.triggered.insert(checkpoint, Triggered { at_ms, wall_ms, unaligned });
                let stop = barrier.kind == BarrierKind::Stop;
                let command = |execution| Command::Trigger { execution, checkpoint, stop, unaligned };
                self.deployed.tell_all(command, around.out);
            }
            Action::Unalign(checkpoint) => {
                if let Some(triggered) = self.triggered.get_mut(&checkpoint) {
                    triggered.unaligned = true;
                }
                self.deployed.tell_all(|execution| Command::Unalign { execution, checkpoint }, around.out);
            }
            Action::Abort { checkpoint, reason } => return self.aborted(checkpoint, &reason, around),
            Action::WriteManifest { checkpoint, kind } => {
                let manifest = Arc::new(self.assemble(checkpoint, kind, around.now));
                let retained = self.deployed.job.checkpoint.retained as usize;
                self.writing = Some((checkpoint, around.ask(Store::Complete { manifest, retained })));
            }
            Action::Complete { checkpoint, .. } => {
                // Only the storage makes the proof, and only it makes the command.
                let Some(durable) = durable.filter(|durable| durable.id() == checkpoint) else {
                    unreachable!("checkpoint {checkpoint} counts as complete, and the storage has not said so")
                };
                self.say_completed(durable, around);
                self.acknowledgements.retain(|id, _| *id > checkpoint);
                self.triggered.retain(|id, _| *id > checkpoint);
                around.tell(Store::Tidy);
            }
            Action::Discard(checkpoint) => {
                let files = self.acknowledgements.remove(&checkpoint).unwrap_or_default();
                remove(files, around);
            }
            Action::DiscardOf { task, checkpoint } => {
                let acknowledgements = self.acknowledgements.entry(checkpoint).or_default();
                let (of_task, others): (Vec<_>, Vec<_>) =
                    acknowledgements.drain(..).partition(|acknowledgement| acknowledgement.task == task);
                *acknowledgements = others;
                if acknowledgements.is_empty() {
                    self.acknowledgements.remove(&checkpoint);
                }
                remove(of_task, around);
            }
            Action::FailJob { reason } => {
                return Some(Ended::Failed(reason.describe(&|task| self.deployed.topology.name(task))));
            }
            Action::Done(kind) => {
                // Results count only once sinks have committed; the tasks say so.
                self.done = Some(kind);
                return self.all_committed();
            }
        }
        None
    }

    fn aborted(&mut self, checkpoint: CheckpointId, reason: &AbortReason, around: &mut Around<'_>) -> Option<Ended> {
        self.triggered.remove(&checkpoint);
        self.counts.failed = self.checkpoints.failed();
        self.deployed.tell_all(|execution| Command::Abort { execution, checkpoint }, around.out);
        if !matches!(reason, AbortReason::Subsumed { .. }) {
            let reason = reason.describe(&|task| self.deployed.topology.name(task));
            around.notice(Notice::CheckpointFailed { checkpoint, reason });
        }
        // The one that was to be gone on from; another takes its place.
        let waits = matches!(self.rescale, Some(Rescale::Waits { .. }));
        if waits { self.tell(Event::RequestCheckpoint, around) } else { None }
    }

    /// Tells every worker that a checkpoint is complete, with what its sinks commit.
    fn say_completed(&mut self, durable: &Durable, around: &mut Around<'_>) {
        let checkpoint = durable.id();
        self.commits.told(checkpoint, around.now.steady_ms, around.limits);
        for worker in &self.deployed.alive {
            let tasks = self.deployed.tasks.get(worker).map_or(&[][..], Vec::as_slice);
            let commits = tasks.iter().map(|task| (*task, self.committables(*task, durable))).collect();
            let command = Command::Completed { execution: self.deployed.id.clone(), checkpoint, commits };
            around.out.push(Output::Send { worker: worker.clone(), command });
        }
    }

    fn committables(&self, task: TaskId, manifest: &Manifest) -> Commits {
        let (chain, subtask) = self.deployed.topology.locate(task);
        let vertices = self.deployed.topology.chains()[chain].vertices.iter();
        let of_vertex = |&vertex: &usize| {
            let uid = &self.deployed.job.vertices[vertex].uid;
            let subtask = manifest.operators.get(uid)?.subtasks.get(subtask as usize)?;
            let values: Vec<Value> = subtask.committables.iter().map(|committable| committable.value.clone()).collect();
            (!values.is_empty()).then(|| (uid.clone(), values))
        };
        vertices.filter_map(of_vertex).collect()
    }

    fn assemble(&self, checkpoint: CheckpointId, kind: CompletionKind, now: Now) -> Manifest {
        let header = Header {
            attempt: self.deployed.id.attempt,
            checkpoint,
            kind: match kind {
                CompletionKind::Checkpoint => ManifestKind::Checkpoint,
                CompletionKind::Stop => ManifestKind::Stop,
                CompletionKind::Final => ManifestKind::Final,
            },
            triggered_at_ms: self.triggered.get(&checkpoint).map_or(now.wall_ms, |triggered| triggered.wall_ms),
            completed_at_ms: now.wall_ms,
        };
        let acknowledgements = self.acknowledgements.get(&checkpoint).map_or(&[][..], Vec::as_slice);
        let Deployed { spec, job, topology, templates, .. } = &self.deployed;
        assemble(spec, job, topology, templates, &header, acknowledgements)
    }

    /// Whether the job has ended: its last checkpoint is complete, and everything in it committed.
    fn all_committed(&self) -> Option<Ended> {
        let kind = self.done?;
        if !self.commits.reaches(self.last_completed) {
            return None;
        }
        Some(if kind == CompletionKind::Final { Ended::Finished } else { Ended::Stopped })
    }

    /// When [`Run::tick`] is due.
    pub(crate) fn deadline_ms(&self, limits: &Limits) -> u64 {
        let checkpoints_ms = self.checkpoints.deadline_ms().filter(|_| self.done.is_none());
        checkpoints_ms
            .into_iter()
            .chain(self.restore_ends_ms(limits))
            .chain(self.commits.deadline_ms())
            .fold(self.progress_at_ms, u64::min)
    }

    /// Until when what tasks still miss of their state is waited for, if they do.
    fn restore_ends_ms(&self, limits: &Limits) -> Option<u64> {
        let is_restoring = self.checkpoints.is_restoring() && self.done.is_none();
        is_restoring.then(|| self.restored_ms.saturating_add(limits.restore_ms_max))
    }

    /// Time has passed.
    pub(crate) fn tick(&mut self, around: &mut Around<'_>) -> Option<Ended> {
        if self.restore_ends_ms(around.limits).is_some_and(|ends_ms| ends_ms <= around.now.steady_ms) {
            let mut missing = self.checkpoints.not_restored().map(|task| self.deployed.topology.name(task));
            let (first, others) = (missing.next().unwrap_or_default(), missing.count());
            let waited_s = around.limits.restore_ms_max / 1_000;
            return Some(Ended::Failed(format!(
                "task {first} and {others} more have not all of their state, and nothing more of it came for {waited_s} s: it is not waited \
                 for any longer; look whether the place of checkpoints answers the workers"
            )));
        }
        if let Some(slow) = self.commits.slow(around.now.steady_ms, around.limits) {
            around.notice(self.slow_commit(&slow));
        }
        let is_due = self.checkpoints.deadline_ms().is_some_and(|deadline_ms| deadline_ms <= around.now.steady_ms);
        if is_due { self.tell(Event::Tick, around) } else { None }
    }

    /// Whose commits take long. A task that says nothing has a sink that does not get on.
    fn slow_commit(&self, slow: &SlowCommits) -> Notice {
        let Deployed { job, topology, tasks, .. } = &self.deployed;
        let vertices = slow.tasks.iter().flat_map(|task| &topology.chains()[topology.locate(*task).0].vertices);
        let is_sink = |vertex: &&usize| matches!(job.vertices[**vertex].kind, VertexKind::Sink(_));
        let sinks: BTreeSet<String> = vertices.filter(is_sink).map(|vertex| job.vertices[*vertex].uid.clone()).collect();
        let is_slow = |of: &[TaskId]| of.iter().any(|task| slow.tasks.binary_search(task).is_ok());
        let workers = tasks.iter().filter(|(_, of)| is_slow(of)).map(|(worker, _)| worker.to_string()).collect();
        Notice::SlowCommit { sinks: sinks.into_iter().collect(), workers, waited: slow.waited }
    }

    /// How far it is, if that is to be told now.
    pub(crate) fn progress(&mut self, now_ms: u64, limits: &Limits) -> Option<Box<Progress>> {
        if now_ms < self.progress_at_ms {
            return None;
        }
        self.progress_at_ms = now_ms.saturating_add(limits.progress_ms);
        let Deployed { job, topology, placement, .. } = &self.deployed;
        let mut progress = self.meters.read(now_ms, job, topology, placement, self.counts);
        progress.restore = self.from.filter(|_| self.checkpoints.is_restoring()).map(|_| self.meters.restore());
        Some(Box::new(progress))
    }

    /// Its parts, for its end.
    pub(crate) fn into_parts(self) -> (Deployed, (Meters, CheckpointCounts)) {
        (self.deployed, (self.meters, self.counts))
    }

    /// What must hold between any two messages.
    pub(crate) fn invariants(&self, requests: &Requests) {
        let pending = self.checkpoints.pending().count();
        assert!(self.writing.is_none_or(|(_, request)| requests.awaits(request)), "a manifest nobody waits for");
        assert!(self.writing.is_none() || pending > 0 || self.is_about_to_end(), "a manifest of no checkpoint");
        assert!(self.triggered.len() <= pending + 1, "checkpoints that are over are kept: {:?}", self.triggered.keys());
        if let Some(Rescale::Asked { request, .. }) = &self.rescale {
            assert!(requests.awaits(*request), "a parallelism nobody asks about");
        }
        let done = self.done.is_some();
        assert!(!done || self.writing.is_none(), "a checkpoint after the last one");
    }
}

fn remove(acknowledgements: Vec<Acknowledgement>, around: &mut Around<'_>) {
    let names = acknowledgements.into_iter().filter_map(|acknowledgement| acknowledgement.file);
    let names: Vec<String> = names.map(|file| file.name).collect();
    if !names.is_empty() {
        around.tell(Store::Remove(names));
    }
}

fn config(job: &Job) -> Config {
    let settings = &job.checkpoint;
    Config {
        interval_ms: settings.interval.map(millis),
        min_pause_ms: millis(settings.min_pause),
        timeout_ms: millis(settings.timeout),
        tolerable_failures: settings.tolerable_failures,
        max_concurrent: 1,
        unaligned_after_ms: match settings.mode {
            CheckpointMode::ExactlyOnce => settings.unaligned_after.map(millis),
            CheckpointMode::AtLeastOnce => None,
        },
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
