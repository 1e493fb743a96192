//! The coordinator process: workers come and go, and one job has a master that follows `weir_coordinator::master` step by step,
//! around the real checkpoint machine, the real restart strategies, real manifests.
//!
//! What is written to the store or recorded survives its crashes, nothing else does. A coordinator that starts again waits for the
//! workers of the execution it finds recorded, and takes it over if all of it runs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use weir_checkpoint::align::DeclineReason;
use weir_checkpoint::coordinator::{Action, CompletionKind, Config, Coordinator, Event as Heard};
use weir_checkpoint::restart::{Decision, Restarts, Strategy};
use weir_model::{Attempt, Barrier, BarrierKind, CheckpointId, TaskId};
use weir_protocol::manifest::{Header, assemble, edges_apart};
use weir_protocol::{Acknowledgement, Command, Commits, Execution as ExecutionId, Placement, Prepare, Report, Running, WorkerAddress};
use weir_storage::{ErrorKind, JobStorage, Manifest, ManifestKind, StorageError};

use crate::build::Planned;
use crate::scenario::{Fault, Mode, Mutation};
use crate::worker::{again, name_of, number_of};
use crate::world::{Event, Session, World};

/// Longest wait for the workers of an execution that is to be taken over, and for threads to end.
const PATIENCE_US: u64 = 15_000_000;

/// Times that a manifest is written before it counts as failed.
const MANIFEST_TRIES: u32 = 4;

/// What follows the end of an execution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Finished,
    /// Somebody stopped it; it is started again.
    Stopped,
    Restart(String),
    Rescaled,
}

/// The answer that a step of building waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Prepared,
    Restored,
    Built,
}

/// An execution that is being built, or runs.
pub(crate) struct Deployed {
    id: ExecutionId,
    prepare: Prepare,
    planned: Arc<Planned>,
    alive: BTreeSet<usize>,
    final_manifest: bool,
}

/// A running execution.
pub(crate) struct Driver {
    deployed: Deployed,
    coordinator: Coordinator,
    started_us: u64,
    acknowledgements: BTreeMap<CheckpointId, Vec<Acknowledgement>>,
    last_completed: CheckpointId,
    last_triggered: CheckpointId,
    committed: Vec<CheckpointId>,
    done: Option<CompletionKind>,
    rescale_from: Option<CheckpointId>,
    /// The manifest that is being written, and how often that was tried.
    writing: Option<(Manifest, u32)>,
}

enum Phase {
    /// The process does not run.
    Down,
    TakingOver { prepare: Box<Prepare>, back: BTreeMap<usize, Running> },
    /// For slots, or until a restart is due.
    Waiting { for_slots: bool },
    Building { deployed: Box<Deployed>, answer: Answer, missing: BTreeSet<usize> },
    Running(Box<Driver>),
    Ending { attempt: Attempt, missing: BTreeSet<usize>, next: Next },
    Over,
}

/// The coordinator.
pub(crate) struct Master {
    phase: Phase,
    /// Counts phases, so that timers of earlier ones are told apart.
    generation: u64,
    storage: Option<JobStorage>,
    restarts: Restarts,
    connected: BTreeMap<usize, Session>,
    parallelism: BTreeMap<&'static str, u32>,
    /// Recorded durably: the execution that began last.
    recorded: Option<Prepare>,
    /// Recorded durably: somebody wants the job to stop.
    stop_wanted: bool,
    tick_us: Option<u64>,
}

/// What a timer of the master is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timer {
    Tick,
    Restart,
    Manifest,
    Patience,
}

fn restarts() -> Restarts {
    let strategy = Strategy::Exponential { initial_ms: 20, max_ms: 500, multiplier: 2.0, reset_after_ms: 5_000, jitter: 0.2 };
    Restarts::new(strategy)
}

impl Master {
    pub(crate) fn new(parallelism: BTreeMap<&'static str, u32>) -> Master {
        Master {
            phase: Phase::Down,
            generation: 0,
            storage: None,
            restarts: restarts(),
            connected: BTreeMap::new(),
            parallelism,
            recorded: None,
            stop_wanted: false,
            tick_us: None,
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Over)
    }

    /// What it is about, for messages.
    pub(crate) fn describe(&self) -> String {
        match &self.phase {
            Phase::Down => "the coordinator is down".to_owned(),
            Phase::TakingOver { prepare, back } => format!("taking over {}, back: {:?}", prepare.execution, back.keys()),
            Phase::Waiting { for_slots } => format!("waiting, for slots: {for_slots}"),
            Phase::Building { deployed, answer, missing } => format!("building {}: {answer:?} of {missing:?}", deployed.id),
            Phase::Running(driver) => format!(
                "running {}: completed {}, pending {:?}, done {:?}, committed {:?}",
                driver.deployed.id,
                driver.last_completed,
                driver.coordinator.pending().map(|of| (of.checkpoint(), of.missing().collect::<Vec<_>>())).collect::<Vec<_>>(),
                driver.done,
                driver.committed
            ),
            Phase::Ending { attempt, missing, next } => format!("ending attempt {attempt}: {missing:?}, then {next:?}"),
            Phase::Over => "over".to_owned(),
        }
    }
}

impl Driver {
    fn all_committed(&self) -> Option<Next> {
        let kind = self.done?;
        if self.committed.iter().any(|checkpoint| *checkpoint < self.last_completed) {
            return None;
        }
        Some(if kind == CompletionKind::Final { Next::Finished } else { Next::Stopped })
    }

    fn committables(&self, task: TaskId, manifest: &Manifest) -> Commits {
        let Planned { job, topology } = &*self.deployed.planned;
        let (chain, subtask) = topology.locate(task);
        let of_vertex = |&vertex: &usize| {
            let uid = &job.vertices[vertex].uid;
            let subtask = manifest.operators.get(uid)?.subtasks.get(subtask as usize)?;
            let values: Vec<_> = subtask.committables.iter().map(|committable| committable.value.clone()).collect();
            (!values.is_empty()).then(|| (uid.clone(), values))
        };
        topology.chains()[chain].vertices.iter().filter_map(of_vertex).collect()
    }
}

impl World {
    pub(crate) fn coordinator_is_up(&self) -> bool {
        !matches!(self.master.phase, Phase::Down | Phase::Over)
    }

    fn set_phase(&mut self, phase: Phase) {
        self.master.generation += 1;
        self.master.tick_us = None;
        self.master.phase = phase;
    }

    fn timer(&mut self, delay_us: u64, timer: Timer) {
        let generation = self.master.generation;
        self.after(delay_us, Event::Master(generation, timer));
    }

    pub(crate) fn execution_id(&self, attempt: Attempt) -> ExecutionId {
        ExecutionId { job: "sim".to_owned(), attempt }
    }

    pub(crate) fn start_coordinator(&mut self) {
        if !matches!(self.master.phase, Phase::Down) {
            return;
        }
        let storage = self.open_storage();
        self.master.storage = Some(storage);
        self.master.restarts = restarts();
        match self.master.recorded.clone() {
            Some(prepare) => {
                let back = BTreeMap::new();
                self.set_phase(Phase::TakingOver { prepare: Box::new(prepare), back });
                self.timer(PATIENCE_US, Timer::Patience);
            }
            None => {
                self.set_phase(Phase::Waiting { for_slots: false });
                self.timer(10_000, Timer::Restart);
            }
        }
    }

    /// The process ends.
    pub(crate) fn crash_coordinator(&mut self) {
        if !self.coordinator_is_up() {
            return;
        }
        self.seen.coordinator_crashes += 1;
        self.log(|| "the coordinator crashes".to_owned());
        self.set_phase(Phase::Down);
        self.master.storage = None;
        self.master.connected.clear();
        for worker in 0..self.workers.len() {
            if self.workers[worker].session.take().is_some() {
                self.connect_soon(worker, 20_000);
            }
        }
        let delay_us = self.random.delay_us(200_000);
        self.after(delay_us, Event::CoordinatorStarts);
    }

    /// A worker registers.
    pub(crate) fn joins(&mut self, worker: usize, session: Session, running: Vec<Running>) {
        if self.master.connected.contains_key(&worker) {
            self.worker_lost(worker);
        }
        if !self.coordinator_is_up() {
            return;
        }
        self.master.connected.insert(worker, session);
        let mut keep = Vec::new();
        let mut anew = None;
        if let Phase::TakingOver { prepare, back } = &mut self.master.phase {
            let tasks = prepare.placement.tasks_of(&name_of(worker));
            if !tasks.is_empty() {
                let mine = running.iter().find(|running| running.execution == prepare.execution);
                match mine {
                    Some(mine) if mine.failure.is_none() && mine.started && tasks.iter().all(|task| mine.tasks.contains(task)) => {
                        keep.push(mine.execution.clone());
                        back.insert(worker, mine.clone());
                    }
                    _ => anew = Some(format!("worker {worker} does not run it")),
                }
            }
        }
        self.command(worker, Command::Welcome { keep });
        if let Some(reason) = anew {
            self.take_over_not(&reason);
        }
        self.take_over_if_all_back();
        if matches!(self.master.phase, Phase::Waiting { for_slots: true }) {
            self.execute();
        }
    }

    fn take_over_not(&mut self, reason: &str) {
        let Phase::TakingOver { prepare, back } = &self.master.phase else { return };
        let (execution, back) = (prepare.execution.clone(), back.keys().copied().collect::<Vec<_>>());
        self.log(|| format!("{execution} is not taken over: {reason}"));
        for worker in back {
            self.command(worker, Command::Cancel { execution: execution.clone(), finish: false });
        }
        self.execute();
    }

    fn take_over_if_all_back(&mut self) {
        let Phase::TakingOver { prepare, back } = &self.master.phase else { return };
        let expected: BTreeSet<usize> = prepare.placement.tasks.iter().map(|index| *index as usize).collect();
        let number = |index: usize| number_of(&prepare.placement.workers[index].worker);
        let expected: BTreeSet<usize> = expected.into_iter().map(number).collect();
        if expected.iter().any(|worker| !back.contains_key(worker)) {
            return;
        }
        let (prepare, back) = ((**prepare).clone(), back.clone());
        let Some(storage) = self.master.storage.clone() else { return };
        let next = match again(|| storage.next_checkpoint_id()) {
            Ok(next) => next,
            Err(error) => return self.take_over_not(&error.to_string()),
        };
        let last = back.values().map(|running| running.last_checkpoint).max().unwrap_or(CheckpointId(0));
        let attempt = prepare.execution.attempt;
        let deployed = Deployed {
            id: prepare.execution.clone(),
            planned: self.planned(attempt),
            alive: expected,
            prepare,
            final_manifest: false,
        };
        self.seen.taken_over += 1;
        self.log(|| format!("attempt {attempt} is taken over"));
        self.run(deployed, next.max(CheckpointId(last.0 + 1)));
        let mut heard = Vec::new();
        if let Phase::Running(driver) = &mut self.master.phase {
            for running in back.values() {
                heard.extend(running.finished.iter().map(|task| Heard::TaskFinished { task: *task, attempt }));
                for (task, checkpoint) in &running.committed {
                    driver.committed[task.0 as usize] = *checkpoint;
                }
            }
        }
        for event in heard {
            // What the machine says to these is said again at its first tick, as the real master has it.
            self.feed(event);
        }
        let newest = storage.checkpoints().ok().and_then(|ids| storage.manifest(*ids.first()?).ok());
        let own = newest.filter(|manifest| manifest.attempt == attempt);
        if last > own.as_ref().map_or(CheckpointId(0), Manifest::id) {
            self.tell_all(|execution| Command::Abort { execution, checkpoint: last });
        }
        if let Some(manifest) = own {
            if let Phase::Running(driver) = &mut self.master.phase {
                driver.last_completed = manifest.id();
            }
            self.say_completed(&manifest);
        }
    }

    /// Whether this is the connection that counts.
    pub(crate) fn knows_session(&self, worker: usize, session: Session) -> bool {
        self.master.connected.get(&worker) == Some(&session)
    }

    /// The coordinator does not hear a worker any more, nor that one the coordinator.
    pub(crate) fn session_over(&mut self, worker: usize, session: Session) {
        if self.workers[worker].session == Some(session) {
            self.workers[worker].session = None;
            self.connect_soon(worker, 20_000);
        }
        if self.master.connected.get(&worker) == Some(&session) {
            self.worker_lost(worker);
        }
    }

    fn worker_lost(&mut self, worker: usize) {
        self.master.connected.remove(&worker);
        self.log(|| format!("the coordinator has lost worker {worker}"));
        let reason = format!("worker {worker} is lost");
        let alive = match &mut self.master.phase {
            Phase::TakingOver { back, .. } => {
                back.remove(&worker);
                return;
            }
            Phase::Building { deployed, .. } => &mut deployed.alive,
            Phase::Running(driver) => &mut driver.deployed.alive,
            Phase::Ending { missing, .. } => {
                if missing.remove(&worker) {
                    self.ended_everywhere();
                }
                return;
            }
            Phase::Down | Phase::Waiting { .. } | Phase::Over => return,
        };
        if alive.remove(&worker) {
            self.end(Next::Restart(reason));
        }
    }

    fn command(&mut self, worker: usize, command: Command) {
        if let Some(session) = self.master.connected.get(&worker).copied() {
            self.send_to_worker(worker, session, command);
        }
    }

    fn tell_all(&mut self, command: impl Fn(ExecutionId) -> Command) {
        let deployed = match &self.master.phase {
            Phase::Building { deployed, .. } => &**deployed,
            Phase::Running(driver) => &driver.deployed,
            _ => return,
        };
        let (id, alive) = (deployed.id.clone(), deployed.alive.clone());
        alive.into_iter().for_each(|worker| self.command(worker, command(id.clone())));
    }

    /// One execution, from choosing its checkpoint.
    fn execute(&mut self) {
        let workers: Vec<usize> = self.master.connected.keys().copied().collect();
        if workers.is_empty() {
            self.set_phase(Phase::Waiting { for_slots: true });
            return;
        }
        self.set_phase(Phase::Waiting { for_slots: false });
        // A job that fails while it stops has stopped; whoever starts it again wants it to run.
        self.master.stop_wanted = false;
        if self.scenario.rescales && self.random.percent(60) {
            let scenario = self.scenario.clone();
            self.master.parallelism = scenario.parallelism(&mut self.random);
            self.seen.rescaled += 1;
        }
        match self.deploy(&workers) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::Retry => self.restart(&error.to_string()),
            Err(error) => {
                self.outside.complain(format!("cannot go on: {error}"));
                self.restart(&error.to_string());
            }
        }
    }

    fn deploy(&mut self, workers: &[usize]) -> Result<(), StorageError> {
        let Some(storage) = self.master.storage.clone() else { return Ok(()) };
        let spec = self.spec(&self.master.parallelism);
        let attempt = storage.new_attempt()?;
        storage.sweep(attempt)?;
        let manifest = choose(&storage)?;
        let job = match spec.load() {
            Ok(job) => job,
            Err(problems) => panic!("the job file of the simulation is wrong: {problems}\n{}", spec.text),
        };
        let apart = manifest.as_ref().map_or_else(Vec::new, |manifest| edges_apart(&job, manifest));
        let job = job.with_edges_apart(&apart);
        let planned = Arc::new(Planned { topology: weir_plan::Topology::new(&job), job });
        self.plans.insert(attempt, planned.clone());
        let first_checkpoint = storage.next_checkpoint_id()?;
        let topology = &planned.topology;
        let slots = topology.chains().iter().map(|chain| chain.parallelism).max().unwrap_or(1);
        let slots: Vec<u32> = (0..slots).map(|_| self.random.below(workers.len() as u64) as u32).collect();
        let tasks = (0..topology.tasks() as u32).map(|task| slots[topology.locate(TaskId(task)).1 as usize]).collect();
        let address = |worker: &usize| WorkerAddress { worker: name_of(*worker), address: String::new() };
        let restore = manifest.as_ref().map(Manifest::id);
        let prepare = Prepare {
            execution: self.execution_id(attempt),
            spec,
            placement: Placement { workers: workers.iter().map(address).collect(), tasks },
            storage: String::new(),
            restore,
            first_checkpoint,
            edges_apart: apart,
            retract_after: None,
        };
        let in_flight = manifest.iter().flat_map(|manifest| manifest.operators.values()).flat_map(|of| &of.subtasks);
        self.seen.restored_rows += in_flight.flat_map(|of| &of.in_flight).map(|of| of.rows).sum::<u64>();
        self.seen.attempts += 1;
        self.log(|| format!("attempt {attempt} goes on from {restore:?}"));
        let deployed = Deployed {
            id: prepare.execution.clone(),
            prepare: prepare.clone(),
            planned,
            alive: workers.iter().copied().collect(),
            final_manifest: manifest.is_some_and(|manifest| manifest.kind == ManifestKind::Final),
        };
        let missing = deployed.alive.clone();
        self.set_phase(Phase::Building { deployed: Box::new(deployed), answer: Answer::Prepared, missing });
        self.tell_all(|_| Command::Prepare(Box::new(prepare.clone())));
        Ok(())
    }

    fn answered(&mut self, worker: usize, answer: Answer) {
        let Phase::Building { deployed, answer: waits, missing } = &mut self.master.phase else { return };
        if *waits != answer {
            return;
        }
        missing.remove(&worker);
        if !missing.is_empty() {
            return;
        }
        let next = match answer {
            Answer::Prepared if deployed.final_manifest => Answer::Built,
            Answer::Prepared => Answer::Restored,
            Answer::Restored => Answer::Built,
            Answer::Built => return self.built(),
        };
        (*waits, *missing) = (next, deployed.alive.clone());
        let only_commit = deployed.final_manifest;
        if self.step_fault(Fault::CoordinatorCrash, 0) {
            return;
        }
        self.tell_all(|execution| match next {
            Answer::Restored => Command::Restore { execution, templates: Vec::new() },
            _ if only_commit => Command::Commit { execution },
            _ => Command::Build { execution },
        });
    }

    fn built(&mut self) {
        let Phase::Building { deployed, .. } = &self.master.phase else { return };
        if deployed.final_manifest {
            return self.end(Next::Finished);
        }
        self.master.recorded = Some(deployed.prepare.clone());
        if self.step_fault(Fault::CoordinatorCrash, 0) {
            return;
        }
        self.tell_all(|execution| Command::Start { execution });
        let Phase::Building { deployed, .. } = std::mem::replace(&mut self.master.phase, Phase::Down) else { return };
        let first = deployed.prepare.first_checkpoint;
        self.run(*deployed, first);
    }

    fn run(&mut self, deployed: Deployed, first: CheckpointId) {
        let scenario = &self.scenario;
        let config = Config {
            interval_ms: scenario.interval_ms,
            min_pause_ms: scenario.min_pause_ms,
            timeout_ms: scenario.timeout_ms,
            tolerable_failures: scenario.tolerable_failures,
            max_concurrent: 1,
            unaligned_after_ms: match scenario.mode {
                Mode::ExactlyOnce(after_ms) => after_ms,
                Mode::AtLeastOnce => None,
            },
        };
        let tasks = deployed.planned.topology.tasks();
        let driver = Driver {
            coordinator: Coordinator::new(config, deployed.id.attempt, tasks, first, 0),
            deployed,
            started_us: self.now_us(),
            acknowledgements: BTreeMap::new(),
            last_completed: CheckpointId(0),
            last_triggered: CheckpointId(0),
            committed: vec![CheckpointId(0); tasks],
            done: None,
            rescale_from: None,
            writing: None,
        };
        self.set_phase(Phase::Running(Box::new(driver)));
        self.plan_tick();
    }

    /// Sees to it that the machine hears the time when it wants to.
    fn plan_tick(&mut self) {
        let Phase::Running(driver) = &self.master.phase else { return };
        let Some(deadline_ms) = driver.coordinator.deadline_ms() else { return };
        let at_us = driver.started_us + deadline_ms * 1_000;
        if self.master.tick_us.is_none_or(|tick_us| at_us < tick_us || tick_us <= self.now_us()) {
            self.master.tick_us = Some(at_us);
            let generation = self.master.generation;
            self.at(at_us.max(self.now_us() + 1), Event::Master(generation, Timer::Tick));
        }
    }

    pub(crate) fn master_timer(&mut self, generation: u64, timer: Timer) {
        if generation != self.master.generation {
            return;
        }
        match timer {
            Timer::Tick => {
                self.master.tick_us = None;
                self.feed(Heard::Tick);
            }
            Timer::Restart => self.execute(),
            Timer::Manifest => self.write_manifest(),
            Timer::Patience => match &mut self.master.phase {
                Phase::TakingOver { .. } => self.take_over_not("workers are not back"),
                Phase::Ending { missing, .. } => {
                    missing.clear();
                    self.ended_everywhere();
                }
                _ => {}
            },
        }
    }

    /// What a worker reports.
    pub(crate) fn reported(&mut self, worker: usize, report: Report) {
        let current = match &self.master.phase {
            Phase::Building { deployed, .. } => Some(deployed.id.attempt),
            Phase::Running(driver) => Some(driver.deployed.id.attempt),
            Phase::Ending { attempt, .. } => Some(*attempt),
            _ => None,
        };
        let Some(attempt) = current else { return };
        if report.execution().map(|execution| execution.attempt) != Some(attempt) {
            return;
        }
        match (&mut self.master.phase, report) {
            (Phase::Ending { missing, .. }, Report::Ended { .. }) => {
                if missing.remove(&worker) {
                    self.ended_everywhere();
                }
            }
            (Phase::Ending { .. }, _) => {}
            (_, Report::Failed { failure, .. }) => self.end(Next::Restart(failure.reason)),
            (_, Report::Prepared { .. }) => self.answered(worker, Answer::Prepared),
            (_, Report::Restored { .. }) => self.answered(worker, Answer::Restored),
            (_, Report::Built { .. }) => self.answered(worker, Answer::Built),
            (Phase::Running(driver), report) => match report {
                Report::Finished { task, .. } => self.feed(Heard::TaskFinished { task, attempt }),
                Report::Declined { task, checkpoint, subsumed_by, reason, .. } => {
                    let reason = subsumed_by.map_or(DeclineReason::Failed(reason), |by| DeclineReason::Subsumed { by });
                    self.feed(Heard::Declined { task, attempt, checkpoint, reason });
                }
                Report::Committed { task, checkpoint, .. } => {
                    let held = &mut driver.committed[task.0 as usize];
                    *held = checkpoint.max(*held);
                    if let Some(next) = driver.all_committed() {
                        self.end(next);
                    }
                }
                Report::Acknowledged { acknowledgement, .. } => {
                    let (task, checkpoint) = (acknowledgement.task, acknowledgement.checkpoint);
                    driver.acknowledgements.entry(checkpoint).or_default().push(*acknowledgement);
                    self.feed(Heard::Acknowledged { task, attempt, checkpoint });
                }
                Report::PersistFailed { task, checkpoint, reason, .. } => {
                    self.feed(Heard::PersistFailed { task, attempt, checkpoint, reason });
                }
                Report::Ended { .. } => self.end(Next::Restart(format!("worker {worker} has ended its part"))),
                _ => {}
            },
            _ => {}
        }
    }

    /// Feeds the machine and does what it says.
    fn feed(&mut self, event: Heard) {
        let now_us = self.now_us();
        let Phase::Running(driver) = &mut self.master.phase else { return };
        let mut actions = Vec::new();
        driver.coordinator.handle((now_us - driver.started_us) / 1_000, event, &mut actions);
        let generation = self.master.generation;
        for action in actions {
            self.act(action);
            if self.master.generation != generation {
                return;
            }
        }
        self.plan_tick();
    }

    fn act(&mut self, action: Action) {
        let Phase::Running(driver) = &mut self.master.phase else { return };
        match action {
            Action::Trigger(Barrier { checkpoint, kind, unaligned, .. }) => {
                driver.last_triggered = checkpoint;
                let stop = kind == BarrierKind::Stop;
                self.log(|| format!("checkpoint {checkpoint}: stop {stop}, unaligned {unaligned}"));
                self.tell_all(|execution| Command::Trigger { execution, checkpoint, stop, unaligned });
            }
            Action::Unalign(checkpoint) => {
                self.seen.unaligned_late += 1;
                self.tell_all(|execution| Command::Unalign { execution, checkpoint });
            }
            Action::Abort { checkpoint, reason } => {
                self.seen.aborted += 1;
                let again = driver.rescale_from.is_some();
                self.log(|| format!("checkpoint {checkpoint} is given up: {reason}"));
                self.tell_all(|execution| Command::Abort { execution, checkpoint });
                if again {
                    self.feed(Heard::RequestCheckpoint);
                }
            }
            Action::WriteManifest { checkpoint, kind } => {
                let manifest = self.assemble(checkpoint, kind);
                if let (Phase::Running(driver), Some(manifest)) = (&mut self.master.phase, manifest) {
                    driver.writing = Some((manifest, 0));
                    let delay_us = self.disk_us();
                    let delay_us = self.random.delay_us(delay_us);
                    self.timer(delay_us, Timer::Manifest);
                }
            }
            Action::Complete { checkpoint, .. } => {
                driver.acknowledgements.retain(|id, _| *id > checkpoint);
                self.on_storage(|storage| storage.retain(2).map(|_| ()));
            }
            Action::Discard(checkpoint) => {
                let of = driver.acknowledgements.remove(&checkpoint).unwrap_or_default();
                self.remove_files(of);
            }
            Action::DiscardOf { task, checkpoint } => {
                let all = driver.acknowledgements.entry(checkpoint).or_default();
                let (of_task, others) = all.drain(..).partition(|acknowledgement| acknowledgement.task == task);
                *all = others;
                self.remove_files(of_task);
            }
            Action::FailJob { reason } => self.end(Next::Restart(reason.to_string())),
            Action::Done(kind) => {
                driver.done = Some(kind);
                if let Some(next) = driver.all_committed() {
                    self.end(next);
                }
            }
        }
    }

    fn on_storage(&mut self, operation: impl FnOnce(&JobStorage) -> Result<(), StorageError>) {
        if let Some(storage) = &self.master.storage
            && let Err(error) = operation(storage)
            && error.kind() != ErrorKind::Retry
        {
            self.outside.complain(error.to_string());
        }
    }

    fn remove_files(&mut self, acknowledgements: Vec<Acknowledgement>) {
        let names: Vec<String> = acknowledgements.into_iter().filter_map(|of| of.file).map(|file| file.name).collect();
        if !names.is_empty() {
            self.on_storage(|storage| storage.remove_files(&names));
        }
    }

    fn assemble(&mut self, checkpoint: CheckpointId, kind: CompletionKind) -> Option<Manifest> {
        let now_us = self.now_us();
        let Phase::Running(driver) = &self.master.phase else { return None };
        let header = Header {
            attempt: driver.deployed.id.attempt,
            checkpoint,
            kind: match kind {
                CompletionKind::Checkpoint => ManifestKind::Checkpoint,
                CompletionKind::Stop => ManifestKind::Stop,
                CompletionKind::Final => ManifestKind::Final,
            },
            triggered_at_ms: now_us / 1_000,
            completed_at_ms: now_us / 1_000,
        };
        let mut acknowledgements = driver.acknowledgements.get(&checkpoint).cloned().unwrap_or_default();
        if self.mutation == Some(Mutation::SkipAcknowledgement) {
            acknowledgements.pop();
        }
        let tasks: BTreeSet<TaskId> = acknowledgements.iter().map(|of| of.task).collect();
        if tasks.len() != driver.deployed.planned.topology.tasks() {
            self.outside.complain(format!("checkpoint {checkpoint} is complete with {} acknowledgements", tasks.len()));
        }
        let Planned { job, topology } = &*driver.deployed.planned;
        Some(assemble(&driver.deployed.prepare.spec, job, topology, &BTreeMap::new(), &header, &acknowledgements))
    }

    fn write_manifest(&mut self) {
        let Some(storage) = self.master.storage.clone() else { return };
        let Phase::Running(driver) = &mut self.master.phase else { return };
        let Some((manifest, tries)) = driver.writing.take() else { return };
        let checkpoint = manifest.id();
        match storage.put_manifest(&manifest) {
            Ok(()) => {
                if let Err(error) = storage.check(&manifest)
                    && error.kind() != ErrorKind::Retry
                {
                    self.outside.complain(format!("checkpoint {checkpoint} is complete and not whole: {error}"));
                }
                if self.step_fault(Fault::CoordinatorCrash, 0) {
                    return;
                }
                self.completed(&manifest);
            }
            Err(error) if error.kind() == ErrorKind::Retry && tries + 1 < MANIFEST_TRIES => {
                driver.writing = Some((manifest, tries + 1));
                self.timer(50_000, Timer::Manifest);
            }
            Err(error) if error.kind() == ErrorKind::Retry => {
                self.seen.manifest_failed += 1;
                self.feed(Heard::ManifestFailed { checkpoint, reason: error.to_string() });
            }
            Err(error) => self.outside.complain(format!("the manifest of checkpoint {checkpoint}: {error}")),
        }
    }

    /// A manifest is durable.
    fn completed(&mut self, manifest: &Manifest) {
        let checkpoint = manifest.id();
        let now_us = self.now_us();
        let in_flight = manifest.operators.values().flat_map(|of| &of.subtasks).flat_map(|of| &of.in_flight);
        let rows: u64 = in_flight.map(|of| of.rows).sum();
        self.seen.completed.push((now_us, checkpoint));
        self.seen.completed_with_rows += u64::from(rows > 0);
        self.log(|| format!("checkpoint {checkpoint} is complete, {rows} rows in flight"));
        if let Phase::Running(driver) = &mut self.master.phase {
            driver.last_completed = checkpoint;
        }
        self.say_completed(manifest);
        let generation = self.master.generation;
        self.feed(Heard::ManifestWritten(checkpoint));
        if self.master.generation == generation
            && let Phase::Running(driver) = &self.master.phase
            && driver.rescale_from.is_some_and(|from| checkpoint >= from)
        {
            self.end(Next::Rescaled);
        }
    }

    fn say_completed(&mut self, manifest: &Manifest) {
        let Phase::Running(driver) = &self.master.phase else { return };
        let checkpoint = manifest.id();
        let mut commands = Vec::new();
        for &worker in &driver.deployed.alive {
            let tasks = driver.deployed.prepare.placement.tasks_of(&name_of(worker));
            let commits = tasks.into_iter().map(|task| (task, driver.committables(task, manifest))).collect();
            commands.push((worker, Command::Completed { execution: driver.deployed.id.clone(), checkpoint, commits }));
        }
        for (worker, command) in commands {
            self.command(worker, command);
        }
    }

    /// Ends an execution on all its workers.
    fn end(&mut self, next: Next) {
        self.log(|| format!("the execution ends: {next:?}"));
        let finish = !matches!(next, Next::Restart(_));
        self.tell_all(|execution| Command::Cancel { execution, finish });
        let (attempt, missing) = match &mut self.master.phase {
            Phase::Building { deployed, .. } => (deployed.id.attempt, deployed.alive.clone()),
            Phase::Running(driver) => {
                // The thread that writes manifests does what it was asked for before the master goes on.
                if let (Some((manifest, _)), Some(storage)) = (driver.writing.take(), &self.master.storage)
                    && again(|| storage.put_manifest(&manifest)).is_ok()
                {
                    self.seen.completed_unheard += 1;
                }
                (driver.deployed.id.attempt, driver.deployed.alive.clone())
            }
            _ => return,
        };
        self.set_phase(Phase::Ending { attempt, missing, next });
        self.timer(PATIENCE_US, Timer::Patience);
        self.ended_everywhere();
    }

    fn ended_everywhere(&mut self) {
        let Phase::Ending { missing, next, .. } = &self.master.phase else { return };
        if !missing.is_empty() {
            return;
        }
        match next.clone() {
            Next::Finished => self.set_phase(Phase::Over),
            Next::Restart(reason) => self.restart(&reason),
            Next::Stopped => {
                self.seen.stopped += 1;
                self.set_phase(Phase::Waiting { for_slots: false });
                self.timer(50_000, Timer::Restart);
            }
            Next::Rescaled => {
                self.seen.wished_rescales += 1;
                self.set_phase(Phase::Waiting { for_slots: false });
                self.execute();
            }
        }
    }

    fn restart(&mut self, reason: &str) {
        let (now_ms, random) = (self.now_us() / 1_000, self.random.next());
        match self.master.restarts.failed(now_ms, random) {
            Decision::RestartAfter(ms) => {
                self.log(|| format!("restart in {ms} ms: {reason}"));
                self.set_phase(Phase::Waiting { for_slots: false });
                self.timer(ms * 1_000, Timer::Restart);
            }
            Decision::GiveUp(why) => self.outside.complain(format!("the job was given up: {why}")),
        }
    }

    /// Somebody wants something of the job.
    pub(crate) fn wish(&mut self, wish: Fault) {
        let Phase::Running(driver) = &mut self.master.phase else { return };
        if driver.done.is_some() || driver.coordinator.is_over() {
            return;
        }
        match wish {
            Fault::Stop => {
                driver.rescale_from = None;
                self.master.stop_wanted = true;
                self.feed(Heard::RequestStop);
            }
            Fault::Rescale if self.scenario.rescales => {
                driver.rescale_from = Some(CheckpointId(driver.last_triggered.0.max(driver.last_completed.0) + 1));
                self.feed(Heard::RequestCheckpoint);
            }
            _ => self.feed(Heard::RequestCheckpoint),
        }
    }

    /// The attempt that runs or begins.
    pub(crate) fn current_attempt(&self) -> Option<Attempt> {
        match &self.master.phase {
            Phase::Building { deployed, .. } => Some(deployed.id.attempt),
            Phase::Running(driver) => Some(driver.deployed.id.attempt),
            _ => None,
        }
    }
}

/// The newest checkpoint. Nothing is ever damaged here, so it must be whole.
fn choose(storage: &JobStorage) -> Result<Option<Manifest>, StorageError> {
    let Some(id) = storage.checkpoints()?.first().copied() else { return Ok(None) };
    let manifest = storage.manifest(id)?;
    storage.check(&manifest)?;
    Ok(Some(manifest))
}
