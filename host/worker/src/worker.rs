//! The worker of a process: its executions, by job and attempt.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use weir_model::limits::{EXECUTION_END_MS_MAX, EXECUTIONS_PER_JOB_MAX, EXECUTIONS_STUCK_MAX};
use weir_protocol::panics::caught;
use weir_protocol::{Command, Execution, Report, Running, WorkerProgress};

use crate::WorkerOptions;
use crate::context::{KnownCalls, WorkerContext};
use crate::execution::{Panic, Runner, Trouble};

/// How long [`Worker::shutdown`] waits for what does not end by itself. Short: a person has asked for the end of the process, and what is
/// cut short is as it would be after `kill -9`.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(3);

/// From then on an execution that was told to end is stuck.
const STUCK_AFTER: Duration = Duration::from_millis(EXECUTION_END_MS_MAX);

/// A worker. Cheap to clone; all clones are the same worker.
#[derive(Clone)]
pub struct Worker {
    context: Arc<WorkerContext>,
    executions: Arc<Mutex<BTreeMap<Execution, Arc<Runner>>>>,
    /// What was ended without being told to, until a coordinator knows.
    ended: Arc<Mutex<BTreeMap<Execution, Running>>>,
}

impl Worker {
    /// A worker that runs nothing yet.
    pub fn new(options: WorkerOptions) -> Worker {
        Worker {
            context: Arc::new(WorkerContext { options, call_rows: KnownCalls::default() }),
            executions: Arc::default(),
            ended: Arc::default(),
        }
    }

    /// Does what the coordinator says. Returns at once: whatever takes long is done by the executor.
    ///
    /// A panic ends the execution, not the others of this worker.
    pub fn command(&self, command: Command) {
        let Some(execution) = command.execution().cloned() else { return };
        if let Err(panic) = caught(|| self.carry_out(execution.clone(), command)) {
            self.refuse(execution, Panic("a worker that was told something", &panic).into());
        }
    }

    fn carry_out(&self, execution: Execution, command: Command) {
        let runner = {
            let mut executions = self.executions.lock();
            executions.retain(|_, runner| !runner.is_over());
            match (executions.get(&execution), &command) {
                // A trial, whose number is used again, while an earlier one takes its time to end. It would wait for an answer for ever.
                (Some(_), Command::Prepare(_)) => {
                    let reason =
                        format!("worker {} still ends an earlier trial of the job; try again", self.context.options.name);
                    return self.refuse(execution, Trouble::transient(reason));
                }
                (Some(runner), _) => runner.clone(),
                (None, Command::Prepare(prepare)) => {
                    if let Err(trouble) = self.check_room(&execution, &executions) {
                        return self.refuse(execution, trouble);
                    }
                    let runner = Runner::new(self.context.clone(), prepare);
                    executions.insert(execution, runner.clone());
                    runner
                }
                // It was never begun here, or is over: the answer is the same.
                (None, Command::Cancel { .. }) => {
                    return self.context.options.reports.report(Report::Ended { execution, progress: Box::default() });
                }
                (None, command) => return tracing::debug!(%execution, ?command, "told about an execution that is over"),
            }
        };
        runner.tell(command);
    }

    /// Executions that do not end hold threads and memory. So that these do not pile up, a worker takes no more beside them.
    fn check_room(&self, new: &Execution, executions: &BTreeMap<Execution, Arc<Runner>>) -> Result<(), Trouble> {
        let of_job: Vec<_> = executions.iter().filter(|(execution, _)| execution.job == new.job).collect();
        let is_stuck = |runner: &Runner| runner.ends_for().is_some_and(|time| time >= STUCK_AFTER);
        let stuck: Vec<_> = executions.iter().filter(|(_, runner)| is_stuck(runner)).collect();
        let (held, whose) = if of_job.len() >= EXECUTIONS_PER_JOB_MAX {
            (of_job, "this job's")
        } else if stuck.len() >= EXECUTIONS_STUCK_MAX {
            (stuck, "jobs'")
        } else {
            return Ok(());
        };
        let (execution, runner) = held[0];
        Err(Trouble::transient(format!(
            "worker {} still has {} of {whose} earlier attempts, which do not end: {execution} {}; they end once what they wait for answers \
             (a network folder, a store, a pipe), or with the worker's process",
            self.context.options.name,
            held.len(),
            runner.what()
        )))
    }

    fn refuse(&self, execution: Execution, Trouble(failure): Trouble) {
        self.context.options.reports.report(Report::Failed { execution, failure });
    }

    /// Time has passed: whoever drives the worker says so a few times a second.
    pub fn tick(&self) {
        let runners: Vec<_> = {
            let mut executions = self.executions.lock();
            executions.retain(|_, runner| !runner.is_over());
            executions.values().cloned().collect()
        };
        for runner in runners {
            runner.tick();
        }
    }

    /// Executions that were told to end [`EXECUTION_END_MS_MAX`] ago or longer, and have not: what each waits for, for people.
    pub fn stuck(&self) -> Vec<(Execution, String)> {
        let executions = self.executions.lock();
        let stuck = executions.iter().filter(|(_, runner)| runner.ends_for().is_some_and(|time| time >= STUCK_AFTER));
        stuck.map(|(execution, runner)| (execution.clone(), runner.what())).collect()
    }

    /// What runs here, for a registration.
    pub fn running(&self) -> Vec<Running> {
        let mut running = self.ended.lock().clone();
        for (execution, runner) in self.executions.lock().iter().filter(|(_, runner)| !runner.is_over()) {
            running.insert(execution.clone(), runner.running());
        }
        running.into_values().collect()
    }

    /// Ends everything, because there is nobody to lead it; what runs says so from now on, until [`keep_only`](Self::keep_only). Gives how
    /// many executions that were.
    pub fn end_all(&self, reason: &str) -> usize {
        let executions = self.executions.lock().clone();
        for (execution, runner) in &executions {
            runner.fail(Trouble::transient(reason));
            self.ended.lock().insert(execution.clone(), runner.running());
            runner.tell(Command::Cancel { execution: execution.clone(), finish: false });
        }
        executions.len()
    }

    /// How far everything is, for a heartbeat.
    pub fn progress(&self) -> Vec<(Execution, WorkerProgress)> {
        let executions = self.executions.lock();
        executions.iter().filter_map(|(execution, runner)| Some((execution.clone(), runner.progress()?))).collect()
    }

    /// Cancels every execution but these.
    pub fn keep_only(&self, keep: &[Execution]) {
        self.ended.lock().clear();
        let executions = self.executions.lock().clone();
        for (execution, runner) in executions.into_iter().filter(|(execution, _)| !keep.contains(execution)) {
            runner.tell(Command::Cancel { execution, finish: false });
        }
    }

    /// Cancels everything, and waits until no thread of an execution is left, at most 3 s: what waits for a mount may wait for
    /// ever, and ends with the process.
    pub fn shutdown(&self) {
        let executions = std::mem::take(&mut *self.executions.lock());
        for (execution, runner) in &executions {
            runner.tell(Command::Cancel { execution: execution.clone(), finish: false });
        }
        let deadline = Instant::now() + SHUTDOWN_TIMEOUT;
        for (execution, runner) in executions {
            if !runner.wait(deadline) {
                tracing::warn!(%execution, what = runner.what(), "an execution does not end; it ends with this process");
            }
        }
    }
}
