//! Workers without tasks: they answer every command as a worker would, and commit what they are told. And a world of them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::json;
use weir_model::{CheckpointId, Description, Digest, Epoch, OutputPort, TaskId, Timestamp};
use weir_protocol::access::Person;
use weir_protocol::api::{ClusterApi, JobEvent, JobState, JobStatus, JobSubmission};
use weir_protocol::{
    Acknowledgement, Command, Execution, JobSpec, Register, Report, Running, SinkAcknowledgement, SourceAcknowledgement,
    TaskProgress, VertexCounts, WorkerProgress,
};
use weir_storage::{Committable, JobStorage};

use super::super::{Clock, Cluster, ClusterOptions, Hello, Through, WorkerLink};
use crate::faulty::{FaultyStore, faulty};
use crate::{Limits, ServeError};
use weir_cluster::{LinkId, Now};

pub(super) const VERSION: &str = "1.2.3";

/// Polls until something holds. The time is only there to end a test that has failed.
pub(super) fn until<T>(what: &str, mut poll: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(found) = poll() {
            return found;
        }
        assert!(Instant::now() < deadline, "this did not happen: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Who asks in these tests.
pub(super) fn by() -> Person {
    Person::Token("tests".to_owned())
}

/// A clock that stands still unless it is told otherwise.
pub(super) struct TestClock(AtomicU64);

impl Clock for TestClock {
    fn now(&self) -> Now {
        let ms = self.0.load(Ordering::Relaxed);
        Now { steady_ms: ms, wall_ms: 1_700_000_000_000 + ms }
    }
}

/// Folders and checkpoints, which outlive coordinators.
pub(super) struct World {
    pub(super) folder: tempfile::TempDir,
    pub(super) store: FaultyStore,
    pub(super) clock: Arc<TestClock>,
    pub(super) limits: Limits,
}

impl World {
    pub(super) fn new() -> World {
        World {
            folder: tempfile::tempdir().unwrap(),
            store: faulty(),
            clock: Arc::new(TestClock(AtomicU64::new(1_000))),
            limits: Limits { slow_step_ms: 200, ..Limits::DEFAULT },
        }
    }

    pub(super) fn open(&self) -> Cluster {
        self.open_at(&self.folder.path().join("data"))
    }

    pub(super) fn open_at(&self, data_dir: &Path) -> Cluster {
        // The coordinator before may take a moment to let go of its folder.
        until("the folder is free", || match Cluster::open(self.options(data_dir)) {
            Ok(cluster) => Some(cluster),
            Err(ServeError::Locked { .. }) => None,
            Err(error) => panic!("{error}"),
        })
    }

    /// The same, with something between it and its metadata.
    pub(super) fn open_through(&self, through: Through) -> Cluster {
        Cluster::open_through(self.options(&self.folder.path().join("data")), through).unwrap()
    }

    /// With the token of a token file.
    pub(super) fn open_with(&self, token: Option<Digest>) -> Cluster {
        Cluster::open(ClusterOptions { token, ..self.options(&self.folder.path().join("data")) }).unwrap()
    }

    fn options(&self, data_dir: &Path) -> ClusterOptions {
        let store = self.store.clone();
        ClusterOptions {
            data_dir: data_dir.to_owned(),
            cluster: "test".to_owned(),
            certificate_until_ms: Arc::new(|| u64::MAX),
            version: VERSION.to_owned(),
            default_storage: "memory:".to_owned(),
            token: None,
            describe: Arc::new(described),
            storage: Arc::new(move |url: &str, job: &str| JobStorage::with_store(Arc::new(store.clone()), url, job)),
            clock: self.clock.clone(),
            limits: self.limits,
        }
    }

    pub(super) fn storage(&self, job: &str) -> JobStorage {
        JobStorage::with_store(Arc::new(self.store.clone()), "memory:", job).unwrap()
    }

    /// Lets time pass, in steps as the clock's thread would see it.
    pub(super) fn pass(&self, cluster: &Cluster, ms: u64) {
        for _ in 0..ms / 50 {
            self.clock.0.fetch_add(50, Ordering::Relaxed);
            cluster.tick();
        }
    }
}

/// A job of a source and a sink, without components.
pub(super) fn job(name: &str, parallelism: u32) -> JobSubmission {
    let text = format!(
        "[job]\nname = \"{name}\"\nparallelism = {parallelism}\n[job.checkpoint]\ninterval = \"20ms\"\n[job.restart]\nstrategy = \"fixed\"\n\
         delay = \"1ms\"\n[[source]]\nid = \"in\"\nconnector = \"generator\"\n[[sink]]\nid = \"out\"\nconnector = \"blackhole\"\ninput = \"in\"\n"
    );
    let spec = JobSpec { job_dir: "/jobs".to_owned(), ..JobSpec::new(&format!("{name}.toml"), &text) };
    JobSubmission { spec, fresh: false, allow_dropped_state: false }
}

pub(super) fn wait_state(cluster: &Cluster, name: &str, state: JobState) -> JobStatus {
    until(&format!("job {name} is {state}"), || {
        let status = cluster.job(name).unwrap().status;
        (status.state == state).then_some(status)
    })
}

/// Waits for an event of a kind after the `after`th.
pub(super) fn wait_event(cluster: &Cluster, name: &str, after: u64, kind: &str) -> JobEvent {
    until(&format!("job {name} has an event {kind}"), || {
        cluster.events(name, after, Duration::ZERO).unwrap().into_iter().find(|event| event.kind == kind)
    })
}

pub(super) fn kinds(cluster: &Cluster, name: &str) -> Vec<String> {
    cluster.events(name, 0, Duration::ZERO).unwrap().into_iter().map(|event| event.kind).collect()
}

struct Part {
    tasks: Vec<TaskId>,
    started: bool,
    committed: BTreeMap<TaskId, CheckpointId>,
    last_checkpoint: CheckpointId,
}

/// What a worker process has in memory; outlives connections.
#[derive(Default)]
struct Process {
    parts: BTreeMap<Execution, Part>,
    /// The coordinator it has joined last.
    led_by: Option<Epoch>,
    told: Vec<String>,
    /// Every commit that took effect: task, value.
    committed: Vec<(TaskId, u64)>,
    effective: BTreeSet<u64>,
    starts: u32,
}

/// A worker.
pub(super) struct FakeWorker {
    pub(super) name: &'static str,
    incarnation: u64,
    process: Arc<Mutex<Process>>,
    /// `Completed` gets lost on its way.
    pub(super) deaf_to_completed: Arc<AtomicBool>,
    /// Nothing is answered.
    pub(super) mute: Arc<AtomicBool>,
    /// Its tasks do not end.
    pub(super) stuck: Arc<AtomicBool>,
    link: Option<(LinkId, Arc<FakeLink>)>,
}

/// Gone once it is closed.
struct FakeLink(Mutex<Option<Sender<Command>>>);

impl WorkerLink for FakeLink {
    fn tell(&self, command: Command) {
        if let Some(commands) = &*self.0.lock() {
            let _ = commands.send(command);
        }
    }

    fn close(&self, _: &str) {
        *self.0.lock() = None;
    }
}

/// A worker that has joined, and a job `j` of this parallelism.
pub(super) fn one_with_a_job(cluster: &Cluster, parallelism: u32) -> FakeWorker {
    let mut a = FakeWorker::new("a", 1);
    a.join(cluster);
    cluster.submit(&by(), job("j", parallelism)).unwrap();
    a
}

/// Two workers that have joined, and a job `j` of this parallelism.
pub(super) fn two_with_a_job(cluster: &Cluster, parallelism: u32) -> (FakeWorker, FakeWorker) {
    let (mut a, mut b) = (FakeWorker::new("a", 1), FakeWorker::new("b", 2));
    a.join(cluster);
    b.join(cluster);
    cluster.submit(&by(), job("j", parallelism)).unwrap();
    (a, b)
}

impl FakeWorker {
    pub(super) fn new(name: &'static str, incarnation: u64) -> FakeWorker {
        FakeWorker {
            name,
            incarnation,
            process: Arc::default(),
            deaf_to_completed: Arc::default(),
            mute: Arc::default(),
            stuck: Arc::default(),
            link: None,
        }
    }

    pub(super) fn register(&self) -> Register {
        let process = self.process.lock();
        let running = process.parts.iter().map(|(execution, part)| Running {
            execution: execution.clone(),
            tasks: part.tasks.clone(),
            started: part.started,
            restored: if part.started { part.tasks.clone() } else { Vec::new() },
            finished: Vec::new(),
            committed: part.committed.iter().map(|(task, checkpoint)| (*task, *checkpoint)).collect(),
            last_checkpoint: part.last_checkpoint,
            failure: None,
        });
        Register {
            version: VERSION.to_owned(),
            slots: 2,
            data_address: format!("{}:7", self.name),
            clock_ms: 1_700_000_001_000,
            running: running.collect(),
            led_by: process.led_by,
        }
    }

    /// Connects and registers; gives what it was answered.
    pub(super) fn join(&mut self, cluster: &Cluster) -> Command {
        self.join_as(cluster, self.register())
    }

    pub(super) fn join_as(&mut self, cluster: &Cluster, register: Register) -> Command {
        #[allow(clippy::disallowed_methods, reason = "as a worker's link: what a coordinator says never waits")]
        let (commands, told) = channel();
        let link = Arc::new(FakeLink(Mutex::new(Some(commands))));
        let number = cluster.attach(link.clone());
        let from = format!("10.0.0.1:{}", self.incarnation);
        cluster.register(number, Hello { name: self.name.into(), incarnation: self.incarnation, from }, register);
        let answer = told.recv().unwrap();
        if let Command::Welcome { keep, .. } = &answer {
            self.process.lock().led_by = Some(cluster.epoch());
            self.process.lock().parts.retain(|execution, _| keep.contains(execution));
            self.link = Some((number, link.clone()));
            let hand = Hand {
                name: self.name,
                cluster: cluster.clone(),
                link: number,
                process: self.process.clone(),
                deaf_to_completed: self.deaf_to_completed.clone(),
                mute: self.mute.clone(),
                stuck: self.stuck.clone(),
            };
            std::thread::spawn(move || hand.work(&told, &link));
        }
        answer
    }

    /// The connection breaks.
    pub(super) fn leave(&mut self, cluster: &Cluster) {
        if let Some((number, link)) = self.link.take() {
            link.close("");
            cluster.detach(number, "its connection broke");
        }
    }

    /// The coordinator at the other end is gone; nobody notices anything.
    pub(super) fn abandon(&mut self) {
        if let Some((_, link)) = self.link.take() {
            link.close("");
        }
    }

    /// Says something about each execution that runs.
    pub(super) fn say(&self, cluster: &Cluster, report: impl Fn(Execution, TaskId) -> Report) {
        let (number, _) = self.link.as_ref().unwrap();
        let parts: Vec<(Execution, TaskId)> =
            self.process.lock().parts.iter().map(|(execution, part)| (execution.clone(), part.tasks[0])).collect();
        parts.into_iter().for_each(|(execution, task)| cluster.report(*number, report(execution, task)));
    }

    /// Says this.
    pub(super) fn report(&self, cluster: &Cluster, report: Report) {
        let (number, _) = self.link.as_ref().unwrap();
        cluster.report(*number, report);
    }

    /// Its part of a job's newest execution.
    pub(super) fn part_of(&self, job: &str) -> (Execution, Vec<TaskId>) {
        let process = self.process.lock();
        let part = process.parts.iter().rev().find(|(execution, _)| execution.job == job);
        part.map(|(execution, part)| (execution.clone(), part.tasks.clone())).unwrap()
    }

    pub(super) fn heartbeat(&self, cluster: &Cluster) {
        let (number, _) = self.link.as_ref().unwrap();
        cluster.report(*number, Report::Heartbeat { progress: Vec::new() });
    }

    /// A heartbeat that says how far a job is.
    pub(super) fn heartbeat_of(&self, cluster: &Cluster, job: &str, rows: u64) {
        let (number, _) = self.link.as_ref().unwrap();
        let process = self.process.lock();
        let of_job = process.parts.iter().filter(|(execution, _)| execution.job == job);
        let progress = of_job.map(|(execution, part)| (execution.clone(), progress(&part.tasks, rows))).collect();
        cluster.report(*number, Report::Heartbeat { progress });
    }

    pub(super) fn runs(&self) -> Vec<(u64, usize)> {
        let process = self.process.lock();
        let started = process.parts.iter().filter(|(_, part)| part.started);
        started.map(|(execution, part)| (execution.attempt.0, part.tasks.len())).collect()
    }

    pub(super) fn starts(&self) -> u32 {
        self.process.lock().starts
    }

    pub(super) fn was_told(&self, what: &str) -> bool {
        self.process.lock().told.iter().any(|told| told.contains(what))
    }

    /// Every commit that took effect, in order.
    pub(super) fn commits(&self) -> Vec<(TaskId, u64)> {
        self.process.lock().committed.clone()
    }
}

/// The side of a worker that listens and answers.
struct Hand {
    name: &'static str,
    cluster: Cluster,
    link: LinkId,
    process: Arc<Mutex<Process>>,
    deaf_to_completed: Arc<AtomicBool>,
    mute: Arc<AtomicBool>,
    stuck: Arc<AtomicBool>,
}

impl Hand {
    fn work(&self, told: &Receiver<Command>, link: &FakeLink) {
        while let Ok(command) = told.recv() {
            if link.0.lock().is_none() || self.mute.load(Ordering::SeqCst) {
                continue;
            }
            for report in self.answers(command) {
                self.cluster.report(self.link, report);
            }
        }
    }

    fn answers(&self, command: Command) -> Vec<Report> {
        let mut process = self.process.lock();
        process.told.push(format!("{command:?}"));
        let Some(execution) = command.execution().cloned() else { return Vec::new() };
        if let Command::Prepare(prepare) = &command {
            let part = Part {
                tasks: prepare.placement.tasks_of(self.name),
                started: false,
                committed: BTreeMap::new(),
                last_checkpoint: CheckpointId(0),
            };
            process.parts.insert(execution.clone(), part);
            return vec![Report::Prepared { execution }];
        }
        if let Command::Cancel { .. } = command {
            if self.stuck.load(Ordering::SeqCst) {
                return Vec::new();
            }
            let tasks = process.parts.remove(&execution).map(|part| part.tasks).unwrap_or_default();
            return vec![Report::Ended { execution, progress: Box::new(progress(&tasks, 7)) }];
        }
        let Process { parts, committed, effective, starts, .. } = &mut *process;
        let Some(part) = parts.get_mut(&execution) else { return Vec::new() };
        match command {
            Command::Look { .. } => vec![Report::Looked { execution, sources: Vec::new() }],
            Command::Open { .. } => vec![Report::Opened { execution, templates: Vec::new() }],
            Command::Restore { .. } => vec![Report::Restored { execution }],
            Command::Build { .. } | Command::Commit { .. } => vec![Report::Built { execution }],
            Command::Start { .. } => {
                part.started = true;
                *starts += 1;
                part.tasks.iter().map(|&task| Report::TaskRestored { execution: execution.clone(), task }).collect()
            }
            Command::Trigger { checkpoint, stop, .. } => {
                part.last_checkpoint = checkpoint;
                let mut reports = Vec::new();
                for task in part.tasks.clone() {
                    reports.push(acknowledged(&execution, task, checkpoint));
                    if stop {
                        reports.push(Report::Finished { execution: execution.clone(), task });
                    }
                }
                reports
            }
            Command::Completed { checkpoint, commits, .. } if !self.deaf_to_completed.load(Ordering::SeqCst) => {
                let mut reports = Vec::new();
                for (task, commits) in commits {
                    for value in commits.iter().flat_map(|(_, values)| values).filter_map(serde_json::Value::as_u64) {
                        // A sink's commit is idempotent.
                        if effective.insert(value) {
                            committed.push((task, value));
                        }
                    }
                    part.committed.insert(task, checkpoint);
                    reports.push(Report::Committed { execution: execution.clone(), task, checkpoint });
                }
                reports
            }
            _ => Vec::new(),
        }
    }
}

/// What a checkpoint of a task holds: its sink has one thing to commit, which no other has.
pub(super) fn value_of(task: TaskId, checkpoint: CheckpointId) -> u64 {
    checkpoint.0 * 100 + u64::from(task.0)
}

/// Each task, a source chained to a sink, has read and written as many rows.
fn progress(tasks: &[TaskId], rows: u64) -> WorkerProgress {
    let counts = VertexCounts { rows_in: rows, rows_out: rows, rows_rejected: 0 };
    let task = |task: &TaskId| TaskProgress {
        task: *task,
        watermark: 5,
        busy_ns: 0,
        backpressured_ns: 0,
        pauses: Vec::new(),
        pause_max_ns: 0,
        vertices: vec![counts; 2],
        finished: false,
    };
    WorkerProgress {
        oddities: Default::default(),
        tasks: tasks.iter().map(task).collect(),
        gauges: [("out.whole".to_owned(), 1.0), ("out.none".to_owned(), f64::NAN)].into(),
        ..WorkerProgress::default()
    }
}

pub(super) fn acknowledged(execution: &Execution, task: TaskId, checkpoint: CheckpointId) -> Report {
    let acknowledgement = Acknowledgement {
        task,
        checkpoint,
        finished: false,
        watermarks: Vec::new(),
        source: Some(SourceAcknowledgement {
            splits: [(task.0.to_string(), json!(checkpoint.0))].into(),
            event_time_max: Timestamp::MIN,
        }),
        instances: Vec::new(),
        sinks: vec![SinkAcknowledgement {
            uid: "out".to_owned(),
            committables: vec![Committable { checkpoint: checkpoint.0, value: json!(value_of(task, checkpoint)) }],
        }],
        in_flight: Vec::new(),
        file: None,
        captured_bytes: 0,
        merged_bytes: 0,
        in_flight_bytes: 0,
    };
    Report::Acknowledged { execution: execution.clone(), acknowledgement: Box::new(acknowledgement) }
}

/// What the components of these tests say of themselves: `\0asm` and the name of a second output, if there is one.
fn described(bytes: &[u8]) -> Result<Description, String> {
    let name = bytes.strip_prefix(b"\0asm").ok_or_else(|| "no component".to_owned())?;
    let mut description = Description::plain();
    if !name.is_empty() {
        let name = String::from_utf8_lossy(name).into_owned();
        description.outputs.push(OutputPort { name, doc: String::new(), keeps_key: false });
    }
    Ok(description)
}
