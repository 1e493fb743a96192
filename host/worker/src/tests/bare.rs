//! A worker alone: told what a coordinator would tell it, by hand.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Map, Value};
use weir_connectors::{
    Commit, Committer, ConnectorError, Guarantee, Recovery, SettingError, Sink, SinkContext, SinkFactory, SourceFactory, TakeBack,
};
use weir_model::limits::{EXECUTION_END_MS_MAX, EXECUTIONS_PER_JOB_MAX};
use weir_model::{Attempt, CheckpointId, Digest, Epoch};
use weir_protocol::{Command, Execution, JobSpec, Placement, Prepare, Report, WorkerAddress};
use weir_sandbox::{Sandbox, SandboxOptions};
use weir_storage::{JobLog, JobStorage, Writer};
use weir_task::{Clock, Wake};

use crate::executor::{Actor, Executor, Place, Seat, StepRun, Threads};
use crate::{
    BuiltinConnectors, CONGESTED_BYTES_DEFAULT, ComponentSource, Connectors, Inbound, Network, OnLost, Outbound, Reports,
    UrlStorages, Worker, WorkerOptions,
};

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

/// Notes what its sinks were asked to remove or take back.
#[derive(Clone, Default)]
struct Cleaned(Arc<Mutex<Vec<&'static str>>>);

impl Connectors for Cleaned {
    fn source(&self, connector: &str, settings: &Map<String, Value>) -> Result<Box<dyn SourceFactory>, SettingError> {
        BuiltinConnectors.source(connector, settings)
    }

    fn sink(&self, _: &str, _: &Map<String, Value>) -> Result<Box<dyn SinkFactory>, SettingError> {
        Ok(Box::new(self.clone()))
    }
}

impl SinkFactory for Cleaned {
    fn create(&self, _: &SinkContext) -> Result<Box<dyn Sink>, ConnectorError> {
        panic!("no task is built")
    }

    fn committer(&self, _: &SinkContext) -> Result<Box<dyn Committer>, ConnectorError> {
        Ok(Box::new(self.clone()))
    }

    fn guarantee(&self) -> Guarantee {
        Guarantee::ExactlyOnce
    }

    fn take_back(&self) -> TakeBack {
        TakeBack::Possible
    }

    fn describe(&self) -> String {
        "notes".to_owned()
    }
}

impl Committer for Cleaned {
    fn recover(&mut self, _: &Recovery) -> Result<(), ConnectorError> {
        self.0.lock().push("recover");
        Ok(())
    }

    fn retract(&mut self, _: CheckpointId) -> Result<u64, ConnectorError> {
        self.0.lock().push("retract");
        Ok(0)
    }

    fn commit(&mut self, _: &Value) -> Result<Commit, ConnectorError> {
        Ok(Commit::Done)
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

/// Steps wait here until the test carries one out, as if they hung; time passes when it says so.
#[derive(Clone, Default)]
struct Hand {
    steps: Arc<Mutex<VecDeque<StepRun>>>,
    now_ms: Arc<AtomicU64>,
}

impl Clock for Hand {
    fn now(&self) -> Duration {
        Duration::from_millis(self.now_ms.load(Ordering::Relaxed))
    }
}

struct NoSeat;

impl Seat for NoSeat {
    fn wake(&self) -> Arc<dyn Wake> {
        Arc::new(weir_task::Signal::default())
    }

    fn start(self: Box<Self>, _: Box<dyn Actor>) -> Result<(), String> {
        Err("there are no threads".to_owned())
    }
}

impl Executor for Hand {
    fn clock(&self) -> Arc<dyn Clock> {
        Arc::new(self.clone())
    }

    fn lanes(&self) -> usize {
        1
    }

    fn run(&self, _: &Place, step: StepRun) -> Result<(), String> {
        self.steps.lock().push_back(step);
        Ok(())
    }

    fn seat(&self, _: &Place) -> Box<dyn Seat> {
        Box::new(NoSeat)
    }
}

impl Hand {
    fn step(&self) {
        let step = self.steps.lock().pop_front().unwrap();
        step();
    }

    fn pass(&self, ms: u64) {
        self.now_ms.fetch_add(ms, Ordering::Relaxed);
    }
}

/// Notes which executions have channels.
#[derive(Default)]
struct Channels(Mutex<Vec<Execution>>);

impl Network for Channels {
    fn expect(&self, execution: &Execution, inbound: Vec<Inbound>, _: OnLost) -> Result<(), String> {
        assert!(!inbound.is_empty());
        self.0.lock().push(execution.clone());
        Ok(())
    }

    fn connect(&self, _: &Execution, _: Vec<Outbound>, _: OnLost) -> Result<(), String> {
        Ok(())
    }

    fn close(&self, execution: &Execution) {
        self.0.lock().retain(|other| other != execution);
    }

    fn counts(&self, _: &Execution) -> (u64, u64) {
        (0, 0)
    }
}

fn worker(executor: Arc<dyn Executor>, connectors: Arc<dyn Connectors>) -> (Worker, Receiver<Report>) {
    worker_with(executor, connectors, None)
}

fn worker_with(
    executor: Arc<dyn Executor>,
    connectors: Arc<dyn Connectors>,
    network: Option<Arc<dyn Network>>,
) -> (Worker, Receiver<Report>) {
    let (said, reports) = sync_channel(9);
    let worker = Worker::new(WorkerOptions {
        name: "a".into(),
        sandbox: Sandbox::new(SandboxOptions::default()).unwrap(),
        components: Arc::new(Nothing),
        connectors,
        storages: Arc::new(UrlStorages),
        native: BTreeMap::new(),
        network,
        reports: Arc::new(Said(said)),
        executor,
        congested_bytes: CONGESTED_BYTES_DEFAULT,
    });
    (worker, reports)
}

fn execution(attempt: u64) -> Execution {
    Execution { job: "j".to_owned(), attempt: Attempt(attempt) }
}

fn prepare(storage: &str, attempt: u64) -> Box<Prepare> {
    let text = "[job]\nname = \"j\"\n[[source]]\nid = \"in\"\nconnector = \"generator\"\n[[sink]]\nid = \"out\"\n\
                connector = \"blackhole\"\ninput = \"in\"\n";
    let spec = JobSpec::new("j.toml", text);
    let worker = WorkerAddress { worker: "a".to_owned(), address: String::new() };
    Box::new(Prepare {
        execution: execution(attempt),
        spec,
        placement: Placement { workers: vec![worker], tasks: vec![0] },
        storage: storage.to_owned(),
        restore: None,
        first_checkpoint: CheckpointId(0),
        edges_apart: Vec::new(),
        retract_after: None,
    })
}

fn cancel(attempt: u64) -> Command {
    Command::Cancel { execution: execution(attempt), finish: false }
}

#[test]
fn a_trial_that_begins_while_the_one_before_ends_is_answered() {
    let folder = tempfile::tempdir().unwrap();
    let (go_on, wait) = sync_channel(9);
    let (worker, reports) = worker(Arc::new(Threads::default()), Arc::new(Slow(Mutex::new(wait))));
    let next = || reports.recv_timeout(Duration::from_secs(30)).unwrap();
    let trial = prepare(&folder.path().to_string_lossy(), 0);
    worker.command(Command::Prepare(trial.clone()));
    worker.command(cancel(0));
    worker.command(Command::Prepare(trial.clone()));
    let refused = next();
    assert!(matches!(&refused, Report::Failed { failure, .. } if failure.reason.contains("try again")), "{refused:?}");
    go_on.send(()).unwrap();
    assert!(matches!(next(), Report::Ended { .. }), "that it was prepared is no news any more");
    worker.command(Command::Prepare(trial.clone()));
    go_on.send(()).unwrap();
    assert_eq!(next(), Report::Prepared { execution: execution(0) });
    worker.command(cancel(0));
    assert!(matches!(next(), Report::Ended { .. }));
    worker.shutdown();
}

#[test]
fn s87_an_execution_whose_step_hangs_ends_for_its_coordinator_within_its_bound() {
    let folder = tempfile::tempdir().unwrap();
    let hand = Hand::default();
    let (worker, reports) = worker(Arc::new(hand.clone()), Arc::new(BuiltinConnectors));
    worker.command(Command::Prepare(prepare(&folder.path().to_string_lossy(), 0)));
    worker.command(cancel(0));
    hand.pass(EXECUTION_END_MS_MAX - 1);
    worker.tick();
    assert_eq!(reports.try_iter().count(), 0, "it may still end by itself");
    hand.pass(1);
    worker.tick();
    worker.tick();
    assert_eq!(reports.try_iter().collect::<Vec<_>>(), [Report::Ended { execution: execution(0), progress: Box::default() }]);
    let [(stuck, what)] = &worker.stuck()[..] else { panic!("{:?}", worker.stuck()) };
    assert_eq!((stuck, what.as_str()), (&execution(0), "takes the job in (for 12 s)"));
    // What it waited for answers after all.
    hand.step();
    hand.step();
    assert!(worker.stuck().is_empty() && worker.running().is_empty());
    assert_eq!(reports.try_iter().count(), 0, "its end is said once");
}

#[test]
fn s87_channels_of_an_execution_that_is_given_up_while_it_builds_are_closed_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let url = folder.path().to_string_lossy();
    let writer = Writer { epoch: Epoch { origin: [9; 16], count: 1 }, nonce: 9 };
    JobLog::new(JobStorage::open(&url, "j").unwrap(), writer).begin(&[]).unwrap();
    let (hand, channels) = (Hand::default(), Arc::new(Channels::default()));
    let (worker, reports) = worker_with(Arc::new(hand.clone()), Arc::new(BuiltinConnectors), Some(channels.clone()));
    let mut message = prepare(&url, 1);
    // The source runs elsewhere.
    let elsewhere = WorkerAddress { worker: "b".to_owned(), address: String::new() };
    message.placement.workers.push(elsewhere);
    (message.placement.tasks, message.edges_apart) = (vec![1, 0], vec![0]);
    worker.command(Command::Prepare(message));
    hand.step();
    worker.command(Command::Restore { execution: execution(1), templates: Vec::new() });
    hand.step();
    worker.command(Command::Build { execution: execution(1) });
    worker.command(cancel(1));
    hand.pass(EXECUTION_END_MS_MAX);
    worker.tick();
    assert!(matches!(reports.try_iter().last(), Some(Report::Ended { .. })));
    // It builds after all, which makes its channels, and is taken down.
    hand.step();
    assert_eq!(*channels.0.lock(), [execution(1)]);
    hand.step();
    assert_eq!(*channels.0.lock(), [], "nobody else would ever close them");
}

#[test]
fn s87_executions_that_hang_do_not_pile_up_and_a_later_one_is_refused_with_what_they_wait_for() {
    let folder = tempfile::tempdir().unwrap();
    let hand = Hand::default();
    let (worker, reports) = worker(Arc::new(hand.clone()), Arc::new(BuiltinConnectors));
    let max = EXECUTIONS_PER_JOB_MAX as u64;
    for attempt in 1..=max {
        worker.command(Command::Prepare(prepare(&folder.path().to_string_lossy(), attempt)));
        worker.command(cancel(attempt));
        hand.pass(EXECUTION_END_MS_MAX);
        worker.tick();
        assert!(matches!(&reports.try_iter().collect::<Vec<_>>()[..], [Report::Ended { .. }]));
    }
    for attempt in max + 1..100 {
        worker.command(Command::Prepare(prepare(&folder.path().to_string_lossy(), attempt)));
        let Report::Failed { failure, .. } = reports.try_recv().unwrap() else { panic!() };
        let told = "worker a still has 4 of this job's earlier attempts, which do not end: attempt 1 of job j takes the job in";
        assert!(failure.reason.contains(told) && failure.reason.contains("network folder"), "{}", failure.reason);
    }
    assert_eq!(hand.steps.lock().len(), EXECUTIONS_PER_JOB_MAX, "no thread more");
    // One of them ends, and makes room.
    hand.step();
    hand.steps.lock().rotate_right(1);
    hand.step();
    worker.command(Command::Prepare(prepare(&folder.path().to_string_lossy(), 100)));
    assert_eq!(reports.try_iter().count(), 0);
}

#[test]
fn what_was_ended_without_a_coordinator_says_so_to_the_next_one() {
    let folder = tempfile::tempdir().unwrap();
    let hand = Hand::default();
    let (worker, reports) = worker(Arc::new(hand.clone()), Arc::new(BuiltinConnectors));
    worker.command(Command::Prepare(prepare(&folder.path().to_string_lossy(), 1)));
    assert_eq!(worker.end_all("there was no coordinator"), 1);
    hand.step();
    assert!(reports.try_iter().any(|report| matches!(report, Report::Ended { .. })));
    let [running] = &worker.running()[..] else { panic!("{:?}", worker.running()) };
    assert_eq!(running.failure.as_ref().map(|failure| failure.reason.as_str()), Some("there was no coordinator"));
    worker.keep_only(&[]);
    assert!(worker.running().is_empty());
}

/// A step that read slowly goes on when a newer attempt runs already: it must not touch that one's output.
#[test]
fn an_execution_that_is_not_the_newest_any_more_removes_nothing_and_takes_nothing_back() {
    // Which step is late; what the sink was asked until then.
    for (late, asked) in [("restore", &[][..]), ("build", &["recover"][..]), ("cancelled", &[][..])] {
        let folder = tempfile::tempdir().unwrap();
        let url = folder.path().to_string_lossy();
        let writer = Writer { epoch: Epoch { origin: [9; 16], count: 1 }, nonce: 9 };
        let mut log = JobLog::new(JobStorage::open(&url, "j").unwrap(), writer);
        log.begin(&[]).unwrap();
        let (hand, cleaned) = (Hand::default(), Cleaned::default());
        let (worker, reports) = worker(Arc::new(hand.clone()), Arc::new(cleaned.clone()));
        let mut message = prepare(&url, 1);
        message.retract_after = Some(CheckpointId(0));
        worker.command(Command::Prepare(message));
        hand.step();
        worker.command(Command::Restore { execution: execution(1), templates: Vec::new() });
        if late == "build" {
            hand.step();
            worker.command(Command::Build { execution: execution(1) });
        }
        if late == "cancelled" {
            worker.command(cancel(1));
        } else {
            drop(log.begin(&[]).unwrap());
        }
        hand.step();
        assert_eq!(*cleaned.0.lock(), asked, "{late}");
        let said = reports.try_iter().last().unwrap();
        match &said {
            Report::Ended { .. } => assert_eq!(late, "cancelled"),
            Report::Failed { failure, .. } => assert!(failure.reason.contains("attempt 2 of the job has begun"), "{failure:?}"),
            _ => panic!("{late}: {said:?}"),
        }
    }
}
