//! The thread of an execution: hears commands in order, and answers each step once it is done.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use parking_lot::Mutex;
use weir_model::{Barrier, BarrierKind, CheckpointId};
use weir_protocol::panics::{bug, caught};
use weir_protocol::{Command, Failure, FailureKind, Prepare, Report, Running, WorkerProgress};
use weir_task::Control;

use super::deploy::{Built, Deployer};
use super::meters::Meters;
use super::persisters::Persisters;
use super::prepare::{PreparedJob, prepare};
use super::restore::Restored;
use super::tasks::Tasks;
use super::voice::{Voice, transient};
use crate::worker::Shared;

/// An execution, as the worker sees it.
pub(crate) struct Runner {
    commands: Sender<Command>,
    voice: Arc<Voice>,
    meters: Arc<Mutex<Option<Meters>>>,
    ended: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Runner {
    /// Starts the thread.
    pub(crate) fn start(shared: Arc<Shared>, prepare: &Prepare) -> Result<Runner, Failure> {
        let tasks = prepare.placement.tasks_of(&shared.options.name);
        let voice = Arc::new(Voice::new(prepare.execution.clone(), tasks, shared.options.reports.clone()));
        let meters = Arc::new(Mutex::new(None));
        let ended = Arc::new(AtomicBool::new(false));
        #[allow(clippy::disallowed_methods, reason = "a coordinator says a few words per checkpoint and must never wait")]
        let (commands, inbox) = channel();
        let life = Life { shared, voice: voice.clone(), meters: meters.clone(), ended: ended.clone(), state: State::New };
        let name = format!("{}-{}", prepare.execution.job, prepare.execution.attempt);
        let thread = std::thread::Builder::new()
            .name(name)
            .spawn(move || life.run(&inbox))
            .map_err(|error| transient(format!("cannot start a thread for the job: {error}")))?;
        Ok(Runner { commands, voice, meters, ended, thread })
    }

    pub(crate) fn tell(&self, command: Command) {
        // Noted here and not where it is carried out: a registration in between must not say less than is on its way to tasks.
        match &command {
            Command::Cancel { .. } => self.voice.told_to_end(),
            Command::Trigger { checkpoint, .. } | Command::Abort { checkpoint, .. } => self.voice.told_of(*checkpoint),
            _ => {}
        }
        // A thread that has ended has said so.
        let _ = self.commands.send(command);
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    pub(crate) fn running(&self) -> Running {
        self.voice.running()
    }

    /// Counts, once its tasks are built.
    pub(crate) fn progress(&self) -> Option<WorkerProgress> {
        self.meters.lock().as_ref().map(|meters| meters.read(&self.voice))
    }

    pub(crate) fn join(self) {
        drop(self.commands);
        if self.thread.join().is_err() {
            tracing::error!(execution = %self.voice.execution(), "the thread of an execution panicked; this is a bug in weir");
        }
    }
}

/// How far an execution is.
enum State {
    New,
    Prepared(Box<PreparedJob>),
    Restored(Box<PreparedJob>, Box<Restored>),
    Built(Box<Built>, Persisters),
    Running(Tasks, Persisters),
    /// A step has failed; only `Cancel` is of interest.
    Failed,
}

struct Life {
    shared: Arc<Shared>,
    voice: Arc<Voice>,
    meters: Arc<Mutex<Option<Meters>>>,
    ended: Arc<AtomicBool>,
    state: State,
}

impl Life {
    /// Hears until it is told to end. Its coordinator waits for the answers, so no panic may keep one back.
    fn run(mut self, inbox: &Receiver<Command>) {
        let finish = loop {
            match inbox.recv() {
                Ok(Command::Cancel { finish, .. }) => break finish,
                Ok(command) => self.carry_out(command),
                Err(_) => break false,
            }
        };
        self.end(finish);
    }

    fn carry_out(&mut self, command: Command) {
        let state = std::mem::replace(&mut self.state, State::Failed);
        let stepped = caught(|| self.step(state, command));
        self.state = match stepped.unwrap_or_else(|panic| Err(transient(bug("the worker's part of the job", &panic)))) {
            Ok(state) => state,
            Err(failure) => {
                self.voice.failed(failure);
                State::Failed
            }
        };
    }

    fn step(&mut self, state: State, command: Command) -> Result<State, Failure> {
        match (state, command) {
            (State::New, Command::Prepare(message)) => {
                let prepared = prepare(&self.shared.options, *message)?;
                self.voice.say(|execution| Report::Prepared { execution });
                Ok(State::Prepared(Box::new(prepared)))
            }
            (State::Prepared(job), Command::Open { uids, store, .. }) => {
                let templates = self.deployer(&job).open(&uids, store)?;
                self.voice.say(|execution| Report::Opened { execution, templates });
                Ok(State::Prepared(job))
            }
            (State::Prepared(job), Command::Restore { templates, .. }) => {
                let restored = self.deployer(&job).restore(templates)?;
                self.voice.say(|execution| Report::Restored { execution });
                Ok(State::Restored(job, Box::new(restored)))
            }
            (State::Prepared(job), Command::Look { .. }) => {
                let sources = self.deployer(&job).look()?;
                self.voice.say(|execution| Report::Looked { execution, sources });
                Ok(State::Prepared(job))
            }
            (State::Prepared(job), Command::Commit { .. }) => {
                self.deployer(&job).sinks()?;
                self.voice.say(|execution| Report::Built { execution });
                Ok(State::Prepared(job))
            }
            (State::Restored(job, restored), Command::Build { .. }) => {
                let deployer = self.deployer(&job);
                let persister = deployer.persister(&restored)?;
                let built = match deployer.build(*restored, &persister) {
                    Ok(built) => built,
                    Err(failure) => {
                        persister.cancel();
                        return Err(failure);
                    }
                };
                *self.meters.lock() = Some(built.meters(self.shared.options.network.clone()));
                self.voice.say(|execution| Report::Built { execution });
                Ok(State::Built(Box::new(built), persister))
            }
            (State::Built(built, persister), Command::Start { .. }) => {
                self.voice.started();
                match Tasks::start(*built, &self.voice, self.shared.options.network.as_deref()) {
                    Ok(tasks) => Ok(State::Running(tasks, persister)),
                    Err(failure) => {
                        persister.cancel();
                        Err(failure)
                    }
                }
            }
            (State::Running(tasks, persister), command) => {
                self.tell_tasks(&tasks, &persister, command);
                Ok(State::Running(tasks, persister))
            }
            // A coordinator that did not know yet that a step had failed.
            (State::Failed, _) => Ok(State::Failed),
            (state, command) => {
                // A checkpoint may be triggered only when all tasks run; nothing else is out of turn but by a bug.
                tracing::error!(execution = %self.voice.execution(), ?command, "told something out of turn; this is a bug in weir");
                Ok(state)
            }
        }
    }

    fn deployer<'a>(&'a self, job: &'a PreparedJob) -> Deployer<'a> {
        Deployer { job, shared: &self.shared, voice: &self.voice }
    }

    fn tell_tasks(&self, tasks: &Tasks, persister: &Persisters, command: Command) {
        let attempt = self.voice.execution().attempt;
        match command {
            Command::Trigger { checkpoint, stop, unaligned, .. } => {
                let kind = if stop { BarrierKind::Stop } else { BarrierKind::Checkpoint };
                let barrier = Barrier { attempt, checkpoint, kind, unaligned };
                tasks.tell(|_| Control::Trigger(barrier));
            }
            Command::Unalign { checkpoint, .. } => tasks.tell(|_| Control::Unalign(checkpoint)),
            Command::Abort { checkpoint, .. } => tasks.tell(|_| Control::Abort(checkpoint)),
            Command::Completed { checkpoint, commits, .. } => {
                // The persister learns it first, so that captures taken after a task has learnt it follow the right chain.
                persister.completed(checkpoint);
                let mut commits: std::collections::BTreeMap<_, _> = commits.into_iter().collect();
                tasks.tell(|task| {
                    let commit = commits.remove(&task).unwrap_or_default();
                    let commit = commit.into_iter().map(|(uid, values)| (uid.into(), values)).collect();
                    Control::Completed { checkpoint, commit }
                });
            }
            command => {
                tracing::error!(execution = %self.voice.execution(), ?command, "told something out of turn; this is a bug in weir");
            }
        }
    }

    /// Ends all threads. A guest call that is running ends at its deadline at the latest.
    fn end(mut self, finish: bool) {
        let last = caught(|| self.end_threads(finish)).unwrap_or_else(|panic| {
            self.voice.failed(transient(bug("the end of the job's threads", &panic)));
            None
        });
        self.ended.store(true, Ordering::Release);
        let progress = Box::new(last.unwrap_or_default());
        self.voice.say(|execution| Report::Ended { execution, progress });
    }

    /// Gives the last counts.
    fn end_threads(&mut self, finish: bool) -> Option<WorkerProgress> {
        match std::mem::replace(&mut self.state, State::Failed) {
            State::Running(tasks, persister) => {
                tasks.end();
                if finish { persister.join() } else { persister.cancel() }
            }
            State::Built(built, persister) => {
                drop(built);
                persister.cancel();
            }
            State::New | State::Prepared(_) | State::Restored(..) | State::Failed => {}
        }
        // Before the channels are closed: their counts go with them.
        let last = self.meters.lock().as_ref().map(|meters| meters.read(&self.voice));
        if let Some(network) = &self.shared.options.network {
            network.close(self.voice.execution());
        }
        last
    }
}

/// An older checkpoint may do where this one is damaged.
pub(super) fn damaged(reason: impl Into<String>) -> Failure {
    Failure { kind: FailureKind::Damaged, uid: None, reason: reason.into() }
}

/// The first number of a checkpoint: what is stored before it carries the one below.
pub(super) fn before(first: CheckpointId) -> CheckpointId {
    CheckpointId(first.0.saturating_sub(1))
}
