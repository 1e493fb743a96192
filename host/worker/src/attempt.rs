//! One execution of a job: its threads, and the coordinator machine fed with what they report.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::Value;
use weir_checkpoint::coordinator::{AbortReason, Action, CompletionKind, Config, Coordinator, Event as Told};
use weir_model::{Attempt, CheckpointId, OperatorUid, TaskId};
use weir_storage::{Manifest, ManifestKind};
use weir_task::{Control, Report, TaskError, TaskHandle};

use crate::deploy::Deployment;
use crate::events::{Event, Message, Notice};
use crate::manifest::{Header, assemble};
use crate::persist::{Acknowledgement, Item, Persister};
use crate::prepare::PreparedJob;
use crate::progress::{CheckpointCounts, CheckpointProgress, Meters, Progress};
use crate::topology::Topology;

/// How often progress is told.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);

/// How an execution ended.
pub(crate) enum Ended {
    /// All input is processed and committed.
    Finished,
    /// It was asked to stop, and has.
    Stopped,
    /// It failed and can be restarted.
    Failed(String),
    /// It failed, and would fail again.
    FailedForGood(String),
}

/// An execution that is over.
pub(crate) struct Over {
    pub(crate) ended: Ended,
    pub(crate) progress: Box<Progress>,
    /// Somebody had asked the job to stop.
    pub(crate) stopping: bool,
}

/// One running execution.
pub(crate) struct Execution<'a> {
    job: &'a PreparedJob,
    topology: &'a Topology,
    attempt: Attempt,
    persister: Persister,
    coordinator: Coordinator,
    tasks: Vec<(TaskHandle, Option<JoinHandle<()>>, String)>,
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
    /// Somebody has asked the job to stop.
    stopping: bool,
    /// Why not all threads could be started.
    not_started: Option<String>,
}

#[derive(Clone, Copy)]
struct Triggered {
    at: Instant,
    wall_ms: u64,
}

/// What an execution is started with.
pub(crate) struct Launch<'a> {
    pub(crate) job: &'a PreparedJob,
    pub(crate) topology: &'a Topology,
    pub(crate) attempt: Attempt,
    pub(crate) persister: Persister,
    pub(crate) deployment: Deployment,
    pub(crate) next_id: CheckpointId,
    pub(crate) meters: Meters,
}

impl<'a> Execution<'a> {
    /// Starts all threads.
    pub(crate) fn launch(launch: Launch<'a>) -> Execution<'a> {
        let settings = &launch.job.job.checkpoint;
        let config = Config {
            interval_ms: settings.interval.map(millis),
            min_pause_ms: millis(settings.min_pause),
            timeout_ms: millis(settings.timeout),
            tolerable_failures: settings.tolerable_failures,
            max_concurrent: 1,
            unaligned_after_ms: None,
        };
        let count = launch.deployment.tasks.len();
        let mut tasks = Vec::new();
        let mut not_started = None;
        for (task, handle) in launch.deployment.tasks {
            let name = task.name().to_owned();
            match std::thread::Builder::new().name(name.clone()).spawn(move || task.run()) {
                Ok(thread) => tasks.push((handle, Some(thread), name)),
                Err(error) => {
                    not_started = Some(format!(
                        "cannot start thread {} of {count}, for task {name}: {error}; lower the job's parallelism, or raise the \
                         system's limit on threads (ulimit -u)",
                        tasks.len() + 1
                    ));
                    break;
                }
            }
        }
        Execution {
            coordinator: Coordinator::new(config, launch.attempt, count, launch.next_id, 0),
            job: launch.job,
            topology: launch.topology,
            attempt: launch.attempt,
            persister: launch.persister,
            tasks,
            meters: launch.meters,
            started: Instant::now(),
            acknowledgements: BTreeMap::new(),
            triggered: BTreeMap::new(),
            counts: CheckpointCounts::default(),
            last_completed: CheckpointId(0),
            committed: vec![CheckpointId(0); launch.topology.tasks()],
            done: None,
            stopping: false,
            not_started,
        }
    }

    /// Runs until the job has finished, stopped or failed. All threads are gone when it returns.
    pub(crate) fn drive(mut self, events: &Receiver<Message>, watch: &mut dyn FnMut(Notice)) -> Over {
        let mut progress_at = Instant::now() + PROGRESS_INTERVAL;
        let ended = loop {
            if let Some(reason) = self.not_started.take() {
                break Ended::FailedForGood(reason);
            }
            let deadline = self.coordinator.deadline_ms().map(|ms| self.started + Duration::from_millis(ms));
            let next = deadline.map_or(progress_at, |deadline| deadline.min(progress_at));
            let ended = match events.recv_timeout(next.saturating_duration_since(Instant::now())) {
                Ok(Message { attempt, event }) if attempt.is_none_or(|attempt| attempt == self.attempt) => {
                    self.hear(event, watch)
                }
                // Of an execution that is over.
                Ok(_) => None,
                Err(RecvTimeoutError::Timeout) => self.tick(watch),
                Err(RecvTimeoutError::Disconnected) => unreachable!("the driver holds a sender itself"),
            };
            if Instant::now() >= progress_at {
                watch(Notice::Progress(Box::new(self.meters.read(self.counts))));
                progress_at = Instant::now() + PROGRESS_INTERVAL;
            }
            if let Some(ended) = ended.or_else(|| self.dead_task()) {
                break ended;
            }
        };
        let progress = Box::new(self.meters.read(self.counts));
        let stopping = self.stopping;
        self.end(&ended);
        Over { ended, progress, stopping }
    }

    fn now_ms(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    fn tick(&mut self, watch: &mut dyn FnMut(Notice)) -> Option<Ended> {
        if self.coordinator.deadline_ms().is_some_and(|deadline| deadline <= self.now_ms()) {
            return self.tell(Told::Tick, watch);
        }
        None
    }

    fn hear(&mut self, event: Event, watch: &mut dyn FnMut(Notice)) -> Option<Ended> {
        let attempt = self.attempt;
        let told = match event {
            Event::Report(_, Report::Failed(error)) if error.is_permanent() => {
                return Some(Ended::FailedForGood(error.to_string()));
            }
            Event::Report(_, Report::Failed(error)) => return Some(Ended::Failed(error.to_string())),
            Event::Report(task, Report::Finished) => Told::TaskFinished { task, attempt },
            Event::Report(task, Report::Declined { checkpoint, reason }) => Told::Declined { task, attempt, checkpoint, reason },
            Event::Report(task, Report::Committed(checkpoint)) => {
                self.committed[task.0 as usize] = checkpoint;
                return self.all_committed();
            }
            Event::Acknowledged(acknowledgement) => {
                let (task, checkpoint) = (acknowledgement.task, acknowledgement.checkpoint);
                self.acknowledgements.entry(checkpoint).or_default().push(*acknowledgement);
                Told::Acknowledged { task, attempt, checkpoint }
            }
            Event::PersistFailed { task, checkpoint, reason } => Told::PersistFailed { task, attempt, checkpoint, reason },
            Event::ManifestWritten(manifest) => {
                let checkpoint = manifest.id();
                self.complete(&manifest, watch);
                Told::ManifestWritten(checkpoint)
            }
            Event::ManifestFailed { checkpoint, reason } => Told::ManifestFailed { checkpoint, reason },
            Event::Fenced { reason } => return Some(Ended::FailedForGood(reason)),
            Event::Stop => {
                self.stopping = true;
                watch(Notice::Stopping);
                Told::RequestStop
            }
        };
        self.tell(told, watch)
    }

    /// Feeds the machine and does what it says.
    fn tell(&mut self, event: Told, watch: &mut dyn FnMut(Notice)) -> Option<Ended> {
        let mut actions = Vec::new();
        self.coordinator.handle(self.now_ms(), event, &mut actions);
        actions.into_iter().find_map(|action| self.act(action, watch))
    }

    fn act(&mut self, action: Action, watch: &mut dyn FnMut(Notice)) -> Option<Ended> {
        match action {
            Action::Trigger(barrier) => {
                self.triggered.insert(barrier.checkpoint, Triggered { at: Instant::now(), wall_ms: wall_ms() });
                self.tasks.iter().for_each(|(task, ..)| task.tell(Control::Trigger(barrier)));
            }
            Action::Unalign(checkpoint) => self.tasks.iter().for_each(|(task, ..)| task.tell(Control::Unalign(checkpoint))),
            Action::Abort { checkpoint, reason } => {
                self.triggered.remove(&checkpoint);
                self.counts.failed = self.coordinator.failed();
                if !matches!(reason, AbortReason::Subsumed { .. }) {
                    watch(Notice::CheckpointFailed { checkpoint, reason: reason.describe(&|task| self.name_of(task)) });
                }
                self.tasks.iter().for_each(|(task, ..)| task.tell(Control::Abort(checkpoint)));
            }
            Action::WriteManifest { checkpoint, kind } => self.write_manifest(checkpoint, kind),
            // The tasks were told when the manifest came back: see `complete`.
            Action::Complete { checkpoint, .. } => {
                self.acknowledgements.retain(|id, _| *id > checkpoint);
                self.triggered.retain(|id, _| *id > checkpoint);
                self.persister.ask(Item::Retain(self.job.job.checkpoint.retained as usize));
            }
            Action::Discard(checkpoint) => {
                let files = self.acknowledgements.remove(&checkpoint).unwrap_or_default();
                self.remove(files.into_iter().filter_map(|acknowledgement| acknowledgement.file));
            }
            Action::DiscardOf { task, checkpoint } => {
                let acknowledgements = self.acknowledgements.entry(checkpoint).or_default();
                let (of_task, others): (Vec<_>, Vec<_>) =
                    acknowledgements.drain(..).partition(|acknowledgement| acknowledgement.task == task);
                *acknowledgements = others;
                self.remove(of_task.into_iter().filter_map(|acknowledgement| acknowledgement.file));
            }
            Action::FailJob { reason } => return Some(Ended::Failed(reason.describe(&|task| self.name_of(task)))),
            Action::Done(kind) => {
                // Results count only once sinks have committed; the tasks say so.
                self.done = Some(kind);
                return self.all_committed();
            }
        }
        None
    }

    fn remove(&self, files: impl Iterator<Item = weir_storage::StoredFile>) {
        let names: Vec<String> = files.map(|file| file.name).collect();
        if !names.is_empty() {
            self.persister.ask(Item::Remove(names));
        }
    }

    /// Task numbers mean nothing to people: says what a task runs.
    fn name_of(&self, task: TaskId) -> String {
        self.tasks.get(task.0 as usize).map_or_else(|| format!("task {task}"), |(_, _, name)| name.clone())
    }

    fn write_manifest(&mut self, checkpoint: CheckpointId, kind: CompletionKind) {
        let header = Header {
            attempt: self.attempt,
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
        let manifest = assemble(self.job, self.topology, &header, acknowledgements);
        self.persister.ask(Item::Manifest(Box::new(manifest)));
    }

    /// A manifest is durable: pages are safe, and sinks may show what belongs to it. The persister learns it first, so that
    /// captures taken after a task has learnt it follow the right chain.
    fn complete(&mut self, manifest: &Manifest, watch: &mut dyn FnMut(Notice)) {
        let checkpoint = manifest.id();
        self.last_completed = checkpoint;
        self.persister.completed(checkpoint);
        for (index, (task, ..)) in self.tasks.iter().enumerate() {
            let commit = self.committables(TaskId(index as u32), manifest);
            task.tell(Control::Completed { checkpoint, commit });
        }
        let duration = self.triggered.get(&checkpoint).map_or(Duration::ZERO, |triggered| triggered.at.elapsed());
        let of_tasks = self.acknowledgements.get(&checkpoint).map_or(&[][..], Vec::as_slice);
        let progress = CheckpointProgress {
            id: checkpoint.0,
            duration,
            bytes: manifest.bytes_written,
            captured_bytes: of_tasks.iter().map(|acknowledgement| acknowledgement.captured_bytes).sum(),
            merged_bytes: of_tasks.iter().map(|acknowledgement| acknowledgement.merged_bytes).sum(),
        };
        self.counts.last = Some(progress);
        self.counts.completed += 1;
        watch(Notice::Completed { checkpoint, duration, bytes: manifest.bytes_written });
    }

    fn committables(&self, task: TaskId, manifest: &Manifest) -> Vec<(OperatorUid, Vec<Value>)> {
        let (chain, subtask) = self.topology.locate(task);
        let vertices = self.topology.chains[chain].vertices.iter().map(|&vertex| &self.job.job.vertices[vertex].uid);
        let of_vertex = |uid: &String| {
            let subtask = manifest.operators.get(uid)?.subtasks.get(subtask as usize)?;
            let values: Vec<Value> = subtask.committables.iter().map(|committable| committable.value.clone()).collect();
            (!values.is_empty()).then(|| (OperatorUid::from(uid.as_str()), values))
        };
        vertices.filter_map(of_vertex).collect()
    }

    /// Whether the job has ended: its last checkpoint is complete, and everything in it committed.
    fn all_committed(&self) -> Option<Ended> {
        let kind = self.done?;
        if self.committed.iter().any(|checkpoint| *checkpoint < self.last_completed) {
            return None;
        }
        Some(if kind == CompletionKind::Final { Ended::Finished } else { Ended::Stopped })
    }

    /// A thread that ended without a report has panicked.
    fn dead_task(&mut self) -> Option<Ended> {
        let (_, thread, name) =
            self.tasks.iter_mut().find(|(_, thread, _)| thread.as_ref().is_some_and(JoinHandle::is_finished))?;
        let message = match thread.take()?.join() {
            // It reported why it ended; the report is on its way here.
            Ok(()) => return None,
            Err(panic) => panic_message(&*panic),
        };
        Some(Ended::Failed(TaskError::Panicked { task: name.clone(), message }.to_string()))
    }

    /// Ends all threads. A guest call that is running ends at its deadline at the latest.
    fn end(self, ended: &Ended) {
        self.tasks.iter().for_each(|(task, ..)| task.tell(Control::Cancel));
        for (_, thread, name) in self.tasks {
            if let Some(Err(panic)) = thread.map(JoinHandle::join) {
                tracing::error!(
                    task = name,
                    message = panic_message(&*panic),
                    "a task panicked while it was stopped; this is a bug in weir"
                );
            }
        }
        match ended {
            Ended::Failed(_) | Ended::FailedForGood(_) => self.persister.cancel(),
            Ended::Finished | Ended::Stopped => self.persister.join(),
        }
    }
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

pub(crate) fn wall_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64)
}
