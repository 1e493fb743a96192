//! The acceptance scenarios of the coordinator's decisions.

use super::*;

const ATTEMPT: Attempt = Attempt(2);
const FIRST: u64 = 40;

fn config() -> Config {
    Config {
        interval_ms: Some(1_000),
        min_pause_ms: 0,
        timeout_ms: 5_000,
        tolerable_failures: 2,
        max_concurrent: 1,
        unaligned_after_ms: None,
    }
}

struct Driver {
    coordinator: CheckpointMachine,
    tasks: u32,
}

impl Driver {
    fn new(config: Config, tasks: u32) -> Driver {
        Driver { coordinator: CheckpointMachine::new(config, ATTEMPT, tasks as usize, CheckpointId(FIRST), 0), tasks }
    }

    fn tell(&mut self, now_ms: u64, event: Event) -> Vec<Action> {
        let mut actions = Vec::new();
        self.coordinator.handle(now_ms, event, &mut actions);
        actions
    }

    fn tick(&mut self, now_ms: u64) -> Vec<Action> {
        self.tell(now_ms, Event::Tick)
    }

    fn acknowledge(&mut self, now_ms: u64, task: u32, checkpoint: u64) -> Vec<Action> {
        let (task, checkpoint) = (TaskId(task), CheckpointId(checkpoint));
        self.tell(now_ms, Event::Acknowledged { task, attempt: ATTEMPT, checkpoint })
    }

    fn acknowledge_all(&mut self, now_ms: u64, checkpoint: u64) -> Vec<Action> {
        (0..self.tasks).flat_map(|task| self.acknowledge(now_ms, task, checkpoint)).collect()
    }

    fn written(&mut self, now_ms: u64, checkpoint: u64) -> Vec<Action> {
        self.tell(now_ms, Event::ManifestWritten(CheckpointId(checkpoint)))
    }

    fn persist_failed(&mut self, now_ms: u64, task: u32, checkpoint: u64) -> Vec<Action> {
        let (task, checkpoint) = (TaskId(task), CheckpointId(checkpoint));
        self.tell(now_ms, Event::PersistFailed { task, attempt: ATTEMPT, checkpoint, reason: "disk full".to_owned() })
    }

    /// Completes a checkpoint that was triggered.
    fn complete(&mut self, now_ms: u64, checkpoint: u64) -> Vec<Action> {
        let kind = self.coordinator.pending().find(|pending| pending.checkpoint().0 == checkpoint).unwrap().kind();
        let checkpoint_id = CheckpointId(checkpoint);
        assert_eq!(self.acknowledge_all(now_ms, checkpoint), [Action::WriteManifest { checkpoint: checkpoint_id, kind }]);
        self.written(now_ms, checkpoint)
    }

    fn finish_all(&mut self, now_ms: u64) -> Vec<Action> {
        (0..self.tasks).flat_map(|task| self.tell(now_ms, finished(task))).collect()
    }

    fn deadline_ms(&self) -> Option<u64> {
        self.coordinator.deadline_ms()
    }
}

fn finished(task: u32) -> Event {
    Event::TaskFinished { task: TaskId(task), attempt: ATTEMPT }
}

fn trigger(checkpoint: u64) -> Action {
    trigger_of(checkpoint, BarrierKind::Checkpoint)
}

fn trigger_of(checkpoint: u64, kind: BarrierKind) -> Action {
    Action::Trigger(Barrier { attempt: ATTEMPT, checkpoint: CheckpointId(checkpoint), kind, unaligned: false })
}

fn complete(checkpoint: u64, kind: CompletionKind) -> Action {
    Action::Complete { checkpoint: CheckpointId(checkpoint), kind }
}

fn abort(checkpoint: u64, reason: AbortReason) -> Action {
    Action::Abort { checkpoint: CheckpointId(checkpoint), reason }
}

fn discard(checkpoint: u64) -> Action {
    Action::Discard(CheckpointId(checkpoint))
}

fn disk_full(task: u32) -> AbortReason {
    AbortReason::PersistFailed { task: TaskId(task), reason: "disk full".to_owned() }
}

#[test]
fn a_checkpoint_completes_after_all_acknowledgements_and_its_manifest() {
    let mut driver = Driver::new(config(), 3);
    assert_eq!(driver.deadline_ms(), Some(1_000));
    assert_eq!(driver.tick(999), []);
    assert_eq!(driver.tick(1_000), [trigger(40)]);
    assert_eq!(driver.tick(1_000), [], "once");
    assert_eq!(driver.acknowledge(1_100, 2, 40), []);
    assert_eq!(driver.acknowledge(1_100, 2, 40), [], "a repeated acknowledgement counts once");
    assert_eq!(driver.acknowledge(1_200, 0, 40), []);
    let pending = driver.coordinator.pending().next().unwrap();
    assert_eq!((pending.since_ms(), pending.acknowledged(), pending.tasks()), (1_000, 2, 3));
    assert_eq!(pending.missing().collect::<Vec<_>>(), [TaskId(1)]);
    let write = Action::WriteManifest { checkpoint: CheckpointId(40), kind: CompletionKind::Checkpoint };
    assert_eq!(driver.acknowledge(1_300, 1, 40), [write]);
    assert_eq!(driver.tick(1_000_000), [], "no timeout while the manifest is written, and nothing beside it");
    let actions = driver.written(1_000_001, 40);
    assert_eq!(actions, [complete(40, CompletionKind::Checkpoint), trigger(41)], "the interval was over long ago");
    let completed = Completed {
        checkpoint: CheckpointId(40),
        kind: CompletionKind::Checkpoint,
        triggered_at_ms: 1_000,
        completed_at_ms: 1_000_001,
        unaligned: false,
    };
    assert_eq!(driver.coordinator.last_completed(), Some(completed));
}

#[test]
fn s27_a_timeout_names_the_tasks_that_have_not_acknowledged() {
    let mut driver = Driver::new(config(), 12);
    driver.tick(1_000);
    driver.acknowledge(1_500, 4, 40);
    let actions = driver.tick(6_000);
    let Action::Abort { reason, .. } = &actions[0] else { panic!("{actions:?}") };
    let expected = "timed out after 5000 ms: 11 of 12 tasks have not acknowledged it: \
                    task 0, task 1, task 2, task 3, task 5, task 6, task 7, task 8 and 3 more";
    assert_eq!(reason.to_string(), expected);
    assert!(reason.describe(&|task| format!("window[{task}]")).ends_with("window[7], window[8] and 3 more"));
    let (failed, reason) = driver.coordinator.last_failure().unwrap();
    assert_eq!(failed, CheckpointId(40));
    assert!(matches!(reason, AbortReason::TimedOut { missing, .. } if missing.len() == 11 && !missing.contains(&TaskId(4))));
}

#[test]
fn s30_timeout_aborts_and_discards_only_that_checkpoint() {
    let mut driver = Driver::new(config(), 2);
    driver.tick(1_000);
    driver.complete(1_100, 40);
    assert_eq!(driver.tick(2_000), [trigger(41)]);
    driver.acknowledge(2_100, 0, 41);
    assert_eq!(driver.deadline_ms(), Some(7_000));
    assert_eq!(driver.tick(6_999), []);
    let reason = AbortReason::TimedOut { after_ms: 5_000, tasks: 2, missing: vec![TaskId(1)] };
    assert_eq!(driver.tick(7_000), [abort(41, reason), discard(41), trigger(42)]);
    assert_eq!(driver.coordinator.failed(), 1);
    assert_eq!(driver.written(7_001, 41), [], "an aborted checkpoint cannot complete");
    assert_eq!(driver.complete(7_100, 42), [complete(42, CompletionKind::Checkpoint)]);
}

#[test]
fn s31_min_pause_counts_from_completion() {
    let mut driver = Driver::new(Config { min_pause_ms: 700, ..config() }, 1);
    driver.tick(1_000);
    driver.complete(1_100, 40);
    assert_eq!(driver.deadline_ms(), Some(2_000), "a fast one: the interval decides");
    driver.tick(2_000);
    driver.complete(4_900, 41);
    assert_eq!(driver.deadline_ms(), Some(5_600), "a slow one: the pause decides");
    assert_eq!(driver.tick(5_599), []);
    assert_eq!(driver.tick(5_600), [trigger(42)]);
    driver.complete(5_700, 42);
    assert_eq!(driver.tell(5_701, Event::RequestCheckpoint), [trigger(43)], "the pause is not for one that was asked for");
    assert_eq!(driver.tell(5_702, Event::RequestCheckpoint), [], "it waits for its turn");
    assert_eq!(driver.complete(5_703, 43), [complete(43, CompletionKind::Checkpoint), trigger(44)]);
}

#[test]
fn s33_tolerable_failures_exceeded_fail_the_job_and_a_success_resets_the_count() {
    let mut driver = Driver::new(config(), 2);
    driver.tick(1_000);
    assert_eq!(driver.persist_failed(1_100, 1, 40), [abort(40, disk_full(1)), discard(40)]);
    driver.tick(2_000);
    let declined = AbortReason::Declined { task: TaskId(0), reason: "no memory".to_owned() };
    let decline = |checkpoint| Event::Declined {
        task: TaskId(0),
        attempt: ATTEMPT,
        checkpoint: CheckpointId(checkpoint),
        reason: "no memory".to_owned().into(),
    };
    assert_eq!(driver.tell(2_100, decline(41)), [abort(41, declined), discard(41)]);
    assert_eq!(driver.coordinator.failed_in_row(), 2);
    driver.tick(3_000);
    driver.complete(3_100, 42);
    assert_eq!((driver.coordinator.failed_in_row(), driver.coordinator.failed()), (0, 2));
    for (now_ms, checkpoint) in [(4_000, 43), (5_000, 44)] {
        assert_eq!(driver.tick(now_ms), [trigger(checkpoint)]);
        assert_eq!(driver.persist_failed(now_ms, 0, checkpoint), [abort(checkpoint, disk_full(0)), discard(checkpoint)]);
    }
    driver.tick(6_000);
    let reason = JobFailure { checkpoint: CheckpointId(45), failures: 3, last: disk_full(0) };
    let text =
        "checkpoint 45 failed, failure 3 in a row of which 2 are tolerated: task 0 could not store its snapshot: disk full";
    assert_eq!(reason.to_string(), text);
    assert_eq!(driver.persist_failed(6_100, 0, 45), [abort(45, disk_full(0)), discard(45), Action::FailJob { reason }]);
    assert_eq!((driver.deadline_ms(), driver.coordinator.is_over()), (None, true));
    assert_eq!(driver.tick(1_000_000), []);
    assert_eq!(driver.finish_all(1_000_000), []);
}

#[test]
fn s33_an_overtaken_checkpoint_is_not_a_failure() {
    let mut driver = Driver::new(Config { tolerable_failures: 0, ..config() }, 1);
    driver.tick(1_000);
    let by = CheckpointId(41);
    let (task, checkpoint) = (TaskId(0), CheckpointId(40));
    let declined = Event::Declined { task, attempt: ATTEMPT, checkpoint, reason: DeclineReason::Subsumed { by } };
    assert_eq!(driver.tell(1_100, declined), [abort(40, AbortReason::Subsumed { by }), discard(40)]);
    assert_eq!((driver.coordinator.failed(), driver.coordinator.is_over()), (0, false));
}

#[test]
fn s34_a_late_acknowledgement_discards_only_that_tasks_files() {
    let mut driver = Driver::new(config(), 3);
    driver.tick(1_000);
    driver.complete(1_100, 40);
    driver.tick(2_000);
    driver.acknowledge(2_100, 0, 41);
    driver.persist_failed(2_200, 1, 41);
    let discard_of = Action::DiscardOf { task: TaskId(2), checkpoint: CheckpointId(41) };
    assert_eq!(driver.acknowledge(2_300, 2, 41), [discard_of]);
    assert_eq!(driver.acknowledge(2_300, 2, 40), [], "a completed one is left alone");
    assert_eq!(driver.acknowledge(2_300, 2, 39), [], "so is what another attempt may have completed");
    assert_eq!(driver.acknowledge(2_300, 2, 77), [], "and what was never triggered");
}

#[test]
fn s34_nothing_is_discarded_when_the_manifest_may_be_there() {
    let mut driver = Driver::new(config(), 1);
    driver.tick(1_000);
    driver.acknowledge(1_100, 0, 40);
    let reason = "storage is down".to_owned();
    let failed = Event::ManifestFailed { checkpoint: CheckpointId(40), reason: reason.clone() };
    assert_eq!(driver.tell(1_200, failed.clone()), [abort(40, AbortReason::ManifestFailed { reason })]);
    assert_eq!(driver.acknowledge(1_300, 0, 40), []);
    assert_eq!(driver.tell(1_300, failed), []);
    assert_eq!(driver.coordinator.failed(), 1);
}

#[test]
fn answers_of_another_attempt_change_nothing() {
    let mut driver = Driver::new(config(), 1);
    driver.tick(1_000);
    let (task, checkpoint) = (TaskId(0), CheckpointId(40));
    for attempt in [Attempt(1), Attempt(3)] {
        assert_eq!(driver.tell(1_100, Event::Acknowledged { task, attempt, checkpoint }), []);
        let reason = "old".to_owned();
        assert_eq!(driver.tell(1_100, Event::PersistFailed { task, attempt, checkpoint, reason: reason.clone() }), []);
        assert_eq!(driver.tell(1_100, Event::Declined { task, attempt, checkpoint, reason: reason.into() }), []);
    }
    assert_eq!(driver.coordinator.pending().next().unwrap().acknowledged(), 0);
    driver.persist_failed(1_200, 0, 40);
    assert_eq!(driver.tell(1_300, Event::Acknowledged { task, attempt: Attempt(1), checkpoint }), [], "not even a discard");
}

#[test]
fn s32_a_request_runs_next_and_before_periodic_ones() {
    let mut driver = Driver::new(config(), 1);
    driver.tick(1_000);
    assert_eq!(driver.tell(1_500, Event::RequestCheckpoint), []);
    assert_eq!(driver.complete(1_600, 40), [complete(40, CompletionKind::Checkpoint), trigger(41)]);
    driver.complete(1_700, 41);
    assert_eq!(driver.deadline_ms(), Some(2_600), "the interval starts over");
}

#[test]
fn stop_goes_first_suspends_periodic_ones_and_ends_the_job() {
    let mut driver = Driver::new(config(), 2);
    driver.tick(1_000);
    driver.tell(1_100, Event::RequestCheckpoint);
    assert_eq!(driver.tell(1_100, Event::RequestStop), []);
    assert_eq!(driver.complete(1_200, 40), [complete(40, CompletionKind::Checkpoint), trigger_of(41, BarrierKind::Stop)]);
    assert_eq!(driver.tell(1_300, Event::RequestStop), []);
    assert_eq!(driver.tick(4_000), [], "no periodic one beside it");
    assert_eq!(driver.complete(4_100, 41), [complete(41, CompletionKind::Stop), Action::Done(CompletionKind::Stop)]);
    assert_eq!((driver.deadline_ms(), driver.tick(100_000)), (None, vec![]));
}

#[test]
fn a_failed_stop_is_retried_later_and_later_until_the_failures_are_too_many() {
    let mut driver = Driver::new(Config { interval_ms: None, tolerable_failures: 9, ..config() }, 1);
    assert_eq!(driver.deadline_ms(), None, "without interval nothing happens by itself");
    assert_eq!(driver.tell(500, Event::RequestStop), [trigger_of(40, BarrierKind::Stop)]);
    let mut now_ms = 500;
    let mut delays_ms = Vec::new();
    for checkpoint in 40..49 {
        assert_eq!(driver.persist_failed(now_ms, 0, checkpoint), [abort(checkpoint, disk_full(0)), discard(checkpoint)]);
        let retry_ms = driver.deadline_ms().unwrap();
        delays_ms.push(retry_ms - now_ms);
        now_ms = retry_ms;
        assert_eq!(driver.tick(now_ms), [trigger_of(checkpoint + 1, BarrierKind::Stop)]);
    }
    assert_eq!(delays_ms, [100, 200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000]);
    assert!(matches!(driver.persist_failed(now_ms, 0, 49)[..], [_, _, Action::FailJob { .. }]));
}

#[test]
fn s60_the_final_checkpoint_follows_the_last_finished_task_and_ends_the_job() {
    for interval_ms in [None, Some(1_000_000)] {
        let mut driver = Driver::new(Config { interval_ms, ..config() }, 3);
        assert_eq!(driver.tell(10, finished(2)), []);
        assert_eq!(driver.tell(20, finished(2)), [], "twice the same");
        assert_eq!(driver.tell(20, finished(0)), []);
        assert_eq!(driver.tell(500_000, finished(1)), [trigger(40)]);
        driver.persist_failed(500_000, 1, 40);
        assert_eq!(driver.deadline_ms(), Some(500_100));
        assert_eq!(driver.tick(500_100), [trigger(41)]);
        assert_eq!(driver.complete(500_200, 41), [complete(41, CompletionKind::Final), Action::Done(CompletionKind::Final)]);
    }
}

#[test]
fn s60_a_checkpoint_in_progress_when_the_last_task_finishes_is_followed_by_the_final_one() {
    let mut driver = Driver::new(config(), 2);
    driver.tick(1_000);
    driver.acknowledge(1_100, 0, 40);
    assert_eq!(driver.finish_all(1_200), []);
    driver.tell(1_200, Event::RequestStop);
    driver.acknowledge(1_300, 1, 40);
    assert_eq!(driver.written(1_300, 40), [complete(40, CompletionKind::Checkpoint), trigger(41)]);
    assert_eq!(driver.complete(1_400, 41), [complete(41, CompletionKind::Final), Action::Done(CompletionKind::Final)]);
}

#[test]
fn a_stop_in_progress_when_the_last_task_finishes_ends_the_job() {
    let mut driver = Driver::new(config(), 2);
    driver.tell(100, Event::RequestStop);
    assert_eq!(driver.finish_all(200), []);
    assert_eq!(driver.complete(300, 40), [complete(40, CompletionKind::Stop), Action::Done(CompletionKind::Stop)]);
}

#[test]
fn concurrent_checkpoints_write_one_manifest_at_a_time_and_a_newer_one_overtakes() {
    let mut driver = Driver::new(Config { interval_ms: Some(10), max_concurrent: 3, ..config() }, 2);
    for (now_ms, checkpoint) in [(10, 40), (20, 41), (30, 42)] {
        assert_eq!(driver.tick(now_ms), [trigger(checkpoint)]);
    }
    assert_eq!(driver.tick(40), [], "three are in progress");
    let write = |checkpoint| Action::WriteManifest { checkpoint: CheckpointId(checkpoint), kind: CompletionKind::Checkpoint };
    assert_eq!(driver.acknowledge_all(50, 41), [write(41)]);
    assert_eq!(driver.acknowledge_all(50, 40), [], "one manifest at a time");
    assert_eq!(driver.acknowledge_all(50, 42), []);
    let overtaken = abort(40, AbortReason::Subsumed { by: CheckpointId(41) });
    let expected = [complete(41, CompletionKind::Checkpoint), overtaken, discard(40), write(42), trigger(43)];
    assert_eq!(driver.written(60, 41), expected);
    assert_eq!(driver.coordinator.failed(), 0);
}

#[test]
fn a_failing_job_gives_up_everything_in_progress() {
    let mut driver = Driver::new(Config { tolerable_failures: 0, max_concurrent: 3, ..config() }, 1);
    for now_ms in [1_000, 2_000, 3_000] {
        driver.tick(now_ms);
    }
    driver.acknowledge(3_100, 0, 40);
    let actions = driver.persist_failed(3_200, 0, 41);
    let reason = JobFailure { checkpoint: CheckpointId(41), failures: 1, last: disk_full(0) };
    let given_up = |checkpoint| abort(checkpoint, AbortReason::JobFailed);
    let expected = [abort(41, disk_full(0)), discard(41), given_up(40), given_up(42), discard(42), Action::FailJob { reason }];
    assert_eq!(actions, expected, "40 keeps its files: its manifest is being written");
    assert_eq!(driver.written(3_300, 40), [], "the next attempt finds it");
    let discard_of = Action::DiscardOf { task: TaskId(0), checkpoint: CheckpointId(42) };
    assert_eq!(driver.acknowledge(3_300, 0, 42), [discard_of], "late files go even then");
}

#[test]
fn the_deadline_is_always_in_the_future_and_a_tick_before_it_does_nothing() {
    let extremes = [0, 1, 7, 1_000, u64::MAX];
    for (interval_ms, timeout_ms) in extremes.into_iter().flat_map(|interval| extremes.map(|timeout| (interval, timeout))) {
        for max_concurrent in [0, 1, 3] {
            let tolerable_failures = u32::MAX;
            let config = Config {
                interval_ms: Some(interval_ms),
                min_pause_ms: 3,
                timeout_ms,
                tolerable_failures,
                max_concurrent,
                unaligned_after_ms: None,
            };
            let mut driver = Driver::new(config, 1);
            let mut now_ms = 0;
            for _ in 0..100 {
                let deadline_ms = driver.deadline_ms().unwrap();
                assert!(deadline_ms > now_ms);
                if deadline_ms == u64::MAX {
                    break;
                }
                assert_eq!(driver.tick(deadline_ms - 1), []);
                assert_ne!(driver.tick(deadline_ms), []);
                now_ms = deadline_ms;
            }
        }
    }
}

#[test]
fn actions_grow_linearly_with_tasks_and_checkpoints() {
    let count = |tasks: u32, checkpoints: u64| {
        let mut driver = Driver::new(config(), tasks);
        let mut actions = 0;
        for index in 0..checkpoints {
            let now_ms = (index + 1) * 1_000;
            actions += driver.tick(now_ms).len();
            if index % 4 == 0 {
                actions += driver.persist_failed(now_ms, 0, FIRST + index).len();
            }
            actions += driver.acknowledge_all(now_ms, FIRST + index).len();
            actions += driver.written(now_ms, FIRST + index).len();
        }
        assert!(driver.coordinator.aborted.len() <= ABORTED_MAX);
        assert!(driver.coordinator.pending.is_empty());
        actions as u64
    };
    // Completed: trigger, write, complete. Failed: trigger, abort, discard, and one discard per late acknowledgement.
    let expected = |tasks: u64, checkpoints: u64| checkpoints / 4 * (3 * 3 + 3 + tasks);
    for (tasks, checkpoints) in [(1, 8_000), (1_000, 400), (1_000, 800)] {
        assert_eq!(
            count(tasks, checkpoints),
            expected(u64::from(tasks), checkpoints),
            "{tasks} tasks, {checkpoints} checkpoints"
        );
    }
}

fn unalign(checkpoint: u64) -> Action {
    Action::Unalign(CheckpointId(checkpoint))
}

#[test]
fn s05_a_checkpoint_that_takes_long_goes_on_unaligned_once_and_the_next_starts_aligned() {
    let mut driver = Driver::new(Config { unaligned_after_ms: Some(300), max_concurrent: 3, ..config() }, 2);
    assert_eq!(driver.tick(1_000), [trigger(40)]);
    driver.acknowledge(1_100, 0, 40);
    assert_eq!(driver.deadline_ms(), Some(1_300));
    assert_eq!(driver.tick(1_299), []);
    assert_eq!(driver.tick(1_300), [unalign(40)]);
    assert!(driver.coordinator.pending().all(PendingCheckpoint::is_unaligned));
    assert_eq!(driver.tick(1_400), []);
    assert_eq!(driver.deadline_ms(), Some(6_000), "none is started beside it, whatever may be in progress");
    let kind = CompletionKind::Checkpoint;
    assert_eq!(driver.acknowledge(2_000, 1, 40), [Action::WriteManifest { checkpoint: CheckpointId(40), kind }]);
    assert_eq!(driver.written(2_050, 40), [complete(40, kind), trigger(41)]);
    assert!(driver.coordinator.last_completed().unwrap().unaligned);
    assert_eq!(driver.complete(2_100, 41), [complete(41, kind)]);
    assert!(!driver.coordinator.last_completed().unwrap().unaligned);
}

#[test]
fn unaligned_from_the_start_is_said_with_the_barrier() {
    let mut driver = Driver::new(Config { unaligned_after_ms: Some(0), ..config() }, 1);
    let actions = driver.tick(1_000);
    assert!(matches!(actions[..], [Action::Trigger(Barrier { unaligned: true, .. })]), "{actions:?}");
    assert_eq!(driver.tick(2_000), [], "nothing is left to switch");
}

#[test]
fn s88a_the_last_checkpoint_of_a_stop_goes_on_unaligned_as_others_do() {
    let mut driver = Driver::new(Config { unaligned_after_ms: Some(300), ..config() }, 1);
    assert_eq!(driver.tell(500, Event::RequestStop), [trigger_of(40, BarrierKind::Stop)]);
    assert_eq!(driver.deadline_ms(), Some(800));
    assert_eq!(driver.tick(800), [Action::Unalign(CheckpointId(40))]);
    let mut driver = Driver::new(Config { unaligned_after_ms: Some(0), ..config() }, 1);
    let actions = driver.tell(500, Event::RequestStop);
    let is_stop = |barrier: &Barrier| barrier.kind == BarrierKind::Stop && barrier.unaligned;
    assert!(matches!(&actions[..], [Action::Trigger(barrier)] if is_stop(barrier)), "{actions:?}");
    let mut driver = Driver::new(Config { unaligned_after_ms: None, ..config() }, 1);
    assert_eq!(driver.tell(500, Event::RequestStop), [trigger_of(40, BarrierKind::Stop)]);
    assert_eq!(driver.tick(1_500), [], "never is never");
}

#[test]
fn the_last_checkpoint_of_a_job_whose_input_has_ended_stays_aligned() {
    for after_ms in [0, 300] {
        let mut driver = Driver::new(Config { unaligned_after_ms: Some(after_ms), ..config() }, 1);
        assert_eq!(driver.finish_all(500), [trigger(40)]);
        assert_eq!(driver.tick(1_500), []);
        assert_eq!(driver.deadline_ms(), Some(5_500));
    }
}

#[test]
fn a_task_of_another_attempt_does_not_finish_the_job() {
    let mut driver = Driver::new(config(), 1);
    assert_eq!(driver.tell(500, Event::TaskFinished { task: TaskId(0), attempt: Attempt(1) }), []);
    assert_eq!(driver.finish_all(600), [trigger(40)]);
}

#[test]
fn s112_nothing_starts_before_every_task_has_its_state_and_what_is_due_starts_then() {
    let restored = |task, attempt| Event::TaskRestored { task: TaskId(task), attempt };
    for (asked, stops) in [(Event::Tick, false), (Event::RequestCheckpoint, false), (Event::RequestStop, true)] {
        let mut driver = Driver::new(config(), 2);
        driver.coordinator = driver.coordinator.restoring();
        assert_eq!(driver.tell(60_000, asked), []);
        assert_eq!(driver.tell(60_001, restored(0, ATTEMPT)), []);
        assert_eq!(driver.tell(60_002, restored(1, Attempt(1))), [], "of another attempt");
        assert_eq!((driver.deadline_ms(), driver.coordinator.failed()), (None, 0), "no tick changes anything");
        assert!(driver.coordinator.not_restored().eq([TaskId(1)]));
        let kind = if stops { BarrierKind::Stop } else { BarrierKind::Checkpoint };
        assert_eq!(driver.tell(60_003, restored(1, ATTEMPT)), [trigger_of(40, kind)]);
        assert!(!driver.coordinator.is_restoring());
    }
}
