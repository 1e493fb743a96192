//! A job that counts numbers, and everything around it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use weir_connectors::{
    Commit, Committer, ConnectorError, Guarantee, More, Polled, Prepared, Recovery, SettingError, Sink, SinkContext, SinkFactory,
    Source, SourceFactory, TakeBack,
};
use weir_coordinator::{Input, JobError, JobThread, LOCAL_WORKER, Local, Mailbox, MasterJob, Notice, Outcome, Wish};
use weir_model::{Batch, BatchRef, CheckpointId, Digest, Epoch};
use weir_protocol::{ComponentPin, JobSpec, Report};
use weir_sandbox::{Sandbox, SandboxOptions};
use weir_storage::{JobLog, JobStorage, StorageError, Writer};

use super::store::{Store, store};
use crate::executor::Threads;
use crate::{CONGESTED_BYTES_DEFAULT, ComponentSource, Connectors, Reports, Storages, Worker, WorkerOptions};

/// How many numbers a job counts.
pub(super) const NUMBERS: u64 = 6_000;

/// The job file; tests change it with `replace`.
pub(super) const JOB: &str = r#"
[job]
name = "numbers"
parallelism = 2
key_groups = 8

[job.checkpoint]
interval = "5ms"

[job.restart]
strategy = "fixed"
delay = "1ms"
attempts = 200

[[source]]
id = "numbers"
connector = "generator"

[[operator]]
id = "count"
component = { path = "count" }
input = { from = "numbers", exchange = "hash" }

[[sink]]
id = "out"
connector = "blackhole"
input = "count"
"#;

/// What a job leaves behind, and what goes wrong on its way.
pub(super) struct World {
    pub(super) store: Store,
    pub(super) source: Numbers,
    pub(super) output: Output,
}

/// A job that is about to run.
pub(super) struct Start {
    pub(super) file: String,
    pub(super) fresh: bool,
    pub(super) allow_dropped_state: bool,
    pub(super) allow_repeated_output: bool,
}

/// Asks a running job to stop with a last checkpoint, or for something else.
pub(super) struct Control(Mailbox);

impl Control {
    pub(super) fn stop(&self) {
        self.wish(Wish::Stop);
    }

    pub(super) fn wish(&self, wish: Wish) {
        let _ = self.0.send(Input::Wish(wish));
    }
}

struct ToMaster(Mailbox);

impl Reports for ToMaster {
    fn report(&self, report: Report) {
        let _ = self.0.send(Input::Report { worker: LOCAL_WORKER.into(), report: Box::new(report) });
    }
}

/// The sources, sinks, components and checkpoints of a world.
#[derive(Clone)]
struct Things {
    store: Store,
    source: Numbers,
    output: Output,
}

impl Connectors for Things {
    fn source(&self, _: &str, _: &Map<String, Value>) -> Result<Box<dyn SourceFactory>, SettingError> {
        Ok(Box::new(self.source.clone()))
    }

    fn sink(&self, _: &str, _: &Map<String, Value>) -> Result<Box<dyn SinkFactory>, SettingError> {
        Ok(Box::new(self.output.clone()))
    }
}

impl Storages for Things {
    fn open(&self, _: &str, job: &str) -> Result<JobStorage, StorageError> {
        // Also the master opens it, and what it does beside executions is another test's.
        if std::thread::current().name().is_some_and(|name| name.starts_with("numbers-")) {
            self.source.shared.panics.at(Panic::OpenStorage);
        }
        JobStorage::with_store(Arc::new(self.store.clone()), "test:store", job)
    }
}

impl ComponentSource for Things {
    fn fetch(&self, digest: Digest) -> Result<Vec<u8>, String> {
        Ok(wat::parse_str(counter(digest == COUNT_2)).unwrap())
    }
}

/// Digests are names here: nothing checks them.
const COUNT: Digest = Digest([1; 32]);
const COUNT_2: Digest = Digest([2; 32]);

/// `count`, and `count2`, which does the same with other bytes.
fn counter(second: bool) -> String {
    let text = include_str!("count.wat");
    if second { text.replace("(memory (export \"memory\") 64)", "(memory (export \"memory\") 65)") } else { text.to_owned() }
}

impl World {
    pub(super) fn new() -> World {
        let (source, output) = (Numbers::default(), Output::default());
        output.panics(source.panics());
        World { store: store(), source, output }
    }

    pub(super) fn storage(&self) -> JobStorage {
        JobStorage::with_store(Arc::new(self.store.clone()), "test:store", "numbers").unwrap()
    }

    /// The log of the job, for another coordinator than those that run it.
    pub(super) fn other_log(&self) -> JobLog {
        JobLog::new(self.storage(), Writer { epoch: Epoch { origin: [9; 16], count: 1 }, nonce: 9 })
    }

    /// Runs a job to its end. `watch` also gets a way to stop it.
    pub(super) fn run(&self, job: &str, watch: impl FnMut(&Notice, &Control)) -> Result<Outcome, JobError> {
        self.run_as(job, |_| {}, watch)
    }

    pub(super) fn run_as(
        &self,
        job: &str,
        change: impl FnOnce(&mut Start),
        mut watch: impl FnMut(&Notice, &Control),
    ) -> Result<Outcome, JobError> {
        let mut start =
            Start { file: "job.toml".to_owned(), fresh: false, allow_dropped_state: false, allow_repeated_output: false };
        change(&mut start);
        let pin =
            |digest, name: &str| ComponentPin { digest, name: name.to_owned(), description: weir_model::Description::plain() };
        let components =
            BTreeMap::from([("count".to_owned(), pin(COUNT, "count")), ("count2".to_owned(), pin(COUNT_2, "count2"))]);
        let spec = JobSpec {
            dead_letters: "dead-letters".to_owned(),
            allow_repeated_output: start.allow_repeated_output,
            components,
            ..JobSpec::new(&start.file, job)
        };
        let settings = MasterJob {
            spec,
            default_storage: "test:store".to_owned(),
            fresh: start.fresh,
            allow_dropped_state: start.allow_dropped_state,
            patient: false,
            adopted: None,
        };
        let things = Things { store: self.store.clone(), source: self.source.clone(), output: self.output.clone() };
        let worker: Arc<OnceLock<Worker>> = Arc::default();
        let commanded = worker.clone();
        // The master waits until the test has seen each notice.
        let (said, notices) = sync_channel::<Notice>(0);
        let (seen, go_on) = sync_channel::<()>(0);
        let local = Local::new(
            Box::new(move |command| commanded.get().unwrap().command(command)),
            Box::new({
                let things = things.clone();
                move |url, job| things.open(url, job)
            }),
            Box::new(move |notice| {
                if said.send(notice.clone()).is_ok() {
                    let _ = go_on.recv();
                }
            }),
        );
        let (master, told) = JobThread::new(settings, Arc::new(local));
        let options = WorkerOptions {
            name: LOCAL_WORKER.into(),
            sandbox: Sandbox::new(SandboxOptions::default()).unwrap(),
            components: Arc::new(things.clone()),
            connectors: Arc::new(things.clone()),
            storages: Arc::new(things),
            native: BTreeMap::new(),
            network: None,
            reports: Arc::new(ToMaster(told.clone())),
            executor: Arc::new(Threads::default()),
            congested_bytes: CONGESTED_BYTES_DEFAULT,
        };
        let worker = worker.get_or_init(|| Worker::new(options)).clone();
        let control = Control(told);
        let started = Instant::now();
        let outcome = std::thread::scope(|scope| {
            let master = scope.spawn(|| master.run());
            while let Ok(notice) = notices.recv() {
                // Progress is told all the time.
                assert!(started.elapsed() < Duration::from_secs(60), "the job hangs; it says {notice:?}");
                watch(&notice, &control);
                let _ = seen.send(());
            }
            master.join().unwrap()
        });
        worker.shutdown();
        outcome
    }

    /// Runs the job until a checkpoint holds half of the numbers, then stops it.
    pub(super) fn stop_half_way(&self, job: &str) {
        self.source.hold(NUMBERS / 2);
        let mut completed = 0;
        let outcome = self.run(job, |notice, stop| {
            completed += u32::from(matches!(notice, Notice::Completed { .. }));
            if completed >= 3 && self.source.is_holding() {
                stop.stop();
            }
        });
        assert!(matches!(outcome, Ok(Outcome::Stopped(_))), "{outcome:?}");
        self.source.go_on();
    }

    /// The same, and from there until a checkpoint completes that holds a thousand numbers more.
    pub(super) fn stop_half_way_and_further_on(&self, job: &str) {
        self.stop_half_way(job);
        self.source.hold(self.source.given() + 1_000);
        self.run(job, |notice, stop| {
            if matches!(notice, Notice::Completed { .. }) && self.source.is_holding() {
                stop.stop();
            }
        })
        .unwrap();
        self.source.go_on();
    }

    /// All numbers were written once, and the operator's instances have counted them once.
    pub(super) fn assert_exact(&self) {
        self.assert_exact_up_to(NUMBERS, &[NUMBERS]);
    }

    /// All numbers below `numbers` were written once. At the ends of the input, so many had been counted in all.
    pub(super) fn assert_exact_up_to(&self, numbers: u64, counted: &[u64]) {
        let expected = numbers;
        let rows = self.output.rows();
        let (counts, numbers): (Vec<_>, Vec<_>) = rows.iter().partition(|value| value.len() == 20);
        let mut numbers: Vec<u64> = numbers.iter().map(|value| value.parse().unwrap()).collect();
        numbers.sort_unstable();
        assert!(numbers == (0..expected).collect::<Vec<_>>(), "{} numbers, of {expected}", numbers.len());
        let said: u64 = counts.iter().map(|value| value.parse::<u64>().unwrap()).sum();
        assert_eq!(said, counted.iter().sum::<u64>());
    }
}

/// Numbers from 0 on in four splits.
#[derive(Clone, Default)]
pub(super) struct Numbers {
    shared: Arc<Faults>,
    splits: BTreeMap<u64, u64>,
}

/// Where something panics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Panic {
    OpenStorage,
    CreateSource,
    Poll,
    Position,
    CreateSink,
    Recover,
    Write,
    Prepare,
    Prepared,
    Commit,
}

/// The next panic, anywhere in a world.
#[derive(Clone, Default)]
pub(super) struct Panics(Arc<Mutex<Option<Panic>>>);

impl Panics {
    pub(super) fn next(&self, place: Panic) {
        *self.0.lock() = Some(place);
    }

    fn at(&self, place: Panic) {
        let due = self.0.lock().take_if(|next| *next == place);
        if due.is_some() {
            panic!("told to panic in {place:?}");
        }
    }
}

#[derive(Default)]
struct Faults {
    panics: Panics,
    /// Numbers given in all executions.
    given: AtomicU64,
    /// No more than these are given; 0: all.
    hold: AtomicU64,
    holding: AtomicBool,
    /// The next polls that fail.
    failures: AtomicU32,
    /// Numbers that were added to [`NUMBERS`].
    added: AtomicU64,
}

const SPLITS: u64 = 4;

impl Numbers {
    pub(super) fn hold(&self, at: u64) {
        self.shared.hold.store(at, Ordering::SeqCst);
    }

    pub(super) fn is_holding(&self) -> bool {
        self.shared.holding.load(Ordering::SeqCst)
    }

    pub(super) fn go_on(&self) {
        self.hold(0);
        self.shared.holding.store(false, Ordering::SeqCst);
    }

    /// There are more numbers from now on.
    pub(super) fn grow(&self, by: u64) {
        self.shared.added.fetch_add(by, Ordering::SeqCst);
    }

    /// How many numbers there are.
    fn numbers(&self) -> u64 {
        NUMBERS + self.shared.added.load(Ordering::SeqCst)
    }

    pub(super) fn fail_once(&self) {
        self.shared.failures.store(1, Ordering::SeqCst);
    }

    pub(super) fn panics(&self) -> &Panics {
        &self.shared.panics
    }

    pub(super) fn given(&self) -> u64 {
        self.shared.given.load(Ordering::SeqCst)
    }
}

impl SourceFactory for Numbers {
    fn create(&self, index: u32, parallelism: u32) -> Result<Box<dyn Source>, ConnectorError> {
        self.shared.panics.at(Panic::CreateSource);
        let mine = |split: &u64| split % u64::from(parallelism) == u64::from(index);
        let splits = (0..SPLITS).filter(mine).map(|split| (split, 0)).collect();
        Ok(Box::new(Numbers { shared: self.shared.clone(), splits }))
    }

    fn is_replayable(&self) -> bool {
        true
    }

    fn more(&self, splits: &BTreeMap<String, Value>) -> Result<More, ConnectorError> {
        let read: u64 =
            splits.iter().map(|(split, next)| read_of(split.parse().unwrap(), next.as_u64().unwrap(), self.numbers())).sum();
        Ok(match self.numbers() - read {
            0 => More::Nothing(format!("{read} numbers")),
            more => More::Some(format!("{more} more numbers")),
        })
    }

    fn describe(&self) -> String {
        "numbers".to_owned()
    }
}

/// How many of some numbers a split has given whose next is this.
fn read_of(split: u64, next: u64, numbers: u64) -> u64 {
    next.min((numbers - split).div_ceil(SPLITS))
}

impl Source for Numbers {
    fn restore(&mut self, splits: &BTreeMap<String, Value>) -> Result<(), ConnectorError> {
        for (split, next) in &mut self.splits {
            *next = splits.get(&split.to_string()).map_or(0, |position| position.as_u64().unwrap());
        }
        Ok(())
    }

    fn poll(&mut self, rows: &mut Batch, _: usize, _: usize) -> Result<Polled, ConnectorError> {
        self.shared.panics.at(Panic::Poll);
        let take = |failures: u32| failures.checked_sub(1);
        if self.shared.failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).is_ok() {
            return Err(broken("read"));
        }
        let hold = self.shared.hold.load(Ordering::SeqCst);
        if hold > 0 && self.given() >= hold {
            self.shared.holding.store(true, Ordering::SeqCst);
            return Ok(Polled::Idle { retry_in: Duration::from_millis(1) });
        }
        let numbers = self.numbers();
        let Some((split, next)) = self.splits.iter_mut().find(|(split, next)| **next * SPLITS + **split < numbers) else {
            return Ok(Polled::Ended);
        };
        for _ in 0..10 {
            let number = *next * SPLITS + split;
            if number < numbers {
                rows.push(number as i64, format!("{}", number % 100).as_bytes(), format!("{number}").as_bytes());
                *next += 1;
            }
        }
        self.shared.given.fetch_add(rows.len() as u64, Ordering::SeqCst);
        Ok(Polled::Rows)
    }

    fn position(&mut self) -> BTreeMap<String, Value> {
        self.shared.panics.at(Panic::Position);
        self.splits.iter().map(|(split, next)| (split.to_string(), json!(next))).collect()
    }
}

/// An error that may not come again.
pub(super) fn broken(action: &'static str) -> ConnectorError {
    ConnectorError::Io { action, path: "numbers".into(), source: std::io::Error::other("told to fail"), hint: None }
}

/// The checkpoint in the name of a committable.
fn number(name: &str) -> u64 {
    name[..8].parse().unwrap()
}

/// A sink whose rows count once they are committed.
#[derive(Clone, Default)]
pub(super) struct Output {
    files: Arc<Mutex<Files>>,
    context: Option<SinkContext>,
    current: Vec<String>,
}

#[derive(Default)]
struct Files {
    panics: Panics,
    pending: BTreeMap<String, Vec<String>>,
    committed: BTreeMap<String, Vec<String>>,
    commit_failures: u32,
    /// Takes back what was committed.
    retracts: bool,
    shows_for_good: bool,
    /// What is committed next is lost before.
    lose_next: bool,
    /// Tasks of an execution that is over carry out the commits that they had begun, right after output was taken back.
    straggles: bool,
    /// How long a row takes.
    delay: Duration,
}

impl Output {
    pub(super) fn rows(&self) -> Vec<String> {
        self.files.lock().committed.values().flatten().cloned().collect()
    }

    /// The next commits fail.
    pub(super) fn fail_commits(&self, count: u32) {
        self.files.lock().commit_failures = count;
    }

    /// Each row takes this long, so that rows pile up before the sink.
    pub(super) fn slow_down(&self, delay: Duration) {
        self.files.lock().delay = delay;
    }

    pub(super) fn panics(&self, panics: &Panics) {
        self.files.lock().panics = panics.clone();
    }

    fn panic_at(&self, place: Panic) {
        let panics = self.files.lock().panics.clone();
        panics.at(place);
    }

    fn of(&self, context: &SinkContext) -> Output {
        Output { files: self.files.clone(), context: Some(context.clone()), current: Vec::new() }
    }

    /// What was committed cannot be taken back, and the sink says so.
    pub(super) fn show_for_good(&self) {
        self.files.lock().shows_for_good = true;
    }

    /// Somebody deletes what is to be committed next.
    pub(super) fn lose_next(&self) {
        self.files.lock().lose_next = true;
    }

    /// Tasks that stood still commit while output is taken back.
    pub(super) fn straggle(&self) {
        self.files.lock().straggles = true;
    }

    pub(super) fn allow_retract(&self) {
        self.files.lock().retracts = true;
    }
}

impl SinkFactory for Output {
    fn create(&self, context: &SinkContext) -> Result<Box<dyn Sink>, ConnectorError> {
        self.panic_at(Panic::CreateSink);
        Ok(Box::new(self.of(context)))
    }

    fn committer(&self, context: &SinkContext) -> Result<Box<dyn Committer>, ConnectorError> {
        Ok(Box::new(self.of(context)))
    }

    fn take_back(&self) -> TakeBack {
        if self.files.lock().shows_for_good { TakeBack::Impossible } else { TakeBack::Possible }
    }

    fn guarantee(&self) -> Guarantee {
        Guarantee::ExactlyOnce
    }

    fn describe(&self) -> String {
        "memory".to_owned()
    }
}

impl Sink for Output {
    fn write(&mut self, rows: BatchRef<'_>) -> Result<(), ConnectorError> {
        self.panic_at(Panic::Write);
        let delay = self.files.lock().delay;
        std::thread::sleep(delay * rows.len() as u32);
        self.current.extend(rows.values.iter().map(|value| String::from_utf8(value.to_vec()).unwrap()));
        Ok(())
    }

    fn prepare(&mut self, checkpoint: CheckpointId) -> Result<Prepared, ConnectorError> {
        self.panic_at(Panic::Prepare);
        let (files, rows) = (self.files.clone(), std::mem::take(&mut self.current));
        let panics = files.lock().panics.clone();
        let SinkContext { attempt, index, uid, .. } = self.context.as_ref().unwrap();
        let name = format!("{:08}-{uid}-{attempt}-{index}", checkpoint.0);
        Ok(Box::new(move || {
            panics.at(Panic::Prepared);
            if rows.is_empty() {
                return Ok(None);
            }
            files.lock().pending.insert(name.clone(), rows);
            Ok(Some(json!(name)))
        }))
    }
}

impl Committer for Output {
    fn commit(&mut self, committable: &Value) -> Result<Commit, ConnectorError> {
        self.panic_at(Panic::Commit);
        let mut files = self.files.lock();
        if std::mem::take(&mut files.lose_next) {
            files.pending.remove(committable.as_str().unwrap());
        }
        if files.commit_failures > 0 {
            files.commit_failures -= 1;
            return Err(broken("commit"));
        }
        let name = committable.as_str().unwrap();
        match files.pending.remove(name) {
            Some(rows) => drop(files.committed.insert(name.to_owned(), rows)),
            None if files.committed.contains_key(name) => return Ok(Commit::DoneBefore),
            None => return Ok(Commit::Gone { reason: format!("{name} is neither pending nor committed") }),
        }
        Ok(Commit::Done)
    }

    fn recover(&mut self, recovery: &Recovery) -> Result<(), ConnectorError> {
        self.panic_at(Panic::Recover);
        let keep: BTreeSet<&str> = recovery.keep.iter().map(|value| value.as_str().unwrap()).collect();
        let SinkContext { index, parallelism, uid, .. } = self.context.as_ref().unwrap();
        self.files.lock().pending.retain(|name, _| {
            let mut parts = name.split('-');
            let (of, subtask) = (parts.nth(1).unwrap(), parts.nth(1).unwrap().parse::<u32>().unwrap());
            let is_mine = of == uid && (subtask == *index || *index == 0 && subtask >= *parallelism);
            !is_mine || keep.contains(name.as_str())
        });
        Ok(())
    }

    fn retract(&mut self, checkpoint: CheckpointId) -> Result<u64, ConnectorError> {
        let mut files = self.files.lock();
        let before = files.committed.len();
        if files.retracts {
            let uid = &self.context.as_ref().unwrap().uid;
            let is_mine = |name: &str| name.split('-').nth(1) == Some(uid);
            files.committed.retain(|name, _| !is_mine(name) || number(name) <= checkpoint.0);
        }
        let taken_back = before - files.committed.len();
        if files.straggles {
            let pending = std::mem::take(&mut files.pending);
            files.committed.extend(pending.into_iter().filter(|(name, _)| number(name) > checkpoint.0));
        }
        Ok(taken_back as u64)
    }
}
