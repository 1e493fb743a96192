//! What people wish is answered in every place, whatever the storage does.

use super::bench::Bench;
use super::places::{ALL, At, reach};
use crate::{Input, Limits, StoreFailureKind, Wish};

/// The workers end what they are told to end; nobody else answers anything.
fn only_workers_end(bench: &mut Bench) {
    bench.hangs = true;
    bench.commands.retain(|(_, command)| matches!(command, weir_protocol::Command::Cancel { .. }));
    bench.work();
}

#[test]
fn s86_a_cancel_is_answered_at_once_in_every_place_although_the_storage_never_answers() {
    for at in ALL {
        let mut bench = reach(at);
        bench.wish(Wish::Cancel);
        only_workers_end(&mut bench);
        assert_eq!(bench.end(), "cancelled", "{at:?}");
    }
}

#[test]
fn s86_a_cancel_is_answered_in_every_place_although_neither_storage_nor_workers_answer() {
    for at in ALL {
        let mut bench = reach(at);
        bench.wish(Wish::Cancel);
        bench.pass(Limits::DEFAULT.trial_end_ms_max);
        assert_eq!(bench.end(), "cancelled", "{at:?}");
    }
}

#[test]
fn s86_a_process_that_ends_is_left_at_once_in_every_place_and_tasks_that_run_go_on() {
    for at in ALL {
        let mut bench = reach(at);
        let before = bench.log.len();
        bench.tell(Input::Leave);
        assert_eq!(bench.end(), "left", "{at:?}");
        let told_to_end = bench.log[before..].iter().any(|said| said.contains("Cancel"));
        let is_built = matches!(at, At::Trial | At::Prepare | At::Restore | At::Build | At::Record);
        assert_eq!(told_to_end, is_built, "{at:?}: what is not started ends, what runs goes on");
    }
}

#[test]
fn s86_a_stop_is_answered_in_every_place_although_the_storage_never_answers() {
    for at in ALL {
        let mut bench = reach(at);
        bench.wish(Wish::Stop);
        only_workers_end(&mut bench);
        let runs = matches!(at, At::Lead | At::Run | At::Writing | At::RunFit);
        if !runs {
            assert_eq!(bench.end(), "stopped between", "{at:?}: nothing runs, so at once");
            continue;
        }
        assert_eq!(bench.end(), "not at all", "{at:?}: a last checkpoint is wanted");
        // Workers acknowledge whatever they are asked for; the manifest is never written.
        for _ in 0..4 {
            bench.work();
            bench.pass(Limits::DEFAULT.store_ms_max / 2);
        }
        bench.work();
        assert_eq!(bench.end(), "stopped by a failure", "{at:?}");
        assert!(bench.was_told("has not answered for 60 s"), "{at:?}: it says why");
    }
}

#[test]
fn a_stop_in_every_place_where_all_answer_ends_the_job_as_it_says() {
    for at in ALL {
        let mut bench = reach(at);
        bench.wish(Wish::Stop);
        bench.settle();
        let runs = matches!(at, At::Lead | At::Run | At::Writing | At::RunFit);
        assert_eq!(bench.end(), if runs { "stopped" } else { "stopped between" }, "{at:?}");
    }
}

#[test]
fn another_parallelism_is_had_in_every_place() {
    for at in ALL {
        let mut bench = reach(at);
        bench.wish(Wish::Rescale(1));
        for _ in 0..4 {
            bench.settle();
            bench.pass(1_000);
        }
        bench.settle();
        assert_eq!(bench.end(), "not at all", "{at:?}");
        assert!(bench.was_told("Rescaling { from: 2, to: 1 }"), "{at:?}");
        let prepared = bench.log.iter().rev().find(|said| said.contains("Prepare(")).unwrap();
        assert!(prepared.contains("tasks: [0]"), "{at:?}: {prepared}");
    }
}

#[test]
fn s86_another_parallelism_is_refused_where_tasks_run_and_the_storage_never_answers_and_kept_elsewhere() {
    for at in ALL {
        let mut bench = reach(at);
        bench.hangs = true;
        bench.wish(Wish::Rescale(1));
        // Tasks that run take checkpoints meanwhile.
        for _ in 0..Limits::DEFAULT.store_ms_max / 1_000 {
            bench.work();
            bench.pass(1_000);
        }
        let refused = bench.was_told("RescaleRefused");
        // A manifest that is late ends the execution first, and the wish stays.
        assert_eq!(refused, matches!(at, At::Run | At::RunFit), "{at:?}");
    }
}

#[test]
fn another_parallelism_is_refused_while_the_job_stops() {
    let mut bench = reach(At::Run);
    bench.wish(Wish::Stop);
    bench.wish(Wish::Rescale(1));
    assert!(bench.was_told("RescaleRefused { parallelism: 1, reason: \"the job is about to end\" }"));
    bench.settle();
    assert_eq!(bench.end(), "stopped");
}

#[test]
fn the_last_of_two_wishes_counts_in_every_place() {
    for at in ALL {
        let mut bench = reach(at);
        bench.wish(Wish::Rescale(1));
        bench.wish(Wish::Rescale(2));
        for _ in 0..4 {
            bench.settle();
            bench.pass(1_000);
        }
        bench.settle();
        // One that is taken over has that parallelism.
        let prepared = bench.log.iter().rev().find(|said| said.contains("Prepare("));
        assert!(prepared.is_none_or(|prepared| prepared.contains("tasks: [0, 1]")), "{at:?}: {prepared:?}");
    }
}

#[test]
fn a_stop_is_not_lost_where_the_execution_fails_before_its_last_checkpoint() {
    for kind in [StoreFailureKind::TimedOut, StoreFailureKind::Broken] {
        let mut bench = reach(At::Writing);
        bench.wish(Wish::Stop);
        bench.refuse(kind);
        bench.settle();
        assert_eq!(bench.end(), "stopped by a failure", "{kind:?}");
    }
    let mut bench = reach(At::Run);
    bench.wish(Wish::Stop);
    bench.lose("a");
    bench.settle();
    assert_eq!(bench.end(), "stopped by a failure");
}
