//! One running execution: the checkpoint machine is fed with what workers report, and what it says is done.

use std::collections::BTreeMap;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use serde_json::Value;
use weir_checkpoint::align::DeclineReason;
use weir_checkpoint::coordinator::{AbortReason, Action, CompletionKind, Config, Coordinator, Event};
use weir_master::meters::{CheckpointCounts, Meters};
use weir_model::{BarrierKind, CheckpointId, TaskId};
use weir_plan::Job;
use weir_protocol::manifest::{Header, assemble};
use weir_protocol::{Acknowledgement, Command, Commits, Report, WorkerId};
use weir_storage::{JobStorage, Manifest, ManifestKind};

use super::deploy::{Deployed, failed};
use super::keeper::{Keeper, Written};
use super::{Ended, History, Master, wall_ms};
use crate::surroundings::Kept;
use crate::{Adopted, CheckpointProgress, Notice, Progress, Surroundings, Told, Wish};

/// How often progress is told.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);

#[derive(Clone, Copy)]
struct Triggered {
    at: Instant,
    wall_ms: u64,
    unaligned: bool,
}

/// A running execution, as its master knows it.
pub(super) struct Driver {
    deployed: Deployed,
    keeper: Keeper,
    storage: JobStorage,
    coordinator: Coordinator,
    meters: Meters,
    started: Instant,
    acknowledgements: BTreeMap<CheckpointId, Vec<Acknowledgement>>,
    triggered: BTreeMap<CheckpointId, Triggered>,
    counts: CheckpointCounts,
    last_completed: CheckpointId,
    /// Up to where the sinks of each task have committed.
    committed: Vec<CheckpointId>,
    /// Set once the job ends with its last completed checkpoint.
    done: Option<CompletionKind>,
    /// The parallelism to go on with, once a checkpoint from this number on is complete.
    rescale: Option<(CheckpointId, u32)>,
    /// What the machine said when it was told what had happened before a takeover: where all tasks have finished, the last
    /// checkpoint begins with that.
    first: Vec<Action>,
}

impl Driver {
    /// An execution whose tasks start now.
    pub(super) fn new(deployed: Deployed, keeper: Keeper, storage: JobStorage) -> Driver {
        let settings = &deployed.job.checkpoint;
        let config = Config {
            interval_ms: settings.interval.map(millis),
            min_pause_ms: millis(settings.min_pause),
            timeout_ms: millis(settings.timeout),
            tolerable_failures: settings.tolerable_failures,
            max_concurrent: 1,
            unaligned_after_ms: match settings.mode {
                weir_plan::CheckpointMode::ExactlyOnce => settings.unaligned_after.map(millis),
                weir_plan::CheckpointMode::AtLeastOnce => None,
            },
        };
        let tasks = deployed.topology.tasks();
        let attempt = deployed.id.attempt;
        Driver {
            coordinator: Coordinator::new(config, attempt, tasks, deployed.first_checkpoint, 0),
            meters: Meters::new(attempt, 0),
            deployed,
            keeper,
            storage,
            started: Instant::now(),
            acknowledgements: BTreeMap::new(),
            triggered: BTreeMap::new(),
            counts: CheckpointCounts::default(),
            last_completed: CheckpointId(0),
            committed: vec![CheckpointId(0); tasks],
            done: None,
            rescale: None,
            first: Vec::new(),
        }
    }

    /// Takes over what workers have said to the coordinator before this one. What that one had begun and not completed is
    /// given up; what it had completed is said again, since it may not have reached everyone. `newest`: the newest checkpoint
    /// in the storage, whichever attempt took it.
    pub(super) fn adopt(&mut self, adopted: &Adopted, newest: Option<Manifest>, surroundings: &dyn Surroundings) {
        let attempt = self.deployed.id.attempt;
        for (_, running) in &adopted.running {
            for &task in &running.finished {
                self.coordinator.handle(0, Event::TaskFinished { task, attempt }, &mut self.first);
            }
            for (task, checkpoint) in &running.committed {
                if let Some(held) = self.committed.get_mut(task.0 as usize) {
                    *held = *checkpoint;
                }
            }
        }
        let own = newest.filter(|manifest| manifest.attempt == attempt);
        let completed = own.as_ref().map_or(CheckpointId(0), Manifest::id);
        if adopted.last_checkpoint() > completed {
            let checkpoint = adopted.last_checkpoint();
            self.tell_all(surroundings, |execution| Command::Abort { execution, checkpoint });
        }
        if let Some(manifest) = own {
            self.last_completed = manifest.id();
            self.say_completed(&manifest, surroundings);
        }
    }

    fn tell_all(&self, surroundings: &dyn Surroundings, command: impl Fn(weir_protocol::Execution) -> Command) {
        self.deployed.alive.iter().for_each(|worker| surroundings.send(worker, command(self.deployed.id.clone())));
    }

    fn now_ms(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    /// When there is something to do although nobody said anything.
    fn deadline(&self) -> Option<Instant> {
        self.coordinator.deadline_ms().map(|ms| self.started + Duration::from_millis(ms))
    }

    fn progress(&mut self) -> Box<Progress> {
        let Deployed { job, topology, placement, .. } = &self.deployed;
        Box::new(self.meters.read(self.started.elapsed().as_millis() as u64, job, topology, placement, self.counts))
    }

    /// Tells every worker that a checkpoint is complete, with what its sinks commit.
    fn say_completed(&self, manifest: &Manifest, surroundings: &dyn Surroundings) {
        let checkpoint = manifest.id();
        for worker in &self.deployed.alive {
            let tasks = self.deployed.placement.tasks_of(worker);
            let commits = tasks.into_iter().map(|task| (task, self.committables(task, manifest))).collect();
            surroundings.send(worker, Command::Completed { execution: self.deployed.id.clone(), checkpoint, commits });
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

    fn write_manifest(&mut self, checkpoint: CheckpointId, kind: CompletionKind) {
        let header = Header {
            attempt: self.deployed.id.attempt,
            checkpoint,
            kind: match kind {
                CompletionKind::Checkpoint => ManifestKind::Checkpoint,
                CompletionKind::Stop => ManifestKind::Stop,
                CompletionKind::Final => ManifestKind::Final,
            },
            triggered_at_ms: self.triggered.get(&checkpoint).map_or_else(wall_ms, |triggered| triggered.wall_ms),
            completed_at_ms: wall_ms(),
        };
        let acknowledgements = self.acknowledgements.get(&checkpoint).map_or(&[][..], Vec::as_slice);
        let Deployed { spec, job, topology, templates, .. } = &self.deployed;
        self.keeper.write(assemble(spec, job, topology, templates, &header, acknowledgements));
    }

    fn remove(&self, files: impl Iterator<Item = weir_storage::StoredFile>) {
        self.keeper.remove(files.map(|file| file.name).collect());
    }

    /// Whether the job has ended: its last checkpoint is complete, and everything in it committed.
    fn all_committed(&self) -> Option<Ended> {
        let kind = self.done?;
        if self.committed.iter().any(|checkpoint| *checkpoint < self.last_completed) {
            return None;
        }
        Some(if kind == CompletionKind::Final { Ended::Finished } else { Ended::Stopped })
    }
}

impl Master {
    /// Runs an execution until the job has finished, stopped or failed. Its threads have been told to end when this returns.
    pub(super) fn drive(&mut self, mut driver: Driver, history: &mut History) -> Ended {
        let mut progress_at = Instant::now() + PROGRESS_INTERVAL;
        let first = std::mem::take(&mut driver.first);
        let mut at_once = first.into_iter().find_map(|action| self.act(&mut driver, action));
        if let Some(parallelism) = self.rescale.filter(|_| at_once.is_none()) {
            at_once = self.rescale(&mut driver, parallelism);
        }
        let ended = loop {
            if let Some(ended) = at_once.take() {
                break ended;
            }
            let next = driver.deadline().map_or(progress_at, |deadline| deadline.min(progress_at));
            let heard = match self.inbox.recv_timeout(next.saturating_duration_since(Instant::now())) {
                Ok(told) => self.hear(&mut driver, told, history),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => unreachable!("the master holds a sender itself"),
            };
            // Also where more is to be heard: heartbeats alone would put off what is due for as long as they come.
            let is_due = driver.deadline().is_some_and(|deadline| deadline <= Instant::now());
            let ended = heard.or_else(|| if is_due { self.tell(&mut driver, Event::Tick) } else { None });
            if Instant::now() >= progress_at {
                let progress = driver.progress();
                self.tell_of_odd_rows(&driver.deployed.job, &progress, history, false);
                self.notice(&driver.deployed.job, &Notice::Progress(progress));
                progress_at = Instant::now() + PROGRESS_INTERVAL;
            }
            if let Some(ended) = ended {
                break ended;
            }
        };
        if matches!(ended, Ended::Left) {
            // The tasks run on; whoever comes next takes them over.
            driver.keeper.join();
            return ended;
        }
        for (worker, progress) in self.end(&mut driver.deployed, Some(&ended)) {
            driver.meters.hear(&worker, progress);
        }
        let progress = driver.progress();
        self.tell_of_odd_rows(&driver.deployed.job, &progress, history, true);
        history.last = Some(progress);
        driver.keeper.join();
        ended
    }

    fn tell_of_odd_rows(&self, job: &Job, progress: &Progress, history: &mut History, is_last: bool) {
        for message in history.odd.look(job, &progress.vertices, is_last) {
            self.notice(job, &Notice::OddRows { message });
        }
    }

    fn hear(&mut self, driver: &mut Driver, told: Told, history: &mut History) -> Option<Ended> {
        match told {
            Told::Report { worker, report } => self.reported(driver, &worker, *report),
            Told::WorkerLost { worker, reason } if driver.deployed.alive.remove(&*worker) => {
                self.notice(&driver.deployed.job, &Notice::WorkerLost { worker: worker.to_string(), reason: reason.clone() });
                Some(Ended::Failed(format!("worker {worker} is lost: {reason}")))
            }
            Told::Wish(Wish::Stop) => {
                history.stopping = true;
                (self.rescale, driver.rescale) = (None, None);
                self.notice(&driver.deployed.job, &Notice::Stopping);
                self.tell(driver, Event::RequestStop)
            }
            Told::Wish(Wish::Cancel) => Some(Ended::Cancelled),
            Told::Wish(Wish::Rescale(parallelism)) => self.rescale(driver, parallelism),
            Told::Leave => Some(Ended::Left),
            Told::Kept(Kept(written)) => self.written(driver, written),
            Told::WorkerLost { .. } | Told::SlotsChanged => None,
        }
    }

    fn reported(&mut self, driver: &mut Driver, worker: &WorkerId, report: Report) -> Option<Ended> {
        let attempt = driver.deployed.id.attempt;
        let event = match report {
            Report::Heartbeat { progress } => {
                for (_, progress) in progress.into_iter().filter(|(execution, _)| *execution == driver.deployed.id) {
                    driver.meters.hear(worker, progress);
                }
                return None;
            }
            // Of an execution that is over.
            report if report.execution() != Some(&driver.deployed.id) => return None,
            Report::Failed { failure, .. } => {
                return Some(match failed(&driver.deployed.job, &failure) {
                    // What tasks restore was read before they ran, so no checkpoint is to be blamed.
                    Ended::Damaged { reason, .. } => Ended::Failed(reason),
                    ended => ended,
                });
            }
            Report::Finished { task, .. } => Event::TaskFinished { task, attempt },
            Report::Declined { task, checkpoint, subsumed_by, reason, .. } => {
                let reason = subsumed_by.map_or(DeclineReason::Failed(reason), |by| DeclineReason::Subsumed { by });
                Event::Declined { task, attempt, checkpoint, reason }
            }
            Report::Committed { task, checkpoint, .. } => {
                if let Some(held) = driver.committed.get_mut(task.0 as usize) {
                    *held = checkpoint.max(*held);
                }
                return driver.all_committed();
            }
            Report::Acknowledged { acknowledgement, .. } => {
                let (task, checkpoint) = (acknowledgement.task, acknowledgement.checkpoint);
                driver.acknowledgements.entry(checkpoint).or_default().push(*acknowledgement);
                Event::Acknowledged { task, attempt, checkpoint }
            }
            Report::PersistFailed { task, checkpoint, reason, .. } => Event::PersistFailed { task, attempt, checkpoint, reason },
            Report::Ended { .. } => return Some(Ended::Failed(format!("worker {worker} has ended its part of the job"))),
            Report::Register(_)
            | Report::Need { .. }
            | Report::Prepared { .. }
            | Report::Looked { .. }
            | Report::Opened { .. }
            | Report::Restored { .. }
            | Report::Built { .. } => return None,
        };
        self.tell(driver, event)
    }

    fn written(&mut self, driver: &mut Driver, written: Written) -> Option<Ended> {
        match written {
            // Of an execution that is over.
            Written::Durable(manifest) if manifest.attempt != driver.deployed.id.attempt => None,
            Written::Durable(manifest) => {
                let checkpoint = manifest.id();
                self.complete(driver, &manifest);
                let ended = self.tell(driver, Event::ManifestWritten(checkpoint));
                ended.or_else(|| match driver.rescale {
                    Some((from, parallelism)) if checkpoint >= from => Some(Ended::Rescaled(parallelism)),
                    _ => None,
                })
            }
            Written::Failed { checkpoint, reason } => self.tell(driver, Event::ManifestFailed { checkpoint, reason }),
            Written::Fenced { reason } => Some(Ended::FailedForGood(reason)),
            Written::Broken { attempt, reason } => (attempt == driver.deployed.id.attempt).then_some(Ended::Failed(reason)),
        }
    }

    /// A manifest is durable: pages are safe, and sinks may show what belongs to it.
    fn complete(&mut self, driver: &mut Driver, manifest: &Manifest) {
        let checkpoint = manifest.id();
        driver.last_completed = checkpoint;
        driver.say_completed(manifest, &*self.surroundings);
        let triggered = driver.triggered.get(&checkpoint);
        let duration = triggered.map_or(Duration::ZERO, |triggered| triggered.at.elapsed());
        let unaligned = triggered.is_some_and(|triggered| triggered.unaligned);
        let of_tasks = driver.acknowledgements.get(&checkpoint).map_or(&[][..], Vec::as_slice);
        let sum = |bytes: fn(&Acknowledgement) -> u64| of_tasks.iter().map(bytes).sum();
        let in_flight_bytes = sum(|acknowledgement| acknowledgement.in_flight_bytes);
        driver.counts.last = Some(CheckpointProgress {
            id: checkpoint.0,
            duration,
            bytes: manifest.bytes_written,
            captured_bytes: sum(|acknowledgement| acknowledgement.captured_bytes),
            merged_bytes: sum(|acknowledgement| acknowledgement.merged_bytes),
            in_flight_bytes,
            unaligned,
        });
        driver.counts.completed += 1;
        let bytes = manifest.bytes_written;
        self.notice(&driver.deployed.job, &Notice::Completed { checkpoint, duration, bytes, in_flight_bytes, unaligned });
    }

    /// Feeds the machine and does what it says.
    fn tell(&mut self, driver: &mut Driver, event: Event) -> Option<Ended> {
        let mut actions = Vec::new();
        driver.coordinator.handle(driver.now_ms(), event, &mut actions);
        actions.into_iter().find_map(|action| self.act(driver, action))
    }

    fn act(&mut self, driver: &mut Driver, action: Action) -> Option<Ended> {
        let surroundings = &*self.surroundings;
        match action {
            Action::Trigger(barrier) => {
                let (checkpoint, unaligned) = (barrier.checkpoint, barrier.unaligned);
                driver.triggered.insert(checkpoint, Triggered { at: Instant::now(), wall_ms: wall_ms(), unaligned });
                let stop = barrier.kind == BarrierKind::Stop;
                driver.tell_all(surroundings, |execution| Command::Trigger { execution, checkpoint, stop, unaligned });
            }
            Action::Unalign(checkpoint) => {
                if let Some(triggered) = driver.triggered.get_mut(&checkpoint) {
                    triggered.unaligned = true;
                }
                driver.tell_all(surroundings, |execution| Command::Unalign { execution, checkpoint });
            }
            Action::Abort { checkpoint, reason } => {
                driver.triggered.remove(&checkpoint);
                driver.counts.failed = driver.coordinator.failed();
                driver.tell_all(surroundings, |execution| Command::Abort { execution, checkpoint });
                if !matches!(reason, AbortReason::Subsumed { .. }) {
                    let reason = reason.describe(&|task| driver.deployed.topology.name(task));
                    self.notice(&driver.deployed.job, &Notice::CheckpointFailed { checkpoint, reason });
                }
                if driver.rescale.is_some() {
                    // The one that was to be gone on from; another takes its place.
                    return self.tell(driver, Event::RequestCheckpoint);
                }
            }
            Action::WriteManifest { checkpoint, kind } => driver.write_manifest(checkpoint, kind),
            // The tasks were told when the manifest came back: see `complete`.
            Action::Complete { checkpoint, .. } => {
                driver.acknowledgements.retain(|id, _| *id > checkpoint);
                driver.triggered.retain(|id, _| *id > checkpoint);
                driver.keeper.retain(driver.deployed.job.checkpoint.retained as usize);
            }
            Action::Discard(checkpoint) => {
                let files = driver.acknowledgements.remove(&checkpoint).unwrap_or_default();
                driver.remove(files.into_iter().filter_map(|acknowledgement| acknowledgement.file));
            }
            Action::DiscardOf { task, checkpoint } => {
                let acknowledgements = driver.acknowledgements.entry(checkpoint).or_default();
                let (of_task, others): (Vec<_>, Vec<_>) =
                    acknowledgements.drain(..).partition(|acknowledgement| acknowledgement.task == task);
                *acknowledgements = others;
                driver.remove(of_task.into_iter().filter_map(|acknowledgement| acknowledgement.file));
            }
            Action::FailJob { reason } => {
                return Some(Ended::Failed(reason.describe(&|task| driver.deployed.topology.name(task))));
            }
            Action::Done(kind) => {
                // Results count only once sinks have committed; the tasks say so.
                driver.done = Some(kind);
                return driver.all_committed();
            }
        }
        None
    }

    /// Another parallelism is wanted: if the job can have it, a checkpoint is taken to go on from. What was wanted before counts
    /// no more.
    fn rescale(&mut self, driver: &mut Driver, parallelism: u32) -> Option<Ended> {
        if driver.rescale.is_some_and(|(_, wanted)| wanted == parallelism) {
            return None;
        }
        driver.rescale = None;
        if let Err(reason) = self.may_rescale(driver, parallelism) {
            self.rescale_refused(&driver.deployed.job, reason);
            return None;
        }
        self.rescale = Some(parallelism);
        let newest = driver.triggered.last_key_value().map_or(driver.last_completed, |(id, _)| *id);
        driver.rescale = Some((CheckpointId(newest.0 + 1), parallelism));
        self.tell(driver, Event::RequestCheckpoint)
    }

    fn may_rescale(&self, driver: &Driver, parallelism: u32) -> Result<(), String> {
        if driver.done.is_some() || driver.coordinator.is_over() {
            return Err("the job is about to end".to_owned());
        }
        let job = self.check_rescale(&driver.storage, parallelism).map_err(|error| error.to_string())?;
        let parallelism_of = |job: &weir_plan::Job| job.vertices.iter().map(|vertex| vertex.parallelism).collect::<Vec<_>>();
        if parallelism_of(&job) == parallelism_of(&driver.deployed.job) {
            return Err(format!(
                "no vertex would change: all of them have parallelism {parallelism} already, or one of their own in the job file"
            ));
        }
        Ok(())
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
