//! An execution as its worker sees it: the machine of its life, and what carries out what that says.
//!
//! Any thread may come with an input; each is taken in, and what follows from it begun, under one lock, so that words leave in the order
//! of what they say. Nothing that is begun here takes long: steps and actors are the executor's.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use weir_protocol::panics::caught;
use weir_protocol::{Command, Prepare, Report, Running, WorkerProgress};
use weir_task::{TaskError, Turn};

use super::failure::{Panic, Trouble};
use super::lanes::SeatedLane;
use super::life::{Input, Life, Output};
use super::meters::Meters;
use super::steps::{Step, StepResult};
use super::voice::{Voice, on_lost};
use crate::context::WorkerContext;
use crate::executor::{Actor, Place, PlaceRole};

/// One execution on this worker.
pub(crate) struct Runner {
    context: Arc<WorkerContext>,
    voice: Arc<Voice>,
    life: Mutex<Life>,
    meters: Mutex<Option<Meters>>,
    is_over: Mutex<bool>,
    over: Condvar,
}

impl Runner {
    /// An execution that has not begun.
    pub(crate) fn new(context: Arc<WorkerContext>, prepare: &Prepare) -> Arc<Runner> {
        let tasks = prepare.placement.tasks_of(&context.options.name);
        let voice = Arc::new(Voice::new(prepare.execution.clone(), tasks, context.options.reports.clone()));
        let life = Mutex::new(Life::new(prepare.execution.clone()));
        Arc::new(Runner { context, voice, life, meters: Mutex::default(), is_over: Mutex::new(false), over: Condvar::new() })
    }

    /// Takes a command. Returns at once.
    pub(crate) fn tell(self: &Arc<Self>, command: Command) {
        // Noted first: a registration in between must not say less than is on its way to tasks.
        match &command {
            Command::Cancel { .. } => self.voice.told_to_end(),
            Command::Trigger { checkpoint, .. } | Command::Abort { checkpoint, .. } => self.voice.told_of(*checkpoint),
            _ => {}
        }
        self.hear(Input::Command(command));
    }

    /// It cannot go on, for a reason that lies outside it.
    pub(crate) fn fail(&self, trouble: Trouble) {
        self.voice.failed(trouble);
    }

    /// Time has passed.
    pub(crate) fn tick(self: &Arc<Self>) {
        self.hear(Input::Tick);
    }

    /// Whether no step and no actor of it is left.
    pub(crate) fn is_over(&self) -> bool {
        *self.is_over.lock()
    }

    /// How long ago it was told to end; none where it was not, or is over.
    pub(crate) fn ends_for(&self) -> Option<Duration> {
        let now = self.now();
        self.life.lock().ends_since().map(|since| now.saturating_sub(since))
    }

    /// What it does or waits for, in one line for people.
    pub(crate) fn what(&self) -> String {
        let now = self.now();
        self.life.lock().what(now)
    }

    pub(crate) fn running(&self) -> Running {
        self.voice.running()
    }

    /// Counts, once its tasks are built.
    pub(crate) fn progress(&self) -> Option<WorkerProgress> {
        self.meters.lock().as_ref().map(|meters| meters.read(&self.voice))
    }

    /// Waits until it is over, at most until `deadline`. Says whether it is.
    pub(crate) fn wait(&self, deadline: Instant) -> bool {
        let mut is_over = self.is_over.lock();
        while !*is_over {
            if self.over.wait_until(&mut is_over, deadline).timed_out() {
                return *is_over;
            }
        }
        true
    }

    fn now(&self) -> Duration {
        self.context.options.executor.clock().now()
    }

    fn hear(self: &Arc<Self>, input: Input) {
        let now = self.now();
        let mut life = self.life.lock();
        let mut inputs = VecDeque::from([input]);
        let mut outputs = Vec::new();
        while let Some(input) = inputs.pop_front() {
            life.handle(now, input, &mut outputs);
            inputs.extend(outputs.drain(..).filter_map(|output| self.carry_out(output)));
        }
    }

    /// The same from a thread of the executor, on which a panic would be lost.
    fn hear_from_afar(self: &Arc<Self>, input: Input) {
        if let Err(panic) = caught(|| self.hear(input)) {
            self.voice.failed(Panic("the worker's part of the job", &panic));
        }
    }

    /// Begins what is to be done. Gives what follows from it at once.
    fn carry_out(self: &Arc<Self>, output: Output) -> Option<Input> {
        match output {
            Output::Run(step) => return self.run(step),
            Output::Start(seated) => return self.start(seated),
            Output::Connect(outbound) if outbound.is_empty() => {}
            Output::Connect(outbound) => {
                if let Some(network) = &self.context.options.network
                    && let Err(reason) = network.connect(self.voice.execution(), outbound, on_lost(&self.voice))
                {
                    self.voice.failed(Trouble::transient(reason));
                }
            }
            Output::Measure(meters) => *self.meters.lock() = Some(meters),
            Output::Started => self.voice.started(),
            Output::Say(report) => self.context.options.reports.report(report),
            Output::Fail(trouble) => self.voice.failed(trouble),
            Output::GiveUp(what) => {
                let execution = self.voice.execution();
                tracing::warn!(%execution, what, "an execution does not end; it is not waited for any longer");
            }
            Output::SayEnded => self.say_ended(),
            Output::Close => self.close_channels(),
            Output::Over => {
                *self.is_over.lock() = true;
                self.over.notify_all();
            }
        }
        None
    }

    fn run(self: &Arc<Self>, step: Step) -> Option<Input> {
        let execution = self.voice.execution().clone();
        let name = format!("{}-{}", execution.job, execution.attempt);
        let place = Place { execution, role: PlaceRole::Step, name };
        let is_discard = matches!(step, Step::Discard(_));
        let runner = self.clone();
        let body = move || {
            let result = step.carry_out(&runner.context, &runner.voice);
            runner.hear_from_afar(Input::StepEnded(result));
        };
        let error = self.context.options.executor.run(&place, Box::new(body)).err()?;
        Some(Input::StepEnded(if is_discard {
            Ok(StepResult::Discarded)
        } else {
            Err(Trouble::transient(format!("cannot start a thread for the job: {error}")))
        }))
    }

    fn start(self: &Arc<Self>, SeatedLane { place, seat, actor }: SeatedLane) -> Option<Input> {
        let role = place.role;
        let watched = WatchedActor { actor: Some(actor), place: place.clone(), runner: self.clone() };
        let error = seat.start(Box::new(watched)).err()?;
        self.voice.failed(Trouble::permanent(format!(
            "cannot start a thread for {}: {error}; lower the job's parallelism, or raise the system's limit on threads (ulimit -u)",
            place.name
        )));
        Some(Input::ActorOver(role))
    }

    /// The last counts are read before the channels are closed: theirs go with them.
    fn say_ended(&self) {
        let progress = Box::new(self.progress().unwrap_or_default());
        self.close_channels();
        self.voice.say(|execution| Report::Ended { execution, progress });
    }

    fn close_channels(&self) {
        if let Some(network) = &self.context.options.network {
            network.close(self.voice.execution());
        }
    }
}

/// An actor whose end, also by a panic, its execution hears of.
struct WatchedActor {
    actor: Option<Box<dyn Actor>>,
    place: Place,
    runner: Arc<Runner>,
}

impl Actor for WatchedActor {
    fn turn(&mut self) -> Turn {
        let Some(actor) = &mut self.actor else { return Turn::Over };
        match caught(|| actor.turn()) {
            Ok(Turn::Over) => {}
            Ok(turn) => return turn,
            Err(panic) => self.runner.voice.failed(panicked(&self.place, panic)),
        }
        // Before its end is told: what it holds is a part of it.
        if let Err(panic) = caught(|| drop(self.actor.take())) {
            self.runner.voice.failed(panicked(&self.place, panic));
        }
        self.runner.hear_from_afar(Input::ActorOver(self.place.role));
        Turn::Over
    }
}

fn panicked(place: &Place, message: String) -> Trouble {
    match place.role {
        PlaceRole::Task(_) => Trouble::from(&TaskError::Panicked { task: place.name.clone(), message }),
        PlaceRole::Persist(_) => Panic("a thread that stores snapshots", &message).into(),
        PlaceRole::Commit(_) => Panic("a thread that commits", &message).into(),
        PlaceRole::Fill(_) => Panic("the restore of an instance", &message).into(),
        PlaceRole::Step => Panic("the worker's part of the job", &message).into(),
    }
}
