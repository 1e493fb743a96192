//! Barriers that overtake rows: what is in a snapshot's state, what is captured in flight, and what comes of it after a restore.

use std::sync::Arc;
use std::time::Duration;

use weir_channel::{Frame, Limits};
use weir_checkpoint::align::Mode;
use weir_model::{Attempt, Barrier, BarrierKind, CheckpointId, KeyGroupRange, TaskId};
use weir_task::*;

use crate::support::*;

/// A row of this size is a frame of its own.
const BIG: usize = weir_model::limits::FRAME_BYTES_TARGET / 4;

pub(crate) fn unaligned(checkpoint: u64) -> Barrier {
    Barrier { unaligned: true, ..barrier(checkpoint) }
}

/// A clock that stands still.
struct Still;

impl Clock for Still {
    fn now(&self) -> Duration {
        Duration::from_secs(1)
    }
}

/// A task that the test moves turn by turn.
pub(crate) struct Stepped {
    task: Task,
    handle: TaskHandle,
}

impl Stepped {
    pub(crate) fn new(
        log: &Log,
        place: Place,
        restored: Vec<RestoredInFlight>,
        nodes: Vec<NodeSpec>,
        routers: Vec<Router>,
    ) -> Stepped {
        let (signal, HeadSpec::Gate { gate, channels, .. }) = place.head() else { unreachable!() };
        let spec = TaskSpec {
            id: TaskId(0),
            name: "stepped".to_owned(),
            attempt: Attempt(1),
            mode: Mode::ExactlyOnce,
            head: HeadSpec::Gate { gate, channels, restored },
            nodes,
            routers,
            wake: signal,
            outlet: Box::new(log.clone()),
            stats: Arc::default(),
            clock: Arc::new(Still),
        };
        let (task, handle) = Task::build(spec).unwrap();
        Stepped { task, handle }
    }

    /// Turns until there is nothing to do.
    pub(crate) fn go(&mut self) {
        for _ in 0..10_000 {
            if self.task.turn() != Turn::Go {
                return;
            }
        }
        panic!("the task never comes to rest");
    }
}

/// All pieces of a snapshot's rows in flight, and whether it ended.
pub(crate) fn in_flight(log: &Log, checkpoint: u64) -> (Vec<InFlight>, bool) {
    let mut pieces = Vec::new();
    let mut ended = false;
    for said in log.of(0) {
        match said {
            Said::InFlight { checkpoint: of, pieces: more } if of == checkpoint => {
                assert!(!ended, "rows after the end of the snapshot");
                pieces.extend(more);
            }
            Said::End(of) => ended |= of == checkpoint,
            _ => {}
        }
    }
    (pieces, ended)
}

fn piece(source: InFlightSource, groups: Option<(u16, u16)>, frames: Vec<Frame>) -> InFlight {
    InFlight { source, groups: groups.map(|(start, end)| KeyGroupRange { start, end }), frames }
}

/// An operator that answers each call with a frame.
fn loud() -> Operators {
    Operators::new(|_, rows, emitted| {
        emitted.rows_to(0).extend(batch(&[row(rows[0].0, "", &"x".repeat(BIG))]).view());
        Ok(Vec::new())
    })
}

/// A place behind the task in which one frame has room.
fn narrow(place: &Place) -> (Place, Sender) {
    let mut behind = Place::new();
    let output = behind.channel_of(&place.signal, 0, Limits { frames_max: 1, bytes_max: 1 << 20 });
    (behind, output)
}

fn one(n: i64) -> Frame {
    frame(&[row(n, "k", &format!("{n}"))])
}

/// The task behind `place` with one instance of `operators`, whose output has room for a frame.
fn before_a_full_channel(log: &Log, place: Place, operators: &Operators) -> (Stepped, Place) {
    let (behind, output) = narrow(&place);
    let nodes = vec![operator("op", operators, Instances::Single(0), vec![Target::Router(0)])];
    (Stepped::new(log, place, Vec::new(), nodes, vec![Router::forward(output)]), behind)
}

#[test]
fn s26_a_task_whose_output_never_drains_takes_an_unaligned_checkpoint_at_once() {
    let (log, operators) = (Log::default(), loud());
    let mut place = Place::new();
    let mut inputs = [place.channel(&Default::default(), 0), place.channel(&Default::default(), 0)];
    inputs[0].send(one(0));
    inputs[1].send(one(10));
    let (mut task, mut behind) = before_a_full_channel(&log, place, &operators);
    (1..5).for_each(|n| inputs[0].send(one(n)));
    (11..14).for_each(|n| inputs[1].send(one(n)));
    task.go();
    let called = operators.calls_of(0).len();
    assert!(called <= 2, "room for one frame, and one that waits for it");
    inputs[1].send(Frame::Barrier(unaligned(1)));
    inputs[1].send(one(99));
    task.go();
    assert_eq!(operators.calls_of(0)[called], Called::Capture { checkpoint: 1, seen: called });
    assert_eq!(in_flight(&log, 1), (Vec::new(), false), "the other marker may still bring rows");
    inputs[0].send(one(5));
    inputs[0].send(Frame::Barrier(unaligned(1)));
    inputs[0].send(one(98));
    task.go();
    let of = |channel, rows: std::ops::Range<i64>| piece(InFlightSource::Channel(channel), None, rows.map(one).collect());
    assert_eq!(called, 2);
    assert_eq!(in_flight(&log, 1), (vec![of(0, 1..6), of(1, 11..14)], true));
    let frames = drain(&mut behind.gate);
    assert_eq!(
        frames.iter().position(|frame| *frame == Frame::Barrier(unaligned(1))),
        Some(2),
        "behind all output, past the bound"
    );
    assert_eq!(behind.gate.take_announcements(), [unaligned(1)]);
    assert_eq!(behind.gate.take_announcements(), []);
    while {
        task.go();
        !drain(&mut behind.gate).is_empty()
    } {}
    let seen: usize = operators.calls_of(0).iter().filter(|call| matches!(call, Called::Process { .. })).count();
    assert_eq!(seen, 12, "what was captured is processed as well");
}

#[test]
fn s13_a_task_on_a_thread_that_waits_for_room_goes_on_unaligned_when_told() {
    let (log, operators) = (Log::default(), loud());
    let mut place = Place::new();
    let mut inputs = [place.channel(&Default::default(), 0), place.channel(&Default::default(), 0)];
    let (mut behind, output) = narrow(&place);
    let (signal, head) = place.head();
    let nodes = vec![operator("op", &operators, Instances::Single(0), vec![Target::Router(0)])];
    let mut task = Running::start(0, &log, signal, head, nodes, vec![Router::forward(output)]);
    for (input, first) in inputs.iter_mut().zip([0, 10]) {
        (first..first + 5).for_each(|n| input.send(one(n)));
        input.send(Frame::Barrier(barrier(1)));
    }
    eventually("output", || operators.calls_of(0).len() == 2);
    task.handle.tell(Control::Unalign(CheckpointId(1)));
    log.wait(0, &Said::End(1));
    let (pieces, _) = in_flight(&log, 1);
    let rows: usize = pieces.iter().flat_map(|piece| &piece.frames).map(Frame::rows_len).sum();
    assert_eq!(rows, 8);
    assert!(read_until(&mut behind.gate, &Frame::Barrier(unaligned(1))).len() >= 3);
    task.cancel();
}

#[test]
fn a_marker_that_was_sent_in_time_is_announced_when_the_checkpoint_goes_on_unaligned() {
    let (log, operators) = (Log::default(), Operators::prefixing(""));
    let mut place = Place::new();
    let mut input = place.channel(&Default::default(), 0);
    let (mut task, mut behind) = before_a_full_channel(&log, place, &operators);
    input.send(Frame::Barrier(barrier(1)));
    task.go();
    assert_eq!(drain(&mut behind.gate), [Frame::Barrier(barrier(1))]);
    assert_eq!(behind.gate.take_announcements(), []);
    task.handle.tell(Control::Unalign(CheckpointId(1)));
    task.go();
    assert_eq!(behind.gate.take_announcements(), [unaligned(1)]);
    assert_eq!(drain(&mut behind.gate), [], "the marker is sent once");
}

#[test]
fn s88_an_end_that_found_no_room_comes_past_the_bound_at_a_barrier_since_it_counts_as_the_marker() {
    let (log, operators) = (Log::default(), loud());
    let mut place = Place::new();
    let mut input = place.channel(&Default::default(), 0);
    let (mut task, mut behind) = before_a_full_channel(&log, place, &operators);
    // What the last watermark brings takes the room; what the end brings, and the end, find none.
    input.send(Frame::End);
    task.go();
    assert!(log.has(0, &Said::Finished));
    // Nobody reads meanwhile: a stop that has overtaken rows has halted the receiver.
    task.handle.tell(Control::Trigger(unaligned(1)));
    task.go();
    assert_eq!(in_flight(&log, 1), (Vec::new(), true));
    assert_eq!(drain(&mut behind.gate).last(), Some(&Frame::End));
}

/// `count` rows.
fn many(count: i64) -> Vec<Row> {
    (0..count).map(|n| row(n, "", &n.to_string())).collect()
}

/// Rows that a call of a fresh operator takes at most.
const CALL: i64 = 5_000;

#[test]
fn rows_of_a_frame_that_is_worked_on_are_in_state_or_in_flight() {
    let (log, operators) = (Log::default(), loud());
    let mut place = Place::new();
    let mut input = place.channel(&Default::default(), 0);
    let (mut task, _behind) = before_a_full_channel(&log, place, &operators);
    let rows = many(2 * CALL + 100);
    input.send(one(-1));
    input.send(frame(&rows));
    task.go();
    let seen =
        operators.calls_of(0).iter().map(|call| if let Called::Process { rows, .. } = call { rows.len() } else { 0 }).sum();
    assert!((1..rows.len()).contains(&seen), "{seen} rows were processed");
    input.send(Frame::Barrier(unaligned(1)));
    task.go();
    assert!(operators.calls_of(0).contains(&Called::Capture { checkpoint: 1, seen }));
    let rest = frame(&rows[seen - 1..]);
    assert_eq!(in_flight(&log, 1), (vec![piece(InFlightSource::Channel(0), None, vec![rest])], true));
}

const FIRST_GROUP: u16 = 8;

/// Four instances, one a key group.
fn four_instances(operators: &Operators) -> Vec<NodeSpec> {
    let instances = Instances::Keyed { groups: KeyGroupRange { start: FIRST_GROUP, end: FIRST_GROUP + 4 }, eager: true };
    vec![operator("op", operators, instances, vec![Target::Router(0)])]
}

/// Each instance has the first rows, and the others are in flight for it.
fn check_divided(seen: [usize; 4], pieces: &[InFlight], rows: &[Row]) {
    for (instance, seen) in seen.into_iter().enumerate() {
        let group = FIRST_GROUP + instance as u16;
        let of = pieces.iter().filter(|piece| piece.groups.is_none_or(|groups| groups.contains(group)));
        let left: Vec<Row> = of.flat_map(|piece| rows_in(&piece.frames)).collect();
        assert_eq!(left.len() + seen, rows.len(), "instance {instance} has {seen} rows");
        assert!(left == rows[seen..], "instance {instance} has {seen} rows");
    }
}

#[test]
fn a_broadcast_row_is_in_flight_for_the_instances_it_has_not_reached_and_restored_to_those() {
    let rows = many(4 * CALL);
    let (log, operators) = (Log::default(), loud());
    let mut place = Place::new();
    let mut input = place.channel(&Default::default(), 1);
    let (behind, output) = narrow(&place);
    let mut task = Stepped::new(&log, place, Vec::new(), four_instances(&operators), vec![Router::broadcast(vec![output])]);
    input.send(frame(&rows));
    task.go();
    let seen = rows_seen(&operators, 0);
    assert!(0 < seen && seen < rows.len(), "in the middle of the first instance");
    input.send(Frame::Barrier(unaligned(1)));
    task.task.turn();
    let (pieces, _) = in_flight(&log, 1);
    let source = InFlightSource::Channel(0);
    let expected = [
        piece(source, Some((FIRST_GROUP, FIRST_GROUP + 1)), vec![frame(&rows[seen..])]),
        piece(source, Some((FIRST_GROUP + 1, FIRST_GROUP + 4)), vec![frame(&rows)]),
    ];
    assert_eq!(pieces, expected);
    task.go();
    assert!(in_flight(&log, 1).1);
    drop((task, behind));

    // The same rows come back, and are captured again wherever they are.
    for drained in 0..8 {
        let (log, again) = (Log::default(), loud());
        let mut place = Place::new();
        let mut input = place.channel(&Default::default(), 1);
        let (mut behind, output) = narrow(&place);
        let restored = pieces.iter().cloned().map(|of| RestoredInFlight { input: 1, groups: of.groups, frames: of.frames });
        let routers = vec![Router::broadcast(vec![output])];
        let mut task = Stepped::new(&log, place, restored.collect(), four_instances(&again), routers);
        for _ in 0..drained {
            task.go();
            drain(&mut behind.gate);
        }
        let with_before = |instance| rows_seen(&again, instance) + if instance == 0 { seen } else { 0 };
        let at_barrier: [usize; 4] = std::array::from_fn(with_before);
        input.send(Frame::Barrier(unaligned(2)));
        task.task.turn();
        check_divided(at_barrier, &in_flight(&log, 2).0, &rows);
        while {
            task.go();
            !drain(&mut behind.gate).is_empty()
        } {}
        assert!(in_flight(&log, 2).1);
        check_divided(std::array::from_fn(with_before), &[], &rows);
    }
}

/// Rows that an instance was called with.
fn rows_seen(operators: &Operators, instance: usize) -> usize {
    let rows = |call: &Called| if let Called::Process { rows, .. } = call { rows.len() } else { 0 };
    operators.calls_of(instance).iter().map(rows).sum()
}

#[test]
fn rows_by_key_group_are_in_flight_from_the_section_that_is_worked_on() {
    let (log, operators) = (Log::default(), loud());
    let mut place = Place::new();
    let mut input = place.hash_channel(&Default::default(), 0, KeyGroupRange { start: 0, end: 4 });
    let (_behind, output) = narrow(&place);
    let nodes = vec![operator("op", &operators, keyed(4), vec![Target::Router(0)])];
    let mut task = Stepped::new(&log, place, Vec::new(), nodes, vec![Router::forward(output)]);
    let rows: Vec<Row> = (0..200).map(|n| row(n, &format!("k{n}"), "v")).collect();
    let mut keyed = None;
    weir_model::Partitioner::new(4, 1).partition(batch(&rows).view(), |_, batch| keyed = Some(batch));
    let keyed = keyed.unwrap();
    input.send(Frame::Keyed(keyed.clone()));
    task.go();
    assert_eq!(operators.made(), 2, "two sections are worked off");
    input.send(Frame::Barrier(unaligned(1)));
    task.go();
    let (pieces, ended) = in_flight(&log, 1);
    assert!(ended);
    let rest: Vec<_> = (2..4).map(|section| keyed.section(section)).map(|(group, rows)| (group, rows_of(rows))).collect();
    let [InFlight { source: InFlightSource::Channel(0), groups: None, frames }] = &pieces[..] else { panic!("{pieces:?}") };
    let [Frame::Keyed(captured)] = &frames[..] else { panic!("{frames:?}") };
    assert_eq!(captured.sections().map(|(group, rows)| (group, rows_of(rows))).collect::<Vec<_>>(), rest);
}

#[test]
fn s24_a_checkpoint_while_restored_rows_are_worked_off_holds_them_again_and_completes() {
    let (log, operators) = (Log::default(), loud());
    let mut place = Place::new();
    let mut input = place.channel(&Default::default(), 0);
    let (mut behind, output) = narrow(&place);
    let back = |first: i64| RestoredInFlight { input: 0, groups: None, frames: (first..first + 3).map(one).collect() };
    let nodes = vec![operator("op", &operators, Instances::Single(0), vec![Target::Router(0)])];
    let mut task = Stepped::new(&log, place, vec![back(0), back(10)], nodes, vec![Router::forward(output)]);
    input.send(one(20));
    input.send(Frame::Barrier(unaligned(1)));
    task.go();
    let of = |source, rows: &[i64]| piece(source, None, rows.iter().copied().map(one).collect());
    let (pieces, ended) = in_flight(&log, 1);
    assert!(ended, "{pieces:?}");
    let expected = [
        of(InFlightSource::Restored(0), &[0, 1, 2]),
        of(InFlightSource::Restored(1), &[10, 11, 12]),
        of(InFlightSource::Channel(0), &[20]),
    ];
    assert_eq!(pieces, expected);
    input.send(Frame::Barrier(barrier(2)));
    while {
        task.go();
        !drain(&mut behind.gate).is_empty()
    } {}
    assert_eq!(in_flight(&log, 2), (Vec::new(), true), "an aligned one comes when all of it is worked off");
    let order: Vec<i64> = operators
        .calls_of(0)
        .iter()
        .filter_map(|call| match call {
            Called::Process { rows, .. } => Some(rows[0].0),
            _ => None,
        })
        .collect();
    assert_eq!(order, [0, 1, 2, 10, 11, 12, 20], "restored rows come first, in their order");
}

#[test]
fn an_abort_ends_a_capture_and_the_next_checkpoint_has_only_its_own_rows() {
    let (log, operators) = (Log::default(), loud());
    let mut place = Place::new();
    let mut inputs = [place.channel(&Default::default(), 0), place.channel(&Default::default(), 0)];
    let (mut task, _behind) = before_a_full_channel(&log, place, &operators);
    inputs[0].send(one(0));
    inputs[0].send(one(1));
    task.go();
    inputs[0].send(Frame::Barrier(unaligned(1)));
    inputs[1].send(one(10));
    task.go();
    task.handle.tell(Control::Abort(CheckpointId(1)));
    task.go();
    inputs[1].send(one(11));
    inputs[1].send(Frame::End);
    task.go();
    assert_eq!(in_flight(&log, 1), (Vec::new(), false));
    assert!(log.has(0, &Said::Abandon(1)));
    inputs[0].send(Frame::Barrier(unaligned(2)));
    task.go();
    let (pieces, ended) = in_flight(&log, 2);
    assert!(ended, "an end counts as a marker");
    let calls = operators.calls_of(0);
    let at = calls.iter().position(|call| matches!(call, Called::Capture { checkpoint: 2, .. })).unwrap();
    let time = |call: &Called| if let Called::Process { rows, .. } = call { Some(rows[0].0) } else { None };
    let left = pieces.iter().flat_map(|piece| rows_in(&piece.frames)).map(|(time, ..)| time);
    let mut held: Vec<i64> = calls[..at].iter().filter_map(time).chain(left).collect();
    held.sort_unstable();
    assert_eq!(held, [0, 1, 10, 11]);
}

#[test]
fn a_channel_holds_little_in_front_of_a_slow_receiver_and_more_in_front_of_a_fast_one() {
    struct Ticking(parking_lot::Mutex<Duration>, Duration);
    impl Clock for Ticking {
        fn now(&self) -> Duration {
            let mut now = self.0.lock();
            *now += self.1;
            *now
        }
    }
    let bound_at = |pace: Duration| {
        let (log, memory) = (Log::default(), Memory::default());
        let mut place = Place::new();
        let mut input = place.channel(&Default::default(), 0);
        let (signal, HeadSpec::Gate { gate, channels, restored }) = place.head() else { unreachable!() };
        let announcer = gate.announcer();
        let spec = TaskSpec {
            id: TaskId(0),
            name: "paced".to_owned(),
            attempt: Attempt(1),
            mode: Mode::ExactlyOnce,
            head: HeadSpec::Gate { gate, channels, restored },
            nodes: vec![sink("out", &memory)],
            routers: Vec::new(),
            wake: signal,
            outlet: Box::new(log.clone()),
            stats: Arc::default(),
            clock: Arc::new(Ticking(Default::default(), pace)),
        };
        let (mut task, _handle) = Task::build(spec).unwrap();
        let rows = frame(&[row(0, "", &"x".repeat(8 << 10))]);
        for _ in 0..10_000 {
            while input.is_flushed() {
                input.send(rows.clone());
            }
            task.turn();
            input.flush();
        }
        announcer.bytes_max(0)
    };
    assert_eq!(bound_at(Duration::from_secs(1)), weir_model::limits::CHANNEL_BYTES_MIN);
    assert_eq!(bound_at(Duration::from_micros(5)), weir_model::limits::CHANNEL_BYTES_MAX);
}

#[test]
fn s88a_behind_a_stop_nothing_is_worked_off_unless_it_is_given_up_or_another_follows() {
    for go_on in [Control::Abort(CheckpointId(1)), Control::Trigger(Barrier { kind: BarrierKind::Stop, ..unaligned(2) })] {
        let (log, memory) = (Log::default(), Memory::default());
        let mut place = Place::new();
        let mut input = place.channel(&Default::default(), 0);
        let mut task = Stepped::new(&log, place, Vec::new(), vec![sink("out", &memory)], Vec::new());
        input.send(one(0));
        task.go();
        input.send(one(1));
        input.send(Frame::Barrier(Barrier { kind: BarrierKind::Stop, ..unaligned(1) }));
        task.go();
        assert_eq!(in_flight(&log, 1), (vec![piece(InFlightSource::Channel(0), None, vec![one(1)])], true));
        task.handle.tell(Control::Completed(CheckpointId(0)));
        task.go();
        assert_eq!(memory.rows.lock().len(), 1, "a sink that shows rows at once would show them twice");
        task.handle.tell(go_on);
        task.go();
        assert_eq!(memory.rows.lock().len(), 2);
    }
}
