//! Where the steps and actors of simulated workers run: all on one thread, in virtual time, in an order that the seed decides.
//!
//! What a worker's code asks for while it is called is noted ([`Calls`]) and done by the world right afterwards.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use weir_model::Attempt;
use weir_protocol::Report;
use weir_task::{Clock, Turn, Wake};
use weir_worker::executor::{Actor, Executor, Place, PlaceRole, Seat, StepRun};
use weir_worker::{Inbound, OnLost, Outbound, Reports};

use crate::clock::SimClock;
use crate::network::WireKey;
use crate::scenario::Fault;
use crate::world::{Event, World};

/// Number of an actor. Never used twice in a run.
pub(crate) type ActorId = u64;

/// Something that a worker's process asks of its surroundings.
pub(crate) enum Call {
    Step { place: Place, step: StepRun },
    Start { id: ActorId, place: Place, actor: Box<dyn Actor> },
    Report(Report),
    Expect { attempt: Attempt, inbound: Vec<Inbound>, lost: OnLost },
    Connect { attempt: Attempt, outbound: Vec<Outbound>, lost: OnLost },
    Close { attempt: Attempt },
}

/// A process of a worker: which worker, and the how manieth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ProcessOf {
    pub(crate) worker: usize,
    pub(crate) incarnation: u64,
}

/// What all processes have asked for, in order.
pub(crate) type Asked = Arc<Mutex<Vec<(ProcessOf, Call)>>>;

/// What a process asks for.
#[derive(Clone)]
pub(crate) struct Calls {
    pub(crate) process: ProcessOf,
    pub(crate) asked: Asked,
}

impl Calls {
    pub(crate) fn add(&self, call: Call) {
        self.asked.lock().push((self.process, call));
    }
}

impl Reports for Calls {
    fn report(&self, report: Report) {
        self.add(Call::Report(report));
    }
}

/// Who is woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Target {
    Actor(ActorId),
    Writer(WireKey),
    Reader(WireKey),
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

impl std::task::Wake for SimWake {
    fn wake(self: Arc<Self>) {
        Wake::wake(&*self);
    }
}

/// The executor of a worker's process.
pub(crate) struct SimExecutor {
    pub(crate) calls: Calls,
    pub(crate) clock: Arc<SimClock>,
    pub(crate) woken: Woken,
    pub(crate) numbers: Arc<AtomicU64>,
    pub(crate) lanes: usize,
}

struct SimSeat {
    id: ActorId,
    place: Place,
    calls: Calls,
    woken: Woken,
}

impl Executor for SimExecutor {
    fn clock(&self) -> Arc<dyn Clock> {
        self.clock.clone()
    }

    fn lanes(&self) -> usize {
        self.lanes
    }

    fn run(&self, place: &Place, step: StepRun) -> Result<(), String> {
        self.calls.add(Call::Step { place: place.clone(), step });
        Ok(())
    }

    fn seat(&self, place: &Place) -> Box<dyn Seat> {
        let id = self.numbers.fetch_add(1, Ordering::Relaxed);
        Box::new(SimSeat { id, place: place.clone(), calls: self.calls.clone(), woken: self.woken.clone() })
    }

    fn each(&self, count: usize, work: &(dyn Fn(usize) + Sync)) -> Result<(), String> {
        (0..count).for_each(work);
        Ok(())
    }
}

impl Seat for SimSeat {
    fn wake(&self) -> Arc<dyn Wake> {
        Arc::new(SimWake { target: Target::Actor(self.id), woken: self.woken.clone() })
    }

    fn start(self: Box<Self>, actor: Box<dyn Actor>) -> Result<(), String> {
        self.calls.add(Call::Start { id: self.id, place: self.place, actor });
        Ok(())
    }
}

/// An actor and when its next turn is.
pub(crate) struct SimActor {
    process: ProcessOf,
    role: PlaceRole,
    actor: Box<dyn Actor>,
    /// Time and number of the next turn.
    next: Option<(u64, u64)>,
    busy_until_us: u64,
}

impl World {
    pub(crate) fn is_alive(&self, process: ProcessOf) -> bool {
        let of = &self.workers[process.worker];
        of.alive && of.incarnation == process.incarnation
    }

    /// Does what workers have asked for.
    pub(crate) fn answer_calls(&mut self) {
        loop {
            let asked = std::mem::take(&mut *self.asked.lock());
            if asked.is_empty() {
                return;
            }
            for (process, call) in asked.into_iter() {
                if self.is_alive(process) {
                    self.answer(process, call);
                }
            }
        }
    }

    fn answer(&mut self, process: ProcessOf, call: Call) {
        match call {
            Call::Step { place, step } => {
                self.log(|| format!("worker {}: step {}", process.worker, place.name));
                let delay_us = self.random.delay_us(2_000);
                self.after(delay_us, Event::Step(process, step));
            }
            Call::Start { id, place, actor } => {
                let actor = SimActor { process, role: place.role, actor, next: None, busy_until_us: 0 };
                self.actors.insert(id, actor);
                let delay_us = self.random.delay_us(1_000);
                self.schedule_turn(id, delay_us);
            }
            Call::Report(report) => self.say(process.worker, report),
            Call::Expect { attempt, inbound, lost } => self.expect(process, attempt, inbound, &lost),
            Call::Connect { attempt, outbound, lost } => self.connect_wires(process, attempt, outbound, &lost),
            Call::Close { attempt } => self.drop_wires(process.worker, Some(attempt)),
        }
    }

    /// A step runs, unless its storage or files hang.
    pub(crate) fn step(&mut self, process: ProcessOf, step: StepRun) {
        if !self.is_alive(process) {
            return;
        }
        if let Some(until_us) = self.hangs_until(process.worker) {
            return self.at(until_us + 1, Event::Step(process, step));
        }
        step();
    }

    pub(crate) fn schedule_turn(&mut self, id: ActorId, delay_us: u64) {
        let (now_us, number) = (self.clock.now_us(), self.next_number());
        let Some(actor) = self.actors.get_mut(&id) else { return };
        let at_us = (now_us + delay_us).max(actor.busy_until_us);
        if actor.next.is_some_and(|(next_us, _)| next_us <= at_us) {
            return;
        }
        actor.next = Some((at_us, number));
        self.at(at_us, Event::Turn(id, number));
    }

    /// An actor has its turn. What stores takes as long as the disk, and hangs with it.
    pub(crate) fn turn(&mut self, id: ActorId, number: u64) {
        let (clock, started_us) = (self.clock.clone(), self.clock.now_us());
        let Some(sim) = self.actors.get(&id).filter(|sim| sim.next.is_some_and(|(_, next)| next == number)) else { return };
        let (process, stores) = (sim.process, !matches!(sim.role, PlaceRole::Task(_)));
        let hangs_until_us = self.hangs_until(process.worker).filter(|_| stores);
        let Some(sim) = self.actors.get_mut(&id) else { return };
        sim.next = None;
        if let Some(until_us) = hangs_until_us {
            let delay_us = until_us + 1 - started_us;
            return self.schedule_turn(id, delay_us);
        }
        let turn = sim.actor.turn();
        let spent_us = clock.now_us() - started_us;
        sim.busy_until_us = clock.now_us() + 1;
        let word = match turn {
            Turn::Go => 1,
            Turn::Wait(None) => 2,
            Turn::Wait(Some(time)) => 3 + time.as_micros() as u64,
            Turn::Over => 0,
        };
        self.trace.note(&[word, spent_us]);
        let disk_us = self.disk_us();
        match turn {
            Turn::Go => {
                // What is stored goes to the disk in larger pieces.
                let waits_for_disk = stores && self.random.below(6) == 0;
                let delay_us = if waits_for_disk { self.random.delay_us(disk_us) } else { 1 + self.random.below(40) };
                self.schedule_turn(id, delay_us);
            }
            Turn::Wait(Some(time)) => self.schedule_turn(id, time.as_micros() as u64 + 1),
            Turn::Wait(None) => {}
            Turn::Over => drop(self.actors.remove(&id)),
        }
        if stores && self.step_fault(Fault::WorkerCrash, process.worker) {
            self.log(|| format!("worker {} died over a snapshot", process.worker));
        }
    }

    /// Somebody has something for it.
    pub(crate) fn wake(&mut self, target: Target) {
        match target {
            Target::Actor(id) => {
                let stores = self.actors.get(&id).is_some_and(|sim| !matches!(sim.role, PlaceRole::Task(_)));
                let usual_us = if stores { self.disk_us() } else { 0 };
                let delay_us = 1 + self.random.below(60) + if usual_us > 0 { self.random.delay_us(usual_us) } else { 0 };
                self.schedule_turn(id, delay_us);
            }
            Target::Writer(key) => self.wake_writer(key),
            Target::Reader(key) => {
                let delay_us = 1 + self.random.below(60);
                self.wake_reader(key, delay_us);
            }
        }
    }

    /// All that ran in a worker's process is gone.
    pub(crate) fn drop_actors(&mut self, worker: usize) {
        self.actors.retain(|_, sim| sim.process.worker != worker);
    }
}
