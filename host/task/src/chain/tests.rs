//! What is held back is on its way before anything that comes after it, whoever sends that and when.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use weir_channel::Limits;
use weir_model::{Attempt, BarrierKind};
use weir_sandbox::{CallError, SandboxError};

use super::*;
use crate::build;
use crate::gate::Gate;
use crate::operator::{AfterEnd, InstanceFactory, OperatorInstance};
use crate::report::CapturedState;
use crate::signal::Signal;
use crate::spec::{Instances, NodeSpec, NodeWork};

/// A clock that stands still.
struct Still;

impl Clock for Still {
    fn now(&self) -> Duration {
        Duration::ZERO
    }
}

/// Passes rows on.
struct Echo;

impl OperatorInstance for Echo {
    fn process(&mut self, _: u32, rows: BatchRef<'_>, emitted: &mut EmittedRows) -> Result<Vec<Rejection>, CallError> {
        emitted.rows_to(0).extend(rows);
        Ok(Vec::new())
    }

    fn advance(&mut self, _: Timestamp, _: &mut EmittedRows) -> Result<(), CallError> {
        Ok(())
    }

    fn finish(&mut self, _: &mut EmittedRows) -> Result<(), CallError> {
        Ok(())
    }

    fn capture(&mut self, _: CheckpointId) -> Result<Option<Box<dyn CapturedState>>, SandboxError> {
        Ok(None)
    }

    fn checkpoint_completed(&mut self, _: CheckpointId) {}
}

impl InstanceFactory for Echo {
    fn instantiate(&self) -> Result<Box<dyn OperatorInstance>, SandboxError> {
        Ok(Box::new(Echo))
    }

    fn restore(&self, _: &[&[u8]]) -> Result<Box<dyn OperatorInstance>, SandboxError> {
        self.instantiate()
    }
}

/// Two operators, one behind the other, and the gate behind them.
fn chain() -> (Chain, Gate) {
    let mut gate = Gate::new(Arc::new(Signal::default()));
    let limits = Limits { frames_max: 100, bytes_max: 1 << 20 };
    let sender = gate.connect(Arc::new(Signal::default()), limits);
    let clock: Arc<dyn Clock> = Arc::new(Still);
    let meters = crate::operator::Meters { clock: clock.clone(), stats: Arc::default() };
    let node = |outputs: Vec<Target>| {
        let spec = NodeSpec {
            uid: "echo".into(),
            component: String::new(),
            work: NodeWork::Operator {
                factory: Arc::new(Echo),
                instances: Instances::Single(0),
                restored: Vec::new(),
                after_end: AfterEnd { event_time_max: weir_model::WATERMARK_START, more: false },
                call_rows: Arc::default(),
            },
            on_reject: OnReject::Fail,
            outputs: vec![outputs],
            late_port: None,
            dead_letters: Vec::new(),
            stats: Arc::default(),
        };
        build::node(spec, &meters).unwrap()
    };
    let nodes = vec![node(vec![Target::Node { node: 1, input: 0 }]), node(vec![Target::Router(0)])];
    (Chain::new(nodes, vec![Router::forward(sender)], clock), gate)
}

fn call(chain: &mut Chain, rows: usize) {
    let mut batch = Batch::default();
    (0..rows).for_each(|n| batch.push(n as i64, b"key", b"value"));
    chain.rows(0, 0, batch.view()).unwrap();
}

fn frames(gate: &mut Gate) -> Vec<Frame> {
    std::iter::from_fn(|| gate.poll().map(|(_, frame)| frame)).collect()
}

fn barrier() -> Barrier {
    Barrier { attempt: Attempt(1), checkpoint: CheckpointId(1), kind: BarrierKind::Checkpoint, unaligned: false }
}

#[test]
fn whatever_follows_rows_that_are_held_comes_after_them() {
    type Send = fn(&mut Chain) -> Result<(), TaskError>;
    let cases: [(Send, Frame); 4] = [
        (|chain| chain.send_barrier(barrier()), Frame::Barrier(barrier())),
        (Chain::send_idle, Frame::Idle),
        (|chain| chain.advance(0, 5), Frame::Watermark(5)),
        (|chain| chain.finish(0), Frame::End),
    ];
    for (send, last) in cases {
        let (mut chain, mut gate) = chain();
        call(&mut chain, 3);
        call(&mut chain, 4);
        assert!(!chain.holds_nothing() && frames(&mut gate).is_empty(), "so few rows are held");
        send(&mut chain).unwrap();
        assert!(chain.holds_nothing());
        let frames = frames(&mut gate);
        let rows: usize = frames.iter().map(Frame::rows_len).sum();
        assert_eq!((rows, frames.len(), frames.last()), (7, 2, Some(&last)));
    }
}

#[test]
fn rows_are_held_until_they_are_many_and_what_comes_next_is_called_with_all_of_them() {
    let (mut chain, mut gate) = chain();
    for _ in 0..2_000 {
        call(&mut chain, 16);
    }
    chain.pass_on_all().unwrap();
    chain.flush();
    let mut all = frames(&mut gate);
    while !chain.drain() {
        all.extend(frames(&mut gate));
    }
    all.extend(frames(&mut gate));
    let rows: Vec<usize> = all.iter().map(Frame::rows_len).collect();
    assert_eq!(rows.iter().sum::<usize>(), 32_000);
    assert!(rows.len() <= 100, "{} frames of 2,000 calls: {rows:?}", rows.len());
}

#[test]
fn rows_that_go_on_slowly_are_not_held() {
    let mut held = HeldRows::new();
    for _ in 0..20 {
        held.learn(8, Duration::from_millis(40));
    }
    held.rows.rows_to(0).push(1, b"", b"");
    assert!(held.is_due(), "one takes 5 ms");
    assert_eq!(held.cost(3), Duration::from_millis(15));
    for _ in 0..200 {
        held.learn(8, Duration::from_micros(8));
    }
    assert!(!held.is_due());
    (0..2_000).for_each(|n| held.rows.rows_to(n % 3).push(1, b"", b""));
    assert!(held.is_due(), "in a millisecond go 1,000 rows of a microsecond");
}
