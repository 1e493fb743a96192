//! How jobs end: finished, stopped, and what the same command does afterwards.

use weir_coordinator::{JobError, Notice, Outcome};

use super::store::{EIO, Fault};
use super::world::{JOB, NUMBERS, World};

#[test]
fn a_job_counts_every_number_once_and_is_not_run_again() {
    let world = World::new();
    let outcome = world.run(JOB, |_, _| {}).unwrap();
    let Outcome::Finished(progress) = outcome else { panic!("{outcome:?}") };
    assert_eq!(progress.rows_read, NUMBERS);
    world.assert_exact();
    let outcome = world.run(JOB, |_, _| {}).unwrap();
    assert!(matches!(outcome, Outcome::AlreadyFinished { .. }), "{outcome:?}");
    assert_eq!(world.source.given(), NUMBERS);
    world.assert_exact();
}

#[test]
fn a_finished_job_goes_on_where_its_source_has_more_and_its_operators_remember() {
    let world = World::new();
    world.run(JOB, |_, _| {}).unwrap();
    world.source.grow(NUMBERS / 2);
    let mut found = None;
    let outcome = world.run(JOB, |notice, _| {
        if let Notice::MoreInput { found: said, event_time_max, .. } = notice {
            found = Some((said.clone(), *event_time_max));
        }
    });
    let Ok(Outcome::Finished(progress)) = outcome else { panic!("{outcome:?}") };
    assert_eq!(progress.rows_read, NUMBERS / 2, "nothing is read again");
    let said = vec![("numbers".to_owned(), format!("{} more numbers", NUMBERS / 2))];
    assert_eq!(found, Some((said, Some(NUMBERS as i64 - 1))));
    world.assert_exact_up_to(NUMBERS * 3 / 2, &[NUMBERS, NUMBERS * 3 / 2]);
    let outcome = world.run(JOB, |_, _| {}).unwrap();
    let Outcome::AlreadyFinished { looked_at, .. } = outcome else { panic!("{outcome:?}") };
    assert_eq!(looked_at, [("numbers".to_owned(), format!("{} numbers", NUMBERS * 3 / 2))]);
}

#[test]
fn a_job_that_goes_on_after_its_end_is_as_exact_through_failures_and_at_another_parallelism() {
    let world = World::new();
    world.run(JOB, |_, _| {}).unwrap();
    world.source.grow(NUMBERS / 2);
    let mut failures = 0;
    let job = JOB.replace("parallelism = 2", "parallelism = 3");
    let outcome = world.run(&job, |notice, _| {
        if matches!(notice, Notice::Started { .. } | Notice::Completed { .. }) && failures < 5 {
            failures += 1;
            world.source.fail_once();
        }
    });
    assert!(matches!(outcome, Ok(Outcome::Finished(_))), "{outcome:?}");
    assert!(failures > 1);
    world.assert_exact_up_to(NUMBERS * 3 / 2, &[NUMBERS, NUMBERS * 3 / 2]);
}

#[test]
fn a_finished_job_whose_last_commit_failed_commits_when_it_is_run_again() {
    let world = World::new();
    let job = JOB.replace("5ms", "off").replace("fixed\"\ndelay = \"1ms\"\nattempts = 200", "none\"");
    world.output.fail_commits(1);
    let failed = world.run(&job, |_, _| {}).unwrap_err().to_string();
    assert!(failed.contains("told to fail"), "{failed}");
    let outcome = world.run(&job, |_, _| {}).unwrap();
    assert!(matches!(outcome, Outcome::AlreadyFinished { .. }), "{outcome:?}");
    assert_eq!(world.source.given(), NUMBERS, "nothing was read again");
    world.assert_exact();
}

#[test]
fn a_job_whose_last_commit_fails_for_a_while_finishes_in_the_same_run() {
    let world = World::new();
    world.output.fail_commits(3);
    let outcome = world.run(&JOB.replace("5ms", "off"), |_, _| {}).unwrap();
    assert!(matches!(outcome, Outcome::Finished(_)), "{outcome:?}");
    world.assert_exact();
}

#[test]
fn a_stopped_job_resumes_at_another_parallelism_exactly() {
    for (before, after) in [(2, 2), (2, 3), (3, 1), (1, 8)] {
        let world = World::new();
        let job = |parallelism: u32| JOB.replace("parallelism = 2", &format!("parallelism = {parallelism}"));
        world.stop_half_way(&job(before));
        let given = world.source.given();
        let mut from = None;
        let outcome = world.run(&job(after), |notice, _| {
            if let Notice::Started { from: checkpoint, .. } = notice {
                from = *checkpoint;
            }
        });
        assert!(matches!(outcome, Ok(Outcome::Finished(_))), "{before} -> {after}: {outcome:?}");
        assert!(from.is_some());
        assert_eq!(given + (NUMBERS - given), world.source.given(), "nothing is read again after a stop");
        world.assert_exact();
    }
}

#[test]
fn a_job_that_fails_while_it_stops_is_not_restarted() {
    let world = World::new();
    world.source.hold(NUMBERS / 2);
    let mut restarts = 0;
    let job = JOB.replace("\"5ms\"", "\"5ms\"\ntolerable_failures = 0");
    let outcome = world.run(&job, |notice, stop| match notice {
        Notice::Completed { .. } if world.source.is_holding() => {
            world.store.set(Fault::Manifests(EIO));
            stop.stop();
        }
        Notice::Restarting { .. } => restarts += 1,
        _ => {}
    });
    let Err(JobError::Failed { why_not_restarted, .. }) = outcome else { panic!("{outcome:?}") };
    assert!(why_not_restarted.contains("asked to stop"), "{why_not_restarted}");
    assert_eq!(restarts, 0);
    world.store.set(Fault::None);
    world.source.go_on();
    world.run(JOB, |_, _| {}).unwrap();
    world.assert_exact();
}
