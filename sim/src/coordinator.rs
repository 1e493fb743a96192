//! The coordinator's process: the real master of one job, and what surrounds it: slots, what is recorded, the way to workers, the
//! wait for those of an execution that may be taken over. What the master asks the storage for is in `storekeeper.rs`.
//!
//! What is recorded or written to the store survives a process, nothing else does. Usually there is one; one that is paused while
//! another takes its place goes on afterwards, and believes that it leads.

use std::collections::{BTreeMap, VecDeque};

use weir_cluster::{Takeover, Verdict};
use weir_master::{
    Adopted, Begun, Input, JobError, Limits, Master, MasterJob, Notice, Now, Outcome, Output, Shortage, Slots, Wish,
};
use weir_protocol::{Command, JobSpec, Report, Running, WorkerAddress, WorkerId};
use weir_storage::JobStorage;

use crate::scenario::{Edition, Fault};
use crate::storekeeper::Request;
use crate::worker::{name_of, number_of};
use crate::world::{Event, Session, World, spec};

/// Numbers the coordinator's processes.
pub(crate) type ProcessId = u64;

/// How long a new coordinator waits for the workers of an execution, in milliseconds.
const TAKEOVER_WAIT_MS: u64 = 8_000;

/// A coordinator that runs waits so long for a person's next attempt at a job that ended.
const SUBMIT_US: u64 = 50_000;

/// What it takes to find slots.
const SLOTS_US: u64 = 100;

/// Times that a job begins anew before its owner gives its checkpoints more time.
const IMPATIENT_ATTEMPTS: u64 = 6;

/// The same for checkpoints that fail.
const IMPATIENT_CHECKPOINTS: u64 = 40;

/// What is written about the job, and survives its coordinator.
struct Record {
    spec: JobSpec,
    begun: Option<Begun>,
    /// A stop or a cancellation that is wanted.
    end: Option<Wish>,
    rescale: Option<u32>,
    fresh: bool,
}

/// Who leads the job in a process.
enum Leader {
    /// The workers of an execution are waited for. What they report meanwhile is kept for the master to come.
    Waits(Box<Takeover>, Vec<(WorkerId, Report)>),
    Master(Box<Master>),
    /// Nobody: the job is over, and is submitted again.
    Nobody,
}

/// One process.
pub(crate) struct Process {
    leader: Leader,
    connected: BTreeMap<usize, Session>,
    pub(crate) storage: JobStorage,
    /// What the storage is asked for, in order.
    pub(crate) requests: VecDeque<Request>,
    /// When the request that is carried out counts for nothing any more.
    pub(crate) storing_until_us: Option<u64>,
    waits_for_slots: bool,
    tick_us: Option<u64>,
}

/// The coordinator's machine.
pub(crate) struct Coordinator {
    pub(crate) processes: BTreeMap<ProcessId, Process>,
    /// The process that workers connect to; none while it is down.
    pub(crate) current: Option<ProcessId>,
    newest: ProcessId,
    record: Record,
    edition: Edition,
    finished: bool,
    /// For messages.
    said_last: String,
    /// What a person wants the job to end by, and since when it might.
    pub(crate) ending_since_us: Option<u64>,
}

impl Coordinator {
    pub(crate) fn new(spec: JobSpec, edition: Edition) -> Coordinator {
        let record = Record { spec, begun: None, end: None, rescale: None, fresh: false };
        Coordinator {
            processes: BTreeMap::new(),
            current: None,
            newest: 0,
            record,
            edition,
            finished: false,
            said_last: String::new(),
            ending_since_us: None,
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.finished
    }

    /// What it is about, for messages.
    pub(crate) fn describe(&self) -> String {
        let Some(process) = self.current.and_then(|id| self.processes.get(&id)) else {
            return "the coordinator is down".to_owned();
        };
        let who = match &process.leader {
            Leader::Waits(takeover, _) => format!("waits for {:?}", takeover.missing()),
            Leader::Master(_) => format!("its master said last: {}", self.said_last),
            Leader::Nobody => "nobody leads the job".to_owned(),
        };
        format!("{who}; {} requests to the storage", process.requests.len())
    }
}

impl World {
    fn process(&mut self, id: ProcessId) -> Option<&mut Process> {
        self.coordinator.processes.get_mut(&id)
    }

    pub(crate) fn coordinator_is_up(&self) -> bool {
        self.coordinator.current.is_some()
    }

    /// A process starts, and takes everything up where the one before left it.
    pub(crate) fn start_coordinator(&mut self) {
        if self.coordinator_is_up() || self.coordinator.finished {
            return;
        }
        let storage = self.open_storage();
        let id = self.coordinator.newest + 1;
        (self.coordinator.newest, self.coordinator.current) = (id, Some(id));
        let process = Process {
            leader: Leader::Nobody,
            connected: BTreeMap::new(),
            storage,
            requests: VecDeque::new(),
            storing_until_us: None,
            waits_for_slots: false,
            tick_us: None,
        };
        self.coordinator.processes.insert(id, process);
        if self.coordinator.record.end == Some(Wish::Cancel) {
            // It is over as soon as that is recorded.
            return self.ended(id, Ok(Outcome::Cancelled));
        }
        match self.coordinator.record.begun.clone() {
            Some(begun) => {
                let takeover = Takeover::new(begun, self.now_us() / 1_000 + TAKEOVER_WAIT_MS);
                if let Some(process) = self.process(id) {
                    process.leader = Leader::Waits(Box::new(takeover), Vec::new());
                }
                self.after(TAKEOVER_WAIT_MS * 1_000 + 1_000, Event::TakeoverEnds(id));
            }
            None => self.lead(id, None),
        }
    }

    /// A master begins.
    fn lead(&mut self, id: ProcessId, adopted: Option<Adopted>) {
        let record = &self.coordinator.record;
        let job = MasterJob {
            spec: adopted.as_ref().map_or_else(|| record.spec.clone(), |adopted| adopted.begun.prepare.spec.clone()),
            default_storage: "sim:".to_owned(),
            fresh: record.fresh,
            allow_dropped_state: false,
            patient: true,
            adopted,
        };
        let wish = record.end.or(record.rescale.map(Wish::Rescale));
        let master = match Master::new(job, self.limits()) {
            Ok(master) => master,
            Err(error) => return self.outside.complain(format!("no master can be made: {error}")),
        };
        let Some(process) = self.process(id) else { return };
        let later = match std::mem::replace(&mut process.leader, Leader::Master(Box::new(master))) {
            Leader::Waits(_, later) => later,
            _ => Vec::new(),
        };
        self.tell_master(id, Input::Tick);
        if let Some(wish) = wish {
            self.tell_master(id, Input::Wish(wish));
        }
        for (worker, report) in later {
            self.tell_master(id, Input::Report { worker, report: Box::new(report) });
        }
    }

    /// What production has, but for what must not take longer than a run.
    fn limits(&self) -> Limits {
        Limits { step_ms_max: 20_000, store_ms_max: 15_000, store_begin_ms_max: 40_000, ..Limits::DEFAULT }
    }

    /// Somebody starts the job (again), perhaps with another job file.
    pub(crate) fn submit(&mut self) {
        let Some(id) = self.coordinator.current.filter(|_| !self.coordinator.finished) else { return };
        if !matches!(self.process(id).map(|process| &process.leader), Some(Leader::Nobody)) {
            return;
        }
        if self.scenario.rescales && self.random.percent(60) {
            let patient = self.coordinator.edition.patient;
            self.coordinator.edition = self.scenario.edition(&mut self.random);
            self.coordinator.edition.patient = patient;
            self.seen.rescaled += 1;
        }
        self.coordinator.record.spec = spec(&self.scenario, &self.coordinator.edition);
        self.lead(id, None);
    }

    /// The process that workers know ends, with all that is not durable. What it had asked the storage for may still happen.
    pub(crate) fn crash_coordinator(&mut self) {
        let Some(id) = self.coordinator.current.take() else { return };
        self.seen.coordinator_crashes += 1;
        self.log(|| "the coordinator crashes".to_owned());
        if let Some(process) = self.coordinator.processes.remove(&id) {
            self.outlives(process);
        }
        self.hang_up();
        let delay_us = self.random.delay_us(200_000);
        self.after(delay_us, Event::CoordinatorStarts);
    }

    /// Another process takes the place of one that goes on and believes that it leads.
    pub(crate) fn second_coordinator(&mut self) {
        let Some(id) = self.coordinator.current.take() else { return };
        self.seen.second_coordinators += 1;
        self.log(|| "the coordinator is believed dead".to_owned());
        let connected = self.process(id).map_or_else(Vec::new, |process| process.connected.keys().copied().collect());
        for worker in connected {
            let delay_us = self.random.below(3_000_000);
            self.after(delay_us, Event::Silence(id, worker));
        }
        self.hang_up();
        self.after(1_000, Event::CoordinatorStarts);
    }

    fn hang_up(&mut self) {
        for worker in 0..self.workers.len() {
            if self.workers[worker].session.take().is_some() {
                self.connect_soon(worker, 20_000);
            }
        }
    }

    /// A worker registers.
    pub(crate) fn joins(&mut self, worker: usize, session: Session, running: &[Running]) {
        let Some(id) = self.coordinator.current else { return };
        if self.process(id).is_some_and(|process| process.connected.contains_key(&worker)) {
            self.worker_lost(id, worker);
        }
        let name: WorkerId = name_of(worker).as_str().into();
        let Some(process) = self.process(id) else { return };
        process.connected.insert(worker, session);
        let (mut keep, mut verdict) = (Vec::new(), None);
        if let Leader::Waits(takeover, _) = &mut process.leader {
            verdict = takeover.registered(&name, running);
            if !matches!(verdict, Some(Verdict::Anew(_))) {
                let kept = running.iter().filter(|running| takeover.keeps(&name, running));
                keep.extend(kept.map(|running| running.execution.clone()));
            }
        }
        self.send(id, worker, Command::Welcome { keep, succeeds: Vec::new() });
        if let Some(verdict) = verdict {
            self.decide(id, verdict);
        }
        if self.process(id).is_some_and(|process| process.waits_for_slots) {
            self.tell_master(id, Input::SlotsChanged);
        }
    }

    /// The wait for the workers of an execution has been long.
    pub(crate) fn takeover_ends(&mut self, id: ProcessId) {
        let now_ms = self.now_us() / 1_000;
        let Some(Process { leader: Leader::Waits(takeover, _), .. }) = self.process(id) else { return };
        if let Some(verdict) = takeover.tick(now_ms) {
            self.decide(id, verdict);
        }
    }

    fn decide(&mut self, id: ProcessId, verdict: Verdict) {
        let Some(Process { leader: Leader::Waits(takeover, _), .. }) = self.process(id) else { return };
        let (execution, back): (_, Vec<WorkerId>) = (takeover.execution().clone(), takeover.back().cloned().collect());
        match verdict {
            Verdict::Adopt(adopted) => self.lead(id, Some(*adopted)),
            Verdict::Anew(reason) => {
                self.log(|| format!("{execution} is not taken over: {reason}"));
                for worker in back {
                    self.send(id, number_of(&worker), Command::Cancel { execution: execution.clone(), finish: false });
                }
                self.lead(id, None);
            }
        }
    }

    /// Whether this is the connection that counts.
    pub(crate) fn knows_session(&self, worker: usize, session: Session) -> bool {
        let process = self.coordinator.current.and_then(|id| self.coordinator.processes.get(&id));
        process.is_some_and(|process| process.connected.get(&worker) == Some(&session))
    }

    /// The coordinator does not hear a worker any more, nor that one the coordinator.
    pub(crate) fn session_over(&mut self, worker: usize, session: Session) {
        if self.workers[worker].session == Some(session) {
            self.workers[worker].session = None;
            self.connect_soon(worker, 20_000);
        }
        if let Some(id) = self.coordinator.current.filter(|_| self.knows_session(worker, session)) {
            self.worker_lost(id, worker);
        }
    }

    /// A process does not hear a worker any more.
    pub(crate) fn worker_lost(&mut self, id: ProcessId, worker: usize) {
        let name: WorkerId = name_of(worker).as_str().into();
        let Some(process) = self.process(id) else { return };
        process.connected.remove(&worker);
        if let Leader::Waits(takeover, _) = &mut process.leader {
            takeover.lost(&name);
        }
        self.log(|| format!("coordinator {id} has lost worker {worker}"));
        self.tell_master(id, Input::WorkerLost { worker: name, reason: "it is not heard any more".to_owned() });
    }

    /// What a worker reports.
    pub(crate) fn reported(&mut self, worker: usize, report: Report) {
        let Some(id) = self.coordinator.current else { return };
        let worker: WorkerId = name_of(worker).as_str().into();
        match self.process(id).map(|process| &mut process.leader) {
            Some(Leader::Waits(_, later)) => later.push((worker, report)),
            Some(Leader::Master(_)) => self.tell_master(id, Input::Report { worker, report: Box::new(report) }),
            Some(Leader::Nobody) | None => {}
        }
    }

    /// Tells a process's master something, and does what it says.
    pub(crate) fn tell_master(&mut self, id: ProcessId, input: Input) {
        let now_us = self.now_us();
        let now = Now { steady_ms: now_us / 1_000, wall_ms: now_us / 1_000, random: self.random.next() };
        let Some(Process { leader: Leader::Master(master), .. }) = self.process(id) else { return };
        let mut said = Vec::new();
        master.handle(now, input, &mut said);
        for output in said {
            // Before any of them, a process may be no more.
            if self.coordinator.current == Some(id) && self.dies_now(&output) {
                return self.crash_coordinator();
            }
            self.carry_out(id, output);
        }
        self.plan_tick(id);
    }

    /// Sees to it that the master hears the time when it wants to.
    fn plan_tick(&mut self, id: ProcessId) {
        let now_us = self.now_us();
        let Some(process) = self.process(id) else { return };
        let Leader::Master(master) = &process.leader else { return };
        let Some(at_us) = master.deadline_ms().map(|ms| (ms * 1_000).max(now_us + 1)) else { return };
        if process.tick_us.is_none_or(|tick_us| at_us < tick_us || tick_us <= now_us) {
            process.tick_us = Some(at_us);
            self.at(at_us, Event::Tick(id, at_us));
        }
    }

    pub(crate) fn tick(&mut self, id: ProcessId, at_us: u64) {
        let Some(process) = self.process(id).filter(|process| process.tick_us == Some(at_us)) else { return };
        process.tick_us = None;
        self.tell_master(id, Input::Tick);
    }

    fn send(&mut self, id: ProcessId, worker: usize, command: Command) {
        if let Some(session) = self.process(id).and_then(|process| process.connected.get(&worker).copied()) {
            self.send_to_worker(worker, session, command);
        }
    }

    fn carry_out(&mut self, id: ProcessId, output: Output) {
        match output {
            Output::Send { worker, command } => {
                self.check_command(&command);
                self.send(id, number_of(&worker), command);
            }
            Output::Reserve { slots } => {
                let answer = self.reserve(id, slots);
                // Answers come in the order of the questions.
                self.after(SLOTS_US, Event::ToMaster(id, Box::new(Input::Slots(answer))));
            }
            Output::Release => {
                if let Some(process) = self.process(id) {
                    process.waits_for_slots = false;
                }
            }
            Output::Store { request, what, deadline_ms } => self.ask_storage(id, Request::new(request, what, deadline_ms)),
            Output::Record(begun) => {
                let delay_us = self.disk_us();
                let delay_us = self.random.delay_us(delay_us);
                self.after(delay_us, Event::Record(id, begun));
            }
            Output::Notice(notice) => self.noticed(id, notice),
            Output::Over(end) => self.ended(id, *end),
        }
    }

    /// With some luck, the process ends before this is done.
    fn dies_now(&mut self, output: &Output) -> bool {
        if self.step_faults == 0 || matches!(output, Output::Notice(Notice::Progress(_))) || self.random.below(250) > 0 {
            return false;
        }
        self.step_faults -= 1;
        true
    }

    /// Nobody may be told that a checkpoint is complete whose manifest is not durable.
    fn check_command(&mut self, command: &Command) {
        match command {
            Command::Unalign { .. } => self.seen.unaligned_late += 1,
            Command::Completed { checkpoint, .. } => {
                self.seen.announced_late += u64::from(self.seen.uncertain.contains(checkpoint));
            }
            _ => {}
        }
        if let Command::Completed { execution, checkpoint, .. } = command
            && !self.outside.is_durable(execution.attempt, *checkpoint)
        {
            self.outside.complain(format!("{execution} is told that checkpoint {checkpoint} is complete, which it is not"));
        }
    }

    fn reserve(&mut self, id: ProcessId, slots: u32) -> Result<Slots, Shortage> {
        let per_worker = self.scenario.slots;
        let Some(process) = self.process(id) else { unreachable!("only a process asks") };
        let mut free: Vec<u32> = process.connected.keys().flat_map(|worker| vec![*worker as u32; per_worker as usize]).collect();
        if (free.len() as u32) < slots {
            process.waits_for_slots = true;
            let workers = process.connected.len() as u32;
            return Err(Shortage { needed: slots, free: free.len() as u32, ahead: 0, workers });
        }
        process.waits_for_slots = false;
        let mut workers: Vec<u32> = Vec::new();
        let mut taken = Vec::new();
        for _ in 0..slots {
            let at = self.random.below(free.len() as u64) as usize;
            let worker = free.swap_remove(at);
            let index = workers.iter().position(|known| *known == worker).unwrap_or_else(|| {
                workers.push(worker);
                workers.len() - 1
            });
            taken.push(index as u32);
        }
        let address = |worker: u32| WorkerAddress { worker: name_of(worker as usize), address: String::new() };
        Ok(Slots { workers: workers.into_iter().map(address).collect(), slots: taken })
    }

    /// An execution is recorded, if the disk takes it.
    pub(crate) fn record(&mut self, id: ProcessId, begun: Begun) {
        if self.coordinator.current != Some(id) {
            return self.tell_master(id, Input::Recorded(Err("the data folder is another's".to_owned())));
        }
        if self.disk.fails() {
            return self.tell_master(id, Input::Recorded(Err("the disk does not take it".to_owned())));
        }
        let record = &mut self.coordinator.record;
        record.spec = begun.prepare.spec.clone();
        let parallelism = record.spec.load().map_or(0, |job| job.parallelism);
        (record.begun, record.fresh) = (Some(begun), false);
        if record.rescale == Some(parallelism) {
            record.rescale = None;
            self.seen.wished_rescales += 1;
        }
        self.tell_master(id, Input::Recorded(Ok(())));
    }

    fn noticed(&mut self, id: ProcessId, notice: Notice) {
        if !matches!(notice, Notice::Progress(_)) {
            self.log(|| format!("coordinator {id}: {notice:?}"));
            self.coordinator.said_last = format!("{notice:?}");
        }
        let now_us = self.now_us();
        match notice {
            Notice::Started { .. } => self.seen.attempts += 1,
            Notice::TakenOver { .. } => self.seen.taken_over += 1,
            Notice::CheckpointFailed { .. } => {
                self.seen.aborted += 1;
                if self.seen.aborted.is_multiple_of(IMPATIENT_CHECKPOINTS) {
                    self.give_time();
                }
            }
            Notice::FellBack { checkpoint, .. } => {
                self.seen.fell_back += 1;
                self.whole.retain(|(id, _)| *id != checkpoint);
            }
            Notice::SlowStorage { .. } => self.seen.slow_storage += 1,
            Notice::SlowStep { .. } => self.seen.slow_steps += 1,
            Notice::Completed { checkpoint, in_flight_bytes, .. } => {
                self.seen.completed.push((now_us, checkpoint));
                self.seen.completed_with_rows += u64::from(in_flight_bytes > 0);
            }
            Notice::RescaleRefused { .. } if self.coordinator.current == Some(id) => self.coordinator.record.rescale = None,
            Notice::Restarting { .. } => {
                if self.seen.attempts > IMPATIENT_ATTEMPTS {
                    self.give_time();
                }
            }
            _ => {}
        }
    }

    /// Somebody who has seen a job fail again and again gives its checkpoints time.
    fn give_time(&mut self) {
        if !std::mem::replace(&mut self.coordinator.edition.patient, true) {
            self.after(1_000, Event::Fault(Fault::Cancel));
        }
    }

    /// Somebody wants something of the job. It is recorded, and then told.
    pub(crate) fn wish(&mut self, fault: Fault) {
        if self.coordinator.finished {
            return;
        }
        let Some(id) = self.coordinator.current else { return self.after(100_000, Event::Fault(fault)) };
        if matches!(self.process(id).map(|process| &process.leader), Some(Leader::Nobody)) {
            return;
        }
        let parallelism = self.random.between(1, crate::scenario::PARALLELISM_MAX) as u32;
        let record = &mut self.coordinator.record;
        let wish = match fault {
            Fault::Stop if record.end.is_none() => Wish::Stop,
            Fault::Cancel => Wish::Cancel,
            Fault::Rescale if record.end.is_none() => Wish::Rescale(parallelism),
            _ => return,
        };
        match wish {
            Wish::Rescale(_) => record.rescale = Some(parallelism),
            wish => (record.end, record.rescale) = (Some(wish), None),
        }
        if wish == Wish::Cancel {
            self.coordinator.ending_since_us = Some(self.now_us());
        }
        self.tell_master(id, Input::Wish(wish));
    }

    /// A process's master is done.
    fn ended(&mut self, id: ProcessId, end: Result<Outcome, JobError>) {
        self.log(|| format!("coordinator {id}: the job has ended: {end:?}"));
        if let Some(process) = self.process(id) {
            process.leader = Leader::Nobody;
        }
        if self.coordinator.current != Some(id) {
            // It had believed that it leads.
            if let Some(process) = self.coordinator.processes.remove(&id) {
                self.outlives(process);
            }
            return;
        }
        self.coordinator.ending_since_us = None;
        let record = &mut self.coordinator.record;
        (record.begun, record.end, record.rescale) = (None, None, None);
        match end {
            Ok(Outcome::Finished(_) | Outcome::AlreadyFinished { .. }) => {
                self.coordinator.finished = true;
                return;
            }
            Ok(Outcome::Stopped(_)) => self.seen.stopped += 1,
            Ok(Outcome::StoppedBetween { .. }) => self.seen.stopped_between += 1,
            Ok(Outcome::Cancelled) => self.seen.cancelled += 1,
            Ok(Outcome::Left) => self.outside.complain("a master left that nobody had asked to".to_owned()),
            // Another coordinator has begun an attempt, or the only checkpoint cannot be read just now: who sees that tries again.
            Err(error) if self.seen.second_coordinators > 0 || self.disk.was_damaged() => {
                self.log(|| format!("the job is started again after {error}"));
            }
            Err(error) => self.outside.complain(format!("the job was given up: {error}")),
        }
        self.after(SUBMIT_US, Event::Submit);
    }
}
