//! What sinks have shown, and what they have yet to show.

use weir_coordinator::{JobError, Notice, Outcome};

use super::failures::{damage_newest, leave_uncommitted};
use super::world::{JOB, NUMBERS, World};

#[test]
fn s89_a_commit_of_an_earlier_execution_that_comes_while_output_is_taken_back_shows_nothing_twice() {
    let world = World::new();
    world.output.allow_retract();
    leave_uncommitted(&world);
    damage_newest(&world, &world.storage());
    world.output.straggle();
    let mut fell_back = 0;
    let outcome = world.run(JOB, |notice, _| fell_back += u32::from(matches!(notice, Notice::FellBack { .. })));
    assert!(matches!(outcome, Ok(Outcome::Finished(_))), "{outcome:?}");
    assert_eq!(fell_back, 1);
    world.assert_exact();
}

#[test]
fn going_back_is_refused_where_a_sink_cannot_take_back_and_allowed_by_who_wants_it() {
    let world = World::new();
    world.output.show_for_good();
    leave_uncommitted(&world);
    damage_newest(&world, &world.storage());
    let error = world.run(JOB, |_, _| {}).unwrap_err().to_string();
    let told = "what sink `out` (memory), `dead_letter` (memory) has shown after checkpoint ";
    assert!(error.contains(told) && error.contains("--allow-repeated-output"), "{error}");
    // The same again, until somebody says so.
    let again = world.run(JOB, |_, _| {}).unwrap_err().to_string();
    assert!(again.contains(told), "{again}");
    let outcome = world.run_as(JOB, |start| start.allow_repeated_output = true, |_, _| {});
    assert!(matches!(outcome, Ok(Outcome::Finished(_))), "{outcome:?}");
}

#[test]
fn output_that_is_gone_before_it_was_shown_ends_the_job_and_names_the_checkpoint() {
    let world = World::new();
    world.source.hold(NUMBERS / 2);
    let outcome = world.run(JOB, |notice, _| {
        if matches!(notice, Notice::Completed { .. }) && world.source.is_holding() {
            world.output.lose_next();
            world.source.hold(NUMBERS * 3 / 4);
        }
    });
    let Err(JobError::Failed { reason, .. }) = outcome else { panic!("{outcome:?}") };
    assert!(reason.contains("sink out cannot show output of checkpoint ") && reason.contains("--fresh"), "{reason}");
}
