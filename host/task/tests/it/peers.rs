//! What another process sends is looked at before it is worked off.

use weir_channel::Frame;
use weir_model::{KeyGroupRange, Partitioner};
use weir_task::Instances;

use crate::support::*;

const OWNED: KeyGroupRange = KeyGroupRange { start: 4, end: 8 };

/// Rows of one of 16 key groups.
fn of_group(group: u16) -> Frame {
    let key = (0..).map(|n| format!("k{n}")).find(|key| weir_model::key_group_of(key.as_bytes(), 16) == group).unwrap();
    let mut keyed = None;
    Partitioner::new(16, 1).partition(batch(&[row(1, &key, "x")]).view(), |_, batch| keyed = Some(batch));
    Frame::Keyed(keyed.unwrap())
}

/// What a task that owns key groups 4 to 7 says to frames on two channels of an edge, the second of which is `upstream[1]`'s.
fn answer(by_hash: bool, frames: Vec<Frame>) -> Result<usize, String> {
    let (log, operators) = (Log::default(), Operators::prefixing(""));
    let mut place = Place::new();
    let mut channel = || match by_hash {
        true => place.hash_channel(&Default::default(), 0, OWNED),
        false => place.channel(&Default::default(), 0),
    };
    let (mut good, mut input) = (channel(), channel());
    good.send(Frame::End);
    frames.into_iter().for_each(|frame| input.send(frame));
    input.send(Frame::End);
    let (signal, head) = place.head();
    let instances = Instances::Keyed { groups: OWNED, eager: false };
    let _task = Running::start(0, &log, signal, head, vec![operator("op", &operators, instances, Vec::new())], Vec::new());
    let end = || log.of(0).into_iter().find(|said| matches!(said, Said::Finished | Said::Failed(_)));
    eventually("an end", || end().is_some());
    match end() {
        Some(Said::Failed(reason)) => Err(reason),
        _ => Ok(operators.made()),
    }
}

#[test]
fn s97_rows_of_a_key_group_that_the_task_does_not_own_are_refused_with_the_peer_named() {
    assert_eq!(answer(true, vec![of_group(4), of_group(7)]), Ok(2));
    for group in [0, 3, 8, 15] {
        let error = answer(true, vec![of_group(5), of_group(group)]).unwrap_err();
        assert!(
            error.starts_with(&format!("refused what came from upstream[1]: it sent rows of key group {group}, ")),
            "{error}"
        );
        assert!(error.contains("this task owns key groups 4 to 7"), "{error}");
    }
}

#[test]
fn s97_rows_that_are_divided_where_they_should_not_be_are_refused_and_the_other_way_round() {
    let error = answer(true, vec![frame(&[row(1, "k", "x")])]).unwrap_err();
    assert!(error.contains("upstream[1]") && error.contains("not divided by key group over a hash edge"), "{error}");
    let error = answer(false, vec![of_group(5)]).unwrap_err();
    assert!(error.contains("upstream[1]") && error.contains("over an edge that does not divide them"), "{error}");
}
