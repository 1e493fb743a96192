//! The worker of a process: its executions, by job and attempt.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use weir_protocol::{Command, Execution, Report, Running, WorkerProgress};

use crate::WorkerOptions;
use crate::execution::Runner;

/// What all executions of a worker share.
pub(crate) struct Shared {
    pub(crate) options: WorkerOptions,
}

/// A worker. Cheap to clone; all clones are the same worker.
#[derive(Clone)]
pub struct Worker {
    shared: Arc<Shared>,
    executions: Arc<Mutex<BTreeMap<Execution, Runner>>>,
}

impl Worker {
    /// A worker that runs nothing yet.
    pub fn new(options: WorkerOptions) -> Worker {
        Worker { shared: Arc::new(Shared { options }), executions: Arc::default() }
    }

    /// Does what the coordinator says. Returns at once: each execution has a thread of its own.
    pub fn command(&self, command: Command) {
        let Some(execution) = command.execution().cloned() else { return };
        let mut executions = self.executions.lock();
        executions.retain(|_, runner| !runner.has_ended());
        match (executions.get(&execution), command) {
            (Some(runner), command) => runner.tell(command),
            (None, Command::Prepare(prepare)) => {
                let shared = self.shared.clone();
                match Runner::start(shared, &prepare) {
                    Ok(runner) => {
                        runner.tell(Command::Prepare(prepare));
                        executions.insert(execution, runner);
                    }
                    Err(failure) => self.shared.options.reports.report(Report::Failed { execution, failure }),
                }
            }
            // It was never begun here, or is over: the answer is the same.
            (None, Command::Cancel { execution, .. }) => {
                self.shared.options.reports.report(Report::Ended { execution, progress: Box::default() });
            }
            (None, command) => tracing::debug!(%execution, ?command, "told about an execution that is over"),
        }
    }

    /// What runs here, for a registration.
    pub fn running(&self) -> Vec<Running> {
        let executions = self.executions.lock();
        executions.values().filter(|runner| !runner.has_ended()).map(Runner::running).collect()
    }

    /// How far everything is, for a heartbeat.
    pub fn progress(&self) -> Vec<(Execution, WorkerProgress)> {
        let executions = self.executions.lock();
        executions.iter().filter_map(|(execution, runner)| Some((execution.clone(), runner.progress()?))).collect()
    }

    /// Cancels every execution but these.
    pub fn keep_only(&self, keep: &[Execution]) {
        let executions = self.executions.lock();
        for (execution, runner) in executions.iter().filter(|(execution, _)| !keep.contains(execution)) {
            runner.tell(Command::Cancel { execution: execution.clone(), finish: false });
        }
    }

    /// Cancels everything, and waits until no thread of an execution is left. A guest call that runs ends at its deadline at the
    /// latest.
    pub fn shutdown(&self) {
        let executions = std::mem::take(&mut *self.executions.lock());
        for (execution, runner) in &executions {
            runner.tell(Command::Cancel { execution: execution.clone(), finish: false });
        }
        executions.into_values().for_each(Runner::join);
    }
}
