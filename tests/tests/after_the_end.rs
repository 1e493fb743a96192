//! Jobs that had finished and are run again: examples and jobs over folders that grow, against a recount.

use std::collections::BTreeMap;

use weir_tests::{KeyedJob, World, dead_letters, rows};

/// Counts the rows of each key in windows of five minutes.
const JOB: KeyedJob = KeyedJob {
    name: "counts",
    job: "parallelism = 2\ncheckpoint = { interval = \"50ms\" }",
    source: "path = \"in\"\nevent_time = { field = \"t\", format = \"unix-s\" }\nwatermark = { delay = \"5s\" }",
    key: "k",
    uid: "count",
    operator: "component = \"window@1.2.0\"\nconfig = { kind = \"tumbling\", size = \"5m\", aggregate = \"count\" }",
    more: "\n[[sink]]\nid = \"late\"\nconnector = \"file\"\ninput = \"count.late\"\npath = \"late\"",
};

/// Seconds of a window.
const WINDOW: i64 = 300;

/// A row every seven seconds from one second to another.
fn log(from: i64, to: i64) -> String {
    (from..to).step_by(7).map(|t| format!("{{\"t\":{t},\"k\":\"{}\"}}\n", t % 5)).collect()
}

/// Rows of each key and window, counted by hand.
fn recount(logs: &[(i64, i64)]) -> BTreeMap<(String, i64), u64> {
    let mut counts = BTreeMap::new();
    for t in logs.iter().flat_map(|&(from, to)| (from..to).step_by(7)) {
        *counts.entry(((t % 5).to_string(), t - t % WINDOW)).or_default() += 1;
    }
    counts
}

/// The same as the job wrote it. No window of a key is there twice.
fn counted(world: &World) -> BTreeMap<(String, i64), u64> {
    let mut counts = BTreeMap::new();
    for row in rows(&world.path("out")) {
        let start = row.value["start"].as_i64().expect("a start") / 1_000;
        let before = counts.insert((row.key.clone(), start), row.value["count"].as_u64().expect("a count"));
        assert_eq!(before, None, "window {start} of {} was sent twice", row.key);
    }
    counts
}

#[test]
fn a_daily_batch_over_a_growing_folder_gives_what_a_recount_gives() {
    let world = World::new();
    world.write("job.toml", JOB.text());
    // Whole windows, then a day that ends within a window, of which the next day brings more.
    let days = [(0, 6_000), (6_000, 12_100), (12_107, 18_000)];
    let again = |what: &str| assert_eq!(what.matches("there is nothing more to read").count(), 1, "{what}");
    for (day, (from, to)) in days.into_iter().enumerate() {
        world.write(&format!("in/{day}.log"), log(from, to));
        let ran = world.run(&["job.toml"]);
        let goes_on = ran.stderr.contains("1 file new") && ran.stderr.contains("what the end has closed stays closed");
        assert_eq!(goes_on, day > 0, "{}", ran.stderr);
        again(&world.run(&["job.toml"]).stderr);
    }
    let mut expected = recount(&days[..2]);
    // The second day has closed the window that it ended in.
    let closed = 12_100 - 12_100 % WINDOW + WINDOW;
    let next = recount(&days[2..]);
    expected.extend(next.iter().filter(|((_, start), _)| *start >= closed).map(|(window, count)| (window.clone(), *count)));
    assert_eq!(counted(&world), expected);
    let late: u64 = next.iter().filter(|((_, start), _)| *start < closed).map(|(_, count)| count).sum();
    assert_eq!(rows(&world.path("late")).len() as u64, late, "every row is counted once, or late");
    assert!(late > 0);
}

#[test]
fn a_file_that_grew_is_read_on_and_another_path_is_read() {
    let world = World::new();
    world.write("job.toml", JOB.text());
    world.write("in/sample.log", log(0, 600));
    world.run(&["job.toml"]);
    world.write("in/sample.log", log(0, 600) + &log(900, 1_500));
    world.run(&["job.toml"]);
    assert_eq!(counted(&world), recount(&[(0, 600), (900, 1_500)]));
    world.write("own.log", log(3_000, 3_600));
    let ran = world.run(&["job.toml", "--set", "source.log.path=own.log"]);
    assert!(ran.stderr.contains("own.log"), "{}", ran.stderr);
    assert_eq!(counted(&world), recount(&[(0, 600), (900, 1_500), (3_000, 3_600)]));
    let ran = world.run(&["job.toml", "--set", "source.log.path=own.log", "--json"]);
    let last: serde_json::Value = serde_json::from_str(ran.stdout.lines().last().expect("a line")).expect("JSON");
    assert_eq!(last["outcome"], "already_finished");
    assert!(last["looked_at"]["log"].as_str().is_some_and(|looked| looked.contains("own.log")), "{last}");
}

#[test]
fn every_example_runs_as_it_is_written_to_a_new_folder_with_an_empty_store() {
    let world = World::new();
    let fresh = world.path("fresh");
    world.share(&fresh, &[]);
    let listed = world.finish(&mut world.weir(["example", "ls", "--json"]));
    let listed: Vec<serde_json::Value> = serde_json::from_str(&listed.stdout).expect("a list");
    for name in listed.iter().filter_map(|example| example["name"].as_str()) {
        let made = world.finish(&mut world.weir(["example", "new", name]));
        assert!(made.status.success() && made.stderr.contains("weir run job.toml"), "{made:?}");
        let folder = world.path(name);
        let ran = world.finish(world.weir(["run", "job.toml"]).current_dir(&folder).env("WEIR_DATA_DIR", &fresh));
        assert!(ran.status.success(), "{name}: {ran:?}");
        assert!(!rows(&folder.join("out")).is_empty(), "{name}: {ran:?}");
        if name == "pageviews" {
            let lines = std::fs::read_to_string(folder.join("access.log")).expect("the log").lines().count();
            let views: u64 = rows(&folder.join("out")).iter().filter_map(|row| row.value["count"].as_u64()).sum();
            let others = rows(&folder.join("late")).len() + dead_letters(&folder.join("bad")).len();
            assert_eq!(views as usize + others, lines, "every line is in one of the three");
        }
        let taken = world.finish(&mut world.weir(["example", "new", name]));
        assert_eq!(taken.status.code(), Some(2), "{taken:?}");
    }
    assert!(listed.len() >= 4);
}
