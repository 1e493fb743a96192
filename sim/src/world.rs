//! A simulated cluster: all that there is in a run, and what is to happen when, in virtual time. One thread; the seed decides everything.
//!
//! What happens to its parts is in `world/`, each file with one part; `run` is the loop. None of these files needs another.

mod actors;
mod coordinator;
mod faults;
mod run;
mod storekeeper;
mod stranger;
mod watch;
mod wires;
mod workers;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use object_store::ObjectStore;
use parking_lot::Mutex;
use weir_cluster::{Change, ChangeId};
use weir_master::Input as Told;
use weir_model::{Barrier, CheckpointId};
use weir_protocol::{Command, Report};
use weir_storage::JobStorage;
use weir_worker::executor::StepRun;

use crate::clock::SimClock;
use crate::coordinator::{Coordinator, Request, Straggler};
use crate::disk::Disk;
use crate::executor::{CallQueue, SimActor, WakeQueue};
use crate::ids::{ActorId, ProcessId, ProcessOf, Session, WireKey};
use crate::network::{LostEar, Wire};
use crate::outside::Outside;
use crate::random::{Random, Trace};
use crate::scenario::{Fault, Input, Mutation, Profile, Scenario};
use crate::sightings::Sightings;
use crate::wishes::Wishes;
use crate::worker::Worker;

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
    StrangerLeaves(ProcessId),
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
            Event::StrangerLeaves(id) => [29, *id, 0],
        }
    }
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
    pub(crate) seen: Sightings,
    pub(crate) workers: Vec<Worker>,
    pub(crate) actors: BTreeMap<ActorId, SimActor>,
    pub(crate) actor_numbers: Arc<AtomicU64>,
    pub(crate) asked: CallQueue,
    pub(crate) wires: BTreeMap<WireKey, Wire>,
    pub(crate) coordinator: Coordinator,
    pub(crate) woken: WakeQueue,
    /// The storage as it is, whatever goes wrong on the way there.
    pub(crate) reader: JobStorage,
    /// Files by the manifest that names them.
    pub(crate) named: BTreeMap<String, BTreeSet<String>>,
    pub(crate) wishes: Wishes,
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
        let disk = Disk::new(random.fork());
        World {
            reader: storage_of(disk.store()),
            named: BTreeMap::new(),
            wishes: Wishes::default(),
            input: Arc::new(scenario.input.clone()),
            mutation,
            clock: Arc::default(),
            outside: Arc::default(),
            disk,
            trace: Trace::default(),
            seen: Sightings::default(),
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
        storage_of(Arc::new(self.disk.clone()))
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
}

fn storage_of(store: Arc<dyn ObjectStore>) -> JobStorage {
    match JobStorage::with_store(store, "sim:", "sim") {
        Ok(storage) => storage,
        Err(error) => panic!("a storage in memory cannot be opened: {error}"),
    }
}
