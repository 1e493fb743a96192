//! Absent and empty keys, tombstones and headers: over every edge, and through a checkpoint that holds them in flight.

use std::sync::Arc;

use parking_lot::Mutex;
use weir_channel::{Frame, wire};
use weir_connectors::{ConnectorError, Prepared, Sink};
use weir_model::{
    Batch, BatchRef, CheckpointId, KeyGroupRange, KeyedBatch, Partitioner, RowRef, key_group_of, push_header, subtask_of,
};
use weir_plan::Exchange;
use weir_task::*;

use crate::support::*;
use crate::unaligned::{Stepped, in_flight, unaligned};

/// Time, key, value, headers.
type Whole = (i64, Option<Vec<u8>>, Option<Vec<u8>>, Vec<u8>);

fn whole(row: RowRef<'_>) -> Whole {
    (row.timestamp, row.key.map(<[u8]>::to_vec), row.value.map(<[u8]>::to_vec), row.headers.to_vec())
}

/// Rows of every kind there is: their numbers are their times.
fn rows_of_all_kinds(numbers: std::ops::Range<i64>) -> Batch {
    let mut rows = Batch::default();
    for n in numbers {
        let (key, value) = (format!("k{}", n % 7), format!("v{n}"));
        let mut headers = Vec::new();
        (0..n % 4).for_each(|_| push_header(&mut headers, b"n", n.to_string().as_bytes()));
        let key = [None, Some(&b""[..]), Some(key.as_bytes())][(n % 3) as usize];
        let value = [Some(value.as_bytes()), None, Some(&b""[..]), Some(&b"v"[..]), Some(&b"w"[..])][(n % 5) as usize];
        rows.push_row(RowRef { timestamp: n, key, value, headers: &headers });
    }
    rows
}

fn wholes(rows: BatchRef<'_>) -> Vec<Whole> {
    rows.rows().map(whole).collect()
}

/// Says where rows differ first: there are many.
fn same(found: &[Whole], expected: &[Whole], what: &str) {
    let differ = found.iter().zip(expected).find(|(found, expected)| found != expected);
    assert_eq!((differ, found.len()), (None, expected.len()), "{what}");
}

/// The rows of frames, as they are behind a network.
fn received(frames: &[Frame]) -> Vec<Whole> {
    let mut rows = Vec::new();
    for frame in frames {
        let bytes = wire::encode_to_vec(frame).unwrap();
        for frame in wire::decode_all(&bytes).unwrap() {
            match frame {
                Frame::Rows(batch) => rows.extend(wholes(batch.view())),
                Frame::Keyed(batch) => batch.sections().for_each(|(_, section)| rows.extend(wholes(section))),
                _ => {}
            }
        }
    }
    rows
}

/// A sink that keeps all that a row says.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Batch>>);

impl Sink for Kept {
    fn write(&mut self, rows: BatchRef<'_>) -> Result<(), ConnectorError> {
        self.0.lock().extend(rows);
        Ok(())
    }

    fn prepare(&mut self, _: CheckpointId) -> Result<Prepared, ConnectorError> {
        Ok(Box::new(|| Ok(None)))
    }
}

/// An operator that passes rows on, and behind it a sink and the routers.
fn nodes(kept: &Kept, instances: Instances, routers: usize) -> Vec<NodeSpec> {
    let targets = (0..routers).map(Target::Router).chain([to(1)]).collect();
    let mut passing = operator("op", &Operators::prefixing(""), instances, targets);
    if let NodeWork::Operator { factory, .. } = &mut passing.work {
        *factory = Arc::new(Passing);
    }
    let mut last = sink("out", &Memory::default());
    last.work = NodeWork::Sink(Box::new(kept.clone()));
    vec![passing, last]
}

#[test]
fn s114_rows_of_all_kinds_pass_every_edge_as_they_were() {
    const KEY_GROUPS: u16 = 8;
    let (log, kept) = (Log::default(), Kept::default());
    let mut place = Place::new();
    let mut input = place.channel(&Default::default(), 0);
    let mut behind: Vec<Place> = (0..7).map(|_| Place::new()).collect();
    let mut senders: Vec<_> = behind.iter_mut().map(|behind| behind.channel(&place.signal, 0)).collect();
    let mut take = |count: usize| senders.drain(..count).collect::<Vec<_>>();
    let routers = vec![
        Router::forward(take(1).remove(0)),
        Router::rebalance(take(2), 0),
        Router::hash(take(2), KEY_GROUPS),
        Router::broadcast(take(2)),
    ];
    let nodes = nodes(&kept, Instances::Single(0), routers.len());
    let mut task = Stepped::new(&log, place, Vec::new(), nodes, routers);
    // Rows without anything odd come first, so that what was gathered has to learn of extras.
    let mut all = Batch::default();
    (-20..0).for_each(|n| all.push(n, b"plain", b"value"));
    all.extend(rows_of_all_kinds(0..1_000).view());
    let expected = wholes(all.view());
    for (first, end) in [(0, 10), (10, 40), (40, 41), (41, 700), (700, 1_020)] {
        let mut part = Batch::default();
        part.extend_range(all.view(), first..end);
        input.send(Frame::Rows(Arc::new(part)));
    }
    input.send(Frame::End);
    // What had no room before or behind the task goes on when there is some.
    let mut frames: Vec<Vec<Frame>> = vec![Vec::new(); behind.len()];
    while {
        task.go();
        let read: Vec<Vec<Frame>> = behind.iter_mut().map(|behind| drain(&mut behind.gate)).collect();
        read.iter().zip(&mut frames).for_each(|(read, frames)| frames.extend_from_slice(read));
        !input.flush() || !read.concat().is_empty()
    } {}
    same(&wholes(kept.0.lock().view()), &expected, "in the chain");
    let got: Vec<Vec<Whole>> = frames.iter().map(|frames| received(frames)).collect();
    same(&got[0], &expected, "forward");
    let mut rebalanced = [&got[1][..], &got[2]].concat();
    rebalanced.sort();
    same(&rebalanced, &expected, "rebalance");
    for (subtask, hashed) in [(0, &got[3]), (1, &got[4])] {
        let group = |row: &Whole| key_group_of(row.1.as_deref().unwrap_or_default(), KEY_GROUPS);
        let mut owned: Vec<Whole> =
            expected.iter().filter(|row| subtask_of(group(row), KEY_GROUPS, 2) == subtask).cloned().collect();
        owned.sort_by_key(group);
        let mut hashed = hashed.clone();
        hashed.sort_by_key(group);
        same(&hashed, &owned, "hash, in the order of each key group");
    }
    got[5..].iter().for_each(|got| same(got, &expected, "broadcast"));
}

#[test]
fn s114_rows_in_flight_are_captured_and_come_back_at_another_parallelism_as_they_were() {
    const KEY_GROUPS: u16 = 8;
    let log = Log::default();
    let mut place = Place::new();
    let groups = KeyGroupRange { start: 0, end: KEY_GROUPS };
    let mut inputs = [0, 1].map(|_| place.hash_channel(&Default::default(), 0, groups));
    let mut task = Stepped::new(&log, place, Vec::new(), nodes(&Kept::default(), keyed(KEY_GROUPS), 0), Vec::new());
    let rows = rows_of_all_kinds(0..500);
    let mut sent = Vec::<KeyedBatch>::new();
    for (first, end) in [(0, 20), (20, 21), (21, 500)] {
        let mut part = Batch::default();
        part.extend_range(rows.view(), first..end);
        Partitioner::new(KEY_GROUPS, 1).partition(part.view(), |_, keyed| sent.push(keyed));
    }
    inputs[0].send(Frame::Barrier(unaligned(1)));
    sent.iter().for_each(|keyed| inputs[1].send(Frame::Keyed(keyed.clone())));
    inputs[1].send(Frame::Barrier(unaligned(1)));
    task.go();
    let (pieces, ended) = in_flight(&log, 1);
    assert!(ended);
    let frames: Vec<Frame> = pieces.into_iter().flat_map(|piece| piece.frames).collect();
    assert!(frames.iter().any(|frame| matches!(frame, Frame::Keyed(keyed) if keyed.columns().extras.is_some())));
    let stored: Vec<u8> = frames.iter().flat_map(|frame| wire::encode_to_vec(frame).unwrap()).collect();

    let mut back = Vec::new();
    for subtask in 0..3 {
        let place = |subtask, parallelism| weir_task::in_flight::Place { subtask, parallelism, key_groups: KEY_GROUPS };
        let frames = wire::decode_all(&stored).unwrap();
        let share = weir_task::in_flight::share(Exchange::Hash, true, None, place(0, 1), place(subtask, 3));
        let restored = weir_task::in_flight::take(share, Exchange::Hash, place(0, 1), 0, frames).unwrap();
        let owned = KeyGroupRange::of(subtask, KEY_GROUPS, 3);
        let (log, kept) = (Log::default(), Kept::default());
        let mut now = Place::new();
        let _input = now.hash_channel(&Default::default(), 0, owned);
        let instances = Instances::Keyed { groups: owned, eager: false };
        let mut task = Stepped::new(&log, now, restored.into_iter().collect(), nodes(&kept, instances, 0), Vec::new());
        task.go();
        back.extend(wholes(kept.0.lock().view()));
    }
    back.sort();
    same(&back, &wholes(rows.view()), "none was worked off before the marker, and each is there once");
}
