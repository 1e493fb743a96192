//! Figures, printed: what the host's side of a row costs where calls are small and where they are large, with an operator that only
//! passes rows on. `cargo nextest run -p weir-task --run-ignored only --no-capture bench`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use weir_channel::{Frame, Limits};
use weir_checkpoint::align::Mode;
use weir_connectors::{ConnectorError, Prepared, Sink};
use weir_model::{Attempt, Batch, BatchRef, CheckpointId, KeyGroupRange, KeyedBatch, Partitioner, TaskId};
use weir_task::*;

use crate::support::{Log, Memory, Operators, Passing, Place, operator, sink};

const GROUPS: u16 = 64;

struct Nowhere;

impl Sink for Nowhere {
    fn write(&mut self, _: BatchRef<'_>) -> Result<(), ConnectorError> {
        Ok(())
    }

    fn prepare(&mut self, _: CheckpointId) -> Result<Prepared, ConnectorError> {
        Ok(Box::new(|| Ok(None)))
    }
}

/// What comes behind the operator.
#[derive(Clone, Copy, Debug)]
enum Behind {
    /// A sink in the same chain.
    Sink,
    /// Two tasks over a hash exchange.
    Hash,
    /// One task over a forward edge.
    Forward,
}

fn keyed(rows_per_call: usize) -> KeyedBatch {
    let mut rows = Batch::default();
    let mut left = vec![rows_per_call; usize::from(GROUPS)];
    for n in 0u64.. {
        let key = n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
        let group = usize::from(weir_model::key_group_of(&key, GROUPS));
        if left[group] > 0 {
            left[group] -= 1;
            rows.push(n as i64, &key, &[7; 64]);
        }
        if rows.len() == rows_per_call * usize::from(GROUPS) {
            break;
        }
    }
    let mut keyed = None;
    Partitioner::new(GROUPS, 1).partition(rows.view(), |_, rows| keyed = Some(rows));
    keyed.unwrap()
}

/// Nanoseconds a row, the least of several rounds.
fn measure(rows_per_call: usize, behind: Behind) -> f64 {
    let (mut place, mut after) = (Place::new(), [Place::new(), Place::new()]);
    let limits = Limits { frames_max: 64, bytes_max: 64 << 20 };
    let mut input = place.hash_channel_of(&Default::default(), 0, limits, KeyGroupRange::of(0, GROUPS, 1));
    let signal = place.signal.clone();
    let routers = match behind {
        Behind::Sink => Vec::new(),
        Behind::Hash => {
            vec![Router::hash(after.iter_mut().map(|place| place.channel_of(&signal, 0, limits)).collect(), GROUPS)]
        }
        Behind::Forward => vec![Router::forward(after[0].channel_of(&signal, 0, limits))],
    };
    let target = if routers.is_empty() { Target::Node { node: 1, input: 0 } } else { Target::Router(0) };
    let instances = Instances::Keyed { groups: KeyGroupRange::of(0, GROUPS, 1), eager: true };
    let mut nodes = vec![operator("op", &Operators::prefixing(""), instances, vec![target]), sink("out", &Memory::default())];
    nodes[1].work = NodeWork::Sink(Box::new(Nowhere));
    if let NodeWork::Operator { factory, .. } = &mut nodes[0].work {
        *factory = Arc::new(Passing);
    }
    let (signal, head) = place.head();
    let spec = TaskSpec {
        id: TaskId(0),
        name: "bench".to_owned(),
        attempt: Attempt(1),
        mode: Mode::ExactlyOnce,
        head,
        nodes,
        routers,
        wake: signal,
        outlet: Box::new(Log::default()),
        stats: Arc::default(),
        clock: Arc::new(SystemClock::default()),
    };
    let (mut task, _handle) = Task::build(spec).unwrap();
    let rows = keyed(rows_per_call);
    // Short rounds, many of them: the least is one that nothing interrupted.
    let frames = (1 << 16) / rows.len();
    let mut round = || {
        let mut took = Duration::ZERO;
        for _ in 0..frames {
            input.send(Frame::Keyed(rows.clone()));
            while {
                let started = Instant::now();
                while task.turn() == Turn::Go {}
                took += started.elapsed();
                after.iter_mut().map(|place| std::iter::from_fn(|| place.gate.poll()).count()).sum::<usize>() > 0
            } {}
        }
        took.as_nanos() as f64 / (frames * rows.len()) as f64
    };
    (0..200).map(|_| round()).fold(f64::INFINITY, f64::min)
}

#[test]
#[ignore = "prints figures, asserts nothing about them"]
fn bench_rows_through_a_task() {
    for rows_per_call in [16, 64, 256] {
        for behind in [Behind::Sink, Behind::Forward, Behind::Hash] {
            println!("{rows_per_call:>4} rows a call, {behind:?}: {:.1} ns a row", measure(rows_per_call, behind));
        }
    }
}
