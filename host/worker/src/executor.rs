//! Where a worker runs what takes time.
//!
//! A worker itself never blocks, sleeps or starts a thread: it hears commands, keeps the state of its executions
//! (`execution/life.rs`), and gives everything that may take long to an [`Executor`]:
//!
//! - **Steps** ([`Executor::run`]): taking a job in, `open`, reading a checkpoint, building tasks, taking things down. Each is called
//!   once and may wait for storage, files or a guest for as long as these take, so none may hold another up. Executors start as
//!   many as they are given; the worker bounds how many it gives (`EXECUTIONS_PER_JOB_MAX`).
//! - **Actors** ([`Executor::seat`], [`Seat::start`]): tasks, and the lanes that read instances, store snapshots and commit. Whoever makes channels
//!   needs to know what wakes a task before there is the task; so a seat is taken first, and its [`Wake`] is known from then on. An actor has
//!   [`turn`](Actor::turn)s: `Go` wants another one, `Wait` one when it is woken or a time has passed, `Over` none. It is dropped
//!   where its turns were.
//! - **Time** ([`Executor::clock`]): what tasks go by, and the worker's own bounds. The worker has to be ticked
//!   ([`Worker::tick`](crate::Worker::tick)) a few times a second.
//!
//! Rules for who writes an executor:
//! 1. No call here runs a step or a turn before it returns: the worker holds a lock meanwhile, which both take.
//! 2. The turns of one actor follow each other, and a wake-up that comes during a turn leads to another one.
//! 3. Steps and actors may be dropped instead of being run on (a process that is killed): nothing is said then.
//! 4. Order and delays are free otherwise.
//!
//! [`Threads`] has a thread for each. The simulator has one thread, and a virtual clock, for all.

use std::num::NonZero;
use std::sync::Arc;

use weir_model::TaskId;
use weir_protocol::Execution;
use weir_task::{Clock, Signal, SystemClock, Turn, Wake};

/// What is run, for whom. Names the thread where there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The execution.
    pub execution: Execution,
    /// Its part.
    pub role: PlaceRole,
    /// Name for people: a thread's.
    pub name: String,
}

/// What part of an execution something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PlaceRole {
    /// A step; there is one at a time.
    Step,
    /// A task.
    Task(TaskId),
    /// A lane that stores snapshots, by number.
    Persist(usize),
    /// A lane that commits, by number.
    Commit(usize),
    /// A lane that reads instances of a checkpoint, by number.
    Fill(usize),
}

/// Something that goes on, turn by turn.
pub trait Actor: Send {
    /// Does a piece of work.
    fn turn(&mut self) -> Turn;
}

/// A step.
pub type StepRun = Box<dyn FnOnce() + Send>;

/// A place for an actor that is not there yet.
pub trait Seat: Send {
    /// What wakes it, from any thread and also before it is started.
    fn wake(&self) -> Arc<dyn Wake>;

    /// Runs its turns until it is over.
    ///
    /// # Errors
    /// Why that cannot be, in the system's words. The actor is dropped.
    fn start(self: Box<Self>, actor: Box<dyn Actor>) -> Result<(), String>;
}

/// Runs what takes time.
pub trait Executor: Send + Sync {
    /// The time that everything here goes by.
    fn clock(&self) -> Arc<dyn Clock>;

    /// How many lanes share the snapshots, how many the commits and how many the instances to be read of one execution: at least 1.
    fn lanes(&self) -> usize;

    /// Runs a step, soon.
    ///
    /// # Errors
    /// Why that cannot be, in the system's words. The step is dropped.
    fn run(&self, place: &Place, step: StepRun) -> Result<(), String>;

    /// A seat for an actor.
    fn seat(&self, place: &Place) -> Box<dyn Seat>;
}

/// A third of a task's share of a contended core: enough for the compression of what tasks can dirty meanwhile.
const PERSIST_NICE: i32 = 5;

/// Most lanes of one kind.
const LANES_MAX: usize = 4;

/// A thread for each step and each actor, and the machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct Threads {
    clock: SystemClock,
}

struct ThreadSeat {
    place: Place,
    signal: Arc<Signal>,
}

impl Executor for Threads {
    fn clock(&self) -> Arc<dyn Clock> {
        Arc::new(self.clock)
    }

    fn lanes(&self) -> usize {
        cores().clamp(1, LANES_MAX)
    }

    fn run(&self, place: &Place, step: StepRun) -> Result<(), String> {
        start(place, step)
    }

    fn seat(&self, place: &Place) -> Box<dyn Seat> {
        Box::new(ThreadSeat { place: place.clone(), signal: Arc::default() })
    }
}

impl Seat for ThreadSeat {
    fn wake(&self) -> Arc<dyn Wake> {
        self.signal.clone()
    }

    fn start(self: Box<Self>, mut actor: Box<dyn Actor>) -> Result<(), String> {
        let ThreadSeat { place, signal } = *self;
        let is_patient = matches!(place.role, PlaceRole::Persist(_));
        let turns = move || {
            if is_patient {
                step_back();
            }
            loop {
                match actor.turn() {
                    Turn::Go => {}
                    Turn::Wait(timeout) => signal.wait(timeout),
                    Turn::Over => return,
                }
            }
        };
        start(&place, Box::new(turns))
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(2, NonZero::get)
}

fn start(place: &Place, body: StepRun) -> Result<(), String> {
    let thread = std::thread::Builder::new().name(place.name.clone()).spawn(body);
    thread.map(drop).map_err(|error| error.to_string())
}

/// Lets tasks go first where there are not enough cores: nothing waits for a lane that stores but the end of a checkpoint.
fn step_back() {
    // On Linux a nice value belongs to the calling thread. Without it everything works, with longer pauses.
    if let Err(error) = rustix::process::setpriority_process(None, PERSIST_NICE) {
        tracing::debug!(%error, "snapshots are stored at the priority of tasks");
    }
}
