//! How much is on its way in front of a slow sink, in time that the test makes pass: two sources, a hash exchange, two subtasks of a
//! keyed operator with a sink each, all moved by one thread.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use weir_channel::Frame;
use weir_checkpoint::align::Mode;
use weir_connectors::{ConnectorError, Polled, Prepared, Sink, Source, WatermarkGenerator};
use weir_model::{Attempt, Barrier, Batch, BatchRef, CheckpointId, KeyGroupRange, TaskId};
use weir_task::*;

use crate::support::*;

const GROUPS: u16 = 16;

/// Time that passes when somebody works.
#[derive(Clone, Default)]
struct Time(Arc<Mutex<Duration>>);

impl Time {
    fn pass(&self, time: Duration) {
        *self.0.lock() += time;
    }
}

impl Clock for Time {
    fn now(&self) -> Duration {
        *self.0.lock()
    }
}

/// Rows of 64 bytes without end. Notes how many it was asked for last.
struct Endless {
    asked: Arc<Mutex<usize>>,
    next: u64,
}

impl Source for Endless {
    fn restore(&mut self, _: &BTreeMap<String, Value>) -> Result<(), ConnectorError> {
        Ok(())
    }

    fn poll(&mut self, rows: &mut Batch, rows_max: usize, bytes_max: usize) -> Result<Polled, ConnectorError> {
        *self.asked.lock() = rows_max;
        while rows.len() < rows_max && rows.size_bytes() < bytes_max {
            rows.push(0, format!("{:08x}", self.next as u32).as_bytes(), &[b'x'; 64]);
            self.next += 1;
        }
        Ok(Polled::Rows)
    }

    fn position(&mut self) -> BTreeMap<String, Value> {
        BTreeMap::new()
    }
}

/// Takes its time.
struct Slow {
    time: Time,
    per_row: Duration,
}

impl Sink for Slow {
    fn write(&mut self, rows: BatchRef<'_>) -> Result<(), ConnectorError> {
        self.time.pass(self.per_row * rows.len() as u32);
        Ok(())
    }

    fn prepare(&mut self, _: CheckpointId) -> Result<Prepared, ConnectorError> {
        Ok(Box::new(|| Ok(None)))
    }
}

struct Job {
    time: Time,
    log: Log,
    tasks: Vec<(Task, TaskHandle)>,
    asked: Vec<Arc<Mutex<usize>>>,
}

impl Job {
    fn new(per_row: Duration) -> Job {
        let mut job = Job { time: Time::default(), log: Log::default(), tasks: Vec::new(), asked: Vec::new() };
        let mut places = [Place::new(), Place::new()];
        for index in 0..2 {
            let signal: Arc<Signal> = Arc::default();
            let owned = |index| KeyGroupRange::of(index, GROUPS, 2);
            let places = places.iter_mut().zip(0..);
            let senders = places.map(|(place, index)| place.hash_channel(&signal, 0, owned(index))).collect();
            let asked: Arc<Mutex<usize>> = Arc::default();
            let head = HeadSpec::Source {
                uid: "source".into(),
                source: Box::new(Endless { asked: asked.clone(), next: index << 32 }),
                event_time: None,
                generator: WatermarkGenerator::new(0, None),
                targets: vec![Target::Router(0)],
                stats: Arc::default(),
                restore: None,
            };
            job.asked.push(asked);
            job.add(signal, head, Vec::new(), vec![Router::hash(senders, GROUPS)]);
        }
        for (index, place) in (0..).zip(places) {
            let operators = Operators::new(|_, rows, emitted| {
                emitted.rows_to(0).extend(batch(rows).view());
                Ok(Vec::new())
            });
            let instances = Instances::Keyed { groups: KeyGroupRange::of(index, GROUPS, 2), eager: false };
            let mut out = sink("out", &Memory::default());
            out.work = NodeWork::Sink(Box::new(Slow { time: job.time.clone(), per_row }));
            let (signal, head) = place.head();
            let nodes = vec![operator("op", &operators.forgetful(), instances, vec![to(1)]), out];
            job.add(signal, head, nodes, Vec::new());
        }
        job
    }

    fn add(&mut self, signal: Arc<Signal>, head: HeadSpec, nodes: Vec<NodeSpec>, routers: Vec<Router>) {
        let spec = TaskSpec {
            id: TaskId(self.tasks.len() as u32),
            name: "simulated".to_owned(),
            attempt: Attempt(1),
            mode: Mode::ExactlyOnce,
            head,
            nodes,
            routers,
            wake: signal,
            outlet: Box::new(self.log.clone()),
            stats: Arc::default(),
            clock: Arc::new(self.time.clone()),
        };
        self.tasks.push(Task::build(spec).unwrap());
    }

    /// Runs until something holds. Gives how long that took.
    fn run_until(&mut self, mut holds: impl FnMut(&Job) -> bool) -> Duration {
        let started = self.time.now();
        while !holds(self) {
            let turns: Vec<Turn> = self.tasks.iter_mut().map(|(task, _)| task.turn()).collect();
            assert!(!turns.contains(&Turn::Over), "{:?}", self.log.of(0));
            // Work that takes no time of its own here does somewhere.
            self.time.pass(Duration::from_micros(if turns.contains(&Turn::Go) { 20 } else { 1_000 }));
            assert!(self.time.now() - started < Duration::from_secs(600), "it never holds");
        }
        self.time.now() - started
    }

    fn run_for(&mut self, time: Duration) {
        let end = self.time.now() + time;
        self.run_until(|job| job.time.now() >= end);
    }

    /// Takes a checkpoint. Gives how long it took, and the bytes captured in flight.
    fn checkpoint(&mut self, barrier: Barrier) -> (Duration, usize) {
        self.tasks.iter().for_each(|(_, handle)| handle.tell(Control::Trigger(barrier)));
        let end = Said::End(barrier.checkpoint.0);
        let took = self.run_until(|job| (0..4).all(|task| job.log.has(task, &end)));
        let of = |said| match said {
            Said::InFlight { checkpoint, pieces } if checkpoint == barrier.checkpoint.0 => pieces,
            _ => Vec::new(),
        };
        let pieces = (0..4).flat_map(|task| self.log.of(task)).flat_map(of);
        (took, pieces.flat_map(|piece| piece.frames).map(|frame: Frame| frame.size_bytes()).sum())
    }
}

#[test]
fn s26_in_front_of_a_sink_of_2_000_rows_a_second_a_checkpoint_is_fast_and_stores_little_of_what_is_in_flight() {
    let mut job = Job::new(Duration::from_micros(500));
    job.run_for(Duration::from_secs(20));
    let asked: Vec<usize> = job.asked.iter().map(|asked| *asked.lock()).collect();
    assert!(asked.iter().all(|asked| *asked <= 400), "each source reads about what goes through in 20 ms: {asked:?}");
    for id in 1..5 {
        let (took, bytes) = job.checkpoint(Barrier { unaligned: true, ..barrier(id) });
        assert!(took <= Duration::from_millis(100), "it took {took:?}");
        assert!(0 < bytes && bytes <= 280 << 10, "{bytes} bytes were in flight");
        job.run_for(Duration::from_millis(700));
    }
    let (took, _) = job.checkpoint(barrier(9));
    assert!(took <= Duration::from_secs(2), "an aligned one waits for what is in flight, which is little: {took:?}");
}

#[test]
fn in_front_of_a_fast_sink_frames_are_as_large_as_they_may_be() {
    let mut job = Job::new(Duration::from_nanos(500));
    job.run_for(Duration::from_millis(1_500));
    let asked: Vec<usize> = job.asked.iter().map(|asked| *asked.lock()).collect();
    assert_eq!(asked, [weir_model::limits::FRAME_ROWS_MAX / 2; 2]);
}
