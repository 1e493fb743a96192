//! Tasks run before they have all of their state: what waits for it, and what comes of damage that is found then.

use weir_model::Attempt;
use weir_protocol::{Command, Execution, FailureKind, Report, WorkerProgress};

use super::bench::{Bench, Settings, WORKERS, adopted, durable, task_of};
use super::places::running;
use crate::{Input, Limits, Wish};

/// A job whose second attempt has begun from checkpoint 1, and whose tasks have said nothing of their state yet.
fn restoring() -> Bench {
    let mut bench = running();
    bench.fail(FailureKind::Transient);
    bench.work();
    bench.pass(10);
    for _ in 0..100 {
        bench.answer();
        bench.store();
        if bench.commands.iter().any(|(_, command)| matches!(command, Command::Start { .. })) {
            bench.commands.clear();
            bench.log.clear();
            bench.notices.clear();
            return bench;
        }
        bench.work();
    }
    panic!("it does not start: {:#?}", bench.log);
}

/// The task of a worker has all of its state.
fn restored(bench: &mut Bench, worker: &str) {
    let execution = Execution { job: "j".to_owned(), attempt: Attempt(bench.attempts) };
    let report = Box::new(Report::TaskRestored { execution, task: task_of(worker) });
    bench.tell(Input::Report { worker: worker.into(), report });
}

#[test]
fn s112_no_checkpoint_begins_before_every_task_is_restored_and_none_counts_as_failed() {
    let mut bench = restoring();
    bench.pass(60_000);
    restored(&mut bench, "a");
    restored(&mut bench, "a");
    bench.pass(60_000);
    for never in ["Trigger", "Settle", "CheckpointFailed", "Restored"] {
        assert!(!bench.was_told(never), "{never}: {:#?}", bench.log);
    }
    restored(&mut bench, "b");
    assert!(bench.was_told("command: Settle") && bench.was_told("Restored { checkpoint: CheckpointId(1) }"));
    assert!(bench.was_told("command: Trigger"), "what was due meanwhile begins at once");
    bench.settle();
    assert_eq!(bench.complete.len(), 2);
}

#[test]
fn s112_a_stop_that_is_asked_for_meanwhile_waits_visibly_and_a_cancel_acts_at_once() {
    let mut bench = restoring();
    let execution = Execution { job: "j".to_owned(), attempt: Attempt(2) };
    let far = WorkerProgress { restored_bytes: 3, restore_bytes: 7, ..WorkerProgress::default() };
    let report = Box::new(Report::Heartbeat { progress: vec![(execution, far)] });
    bench.tell(Input::Report { worker: "a".into(), report });
    bench.wish(Wish::Stop);
    bench.pass(60_000);
    assert!(bench.was_told("what: \"the last checkpoint\", checkpoint: CheckpointId(1)"), "{:#?}", bench.log);
    assert!(bench.was_told("restore: RestoreProgress { restored_bytes: 3, bytes: 7 }"));
    assert!(bench.was_told("restore: Some(RestoreProgress { restored_bytes: 3, bytes: 7 })"), "with all progress");
    assert!(!bench.was_told("Trigger") && bench.over.is_none());
    WORKERS.into_iter().for_each(|worker| restored(&mut bench, worker));
    bench.settle();
    assert_eq!(bench.end(), "stopped");

    let mut bench = restoring();
    bench.wish(Wish::Cancel);
    bench.work();
    assert_eq!(bench.end(), "cancelled");
}

#[test]
fn s112_another_parallelism_that_is_asked_for_meanwhile_waits_visibly() {
    let mut bench = restoring();
    bench.wish(Wish::Rescale(1));
    bench.store();
    assert!(bench.was_told("WaitsForRestore") && !bench.was_told("Trigger"), "{:#?}", bench.log);
    WORKERS.into_iter().for_each(|worker| restored(&mut bench, worker));
    bench.settle();
    assert!(bench.was_told("Rescaling { from: 2, to: 1 }"), "{:#?}", bench.log);
}

#[test]
fn s112_damage_found_while_tasks_run_is_put_down_to_the_checkpoint_that_they_restore_and_later_to_none() {
    let mut bench = restoring();
    restored(&mut bench, "a");
    bench.fail(FailureKind::Damaged);
    bench.work();
    bench.answer();
    assert!(bench.was_told("FellBack { checkpoint: CheckpointId(1)") && !bench.was_told("Settle"), "{:#?}", bench.log);
    let asked = format!("{:?}", bench.asked);
    assert!(asked.contains("Begin { void: [CheckpointId(1)] }"), "{asked}");

    let mut bench = restoring();
    WORKERS.into_iter().for_each(|worker| restored(&mut bench, worker));
    bench.fail(FailureKind::Damaged);
    bench.work();
    assert!(!bench.was_told("FellBack") && bench.was_told("Restarting"), "{:#?}", bench.log);
}

#[test]
fn s112_damage_found_after_a_stop_was_asked_for_ends_the_job_and_says_so() {
    let mut bench = restoring();
    bench.wish(Wish::Stop);
    bench.fail(FailureKind::Damaged);
    bench.work();
    assert_eq!(bench.end(), "stopped by a failure");
}

#[test]
fn s112_state_of_which_nothing_more_comes_is_not_waited_for_for_ever() {
    let mut bench = restoring();
    let patience_ms = Limits::DEFAULT.restore_ms_max;
    bench.pass(patience_ms - 1);
    let execution = Execution { job: "j".to_owned(), attempt: Attempt(2) };
    let more = WorkerProgress { restored_bytes: 1, restore_bytes: 7, ..WorkerProgress::default() };
    let report = Box::new(Report::Heartbeat { progress: vec![(execution, more)] });
    bench.tell(Input::Report { worker: "a".into(), report });
    restored(&mut bench, "a");
    bench.pass(patience_ms - 1);
    assert!(!bench.was_told("Cancel"));
    bench.pass(1);
    assert!(bench.was_told("Cancel"));
    bench.work();
    assert!(bench.was_told("nothing more of it came for 600 s"), "{:#?}", bench.log);
}

#[test]
fn s112_a_master_that_takes_over_knows_which_tasks_are_restored() {
    let mut of_before = adopted(7, 6);
    of_before.begun.prepare.restore = Some(weir_model::CheckpointId(6));
    for (is_first, (_, running)) in of_before.running.iter_mut().enumerate().map(|(number, of)| (number == 0, of)) {
        running.restored.retain(|_| is_first);
    }
    let mut bench = Bench::new(Settings { adopted: Some(of_before.clone()), ..Settings::default() });
    bench.attempts = 3;
    bench.complete.push(durable(Attempt(2), weir_model::CheckpointId(6), weir_storage::ManifestKind::Checkpoint));
    bench.store();
    bench.pass(60_000);
    assert!(!bench.was_told("Trigger") && !bench.was_told("Settle"), "{:#?}", bench.log);
    restored(&mut bench, "b");
    assert!(bench.was_told("Trigger") && bench.was_told("Settle"));

    // All are, and whether sinks were told is not known.
    for (worker, running) in &mut of_before.running {
        running.restored = vec![task_of(worker)];
    }
    let mut bench = Bench::new(Settings { adopted: Some(of_before), ..Settings::default() });
    bench.attempts = 3;
    bench.store();
    assert!(bench.was_told("Settle"));
}
