//! A master on a bench: whatever it says is kept, and a test answers as it likes. Time is a number.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use object_store::memory::InMemory;
use weir_model::{Attempt, CheckpointId, Epoch, TaskId};
use weir_protocol::{
    Acknowledgement, Command, Execution, Failure, FailureKind, JobSpec, Prepare, Report, Running, WorkerAddress, WorkerId,
    WorkerProgress,
};
use weir_storage::{Durable, JobLog, JobStorage, MANIFEST_FORMAT, Manifest, ManifestKind, Writer};

use crate::{
    Adopted, Begun, BegunAttempt, Claimed, Input, JobError, Led, Limits, Master, MasterJob, Notice, Now, Outcome, Output,
    RequestId, Slots, Store, StoreFailure, StoreFailureKind, Stored, Wish,
};

pub(super) const WORKERS: [&str; 2] = ["a", "b"];

/// A job of two subtasks, a checkpoint each second, and restarts after 10 ms.
pub(super) fn spec() -> JobSpec {
    let text = "[job]\nname = \"j\"\nparallelism = 2\n[job.checkpoint]\ninterval = \"1s\"\ntimeout = \"10s\"\n[job.restart]\n\
                strategy = \"fixed\"\ndelay = \"10ms\"\nattempts = 5\n[[source]]\nid = \"in\"\nconnector = \"generator\"\n[[sink]]\n\
                id = \"out\"\nconnector = \"blackhole\"\ninput = \"in\"\n";
    JobSpec::new("j.toml", text)
}

/// What a test wants of the job.
#[derive(Clone, Default)]
pub(super) struct Settings {
    pub(super) fresh: bool,
    pub(super) impatient: bool,
    pub(super) adopted: Option<Adopted>,
}

/// The master, and what it has said.
pub(super) struct Bench {
    pub(super) master: Master,
    pub(super) now_ms: u64,
    /// What was said and not answered yet.
    pub(super) said: VecDeque<Output>,
    /// Everything that was ever said, in words.
    pub(super) log: Vec<String>,
    pub(super) notices: Vec<Notice>,
    /// Requests that are answered by nobody but a test.
    pub(super) asked: Vec<(RequestId, Store)>,
    /// The storage does not answer.
    pub(super) hangs: bool,
    /// Sinks of worker `b` do not get on with their commits.
    pub(super) commits_hang: bool,
    /// Attempts that have begun.
    pub(super) attempts: u64,
    /// Checkpoints that are complete.
    pub(super) complete: Vec<Durable>,
    /// Commands of each worker that it has not answered.
    pub(super) commands: Vec<(WorkerId, Command)>,
    pub(super) over: Option<Result<Outcome, JobError>>,
}

impl Bench {
    pub(super) fn new(settings: Settings) -> Bench {
        let job = MasterJob {
            spec: spec(),
            default_storage: "memory:".to_owned(),
            fresh: settings.fresh,
            allow_dropped_state: false,
            patient: !settings.impatient,
            adopted: settings.adopted,
        };
        let mut bench = Bench {
            master: Master::new(job, Limits::DEFAULT).unwrap(),
            now_ms: 5,
            said: VecDeque::new(),
            log: Vec::new(),
            notices: Vec::new(),
            asked: Vec::new(),
            hangs: false,
            commits_hang: false,
            attempts: 0,
            complete: Vec::new(),
            commands: Vec::new(),
            over: None,
        };
        bench.tell(Input::Tick);
        bench
    }

    /// Tells the master something, and sorts what it says.
    pub(super) fn tell(&mut self, input: Input) {
        let now = Now { steady_ms: self.now_ms, wall_ms: 1_700_000_000_000 + self.now_ms, random: 7 };
        let mut out = Vec::new();
        self.master.handle(now, input, &mut out);
        self.take(out);
    }

    pub(super) fn take(&mut self, out: Vec<Output>) {
        for output in out {
            assert!(self.over.is_none(), "after the end: {output:?}");
            self.log.push(format!("{output:?}"));
            match output {
                Output::Send { worker, command } => self.commands.push((worker, command)),
                Output::Store { request, what, .. } => self.asked.push((request, what)),
                Output::Notice(notice) => self.notices.push(notice),
                Output::Over(end) => self.over = Some(*end),
                other => self.said.push_back(other),
            }
        }
    }

    pub(super) fn wish(&mut self, wish: Wish) {
        self.tell(Input::Wish(wish));
    }

    /// Lets time pass until the master has nothing to do for the rest of it.
    pub(super) fn pass(&mut self, ms: u64) {
        let until_ms = self.now_ms + ms;
        while self.over.is_none()
            && let Some(due_ms) = self.master.deadline_ms().filter(|due_ms| *due_ms <= until_ms)
        {
            self.now_ms = self.now_ms.max(due_ms);
            self.tell(Input::Tick);
        }
        self.now_ms = until_ms;
    }

    /// Answers what can be answered at once: slots and records.
    pub(super) fn answer(&mut self) {
        while let Some(output) = self.said.pop_front() {
            match output {
                Output::Reserve { slots } => self.tell(Input::Slots(Ok(slots_of(slots)))),
                Output::Record(_) => self.tell(Input::Recorded(Ok(()))),
                _ => {}
            }
        }
    }

    /// The storage answers everything, as one that works does.
    pub(super) fn store(&mut self) {
        for (request, what) in std::mem::take(&mut self.asked) {
            if let Some(stored) = self.carry_out(&what) {
                self.tell(Input::Stored { request, answer: Ok(stored) });
            }
        }
    }

    /// The storage answers the last request with a failure.
    pub(super) fn refuse(&mut self, kind: StoreFailureKind) {
        let (request, _) = self.asked.pop().unwrap();
        let answer = Err(StoreFailure { kind, reason: format!("the storage is {kind:?}") });
        self.tell(Input::Stored { request, answer });
    }

    fn carry_out(&mut self, what: &Store) -> Option<Stored> {
        Some(match what {
            Store::Claim { fresh, .. } => {
                if *fresh {
                    self.complete.clear();
                }
                Stored::Claimed(Claimed::Ours)
            }
            Store::Begin { void } => {
                self.attempts += 1;
                self.complete.retain(|manifest| !void.contains(&manifest.id()));
                Stored::Begun(Box::new(BegunAttempt {
                    attempt: Attempt(self.attempts),
                    from: self.complete.last().cloned(),
                    skipped: Vec::new(),
                    first_checkpoint: self.next_checkpoint(),
                    retract_after: None,
                }))
            }
            Store::Lead { attempt } => Stored::Led(Box::new(Led {
                newest_attempt: Attempt(self.attempts.max(attempt.0)),
                newest: self.complete.last().cloned(),
                next_checkpoint: self.next_checkpoint(),
            })),
            Store::Newest => Stored::Newest(self.complete.last().cloned()),
            Store::Complete { manifest, .. } => {
                let durable = durable(manifest.attempt, manifest.id(), manifest.kind);
                self.complete.push(durable.clone());
                Stored::Completed(durable)
            }
            Store::Tidy | Store::Remove(_) => return None,
        })
    }

    fn next_checkpoint(&self) -> CheckpointId {
        CheckpointId(self.complete.last().map_or(0, |manifest| manifest.checkpoint) + 1)
    }

    /// Workers answer everything, as those that are well do.
    pub(super) fn work(&mut self) {
        let commits_hang = self.commits_hang;
        let hangs = |(worker, command): &mut (WorkerId, Command)| {
            commits_hang && **worker == *"b" && matches!(command, Command::Completed { .. })
        };
        for (worker, command) in self.commands.extract_if(.., |told| !hangs(told)).collect::<Vec<_>>() {
            for report in answers(&worker, &command) {
                self.tell(Input::Report { worker: worker.clone(), report: Box::new(report) });
            }
        }
    }

    /// Everybody answers until nobody has anything to say.
    pub(super) fn settle(&mut self) {
        for _ in 0..1_000 {
            if self.over.is_some() {
                return;
            }
            let only_hangs = |(_, command): &(_, Command)| self.commits_hang && matches!(command, Command::Completed { .. });
            let quiet = self.said.is_empty() && self.commands.iter().all(only_hangs) && (self.hangs || self.asked.is_empty());
            if quiet {
                return;
            }
            self.answer();
            self.work();
            if !self.hangs {
                self.store();
            }
        }
        panic!("it goes on for ever: {:?}", &self.log[self.log.len() - 20..]);
    }

    pub(super) fn was_told(&self, what: &str) -> bool {
        self.log.iter().any(|said| said.contains(what))
    }

    pub(super) fn lose(&mut self, worker: &str) {
        self.tell(Input::WorkerLost { worker: worker.into(), reason: "its cable was cut".to_owned() });
        self.commands.retain(|(of, _)| **of != *worker);
    }

    pub(super) fn fail(&mut self, kind: FailureKind) {
        let failure = Failure { kind, uid: None, reason: "its disk is full".to_owned() };
        let execution = Execution { job: "j".to_owned(), attempt: Attempt(self.attempts) };
        self.tell(Input::Report { worker: "a".into(), report: Box::new(Report::Failed { execution, failure }) });
    }

    /// How the job ended, in a word.
    pub(super) fn end(&self) -> String {
        match self.over.as_ref() {
            None => "not at all".to_owned(),
            Some(Ok(Outcome::Finished(_))) => "finished".to_owned(),
            Some(Ok(Outcome::Stopped(_))) => "stopped".to_owned(),
            Some(Ok(Outcome::StoppedBetween { failure: None, .. })) => "stopped between".to_owned(),
            Some(Ok(Outcome::StoppedBetween { failure: Some(_), .. })) => "stopped by a failure".to_owned(),
            Some(Ok(Outcome::Cancelled)) => "cancelled".to_owned(),
            Some(Ok(Outcome::AlreadyFinished { .. })) => "already finished".to_owned(),
            Some(Ok(Outcome::Left)) => "left".to_owned(),
            Some(Err(error)) => format!("error: {error}"),
        }
    }
}

pub(super) fn slots_of(slots: u32) -> Slots {
    let address = |worker: &&str| WorkerAddress { worker: (*worker).to_owned(), address: String::new() };
    let workers = WORKERS.iter().take(slots as usize).map(address).collect();
    Slots { workers, slots: (0..slots).map(|slot| slot % WORKERS.len() as u32).collect() }
}

/// A manifest that is really stored, somewhere.
pub(super) fn durable(attempt: Attempt, checkpoint: CheckpointId, kind: ManifestKind) -> Durable {
    let storage = JobStorage::with_store(Arc::new(InMemory::new()), "memory:", "j").unwrap();
    let mut log = JobLog::new(storage, Writer { epoch: Epoch { origin: [1; 16], count: 1 }, nonce: 1 });
    while log.begin(&[]).unwrap().attempt < attempt {}
    let manifest = Manifest {
        format: MANIFEST_FORMAT,
        job: "j".to_owned(),
        attempt,
        checkpoint: checkpoint.0,
        kind,
        triggered_at_ms: 1,
        completed_at_ms: 2,
        key_groups: 128,
        bytes_written: 0,
        origin: Some("j.toml".to_owned()),
        operators: BTreeMap::new(),
        files: Vec::new(),
    };
    log.complete(&Arc::new(manifest), 1).unwrap()
}

/// The task of a worker: one subtask each.
pub(super) fn task_of(worker: &str) -> TaskId {
    TaskId(if worker == WORKERS[0] { 0 } else { 1 })
}

fn answers(worker: &str, command: &Command) -> Vec<Report> {
    let Some(execution) = command.execution().cloned() else { return Vec::new() };
    let task = task_of(worker);
    match command {
        Command::Prepare(_) => vec![Report::Prepared { execution }],
        Command::Look { .. } => vec![Report::Looked { execution, sources: Vec::new() }],
        Command::Open { .. } => vec![Report::Opened { execution, templates: Vec::new() }],
        Command::Restore { .. } => vec![Report::Restored { execution }],
        Command::Build { .. } | Command::Commit { .. } => vec![Report::Built { execution }],
        Command::Start { .. } => vec![Report::TaskRestored { execution, task }],
        Command::Trigger { checkpoint, .. } => {
            let acknowledgement = Box::new(acknowledgement(task, *checkpoint));
            vec![Report::Acknowledged { execution, acknowledgement }]
        }
        Command::Completed { checkpoint, .. } => vec![Report::Committed { execution, task, checkpoint: *checkpoint }],
        Command::Cancel { .. } => vec![Report::Ended { execution, progress: Box::<WorkerProgress>::default() }],
        _ => Vec::new(),
    }
}

pub(super) fn acknowledgement(task: TaskId, checkpoint: CheckpointId) -> Acknowledgement {
    Acknowledgement {
        task,
        checkpoint,
        finished: false,
        watermarks: Vec::new(),
        source: None,
        instances: Vec::new(),
        sinks: Vec::new(),
        in_flight: Vec::new(),
        file: None,
        captured_bytes: 0,
        merged_bytes: 0,
        in_flight_bytes: 0,
    }
}

/// Attempt 3 of the job, both tasks of which run, told of checkpoint `last`, committed up to `committed`.
pub(super) fn adopted(last: u64, committed: u64) -> Adopted {
    let slots = slots_of(2);
    let execution = Execution { job: "j".to_owned(), attempt: Attempt(3) };
    let placement = weir_protocol::Placement { workers: slots.workers, tasks: vec![0, 1] };
    let prepare = Prepare {
        execution: execution.clone(),
        spec: spec(),
        placement,
        storage: "memory:".to_owned(),
        restore: None,
        first_checkpoint: CheckpointId(1),
        edges_apart: Vec::new(),
        retract_after: None,
    };
    let running = WORKERS.map(|worker| {
        let running = Running {
            execution: execution.clone(),
            tasks: vec![task_of(worker)],
            started: true,
            restored: vec![task_of(worker)],
            finished: Vec::new(),
            committed: vec![(task_of(worker), CheckpointId(committed))],
            last_checkpoint: CheckpointId(last),
            failure: None,
        };
        (WorkerId::from(worker), running)
    });
    Adopted { begun: Begun { prepare, templates: Vec::new() }, running: running.into() }
}
