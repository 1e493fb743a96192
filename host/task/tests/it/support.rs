//! What surrounds a task in these tests. The test is its worker, and where it holds the other ends of its channels also the
//! tasks before and behind it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::{Value, json};
use weir_channel::{Frame, Limits};
use weir_checkpoint::align::Mode;
use weir_connectors::{ConnectorError, Polled, Prepared, Sink, Source, SplitTimes, WatermarkGenerator};
use weir_model::{Attempt, Barrier, BarrierKind, Batch, BatchRef, CheckpointId, InstanceId, KeyGroupRange, TaskId};
use weir_sandbox::{CallError, EmittedRows, Rejection, SandboxError};
use weir_task::*;

pub(crate) type Row = (i64, String, String);

pub(crate) fn row(time: i64, key: &str, value: &str) -> Row {
    (time, key.to_owned(), value.to_owned())
}

pub(crate) fn batch(rows: &[Row]) -> Batch {
    let mut batch = Batch::default();
    rows.iter().for_each(|(time, key, value)| batch.push(*time, key.as_bytes(), value.as_bytes()));
    batch
}

pub(crate) fn rows_of(batch: BatchRef<'_>) -> Vec<Row> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    batch.rows().map(|row| (row.timestamp, text(row.key_bytes()), text(row.value_bytes()))).collect()
}

pub(crate) fn frame(rows: &[Row]) -> Frame {
    Frame::Rows(Arc::new(batch(rows)))
}

pub(crate) fn barrier(checkpoint: u64) -> Barrier {
    Barrier { attempt: Attempt(1), checkpoint: CheckpointId(checkpoint), kind: BarrierKind::Checkpoint, unaligned: false }
}

/// Waits until something holds, which it must within ten seconds.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !holds() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        std::thread::yield_now();
    }
}

/// What tasks have said to their worker.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Said {
    Begin { checkpoint: u64, finished: bool, splits: BTreeMap<String, Value>, prepared: Vec<Value> },
    Instance { checkpoint: u64, uid: String, instance: InstanceId, watermark: i64, finished: bool },
    InFlight { checkpoint: u64, pieces: Vec<InFlight> },
    End(u64),
    Abandon(u64),
    Declined(u64),
    Restored,
    Finished,
    Failed(String),
}

/// Keeps what tasks say, in order.
#[derive(Clone, Default)]
pub(crate) struct Log {
    said: Arc<Mutex<Vec<(TaskId, Said)>>>,
    /// Says that persisting cannot keep up, so that instances are captured right before their next call, or when idle.
    pub(crate) congested: bool,
}

impl Log {
    pub(crate) fn congested() -> Log {
        Log { congested: true, ..Log::default() }
    }

    pub(crate) fn of(&self, task: u32) -> Vec<Said> {
        self.said.lock().iter().filter(|(id, _)| id.0 == task).map(|(_, said)| said.clone()).collect()
    }

    pub(crate) fn has(&self, task: u32, said: &Said) -> bool {
        self.of(task).contains(said)
    }

    pub(crate) fn wait(&self, task: u32, said: &Said) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while !self.has(task, said) {
            assert!(Instant::now() < deadline, "task {task} never said {said:?}, but {:?}", self.of(task));
            std::thread::yield_now();
        }
    }

    pub(crate) fn failure(&self, task: u32) -> String {
        let failure =
            || self.of(task).into_iter().find_map(|said| if let Said::Failed(reason) = said { Some(reason) } else { None });
        eventually("a failure", || failure().is_some());
        failure().unwrap()
    }
}

impl Outlet for Log {
    fn snapshot(&mut self, task: TaskId, part: SnapshotPart) {
        let said = match part {
            SnapshotPart::Begin { checkpoint, state, prepare } => Said::Begin {
                checkpoint: checkpoint.0,
                finished: state.finished,
                splits: state.source.map(|source| source.splits).unwrap_or_default(),
                prepared: prepare.into_iter().filter_map(|(_, prepare)| prepare().unwrap()).collect(),
            },
            SnapshotPart::Instance { checkpoint, uid, instance, watermark, finished, .. } => {
                Said::Instance { checkpoint: checkpoint.0, uid: uid.to_string(), instance, watermark, finished }
            }
            SnapshotPart::InFlight { checkpoint, pieces } => Said::InFlight { checkpoint: checkpoint.0, pieces },
            SnapshotPart::End { checkpoint } => Said::End(checkpoint.0),
            SnapshotPart::Abandon { checkpoint } => Said::Abandon(checkpoint.0),
        };
        self.said.lock().push((task, said));
    }

    fn report(&mut self, task: TaskId, report: TaskReport) {
        let said = match report {
            TaskReport::Declined { checkpoint, .. } => Said::Declined(checkpoint.0),
            TaskReport::Restored => Said::Restored,
            TaskReport::Finished => Said::Finished,
            TaskReport::Failed(error) => Said::Failed(error.to_string()),
        };
        self.said.lock().push((task, said));
    }

    fn is_congested(&self) -> bool {
        self.congested
    }
}

/// One call of an instance.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Called {
    Process {
        input: u32,
        rows: Vec<Row>,
    },
    Advance(i64),
    Finish,
    /// With the number of rows the instance had seen.
    Capture {
        checkpoint: u64,
        seen: usize,
    },
    Completed(u64),
}

pub(crate) type Calls = Arc<Mutex<Vec<(usize, Called)>>>;
type Process = dyn Fn(u32, &[Row], &mut EmittedRows) -> Result<Vec<Rejection>, CallError> + Send + Sync;

/// Makes instances that note each call and do what the test says with rows.
#[derive(Clone)]
pub(crate) struct Operators {
    pub(crate) calls: Calls,
    made: Arc<Mutex<usize>>,
    process: Arc<Process>,
    /// Length of what an instance says when event time advances.
    pub(crate) timer_bytes: usize,
    forgetful: bool,
}

impl Operators {
    pub(crate) fn new(
        process: impl Fn(u32, &[Row], &mut EmittedRows) -> Result<Vec<Rejection>, CallError> + Send + Sync + 'static,
    ) -> Operators {
        Operators { calls: Arc::default(), made: Arc::default(), process: Arc::new(process), timer_bytes: 0, forgetful: false }
    }

    /// Passes every row on, with something put before its value.
    pub(crate) fn prefixing(prefix: &'static str) -> Operators {
        Operators::new(move |_, rows, emitted| {
            let rows: Vec<Row> = rows.iter().map(|(time, key, value)| row(*time, key, &format!("{prefix}{value}"))).collect();
            emitted.rows_to(0).extend(batch(&rows).view());
            Ok(Vec::new())
        })
    }

    /// Does not note calls: for many of them.
    pub(crate) fn forgetful(self) -> Operators {
        Operators { forgetful: true, ..self }
    }

    pub(crate) fn calls_of(&self, instance: usize) -> Vec<Called> {
        self.calls.lock().iter().filter(|(of, _)| *of == instance).map(|(_, call)| call.clone()).collect()
    }

    pub(crate) fn made(&self) -> usize {
        *self.made.lock()
    }
}

impl InstanceFactory for Operators {
    fn instantiate(&self) -> Result<Box<dyn OperatorInstance>, SandboxError> {
        let mut made = self.made.lock();
        *made += 1;
        Ok(Box::new(OneInstance { number: *made - 1, seen: 0, of: self.clone() }))
    }

    fn restore(&self, _: &[&[u8]]) -> Result<Box<dyn OperatorInstance>, SandboxError> {
        self.instantiate()
    }
}

struct OneInstance {
    number: usize,
    seen: usize,
    of: Operators,
}

impl OneInstance {
    fn note(&self, call: Called) {
        if self.of.forgetful {
            return;
        }
        self.of.calls.lock().push((self.number, call));
    }
}

impl OperatorInstance for OneInstance {
    fn process(&mut self, input: u32, rows: BatchRef<'_>, emitted: &mut EmittedRows) -> Result<Vec<Rejection>, CallError> {
        let rows = rows_of(rows);
        self.seen += rows.len();
        self.note(Called::Process { input, rows: rows.clone() });
        (self.of.process)(input, &rows, emitted)
    }

    fn advance(&mut self, watermark: i64, emitted: &mut EmittedRows) -> Result<(), CallError> {
        self.note(Called::Advance(watermark));
        let mut value = format!("at {watermark}");
        value.extend(std::iter::repeat_n('.', self.of.timer_bytes));
        emitted.rows_to(0).extend(batch(&[row(watermark, "", &value)]).view());
        Ok(())
    }

    fn finish(&mut self, emitted: &mut EmittedRows) -> Result<(), CallError> {
        self.note(Called::Finish);
        emitted.rows_to(0).extend(batch(&[row(0, "", &format!("seen {}", self.seen))]).view());
        Ok(())
    }

    fn capture(&mut self, checkpoint: CheckpointId) -> Result<Option<Box<dyn CapturedState>>, SandboxError> {
        self.note(Called::Capture { checkpoint: checkpoint.0, seen: self.seen });
        Ok(None)
    }

    fn checkpoint_completed(&mut self, checkpoint: CheckpointId) {
        self.note(Called::Completed(checkpoint.0));
    }
}

/// What a source does at one poll.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Rows(Vec<Row>),
    End,
}

/// A source that gives what the test has put in, and else idles.
#[derive(Clone, Default)]
pub(crate) struct Steps {
    steps: Arc<Mutex<VecDeque<Step>>>,
    given: usize,
    /// Of a source that has none, because there is nothing for its subtask to read.
    no_splits: Option<SplitTimes>,
}

impl Steps {
    pub(crate) fn of(steps: impl IntoIterator<Item = Step>) -> Steps {
        Steps { steps: Arc::new(Mutex::new(steps.into_iter().collect())), given: 0, no_splits: None }
    }

    pub(crate) fn without_splits() -> Steps {
        Steps { no_splits: Some(SplitTimes::default()), ..Steps::default() }
    }

    pub(crate) fn add(&self, step: Step) {
        self.steps.lock().push_back(step);
    }

    pub(crate) fn head(&self, targets: Vec<Target>, idle_after_ms: Option<u64>) -> HeadSpec {
        HeadSpec::Source {
            uid: "source".into(),
            source: Box::new(self.clone()),
            event_time: None,
            generator: WatermarkGenerator::new(0, idle_after_ms),
            targets,
            stats: Arc::default(),
            restore: None,
        }
    }
}

impl Source for Steps {
    fn restore(&mut self, _: &BTreeMap<String, Value>) -> Result<(), ConnectorError> {
        Ok(())
    }

    fn poll(&mut self, rows: &mut Batch, _: usize, _: usize) -> Result<Polled, ConnectorError> {
        let mut steps = self.steps.lock();
        match steps.front() {
            None => Ok(Polled::Idle { retry_in: Duration::from_millis(1) }),
            Some(Step::End) => Ok(Polled::Ended),
            Some(Step::Rows(step)) => {
                rows.extend(batch(step).view());
                self.given += step.len();
                steps.pop_front();
                Ok(Polled::Rows)
            }
        }
    }

    fn position(&mut self) -> BTreeMap<String, Value> {
        BTreeMap::from([("only".to_owned(), json!(self.given))])
    }

    fn split_times(&mut self) -> Option<&mut SplitTimes> {
        self.no_splits.as_mut()
    }
}

/// A sink in memory. Its committables are the numbers of rows of each checkpoint.
#[derive(Clone, Default)]
pub(crate) struct Memory {
    pub(crate) rows: Arc<Mutex<Vec<Row>>>,
    since: usize,
}

impl Memory {
    pub(crate) fn values(&self) -> Vec<String> {
        self.rows.lock().iter().map(|(_, _, value)| value.clone()).collect()
    }
}

impl Sink for Memory {
    fn write(&mut self, rows: BatchRef<'_>) -> Result<(), ConnectorError> {
        self.since += rows.len();
        self.rows.lock().extend(rows_of(rows));
        Ok(())
    }

    fn prepare(&mut self, _: CheckpointId) -> Result<Prepared, ConnectorError> {
        let rows = std::mem::take(&mut self.since);
        Ok(Box::new(move || Ok((rows > 0).then(|| json!(rows)))))
    }
}

/// An operator in a chain; its output 0 goes to `outputs`.
pub(crate) fn operator(uid: &str, operators: &Operators, instances: Instances, outputs: Vec<Target>) -> NodeSpec {
    NodeSpec {
        uid: uid.into(),
        component: format!("{uid}@1.0.0"),
        work: NodeWork::Operator {
            factory: Arc::new(operators.clone()),
            instances,
            restored: Vec::new(),
            after_end: weir_task::AfterEnd { event_time_max: weir_model::WATERMARK_START, more: false },
            call_rows: Arc::default(),
        },
        on_reject: OnReject::Fail,
        outputs: vec![outputs],
        late_port: None,
        dead_letters: Vec::new(),
        stats: Arc::default(),
    }
}

pub(crate) fn sink(uid: &str, sink: &Memory) -> NodeSpec {
    NodeSpec {
        uid: uid.into(),
        component: String::new(),
        work: NodeWork::Sink(Box::new(sink.clone())),
        on_reject: OnReject::Fail,
        outputs: Vec::new(),
        late_port: None,
        dead_letters: Vec::new(),
        stats: Arc::default(),
    }
}

/// One instance per key group, for all key groups.
pub(crate) fn keyed(groups: u16) -> Instances {
    Instances::Keyed { groups: KeyGroupRange::of(0, groups, 1), eager: false }
}

pub(crate) fn to(node: usize) -> Target {
    Target::Node { node, input: 0 }
}

/// Both ends of what joins tasks: gates are taken by the task that reads them.
pub(crate) struct Place {
    pub(crate) signal: Arc<Signal>,
    pub(crate) gate: Gate,
    pub(crate) channels: Vec<GateChannel>,
}

impl Place {
    pub(crate) fn new() -> Place {
        let signal: Arc<Signal> = Arc::default();
        Place { gate: Gate::new(signal.clone()), signal, channels: Vec::new() }
    }

    /// A channel into here from a task that waits on `from`.
    pub(crate) fn channel(&mut self, from: &Arc<Signal>, input: u32) -> Sender {
        self.channel_of(from, input, Limits::default())
    }

    pub(crate) fn channel_of(&mut self, from: &Arc<Signal>, input: u32, limits: Limits) -> Sender {
        let from_task = format!("upstream[{}]", self.channels.len());
        self.channels.push(GateChannel { input, groups: None, from: from_task });
        self.gate.connect(from.clone(), limits)
    }

    /// A channel of a hash exchange, into a task that owns these key groups.
    pub(crate) fn hash_channel(&mut self, from: &Arc<Signal>, input: u32, groups: KeyGroupRange) -> Sender {
        self.hash_channel_of(from, input, Limits::default(), groups)
    }

    pub(crate) fn hash_channel_of(&mut self, from: &Arc<Signal>, input: u32, limits: Limits, groups: KeyGroupRange) -> Sender {
        let sender = self.channel_of(from, input, limits);
        self.channels.last_mut().unwrap().groups = Some(groups);
        sender
    }

    pub(crate) fn head(self) -> (Arc<Signal>, HeadSpec) {
        (self.signal, HeadSpec::Gate { gate: self.gate, channels: self.channels, restored: Vec::new() })
    }
}

/// Runs a task until it is over, as a thread of its own does.
pub(crate) fn run(mut task: Task, signal: &Signal) {
    loop {
        match task.turn() {
            Turn::Go => {}
            Turn::Wait(timeout) => signal.wait(timeout),
            Turn::Over => return,
        }
    }
}

/// A task that runs. Cancelled when dropped.
pub(crate) struct Running {
    pub(crate) handle: TaskHandle,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    pub(crate) fn start(
        id: u32,
        log: &Log,
        signal: Arc<Signal>,
        head: HeadSpec,
        nodes: Vec<NodeSpec>,
        routers: Vec<Router>,
    ) -> Running {
        let spec = TaskSpec {
            id: TaskId(id),
            name: format!("task-{id}"),
            attempt: Attempt(1),
            mode: Mode::ExactlyOnce,
            head,
            nodes,
            routers,
            wake: signal.clone(),
            outlet: Box::new(log.clone()),
            stats: Arc::default(),
            clock: Arc::new(SystemClock::default()),
        };
        let (task, handle) = Task::build(spec).unwrap();
        Running { handle, thread: Some(std::thread::spawn(move || run(task, &signal))) }
    }

    pub(crate) fn trigger(&self, checkpoint: u64) {
        self.handle.tell(Control::Trigger(barrier(checkpoint)));
    }

    pub(crate) fn abort(&self, checkpoint: u64) {
        self.handle.tell(Control::Abort(CheckpointId(checkpoint)));
    }

    /// Cancels, and waits until the task is gone, which must not take long.
    pub(crate) fn cancel(&mut self) {
        self.handle.tell(Control::Cancel);
        let Some(thread) = self.thread.take() else { return };
        let (over, ended) = sync_channel(1);
        std::thread::spawn(move || over.send(thread.join().is_ok()));
        let ended = ended.recv_timeout(Duration::from_secs(10));
        if !std::thread::panicking() {
            assert_eq!(ended, Ok(true), "a cancelled task ends");
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.cancel();
    }
}

/// All that can be read from a gate the test holds.
pub(crate) fn drain(gate: &mut Gate) -> Vec<Frame> {
    std::iter::from_fn(|| gate.poll().map(|(_, frame)| frame)).collect()
}

/// Reads from a gate until a frame comes that is `last`; gives all.
pub(crate) fn read_until(gate: &mut Gate, last: &Frame) -> Vec<Frame> {
    let mut frames = Vec::new();
    eventually(&format!("{last:?}"), || {
        frames.extend(drain(gate));
        frames.contains(last)
    });
    frames
}

/// The rows of frames in order.
pub(crate) fn rows_in(frames: &[Frame]) -> Vec<Row> {
    let rows = |frame: &Frame| match frame {
        Frame::Rows(rows) => rows_of(rows.view()),
        Frame::Keyed(rows) => rows.sections().flat_map(|(_, rows)| rows_of(rows)).collect(),
        _ => Vec::new(),
    };
    frames.iter().flat_map(rows).collect()
}

/// Passes rows on as they are.
#[derive(Clone)]
pub(crate) struct Passing;

impl InstanceFactory for Passing {
    fn instantiate(&self) -> Result<Box<dyn OperatorInstance>, SandboxError> {
        Ok(Box::new(Passing))
    }

    fn restore(&self, _: &[&[u8]]) -> Result<Box<dyn OperatorInstance>, SandboxError> {
        self.instantiate()
    }
}

impl OperatorInstance for Passing {
    fn process(&mut self, _: u32, rows: BatchRef<'_>, emitted: &mut EmittedRows) -> Result<Vec<Rejection>, CallError> {
        emitted.rows_to(0).extend(rows);
        Ok(Vec::new())
    }

    fn advance(&mut self, _: i64, _: &mut EmittedRows) -> Result<(), CallError> {
        Ok(())
    }

    fn finish(&mut self, _: &mut EmittedRows) -> Result<(), CallError> {
        Ok(())
    }

    fn capture(&mut self, _: CheckpointId) -> Result<Option<Box<dyn CapturedState>>, SandboxError> {
        Ok(None)
    }

    fn checkpoint_completed(&mut self, _: CheckpointId) {}
}
