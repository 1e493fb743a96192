//! A worker process: carries out what the coordinator says, step by step, as `weir_worker` does, and runs tasks turn by turn.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use weir_checkpoint::align::DeclineReason;
use weir_model::{Attempt, Barrier, BarrierKind, CheckpointId, TaskId};
use weir_protocol::{Command, Execution as ExecutionId, Failure, FailureKind, Prepare, Report as Say, Running};
use weir_storage::{JobStorage, Manifest, StorageError};
use weir_task::{Control, Outlet, SnapshotPart, Task, TaskHandle, TaskReport, Turn, Wake};

use crate::build::{Planned, Restored};
use crate::persister::{Done, Item, Persister};
use crate::scenario::Fault;
use crate::world::{Event, Session, World};

/// A worker process, and what is left of it while it is down.
pub(crate) struct Worker {
    pub(crate) alive: bool,
    /// Counts its processes.
    pub(crate) incarnation: u64,
    /// Its connection to the coordinator, as it sees it.
    pub(crate) session: Option<Session>,
    /// It tries to connect.
    pub(crate) connecting: bool,
    pub(crate) storage: Option<JobStorage>,
    pub(crate) executions: BTreeMap<Attempt, Execution>,
}

/// How far an execution is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Prepared,
    Restored,
    Built,
    Running,
    Failed,
}

/// One execution on one worker.
pub(crate) struct Execution {
    pub(crate) prepare: Prepare,
    pub(crate) planned: Arc<Planned>,
    pub(crate) manifest: Option<Arc<Manifest>>,
    pub(crate) restored: Restored,
    pub(crate) stage: Stage,
    pub(crate) tasks: BTreeMap<TaskId, SimTask>,
    pub(crate) persisters: BTreeMap<TaskId, Persister>,
    pub(crate) said: Running,
}

/// A task and when its next turn is.
pub(crate) struct SimTask {
    pub(crate) task: Task,
    pub(crate) handle: TaskHandle,
    /// Time and number of the next turn.
    next: Option<(u64, u64)>,
    busy_until_us: u64,
    over: bool,
}

impl SimTask {
    pub(crate) fn new(task: Task, handle: TaskHandle) -> SimTask {
        SimTask { task, handle, next: None, busy_until_us: 0, over: false }
    }
}

/// What tasks say in a turn.
pub(crate) enum Said {
    Part(TaskId, SnapshotPart),
    Report(TaskId, TaskReport),
}

/// Where they say it, to be looked at after the turn.
#[derive(Clone, Default)]
pub(crate) struct Mouth {
    pub(crate) said: Arc<Mutex<Vec<Said>>>,
    pub(crate) congested: Arc<std::sync::atomic::AtomicBool>,
}

impl Outlet for Mouth {
    fn snapshot(&mut self, task: TaskId, part: SnapshotPart) {
        self.said.lock().push(Said::Part(task, part));
    }

    fn report(&mut self, task: TaskId, report: TaskReport) {
        self.said.lock().push(Said::Report(task, report));
    }

    fn is_congested(&self) -> bool {
        self.congested.load(std::sync::atomic::Ordering::Relaxed)
    }
}

/// Who is woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Target {
    Task(usize, Attempt, TaskId),
    Writer(Attempt, usize),
    Reader(Attempt, usize),
}

/// Who is to be woken once the event that does it is over.
pub(crate) type Woken = Arc<Mutex<Vec<Target>>>;

#[derive(Debug)]
pub(crate) struct SimWake {
    pub(crate) target: Target,
    pub(crate) woken: Woken,
}

impl Wake for SimWake {
    fn wake(&self) {
        let mut woken = self.woken.lock();
        if !woken.contains(&self.target) {
            woken.push(self.target);
        }
    }
}

/// A failure that a restart may help against.
pub(crate) fn transient(reason: impl Into<String>) -> Failure {
    Failure { kind: FailureKind::Transient, uid: None, reason: reason.into() }
}

/// Tries again what the disk has refused, as workers do.
pub(crate) fn again<T>(operation: impl Fn() -> Result<T, StorageError>) -> Result<T, StorageError> {
    let mut result = operation();
    for _ in 0..3 {
        match &result {
            Err(error) if error.kind() == weir_storage::ErrorKind::Retry => result = operation(),
            _ => break,
        }
    }
    result
}

/// Name of a worker.
pub(crate) fn name_of(worker: usize) -> String {
    format!("w{worker}")
}

/// Number of a worker of that name.
pub(crate) fn number_of(name: &str) -> usize {
    name[1..].parse().unwrap_or(usize::MAX)
}

impl World {
    fn execution(&mut self, worker: usize, attempt: Attempt) -> Option<&mut Execution> {
        self.workers[worker].executions.get_mut(&attempt)
    }

    pub(crate) fn start_worker(&mut self, worker: usize) {
        let storage = self.open_storage();
        let of = &mut self.workers[worker];
        of.alive = true;
        of.incarnation += 1;
        of.storage = Some(storage);
        self.connect_soon(worker, 1_000);
    }

    pub(crate) fn connect_soon(&mut self, worker: usize, delay_us: u64) {
        if !std::mem::replace(&mut self.workers[worker].connecting, true) {
            let delay_us = self.random.delay_us(delay_us);
            self.after(delay_us, Event::Connect(worker));
        }
    }

    pub(crate) fn connect(&mut self, worker: usize) {
        self.workers[worker].connecting = false;
        if !self.workers[worker].alive || self.workers[worker].session.is_some() {
            return;
        }
        if !self.coordinator_is_up() || self.is_blocked_with_coordinator(worker) {
            self.connect_soon(worker, 50_000);
            return;
        }
        let session = self.new_session();
        let of = &mut self.workers[worker];
        of.session = Some(session);
        let running: Vec<Running> = of.executions.values().map(|execution| execution.said.clone()).collect();
        self.joins(worker, session, &running);
    }

    /// The worker's process ends, with all that it had not made durable.
    pub(crate) fn crash_worker(&mut self, worker: usize) {
        if !std::mem::replace(&mut self.workers[worker].alive, false) {
            return;
        }
        self.seen.worker_crashes += 1;
        self.drop_wires(worker, None);
        let of = &mut self.workers[worker];
        of.executions.clear();
        of.storage = None;
        let session = of.session.take();
        // At once where the connection is closed, else when heartbeats stay away.
        let delay_us = self.random.pick(&[500, 500, 2_000_000]);
        if let Some(session) = session {
            self.after(delay_us, Event::SessionOver(worker, session));
        }
        let delay_us = self.random.delay_us(400_000);
        self.after(delay_us, Event::WorkerStarts(worker));
    }

    /// What the worker says to the coordinator, a little later.
    pub(crate) fn say(&mut self, worker: usize, report: Say, delay_us: u64) {
        let Some(session) = self.workers[worker].session else { return };
        self.send_to_coordinator(worker, session, report, delay_us);
    }

    pub(crate) fn fail(&mut self, worker: usize, attempt: Attempt, failure: Failure) {
        let Some(execution) = self.execution(worker, attempt) else { return };
        if execution.said.failure.is_some() {
            return;
        }
        execution.said.failure = Some(failure.clone());
        let execution = execution.said.execution.clone();
        self.log(|| format!("worker {worker}: {execution} failed: {}", failure.reason));
        self.say(worker, Say::Failed { execution, failure }, 0);
    }

    /// A connection to another worker is lost.
    pub(crate) fn peer_lost(&mut self, worker: usize, incarnation: u64, attempt: Attempt) {
        if self.workers[worker].alive && self.workers[worker].incarnation == incarnation {
            let kind = FailureKind::PeerLost;
            self.fail(worker, attempt, Failure { kind, uid: None, reason: "a peer is lost".to_owned() });
        }
    }

    /// Carries a command out.
    pub(crate) fn hear(&mut self, worker: usize, command: Command) {
        match command {
            Command::Welcome { keep, .. } => {
                let others = self.workers[worker].executions.keys().copied();
                let gone: Vec<Attempt> = others.filter(|attempt| keep.iter().all(|keep| keep.attempt != *attempt)).collect();
                gone.into_iter().for_each(|attempt| self.cancel(worker, attempt, false));
            }
            Command::Prepare(prepare) => self.prepare(worker, *prepare),
            Command::Restore { execution, .. } => {
                self.in_step(worker, &execution, Stage::Prepared, Stage::Restored, |world, worker, attempt| {
                    world.restore(worker, attempt).map(|()| Say::Restored { execution: execution.clone() })
                });
            }
            Command::Commit { execution } => {
                self.in_step(worker, &execution, Stage::Prepared, Stage::Prepared, |world, worker, attempt| {
                    world.make_sinks(worker, attempt).map(|_| Say::Built { execution: execution.clone() })
                });
            }
            Command::Build { execution } => {
                self.in_step(worker, &execution, Stage::Restored, Stage::Built, |world, worker, attempt| {
                    world.build(worker, attempt).map(|()| Say::Built { execution: execution.clone() })
                });
            }
            Command::Start { execution } => self.start(worker, execution.attempt),
            Command::Trigger { execution, checkpoint, stop, unaligned } => {
                let kind = if stop { BarrierKind::Stop } else { BarrierKind::Checkpoint };
                let barrier = Barrier { attempt: execution.attempt, checkpoint, kind, unaligned };
                self.told_of(worker, execution.attempt, checkpoint);
                self.tell_tasks(worker, execution.attempt, |_| Control::Trigger(barrier));
            }
            Command::Unalign { execution, checkpoint } => {
                self.tell_tasks(worker, execution.attempt, |_| Control::Unalign(checkpoint));
            }
            Command::Abort { execution, checkpoint } => {
                self.told_of(worker, execution.attempt, checkpoint);
                self.tell_tasks(worker, execution.attempt, |_| Control::Abort(checkpoint));
            }
            Command::Completed { execution, checkpoint, commits } => {
                let attempt = execution.attempt;
                let Some(of) = self.execution(worker, attempt).filter(|of| of.stage == Stage::Running) else { return };
                let tasks: Vec<TaskId> = of.persisters.keys().copied().collect();
                for task in tasks {
                    self.persist(worker, attempt, task, Item::Completed(checkpoint));
                }
                let mut commits: BTreeMap<_, _> = commits.into_iter().collect();
                self.tell_tasks(worker, attempt, |task| {
                    let commit = commits.remove(&task).unwrap_or_default();
                    Control::Completed {
                        checkpoint,
                        commit: commit.into_iter().map(|(uid, values)| (uid.into(), values)).collect(),
                    }
                });
            }
            Command::Cancel { execution, finish } => self.cancel(worker, execution.attempt, finish),
            // Its sources never have more after their end.
            Command::Refused { .. }
            | Command::Component { .. }
            | Command::NoComponent { .. }
            | Command::Look { .. }
            | Command::Open { .. } => {
                self.outside.complain(format!("worker {worker} was told {command:?}"));
            }
        }
    }

    fn in_step(
        &mut self,
        worker: usize,
        execution: &ExecutionId,
        from: Stage,
        to: Stage,
        step: impl FnOnce(&mut World, usize, Attempt) -> Result<Say, Failure>,
    ) {
        let attempt = execution.attempt;
        match self.execution(worker, attempt).map(|of| of.stage) {
            Some(stage) if stage == from => {}
            Some(Stage::Failed) | None => return,
            Some(stage) => {
                self.outside.complain(format!("worker {worker}: out of turn: {stage:?} -> {to:?}"));
                return;
            }
        }
        let result = step(self, worker, attempt);
        let stage = if result.is_ok() { to } else { Stage::Failed };
        if let Some(of) = self.execution(worker, attempt) {
            of.stage = stage;
        }
        match result {
            Ok(say) => {
                let delay_us = self.random.delay_us(2_000);
                self.say(worker, say, delay_us);
            }
            Err(failure) => self.fail(worker, attempt, failure),
        }
    }

    fn prepare(&mut self, worker: usize, prepare: Prepare) {
        let attempt = prepare.execution.attempt;
        let planned = self.planned(attempt);
        let Some(storage) = self.workers[worker].storage.clone() else { return };
        let read = prepare.restore.map(|id| again(|| storage.manifest(id)).map(Arc::new));
        let said = Running {
            execution: prepare.execution.clone(),
            tasks: prepare.placement.tasks_of(&name_of(worker)),
            started: false,
            finished: Vec::new(),
            committed: Vec::new(),
            last_checkpoint: CheckpointId(0),
            failure: None,
        };
        let (manifest, failure) = match read.transpose() {
            Ok(manifest) => (manifest, None),
            Err(error) => (None, Some(transient(error.to_string()))),
        };
        let execution = prepare.execution.clone();
        let of = Execution {
            prepare,
            planned,
            manifest,
            restored: Restored::default(),
            stage: if failure.is_none() { Stage::Prepared } else { Stage::Failed },
            tasks: BTreeMap::new(),
            persisters: BTreeMap::new(),
            said,
        };
        self.workers[worker].executions.insert(attempt, of);
        match failure {
            None => {
                let delay_us = self.random.delay_us(1_000);
                self.say(worker, Say::Prepared { execution }, delay_us);
            }
            Some(failure) => self.fail(worker, attempt, failure),
        }
    }

    fn start(&mut self, worker: usize, attempt: Attempt) {
        let Some(of) = self.execution(worker, attempt).filter(|of| of.stage == Stage::Built) else { return };
        of.stage = Stage::Running;
        of.said.started = true;
        let tasks: Vec<TaskId> = of.tasks.keys().copied().collect();
        for task in tasks {
            let delay_us = self.random.delay_us(1_000);
            self.schedule_turn(worker, attempt, task, delay_us);
        }
        let here = self.wires.iter_mut().filter(|(key, wire)| key.0 == attempt && wire.from == worker);
        let keys: Vec<_> = here
            .map(|(key, wire)| {
                wire.connected = true;
                *key
            })
            .collect();
        keys.into_iter().for_each(|key| self.wake_writer(key));
    }

    fn told_of(&mut self, worker: usize, attempt: Attempt, checkpoint: CheckpointId) {
        if let Some(of) = self.execution(worker, attempt) {
            of.said.last_checkpoint = of.said.last_checkpoint.max(checkpoint);
        }
    }

    fn tell_tasks(&mut self, worker: usize, attempt: Attempt, mut control: impl FnMut(TaskId) -> Control) {
        let Some(of) = self.execution(worker, attempt).filter(|of| of.stage == Stage::Running) else { return };
        let tasks: Vec<TaskId> = of.tasks.keys().copied().collect();
        for task in tasks {
            if let Some(sim) = self.execution(worker, attempt).and_then(|of| of.tasks.get(&task)) {
                sim.handle.tell(control(task));
            }
            self.wake(Target::Task(worker, attempt, task));
        }
    }

    /// Ends an execution. Gives up what is not written, or writes it.
    pub(crate) fn cancel(&mut self, worker: usize, attempt: Attempt, finish: bool) {
        let Some(mut of) = self.workers[worker].executions.remove(&attempt) else {
            // Nothing runs: a master that asks hears so.
            let execution = self.execution_id(attempt);
            self.say(worker, Say::Ended { execution, progress: Box::default() }, 0);
            return;
        };
        drop(std::mem::take(&mut of.tasks));
        if finish && let Some(storage) = self.workers[worker].storage.clone() {
            for (task, persister) in &mut of.persisters {
                while !persister.queue.is_empty() {
                    persister.step(&storage, (attempt, *task), self.mutation);
                }
            }
        }
        for persister in of.persisters.values() {
            self.seen.in_flight_rows += persister.in_flight_rows;
            self.seen.again_rows += persister.again_rows;
            self.seen.merges += persister.merges;
        }
        self.drop_wires(worker, Some(attempt));
        let delay_us = self.random.delay_us(1_000);
        self.say(worker, Say::Ended { execution: of.said.execution, progress: Box::default() }, delay_us);
    }

    /// Somebody has something for it.
    pub(crate) fn wake(&mut self, target: Target) {
        match target {
            Target::Task(worker, attempt, task) => {
                let delay_us = 1 + self.random.below(60);
                self.schedule_turn(worker, attempt, task, delay_us);
            }
            Target::Writer(attempt, channel) => self.wake_writer((attempt, channel)),
            Target::Reader(attempt, channel) => {
                let delay_us = 1 + self.random.below(60);
                self.wake_reader((attempt, channel), delay_us);
            }
        }
    }

    fn schedule_turn(&mut self, worker: usize, attempt: Attempt, task: TaskId, delay_us: u64) {
        let (now_us, number) = (self.clock.now_us(), self.next_number());
        let incarnation = self.workers[worker].incarnation;
        let Some(of) = self.execution(worker, attempt).filter(|of| of.stage == Stage::Running) else { return };
        let Some(sim) = of.tasks.get_mut(&task).filter(|sim| !sim.over) else { return };
        let at_us = (now_us + delay_us).max(sim.busy_until_us);
        if sim.next.is_some_and(|(next_us, _)| next_us <= at_us) {
            return;
        }
        sim.next = Some((at_us, number));
        self.at(at_us, Event::Turn { worker, incarnation, attempt, task, number });
    }

    pub(crate) fn turn(&mut self, worker: usize, incarnation: u64, attempt: Attempt, task: TaskId, number: u64) {
        if self.workers[worker].incarnation != incarnation {
            return;
        }
        let congested = self.random.percent(15);
        self.mouth.congested.store(congested, std::sync::atomic::Ordering::Relaxed);
        let (clock, started_us) = (self.clock.clone(), self.clock.now_us());
        let Some(of) = self.execution(worker, attempt).filter(|of| of.stage == Stage::Running) else { return };
        let Some(sim) = of.tasks.get_mut(&task).filter(|sim| sim.next.is_some_and(|(_, next)| next == number)) else { return };
        sim.next = None;
        let turn = sim.task.turn();
        let spent_us = clock.now_us() - started_us;
        sim.busy_until_us = clock.now_us() + 1;
        sim.over = turn == Turn::Over;
        let word = match turn {
            Turn::Go => 1,
            Turn::Wait(None) => 2,
            Turn::Wait(Some(time)) => 3 + time.as_micros() as u64,
            Turn::Over => 0,
        };
        self.trace.note(&[word, spent_us]);
        match turn {
            Turn::Go => {
                let delay_us = 1 + self.random.below(40);
                self.schedule_turn(worker, attempt, task, delay_us);
            }
            Turn::Wait(Some(time)) => self.schedule_turn(worker, attempt, task, time.as_micros() as u64 + 1),
            Turn::Wait(None) | Turn::Over => {}
        }
        let said = std::mem::take(&mut *self.mouth.said.lock());
        said.into_iter().for_each(|said| self.task_said(worker, attempt, said));
    }

    fn task_said(&mut self, worker: usize, attempt: Attempt, said: Said) {
        let execution = self.execution_id(attempt);
        match said {
            Said::Part(task, part) => self.persist(worker, attempt, task, Item::Part(part)),
            Said::Report(task, TaskReport::Committed(checkpoint)) => {
                self.persist(worker, attempt, task, Item::Committed(checkpoint));
                if let Some(of) = self.execution(worker, attempt) {
                    of.said.committed.retain(|(known, _)| *known != task);
                    of.said.committed.push((task, checkpoint));
                }
                self.say(worker, Say::Committed { execution, task, checkpoint }, 0);
            }
            Said::Report(task, TaskReport::Declined { checkpoint, reason }) => {
                self.seen.declined += 1;
                let subsumed_by = match &reason {
                    DeclineReason::Subsumed { by } => Some(*by),
                    DeclineReason::Failed(_) => None,
                };
                let reason = reason.to_string();
                self.say(worker, Say::Declined { execution, task, checkpoint, subsumed_by, reason }, 0);
            }
            Said::Report(task, TaskReport::Finished) => {
                if let Some(of) = self.execution(worker, attempt) {
                    of.said.finished.push(task);
                }
                self.say(worker, Say::Finished { execution, task }, 0);
            }
            Said::Report(task, TaskReport::Failed(error)) => {
                if error.is_permanent() {
                    self.outside.complain(format!("task {task} failed for good: {error}"));
                }
                self.fail(worker, attempt, transient(error.to_string()));
            }
        }
    }

    fn persist(&mut self, worker: usize, attempt: Attempt, task: TaskId, item: Item) {
        let Some(persister) = self.execution(worker, attempt).and_then(|of| of.persisters.get_mut(&task)) else { return };
        persister.queue.push_back(item);
        if !std::mem::replace(&mut persister.scheduled, true) {
            self.schedule_persist(worker, attempt, task);
        }
    }

    fn schedule_persist(&mut self, worker: usize, attempt: Attempt, task: TaskId) {
        let usual_us = self.disk_us();
        let delay_us = self.random.delay_us(usual_us);
        let incarnation = self.workers[worker].incarnation;
        self.after(delay_us, Event::Persist { worker, incarnation, attempt, task });
    }

    pub(crate) fn persist_some(&mut self, worker: usize, incarnation: u64, attempt: Attempt, task: TaskId) {
        if self.workers[worker].incarnation != incarnation {
            return;
        }
        let (count, mutation) = (self.random.between(1, 12), self.mutation);
        let Some(storage) = self.workers[worker].storage.clone() else { return };
        let Some(persister) = self.execution(worker, attempt).and_then(|of| of.persisters.get_mut(&task)) else { return };
        let mut done = Vec::new();
        for _ in 0..count {
            done.extend(persister.step(&storage, (attempt, task), mutation));
        }
        persister.scheduled = !persister.queue.is_empty();
        if persister.scheduled {
            self.schedule_persist(worker, attempt, task);
        }
        let execution = self.execution_id(attempt);
        for done in done {
            if self.step_fault(Fault::WorkerCrash, worker) {
                return;
            }
            let execution = execution.clone();
            let say = match done {
                Done::Acknowledged(acknowledgement) => Say::Acknowledged { execution, acknowledgement },
                Done::Failed(checkpoint, reason) => {
                    self.seen.persist_failed += 1;
                    Say::PersistFailed { execution, task, checkpoint, reason }
                }
            };
            self.say(worker, say, 0);
        }
    }

    /// Workers that run something of an attempt that is not the current one.
    pub(crate) fn stale_executions(&self, current: Attempt) -> usize {
        let stale = |worker: &Worker| worker.executions.keys().filter(|attempt| **attempt < current).count();
        self.workers.iter().map(stale).sum()
    }
}
