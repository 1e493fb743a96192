//! Operators whose rows take long, or suddenly do: whatever the deadline of a call, the job gets to its end.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use weir_channel::Frame;
use weir_checkpoint::align::Mode;
use weir_model::{Attempt, TaskId};
use weir_sandbox::{CallError, Trap, TrapKind};
use weir_task::*;

use crate::support::*;

/// A clock that calls move.
#[derive(Clone, Default)]
struct Time(Arc<Mutex<Duration>>);

impl Clock for Time {
    fn now(&self) -> Duration {
        *self.0.lock()
    }
}

/// Runs over all rows until it fails or has finished. Row `n` takes `cost(n)`. Gives the largest call if it has finished.
fn attempt(rows: usize, cost: fn(i64) -> Duration, deadline: Duration, known: &Arc<CallRows>) -> Option<usize> {
    let (log, time) = (Log::default(), Time::default());
    let (passing, largest) = (time.clone(), Arc::new(Mutex::new(0)));
    let seen = largest.clone();
    let operators = Operators::new(move |_, rows, _| {
        let took: Duration = rows.iter().map(|row| cost(row.0)).sum();
        *passing.0.lock() += took.min(deadline);
        let mut largest = seen.lock();
        *largest = rows.len().max(*largest);
        if took < deadline {
            return Ok(Vec::new());
        }
        Err(CallError::Trapped(Trap { kind: TrapKind::Deadline, message: "it took too long".to_owned() }))
    });
    let mut place = Place::new();
    let mut input = place.channel(&Default::default(), 0);
    let rows: Vec<Row> = (0..rows as i64).map(|n| row(n, "k", "v")).collect();
    rows.chunks(16_384).for_each(|rows| input.send(frame(rows)));
    input.send(Frame::End);
    let mut node = operator("op", &operators.forgetful(), Instances::Single(0), Vec::new());
    let NodeWork::Operator { call_rows, .. } = &mut node.work else { unreachable!("it is an operator") };
    *call_rows = known.clone();
    let (signal, head) = place.head();
    let spec = TaskSpec {
        id: TaskId(0),
        name: "slow".to_owned(),
        attempt: Attempt(1),
        mode: Mode::ExactlyOnce,
        head,
        nodes: vec![node],
        routers: Vec::new(),
        wake: signal.clone(),
        outlet: Box::new(log.clone()),
        stats: Arc::default(),
        clock: Arc::new(time),
    };
    let (mut task, _handle) = Task::build(spec).unwrap();
    // What a channel has no room for comes when there is some.
    while !log.has(0, &Said::Finished) && task.turn() != Turn::Over {
        input.flush();
    }
    let largest = *largest.lock();
    log.has(0, &Said::Finished).then_some(largest)
}

/// Attempts until one finishes, each from the beginning, and its largest call.
fn attempts(cost: fn(i64) -> Duration, deadline: Duration) -> (usize, usize) {
    let known = Arc::default();
    (1..20).find_map(|number| Some((number, attempt(50_000, cost, deadline, &known)?))).expect("it gets to its end")
}

#[test]
fn s92_an_operator_of_5_ms_a_row_meets_no_deadline_of_a_second() {
    let cost = |_| Duration::from_millis(5);
    assert_eq!(attempts(cost, Duration::from_secs(1)), (1, 64));
}

#[test]
fn s92_an_operator_gets_to_its_end_whatever_the_deadline() {
    for deadline_ms in [6, 20, 100, 300] {
        let (attempts, _) = attempts(|_| Duration::from_millis(5), Duration::from_millis(deadline_ms));
        assert!(attempts <= 3, "{attempts} at {deadline_ms} ms");
    }
}

#[test]
fn s92_rows_that_become_expensive_suddenly_cost_a_few_restarts_and_not_all_of_them() {
    let cost = |n| if n < 40_000 { Duration::from_nanos(100) } else { Duration::from_millis(5) };
    let (attempts, largest) = attempts(cost, Duration::from_secs(1));
    assert!((2..=5).contains(&attempts), "{attempts}");
    assert!(largest <= 256, "{largest}");
}

#[test]
fn s92_a_rise_within_reach_costs_no_restart() {
    let cost = |n| if n < 40_000 { Duration::from_micros(1) } else { Duration::from_micros(100) };
    let (attempts, largest) = attempts(cost, Duration::from_secs(1));
    assert_eq!(attempts, 1);
    assert!(largest > 4_000, "cheap rows are not held back: {largest}");
}
