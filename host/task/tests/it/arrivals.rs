//! Instances of a checkpoint that come while their task runs.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use weir_channel::Frame;
use weir_model::{InstanceId, KeyGroupRange, Partitioner, Timestamp, WATERMARK_END, WATERMARK_START, key_group_of};
use weir_task::{
    Arrival, InstanceFactory, Instances, NodeWork, OperatorInstance, RestoredInstance, Router, Sender, Signal, Target,
};

use crate::support::*;

/// Whoever brings instances: the test.
#[derive(Clone, Default)]
struct Bringer {
    here: Arc<Mutex<BTreeMap<usize, Box<dyn OperatorInstance>>>>,
    hurried: Arc<Mutex<Vec<usize>>>,
}

struct OnItsWay(Bringer, usize);

impl Arrival<dyn OperatorInstance> for OnItsWay {
    fn take(&mut self) -> Option<Box<dyn OperatorInstance>> {
        self.0.here.lock().remove(&self.1)
    }

    fn hurry(&self) {
        let mut hurried = self.0.hurried.lock();
        if !hurried.contains(&self.1) {
            hurried.push(self.1);
        }
    }
}

/// A task with a keyed operator of two key groups, between two channels and a gate that the test reads.
struct Bench {
    operators: Operators,
    bringer: Bringer,
    signal: Arc<Signal>,
    inputs: [Sender; 2],
    behind: Place,
    log: Log,
    task: Running,
}

const GROUPS: u16 = 2;

fn of_group(group: u16, time: Timestamp, value: &str) -> Row {
    let key = (0..).map(|n| format!("k{n}")).find(|key| key_group_of(key.as_bytes(), GROUPS) == group).unwrap();
    row(time, &key, value)
}

fn called(group: u16, time: Timestamp, value: &str) -> Called {
    Called::Process { input: 0, rows: vec![of_group(group, time, value)] }
}

impl Bench {
    /// With instances of both groups on their way, last told this watermark.
    fn new(eager: bool, more: bool) -> Bench {
        let operators = Operators::prefixing("");
        let groups = KeyGroupRange::of(0, GROUPS, 1);
        let (mut place, mut behind) = (Place::new(), Place::new());
        let inputs = [0, 1].map(|_| match eager {
            true => place.channel(&Default::default(), 0),
            false => place.hash_channel(&Default::default(), 0, groups),
        });
        let output = behind.channel(&place.signal, 0);
        let mut node = operator("op", &operators, Instances::Keyed { groups, eager }, vec![Target::Router(0)]);
        let bringer = Bringer::default();
        let NodeWork::Operator { restored, after_end, .. } = &mut node.work else { unreachable!("it is an operator") };
        (after_end.more, after_end.event_time_max) = (more, if more { 40 } else { WATERMARK_START });
        let (watermark, finished) = if more { (WATERMARK_END, true) } else { (5, false) };
        restored.extend((0..GROUPS).map(|group| RestoredInstance {
            id: InstanceId::KeyGroup(group),
            instance: Box::new(OnItsWay(bringer.clone(), usize::from(group))),
            watermark,
            finished,
        }));
        let (signal, head) = place.head();
        let log = Log::default();
        let task = Running::start(0, &log, signal.clone(), head, vec![node], vec![Router::forward(output)]);
        Bench { operators, bringer, signal, inputs, behind, log, task }
    }

    /// The instance of a group is there now.
    fn bring(&self, group: usize) {
        let instance = self.operators.instantiate().unwrap();
        self.bringer.here.lock().insert(group, instance);
        weir_task::Wake::wake(&*self.signal);
    }

    /// Rows that fall to a group, over the first channel.
    fn send(&mut self, group: u16, time: Timestamp, value: &str) {
        let rows = batch(&[of_group(group, time, value)]);
        let mut keyed = None;
        Partitioner::new(GROUPS, 1).partition(rows.view(), |_, batch| keyed = Some(batch));
        self.inputs[0].send(Frame::Keyed(keyed.unwrap()));
    }

    fn watermark(&mut self, watermark: Timestamp) {
        self.inputs.iter_mut().for_each(|input| input.send(Frame::Watermark(watermark)));
    }

    fn waits_for(&self, group: usize) {
        eventually("it is hurried", || self.bringer.hurried.lock().contains(&group));
    }
    /// Reads until a row with this value comes.
    fn read_until_row(&mut self, value: &str) -> Vec<Frame> {
        let mut frames = Vec::new();
        eventually(value, || {
            frames.extend(drain(&mut self.behind.gate));
            rows_in(&frames).iter().any(|row| row.2 == value)
        });
        frames
    }

    fn is_restored(&self) -> bool {
        self.log.has(0, &Said::Restored)
    }
}

fn values(frames: &[Frame]) -> Vec<String> {
    rows_in(frames).into_iter().map(|(_, _, value)| value).collect()
}

#[test]
fn s112_rows_wait_for_their_own_instance_alone_and_a_watermark_goes_on_once_all_were_told() {
    let mut bench = Bench::new(false, false);
    bench.bring(0);
    bench.send(0, 6, "a");
    bench.watermark(10);
    bench.send(0, 12, "b");
    let mut frames = bench.read_until_row("b");
    assert_eq!(values(&frames), ["a", "at 10", "b"]);
    bench.send(1, 13, "c");
    bench.send(0, 14, "d");
    bench.waits_for(1);
    assert!(!bench.is_restored());
    assert!(!frames.iter().any(|frame| matches!(frame, Frame::Watermark(_))), "{frames:?}");
    bench.bring(1);
    frames.extend(bench.read_until_row("d"));
    assert_eq!(values(&frames), ["a", "at 10", "b", "at 10", "c", "d"]);
    let watermark = frames.iter().position(|frame| *frame == Frame::Watermark(10)).unwrap();
    assert_eq!(values(&frames[..watermark]), ["a", "at 10", "b", "at 10"]);
    assert_eq!(bench.operators.calls_of(0), [called(0, 6, "a"), Called::Advance(10), called(0, 12, "b"), called(0, 14, "d")]);
    assert_eq!(bench.operators.calls_of(1), [Called::Advance(10), called(1, 13, "c")]);
    assert_eq!(bench.log.of(0), [Said::Restored]);
}

#[test]
fn s112_an_instance_is_told_the_newest_watermark_that_came_before_its_row_and_no_newer_one() {
    let mut bench = Bench::new(false, false);
    [10, 20].into_iter().for_each(|watermark| bench.watermark(watermark));
    bench.send(1, 30, "c");
    bench.watermark(40);
    bench.send(1, 41, "e");
    bench.waits_for(1);
    bench.bring(1);
    let mut frames = bench.read_until_row("e");
    assert_eq!(bench.operators.calls_of(0), [Called::Advance(20), called(1, 30, "c"), Called::Advance(40), called(1, 41, "e")]);
    bench.bring(0);
    frames.extend(read_until(&mut bench.behind.gate, &Frame::Watermark(40)));
    assert_eq!(bench.operators.calls_of(1), [Called::Advance(40)]);
    assert_eq!(frames.iter().filter(|frame| matches!(frame, Frame::Watermark(_))).count(), 1, "the newest says all");
}

#[test]
fn s112_idleness_that_rows_have_ended_meanwhile_is_not_told_and_other_idleness_is() {
    let mut bench = Bench::new(false, false);
    bench.bring(0);
    bench.inputs.iter_mut().for_each(|input| input.send(Frame::Idle));
    bench.send(0, 12, "a");
    let mut frames = bench.read_until_row("a");
    bench.bring(1);
    eventually("all are here", || bench.is_restored());
    bench.send(0, 13, "b");
    frames.extend(bench.read_until_row("b"));
    assert!(!frames.contains(&Frame::Idle), "its rows would be late behind: {frames:?}");

    let mut bench = Bench::new(false, false);
    bench.watermark(10);
    bench.inputs.iter_mut().for_each(|input| input.send(Frame::Idle));
    bench.bring(0);
    bench.bring(1);
    let frames = read_until(&mut bench.behind.gate, &Frame::Idle);
    assert!(frames.contains(&Frame::Watermark(10)), "{frames:?}");
}

#[test]
fn s112_the_end_is_told_once_all_are_here() {
    let mut bench = Bench::new(false, false);
    bench.bring(0);
    bench.send(0, 6, "a");
    bench.inputs.iter_mut().for_each(|input| input.send(Frame::End));
    let mut frames = bench.read_until_row("a");
    assert!(!bench.log.has(0, &Said::Finished));
    bench.bring(1);
    frames.extend(read_until(&mut bench.behind.gate, &Frame::End));
    for instance in 0..2 {
        let calls = bench.operators.calls_of(instance);
        assert_eq!(calls[calls.len() - 2..], [Called::Advance(WATERMARK_END), Called::Finish]);
    }
    assert_eq!(frames.iter().filter(|frame| matches!(frame, Frame::Watermark(_) | Frame::End)).count(), 2);
}

#[test]
fn s112_instances_that_go_on_after_their_end_are_all_there_before_anything_is_read() {
    let mut bench = Bench::new(false, true);
    bench.send(0, 600, "a");
    bench.waits_for(1);
    bench.bring(0);
    bench.send(0, 601, "b");
    bench.bring(1);
    bench.read_until_row("b");
    let goes_on = Called::Advance(40);
    assert_eq!(bench.operators.calls_of(0), [goes_on.clone(), called(0, 600, "a"), called(0, 601, "b")]);
    assert_eq!(bench.operators.calls_of(1), [goes_on]);
}

#[test]
fn s112_rows_for_all_instances_reach_each_once_it_is_here_and_nothing_overtakes_them() {
    let mut bench = Bench::new(true, false);
    bench.bring(0);
    bench.inputs[0].send(frame(&[row(6, "", "to all")]));
    bench.inputs[0].send(frame(&[row(7, "", "too")]));
    bench.waits_for(1);
    let process = |time, value| Called::Process { input: 0, rows: vec![row(time, "", value)] };
    assert_eq!(bench.operators.calls_of(0), [process(6, "to all")]);
    bench.bring(1);
    let frames = bench.read_until_row("too");
    assert_eq!(values(&frames)[..2], ["to all", "to all"]);
    eventually("both", || bench.operators.calls_of(1).len() == 2);
    assert_eq!(bench.operators.calls_of(1), [process(6, "to all"), process(7, "too")]);
}

#[test]
fn s112_a_task_that_waits_for_an_instance_is_cancelled_at_once() {
    let mut bench = Bench::new(false, false);
    bench.send(1, 6, "a");
    bench.waits_for(1);
    bench.task.cancel();
    assert_eq!(bench.log.of(0), []);
}

#[test]
fn s112_a_source_reads_nothing_before_the_instances_of_its_chain_are_here() {
    let (operators, bringer, memory, log) = (Operators::prefixing(""), Bringer::default(), Memory::default(), Log::default());
    let signal: Arc<Signal> = Arc::default();
    let mut node = operator("op", &operators, Instances::Single(0), vec![to(1)]);
    let NodeWork::Operator { restored, .. } = &mut node.work else { unreachable!("it is an operator") };
    let instance = Box::new(OnItsWay(bringer.clone(), 0));
    restored.push(RestoredInstance { id: InstanceId::Subtask(0), instance, watermark: 5, finished: false });
    let head = Steps::of([Step::Rows(vec![row(6, "", "a")]), Step::End]).head(vec![to(0)], None);
    let mut task = Running::start(0, &log, signal.clone(), head, vec![node, sink("out", &memory)], Vec::new());
    eventually("it is hurried", || !bringer.hurried.lock().is_empty());
    assert_eq!((memory.values(), log.of(0)), (Vec::<String>::new(), vec![]));
    bringer.here.lock().insert(0, operators.instantiate().unwrap());
    weir_task::Wake::wake(&*signal);
    log.wait(0, &Said::Finished);
    assert_eq!(memory.values()[0], "a");
    task.cancel();
}
