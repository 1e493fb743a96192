//! The coordinator process: workers come and go, and one job has a master that follows `weir_coordinator::master` step by step,
//! around the real checkpoint machine, the real restart strategies, real manifests.
//!
//! What is written to the store or recorded survives its crashes, nothing else does. A coordinator that starts again waits for the
//! workers of the execution it finds recorded, and takes it over if all of it runs.

mod deploy;
mod drive;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use weir_checkpoint::align::DeclineReason;
use weir_checkpoint::coordinator::{CompletionKind, Coordinator, Event as Heard};
use weir_checkpoint::restart::{Decision, Restarts, Strategy};
use weir_model::{Attempt, CheckpointId};

use weir_protocol::{Acknowledgement, Command, Execution as ExecutionId, Prepare, Report, Running};
use weir_storage::{JobStorage, Manifest};

use crate::build::Planned;
use crate::worker::{again, name_of, number_of};
use crate::world::{Event, Session, World};

/// Longest wait for the workers of an execution that is to be taken over, and for threads to end.
const PATIENCE_US: u64 = 15_000_000;

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
    /// What workers report meanwhile is kept for the master to come.
    TakingOver {
        prepare: Box<Prepare>,
        back: BTreeMap<usize, Running>,
        later: Vec<(usize, Report)>,
    },
    /// For slots, or until a restart is due.
    Waiting {
        for_slots: bool,
    },
    Building {
        deployed: Box<Deployed>,
        answer: Answer,
        missing: BTreeSet<usize>,
    },
    Running(Box<Driver>),
    Ending {
        attempt: Attempt,
        missing: BTreeSet<usize>,
        next: Next,
    },
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
            Phase::TakingOver { prepare, back, .. } => format!("taking over {}, back: {:?}", prepare.execution, back.keys()),
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
                self.set_phase(Phase::TakingOver { prepare: Box::new(prepare), back, later: Vec::new() });
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
    pub(crate) fn joins(&mut self, worker: usize, session: Session, running: &[Running]) {
        if self.master.connected.contains_key(&worker) {
            self.worker_lost(worker);
        }
        if !self.coordinator_is_up() {
            return;
        }
        self.master.connected.insert(worker, session);
        let mut keep = Vec::new();
        let mut anew = None;
        if let Phase::TakingOver { prepare, back, .. } = &mut self.master.phase {
            let tasks = prepare.placement.tasks_of(&name_of(worker));
            if !tasks.is_empty() {
                let mine = running.iter().find(|running| running.execution == prepare.execution);
                match mine {
                    Some(mine)
                        if mine.failure.is_none() && mine.started && tasks.iter().all(|task| mine.tasks.contains(task)) =>
                    {
                        keep.push(mine.execution.clone());
                        back.insert(worker, mine.clone());
                    }
                    _ => anew = Some(format!("worker {worker} does not run it")),
                }
            }
        }
        self.command(worker, Command::Welcome { keep, succeeds: Vec::new() });
        if let Some(reason) = anew {
            self.take_over_not(&reason);
        }
        self.take_over_if_all_back();
        if matches!(self.master.phase, Phase::Waiting { for_slots: true }) {
            self.execute();
        }
    }

    fn take_over_not(&mut self, reason: &str) {
        let Phase::TakingOver { prepare, back, .. } = &self.master.phase else { return };
        let (execution, back) = (prepare.execution.clone(), back.keys().copied().collect::<Vec<_>>());
        self.log(|| format!("{execution} is not taken over: {reason}"));
        for worker in back {
            self.command(worker, Command::Cancel { execution: execution.clone(), finish: false });
        }
        self.execute();
    }

    fn take_over_if_all_back(&mut self) {
        let Phase::TakingOver { prepare, back, .. } = &self.master.phase else { return };
        let expected: BTreeSet<usize> = prepare.placement.tasks.iter().map(|index| *index as usize).collect();
        let number = |index: usize| number_of(&prepare.placement.workers[index].worker);
        let expected: BTreeSet<usize> = expected.into_iter().map(number).collect();
        if expected.iter().any(|worker| !back.contains_key(worker)) {
            return;
        }
        let (prepare, back) = ((**prepare).clone(), back.clone());
        let Some(storage) = self.master.storage.clone() else { return };
        let newest = || storage.checkpoints()?.first().map(|id| storage.manifest(*id)).transpose();
        let (next, newest) = match again(|| storage.next_checkpoint_id().and_then(|next| Ok((next, newest()?)))) {
            Ok(found) => found,
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
        let later = match &mut self.master.phase {
            Phase::TakingOver { later, .. } => std::mem::take(later),
            _ => Vec::new(),
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
        let own = newest.filter(|manifest| manifest.attempt == attempt);
        if last > own.as_ref().map_or(CheckpointId(0), Manifest::id) {
            self.tell_all(|execution| Command::Abort { execution, checkpoint: last });
        }
        if let Some(manifest) = own {
            if let Phase::Running(driver) = &mut self.master.phase {
                driver.last_completed = manifest.id();
            }
            self.seen.announced_late += u64::from(self.seen.uncertain.last() == Some(&manifest.id()));
            self.say_completed(&manifest);
        }
        if self.master.stop_wanted {
            self.feed(Heard::RequestStop);
        }
        later.into_iter().for_each(|(worker, report)| self.reported(worker, report));
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
        if let Phase::TakingOver { later, .. } = &mut self.master.phase {
            later.push((worker, report));
            return;
        }
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
                missing.remove(&worker);
                self.ended_everywhere();
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

    /// The attempt that runs or begins.
    pub(crate) fn current_attempt(&self) -> Option<Attempt> {
        match &self.master.phase {
            Phase::Building { deployed, .. } => Some(deployed.id.attempt),
            Phase::Running(driver) => Some(driver.deployed.id.attempt),
            _ => None,
        }
    }
}
