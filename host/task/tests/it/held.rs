//! What calls emit is passed on later than after each call, and nothing else changes: random chains, outputs, divisions, inputs, barriers
//! and rooms downstream, where each edge must bring what was emitted, in that order, with watermarks, markers and ends in their places.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use weir_channel::{Frame, Limits};
use weir_checkpoint::align::Mode;
use weir_connectors::{ConnectorError, Prepared, Sink};
use weir_model::{Attempt, Barrier, BatchRef, CheckpointId, KeyGroupRange, Partitioner, TaskId};
use weir_sandbox::{CallError, EmittedRows, Rejection, SandboxError};
use weir_task::*;

use crate::support::*;

const GROUPS: u16 = 4;

/// Outputs of an operator that have names. It emits to one more.
const PORTS: u32 = 3;

/// Numbers that look random and are the same every time (SplitMix64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn one_in(&mut self, bound: usize) -> bool {
        self.below(bound) == 0
    }
}

/// What happened in the task, in order.
#[derive(Debug)]
enum Event {
    Called { node: usize, call: Call, out: Vec<(u32, Row)>, rejected: Vec<Row> },
    Begun(u64),
}

#[derive(Debug)]
enum Call {
    Rows(Vec<Row>),
    Advance(i64),
    Finish,
}

/// What an edge brings.
#[derive(Clone, Debug, PartialEq)]
enum Item {
    Row { key: String, value: String },
    Watermark(i64),
    Marker(u64),
    End,
}

fn item((_, key, value): &Row) -> Item {
    Item::Row { key: key.clone(), value: value.clone() }
}

/// A clock that calls move, and all that they did.
#[derive(Clone, Default)]
struct World {
    time: Arc<Mutex<Duration>>,
    events: Arc<Mutex<Vec<Event>>>,
    finished: Arc<Mutex<bool>>,
}

impl Clock for World {
    fn now(&self) -> Duration {
        *self.time.lock()
    }
}

impl Outlet for World {
    fn snapshot(&mut self, _: TaskId, part: SnapshotPart) {
        if let SnapshotPart::Begin { checkpoint, .. } = part {
            self.events.lock().push(Event::Begun(checkpoint.0));
        }
    }

    fn report(&mut self, _: TaskId, report: TaskReport) {
        match report {
            TaskReport::Restored => {}
            TaskReport::Finished => *self.finished.lock() = true,
            TaskReport::Declined { .. } => {}
            TaskReport::Failed(error) => panic!("{error}"),
        }
    }

    fn is_congested(&self) -> bool {
        self.now().as_micros().is_multiple_of(2)
    }
}

/// An operator or a sink that does the same with a row whenever it comes.
#[derive(Clone)]
struct Vertex {
    node: usize,
    world: World,
    row_ns: u64,
    /// One value in so many is as long as what some channels hold.
    large: u64,
}

impl Vertex {
    fn spend(&self, rows: usize) {
        *self.world.time.lock() += Duration::from_nanos(self.row_ns * rows as u64);
    }

    fn note(&self, call: Call, out: Vec<(u32, Row)>, rejected: Vec<Row>) {
        self.world.events.lock().push(Event::Called { node: self.node, call, out, rejected });
    }

    /// What comes of a row: nothing, or rows for any outputs; or it is rejected.
    fn answer(&self, row: &Row) -> Option<Vec<(u32, Row)>> {
        let seed =
            row.2.bytes().take(64).fold(self.node as u64, |hash, byte| hash.wrapping_mul(31).wrapping_add(u64::from(byte)));
        let mut numbers = Numbers(seed);
        if numbers.one_in(11) {
            return None;
        }
        let copies = numbers.below(4);
        let mut copy = |n: usize| {
            let start = row.2.split_once(' ').map_or(row.2.as_str(), |(start, _)| start);
            let long = if numbers.next().is_multiple_of(self.large) { " ".repeat(40 << 10) } else { String::new() };
            let port = if numbers.one_in(3) { numbers.below(PORTS as usize + 1) as u32 } else { 0 };
            (port, (row.0, row.1.clone(), format!("{start}.{}{n}{long}", self.node)))
        };
        Some((0..copies).map(&mut copy).collect())
    }
}

fn emit(out: &[(u32, Row)], emitted: &mut EmittedRows) {
    out.iter().for_each(|(port, row)| emitted.rows_to(*port).extend(batch(std::slice::from_ref(row)).view()));
}

impl OperatorInstance for Vertex {
    fn process(&mut self, _: u32, rows: BatchRef<'_>, emitted: &mut EmittedRows) -> Result<Vec<Rejection>, CallError> {
        self.spend(rows.len());
        let (mut out, mut rejections, mut rejected) = (Vec::new(), Vec::new(), Vec::new());
        let rows = rows_of(rows);
        for (number, row) in (0..).zip(&rows) {
            match self.answer(row) {
                Some(answer) => out.extend(answer),
                None => {
                    rejections.push(Rejection { row: number, reason: String::new() });
                    rejected.push(row.clone());
                }
            }
        }
        emit(&out, emitted);
        self.note(Call::Rows(rows), out, rejected);
        Ok(rejections)
    }

    fn advance(&mut self, watermark: i64, emitted: &mut EmittedRows) -> Result<(), CallError> {
        self.spend(1);
        let out = vec![(0, row(watermark, "k1", &format!("at{watermark}n{}", self.node)))];
        emit(&out, emitted);
        self.note(Call::Advance(watermark), out, Vec::new());
        Ok(())
    }

    fn finish(&mut self, emitted: &mut EmittedRows) -> Result<(), CallError> {
        let out = vec![(1, row(0, "k2", &format!("end{}", self.node)))];
        emit(&out, emitted);
        self.note(Call::Finish, out, Vec::new());
        Ok(())
    }

    fn capture(&mut self, _: CheckpointId) -> Result<Option<Box<dyn CapturedState>>, SandboxError> {
        Ok(None)
    }

    fn checkpoint_completed(&mut self, _: CheckpointId) {}
}

impl InstanceFactory for Vertex {
    fn instantiate(&self) -> Result<Box<dyn OperatorInstance>, SandboxError> {
        Ok(Box::new(self.clone()))
    }

    fn restore(&self, _: &[&[u8]]) -> Result<Box<dyn OperatorInstance>, SandboxError> {
        self.instantiate()
    }
}

impl Sink for Vertex {
    fn write(&mut self, rows: BatchRef<'_>) -> Result<(), ConnectorError> {
        self.spend(rows.len());
        self.note(Call::Rows(rows_of(rows)), Vec::new(), Vec::new());
        Ok(())
    }

    fn prepare(&mut self, _: CheckpointId) -> Result<Prepared, ConnectorError> {
        Ok(Box::new(|| Ok(None)))
    }
}

/// An output of a node, or its dead letters.
type Output = (usize, Option<u32>);

/// An edge inside the task, or out of it.
enum Edge {
    Node { from: Output, to: usize },
    Router { from: Output, division: Division, gates: Vec<usize> },
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Division {
    All,
    Parts,
    Keys,
}

/// A task with what surrounds it, moved by one thread.
struct Run {
    numbers: Numbers,
    world: World,
    task: Task,
    handle: TaskHandle,
    inputs: Vec<(Sender, Vec<Frame>)>,
    gates: Vec<(Gate, Vec<Frame>)>,
    edges: Vec<Edge>,
    /// Instances of the first node.
    slots: usize,
}

impl Run {
    fn new(seed: u64) -> Run {
        let mut numbers = Numbers(seed);
        let (world, mut place) = (World::default(), Place::new());
        let (mut gates, mut edges, mut routers) = (Vec::new(), Vec::new(), Vec::new());
        let mut nodes: Vec<NodeSpec> = Vec::new();
        let keyed = numbers.one_in(2);
        for node in 0..1 + numbers.below(5) {
            let row_ns = [0, 100, 10_000, 1_000_000][numbers.below(4)];
            let vertex = Vertex { node, world: world.clone(), row_ns, large: [100, 5_000][numbers.below(2)] };
            let is_sink = node > 0 && numbers.one_in(3);
            if node > 0 {
                let from = any_output(&nodes, &mut numbers);
                edges.push(Edge::Node { from, to: node });
                outputs(&mut nodes[from.0], from.1).push(to(node));
            }
            nodes.push(spec(vertex, is_sink, if node == 0 && keyed { eager() } else { Instances::Single(0) }));
        }
        for router in 0..1 + numbers.below(4) {
            let from = any_output(&nodes, &mut numbers);
            let count = 1 + numbers.below(2);
            let limits = Limits { frames_max: 1 + numbers.below(3), bytes_max: 1 << (10 + numbers.below(11)) };
            let first = gates.len();
            let mut senders: Vec<Sender> = Vec::new();
            for _ in 0..count {
                let mut behind = Place::new();
                senders.push(behind.channel_of(&place.signal, 0, limits));
                gates.push((behind.gate, Vec::new()));
            }
            let (division, made) = match numbers.below(3) {
                0 => (Division::All, Router::broadcast(senders)),
                1 => (Division::Parts, Router::rebalance(senders, 0)),
                _ => (Division::Keys, Router::hash(senders, GROUPS)),
            };
            routers.push(made);
            edges.push(Edge::Router { from, division, gates: (first..gates.len()).collect() });
            outputs(&mut nodes[from.0], from.1).push(Target::Router(router));
        }
        let inputs = (0..1 + numbers.below(3)).map(|channel| {
            let groups = KeyGroupRange::of(0, GROUPS, 1);
            let sender =
                if keyed { place.hash_channel(&Default::default(), 0, groups) } else { place.channel(&Default::default(), 0) };
            (sender, script(&mut numbers, channel, keyed))
        });
        let inputs: Vec<_> = inputs.collect();
        let (signal, head) = place.head();
        let spec = TaskSpec {
            id: TaskId(0),
            name: "random".to_owned(),
            attempt: Attempt(1),
            mode: Mode::ExactlyOnce,
            head,
            nodes,
            routers,
            wake: signal,
            outlet: Box::new(world.clone()),
            stats: Arc::default(),
            clock: Arc::new(world.clone()),
        };
        let (task, handle) = Task::build(spec).unwrap();
        Run { numbers, world, task, handle, inputs, gates, edges, slots: if keyed { usize::from(GROUPS) } else { 1 } }
    }

    /// Runs to the end, in any order.
    fn go(&mut self) {
        for round in 0.. {
            assert!(round < 200_000, "it never ends");
            let channel = self.numbers.below(self.inputs.len());
            let (sender, frames) = &mut self.inputs[channel];
            if sender.flush()
                && let Some(frame) = frames.pop()
            {
                sender.send(frame);
            }
            if self.numbers.one_in(20) {
                let checkpoint = CheckpointId(1 + self.numbers.below(CHECKPOINTS) as u64);
                self.handle.tell(match self.numbers.below(4) {
                    0 => Control::Abort(checkpoint),
                    _ => Control::Unalign(checkpoint),
                });
            }
            for _ in 0..self.numbers.below(3) {
                assert_ne!(self.task.turn(), Turn::Over);
            }
            *self.world.time.lock() += Duration::from_micros(self.numbers.below(200) as u64);
            for (gate, frames) in &mut self.gates {
                if self.numbers.one_in(4) {
                    frames.extend((0..1 + self.numbers.below(3)).map_while(|_| gate.poll()).map(|(_, frame)| frame));
                }
            }
            let is_over = *self.world.finished.lock();
            if is_over && self.gates.iter().all(|(_, frames)| frames.last() == Some(&Frame::End)) {
                return;
            }
        }
    }

    fn check(&self) {
        for edge in &self.edges {
            match edge {
                Edge::Node { from, to } => {
                    let (mut given, mut taken) = (self.given(*from), self.taken(*to));
                    if taken.contains(&Item::End) {
                        (given, taken) = (up_to_the_end(given), up_to_the_end(taken));
                    } else {
                        // A sink is told neither.
                        given.retain(|item| matches!(item, Item::Row { .. } | Item::Marker(_)));
                    }
                    assert_eq!(taken, given, "{from:?} to {to}");
                }
                Edge::Router { from, division, gates } => {
                    let taken: Vec<Vec<Item>> = gates.iter().map(|gate| items(&self.gates[*gate].1)).collect();
                    check_division(&up_to_the_end(self.given(*from)), &taken, *division);
                }
            }
        }
    }

    /// What came out of a node, as it is called.
    fn given(&self, (from, port): Output) -> Vec<Item> {
        let slots = if from == 0 { self.slots } else { 1 };
        let (mut items, mut told) = (Vec::new(), 0);
        for event in self.world.events.lock().iter() {
            match event {
                Event::Begun(checkpoint) => items.push(Item::Marker(*checkpoint)),
                Event::Called { node, call, out, rejected } if *node == from => {
                    match port {
                        Some(port) => items.extend(out.iter().filter(|(of, _)| *of == port).map(|(_, row)| item(row))),
                        None => items.extend(rejected.iter().map(item)),
                    }
                    let after = match call {
                        Call::Rows(_) => continue,
                        Call::Advance(watermark) => Item::Watermark(*watermark),
                        Call::Finish => Item::End,
                    };
                    told += 1;
                    if told % slots == 0 {
                        items.push(after);
                    }
                }
                Event::Called { .. } => {}
            }
        }
        items
    }

    /// What a node was called with.
    fn taken(&self, to: usize) -> Vec<Item> {
        let mut items = Vec::new();
        for event in self.world.events.lock().iter() {
            match event {
                Event::Begun(checkpoint) => items.push(Item::Marker(*checkpoint)),
                Event::Called { node, call, .. } if *node == to => match call {
                    Call::Rows(rows) => items.extend(rows.iter().map(of_letter)),
                    Call::Advance(watermark) => items.push(Item::Watermark(*watermark)),
                    Call::Finish => items.push(Item::End),
                },
                Event::Called { .. } => {}
            }
        }
        items
    }
}

/// The row that a dead letter is about; any other is itself.
fn of_letter(row: &Row) -> Item {
    let letter = serde_json::from_str(&row.2).ok();
    let value = letter.as_ref().and_then(|letter: &serde_json::Value| letter["value"].as_str());
    Item::Row { key: row.1.clone(), value: value.unwrap_or(&row.2).to_owned() }
}

/// Nothing follows the end.
fn up_to_the_end(mut items: Vec<Item>) -> Vec<Item> {
    if let Some(end) = items.iter().position(|item| *item == Item::End) {
        items.truncate(end + 1);
    }
    items
}

fn items(frames: &[Frame]) -> Vec<Item> {
    let mut items = Vec::new();
    for frame in frames {
        match frame {
            Frame::Rows(_) | Frame::Keyed(_) => items.extend(rows_in(std::slice::from_ref(frame)).iter().map(of_letter)),
            Frame::Watermark(watermark) => items.push(Item::Watermark(*watermark)),
            Frame::Barrier(barrier) => items.push(Item::Marker(barrier.checkpoint.0)),
            Frame::End => items.push(Item::End),
            Frame::Idle => {}
        }
    }
    items
}

/// The rows between other items, and those.
fn segments(items: &[Item]) -> (Vec<Vec<&Item>>, Vec<&Item>) {
    let (mut rows, mut others) = (vec![Vec::new()], Vec::new());
    for item in items {
        match item {
            Item::Row { .. } => rows.last_mut().unwrap().push(item),
            other => {
                others.push(other);
                rows.push(Vec::new());
            }
        }
    }
    (rows, others)
}

fn text(item: &Item) -> (&str, &str) {
    let Item::Row { key, value } = item else { unreachable!("only rows are divided") };
    (key, value)
}

fn check_division(given: &[Item], taken: &[Vec<Item>], division: Division) {
    if division == Division::All || taken.len() == 1 && division == Division::Parts {
        return taken.iter().for_each(|taken| assert_eq!(taken, given, "{division:?}"));
    }
    let (rows, others) = segments(given);
    let parts: Vec<_> = taken.iter().map(|taken| segments(taken)).collect();
    parts.iter().for_each(|(_, of)| assert_eq!(*of, others, "{division:?}"));
    let mut owners: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
    for (segment, rows) in rows.iter().enumerate() {
        let mut left: BTreeMap<(&str, &str), VecDeque<usize>> = BTreeMap::new();
        rows.iter().zip(0..).for_each(|(item, place)| left.entry(text(item)).or_default().push_back(place));
        for (part, (of, _)) in parts.iter().enumerate() {
            // The place up to which rows were taken: of all, or of each key.
            let mut reached: BTreeMap<&str, usize> = BTreeMap::new();
            for item in &of[segment] {
                let (key, _) = text(item);
                owners.entry(key).or_default().insert(part);
                let place = left.get_mut(&text(item)).and_then(VecDeque::pop_front);
                let place = place.expect("it was emitted, before the same marker");
                let of = reached.entry(if division == Division::Keys { key } else { "" }).or_default();
                assert!(place >= *of, "out of order: {item:?}");
                *of = place;
            }
        }
        assert!(left.values().all(VecDeque::is_empty), "all arrive, before the same marker: {left:?}");
    }
    assert!(division != Division::Keys || owners.values().all(|parts| parts.len() == 1), "a key has one owner: {owners:?}");
}

const CHECKPOINTS: usize = 3;

/// What comes over a channel, the last of it first.
fn script(numbers: &mut Numbers, channel: usize, keyed: bool) -> Vec<Frame> {
    let mut frames = Vec::new();
    let (mut watermark, mut next) = (0, 0);
    for checkpoint in 1..=CHECKPOINTS + 1 {
        for _ in 0..numbers.below(8) {
            let count = [1, 16, 100, 900][numbers.below(4)];
            let rows: Vec<Row> = (next..next + count)
                .map(|n| row(i64::from(n), &format!("k{}", numbers.below(6)), &format!("{channel}-{n}")))
                .collect();
            next += count;
            if keyed {
                Partitioner::new(GROUPS, 1).partition(batch(&rows).view(), |_, rows| frames.push(Frame::Keyed(rows)));
            } else {
                frames.push(frame(&rows));
            }
            match numbers.below(6) {
                0 | 1 => {
                    watermark += 1 + numbers.below(5) as i64;
                    frames.push(Frame::Watermark(watermark));
                }
                2 => frames.push(Frame::Idle),
                _ => {}
            }
        }
        if checkpoint <= CHECKPOINTS {
            frames.push(Frame::Barrier(Barrier { unaligned: numbers.one_in(3), ..barrier(checkpoint as u64) }));
        }
    }
    frames.push(Frame::End);
    frames.reverse();
    frames
}

fn eager() -> Instances {
    Instances::Keyed { groups: KeyGroupRange::of(0, GROUPS, 1), eager: true }
}

/// An output of any operator.
fn any_output(nodes: &[NodeSpec], numbers: &mut Numbers) -> Output {
    let operators: Vec<usize> = (0..nodes.len()).filter(|node| matches!(nodes[*node].work, NodeWork::Operator { .. })).collect();
    let port = numbers.below(PORTS as usize + 2) as u32;
    (operators[numbers.below(operators.len())], (port <= PORTS).then_some(port % PORTS))
}

fn outputs(node: &mut NodeSpec, port: Option<u32>) -> &mut Vec<Target> {
    match port {
        Some(port) => &mut node.outputs[port as usize],
        None => &mut node.dead_letters,
    }
}

fn spec(vertex: Vertex, is_sink: bool, instances: Instances) -> NodeSpec {
    let uid = format!("n{}", vertex.node);
    let mut node = operator(&uid, &Operators::prefixing(""), instances, Vec::new());
    match &mut node.work {
        work if is_sink => *work = NodeWork::Sink(Box::new(vertex)),
        NodeWork::Operator { factory, .. } => *factory = Arc::new(vertex),
        NodeWork::Sink(_) => unreachable!("it is an operator"),
    }
    node.outputs = vec![Vec::new(); PORTS as usize];
    node.on_reject = OnReject::DeadLetter;
    node
}

#[test]
fn random_chains_bring_over_each_edge_what_was_emitted_in_that_order_whenever_it_is_passed_on() {
    let seeds = match std::env::var("WEIR_TASK_SEED").ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => seed..seed + 1,
        None => 0..60,
    };
    for seed in seeds {
        let outcome = std::panic::catch_unwind(|| {
            let mut run = Run::new(seed);
            run.go();
            run.check();
        });
        assert!(outcome.is_ok(), "again with WEIR_TASK_SEED={seed}");
    }
}
