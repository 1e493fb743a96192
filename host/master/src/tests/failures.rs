//! Storage that fails, workers that are lost, answers that come late: what follows in every place.

use weir_model::{Attempt, CheckpointId};
use weir_protocol::{FailureKind, Report};
use weir_storage::{ManifestKind, StorageError};

use super::bench::{Bench, Settings, WORKERS, adopted, durable, task_of};
use super::places::{ALL, At, reach, running};
use crate::StoreFailureKind::{Broken, Damaged, Fenced, Permanent, TimedOut, Transient};
use crate::{Input, Led, Limits, Notice, Output, Stored, Wish};

#[test]
fn each_failure_of_the_storage_in_each_place_leads_where_it_must() {
    // Tried again; the job ends; tasks go on; tasks are ended and begun anew.
    let (again, over, goes_on, anew) = ("again", "over", "goes on", "anew");
    let table = [
        (At::Claim, [again, over, over, over, again, again]),
        (At::Fit, [goes_on; 6]),
        (At::Begin, [again, over, over, over, again, again]),
        (At::Lead, [anew; 6]),
        (At::Writing, [goes_on, goes_on, goes_on, over, anew, anew]),
        (At::RunFit, [goes_on; 6]),
    ];
    for (at, expected) in table {
        for (kind, expected) in [Transient, Permanent, Damaged, Fenced, TimedOut, Broken].into_iter().zip(expected) {
            let mut bench = reach(at);
            let before = bench.log.len();
            bench.refuse(kind);
            bench.work();
            let said = bench.log[before..].join("\n");
            let found = match () {
                () if bench.over.is_some() => over,
                () if said.contains("Cancel") && said.contains("Restarting") => anew,
                () if said.contains("Restarting") => again,
                () => goes_on,
            };
            assert_eq!(found, expected, "{at:?}, {kind:?}: {said}");
            if expected != over {
                bench.pass(1_000);
                bench.settle();
                bench.pass(1_000);
                bench.settle();
                assert!(bench.attempts > 0 && bench.over.is_none(), "{at:?}, {kind:?}: it goes on when the storage does");
            }
        }
    }
}

#[test]
fn every_request_is_given_up_after_its_deadline_as_if_it_had_failed() {
    for at in ALL.into_iter().filter(|at| at.asks()) {
        let mut late = reach(at);
        late.hangs = true;
        late.pass(Limits::DEFAULT.store_begin_ms_max);
        late.work();
        assert!(late.over.is_none(), "{at:?}: {}", late.end());
        let told = late.notices.iter().filter(|notice| matches!(notice, Notice::SlowStorage { .. })).count();
        assert!(told >= 3, "{at:?}: {told}");
    }
}

#[test]
fn s86_storage_that_does_not_answer_is_told_of_with_what_is_waited_for_and_how_long() {
    let mut bench = reach(At::Writing);
    bench.pass(59_000);
    let told = bench.notices.iter().filter_map(|notice| match notice {
        Notice::SlowStorage { what, place, waited } => Some((what.as_str(), place.as_str(), waited.as_secs())),
        _ => None,
    });
    let (what, place) = ("the manifest of checkpoint 2 (attempt 1) is being written", "the checkpoint storage memory: of job j");
    assert_eq!(told.collect::<Vec<_>>(), [5, 10, 20, 40].map(|waited| (what, place, waited)));
}

#[test]
fn a_commit_that_hangs_is_told_of_with_its_sink_and_worker_also_while_the_job_ends() {
    let told = |bench: &Bench| -> Vec<u64> {
        let told = bench.notices.iter().filter_map(|notice| match notice {
            Notice::SlowCommit { sinks, workers, waited } => {
                assert_eq!((&sinks[..], &workers[..]), (&["out".to_owned()][..], &["b".to_owned()][..]));
                Some(waited.as_secs())
            }
            _ => None,
        });
        told.collect()
    };
    for ends in [false, true] {
        let mut bench = running();
        if ends {
            bench.wish(Wish::Stop);
        } else {
            bench.pass(1_000);
        }
        bench.commits_hang = true;
        bench.settle();
        for (seconds, expected) in [(4, &[][..]), (1, &[5]), (5, &[5, 10]), (10, &[5, 10, 20])] {
            for _ in 0..seconds {
                bench.pass(1_000);
                bench.settle();
            }
            assert_eq!(told(&bench), expected, "{ends}");
        }
        assert!(bench.over.is_none(), "what sinks show is the job's result: it is waited for");
        bench.commits_hang = false;
        bench.settle();
        assert_eq!(bench.over.is_some(), ends);
        bench.pass(30_000);
        assert_eq!(told(&bench).len(), 3, "{ends}");
    }
}

#[test]
fn s86_all_goes_on_when_the_storage_heals() {
    for at in ALL.into_iter().filter(|at| at.asks()) {
        let mut bench = reach(at);
        bench.hangs = true;
        for _ in 0..20 {
            bench.pass(60_000);
            bench.answer();
            bench.work();
        }
        assert!(bench.over.is_none(), "{at:?}: {}", bench.end());
        bench.hangs = false;
        // All that was ever asked for is carried out now, in its order; only the last is listened to.
        let before = bench.complete.len();
        for _ in 0..4 {
            bench.settle();
            bench.pass(1_000);
        }
        bench.settle();
        assert!(bench.complete.len() > before + 1, "{at:?}: checkpoints complete again");
    }
}

#[test]
fn an_answer_that_comes_after_its_request_was_given_up_changes_nothing() {
    for at in ALL.into_iter().filter(|at| at.asks()) {
        let mut bench = reach(at);
        let (request, _) = bench.asked.pop().unwrap();
        bench.hangs = true;
        bench.pass(Limits::DEFAULT.store_begin_ms_max);
        let before = bench.log.len();
        for stored in [
            Stored::Newest(None),
            Stored::Completed(durable(Attempt(1), CheckpointId(2), ManifestKind::Checkpoint)),
            Stored::Claimed(crate::Claimed::Others { origin: "other".to_owned() }),
        ] {
            bench.tell(Input::Stored { request, answer: Ok(stored) });
        }
        assert_eq!(bench.log.len(), before, "{at:?}: {:?}", &bench.log[before..]);
    }
}

#[test]
fn a_manifest_that_comes_after_it_was_given_up_is_announced_by_nobody_but_the_attempt_that_finds_it() {
    let mut bench = reach(At::Writing);
    let late = bench.asked.pop().unwrap();
    bench.pass(Limits::DEFAULT.store_ms_max);
    bench.asked.insert(0, late);
    // It takes effect, and then its answer comes.
    bench.store();
    assert!(!bench.was_told("Completed { execution: Execution { job: \"j\", attempt: Attempt(1) }, checkpoint: CheckpointId(2)"));
    bench.settle();
    bench.pass(10);
    bench.settle();
    assert!(bench.was_told("Started { attempt: Attempt(2), from: Some(CheckpointId(2)) }"));
}

#[test]
fn a_lost_worker_ends_what_is_there_in_every_place_and_another_execution_follows() {
    for at in ALL {
        let mut bench = reach(at);
        bench.hangs = true;
        let before = bench.log.len();
        bench.lose("a");
        bench.commands.retain(|(_, command)| matches!(command, weir_protocol::Command::Cancel { .. }));
        bench.work();
        let said = bench.log[before..].join("\n");
        let is_hit = at.has_workers() && !matches!(at, At::Ending | At::Rescaling);
        assert_eq!(said.contains("WorkerLost"), is_hit, "{at:?}: {said}");
        let ends = is_hit || at == At::Ending;
        assert_eq!(said.contains("Restarting"), ends, "{at:?}, although the storage does not answer: {said}");
        bench.hangs = false;
        bench.pass(100);
        bench.settle();
        assert!(bench.over.is_none(), "{at:?}: {}", bench.end());
    }
}

#[test]
fn s87_a_worker_that_is_stuck_in_a_step_is_named_within_five_seconds_and_the_attempt_ends_after_its_bound() {
    for at in [At::Trial, At::Prepare, At::Restore, At::Build] {
        let mut bench = reach(at);
        // One of them answers, the other never does.
        bench.commands.retain(|(worker, _)| **worker == *WORKERS[0]);
        bench.work();
        bench.commands.clear();
        bench.pass(5_000);
        let told = bench.notices.iter().rev().find_map(|notice| match notice {
            Notice::SlowStep { workers, .. } => Some(workers.clone()),
            _ => None,
        });
        assert_eq!(told, Some(vec!["b".to_owned()]), "{at:?}");
        assert!(!bench.was_told("Cancel"), "{at:?}: it is waited for");
        bench.pass(Limits::DEFAULT.step_ms_max);
        assert!(bench.was_told("Cancel"), "{at:?}: it is waited for no longer");
        bench.pass(Limits::DEFAULT.trial_end_ms_max);
        assert!(bench.was_told("it was waited for for 1800 s"), "{at:?}");
        bench.settle();
        bench.pass(20);
        bench.settle();
        assert!(bench.was_told("Started"), "{at:?}: another attempt begins, and runs");
    }
}

#[test]
fn a_disk_that_takes_no_record_uses_up_no_restart() {
    let mut bench = reach(At::Record);
    for _ in 0..50 {
        assert!(matches!(bench.said.pop_front(), Some(Output::Record(_))), "{:?}", bench.said);
        bench.tell(Input::Recorded(Err("no space left".to_owned())));
        bench.pass(Limits::DEFAULT.record_retry_ms_max);
    }
    assert_eq!(bench.end(), "not at all");
    assert!(!bench.was_told("Restarting") && !bench.was_told("Cancel"), "what was built stays");
    let told = bench.notices.iter().filter(|notice| matches!(notice, Notice::NotRecorded { .. })).count();
    assert_eq!(told, 1);
    bench.settle();
    assert!(bench.was_told("Started { attempt: Attempt(1)"));
}

#[test]
fn a_record_that_is_taken_after_somebody_has_ended_the_execution_starts_nothing() {
    let mut bench = reach(At::Record);
    bench.fail(FailureKind::Transient);
    bench.answer();
    assert!(!bench.was_told("command: Start"));
}

#[test]
fn damage_that_a_worker_tells_of_goes_to_the_storage_before_another_attempt_is_prepared() {
    let mut bench = running();
    bench.fail(FailureKind::Transient);
    bench.work();
    bench.pass(10);
    bench.answer();
    bench.store();
    bench.work();
    assert!(bench.was_told("command: Restore"));
    bench.fail(FailureKind::Damaged);
    bench.work();
    bench.answer();
    assert!(bench.was_told("FellBack { checkpoint: CheckpointId(1)"));
    let asked = format!("{:?}", bench.asked);
    assert!(asked.contains("Begin { void: [CheckpointId(1)] }"), "{asked}");
    // It is not known whether that was carried out: it is said again.
    bench.refuse(TimedOut);
    bench.pass(10);
    bench.answer();
    let asked = format!("{:?}", bench.asked);
    assert!(asked.contains("Begin { void: [CheckpointId(1)] }"), "{asked}");
    bench.settle();
    bench.fail(FailureKind::Transient);
    bench.settle();
    bench.pass(10);
    bench.settle();
    assert!(bench.log.iter().rev().find(|said| said.contains("Begin {")).unwrap().contains("void: []"), "said once it is known");
}

#[test]
fn an_execution_that_a_newer_attempt_has_fenced_is_not_taken_over() {
    let mut bench = reach(At::Lead);
    let (request, _) = bench.asked.pop().unwrap();
    let led = Led { newest_attempt: Attempt(4), newest: None, next_checkpoint: CheckpointId(8) };
    bench.tell(Input::Stored { request, answer: Ok(Stored::Led(Box::new(led))) });
    assert!(!bench.was_told("TakenOver"));
    assert!(bench.was_told("Cancel"));
    assert!(bench.was_told("attempt 4 of the job has begun since"));
    bench.settle();
    bench.pass(10);
    bench.settle();
    assert!(bench.was_told("Started"));
}

#[test]
fn an_execution_whose_last_checkpoint_was_complete_before_it_was_taken_over_takes_no_other() {
    for (kind, end) in [(ManifestKind::Stop, "stopped"), (ManifestKind::Final, "finished")] {
        for committed in [6, 7] {
            let mut bench = Bench::new(Settings { adopted: Some(adopted(7, committed)), ..Settings::default() });
            bench.attempts = 3;
            bench.complete.push(durable(Attempt(3), CheckpointId(7), kind));
            bench.store();
            bench.settle();
            bench.pass(5_000);
            assert_eq!(bench.end(), end, "{kind:?}, {committed}");
            assert!(!bench.was_told("Trigger") && !bench.was_told("Abort"), "{kind:?}, {committed}");
            assert!(bench.was_told("command: Completed"), "it is said again");
        }
    }
}

#[test]
fn what_tasks_say_while_their_master_reads_the_storage_counts() {
    let mut bench = reach(At::Lead);
    bench.attempts = 3;
    for worker in WORKERS {
        let execution = weir_protocol::Execution { job: "j".to_owned(), attempt: Attempt(3) };
        let report = Box::new(Report::Finished { execution, task: task_of(worker) });
        bench.tell(Input::Report { worker: worker.into(), report });
    }
    bench.settle();
    assert_eq!(bench.end(), "finished");
}

#[test]
fn a_master_that_panics_ends_its_execution_and_begins_another() {
    for at in [At::Prepare, At::Run, At::Writing, At::Lead] {
        let mut bench = reach(at);
        bench.commands.clear();
        let mut out = Vec::new();
        let now = crate::Now { steady_ms: bench.now_ms, wall_ms: 0, random: 0 };
        bench.master.recover(now, "at x.rs:1: told to", &mut out);
        bench.take(out);
        assert!(bench.was_told("Cancel") && bench.was_told("its master panicked at x.rs:1"), "{at:?}");
        bench.commands.clear();
        bench.asked.clear();
        bench.pass(10);
        bench.settle();
        assert!(bench.was_told("Started"), "{at:?}");
    }
}

#[test]
fn nothing_is_asked_of_the_storage_or_anyone_after_the_end() {
    for at in ALL {
        let mut bench = reach(at);
        bench.wish(Wish::Cancel);
        bench.pass(Limits::DEFAULT.trial_end_ms_max);
        let before = bench.log.len();
        bench.wish(Wish::Stop);
        bench.wish(Wish::Rescale(1));
        bench.lose("a");
        bench.tell(Input::SlotsChanged);
        bench.tell(Input::Recorded(Ok(())));
        bench.tell(Input::Leave);
        bench.settle();
        assert_eq!(bench.log.len(), before, "{at:?}");
        assert_eq!(bench.master.deadline_ms(), None, "{at:?}");
    }
}

#[test]
fn a_job_that_another_process_has_is_tried_again_where_nobody_waits_for_the_command() {
    let locked = StorageError::Locked { job: "j".to_owned(), holder: "process 7".to_owned(), path: "lock".to_owned() };
    for (impatient, end) in [(false, "not at all"), (true, "error: job `j` is in use by process 7")] {
        let mut bench = Bench::new(Settings { impatient, ..Settings::default() });
        let (request, _) = bench.asked.pop().unwrap();
        bench.tell(Input::Stored { request, answer: Err((&locked).into()) });
        assert!(bench.end().starts_with(end), "{}", bench.end());
    }
}
