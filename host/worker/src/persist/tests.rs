//! The persister alone, handed real captures: what it stores, what it says, and what an abort leaves.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::Arc;

use object_store::ObjectStoreExt;
use object_store::path::Path;
use serde_json::Value;
use weir_channel::{Frame, wire};
use weir_connectors::ConnectorError;
use weir_model::{Attempt, Batch, CheckpointId, Description, InstanceId, KeyGroupRange, TaskId, WATERMARK_START};
use weir_plan::Exchange;
use weir_protocol::Acknowledgement;
use weir_sandbox::{
    Component, EmittedRows, HostEvents, Instance, InstanceLimits, LogLevel, OperatorContext, Sandbox, SandboxOptions, Template,
};
use weir_storage::{JobStorage, Segment};
use weir_task::{CapturedState, InFlight, InFlightSource, SinkPrepare, SnapshotPart, TaskState};

use super::{Item, Origin, Origins, Outcome, Persister, RETRY_DELAY, TaskStart};
use crate::tests::store::{ENOSPC, Fault, Store, store};

const TASK: TaskId = TaskId(3);

struct Bench {
    store: Store,
    storage: JobStorage,
    template: Template,
    instance: Instance,
    persister: Persister,
}

struct Deaf;

impl HostEvents for Deaf {
    fn log(&self, _: LogLevel, _: &str) {}

    fn count(&self, _: &str, _: u64) {}

    fn gauge(&self, _: &str, _: f64) {}
}

fn origin(sender: u32) -> Origin {
    Origin { from: "parse".to_owned(), output: Some(0), input: 1, sender, exchange: Exchange::Rebalance }
}

fn template(component: &Component) -> Template {
    let context = OperatorContext {
        job: "numbers".to_owned(),
        operator: "count".to_owned(),
        component: "count".to_owned(),
        config: "{}".to_owned(),
    };
    Template::open(component, &Description::plain(), &context, &InstanceLimits::default(), Arc::new(Deaf)).unwrap()
}

impl Bench {
    fn new() -> Bench {
        let store = store();
        let storage = JobStorage::with_store(Arc::new(store.clone()), "test:store", "numbers").unwrap();
        let attempt = Attempt(1);
        let sandbox = Sandbox::new(SandboxOptions::default()).unwrap();
        let template = template(&sandbox.take_in(&wat::parse_str(include_str!("../tests/count.wat")).unwrap()).unwrap());
        let origins = Origins { channels: vec![origin(0), origin(1)], restored: vec![origin(7)] };
        let tasks = BTreeMap::from([(TASK, TaskStart { instances: Vec::new(), held: Vec::new(), origins })]);
        let persister = Persister::new(storage.clone(), attempt, RETRY_DELAY, tasks);
        let instance = Instance::new(&template).unwrap();
        Bench { store, storage, template, instance, persister }
    }

    fn count(&mut self, rows: usize) {
        let mut batch = Batch::default();
        (0..rows).for_each(|_| batch.push(0, b"", b""));
        self.instance.process(0, batch.view(), &mut EmittedRows::new()).unwrap();
    }

    /// Hands a whole snapshot over, with a capture of the instance.
    fn snapshot(&mut self, checkpoint: u64, in_flight: Vec<InFlight>) -> Outcome {
        let capture = Box::new(self.instance.capture(CheckpointId(checkpoint)).unwrap());
        self.hand_over(checkpoint, Some(capture), in_flight)
    }

    fn hand_over(&mut self, checkpoint: u64, capture: Option<Box<dyn CapturedState>>, in_flight: Vec<InFlight>) -> Outcome {
        let checkpoint = CheckpointId(checkpoint);
        let (uid, instance) = ("count".into(), InstanceId::Subtask(0));
        self.part(SnapshotPart::Begin { checkpoint, state: TaskState::default(), prepare: Vec::new() });
        self.part(SnapshotPart::InFlight { checkpoint, pieces: in_flight });
        let part = SnapshotPart::Instance { checkpoint, uid, instance, capture, watermark: WATERMARK_START, finished: false };
        self.part(part);
        self.part(SnapshotPart::End { checkpoint }).unwrap()
    }

    fn part(&mut self, part: SnapshotPart) -> Option<Outcome> {
        self.persister.handle(Item::Part(TASK, part))
    }

    /// A snapshot of an instance that was not called since the last completed checkpoint.
    fn uncaptured(&mut self, checkpoint: u64) -> Box<Acknowledgement> {
        match self.hand_over(checkpoint, None, Vec::new()) {
            Outcome::Acknowledged(acknowledgement) => acknowledgement,
            other => panic!("{other:?}"),
        }
    }

    fn abandon(&mut self, checkpoint: u64) {
        self.part(SnapshotPart::Abandon { checkpoint: CheckpointId(checkpoint) });
    }

    fn acknowledged(&mut self, checkpoint: u64) -> Box<Acknowledgement> {
        self.acknowledged_with(checkpoint, Vec::new())
    }

    fn acknowledged_with(&mut self, checkpoint: u64, in_flight: Vec<InFlight>) -> Box<Acknowledgement> {
        match self.snapshot(checkpoint, in_flight) {
            Outcome::Acknowledged(acknowledgement) => acknowledgement,
            other => panic!("{other:?}"),
        }
    }

    fn complete(&mut self, checkpoint: u64) {
        self.persister.handle(Item::Completed(CheckpointId(checkpoint)));
        self.instance.checkpoint_completed(CheckpointId(checkpoint));
    }

    /// What an instance restored from a chain has counted.
    fn restored(&self, chain: &[Segment]) -> u64 {
        let images: Vec<_> = chain.iter().map(|segment| self.storage.read(segment).unwrap()).collect();
        let images: Vec<&[u8]> = images.iter().map(|image| &image[..]).collect();
        let mut emitted = EmittedRows::new();
        Instance::restore(&self.template, &images).unwrap().finish(&mut emitted).unwrap();
        let (_, rows) = emitted.entries().next().unwrap();
        std::str::from_utf8(rows.values.get(0)).unwrap().parse().unwrap()
    }
}

fn chain(acknowledgement: &Acknowledgement) -> &[Segment] {
    acknowledgement.instances[0].state.memory()
}

#[test]
fn a_chain_grows_with_each_completed_checkpoint_and_is_merged_before_it_is_long() {
    let mut bench = Bench::new();
    let mut longest = 0;
    for checkpoint in 1..=60 {
        bench.count(2);
        let acknowledgement = bench.acknowledged(checkpoint);
        assert_eq!(bench.restored(chain(&acknowledgement)), 2 * checkpoint);
        longest = longest.max(chain(&acknowledgement).len());
        bench.complete(checkpoint);
    }
    assert!((2..=weir_model::limits::IMAGE_CHAIN_MAX * 2).contains(&longest), "{longest}");
}

#[test]
fn s51_after_an_abort_the_next_snapshot_follows_the_last_completed_one_and_misses_nothing() {
    let mut bench = Bench::new();
    bench.count(1);
    let first = bench.acknowledged(1);
    bench.complete(1);
    bench.count(10);
    let aborted = bench.acknowledged(2);
    bench.abandon(2);
    bench.count(100);
    let third = bench.acknowledged(3);
    assert_eq!(chain(&third)[..1], *chain(&first));
    assert_eq!(chain(&third).len(), 2, "nothing of the aborted one");
    assert_eq!(bench.restored(chain(&third)), 111);
    // s34: the files of the dead one are its own.
    let file = Path::from(format!("numbers/files/{}", aborted.file.unwrap().name));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(bench.store.inner().delete(&file)).unwrap();
    bench.complete(3);
    bench.count(1_000);
    let fourth = bench.acknowledged(4);
    assert_eq!(bench.restored(chain(&fourth)), 1_111);
}

#[test]
fn s80_a_checkpoint_that_is_aborted_and_then_announced_as_complete_loses_no_page() {
    let mut bench = Bench::new();
    bench.count(1);
    bench.acknowledged(1);
    bench.complete(1);
    bench.count(10);
    let second = bench.acknowledged(2);
    bench.abandon(2);
    // Its manifest was there all the same. The instance is not called before the next checkpoint.
    bench.complete(2);
    let third = bench.uncaptured(3);
    assert_eq!(chain(&third), chain(&second));
    assert_eq!(bench.restored(chain(&third)), 11);
    bench.complete(3);
    bench.count(100);
    let fourth = bench.acknowledged(4);
    assert_eq!(bench.restored(chain(&fourth)), 111);
}

#[test]
fn s80_a_snapshot_between_the_abort_and_the_news_is_whole_and_so_is_the_one_after() {
    let mut bench = Bench::new();
    bench.count(1);
    bench.acknowledged(1);
    bench.complete(1);
    bench.count(10);
    bench.acknowledged(2);
    bench.abandon(2);
    bench.count(100);
    let third = bench.acknowledged(3);
    assert_eq!(bench.restored(chain(&third)), 111);
    bench.complete(2);
    bench.count(1_000);
    let fourth = bench.acknowledged(4);
    assert_eq!(bench.restored(chain(&fourth)), 1_111);
    bench.complete(3);
    bench.complete(4);
    let fifth = bench.uncaptured(5);
    assert_eq!(bench.restored(chain(&fifth)), 1_111);
}

#[test]
fn s40_a_snapshot_that_cannot_be_written_says_why_and_the_next_one_is_whole() {
    let mut bench = Bench::new();
    bench.count(1);
    bench.acknowledged(1);
    bench.complete(1);
    bench.count(10);
    bench.store.set(Fault::Files(ENOSPC));
    match bench.snapshot(2, Vec::new()) {
        Outcome::Failed { task, checkpoint, reason } => {
            assert_eq!((task, checkpoint), (TASK, CheckpointId(2)));
            assert!(reason.contains("the storage is full") && reason.contains("test:store"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
    bench.store.set(Fault::None);
    bench.count(100);
    let third = bench.acknowledged(3);
    assert_eq!(bench.restored(chain(&third)), 111);
}

#[test]
fn no_checkpoint_completes_without_rows_that_a_sink_could_not_make_durable_for_one_that_was_given_up() {
    let mut bench = Bench::new();
    let failed = || ConnectorError::Unusable { path: "out".into(), reason: "no space".to_owned() };
    let prepare: SinkPrepare = Box::new(move || Err(failed()));
    let (state, checkpoint) = (TaskState::default(), CheckpointId(1));
    bench.part(SnapshotPart::Begin { checkpoint, state, prepare: vec![("out".into(), prepare)] });
    bench.abandon(1);
    // Closed before the sink knew that what came before it is lost.
    let prepare: SinkPrepare = Box::new(|| Ok(Some(Value::from("rows of checkpoint 2"))));
    let (state, checkpoint) = (TaskState::default(), CheckpointId(2));
    bench.part(SnapshotPart::Begin { checkpoint, state, prepare: vec![("out".into(), prepare)] });
    let outcome = bench.part(SnapshotPart::End { checkpoint }).unwrap();
    assert!(matches!(&outcome, Outcome::Failed { reason, .. } if reason.contains("no space")), "{outcome:?}");
}

#[test]
fn rows_in_flight_are_stored_with_the_channel_they_were_on() {
    let mut bench = Bench::new();
    let frame = |n: i64| {
        let mut rows = Batch::default();
        rows.push(n, b"key", b"value");
        Frame::Rows(Arc::new(rows))
    };
    let groups = Some(KeyGroupRange { start: 2, end: 5 });
    let piece = |source, groups, frames| InFlight { source, groups, frames };
    let acknowledgement = bench.acknowledged_with(
        1,
        vec![
            piece(InFlightSource::Restored(0), groups, vec![frame(1)]),
            piece(InFlightSource::Channel(1), None, vec![frame(2), frame(3)]),
            piece(InFlightSource::Channel(0), None, Vec::new()),
        ],
    );
    let stored: Vec<_> = acknowledgement.in_flight.iter().map(|state| (state.sender, state.groups, state.rows)).collect();
    assert_eq!(stored, [(7, Some((2, 5)), 1), (1, None, 2)], "nothing is said of a channel on which nothing was");
    assert!(acknowledgement.in_flight.iter().all(|state| state.exchange == "rebalance"));
    let read = |index: usize| wire::decode_all(&bench.storage.read(&acknowledgement.in_flight[index].frames).unwrap()).unwrap();
    assert_eq!(read(0), [frame(1)]);
    assert_eq!(read(1), [frame(2), frame(3)]);
    assert_eq!(acknowledgement.in_flight_bytes, acknowledgement.in_flight.iter().map(|state| state.frames.length).sum::<u64>());
}
