//! s70: whatever one guest does, the host and the other guests do not notice.

use weir_model::limits;

use super::*;
use crate::{CallError, Trap, TrapKind};

/// A template with tight limits, and what it reports.
fn tight_template() -> (Template, Arc<Events>) {
    let events = Arc::new(Events::default());
    (Template::open(&HASH.1, &described(), &context("{}"), &tight(), events.clone()).unwrap(), events)
}

fn trap(instance: &mut Instance, op: u32, batch: &Batch) -> Trap {
    let mut emitted = EmittedRows::new();
    emitted.rows_to(3).push(1, b"", b"of an earlier call");
    match instance.process(op, batch.view(), &mut emitted) {
        Err(CallError::Trapped(trap)) => {
            let left: Vec<usize> = emitted.entries().map(|(_, rows)| rows.len()).collect();
            assert_eq!(left, [1], "what a trapped call emitted is gone, and nothing else");
            trap
        }
        other => panic!("{other:?}"),
    }
}

/// The guest traps so, a neighbour goes on, and the instance says that it is unusable.
fn traps(op: u32, batch: &Batch, kind: TrapKind) -> Trap {
    let (template, _) = tight_template();
    let mut neighbour = Instance::new(&template).unwrap();
    let mut steady = Instance::new(&template).unwrap();
    step(&mut neighbour, &[1]);
    step(&mut steady, &[1]);
    let mut instance = Instance::new(&template).unwrap();
    let trap = trap(&mut instance, op, batch);
    assert_eq!(trap.kind, kind, "{trap}");
    let error = instance.process(op::ECHO, batch.view(), &mut EmittedRows::new()).unwrap_err();
    assert!(matches!(&error, CallError::Unusable(_)), "{error}");
    assert!(instance.capture(CheckpointId(1)).is_err());
    drop(instance);
    assert_eq!(step(&mut neighbour, &[2]), step(&mut steady, &[2]));
    trap
}

#[test]
fn s70_an_endless_loop_ends_at_its_deadline() {
    let trap = traps(op::LOOP, &rows(&[(1, 1)]), TrapKind::Deadline);
    assert!(
        trap.message.contains("2000 ms (`limits.call` of the operator)") && trap.message.ends_with("; the call had 1 rows"),
        "{trap}"
    );
}

#[test]
fn s70_endless_recursion_exhausts_the_stack_of_the_guest_alone() {
    traps(op::RECURSE, &rows(&[(1, 1)]), TrapKind::Stack);
}

#[test]
fn s70_a_panic_says_where() {
    let trap = traps(op::UNREACHABLE, &rows(&[(1, 1)]), TrapKind::Unreachable);
    assert!(trap.message.contains("unreachable"), "{trap}");
}

#[test]
fn s70_memory_stops_at_the_limit_and_the_guest_is_told() {
    let (template, _) = tight_template();
    let mut instance = Instance::new(&template).unwrap();
    let mut neighbour = Instance::new(&template).unwrap();
    let mut grown = 0;
    let refused = loop {
        match instance.process(op::GROW, rows(&[(1, 0)]).view(), &mut EmittedRows::new()) {
            Ok(_) => grown += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, CallError::Failed(_)), "{refused}");
    assert_eq!(instance.memory_bytes(), tight().memory_bytes);
    assert!(grown > 0);
    // A refused growth is not counted as done.
    let error = instance.process(op::GROW, rows(&[(100_000, 0)]).view(), &mut EmittedRows::new()).unwrap_err();
    assert!(matches!(error, CallError::Failed(_)), "{error}");
    grow(&mut neighbour, 8);
    step(&mut instance, &[1]);
}

#[test]
fn a_guest_that_gives_up_for_lack_of_memory_is_told_with_the_limit_its_use_and_its_setting() {
    let (template, _) = tight_template();
    let mut instance = Instance::new(&template).unwrap();
    let max = tight().memory_bytes;
    let free = (max - instance.memory_bytes()) >> 16;
    grow(&mut instance, free as i64);
    // The host says no, and the guest says so itself.
    let error = instance.process(op::GROW, rows(&[(1, 0)]).view(), &mut EmittedRows::new()).unwrap_err().to_string();
    let met = format!(
        "it met its memory limit: it has {max} bytes and asked for 65536 more, of {max} that it may have; raise `limits.memory`"
    );
    assert!(error.contains(&met), "{error}");
    // The next call has met no limit.
    let error = instance.process(op::FAIL, rows(&[(1, 0)]).view(), &mut EmittedRows::new()).unwrap_err().to_string();
    assert!(!error.contains("memory"), "{error}");
    // Rows for which the guest finds no room: it traps.
    let large = rows(&vec![(1, 1); max as usize / 16]);
    let trap = trap(&mut instance, op::ECHO, &large);
    assert_eq!(trap.kind, TrapKind::Limit, "{trap}");
    assert!(trap.message.contains("it met its memory limit") && trap.message.contains("unreachable"), "{trap}");
}

#[test]
fn s70_a_restored_instance_has_the_same_limit() {
    let (template, _) = tight_template();
    let mut instance = Instance::new(&template).unwrap();
    grow(&mut instance, 64);
    let image = capture(&mut instance, 1);
    let mut restored = restore(&template, &[image]);
    let free = (tight().memory_bytes - restored.memory_bytes()) >> 16;
    let error = restored.process(op::GROW, rows(&[(free as i64 + 1, 0)]).view(), &mut EmittedRows::new()).unwrap_err();
    assert!(matches!(error, CallError::Failed(_)), "{error}");
    grow(&mut restored, free as i64);
}

#[test]
fn s70_a_flood_of_output_is_stopped() {
    let large = rows(&(0..4_000).map(|n| (n, 0)).collect::<Vec<_>>());
    let trap = traps(op::FLOOD, &large, TrapKind::Limit);
    assert!(trap.message.contains(&limits::EMIT_BYTES_MAX.to_string()), "{trap}");
    let trap = traps(op::FLOOD, &Batch::default(), TrapKind::Limit);
    assert!(trap.message.contains(&limits::EMIT_BATCHES_MAX.to_string()), "{trap}");
}

#[test]
fn s70_a_flood_of_log_lines_is_cut() {
    let (template, events) = tight_template();
    let mut instance = Instance::new(&template).unwrap();
    run(&mut instance, op::LOGS, &rows(&[(1, 1)]));
    let kept = events.lines.lock().unwrap().len();
    // The call takes less than its deadline, so it sees at most two of the gate's seconds.
    assert!(kept > 0 && kept <= 2 * limits::LOG_LINES_PER_SECOND_MAX as usize + 1, "{kept}");
}

#[test]
fn s70_names_of_metrics_are_bounded() {
    let (template, events) = tight_template();
    let mut instance = Instance::new(&template).unwrap();
    run(&mut instance, op::METRICS, &rows(&[(i64::from(b'a'), 1)]));
    run(&mut instance, op::METRICS, &rows(&[(i64::from(b'a'), 1)]));
    assert_eq!(events.counts.lock().unwrap().len(), 2 * limits::METRIC_NAMES_MAX, "the first names go on counting");
    assert_eq!(events.lines.lock().unwrap().len(), 1, "said once");
}

#[test]
fn what_calls_count_is_told_at_the_end_of_each() {
    let (template, events) = tight_template();
    let mut instance = Instance::new(&template).unwrap();
    run(&mut instance, op::POKE, &rows(&[(0x20000, u64::from_le_bytes(*b"rows...."))]));
    for calls in 1..3 {
        run(&mut instance, op::NAME, &rows(&[(4, 0)]));
        assert_eq!(*events.sums.lock().unwrap(), BTreeMap::from([("rows".to_string(), calls)]));
    }
}

#[test]
fn s91_names_of_metrics_and_log_lines_are_bounded_over_all_instances_of_an_operator() {
    let (template, events) = tight_template();
    let started = std::time::Instant::now();
    for number in 0..10 {
        let mut instance = Instance::new(&template).unwrap();
        run(&mut instance, op::METRICS, &rows(&[(i64::from(b'a') + number, 1)]));
        run(&mut instance, op::LOGS, &rows(&[(1, 1)]));
    }
    let names: std::collections::BTreeSet<String> = events.counts.lock().unwrap().iter().cloned().collect();
    assert_eq!(names.len(), limits::METRIC_NAMES_MAX);
    let seconds = started.elapsed().as_secs() as usize + 1;
    let lines = events.lines.lock().unwrap().len();
    // What was dropped is said once a second, and the names that were ignored once.
    assert!(lines <= (seconds + 1) * (limits::LOG_LINES_PER_SECOND_MAX as usize + 1) + 1, "{lines} in {seconds} s");
}

#[test]
fn s98_log_lines_that_are_dropped_are_not_looked_at() {
    let (template, events) = tight_template();
    let mut instance = Instance::new(&template).unwrap();
    // No text: whoever looks at it traps.
    poke(&mut instance, 0x20000, u64::MAX);
    let trap_of = |instance: &mut Instance, times| match instance.process(
        op::TEXT,
        rows(&[(1 << 20, 0), (times, 0)]).view(),
        &mut EmittedRows::new(),
    ) {
        Err(CallError::Trapped(trap)) => Some(trap),
        Ok(_) => None,
        Err(other) => panic!("{other}"),
    };
    let trap = trap_of(&mut instance, 1).expect("the first line is looked at");
    assert_eq!(trap.kind, TrapKind::Contract, "{trap}");
    let gate_is_shut = || {
        let mut other = Instance::new(&template).unwrap();
        run(&mut other, op::LOGS, &rows(&[(1, 1)]));
        poke(&mut other, 0x20000, u64::MAX);
        other
    };
    // A new second of the gate may begin in between.
    assert!((0..20).any(|_| trap_of(&mut gate_is_shut(), 1).is_none()), "no line was dropped unseen");
    assert!(events.lines.lock().unwrap().iter().all(|(_, line)| line.len() <= limits::LOG_LINE_BYTES_MAX));
}

#[test]
fn s98_texts_beyond_what_a_call_may_hand_over_are_refused() {
    let events = Arc::new(Events::default());
    let roomy = InstanceLimits { memory_bytes: 256 << 20, ..tight() };
    let template = Template::open(&HASH.1, &described(), &context("{}"), &roomy, events).unwrap();
    for op in [op::TEXT, op::NAME] {
        let mut instance = Instance::new(&template).unwrap();
        grow(&mut instance, 3_000);
        let trap = trap(&mut instance, op, &rows(&[((limits::HOSTCALL_BYTES_MAX + 1) as i64, 0), (1, 0)]));
        assert_eq!(trap.kind, TrapKind::Limit, "{trap}");
        assert!(trap.message.contains("more than 134217728 bytes"), "{trap}");
    }
    let mut instance = Instance::new(&template).unwrap();
    let trap = trap(&mut instance, op::NAME, &rows(&[(100_000, 0)]));
    assert!(trap.message.contains("the name of a metric has 100000 bytes"), "{trap}");
}

#[test]
fn a_rejection_of_a_row_that_was_not_there_leaves_nothing_of_the_call() {
    let (template, _) = tight_template();
    let mut instance = Instance::new(&template).unwrap();
    let trap = trap(&mut instance, op::EMIT_AND_REJECT, &rows(&[(1, 1)]));
    assert!(trap.kind == TrapKind::Contract && trap.message.contains("rejected row 1, but was given 1 rows"), "{trap}");
}

#[test]
fn s70_lengths_beyond_memory_are_refused_before_anything_is_allocated() {
    for op in [op::HUGE_STRING, op::HUGE_LIST, op::HUGE_EMIT] {
        let trap = traps(op, &rows(&[(1, 1)]), TrapKind::Contract);
        assert!(trap.message.contains("out of bounds"), "{trap}");
    }
}

#[test]
fn s70_one_text_returned_a_thousand_times_is_refused() {
    let zeros = rows(&[(1, 0)]);
    let trap = traps(op::AMPLIFY, &zeros, TrapKind::Limit);
    assert!(trap.message.contains("too much data"), "{trap}");
}

#[test]
fn s70_columns_that_do_not_agree_are_refused() {
    let trap = traps(op::UNEVEN, &rows(&[(1, 1)]), TrapKind::Contract);
    assert!(trap.message.contains("the columns do not agree: where values end take 8 bytes, and 0 are left"), "{trap}");
}

#[test]
fn s70_start_up_beyond_the_memory_limit_is_refused() {
    let limits = InstanceLimits { memory_bytes: 1 << 20, ..tight() };
    let error = Template::open(&HASH.1, &described(), &context("{}"), &limits, Arc::new(Events::default())).err().unwrap();
    assert!(error.to_string().contains("memory"), "{error}");
}
