//! The life of an execution on a worker, as a machine: commands, ends of steps and of actors, and time go in; steps to carry out,
//! actors to start and words to say come out.
//!
//! Nothing here blocks, so `Cancel` is answered in bounded time whatever a step or a task waits for. At most one step runs at a
//! time; what it is about is in the step meanwhile, and comes back with its end. An execution that is told to end is over when its
//! step and its actors are. Where that takes longer than [`EXECUTION_END_MS_MAX`] it is given up: the coordinator is told that it has
//! ended, and the worker goes on counting it.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use weir_model::limits::EXECUTION_END_MS_MAX;
use weir_model::{Barrier, BarrierKind, CheckpointId, TaskId};
use weir_protocol::{Command, Commits, Execution, Report};
use weir_task::{Control, Task, TaskHandle, Turn};

use super::build::{Built, BuiltTask};
use super::committers::CommitLanes;
use super::failure::Trouble;
use super::fill::Fill;
use super::lanes::{PersistLanes, SeatedLane};
use super::meters::Meters;
use super::prepare::PreparedJob;
use super::restore::LoadedState;
use super::sinks::Sinks;
use super::steps::{Step, StepResult};
use crate::executor::{Actor, Place, PlaceRole};
use crate::network::Outbound;

/// Something has happened.
pub(super) enum Input {
    /// The coordinator says something.
    Command(Command),
    /// The step that ran has ended, or could not be run.
    StepEnded(Result<StepResult, Trouble>),
    /// An actor that was started is gone, or could not be started.
    ActorOver(PlaceRole),
    /// Time has passed.
    Tick,
}

/// Something is to be done. None of it may take long.
pub(super) enum Output {
    /// Have this step carried out.
    Run(Step),
    /// Start this actor.
    Start(SeatedLane),
    /// Connect the sending ends of channels.
    Connect(Vec<Outbound>),
    /// From now on there are counts.
    Measure(Meters),
    /// The tasks run from now on.
    Started,
    /// Say this.
    Say(Report),
    /// Say that the execution has failed.
    Fail(Trouble),
    /// Say that it is over, with its last counts.
    SayEnded,
    /// Close its channels: its end was said, with which they were closed, and a step that ended since may have made some.
    Close,
    /// It waits for something that does not answer: say so to people.
    GiveUp(String),
    /// No step and no actor of it is left.
    Over,
}

/// How far an execution is.
enum State {
    New,
    Prepared(Arc<PreparedJob>),
    Restored {
        job: Arc<PreparedJob>,
        loaded: Box<LoadedState>,
        sinks: Sinks,
    },
    Built(Box<Built>),
    Running(Tasks),
    /// A step runs, which has everything.
    Stepping,
    /// Nothing is left, or nothing but the word that it has ended.
    Failed,
}

/// Running tasks, and those who work for them.
struct Tasks {
    handles: Vec<(TaskId, TaskHandle)>,
    persist: PersistLanes,
    commit: CommitLanes,
    fill: Arc<Fill>,
}

/// It is told to end.
struct End {
    /// What was handed over is still written.
    finish: bool,
    since: Duration,
    /// The coordinator was told that it has ended.
    is_said: bool,
}

/// The life of one execution.
pub(super) struct Life {
    execution: Execution,
    state: State,
    end: Option<End>,
    /// What the step that runs does, and since when.
    step: Option<(&'static str, Duration)>,
    /// Actors that are started and not over.
    actors: BTreeMap<PlaceRole, String>,
    is_over: bool,
}

impl Life {
    pub(super) fn new(execution: Execution) -> Life {
        Life { execution, state: State::New, end: None, step: None, actors: BTreeMap::new(), is_over: false }
    }

    /// Since when it is told to end; none where it is not, or is over.
    pub(super) fn ends_since(&self) -> Option<Duration> {
        self.end.as_ref().filter(|_| !self.is_over).map(|end| end.since)
    }

    /// What it does or waits for, in one line for people.
    pub(super) fn what(&self, now: Duration) -> String {
        let since = |at: Duration| now.saturating_sub(at).as_secs();
        let mut parts: Vec<String> = Vec::new();
        parts.extend(self.step.map(|(step, at)| format!("{step} (for {} s)", since(at))));
        let names: Vec<&str> = self.actors.values().map(String::as_str).take(5).collect();
        if !names.is_empty() {
            let more = self.actors.len() - names.len();
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            parts.push(format!("has {}{more}", names.join(", ")));
        }
        if parts.is_empty() { "waits for its coordinator".to_owned() } else { parts.join(", ") }
    }

    /// Takes in what has happened, at `now` of the executor's clock.
    pub(super) fn handle(&mut self, now: Duration, input: Input, out: &mut Vec<Output>) {
        match input {
            Input::Command(Command::Cancel { finish, .. }) => self.cancel(now, finish, out),
            Input::Command(command) if self.end.is_none() => self.command(now, command, out),
            // On its way when the execution was told to end.
            Input::Command(_) => {}
            Input::StepEnded(result) => self.step_ended(now, result, out),
            Input::ActorOver(role) => {
                self.actors.remove(&role);
                self.end_further(out);
            }
            Input::Tick => self.tick(now, out),
        }
        self.invariants();
    }

    /// What must hold between any two inputs.
    fn invariants(&self) {
        assert_eq!(
            matches!(self.state, State::Stepping),
            self.step.is_some(),
            "a step has everything while it runs, and only then"
        );
        let has_actors = !self.actors.is_empty();
        assert!(!has_actors || matches!(self.state, State::Running(_)), "actors run in an execution that runs");
        assert!(!self.is_over || (self.end.is_some() && !has_actors && self.step.is_none()), "what is over was told to end");
    }

    fn command(&mut self, now: Duration, command: Command, out: &mut Vec<Output>) {
        match (std::mem::replace(&mut self.state, State::Failed), command) {
            (State::New, Command::Prepare(message)) => self.run(now, Step::Prepare(message), out),
            (State::Prepared(job), Command::Open { uids, store, .. }) => self.run(now, Step::Open { job, uids, store }, out),
            (State::Prepared(job), Command::Look { .. }) => self.run(now, Step::Look(job), out),
            (State::Prepared(job), Command::Commit { .. }) => self.run(now, Step::Commit(job), out),
            (State::Prepared(job), Command::Restore { templates, .. }) => self.run(now, Step::Restore { job, templates }, out),
            (State::Restored { job, loaded, sinks }, Command::Build { .. }) => {
                self.run(now, Step::Build { job, loaded, sinks }, out);
            }
            (State::Built(built), Command::Start { .. }) => self.start(*built, out),
            (State::Running(tasks), command) => {
                if let Some(command) = tasks.hear(&self.execution, command) {
                    self.out_of_turn(&command);
                }
                self.state = State::Running(tasks);
            }
            // A coordinator that did not know yet that a step had failed.
            (State::Failed, _) => {}
            (state, command) => {
                // A checkpoint may be triggered only when all tasks run; nothing else is out of turn but by a bug.
                self.out_of_turn(&command);
                self.state = state;
            }
        }
    }

    fn out_of_turn(&self, command: &Command) {
        tracing::error!(execution = %self.execution, ?command, "told something out of turn; this is a bug in weir");
    }

    fn run(&mut self, now: Duration, step: Step, out: &mut Vec<Output>) {
        self.state = State::Stepping;
        self.step = Some((step.name(), now));
        out.push(Output::Run(step));
    }

    fn step_ended(&mut self, now: Duration, result: Result<StepResult, Trouble>, out: &mut Vec<Output>) {
        (self.state, self.step) = (State::Failed, None);
        let execution = self.execution.clone();
        match result {
            Ok(StepResult::Discarded) => {}
            // Told to end meanwhile.
            Ok(result) if self.end.is_some() => return self.run(now, Step::Discard(Box::new(result)), out),
            Err(_) if self.end.is_some() => {}
            Err(trouble) => out.push(Output::Fail(trouble)),
            Ok(StepResult::Prepared(job)) => {
                self.state = State::Prepared(job);
                out.push(Output::Say(Report::Prepared { execution }));
            }
            Ok(StepResult::Looked(job, sources)) => {
                self.state = State::Prepared(job);
                out.push(Output::Say(Report::Looked { execution, sources }));
            }
            Ok(StepResult::Opened(job, templates)) => {
                self.state = State::Prepared(job);
                out.push(Output::Say(Report::Opened { execution, templates }));
            }
            Ok(StepResult::Committed(job)) => {
                self.state = State::Prepared(job);
                out.push(Output::Say(Report::Built { execution }));
            }
            Ok(StepResult::Restored { job, loaded, sinks }) => {
                self.state = State::Restored { job, loaded, sinks };
                out.push(Output::Say(Report::Restored { execution }));
            }
            Ok(StepResult::Built(built)) => {
                out.push(Output::Measure(built.meters.clone()));
                self.state = State::Built(built);
                out.push(Output::Say(Report::Built { execution }));
            }
        }
        self.end_further(out);
    }

    fn start(&mut self, built: Built, out: &mut Vec<Output>) {
        let Built { tasks, persist, commit, fill, lanes, outbound, .. } = built;
        out.push(Output::Started);
        let mut start = |actors: &mut BTreeMap<PlaceRole, String>, seated: SeatedLane| {
            actors.insert(seated.place.role, seated.place.name.clone());
            out.push(Output::Start(seated));
        };
        lanes.into_iter().for_each(|lane| start(&mut self.actors, lane));
        let mut handles = Vec::new();
        for BuiltTask { task, handle, seat } in tasks {
            let id = task.id();
            handles.push((id, handle));
            let place = Place { execution: self.execution.clone(), role: PlaceRole::Task(id), name: task.name().to_owned() };
            start(&mut self.actors, SeatedLane { place, seat, actor: Box::new(TaskActor(task)) });
        }
        out.push(Output::Connect(outbound));
        self.state = State::Running(Tasks { handles, persist, commit, fill });
    }

    fn cancel(&mut self, now: Duration, finish: bool, out: &mut Vec<Output>) {
        if self.end.is_some() {
            return;
        }
        self.end = Some(End { finish, since: now, is_said: false });
        match std::mem::replace(&mut self.state, State::Failed) {
            State::Running(tasks) => {
                tasks.tell(|_| Control::Cancel);
                tasks.commit.close();
                tasks.fill.close();
                if !finish {
                    tasks.persist.discard();
                }
                self.state = State::Running(tasks);
            }
            State::Stepping => self.state = State::Stepping,
            State::New | State::Failed => {}
            State::Prepared(job) => self.run(now, Step::Discard(Box::new(job)), out),
            State::Restored { loaded, sinks, .. } => self.run(now, Step::Discard(Box::new((loaded, sinks))), out),
            State::Built(built) => self.run(now, Step::Discard(Box::new(built) as Box<dyn Any + Send>), out),
        }
        self.end_further(out);
    }

    /// Of an execution that is told to end: what comes next, once something has ended.
    fn end_further(&mut self, out: &mut Vec<Output>) {
        let Some(end) = &mut self.end else { return };
        if self.is_over || self.step.is_some() {
            return;
        }
        if let State::Running(tasks) = &self.state {
            let tasks_run = self.actors.keys().any(|role| matches!(role, PlaceRole::Task(_)));
            if end.finish && !tasks_run {
                tasks.persist.close();
            }
            if !self.actors.is_empty() {
                return;
            }
            self.state = State::Failed;
        }
        self.is_over = true;
        let was_said = std::mem::replace(&mut end.is_said, true);
        if was_said {
            out.push(Output::Close);
        }
        // First: who hears that it has ended may begin another of the same number.
        out.push(Output::Over);
        if !was_said {
            out.push(Output::SayEnded);
        }
    }

    fn tick(&mut self, now: Duration, out: &mut Vec<Output>) {
        let what = self.what(now);
        let Some(end) = self.end.as_mut().filter(|end| !end.is_said) else { return };
        if now.saturating_sub(end.since) >= Duration::from_millis(EXECUTION_END_MS_MAX) {
            end.is_said = true;
            out.push(Output::GiveUp(what));
            out.push(Output::SayEnded);
        }
    }
}

impl Tasks {
    fn tell(&self, mut control: impl FnMut(TaskId) -> Control) {
        self.handles.iter().for_each(|(id, task)| task.tell(control(*id)));
    }

    /// Does what the coordinator says to a running execution. Gives back what is not said to one.
    fn hear(&self, execution: &Execution, command: Command) -> Option<Command> {
        match command {
            Command::Trigger { checkpoint, stop, unaligned, .. } => {
                let kind = if stop { BarrierKind::Stop } else { BarrierKind::Checkpoint };
                let barrier = Barrier { attempt: execution.attempt, checkpoint, kind, unaligned };
                self.tell(|_| Control::Trigger(barrier));
            }
            Command::Unalign { checkpoint, .. } => self.tell(|_| Control::Unalign(checkpoint)),
            Command::Abort { checkpoint, .. } => self.tell(|_| Control::Abort(checkpoint)),
            Command::Settle { .. } => self.commit.settle(),
            Command::Completed { checkpoint, commits, .. } => self.completed(checkpoint, commits),
            command => return Some(command),
        }
        None
    }

    fn completed(&self, checkpoint: CheckpointId, commits: Vec<(TaskId, Commits)>) {
        // Those who store learn it first, so that captures taken after a task has learnt it follow the right chain.
        self.persist.completed(checkpoint);
        self.tell(|_| Control::Completed(checkpoint));
        commits.into_iter().for_each(|(task, commits)| self.commit.commit(task, checkpoint, commits));
    }
}

struct TaskActor(Task);

impl Actor for TaskActor {
    fn turn(&mut self) -> Turn {
        self.0.turn()
    }
}
