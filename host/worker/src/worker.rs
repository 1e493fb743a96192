//! The worker of a process: its executions, by job and attempt.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use weir_protocol::panics::{bug, caught};
use weir_protocol::{Command, Execution, Report, Running, WorkerProgress};
use weir_task::CallRows;

use crate::WorkerOptions;
use crate::execution::{Runner, transient};

/// What all executions of a worker share.
pub(crate) struct Shared {
    pub(crate) options: WorkerOptions,
    pub(crate) call_rows: KnownCalls,
}

/// Operators whose calls are remembered beyond their executions.
const KNOWN_CALLS_MAX: usize = 10_000;

/// What is known of the calls of operators, by job and uid: an operator whose call with many rows met its deadline gets fewer in the
/// next execution, which would only meet the same again.
#[derive(Default)]
pub(crate) struct KnownCalls(Mutex<BTreeMap<(String, String), Arc<CallRows>>>);

impl KnownCalls {
    /// What is known of an operator.
    pub(crate) fn of(&self, job: &str, uid: &str) -> Arc<CallRows> {
        let mut known = self.0.lock();
        if known.len() >= KNOWN_CALLS_MAX {
            known.retain(|_, of| Arc::strong_count(of) > 1);
        }
        known.entry((job.to_owned(), uid.to_owned())).or_default().clone()
    }
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
        Worker { shared: Arc::new(Shared { options, call_rows: KnownCalls::default() }), executions: Arc::default() }
    }

    /// Does what the coordinator says. Returns at once: each execution has a thread of its own.
    ///
    /// A panic ends the execution, not the others of this worker.
    pub fn command(&self, command: Command) {
        let Some(execution) = command.execution().cloned() else { return };
        if let Err(panic) = caught(|| self.carry_out(execution.clone(), command)) {
            let failure = transient(bug("a worker that was told something", &panic));
            self.shared.options.reports.report(Report::Failed { execution, failure });
        }
    }

    fn carry_out(&self, execution: Execution, command: Command) {
        let mut executions = self.executions.lock();
        executions.retain(|_, runner| !runner.has_ended());
        match (executions.get(&execution), command) {
            // A trial, whose number is used again, while an earlier one takes its time to end. It would wait for an answer for ever.
            (Some(_), Command::Prepare(_)) => {
                let reason = format!("worker {} still ends an earlier trial of the job; try again", self.shared.options.name);
                self.shared.options.reports.report(Report::Failed { execution, failure: transient(reason) });
            }
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

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
    use std::time::Duration;

    use serde_json::{Map, Value};
    use weir_connectors::{SettingError, SinkFactory, SourceFactory};
    use weir_model::{Attempt, CheckpointId, Digest};
    use weir_protocol::{JobSpec, Placement, Prepare, WorkerAddress};
    use weir_sandbox::{Sandbox, SandboxOptions};

    use super::*;
    use crate::{BuiltinConnectors, ComponentSource, Connectors, Reports, UrlStorages};

    /// The first step takes until the test says so.
    struct Slow(Mutex<Receiver<()>>);

    impl Connectors for Slow {
        fn source(&self, connector: &str, settings: &Map<String, Value>) -> Result<Box<dyn SourceFactory>, SettingError> {
            self.0.lock().recv().unwrap();
            BuiltinConnectors.source(connector, settings)
        }

        fn sink(&self, connector: &str, settings: &Map<String, Value>) -> Result<Box<dyn SinkFactory>, SettingError> {
            BuiltinConnectors.sink(connector, settings)
        }
    }

    struct Nothing;

    impl ComponentSource for Nothing {
        fn fetch(&self, _: Digest) -> Result<Vec<u8>, String> {
            Err("there are none".to_owned())
        }
    }

    struct Said(SyncSender<Report>);

    impl Reports for Said {
        fn report(&self, report: Report) {
            self.0.send(report).unwrap();
        }
    }

    fn trial(storage: &str) -> Command {
        let text = "[job]\nname = \"j\"\n[[source]]\nid = \"in\"\nconnector = \"generator\"\n[[sink]]\nid = \"out\"\n\
                    connector = \"blackhole\"\ninput = \"in\"\n";
        let spec = JobSpec {
            file: "j.toml".to_owned(),
            text: text.to_owned(),
            overrides: Vec::new(),
            environment: BTreeMap::new(),
            job_dir: "/".to_owned(),
            dead_letters: "/dead".to_owned(),
            components: BTreeMap::new(),
        };
        let worker = WorkerAddress { worker: "a".to_owned(), address: String::new() };
        Command::Prepare(Box::new(Prepare {
            execution: Execution { job: "j".to_owned(), attempt: Attempt(0) },
            spec,
            placement: Placement { workers: vec![worker], tasks: vec![0] },
            storage: storage.to_owned(),
            restore: None,
            first_checkpoint: CheckpointId(0),
            edges_apart: Vec::new(),
            retract_after: None,
        }))
    }

    #[test]
    fn a_trial_that_begins_while_the_one_before_ends_is_answered() {
        let folder = tempfile::tempdir().unwrap();
        let (go_on, wait) = sync_channel(9);
        let (said, reports) = sync_channel(9);
        let worker = Worker::new(WorkerOptions {
            name: "a".into(),
            sandbox: Sandbox::new(SandboxOptions::default()).unwrap(),
            components: Arc::new(Nothing),
            connectors: Arc::new(Slow(Mutex::new(wait))),
            storages: Arc::new(UrlStorages),
            native: BTreeMap::new(),
            network: None,
            reports: Arc::new(Said(said)),
        });
        let next = || reports.recv_timeout(Duration::from_secs(30)).unwrap();
        let prepare = trial(&folder.path().to_string_lossy());
        let execution = prepare.execution().unwrap().clone();
        worker.command(prepare.clone());
        worker.command(Command::Cancel { execution: execution.clone(), finish: false });
        worker.command(prepare.clone());
        let refused = next();
        assert!(matches!(&refused, Report::Failed { failure, .. } if failure.reason.contains("try again")), "{refused:?}");
        go_on.send(()).unwrap();
        assert_eq!(next(), Report::Prepared { execution: execution.clone() });
        assert!(matches!(next(), Report::Ended { .. }));
        worker.command(prepare.clone());
        go_on.send(()).unwrap();
        assert_eq!(next(), Report::Prepared { execution: execution.clone() });
        worker.command(Command::Cancel { execution, finish: false });
        assert!(matches!(next(), Report::Ended { .. }));
        // A worker that is not there has a task: nothing but a bug says so, and the execution ends with it.
        let Command::Prepare(mut wrong) = prepare else { unreachable!("it is one") };
        (wrong.placement.tasks, wrong.execution.attempt) = (vec![7], Attempt(1));
        worker.command(Command::Prepare(wrong));
        let told = next();
        assert!(matches!(&told, Report::Failed { failure, .. } if failure.reason.contains("panicked at ")), "{told:?}");
        worker.shutdown();
    }
}
