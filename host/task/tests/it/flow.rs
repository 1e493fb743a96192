//! Rows on their way through chains, exchanges and channels.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use weir_channel::{Frame, Limits};
use weir_model::KeyGroupRange;
use weir_task::{Instances, Router, Signal, Target, VertexStats};

use crate::support::*;

#[test]
fn a_chain_passes_rows_from_a_source_through_operators_to_a_sink() {
    let (log, memory) = (Log::default(), Memory::default());
    let (first, second) = (Operators::prefixing("a"), Operators::prefixing("b"));
    let nodes = vec![
        operator("first", &first, Instances::Single(0), vec![to(1)]),
        operator("second", &second, Instances::Single(0), vec![to(2)]),
        sink("out", &memory),
    ];
    let steps = Steps::of([Step::Rows(vec![row(1, "k", "1"), row(2, "k", "2")]), Step::End]);
    let _task = Running::start(0, &log, Arc::default(), steps.head(vec![to(0)], None), nodes, Vec::new());
    log.wait(0, &Said::Finished);
    let values = memory.values();
    assert_eq!(values[..2], ["ba1", "ba2"]);
    assert_eq!(values[values.len() - 2..], ["bseen 2", "seen 5"], "the end takes the same way, one operator after the other");
}

/// Two sources, a hash exchange, two subtasks of a keyed operator with a sink each. Gives the rows of each sink and how many
/// rows came into each subtask.
fn over_a_hash_exchange(rows: impl Fn(usize) -> Vec<Row>) -> [(Vec<Row>, u64); 2] {
    const GROUPS: u16 = 16;
    let log = Log::default();
    let mut places = [Place::new(), Place::new()];
    let mut sources = Vec::new();
    for index in 0..2 {
        let signal: Arc<Signal> = Arc::default();
        // Room for one frame, so that sources wait again and again.
        let limits = Limits { frames_max: 1, bytes_max: 1 << 20 };
        let owned = |index| KeyGroupRange::of(index, GROUPS, 2);
        let places = places.iter_mut().zip(0..);
        let senders = places.map(|(place, index)| place.hash_channel_of(&signal, 0, limits, owned(index))).collect();
        let chunks = rows(index).chunks(7).map(|chunk| Step::Rows(chunk.to_vec())).collect::<Vec<_>>();
        let head = Steps::of(chunks.into_iter().chain([Step::End])).head(vec![Target::Router(0)], None);
        sources.push((index, signal, head, Router::hash(senders, GROUPS)));
    }
    let tasks: Vec<_> = places
        .into_iter()
        .zip(0..)
        .map(|(place, index)| {
            let (operators, memory, stats) = (Operators::prefixing(""), Memory::default(), Arc::<VertexStats>::default());
            let instances = Instances::Keyed { groups: KeyGroupRange::of(index, GROUPS, 2), eager: false };
            let mut node = operator("op", &operators, instances, vec![to(1)]);
            node.stats = stats.clone();
            let (signal, head) = place.head();
            let task = Running::start(index, &log, signal, head, vec![node, sink("out", &memory)], Vec::new());
            (memory, stats, task)
        })
        .collect();
    let _sources: Vec<_> = sources
        .into_iter()
        .map(|(index, signal, head, router)| Running::start(10 + index as u32, &log, signal, head, Vec::new(), vec![router]))
        .collect();
    [0, 1].map(|index| {
        log.wait(index, &Said::Finished);
        let (memory, stats, _) = &tasks[index as usize];
        let rows = memory.rows.lock().iter().filter(|(_, key, _)| !key.is_empty()).cloned().collect();
        (rows, stats.rows_in.load(Ordering::Relaxed))
    })
}

#[test]
fn order_per_key_is_kept_through_a_hash_exchange_and_every_key_has_one_subtask() {
    let of_source = |source: usize| (0..2_000).map(|n| row(n, &format!("{source}-{}", n % 50), &format!("{n}"))).collect();
    let parts = over_a_hash_exchange(of_source);
    let mut by_key: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    let mut owners: BTreeMap<String, usize> = BTreeMap::new();
    for (subtask, (rows, _)) in parts.iter().enumerate() {
        for (time, key, _) in rows {
            by_key.entry(key.clone()).or_default().push(*time);
            assert_eq!(*owners.entry(key.clone()).or_insert(subtask), subtask, "key {key}");
        }
    }
    assert_eq!(by_key.len(), 100);
    for (key, times) in by_key {
        let nth: i64 = key.split('-').nth(1).unwrap().parse().unwrap();
        assert_eq!(times, (0..40).map(|n| n * 50 + nth).collect::<Vec<_>>(), "key {key}");
    }
}

#[test]
fn s29_a_key_with_nine_tenths_of_all_rows_is_correct_and_its_subtask_can_be_seen() {
    let of_source = |_| (0..1_000).map(|n| row(n, &if n % 10 == 0 { format!("{n}") } else { "hot".into() }, "")).collect();
    let parts = over_a_hash_exchange(of_source);
    let hot = |rows: &[Row]| rows.iter().filter(|(_, key, _)| key == "hot").count();
    assert_eq!(parts.iter().map(|(rows, _)| hot(rows)).sum::<usize>(), 1_800);
    assert_eq!(parts.iter().map(|(rows, _)| rows.len()).sum::<usize>(), 2_000);
    let owner = usize::from(hot(&parts[1].0) > 0);
    assert!(parts[owner].1 >= 1_800 && parts[1 - owner].1 <= 200, "rows in by subtask: {} and {}", parts[0].1, parts[1].1);
}

#[test]
fn an_operator_knows_its_inputs_apart_and_a_union_is_one_input() {
    let operators = Operators::prefixing("");
    let mut place = Place::new();
    for (name, input) in [("left", 0), ("right", 1), ("left too", 0)] {
        place.channel(&Default::default(), input).send(frame(&[row(1, "", name)]));
    }
    let (signal, head) = place.head();
    let nodes = vec![operator("op", &operators, Instances::Single(0), Vec::new())];
    let _task = Running::start(0, &Log::default(), signal, head, nodes, Vec::new());
    eventually("three calls", || operators.calls_of(0).len() == 3);
    let call = |input, name| Called::Process { input, rows: vec![row(1, "", name)] };
    assert_eq!(operators.calls_of(0), [call(0, "left"), call(1, "right"), call(0, "left too")]);
}

#[test]
fn a_broadcast_row_reaches_every_instance_of_a_keyed_operator_also_those_without_a_key_yet() {
    let operators = Operators::prefixing("");
    let mut place = Place::new();
    let mut broadcast = place.channel(&Default::default(), 1);
    let (signal, head) = place.head();
    let instances = Instances::Keyed { groups: KeyGroupRange::of(0, 4, 1), eager: true };
    let nodes = vec![operator("op", &operators, instances, Vec::new())];
    let _task = Running::start(0, &Log::default(), signal, head, nodes, Vec::new());
    assert_eq!(operators.made(), 4, "all are there before the first row");
    broadcast.send(frame(&[row(1, "", "rule")]));
    let call = [Called::Process { input: 1, rows: vec![row(1, "", "rule")] }];
    eventually("all are called", || (0..4).all(|instance| operators.calls_of(instance) == call));
}

#[test]
fn s25_rows_larger_than_a_frame_and_than_a_channel_pass_intact() {
    let (log, memory) = (Log::default(), Memory::default());
    let (signal, mut place): (Arc<Signal>, _) = (Arc::default(), Place::new());
    let limits = Limits { frames_max: 2, bytes_max: 1 << 20 };
    let sender = place.hash_channel_of(&signal, 0, limits, KeyGroupRange::of(0, 8, 1));
    let value = |n: usize| format!("{n}:").repeat((weir_model::limits::FRAME_BYTES_TARGET >> 5) << n);
    let rows: Vec<Row> = (0..6).map(|n| row(n as i64, "k", &value(n))).collect();
    assert!(rows[5].2.len() > weir_model::limits::FRAME_BYTES_TARGET);
    let steps = Steps::of([Step::Rows(rows.clone()), Step::Rows(rows.clone()), Step::End]);
    let (reader, head) = place.head();
    let _sink = Running::start(0, &log, reader, head, vec![sink("out", &memory)], Vec::new());
    let router = Router::hash(vec![sender], 8);
    let head = steps.head(vec![Target::Router(0)], None);
    let _source = Running::start(1, &log, signal, head, Vec::new(), vec![router]);
    log.wait(0, &Said::Finished);
    assert!(*memory.rows.lock() == [rows.clone(), rows].concat());
}

#[test]
fn a_sink_counts_what_it_writes_however_rows_are_divided() {
    let (log, memory, stats) = (Log::default(), Memory::default(), Arc::<VertexStats>::default());
    let mut place = Place::new();
    let mut sender = place.channel(&Default::default(), 0);
    let mut by_hash = place.hash_channel(&Default::default(), 0, KeyGroupRange { start: 0, end: 4 });
    let mut keyed = None;
    let rows = batch(&[row(1, "a", "x"), row(2, "b", "y")]);
    weir_model::Partitioner::new(4, 1).partition(rows.view(), |_, batch| keyed = Some(batch));
    sender.send(frame(&[row(3, "", "z")]));
    by_hash.send(Frame::Keyed(keyed.unwrap()));
    sender.send(Frame::End);
    by_hash.send(Frame::End);
    let mut node = sink("out", &memory);
    node.stats = stats.clone();
    let (signal, head) = place.head();
    let _task = Running::start(0, &log, signal, head, vec![node], Vec::new());
    log.wait(0, &Said::Finished);
    assert_eq!((stats.rows_in.load(Ordering::Relaxed), stats.rows_out.load(Ordering::Relaxed)), (3, 3));
}
