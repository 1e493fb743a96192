//! State that does not fit the job is refused, with what to do.

use serde_json::json;

use weir_coordinator::{JobError, Outcome};

use super::world::{JOB, World};

fn refusal(world: &World, job: &str) -> String {
    match world.run(job, |_, _| {}) {
        Err(JobError::Refused(reason)) => reason,
        other => panic!("{other:?}"),
    }
}

const ONE_INSTANCE: (&str, &str) = ("exchange = \"hash\"", "exchange = \"rebalance\"");

#[test]
fn s54_state_of_another_digest_configuration_or_number_of_key_groups_is_refused_and_nothing_is_changed() {
    let world = World::new();
    world.stop_half_way(JOB);
    let cases = [
        (
            JOB.replace("path = \"count\"", "path = \"count2\""),
            "an image fits only the code that wrote it: name the earlier version again",
        ),
        (
            JOB.replace("exchange = \"hash\" }", "exchange = \"hash\" }\nconfig = { every = 2 }"),
            "the configuration of operator `count` has changed: `every` was not set;",
        ),
        (JOB.replace("key_groups = 8", "key_groups = 16"), "it was taken with 8 key groups, the job file says 16"),
        (JOB.replace(ONE_INSTANCE.0, ONE_INSTANCE.1), "operator `count` was keyed and now is not"),
    ];
    for (job, reason) in cases {
        let refused = refusal(&world, &job);
        assert!(refused.starts_with("cannot resume from checkpoint ") && refused.contains(reason), "{refused}");
        assert!(refused.contains("--fresh"), "{refused}");
    }
    world.run(JOB, |_, _| {}).unwrap();
    world.assert_exact();
}

#[test]
fn state_of_an_operator_without_key_groups_is_not_divided() {
    let world = World::new();
    let job = JOB.replace(ONE_INSTANCE.0, ONE_INSTANCE.1);
    world.stop_half_way(&job);
    let refused = refusal(&world, &job.replace("parallelism = 2", "parallelism = 3"));
    assert!(
        refused.contains("operator `count` had parallelism 2 and now has 3") && refused.contains("set parallelism = 2"),
        "{refused}"
    );
    world.run(&job, |_, _| {}).unwrap();
    world.assert_exact();
}

#[test]
fn s57_state_of_a_removed_operator_is_refused_without_the_flag_and_dropped_with_it() {
    let world = World::new();
    world.stop_half_way(JOB);
    let renamed = JOB.replace("id = \"count\"", "id = \"total\"").replace("input = \"count\"", "input = \"total\"");
    let refused = refusal(&world, &renamed);
    assert!(refused.contains("it has state of `count`, which the job file no longer names"), "{refused}");
    assert!(refused.contains("--allow-dropped-state"), "{refused}");
    let outcome = world.run_as(&renamed, |start| start.allow_dropped_state = true, |_, _| {}).unwrap();
    assert!(matches!(outcome, Outcome::Finished(_)), "{outcome:?}");
    let rows = world.output.rows();
    let counted: u64 = rows.iter().filter(|value| value.len() == 20).map(|value| value.parse::<u64>().unwrap()).sum();
    let written = rows.iter().filter(|value| value.len() < 20).count() as u64;
    assert!(counted > 0 && counted < written, "the new operator counted only what came after: {counted} of {written}");
}

#[test]
fn an_id_that_changes_its_kind_does_not_lose_its_state_silently() {
    let world = World::new();
    world.stop_half_way(JOB);
    let swapped = JOB
        .replace("id = \"numbers\"", "id = \"x\"")
        .replace("id = \"count\"", "id = \"numbers\"")
        .replace("from = \"numbers\"", "from = \"x\"")
        .replace("id = \"x\"", "id = \"count\"")
        .replace("from = \"x\"", "from = \"count\"")
        .replace("input = \"count\"", "input = \"numbers\"");
    let refused = refusal(&world, &swapped);
    assert!(refused.contains("was an operator and now is a source"), "{refused}");
    assert!(refused.contains("give the new one another id"), "{refused}");
}

#[test]
fn state_of_another_job_file_is_refused() {
    let world = World::new();
    world.stop_half_way(JOB);
    let refused = world.run_as(JOB, |start| start.file = "other.toml".to_owned(), |_, _| {}).unwrap_err().to_string();
    assert!(refused.contains("its state belongs to job.toml"), "{refused}");
}

#[test]
fn a_fresh_start_forgets_everything() {
    let world = World::new();
    world.output.allow_retract();
    world.stop_half_way(JOB);
    let changed = JOB.replace("path = \"count\"", "path = \"count2\"");
    world.run_as(&changed, |start| start.fresh = true, |_, _| {}).unwrap();
    world.assert_exact();
    assert_eq!(json!(world.storage().manifest(world.storage().checkpoints().unwrap()[0]).unwrap().kind), json!("final"));
}
