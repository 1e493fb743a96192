//! s94, s131: what a user sees where operators want more memory than there is, and where the cache of compiled components is not
//! to be trusted.

mod support;

use std::os::unix::fs::symlink;

use support::{World, run};

/// Counts many keys with a first-party operator.
const JOB: &str = r#"[job]
name = "many"

[job.checkpoint]
interval = "500ms"

[job.restart]
strategy = "none"

[[source]]
id = "rows"
connector = "generator"
rows = 3000000
keys = 1000000

[[operator]]
id = "count"
component = "window@1.2.0"
input = { from = "rows", exchange = "hash" }
config = { kind = "tumbling", size = "100d", aggregate = "count" }

[[sink]]
id = "out"
connector = "blackhole"
input = "count"
"#;

#[test]
fn s94_the_operator_that_takes_too_much_of_a_process_is_named_and_the_process_ends_in_order() {
    let world = World::new();
    world.write("job.toml", JOB);
    let done = run(&mut world.command(&["run", "job.toml", "--memory", "60MiB"]));
    assert!(done.code.is_some_and(|code| code != 0), "no signal ended it: {done:?}");
    // Whether it is what instances hold, or the next one that is not made, depends on the machine's pace.
    for expected in ["operator count", "62914560", "raise --memory"] {
        assert!(done.stderr.contains(expected), "{}", done.stderr);
    }
}

#[test]
fn a_memory_that_is_none_is_refused() {
    let world = World::new();
    world.write("job.toml", JOB);
    for (size, expected) in [("5KiB", "at least 1MiB"), ("much", "much")] {
        let done = run(&mut world.command(&["run", "job.toml", "--memory", size]));
        assert!(done.code == Some(2) && done.stderr.contains(expected), "{done:?}");
    }
}

#[test]
fn s131_a_cache_whose_key_is_a_link_is_named_and_not_used() {
    let world = World::new();
    world.write("job.toml", JOB);
    let compiled = world.path("data/compiled");
    std::fs::create_dir_all(&compiled).expect("the folder");
    symlink("/proc/self/pagemap", compiled.join("key")).expect("the link");
    let few = ["run", "job.toml", "--set", "source.rows.rows=10"];
    let done = run(&mut world.command(&few));
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert!(done.stderr.contains("compiled/key is not trusted: it is a link"), "{}", done.stderr);
    assert_eq!(std::fs::read_dir(&compiled).expect("the folder").count(), 1, "nothing is kept");
    std::fs::remove_file(compiled.join("key")).expect("the link");
    assert_eq!(run(world.command(&few).arg("--fresh")).code, Some(0));
    assert_eq!(
        std::fs::read_dir(&compiled).expect("the folder").count(),
        4,
        "a key, what the component says of itself, and both its forms"
    );
}
