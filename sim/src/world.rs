//! The event loop: what happens next, in virtual time. One thread; the seed decides everything.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use parking_lot::Mutex;
use weir_cluster::{Change, ChangeId};
use weir_master::Input as Told;
use weir_model::{Barrier, CheckpointId};
use weir_protocol::{Command, JobSpec, Report};
use weir_storage::JobStorage;
use weir_worker::executor::StepRun;

use crate::clock::SimClock;
use crate::coordinator::{Coordinator, ProcessId};
use crate::disk::Disk;
use crate::executor::{ActorId, Asked, ProcessOf, SimActor, Woken};
use crate::network::{LostEar, Wire, WireKey};
use crate::outside::Outside;
use crate::random::{Random, Trace};
use crate::scenario::{Edition, Fault, Input, Mutation, Profile, Scenario};
use crate::storekeeper::{Request, Straggler};
use crate::worker::Worker;

/// Number of a connection between a worker and the coordinator.
pub(crate) type Session = u64;

/// A connection over which nothing is heard for this long is lost.
const SILENCE_US: u64 = 2_000_000;

/// After the last fault and the last row, a job must end in this much virtual time.
const LIVENESS_US: u64 = 400_000_000;

/// Events beyond which a run is stuck without time passing.
const EVENTS_MAX: u64 = 6_000_000;

/// A cancelled job is over within this much virtual time, whatever the storage does.
const CANCEL_US: u64 = 60_000_000;

/// Something that happens at a time.
pub(crate) enum Event {
    Turn(ActorId, u64),
    Step(ProcessOf, StepRun),
    WorkerTick(ProcessOf),
    WireSend(WireKey),
    WireArrive(WireKey),
    WireReceive(WireKey),
    WireAnnounce(WireKey, Barrier),
    PeerLost(ProcessOf, usize, LostEar),
    ToWorker(usize, Session, Box<Command>),
    ToCoordinator(usize, Session, Box<Report>),
    SessionOver(usize, Session),
    Connect(usize),
    WorkerStarts(usize),
    CoordinatorStarts,
    ClusterTick(ProcessId),
    Look,
    ToMaster(ProcessId, Box<Told>),
    Tick(ProcessId, u64),
    Metadata(ProcessId, ChangeId, Box<Change>),
    Storage(ProcessId, Box<Request>),
    NextRequest(ProcessId),
    Straggler(Box<Straggler>),
    Fault(Fault),
    Crash(usize),
    DataLost(usize, usize),
    DiskHeals,
    DiskFast,
}

impl Event {
    /// What it is, for the trace.
    fn words(&self) -> [u64; 3] {
        match self {
            Event::Turn(id, _) => [1, *id, 0],
            Event::Step(process, _) => [2, process.worker as u64, process.incarnation],
            Event::WorkerTick(process) => [3, process.worker as u64, process.incarnation],
            Event::WireSend(key) => [4, key.0.0, u64::from(key.1)],
            Event::WireArrive(key) => [5, key.0.0, u64::from(key.1)],
            Event::WireReceive(key) => [6, key.0.0, u64::from(key.1)],
            Event::WireAnnounce(key, barrier) => [7, u64::from(key.1), barrier.checkpoint.0],
            Event::PeerLost(process, peer, _) => [8, process.worker as u64, *peer as u64],
            Event::ToWorker(worker, session, _) => [9, *worker as u64, *session],
            Event::ToCoordinator(worker, session, _) => [10, *worker as u64, *session],
            Event::SessionOver(worker, session) => [11, *worker as u64, *session],
            Event::Connect(worker) => [12, *worker as u64, 0],
            Event::WorkerStarts(worker) => [13, *worker as u64, 0],
            Event::CoordinatorStarts => [14, 0, 0],
            Event::ClusterTick(id) => [15, *id, 0],
            Event::Look => [16, 0, 0],
            Event::ToMaster(id, _) => [18, *id, 0],
            Event::Tick(id, _) => [19, *id, 0],
            Event::Metadata(id, change, _) => [20, *id, change.0],
            Event::Storage(id, _) => [21, *id, 0],
            Event::NextRequest(id) => [22, *id, 0],
            Event::Straggler(_) => [23, 0, 0],
            Event::Fault(fault) => [24, *fault as u64, 0],
            Event::Crash(worker) => [25, *worker as u64, 0],
            Event::DataLost(a, b) => [26, *a as u64, *b as u64],
            Event::DiskHeals => [27, 0, 0],
            Event::DiskFast => [28, 0, 0],
        }
    }
}

/// What a run came across; a simulation in which nothing happens proves nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Executions that began.
    pub attempts: u64,
    /// Crashes of workers.
    pub worker_crashes: u64,
    /// Crashes of the coordinator.
    pub coordinator_crashes: u64,
    /// Executions that a new coordinator took over.
    pub taken_over: u64,
    /// Checkpoints that were completed, and when.
    pub completed: Vec<(u64, CheckpointId)>,
    /// Of these, those with rows in flight.
    pub completed_with_rows: u64,
    /// Manifests that became durable when nobody waited for them any more.
    pub completed_unheard: u64,
    /// Checkpoints that were given up.
    pub aborted: u64,
    /// Checkpoints that a task declined.
    pub declined: u64,
    /// Snapshots that could not be stored.
    pub persist_failed: u64,
    /// Manifests that could not be written.
    pub manifest_failed: u64,
    /// Barriers that were announced to another worker.
    pub announced: u64,
    /// Checkpoints that went on unaligned after a time.
    pub unaligned_late: u64,
    /// Rows in flight that were stored, and of these, those that a restore had brought.
    pub in_flight_rows: u64,
    /// See above.
    pub again_rows: u64,
    /// Rows in flight that were restored.
    pub restored_rows: u64,
    /// Changes of the parallelism.
    pub rescaled: u64,
    /// Of these, those that somebody asked for while the job ran.
    pub wished_rescales: u64,
    /// Stops.
    pub stopped: u64,
    /// Stops whose last checkpoint has rows in flight.
    pub stopped_with_rows: u64,
    /// Jobs that were asked to stop and ended without a last checkpoint.
    pub stopped_between: u64,
    /// Jobs that were cancelled.
    pub cancelled: u64,
    /// Chains of captures of which a part was merged.
    pub merges: u64,
    /// Manifests that are there although their checkpoint was given up.
    pub uncertain: Vec<CheckpointId>,
    /// Of these, those that were announced as complete in the end.
    pub announced_late: u64,
    /// Requests to the storage that took effect when nobody waited for them.
    pub stragglers: u64,
    /// Requests that were not answered before the storage healed.
    pub hung: u64,
    /// Times that somebody was told of a slow storage.
    pub slow_storage: u64,
    /// Times that somebody was told of a slow step.
    pub slow_steps: u64,
    /// Times that a worker stood still.
    pub stuck: u64,
    /// Checkpoints of which a file was lost.
    pub damaged: u64,
    /// Checkpoints that could not be restored.
    pub fell_back: u64,
    /// Committables that were taken back.
    pub taken_back: u64,
    /// Processes that took the place of a coordinator that went on.
    pub second_coordinators: u64,
    /// Partitions of the network.
    pub partitions: u64,
    /// Requests to the disk that failed.
    pub disk_failures: u64,
    /// Committables that were committed again.
    pub commits_again: u64,
}

/// A simulated cluster with one job.
pub(crate) struct World {
    pub(crate) scenario: Scenario,
    pub(crate) input: Arc<Input>,
    pub(crate) mutation: Option<Mutation>,
    pub(crate) random: Random,
    pub(crate) clock: Arc<SimClock>,
    pub(crate) outside: Arc<Outside>,
    pub(crate) disk: Disk,
    pub(crate) trace: Trace,
    pub(crate) seen: Seen,
    pub(crate) workers: Vec<Worker>,
    pub(crate) actors: BTreeMap<ActorId, SimActor>,
    pub(crate) actor_numbers: Arc<AtomicU64>,
    pub(crate) asked: Asked,
    pub(crate) wires: BTreeMap<WireKey, Wire>,
    pub(crate) coordinator: Coordinator,
    pub(crate) woken: Woken,
    /// Checkpoints that are whole, oldest first, with the files that they have written.
    pub(crate) whole: Vec<(CheckpointId, Vec<String>)>,
    /// Until when nothing is heard of the storage.
    pub(crate) hangs_until_us: u64,
    times: BinaryHeap<Reverse<(u64, u64)>>,
    events: BTreeMap<u64, Event>,
    numbers: u64,
    now_us: u64,
    /// From, to, until when. The coordinator is the node after the last worker.
    partitions: Vec<(usize, usize, u64)>,
    /// Last arrivals, since a connection keeps its order: to the coordinator, and from it.
    arrivals: BTreeMap<(usize, usize), u64>,
    disk_slow: bool,
    pub(crate) step_faults: u32,
    verbose: bool,
}

impl World {
    pub(crate) fn new(seed: u64, profile: Profile, mutation: Option<Mutation>) -> World {
        let mut random = Random::new(seed ^ 0xA5A5);
        let scenario = Scenario::new(seed, profile);
        let edition = scenario.edition(&mut random);
        World {
            input: Arc::new(scenario.input.clone()),
            mutation,
            clock: Arc::default(),
            outside: Arc::default(),
            disk: Disk::new(random.fork()),
            trace: Trace::default(),
            seen: Seen::default(),
            workers: (0..scenario.workers).map(|_| Worker::new()).collect(),
            actors: BTreeMap::new(),
            actor_numbers: Arc::default(),
            asked: Arc::default(),
            wires: BTreeMap::new(),
            coordinator: Coordinator::new(edition),
            woken: Arc::new(Mutex::new(Vec::new())),
            whole: Vec::new(),
            hangs_until_us: 0,
            times: BinaryHeap::new(),
            events: BTreeMap::new(),
            numbers: 0,
            now_us: 0,
            partitions: Vec::new(),
            arrivals: BTreeMap::new(),
            disk_slow: false,
            step_faults: scenario.step_faults,
            verbose: std::env::var_os("WEIR_SIM_LOG").is_some(),
            random,
            scenario,
        }
    }

    /// Runs the job to its end.
    ///
    /// # Errors
    /// If it does not come to an end.
    pub(crate) fn go(&mut self) -> Result<(), String> {
        let verbose = self.verbose;
        if verbose {
            let text = format!("{:#?}", Scenario { input: self.scenario.input.clone(), ..self.scenario.clone() });
            self.log(|| text);
        }
        for worker in 0..self.workers.len() {
            self.at(worker as u64, Event::WorkerStarts(worker));
        }
        self.at(5_000, Event::CoordinatorStarts);
        self.at(15_000, Event::Look);
        for (at_us, fault) in self.scenario.faults.clone() {
            self.at(at_us, Event::Fault(fault));
        }
        let last_fault_us = self.scenario.faults.last().map_or(0, |(at_us, _)| *at_us);
        let limit_us = last_fault_us.max(self.scenario.input_ends_us()) + LIVENESS_US;
        while !self.coordinator.is_over() {
            let Some(Reverse((at_us, number))) = self.times.pop() else {
                return Err(format!("nothing can happen any more: {}", self.coordinator.describe()));
            };
            let Some(event) = self.events.remove(&number) else { continue };
            if at_us > limit_us || self.trace.steps() > EVENTS_MAX {
                return Err(format!("the job does not end: {} at {at_us} us", self.coordinator.describe()));
            }
            self.now_us = at_us;
            self.clock.set(at_us);
            let [kind, a, b] = event.words();
            self.trace.note(&[at_us, kind, a, b]);
            self.happen(event);
            self.answer_calls();
            self.wake_all();
            if self.coordinator.ending_since_us.is_some_and(|since_us| at_us > since_us + CANCEL_US) {
                return Err(format!("a cancelled job is not over: {}", self.coordinator.describe()));
            }
        }
        self.seen.disk_failures = self.disk.failed();
        self.seen.taken_back = self.outside.taken_back();
        self.seen.commits_again = self.outside.commits_again();
        Ok(())
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Turn(id, number) => self.turn(id, number),
            Event::Step(process, step) => self.step(process, step),
            Event::WorkerTick(process) => self.tick_worker(process),
            Event::WireSend(key) => self.wire_send(key),
            Event::WireArrive(key) => self.wire_arrive(key),
            Event::WireReceive(key) => self.wire_receive(key),
            Event::WireAnnounce(key, barrier) => self.wire_announce(key, barrier),
            Event::PeerLost(process, peer, ear) => self.peer_lost(process, peer, &ear),
            Event::ToWorker(worker, session, command) => {
                if self.workers[worker].session == Some(session) {
                    self.hear(worker, *command);
                }
            }
            Event::ToCoordinator(worker, session, report) => {
                if self.knows_session(worker, session) {
                    self.reported(session, *report);
                }
            }
            Event::SessionOver(worker, session) => self.session_over(worker, session),
            Event::Connect(worker) => self.connect(worker),
            Event::WorkerStarts(worker) => self.start_worker(worker),
            Event::CoordinatorStarts => self.start_coordinator(),
            Event::ClusterTick(id) => self.tick_cluster(id),
            Event::Look => self.look(),
            Event::ToMaster(id, input) => self.tell_master(id, *input),
            Event::Tick(id, at_us) => self.tick(id, at_us),
            Event::Metadata(id, change_id, change) => self.write(id, change_id, *change),
            Event::Storage(id, request) => self.store(id, *request),
            Event::NextRequest(id) => self.next_request(id),
            Event::Straggler(straggler) => self.straggle(&straggler),
            Event::Fault(fault) => self.strike(fault),
            Event::Crash(worker) => self.crash_worker(worker),
            Event::DataLost(a, b) => self.break_data(a, b),
            Event::DiskHeals => self.disk.set_failing(0),
            Event::DiskFast => self.disk_slow = false,
        }
    }

    fn wake_all(&mut self) {
        loop {
            let woken = std::mem::take(&mut *self.woken.lock());
            if woken.is_empty() {
                return;
            }
            woken.into_iter().for_each(|target| self.wake(target));
            self.answer_calls();
        }
    }

    pub(crate) fn at(&mut self, at_us: u64, event: Event) {
        let number = self.next_number();
        self.times.push(Reverse((at_us.max(self.now_us), number)));
        self.events.insert(number, event);
    }

    pub(crate) fn after(&mut self, delay_us: u64, event: Event) {
        self.at(self.clock.now_us() + delay_us, event);
    }

    pub(crate) fn next_number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    pub(crate) fn new_session(&mut self) -> Session {
        self.next_number()
    }

    pub(crate) fn now_us(&self) -> u64 {
        self.now_us
    }

    pub(crate) fn log(&self, text: impl FnOnce() -> String) {
        if self.verbose {
            #[allow(clippy::print_stderr, reason = "asked for with WEIR_SIM_LOG")]
            {
                eprintln!("{:>10} us  {}", self.clock.now_us(), text());
            }
        }
    }

    pub(crate) fn open_storage(&self) -> JobStorage {
        match JobStorage::with_store(Arc::new(self.disk.clone()), "sim:", "sim") {
            Ok(storage) => storage,
            Err(error) => panic!("a storage in memory cannot be opened: {error}"),
        }
    }

    /// What a write usually takes.
    pub(crate) fn disk_us(&self) -> u64 {
        self.scenario.disk_us * if self.disk_slow { 30 } else { 1 }
    }

    fn coordinator_node(&self) -> usize {
        self.workers.len()
    }

    fn blocked_until(&self, from: usize, to: usize) -> Option<u64> {
        let blocks = self.partitions.iter().filter(|of| (of.0, of.1) == (from, to) && of.2 > self.now_us);
        blocks.map(|of| of.2).max()
    }

    pub(crate) fn is_blocked_with_coordinator(&self, worker: usize) -> bool {
        let coordinator = self.coordinator_node();
        self.blocked_until(worker, coordinator).is_some() || self.blocked_until(coordinator, worker).is_some()
    }

    /// When a packet that is sent now arrives.
    pub(crate) fn arrival(&mut self, from: usize, to: usize, usual_us: u64) -> u64 {
        let start_us = self.blocked_until(from, to).unwrap_or(0).max(self.clock.now_us());
        start_us + self.random.delay_us(usual_us)
    }

    fn in_order(&mut self, from: usize, to: usize, delay_us: u64) -> u64 {
        let at_us = self.arrival(from, to, self.scenario.network_us) + delay_us;
        let last_us = self.arrivals.entry((from, to)).or_default();
        *last_us = at_us.max(*last_us + 1);
        *last_us
    }

    pub(crate) fn send_to_worker(&mut self, worker: usize, session: Session, command: Command) {
        let at_us = self.in_order(self.coordinator_node(), worker, 0);
        self.at(at_us, Event::ToWorker(worker, session, Box::new(command)));
    }

    pub(crate) fn send_to_coordinator(&mut self, worker: usize, session: Session, report: Report, delay_us: u64) {
        let at_us = self.in_order(worker, self.coordinator_node(), delay_us);
        self.at(at_us, Event::ToCoordinator(worker, session, Box::new(report)));
    }

    /// With some luck, a process dies right now. Says whether the one that asks did.
    pub(crate) fn step_fault(&mut self, fault: Fault, worker: usize) -> bool {
        if self.step_faults == 0 || !self.random.percent(6) {
            return false;
        }
        self.step_faults -= 1;
        if self.random.percent(50) {
            match fault {
                Fault::CoordinatorCrash => self.crash_coordinator(),
                _ => self.crash_worker(worker),
            }
            return true;
        }
        let victim = self.random.below(self.workers.len() as u64) as usize;
        self.after(0, Event::Crash(victim));
        false
    }

    fn strike(&mut self, fault: Fault) {
        let worker = self.random.below(self.workers.len() as u64) as usize;
        let other = self.random.below(self.workers.len() as u64) as usize;
        self.log(|| format!("fault: {fault:?} at {worker}, {other}"));
        match fault {
            Fault::WorkerCrash => self.crash_worker(worker),
            Fault::CoordinatorCrash => self.crash_coordinator(),
            Fault::DataLost => self.break_data(worker, other),
            Fault::ControlLost => self.break_control(worker),
            Fault::Partition => self.partition(worker),
            Fault::DiskFails => {
                let percent = self.random.pick(&[3, 15, 60]);
                self.disk.set_failing(percent);
                let delay_us = self.random.between(10_000, 800_000);
                self.after(delay_us, Event::DiskHeals);
            }
            Fault::DiskSlow => {
                self.disk_slow = true;
                let delay_us = self.random.between(10_000, 800_000);
                self.after(delay_us, Event::DiskFast);
            }
            Fault::Stop | Fault::Cancel | Fault::Rescale => self.wish(fault),
            Fault::Hang => {
                let length_us = self.random.pick(&[200_000, 8_000_000, 40_000_000]);
                self.hangs_until_us = self.now_us() + 1 + self.random.below(length_us);
            }
            Fault::WorkerStuck => self.stick(worker),
            Fault::SecondCoordinator => self.second_coordinator(),
            Fault::DamageOnce => self.disk.damage_reads(1 + other as u64),
            Fault::DamageForGood => self.damage_newest(),
        }
    }

    /// A file of the newest checkpoint is lost where there is an older one, and everything ends before another is complete.
    fn damage_newest(&mut self) {
        if self.scenario.retained < 2 || self.whole.len() < 2 {
            return;
        }
        let newest = self.whole.pop().map_or_else(Vec::new, |(_, files)| files);
        // The one before is all there is to go back to until others are complete.
        self.whole = self.whole.pop().into_iter().collect();
        if newest.is_empty() {
            return;
        }
        let at = self.random.below(newest.len() as u64) as usize;
        self.disk.lose(&newest[at]);
        self.seen.damaged += 1;
        self.crash_coordinator();
        (0..self.workers.len()).for_each(|worker| self.crash_worker(worker));
    }

    fn break_control(&mut self, worker: usize) {
        if let Some(session) = self.workers[worker].session.take() {
            let delay_us = self.random.below(50_000);
            self.after(delay_us, Event::SessionOver(worker, session));
            self.connect_soon(worker, 20_000);
        }
    }

    /// A node is cut off from another, in one direction or both, for a time.
    fn partition(&mut self, node: usize) {
        self.seen.partitions += 1;
        let mut other = self.random.below(self.workers.len() as u64 + 1) as usize;
        if other == node {
            other = self.coordinator_node();
        }
        let length_us = self.random.pick(&[20_000, 300_000, 1_500_000, 3_000_000, 10_000_000]);
        let until_us = self.now_us + 1 + self.random.below(length_us);
        let both = self.random.percent(50);
        self.partitions.push((node, other, until_us));
        if both || self.random.percent(50) {
            self.partitions.push((other, node, until_us));
        }
        if until_us - self.now_us < SILENCE_US {
            return;
        }
        // Too long for the connections, whichever direction it is.
        if other == self.coordinator_node() {
            if let Some(session) = self.workers[node].session {
                self.after(SILENCE_US, Event::SessionOver(node, session));
            }
        } else {
            self.after(SILENCE_US, Event::DataLost(node, other));
        }
    }
}

/// A job as somebody submits it.
pub(crate) fn spec(scenario: &Scenario, edition: &Edition) -> JobSpec {
    JobSpec::new("sim.toml", &scenario.job_file(edition))
}
