//! Barriers, aborts and what a snapshot holds.

use weir_channel::{Frame, Limits};
use weir_model::{BarrierKind, CheckpointId, InstanceId, KeyGroupRange};
use weir_task::{Control, Instances, Router, Target};

use crate::support::*;

/// A task that writes what comes over `channels` channels to a sink.
fn joining(log: &Log, channels: usize) -> (Vec<weir_task::Sender>, Memory, Running) {
    let mut place = Place::new();
    let senders = (0..channels).map(|_| place.channel(&Default::default(), 0)).collect();
    let memory = Memory::default();
    let (signal, head) = place.head();
    let task = Running::start(0, log, signal, head, vec![sink("out", &memory)], Vec::new());
    (senders, memory, task)
}

fn wait_for(memory: &Memory, value: &str) {
    eventually(value, || memory.values().iter().any(|held| held == value));
}

#[test]
fn s10_an_abort_opens_blocked_channels_at_once() {
    let log = Log::default();
    let (mut senders, memory, task) = joining(&log, 2);
    senders[0].send(Frame::Barrier(barrier(1)));
    senders[0].send(frame(&[row(1, "", "behind the marker")]));
    // Channels are read in turn, so with the second of these the marker has been met and the row behind it left alone.
    for value in ["one", "two", "three"] {
        senders[1].send(frame(&[row(1, "", value)]));
        wait_for(&memory, value);
    }
    assert_eq!(memory.values(), ["one", "two", "three"]);
    task.abort(1);
    wait_for(&memory, "behind the marker");
    assert!(!log.has(0, &Said::End(1)));
}

#[test]
fn s08_a_late_marker_of_a_dead_checkpoint_opens_its_channel_and_triggers_nothing() {
    let log = Log::default();
    let (mut senders, memory, task) = joining(&log, 2);
    senders[0].send(Frame::Barrier(barrier(1)));
    task.abort(1);
    log.wait(0, &Said::Abandon(1));
    senders[1].send(Frame::Barrier(barrier(1)));
    senders[1].send(frame(&[row(1, "", "behind the late marker")]));
    wait_for(&memory, "behind the late marker");
    senders.iter_mut().for_each(|sender| sender.send(Frame::Barrier(barrier(2))));
    log.wait(0, &Said::End(2));
    assert!(!log.has(0, &Said::End(1)));
}

#[test]
fn s07_a_newer_marker_declines_the_pending_checkpoint() {
    let log = Log::default();
    let (mut senders, _, _task) = joining(&log, 2);
    senders[0].send(Frame::Barrier(barrier(1)));
    senders[1].send(Frame::Barrier(barrier(2)));
    log.wait(0, &Said::Declined(1));
    senders[0].send(Frame::Barrier(barrier(2)));
    log.wait(0, &Said::End(2));
}

#[test]
fn s11_the_end_of_a_channel_as_its_last_event_completes_the_snapshot() {
    let log = Log::default();
    let (mut senders, _, _task) = joining(&log, 2);
    senders[0].send(Frame::Barrier(barrier(1)));
    senders[1].send(Frame::End);
    log.wait(0, &Said::End(1));
    assert!(!log.has(0, &Said::Finished));
    senders[0].send(Frame::End);
    log.wait(0, &Said::Finished);
}

#[test]
fn s11_a_task_that_has_ended_takes_part_when_triggered_and_sends_no_marker_after_its_end() {
    let (log, operators) = (Log::default(), Operators::prefixing(""));
    let (mut place, mut behind) = (Place::new(), Place::new());
    let mut input = place.channel(&Default::default(), 0);
    let output = behind.channel(&place.signal, 0);
    let (signal, head) = place.head();
    let nodes = vec![operator("op", &operators, Instances::Single(0), vec![Target::Router(0)])];
    let task = Running::start(0, &log, signal, head, nodes, vec![Router::forward(output)]);
    input.send(frame(&[row(1, "", "a")]));
    input.send(Frame::End);
    log.wait(0, &Said::Finished);
    task.trigger(1);
    log.wait(0, &Said::End(1));
    assert!(log.has(0, &Said::Begin { checkpoint: 1, finished: true, splits: Default::default(), prepared: Vec::new() }));
    let frames = read_until(&mut behind.gate, &Frame::End);
    assert_eq!(frames.last(), Some(&Frame::End));
    assert!(!frames.contains(&Frame::Barrier(barrier(1))));
    assert_eq!(drain(&mut behind.gate), []);
    assert_eq!(rows_in(&frames).last().unwrap().2, "seen 1", "what `finish` emits comes before the end");
}

#[test]
fn rows_before_a_barrier_are_in_the_snapshot_and_before_the_marker_and_no_others() {
    let log = Log::default();
    let (mut place, mut behind) = (Place::new(), Place::new());
    let mut inputs = [place.channel(&Default::default(), 0), place.channel(&Default::default(), 0)];
    let output = behind.channel(&place.signal, 0);
    for (name, input) in ["a", "b"].into_iter().zip(&mut inputs) {
        input.send(frame(&[row(1, "", &format!("{name} before"))]));
        input.send(Frame::Barrier(barrier(1)));
        input.send(frame(&[row(2, "", &format!("{name} after"))]));
    }
    inputs[1].send(Frame::Watermark(7));
    inputs[0].send(Frame::Watermark(7));
    let operators = Operators::prefixing("");
    let nodes = vec![operator("op", &operators, Instances::Single(0), vec![Target::Router(0)])];
    let (signal, head) = place.head();
    let _task = Running::start(0, &log, signal, head, nodes, vec![Router::forward(output)]);
    let frames = read_until(&mut behind.gate, &Frame::Watermark(7));
    let marker = frames.iter().position(|frame| *frame == Frame::Barrier(barrier(1))).unwrap();
    let values = |frames| rows_in(frames).into_iter().map(|(_, _, value)| value).collect::<Vec<_>>();
    assert_eq!(values(&frames[..marker]), ["a before", "b before"]);
    let mut after = values(&frames[marker..]);
    after.sort();
    assert_eq!(after, ["a after", "at 7", "b after"]);
    log.wait(0, &Said::End(1));
    assert!(operators.calls_of(0).contains(&Called::Capture { checkpoint: 1, seen: 2 }));
}

/// A keyed operator in front of nothing, with frames that wait before it starts.
fn keyed_with(log: &Log, operators: &Operators, frames: impl IntoIterator<Item = Frame>) -> (weir_task::Sender, Running) {
    let mut place = Place::new();
    let limits = Limits { frames_max: 100, bytes_max: 1 << 20 };
    let mut input = place.hash_channel_of(&Default::default(), 0, limits, KeyGroupRange { start: 0, end: 4 });
    frames.into_iter().for_each(|frame| input.send(frame));
    let (signal, head) = place.head();
    let nodes = vec![operator("op", operators, keyed(4), Vec::new())];
    (input, Running::start(0, log, signal, head, nodes, Vec::new()))
}

fn keyed_frame(key: &str) -> Frame {
    let mut keyed = None;
    let rows = batch(&[row(1, key, "x")]);
    weir_model::Partitioner::new(4, 1).partition(rows.view(), |_, batch| keyed = Some(batch));
    Frame::Keyed(keyed.unwrap())
}

/// Two keys of different key groups, and the group of the first.
fn two_keys() -> (String, String, u16) {
    let group = |key: &str| weir_model::key_group_of(key.as_bytes(), 4);
    let other = (1..).map(|n| format!("k{n}")).find(|key| group(key) != group("k0")).unwrap();
    ("k0".to_owned(), other, group("k0"))
}

#[test]
fn an_instance_is_captured_before_its_next_call_and_one_made_after_the_barrier_is_no_part_of_it() {
    let (log, operators) = (Log::congested(), Operators::prefixing(""));
    let (first, second, group) = two_keys();
    let frames = [keyed_frame(&first), Frame::Barrier(barrier(1)), keyed_frame(&first), keyed_frame(&second)];
    let (mut input, _task) = keyed_with(&log, &operators, frames);
    log.wait(0, &Said::End(1));
    let process = |key: &str| Called::Process { input: 0, rows: vec![row(1, key, "x")] };
    assert_eq!(operators.calls_of(0), [process(&first), Called::Capture { checkpoint: 1, seen: 1 }, process(&first)]);
    assert_eq!(operators.calls_of(1), [process(&second)]);
    let instances: Vec<Said> = log.of(0).into_iter().filter(|said| matches!(said, Said::Instance { .. })).collect();
    let instance = InstanceId::KeyGroup(group);
    let uid = "op".to_owned();
    assert_eq!(instances, [Said::Instance { checkpoint: 1, uid, instance, watermark: i64::MIN, finished: false }]);
    input.send(Frame::Barrier(barrier(2)));
    log.wait(0, &Said::End(2));
    assert_eq!(operators.calls_of(1).last(), Some(&Called::Capture { checkpoint: 2, seen: 1 }));
}

#[test]
fn an_instance_is_captured_again_unless_a_completed_checkpoint_holds_it() {
    let (log, operators) = (Log::default(), Operators::prefixing(""));
    let (mut input, task) = keyed_with(&log, &operators, [keyed_frame("a")]);
    let mut captured = |checkpoint: u64| {
        input.send(Frame::Barrier(barrier(checkpoint)));
        log.wait(0, &Said::End(checkpoint));
        operators.calls_of(0).last() == Some(&Called::Capture { checkpoint, seen: 1 })
    };
    assert!(captured(1));
    task.abort(1);
    assert!(captured(2), "the capture of an aborted checkpoint counts for nothing");
    task.handle.tell(Control::Completed(CheckpointId(2)));
    assert!(!captured(3), "nothing was called since");
    let parts = log.of(0).into_iter().filter(|said| matches!(said, Said::Instance { .. })).count();
    assert_eq!(parts, 3, "it is part of each snapshot nevertheless");
}

#[test]
fn s13_a_source_that_waits_for_room_hears_at_once() {
    let log = Log::default();
    let mut behind = Place::new();
    let signal: std::sync::Arc<weir_task::Signal> = Default::default();
    let output = behind.channel_of(&signal, 0, Limits { frames_max: 1, bytes_max: 1 << 20 });
    let big = |n| Step::Rows(vec![row(n, "", &"x".repeat(BIG))]);
    let steps = Steps::of((0..100).map(big));
    let head = steps.head(vec![Target::Router(0)], None);
    let mut task = Running::start(0, &log, signal, head, Vec::new(), vec![Router::forward(output)]);
    eventually("frames downstream", || behind.gate.queued_bytes() > 0);
    task.trigger(1);
    log.wait(0, &Said::End(1));
    task.abort(2);
    log.wait(0, &Said::Abandon(2));
    let given = drain_to_marker(&mut behind.gate);
    let splits = [("only".to_owned(), serde_json::json!(given))].into();
    assert!(log.has(0, &Said::Begin { checkpoint: 1, finished: false, splits, prepared: Vec::new() }));
    task.cancel();
}

/// Rows before the first marker.
fn drain_to_marker(gate: &mut weir_task::Gate) -> usize {
    let frames = read_until(gate, &Frame::Barrier(barrier(1)));
    let marker = frames.iter().position(|frame| *frame == Frame::Barrier(barrier(1))).unwrap();
    rows_in(&frames[..marker]).len()
}

/// A row of this size is a frame of its own.
const BIG: usize = weir_model::limits::FRAME_BYTES_TARGET / 4;

/// A keyed operator of 64 instances, each of which says a frame when it is told `frame`; there is room downstream for one.
fn loud(log: &Log, input: u32, frame: Frame) -> (Operators, Place, weir_task::Sender, Running) {
    let mut operators = Operators::new(|_, rows, emitted| {
        emitted.rows_to(0).extend(batch(&[row(rows[0].0, "", &"x".repeat(BIG))]).view());
        Ok(Vec::new())
    });
    operators.timer_bytes = BIG;
    let (mut place, mut behind) = (Place::new(), Place::new());
    let mut sender = place.channel(&Default::default(), input);
    let output = behind.channel_of(&place.signal, 0, Limits { frames_max: 1, bytes_max: 1 << 20 });
    sender.send(frame);
    let groups = KeyGroupRange::of(0, 64, 1);
    let nodes = vec![operator("op", &operators, Instances::Keyed { groups, eager: true }, vec![Target::Router(0)])];
    let (signal, head) = place.head();
    let task = Running::start(0, log, signal, head, nodes, vec![Router::forward(output)]);
    (operators, behind, sender, task)
}

fn heard_between_calls(input: u32, said: Frame) {
    let log = Log::default();
    let (operators, mut behind, mut sender, mut task) = loud(&log, input, said);
    eventually("output", || behind.gate.queued_bytes() > 0);
    task.abort(1);
    log.wait(0, &Said::Abandon(1));
    let calls = operators.calls.lock().len();
    assert!(calls <= 3, "{calls} calls were made although there is room for the output of one");
    sender.send(Frame::Barrier(barrier(2)));
    let frames = read_until(&mut behind.gate, &Frame::Barrier(barrier(2)));
    assert_eq!(rows_in(&frames).len(), 64, "the barrier comes after all of it");
    log.wait(0, &Said::End(2));
    task.cancel();
}

#[test]
fn s13_a_task_in_the_middle_of_many_timers_hears_between_two_calls() {
    heard_between_calls(0, Frame::Watermark(5));
}

#[test]
fn s13_a_task_in_the_middle_of_a_broadcast_row_hears_between_two_calls() {
    heard_between_calls(1, frame(&[row(1, "", "to all")]));
}

#[test]
fn a_stopped_source_gives_nothing_more_and_still_takes_checkpoints() {
    let (log, memory) = (Log::default(), Memory::default());
    let steps = Steps::of([Step::Rows(vec![row(1, "", "before")])]);
    let task = Running::start(0, &log, Default::default(), steps.head(vec![to(0)], None), vec![sink("out", &memory)], Vec::new());
    wait_for(&memory, "before");
    let stop = weir_model::Barrier { kind: BarrierKind::Stop, ..barrier(1) };
    task.handle.tell(Control::Trigger(stop));
    log.wait(0, &Said::End(1));
    steps.add(Step::Rows(vec![row(2, "", "after")]));
    task.abort(1);
    task.handle.tell(Control::Trigger(weir_model::Barrier { kind: BarrierKind::Stop, ..barrier(2) }));
    log.wait(0, &Said::End(2));
    assert_eq!(memory.values(), ["before"]);
}

#[test]
fn what_sinks_have_prepared_goes_with_the_snapshot() {
    let log = Log::default();
    let (mut senders, _, _task) = joining(&log, 1);
    senders[0].send(frame(&[row(1, "", "a"), row(1, "", "b")]));
    senders[0].send(Frame::Barrier(barrier(1)));
    log.wait(0, &Said::End(1));
    let prepared = vec![serde_json::json!(2)];
    let begin = Said::Begin { checkpoint: 1, finished: false, splits: Default::default(), prepared };
    assert!(log.has(0, &begin));
}
