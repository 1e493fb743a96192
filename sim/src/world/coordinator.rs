//! The lives of the coordinator's processes, what their machines hear and say, and what people want of the job.

use weir_cluster::{
    Ask, BegunChange, Change, ChangeId, Hello, Input as Told, JobAsk, Machine, NameAsk, Now as ClusterNow, Output as Says,
    RequestId, Settings, StoredJob, WriteFailure,
};
use weir_master::{Input, Limits, Master, Notice, Now, Outcome, Output};
use weir_model::{Description, InputPort};
use weir_protocol::access::Person;
use weir_protocol::api::{JobState, JobSubmission};
use weir_protocol::{Command, FailureKind, JobSpec, Register, Report, Running};
use weir_storage::{JobLog, Writer};

use super::{Event, World};
use crate::coordinator::{Process, Request, STRANGERS, epoch};
use crate::ids::{ProcessId, Session, name_of};
use crate::scenario::{Edition, Fault, Scenario};

/// The job's name.
const JOB: &str = "sim";

/// How often a process hears the time.
const TICK_US: u64 = 250_000;

/// How often somebody looks whether the job is over, to start it again.
const LOOK_US: u64 = 60_000;

/// What a word to another part of the process takes.
const INFORM_US: u64 = 100;

/// Times that a job begins anew before its owner gives its checkpoints more time.
const IMPATIENT_ATTEMPTS: u64 = 6;

/// The same for checkpoints that fail.
const IMPATIENT_CHECKPOINTS: u64 = 40;

impl World {
    fn process(&mut self, id: ProcessId) -> Option<&mut Process> {
        self.coordinator.processes.get_mut(&id)
    }

    pub(crate) fn coordinator_is_up(&self) -> bool {
        self.coordinator.current.is_some()
    }

    pub(super) fn cluster_now(&self) -> ClusterNow {
        ClusterNow { steady_ms: self.now_us() / 1_000, wall_ms: self.now_us() / 1_000 }
    }

    /// A process starts, and takes everything up where the one before left it.
    pub(crate) fn start_coordinator(&mut self) {
        if self.coordinator_is_up() || self.coordinator.finished {
            return;
        }
        let storage = self.open_storage();
        let id = self.coordinator.newest + 1;
        let mut said = Vec::new();
        let stored = self.coordinator.stored.clone().into_iter().collect();
        let machine = Machine::new(settings(id), self.cluster_now(), stored, &mut said);
        (self.coordinator.newest, self.coordinator.current) = (id, Some(id));
        let process = Process::new(machine, JobLog::new(storage, Writer { epoch: epoch(id), nonce: id }));
        self.coordinator.processes.insert(id, process);
        self.carry_out(id, said);
        self.after(TICK_US, Event::ClusterTick(id));
    }

    /// What production has, but for what must not take longer than a run.
    fn limits(&self) -> Limits {
        Limits { step_ms_max: 20_000, store_ms_max: 15_000, store_begin_ms_max: 40_000, ..Limits::DEFAULT }
    }

    /// The process that workers know ends, with all that is not durable. What it had asked the storage for may still happen.
    pub(crate) fn crash_coordinator(&mut self) {
        let Some(id) = self.coordinator.current.take() else { return };
        self.seen.coordinator_crashes += 1;
        self.log(|| "the coordinator crashes".to_owned());
        self.wishes.hung_up(id);
        if let Some(process) = self.coordinator.processes.remove(&id) {
            self.outlives(process);
        }
        self.hang_up();
        let delay_us = self.random.delay_us(200_000);
        self.after(delay_us, Event::CoordinatorStarts);
    }

    /// Another process takes the place of one that goes on and believes that it leads.
    pub(crate) fn second_coordinator(&mut self) {
        if self.coordinator.current.take().is_none() {
            return;
        }
        self.seen.second_coordinators += 1;
        self.log(|| "the coordinator is believed dead".to_owned());
        self.hang_up();
        self.after(1_000, Event::CoordinatorStarts);
    }

    fn hang_up(&mut self) {
        for worker in 0..self.workers.len() {
            // Those that are with a stranger notice nothing.
            let of = &mut self.workers[worker];
            if of.session.take_if(|_| of.joined.is_none_or(|id| id < STRANGERS)).is_some() {
                self.connect_soon(worker, 20_000);
            }
        }
    }

    /// A worker registers with a process.
    pub(crate) fn joins(&mut self, id: ProcessId, worker: usize, session: Session, running: Vec<Running>) {
        let register = Register {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            slots: self.scenario.slots,
            data_address: name_of(worker),
            clock_ms: self.now_us() / 1_000,
            led_by: (!running.is_empty()).then_some(self.workers[worker].led_by).flatten(),
            running,
        };
        self.workers[worker].joined = Some(id);
        let incarnation = self.workers[worker].incarnation;
        let hello = Hello { name: name_of(worker).as_str().into(), incarnation, from: name_of(worker) };
        if let Some(process) = self.process(id) {
            process.links.insert(session, worker);
        }
        self.tell_cluster(id, Told::Register { link: session, hello, register: Box::new(register) });
    }

    /// Whether this is a connection of a process that workers find.
    pub(crate) fn knows_session(&self, worker: usize, session: Session) -> bool {
        self.coordinator.process_of(worker, session).is_some()
    }

    /// The coordinator does not hear a worker any more, nor that one the coordinator.
    pub(crate) fn session_over(&mut self, worker: usize, session: Session) {
        if self.workers[worker].session == Some(session) {
            self.workers[worker].session = None;
            self.connect_soon(worker, 20_000);
        }
        if let Some(id) = self.coordinator.process_of(worker, session) {
            if let Some(process) = self.process(id) {
                process.links.remove(&session);
            }
            self.tell_cluster(id, Told::Closed { link: session, reason: "simulated".to_owned() });
        }
    }

    /// What a worker reports.
    pub(crate) fn reported(&mut self, worker: usize, session: Session, report: Report) {
        let is_damage = matches!(&report, Report::Failed { failure, .. } if failure.kind == FailureKind::Damaged);
        self.seen.damage_found_late += u64::from(is_damage && self.seen.is_restoring);
        if let Some(id) = self.coordinator.process_of(worker, session) {
            self.tell_cluster(id, Told::Report { link: session, report: Box::new(report) });
        }
    }

    /// Tells the cluster's machine something, and does what it says.
    pub(crate) fn tell_cluster(&mut self, id: ProcessId, told: Told) {
        let now = self.cluster_now();
        let Some(process) = self.process(id) else { return };
        let mut said = Vec::new();
        process.machine.handle(now, told, &mut said);
        self.carry_out(id, said);
    }

    pub(crate) fn tick_cluster(&mut self, id: ProcessId) {
        if self.coordinator.processes.contains_key(&id) {
            self.tell_cluster(id, Told::Tick { certificate_until_ms: u64::MAX });
            self.after(TICK_US, Event::ClusterTick(id));
        }
    }

    /// Tells a process's master something, and does what it says.
    pub(crate) fn tell_master(&mut self, id: ProcessId, input: Input) {
        let now_us = self.now_us();
        let now = Now { steady_ms: now_us / 1_000, wall_ms: now_us / 1_000, random: self.random.next() };
        let Some(master) = self.process(id).and_then(|process| process.master.as_mut()) else { return };
        let mut said = Vec::new();
        master.handle(now, input, &mut said);
        for output in said {
            // Before any of them, a process may be no more.
            if self.dies_now(id) {
                return;
            }
            self.note(id, &output);
            match output {
                Output::Store { request, what, deadline_ms } => self.ask_storage(id, Request::new(request, what, deadline_ms)),
                says => self.tell_cluster(id, Told::Says { job: JOB.to_owned(), says }),
            }
        }
        self.plan_tick(id);
    }

    /// Sees to it that the master hears the time when it wants to.
    fn plan_tick(&mut self, id: ProcessId) {
        let now_us = self.now_us();
        let Some(process) = self.process(id) else { return };
        let deadline_ms = process.master.as_ref().and_then(Master::deadline_ms);
        let Some(at_us) = deadline_ms.map(|ms| (ms * 1_000).max(now_us + 1)) else { return };
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

    /// Does what the cluster's machine says.
    pub(super) fn carry_out(&mut self, id: ProcessId, said: Vec<Says>) {
        for says in said {
            if self.dies_now(id) {
                return;
            }
            match says {
                Says::Tell { link, command } => {
                    self.check_command(id, &command);
                    if let Some(worker) = self.process(id).and_then(|process| process.links.get(&link).copied()) {
                        self.send_to_worker(worker, link, command);
                    }
                }
                Says::Close { link, .. } => {
                    if let Some(worker) = self.process(id).and_then(|process| process.links.remove(&link)) {
                        let delay_us = self.random.below(20_000);
                        self.after(delay_us, Event::SessionOver(worker, link));
                    }
                }
                Says::Write { id: change_id, change } => {
                    let usual_us = self.disk_us();
                    let at_us = self.now_us() + self.random.delay_us(usual_us);
                    let Some(process) = self.process(id) else { return };
                    // One after the other.
                    process.written_us = at_us.max(process.written_us + 1);
                    let at_us = process.written_us;
                    self.at(at_us, Event::Metadata(id, change_id, change));
                }
                Says::Start { master, .. } => match Master::new(*master, self.limits()) {
                    Ok(master) => {
                        if let Some(process) = self.process(id) {
                            process.master = Some(master);
                        }
                        self.after(INFORM_US, Event::ToMaster(id, Box::new(Input::Tick)));
                    }
                    Err(error) => self.outside.complain(format!("no master can be made: {error}")),
                },
                Says::Inform { input, .. } => self.after(INFORM_US, Event::ToMaster(id, input)),
                Says::Answer { request, answer } => {
                    self.wishes.answered(request);
                    if let Err(refusal) = answer {
                        self.log(|| format!("refused: {refusal:?}"));
                    }
                }
                Says::Log(line) => self.log(|| format!("coordinator {id} logs: {}", line.message)),
                Says::News => {}
            }
        }
    }

    /// With some luck, the process ends before this is done. Says whether it is no more.
    fn dies_now(&mut self, id: ProcessId) -> bool {
        if self.coordinator.current == Some(id) && self.step_faults > 0 && self.random.below(400) == 0 {
            self.step_faults -= 1;
            self.crash_coordinator();
        }
        !self.coordinator.processes.contains_key(&id)
    }

    /// A change of the metadata is with the disk.
    pub(crate) fn write(&mut self, id: ProcessId, change_id: ChangeId, change: Change) {
        if !self.coordinator.processes.contains_key(&id) {
            return;
        }
        let result = if self.coordinator.current != Some(id) {
            Err(WriteFailure("the data folder is another's".to_owned()))
        } else if self.disk.fails() {
            Err(WriteFailure("the disk does not take it".to_owned()))
        } else {
            let before = self.coordinator.stored.take();
            self.coordinator.stored = match change {
                Change::Job { record, begun, .. } => {
                    let begun = match begun {
                        BegunChange::Kept => before.and_then(|stored| stored.begun),
                        BegunChange::Forgotten => None,
                        BegunChange::Is(begun) => Some(*begun),
                    };
                    Some(StoredJob { record: *record, begun })
                }
                Change::Forget { .. } => None,
                Change::Succeeds(_) => before,
            };
            self.wishes.note(self.coordinator.stored.as_ref(), self.now_us());
            Ok(())
        };
        self.tell_cluster(id, Told::Written { change: change_id, result });
    }

    /// Nobody may be told that a checkpoint is complete whose manifest is not durable.
    fn check_command(&mut self, id: ProcessId, command: &Command) {
        match command {
            Command::Refused { .. } if id >= STRANGERS => self.seen.stayed += 1,
            Command::Unalign { .. } => self.seen.unaligned_late += 1,
            Command::Completed { execution, checkpoint, .. } => {
                self.seen.announced_late += u64::from(self.seen.uncertain.contains(checkpoint));
                if !self.outside.is_durable(execution.attempt, *checkpoint) {
                    self.outside
                        .complain(format!("{execution} is told that checkpoint {checkpoint} is complete, which it is not"));
                }
            }
            _ => {}
        }
    }

    /// What is worth knowing of what a master says.
    fn note(&mut self, id: ProcessId, output: &Output) {
        let notice = match output {
            Output::Notice(notice) => notice,
            Output::Over(end) => return self.note_end(id, end),
            _ => return,
        };
        if !matches!(notice, Notice::Progress(_)) {
            self.log(|| format!("coordinator {id}: {notice:?}"));
            self.coordinator.said_last = format!("{notice:?}");
        }
        let now_us = self.now_us();
        match notice {
            Notice::Started { from, .. } => {
                self.seen.attempts += 1;
                self.seen.is_restoring = from.is_some();
            }
            Notice::Deploying { .. } | Notice::Restored { .. } => self.seen.is_restoring = false,
            Notice::WaitsForRestore { .. } => self.seen.waited_for_restore += 1,
            Notice::TakenOver { .. } => self.seen.taken_over += 1,
            Notice::CheckpointFailed { .. } => {
                self.seen.aborted += 1;
                if self.seen.aborted.is_multiple_of(IMPATIENT_CHECKPOINTS) {
                    self.give_time();
                }
            }
            Notice::FellBack { checkpoint, .. } => {
                self.seen.fell_back += 1;
                self.whole.retain(|(id, _)| id != checkpoint);
            }
            Notice::SlowStorage { .. } => self.seen.slow_storage += 1,
            Notice::SlowStep { .. } => self.seen.slow_steps += 1,
            Notice::Rescaling { .. } => self.seen.wished_rescales += 1,
            Notice::Completed { checkpoint, in_flight_bytes, .. } => {
                self.seen.completed.push((now_us, *checkpoint));
                self.seen.completed_with_rows += u64::from(*in_flight_bytes > 0);
            }
            Notice::Restarting { .. } if self.seen.attempts > IMPATIENT_ATTEMPTS => self.give_time(),
            _ => {}
        }
    }

    fn note_end(&mut self, id: ProcessId, end: &Result<Outcome, weir_master::JobError>) {
        self.log(|| format!("coordinator {id}: the job has ended: {end:?}"));
        if self.coordinator.current != Some(id) {
            return;
        }
        match end {
            Ok(Outcome::Finished(_) | Outcome::AlreadyFinished { .. }) => {}
            Ok(Outcome::Stopped(_)) => self.seen.stopped += 1,
            Ok(Outcome::StoppedBetween { .. }) => self.seen.stopped_between += 1,
            Ok(Outcome::Cancelled) => self.seen.cancelled += 1,
            Ok(Outcome::Left) => self.outside.complain("a master left that nobody had asked to".to_owned()),
            // Another coordinator has begun an attempt, or the only checkpoint cannot be read just now: who sees that tries again.
            Err(_) if self.seen.second_coordinators > 0 || self.disk.was_damaged() => {}
            Err(error) => self.outside.complain(format!("the job was given up: {error}")),
        }
    }

    fn ask(&mut self, id: ProcessId, ask: Ask) {
        self.coordinator.asked += 1;
        let request = RequestId(self.coordinator.asked);
        self.wishes.ask(request, id, self.now_us());
        self.tell_cluster(id, Told::Asked { request, by: Person::User("somebody".to_owned()), ask });
    }

    /// Somebody looks at the job, and starts it (again) where it is over before all is done, perhaps with another job file.
    pub(crate) fn look(&mut self) {
        self.after(LOOK_US, Event::Look);
        let Some(id) = self.coordinator.current else { return };
        let state = self.process(id).and_then(|process| process.state());
        if state.is_some_and(|state| !state.is_over()) {
            // Until the job has it: a process that ends may have forgotten that it was asked.
            if self.coordinator.edition.patient && !self.coordinator.was_given_time {
                self.wish(Fault::Cancel);
            }
            return;
        }
        self.coordinator.ending_since_us = None;
        if state == Some(JobState::Finished) {
            self.coordinator.finished = true;
            return;
        }
        if state.is_some() && self.scenario.rescales && self.random.percent(60) {
            let patient = self.coordinator.edition.patient;
            self.coordinator.edition = self.scenario.edition(&mut self.random);
            self.coordinator.edition.patient = patient;
            self.seen.rescaled += 1;
        }
        let submission =
            JobSubmission { spec: spec(&self.scenario, &self.coordinator.edition), fresh: false, allow_dropped_state: false };
        self.coordinator.was_given_time = self.coordinator.edition.patient;
        self.ask(id, Ask::Name(NameAsk::Submit(Box::new(submission))));
    }

    /// Somebody who has seen a job fail again and again gives its checkpoints time.
    fn give_time(&mut self) {
        self.coordinator.edition.patient = true;
    }

    /// Somebody wants something of the job.
    pub(crate) fn wish(&mut self, fault: Fault) {
        let Some(id) = self.coordinator.current else { return self.after(100_000, Event::Fault(fault)) };
        let parallelism = self.random.between(1, crate::scenario::PARALLELISM_MAX) as u32;
        let ask = match fault {
            Fault::Stop => JobAsk::Stop,
            Fault::Cancel => JobAsk::Cancel,
            Fault::Rescale if self.scenario.rescales => JobAsk::Rescale(parallelism),
            _ => return,
        };
        let is_over = self.process(id).and_then(|process| process.state()).is_none_or(JobState::is_over);
        if ask == JobAsk::Cancel && !is_over {
            self.coordinator.ending_since_us.get_or_insert(self.clock.now_us());
        }
        self.ask(id, Ask::Job { name: JOB.to_owned(), ask });
    }
}

/// A job as somebody submits it.
fn spec(scenario: &Scenario, edition: &Edition) -> JobSpec {
    let mut description = Description::plain();
    description.inputs = ["left", "right"].map(|name| InputPort { name: name.to_owned(), doc: String::new() }).into();
    let natives = [("sim-join@1.0.0".to_owned(), description)].into();
    JobSpec { natives, ..JobSpec::new("sim.toml", &scenario.job_file(edition)) }
}

/// What a process is started with.
pub(super) fn settings(id: ProcessId) -> Settings {
    Settings {
        cluster: "simulated".to_owned(),
        certificate_until_ms: u64::MAX,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        default_storage: "sim:".to_owned(),
        epoch: epoch(id),
        succeeds: Vec::new(),
    }
}
