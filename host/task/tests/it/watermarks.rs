//! Event time: who is told, when, and in which order.

use std::sync::Arc;

use weir_channel::Frame;
use weir_model::{InstanceId, Timestamp, WATERMARK_END, WATERMARK_START};
use weir_task::{InstanceFactory, Instances, NodeWork, OperatorInstance, RestoredInstance, Router, Sender, Target};

use crate::support::*;

/// A task with an operator between two channels and a gate that the test reads.
fn between(operators: &Operators, instances: Instances, restored: Vec<RestoredInstance>) -> ([Sender; 2], Place, Running) {
    between_after(operators, instances, restored, WATERMARK_START)
}

/// The same where the greatest event time before the checkpoint is known.
fn between_after(
    operators: &Operators,
    instances: Instances,
    restored: Vec<RestoredInstance>,
    event_time_max: Timestamp,
) -> ([Sender; 2], Place, Running) {
    let (mut place, mut behind) = (Place::new(), Place::new());
    let inputs = [place.channel(&Default::default(), 0), place.channel(&Default::default(), 0)];
    let output = behind.channel(&place.signal, 0);
    let mut node = operator("op", operators, instances, vec![Target::Router(0)]);
    let NodeWork::Operator { restored: slot, after_end, .. } = &mut node.work else { unreachable!("it is an operator") };
    *slot = restored;
    after_end.event_time_max = event_time_max;
    let (signal, head) = place.head();
    let task = Running::start(0, &Log::default(), signal, head, vec![node], vec![Router::forward(output)]);
    (inputs, behind, task)
}

#[test]
fn a_watermark_comes_after_the_rows_before_it_and_after_what_it_causes() {
    let operators = Operators::prefixing("");
    let (mut inputs, mut behind, _task) = between(&operators, Instances::Single(0), Vec::new());
    inputs[0].send(frame(&[row(1, "", "a")]));
    inputs[0].send(Frame::Watermark(5));
    inputs[1].send(frame(&[row(2, "", "b")]));
    inputs[1].send(Frame::Watermark(3));
    let frames = read_until(&mut behind.gate, &Frame::Watermark(3));
    assert_eq!(frames.last(), Some(&Frame::Watermark(3)), "the least of both");
    let values: Vec<String> = rows_in(&frames).into_iter().map(|(_, _, value)| value).collect();
    assert_eq!((values.len(), values.last().unwrap().as_str()), (3, "at 3"));
}

#[test]
fn s28_an_idle_channel_holds_nobody_back() {
    let operators = Operators::prefixing("");
    let (mut inputs, mut behind, _task) = between(&operators, Instances::Single(0), Vec::new());
    inputs[0].send(Frame::Watermark(100));
    inputs[1].send(Frame::Idle);
    read_until(&mut behind.gate, &Frame::Watermark(100));
}

#[test]
fn s28_where_only_idle_channels_are_left_the_task_says_that_it_idles() {
    for ends_first in [false, true] {
        let operators = Operators::prefixing("");
        let (mut inputs, mut behind, _task) = between(&operators, Instances::Single(0), Vec::new());
        let ending = |inputs: &mut [Sender; 2]| inputs[1].send(Frame::End);
        if ends_first {
            ending(&mut inputs);
        }
        inputs[0].send(Frame::Watermark(10));
        inputs[0].send(Frame::Idle);
        if !ends_first {
            inputs[1].send(Frame::Watermark(20));
            read_until(&mut behind.gate, &Frame::Watermark(20));
            ending(&mut inputs);
        }
        read_until(&mut behind.gate, &Frame::Idle);
    }
}

#[test]
fn s28_no_instance_is_told_the_end_of_time_while_a_channel_idles_whose_rows_are_yet_to_come() {
    let operators = Operators::prefixing("");
    let (mut inputs, mut behind, _task) = between(&operators, Instances::Single(0), Vec::new());
    inputs[0].send(Frame::Watermark(10));
    inputs[1].send(Frame::Idle);
    // As a source says its end.
    inputs[0].send(Frame::Watermark(WATERMARK_END));
    inputs[0].send(Frame::End);
    read_until(&mut behind.gate, &Frame::Idle);
    inputs[1].send(frame(&[row(20, "", "a")]));
    inputs[1].send(Frame::Watermark(20));
    inputs[1].send(Frame::Watermark(WATERMARK_END));
    inputs[1].send(Frame::End);
    read_until(&mut behind.gate, &Frame::End);
    let process = Called::Process { input: 0, rows: vec![row(20, "", "a")] };
    let calls = operators.calls_of(0);
    assert_eq!(
        calls.into_iter().filter(|call| *call != Called::Advance(10)).collect::<Vec<_>>(),
        [process, Called::Advance(20), Called::Advance(WATERMARK_END), Called::Finish]
    );
}

#[test]
fn s28_a_source_without_rows_says_that_it_idles_and_its_watermark_first() {
    let mut behind = Place::new();
    let signal: Arc<weir_task::Signal> = Arc::default();
    let output = behind.channel(&signal, 0);
    let steps = Steps::of([Step::Rows(vec![row(10, "", "a")])]);
    let head = steps.head(vec![Target::Router(0)], Some(5));
    let _task = Running::start(0, &Log::default(), signal, head, Vec::new(), vec![Router::forward(output)]);
    let frames = read_until(&mut behind.gate, &Frame::Idle);
    assert_eq!(frames, [frame(&[row(10, "", "a")]), Frame::Watermark(9), Frame::Idle]);
}

#[test]
fn a_source_subtask_that_has_nothing_to_read_says_that_it_idles_without_being_told_after_how_long() {
    let mut behind = Place::new();
    let signal: Arc<weir_task::Signal> = Arc::default();
    let output = behind.channel(&signal, 0);
    let head = Steps::without_splits().head(vec![Target::Router(0)], None);
    let _task = Running::start(0, &Log::default(), signal, head, Vec::new(), vec![Router::forward(output)]);
    assert_eq!(read_until(&mut behind.gate, &Frame::Idle), [Frame::Idle]);
}

#[test]
fn at_the_end_every_instance_is_told_the_end_of_time_then_the_end_of_input() {
    let operators = Operators::prefixing("");
    let eager = Instances::Keyed { groups: weir_model::KeyGroupRange::of(0, 2, 1), eager: true };
    let (mut inputs, mut behind, _task) = between(&operators, eager, Vec::new());
    inputs.iter_mut().for_each(|input| input.send(Frame::End));
    let frames = read_until(&mut behind.gate, &Frame::End);
    for instance in 0..2 {
        assert_eq!(operators.calls_of(instance), [Called::Advance(WATERMARK_END), Called::Finish]);
    }
    let watermark = frames.iter().position(|frame| *frame == Frame::Watermark(WATERMARK_END)).unwrap();
    assert_eq!((rows_in(&frames[..watermark]).len(), rows_in(&frames[watermark..]).len()), (2, 2));
}

#[test]
fn no_instance_sees_time_go_back_after_a_restore_and_a_new_one_starts_at_the_least() {
    let operators = Operators::prefixing("");
    let restored = |group, watermark| restored(&operators, group, watermark, false);
    let eager = Instances::Keyed { groups: weir_model::KeyGroupRange::of(0, 3, 1), eager: true };
    let (mut inputs, mut behind, _task) = between(&operators, eager, vec![restored(0, 50), restored(1, 70)]);
    inputs[0].send(frame(&[row(60, "", "to all")]));
    inputs.iter_mut().for_each(|input| input.send(Frame::Watermark(60)));
    inputs.iter_mut().for_each(|input| input.send(Frame::Watermark(80)));
    let frames = read_until(&mut behind.gate, &Frame::Watermark(80));
    let process = Called::Process { input: 0, rows: vec![row(60, "", "to all")] };
    assert_eq!(operators.calls_of(0), [process.clone(), Called::Advance(60), Called::Advance(80)]);
    assert_eq!(operators.calls_of(1), [process.clone(), Called::Advance(80)]);
    assert_eq!(operators.calls_of(2), [Called::Advance(50), process, Called::Advance(60), Called::Advance(80)]);
    assert_eq!(rows_in(&frames).iter().filter(|row| row.2 == "at 50").count(), 1, "what the new one says of it goes on");
}

fn restored(operators: &Operators, group: u16, watermark: Timestamp, finished: bool) -> RestoredInstance {
    let instance = Box::new(Some(operators.instantiate().unwrap() as Box<dyn OperatorInstance>));
    RestoredInstance { id: InstanceId::KeyGroup(group), instance, watermark, finished }
}

/// Calls of each instance, by the order in which they were made, where one row goes to all after a restore.
fn calls_where_more_comes(operators: &Operators, groups: u16, restored: Vec<RestoredInstance>) -> Vec<Vec<Called>> {
    let eager = Instances::Keyed { groups: weir_model::KeyGroupRange::of(0, groups, 1), eager: true };
    let (mut inputs, mut behind, _task) = between_after(operators, eager, restored, 40);
    inputs[0].send(frame(&[row(600, "", "more")]));
    inputs.iter_mut().for_each(|input| input.send(Frame::Watermark(700)));
    read_until(&mut behind.gate, &Frame::Watermark(700));
    (0..usize::from(groups)).map(|instance| operators.calls_of(instance)).collect()
}

fn more() -> Called {
    Called::Process { input: 0, rows: vec![row(600, "", "more")] }
}

#[test]
fn where_all_had_ended_and_more_comes_an_instance_made_for_it_is_not_told_an_end_before_its_rows() {
    let operators = Operators::prefixing("");
    let ended = vec![restored(&operators, 1, WATERMARK_END, true)];
    let calls = calls_where_more_comes(&operators, 2, ended);
    let expected = [Called::Advance(40), more(), Called::Advance(700)];
    assert_eq!(calls, [expected.clone(), expected]);
}

#[test]
fn an_instance_that_goes_on_after_its_end_does_not_set_the_event_time_of_others_back() {
    let operators = Operators::prefixing("");
    let instances = vec![restored(&operators, 0, 500, false), restored(&operators, 1, WATERMARK_END, true)];
    let calls = calls_where_more_comes(&operators, 3, instances);
    assert_eq!(calls[0], [more(), Called::Advance(700)]);
    assert_eq!(calls[1], [Called::Advance(40), Called::Advance(500), more(), Called::Advance(700)]);
    assert_eq!(calls[2], [Called::Advance(500), more(), Called::Advance(700)], "one that is made then");
}

#[test]
fn an_instance_captured_between_the_end_of_time_and_the_end_of_input_goes_on_where_more_comes() {
    let operators = Operators::prefixing("");
    let between_both = vec![restored(&operators, 0, WATERMARK_END, false)];
    let calls = calls_where_more_comes(&operators, 1, between_both);
    assert_eq!(calls, [[Called::Advance(40), more(), Called::Advance(700)]]);
}

#[test]
fn an_instance_captured_between_the_end_of_time_and_the_end_of_input_is_told_the_rest_where_no_more_comes() {
    let operators = Operators::prefixing("");
    let between_both = vec![restored(&operators, 0, WATERMARK_END, false)];
    let (mut inputs, mut behind, _task) = between_after(&operators, keyed(1), between_both, 40);
    inputs.iter_mut().for_each(|input| input.send(Frame::End));
    read_until(&mut behind.gate, &Frame::End);
    assert_eq!(operators.calls_of(0), [Called::Finish]);
}
