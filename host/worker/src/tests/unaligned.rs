//! Barriers that overtake rows: checkpoints of backpressured jobs, and what becomes of the rows that were in flight.

use std::time::Duration;

use weir_coordinator::{Notice, Outcome, Wish};
use weir_storage::ManifestKind;

use super::world::{JOB, World};

/// The job with a sink of its own task, one of which is slow.
fn job(unaligned_after: &str, parallelism: u32) -> String {
    JOB.replace("\"5ms\"", &format!("\"5ms\"\nunaligned_after = \"{unaligned_after}\""))
        .replace("parallelism = 2", &format!("parallelism = {parallelism}"))
        .replace(
            "connector = \"blackhole\"\ninput = \"count\"",
            "connector = \"blackhole\"\ninput = { from = \"count\", exchange = \"rebalance\" }",
        )
}

/// Rows that the newest checkpoint holds in flight.
fn in_flight(world: &World) -> u64 {
    in_flight_from(world, |_| true)
}

/// The same, from some vertices only.
fn in_flight_from(world: &World, from: impl Fn(&str) -> bool) -> u64 {
    let storage = world.storage();
    let newest = storage.manifest(storage.checkpoints().unwrap()[0]).unwrap();
    let subtasks = newest.operators.values().flat_map(|operator| &operator.subtasks);
    subtasks.flat_map(|subtask| &subtask.in_flight).filter(|state| from(&state.from)).map(|state| state.rows).sum()
}

/// Runs the job until a checkpoint has rows in flight, and ends it there and then.
fn end_with_rows_in_flight(world: &World, job: &str) {
    world.output.slow_down(Duration::from_micros(100));
    let outcome = world.run(job, |notice, control| {
        if let Notice::Completed { in_flight_bytes, unaligned, .. } = notice
            && *in_flight_bytes > 0
        {
            assert!(unaligned);
            control.wish(Wish::Cancel);
        }
    });
    assert!(matches!(outcome, Ok(Outcome::Cancelled)), "{outcome:?}");
    world.output.slow_down(Duration::ZERO);
    assert!(in_flight(world) > 0);
}

#[test]
fn s26_checkpoints_of_a_backpressured_job_complete_and_a_restart_goes_on_with_the_rows_in_flight() {
    for unaligned_after in ["0s", "1ms"] {
        let world = World::new();
        let job = job(unaligned_after, 2);
        end_with_rows_in_flight(&world, &job);
        let outcome = world.run(&job, |_, _| {});
        assert!(matches!(outcome, Ok(Outcome::Finished(_))), "{outcome:?}");
        world.assert_exact();
    }
}

#[test]
fn s21_rows_in_flight_are_divided_anew_at_another_parallelism() {
    for (before, after) in [(1, 2), (2, 1), (2, 3), (3, 7), (4, 8), (7, 2)] {
        let world = World::new();
        end_with_rows_in_flight(&world, &job("0s", before));
        let outcome = world.run(&job("0s", after), |_, _| {});
        assert!(matches!(outcome, Ok(Outcome::Finished(_))), "{before} -> {after}: {outcome:?}");
        world.assert_exact();
    }
}

#[test]
fn s83_rows_in_flight_over_an_edge_whose_exchange_has_changed_are_refused_and_exact_once_it_is_put_back() {
    for after in [2, 3] {
        let world = World::new();
        let to_sink = || in_flight_from(&world, |from| from == "count") > 0;
        end_with_rows_in_flight(&world, &job("0s", 2));
        while !to_sink() {
            end_with_rows_in_flight(&world, &job("0s", 2));
        }
        let same = job("0s", after);
        for exchange in ["hash", "broadcast"] {
            let changed = same.replace("exchange = \"rebalance\"", &format!("exchange = \"{exchange}\""));
            let refused = world.run(&changed, |_, _| {}).unwrap_err().to_string();
            assert!(refused.contains("rows were on their way from `count` to `out` by exchange \"rebalance\""), "{refused}");
            assert!(refused.contains(&format!("the job file now says \"{exchange}\"")), "{refused}");
        }
        let outcome = world.run(&same, |_, _| {});
        assert!(matches!(outcome, Ok(Outcome::Finished(_))), "{after}: {outcome:?}");
        world.assert_exact();
    }
}

#[test]
fn s24_a_checkpoint_taken_while_restored_rows_are_worked_off_holds_the_rest_of_them() {
    let world = World::new();
    let job = job("0s", 2);
    end_with_rows_in_flight(&world, &job);
    // Again and again, each time from a checkpoint of an execution that hardly got anywhere.
    for _ in 0..3 {
        end_with_rows_in_flight(&world, &job);
    }
    let outcome = world.run(&job, |_, _| {});
    assert!(matches!(outcome, Ok(Outcome::Finished(_))), "{outcome:?}");
    world.assert_exact();
}

#[test]
fn a_job_that_fails_again_and_again_is_exact_in_every_mode() {
    for unaligned_after in ["0s", "1ms", "never"] {
        let world = World::new();
        world.output.slow_down(Duration::from_micros(100));
        let mut completed = 0;
        let mut failures = 0;
        let outcome = world.run(&job(unaligned_after, 2), |notice, _| {
            if let Notice::Completed { .. } = notice {
                completed += 1;
                if completed % 3 == 1 && failures < 6 {
                    failures += 1;
                    world.source.fail_once();
                }
            }
        });
        assert!(matches!(outcome, Ok(Outcome::Finished(_))), "{unaligned_after}: {outcome:?}");
        assert!(failures > 0, "{unaligned_after}");
        world.assert_exact();
    }
}

#[test]
fn s88a_a_stop_under_total_back_pressure_overtakes_rows_and_goes_on_exactly_at_any_parallelism() {
    for (unaligned_after, before, after) in [("0s", 2, 2), ("50ms", 2, 3), ("50ms", 3, 1), ("0s", 1, 4)] {
        let world = World::new();
        // 50 rows a second, behind an edge that is full.
        world.output.slow_down(Duration::from_millis(20));
        let mut written = 0;
        let outcome = world.run(&job(unaligned_after, before), |notice, control| {
            if let Notice::Completed { in_flight_bytes, .. } = notice
                && *in_flight_bytes > 0
                && written == 0
            {
                written = world.output.rows().len().max(1);
                control.stop();
            }
        });
        assert!(matches!(outcome, Ok(Outcome::Stopped(_))), "{outcome:?}");
        let storage = world.storage();
        let newest = storage.manifest(storage.checkpoints().unwrap()[0]).unwrap();
        assert_eq!(newest.kind, ManifestKind::Stop);
        assert!(in_flight(&world) > 0, "it did not wait until the sink had written all that was on its way");
        world.output.slow_down(Duration::ZERO);
        let outcome = world.run(&job("0s", after), |_, _| {});
        assert!(matches!(outcome, Ok(Outcome::Finished(_))), "{before} -> {after}: {outcome:?}");
        world.assert_exact();
    }
}

#[test]
fn a_job_whose_barriers_never_overtake_is_stopped_without_rows_in_flight() {
    let world = World::new();
    let job = job("never", 2);
    world.output.slow_down(Duration::from_micros(100));
    world.stop_half_way(&job);
    assert_eq!(in_flight(&world), 0);
    world.output.slow_down(Duration::ZERO);
    world.run(&job, |_, _| {}).unwrap();
    world.assert_exact();
}
