//! Where the steps and actors of simulated workers run: all on one thread, in virtual time, in an order that the seed decides.
//!
//! What a worker's code asks for while it is called is noted ([`Calls`]) and done by the world right afterwards (`world/actors.rs`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use weir_model::Attempt;
use weir_protocol::Report;
use weir_task::{Clock, Wake};
use weir_worker::executor::{Actor, Executor, Place, PlaceRole, Seat, StepRun};
use weir_worker::{Inbound, OnLost, Outbound, Reports};

use crate::clock::SimClock;
use crate::ids::{ActorId, ProcessOf, WireKey};

/// Something that a worker's process asks of its surroundings.
pub(crate) enum Call {
    Step { place: Place, step: StepRun },
    Start { id: ActorId, place: Place, actor: Box<dyn Actor> },
    Report(Report),
    Expect { attempt: Attempt, inbound: Vec<Inbound>, lost: OnLost },
    Connect { attempt: Attempt, outbound: Vec<Outbound>, lost: OnLost },
    Close { attempt: Attempt },
}

/// What all processes have asked for, in order.
pub(crate) type CallQueue = Arc<Mutex<Vec<(ProcessOf, Call)>>>;

/// What a process asks for.
#[derive(Clone)]
pub(crate) struct Calls {
    pub(crate) process: ProcessOf,
    pub(crate) asked: CallQueue,
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
pub(crate) type WakeQueue = Arc<Mutex<Vec<Target>>>;

#[derive(Debug)]
pub(crate) struct SimWake {
    pub(crate) target: Target,
    pub(crate) woken: WakeQueue,
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
    pub(crate) woken: WakeQueue,
    pub(crate) numbers: Arc<AtomicU64>,
    pub(crate) lanes: usize,
}

struct SimSeat {
    id: ActorId,
    place: Place,
    calls: Calls,
    woken: WakeQueue,
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
    pub(crate) process: ProcessOf,
    pub(crate) role: PlaceRole,
    pub(crate) actor: Box<dyn Actor>,
    /// Time and number of the next turn.
    pub(crate) next: Option<(u64, u64)>,
    pub(crate) busy_until_us: u64,
}
