//! `weir run` as a user runs it: to the end, interrupted, started over, run again after the end, on damaged checkpoints.

use std::fs;
use std::path::{Path, PathBuf};

use weir_tests::{World, dead_letters, rows};

/// Counts the rows of each key. `more` goes to the source.
fn job(more: &str) -> String {
    format!(
        r#"
[job]
name = "count"
parallelism = 2

[job.checkpoint]
interval = "50ms"

[[source]]
id = "log"
connector = "file"
path = "in"
{more}

[[operator]]
id = "parse"
component = "parse@1.2.0"
input = "log"
config = {{ format = "json", key = "k" }}

[[operator]]
id = "sums"
component = "ledger@1.2.0"
input = {{ from = "parse", exchange = "hash" }}
config = {{ field = "n", emit = "end" }}

[[sink]]
id = "out"
connector = "file"
input = "sums"
path = "out"
"#
    )
}

fn lines(keys: u64, rows: u64) -> String {
    (0..rows).map(|row| format!("{{\"k\":\"{}\",\"n\":{row}}}\n", row % keys)).collect()
}

/// The count of each key, as written; a key that is there twice shows.
fn counts(world: &World) -> Vec<(String, u64)> {
    let mut counts: Vec<(String, u64)> =
        rows(&world.path("out")).into_iter().map(|row| (row.key, row.value["count"].as_u64().expect("a count"))).collect();
    counts.sort();
    counts
}

#[test]
fn s60_inputs_that_end_at_different_times_are_all_committed_and_the_job_ends() {
    let world = World::new();
    world.write("in/long.jsonl", lines(3, 200_000));
    world.write("in/short.jsonl", lines(3, 3));
    world.write("job.toml", job(""));
    world.run(&["job.toml"]);
    assert_eq!(counts(&world).iter().map(|(_, count)| count).sum::<u64>(), 200_003);
    assert_eq!(counts(&world).len(), 3);
}

#[test]
fn running_it_after_the_end_says_so_and_does_nothing() {
    let world = World::new();
    world.write("in/a.jsonl", lines(2, 10));
    world.write("job.toml", job(""));
    world.run(&["job.toml"]);
    let before = counts(&world);
    let again = world.run(&["job.toml"]);
    assert!(again.stderr.contains("had finished already"), "{}", again.stderr);
    assert!(again.stderr.contains("--fresh"), "it says how to start over: {}", again.stderr);
    assert_eq!(counts(&world), before);
}

#[test]
fn fresh_starts_over_and_takes_the_earlier_output_back() {
    let world = World::new();
    world.write("in/a.jsonl", lines(2, 10));
    world.write("job.toml", job(""));
    world.run(&["job.toml"]);
    world.write("in/a.jsonl", lines(3, 30));
    world.run(&["job.toml", "--fresh"]);
    let expected = ["0", "1", "2"].map(|key| (key.to_owned(), 10));
    assert_eq!(counts(&world), expected, "nothing of the first run is left among the results");
    assert!(fs::read_dir(world.path("out/.superseded")).expect("the earlier output").count() > 0, "and nothing was deleted");
}

#[test]
fn starting_over_with_a_bad_configuration_forgets_nothing() {
    let world = World::new();
    world.write("in/a.jsonl", lines(2, 10));
    world.write("job.toml", job(""));
    world.run(&["job.toml"]);
    let before = counts(&world);
    let refused = world.finish(&mut world.weir(["run", "job.toml", "--fresh", "--set", "operator.sums.config.emit=never"]));
    assert_eq!(refused.status.code(), Some(2), "{}", refused.stderr);
    let again = world.run(&["job.toml"]);
    assert!(again.stderr.contains("had finished already"), "its state is still there: {}", again.stderr);
    assert_eq!(counts(&world), before);
}

#[test]
fn an_interrupt_stops_with_a_last_checkpoint_and_the_same_command_goes_on() {
    let world = World::new();
    world.write("in/a.jsonl", lines(5, 400_000));
    // Following, the job does not end by itself.
    world.write("job.toml", job("follow = true"));
    let mut running = world.start(&mut world.weir(["run", "job.toml", "--json"]));
    running.event(|event| event["event"] == "progress" && event["rows_in"].as_u64() > Some(1_000));
    running.signal("INT");
    let summary = running.event(|event| event["event"] == "summary");
    assert_eq!(summary["outcome"], "stopped");
    assert_eq!(running.wait().code(), Some(130));

    world.write("job.toml", job(""));
    let resumed = world.finish(&mut world.weir(["run", "job.toml"]));
    // The splits of a followed folder are other ones than those of a folder read once: refused or finished, never silently twice.
    if resumed.status.success() {
        assert_eq!(counts(&world).iter().map(|(_, count)| count).sum::<u64>(), 400_000);
    } else {
        assert!(resumed.stderr.contains("checkpoint"), "{}", resumed.stderr);
    }
}

#[test]
fn a_stop_in_the_middle_loses_and_repeats_nothing() {
    let world = World::new();
    world.write("in/a.jsonl", lines(7, 500_000));
    world.write("job.toml", job(""));
    let mut stops = 0;
    loop {
        let finished = world.finish(&mut world.weir(["run", "job.toml", "--json", "--for", "150ms"]));
        assert!(finished.status.success(), "{}", finished.stderr);
        let summary = finished.stdout.lines().last().expect("a summary").to_owned();
        if summary.contains("\"finished\"") {
            break;
        }
        assert!(summary.contains("\"stopped\""), "{summary}");
        stops += 1;
        assert!(stops < 200, "it goes on between stops");
    }
    assert_eq!(counts(&world).iter().map(|(_, count)| count).sum::<u64>(), 500_000);
    assert_eq!(counts(&world).len(), 7);
}

#[test]
fn malformed_lines_go_to_the_dead_letters_also_where_no_sink_is_named() {
    let world = World::new();
    world.write("in/a.jsonl", "{\"k\":\"a\",\"n\":1}\nnot json\n{\"k\":\"a\",\"n\":\"x\"}\n{\"n\":3}\n");
    world.write("job.toml", job(""));
    let finished = world.run(&["job.toml", "--json"]);
    assert_eq!(counts(&world), [("a".to_owned(), 1)]);
    let mut letters = dead_letters(&world.data().join("jobs/count/dead-letter"));
    letters.sort();
    assert_eq!(letters, ["not json", "{\"k\":\"a\",\"n\":\"x\"}", "{\"n\":3}"]);
    let summary: serde_json::Value = serde_json::from_str(finished.stdout.lines().last().expect("a summary")).expect("JSON");
    let rejected: u64 =
        summary["vertices"].as_array().expect("vertices").iter().filter_map(|vertex| vertex["rows_rejected"].as_u64()).sum();
    assert_eq!(rejected, 3, "they are counted");
}

#[test]
fn parallelism_may_change_between_runs() {
    let world = World::new();
    for file in 0..4 {
        world.write(&format!("in/{file}.jsonl"), lines(100, 100_000));
    }
    world.write("job.toml", job(""));
    for parallelism in ["1", "3", "7", "2"] {
        let set = format!("job.parallelism={parallelism}");
        let finished = world.finish(&mut world.weir(["run", "job.toml", "--for", "120ms", "--set", &set]));
        assert!(finished.status.success(), "{}", finished.stderr);
    }
    world.run(&["job.toml", "--set", "job.parallelism=5"]);
    let expected: Vec<(String, u64)> = counts(&world);
    assert_eq!(expected.len(), 100, "each key once");
    assert!(expected.iter().all(|(_, count)| *count == 4_000), "{expected:?}");
}

/// The newest of a job's checkpoint files that have content.
fn newest_file(folder: &Path) -> PathBuf {
    let mut files: Vec<PathBuf> =
        fs::read_dir(folder).expect("files").flatten().map(|entry| entry.path()).filter(|path| path.is_file()).collect();
    let number = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.split('-').filter_map(|part| part.parse::<u64>().ok()).collect::<Vec<_>>()
    };
    files.sort_by_key(number);
    files.pop().expect("a checkpoint with state")
}

#[test]
fn s40_damaged_checkpoints_are_named_and_an_older_one_gives_the_same_result() {
    type Damage = fn(&Path);
    let damages: [(&str, Damage); 3] = [
        ("flipped", |path| {
            let mut bytes = fs::read(path).expect("the file");
            let middle = bytes.len() / 2;
            bytes[middle] ^= 0x40;
            fs::write(path, bytes).expect("written");
        }),
        ("truncated", |path| {
            let bytes = fs::read(path).expect("the file");
            fs::write(path, &bytes[..bytes.len() / 2]).expect("written");
        }),
        ("missing", |path| fs::remove_file(path).expect("removed")),
    ];
    for (name, damage) in damages {
        let world = World::new();
        world.write("in/a.jsonl", lines(50, 600_000));
        world.write("job.toml", job("").replace("emit = \"end\"", "emit = \"each\""));
        let mut running = world.start(&mut world.weir(["run", "job.toml", "--json"]));
        running.event(|event| event["event"] == "checkpoint_completed" && event["checkpoint"].as_u64() >= Some(4));
        running.kill();
        damage(&newest_file(&world.data().join("jobs/count/files")));
        let finished = world.run(&["job.toml"]);
        let told = finished.stderr.contains("cannot be used");
        let mut seen: Vec<(String, u64)> = counts(&world);
        seen.dedup();
        assert_eq!(seen.len(), 600_000, "{name}: each row's result once (told: {told})\n{}", finished.stderr);
        assert_eq!(counts(&world).len(), 600_000, "{name}: and none twice\n{}", finished.stderr);
    }
}

#[test]
fn lines_may_come_from_a_pipe_and_go_to_one() {
    let world = World::new();
    let piped = job("").replace("connector = \"file\"\npath = \"in\"", "connector = \"stdin\"");
    let piped =
        piped.replace("connector = \"file\"\ninput = \"sums\"\npath = \"out\"", "connector = \"stdout\"\ninput = \"sums\"");
    world.write("job.toml", piped);
    let lines = world.write("lines", "{\"k\":\"a\",\"n\":1}\n{\"k\":\"a\",\"n\":2}\n");
    let finished = world.finish(world.weir(["run", "job.toml"]).stdin(fs::File::open(lines).expect("the lines")));
    assert!(finished.status.success(), "{}", finished.stderr);
    let row: serde_json::Value = serde_json::from_str(finished.stdout.trim()).expect("one line of JSON");
    assert_eq!((row["key"].as_str(), &row["value"]["count"]), (Some("a"), &serde_json::json!(2)));
    assert!(finished.stderr.contains("cannot replay"), "what cannot be promised is said: {}", finished.stderr);
    assert!(finished.stderr.contains("at-least-once"), "{}", finished.stderr);
    // What comes through the next pipe is not what came through the first.
    let more = world.write("more", "{\"k\":\"b\",\"n\":7}\n");
    let finished = world.finish(world.weir(["run", "job.toml"]).stdin(fs::File::open(more).expect("the lines")));
    assert!(finished.status.success(), "{}", finished.stderr);
    let counted = |line: &str| {
        let row: serde_json::Value = serde_json::from_str(line).expect("a line of JSON");
        (row["key"].as_str().expect("a key").to_owned(), row["value"]["count"].as_u64().expect("a count"))
    };
    let mut counts: Vec<_> = finished.stdout.lines().map(counted).collect();
    counts.sort();
    assert_eq!(counts, [("a".to_owned(), 2), ("b".to_owned(), 1)], "it goes on with the next pipe's rows: {}", finished.stderr);
}

#[test]
fn a_second_process_on_the_same_job_is_refused_by_name() {
    let world = World::new();
    world.write("in/a.jsonl", lines(5, 10));
    world.write("job.toml", job("follow = true"));
    let mut running = world.start(&mut world.weir(["run", "job.toml", "--json"]));
    running.event(|event| event["event"] == "started");
    let second = world.finish(&mut world.weir(["run", "job.toml"]));
    assert_eq!(second.status.code(), Some(1), "{}", second.stderr);
    assert!(second.stderr.contains(&running.pid().to_string()), "the holder is named: {}", second.stderr);
}

#[test]
fn another_job_file_with_the_same_name_is_refused_the_state() {
    let world = World::new();
    world.write("in/a.jsonl", lines(5, 10));
    world.write("job.toml", job(""));
    world.write("other/job.toml", job("").replace("path = \"in\"", "path = \"../in\""));
    world.run(&["job.toml"]);
    let other = world.finish(&mut world.weir(["run", "other/job.toml"]));
    assert_eq!(other.status.code(), Some(4), "{}", other.stderr);
    assert!(other.stderr.contains("belongs to"), "{}", other.stderr);
}

/// A job whose rows go to standard output for as long as somebody reads.
fn talking() -> String {
    r#"
[job]
name = "talking"

[job.checkpoint]
interval = "50ms"

[[source]]
id = "rows"
connector = "generator"
keys = 10

[[sink]]
id = "out"
connector = "stdout"
input = "rows"
"#
    .to_owned()
}

#[test]
fn a_reader_that_has_heard_enough_ends_the_job_as_it_ends_any_tool() {
    let world = World::new();
    world.write("job.toml", talking());
    let script = "\"$0\" \"$@\" | head -1; echo \"${PIPESTATUS[0]}\"";
    let ended = world.finish(&mut world.weir_by("bash", &["-c".to_owned(), script.to_owned()], ["run", "job.toml"]));
    let lines: Vec<&str> = ended.stdout.lines().collect();
    assert!(lines.len() == 2 && lines[0].starts_with("{\"key\":"), "{}", ended.stdout);
    assert_eq!(lines[1], "141", "as of a process that SIGPIPE ends: {}", ended.stderr);
    assert!(!ended.stderr.contains("error") && !ended.stderr.contains("restarting"), "{}", ended.stderr);
}

#[test]
fn a_reader_that_takes_nothing_does_not_keep_an_interrupted_job() {
    let world = World::new();
    world.write("job.toml", talking());
    let mut running = world.start(&mut world.weir(["run", "job.toml"]));
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    // Its pipe is full once no row more goes in.
    while !running.messages().contains("checkpoint") {
        assert!(std::time::Instant::now() < deadline, "{}", running.messages());
        std::thread::yield_now();
    }
    running.signal("INT");
    assert_eq!(running.wait().code(), Some(130), "{}", running.messages());
    assert!(running.messages().contains("takes nothing"), "{}", running.messages());
}

/// Counts by minute and key of what `path` means, and what is late.
fn minutes(path: &str, more: &str) -> String {
    format!(
        r#"
[job]
name = "minutes"
parallelism = 2

[[source]]
id = "log"
connector = "file"
path = "{path}"
event_time = {{ field = "t", format = "unix-s" }}
{more}

[[operator]]
id = "parse"
component = "parse@1.2.0"
input = "log"
config = {{ format = "json", key = "k" }}

[[operator]]
id = "counts"
component = "window@1.2.0"
input = {{ from = "parse", exchange = "hash" }}
config = {{ kind = "tumbling", size = "1m", aggregate = ["count"] }}

[[sink]]
id = "out"
connector = "file"
input = "counts.main"
path = "out"

[[sink]]
id = "late"
connector = "file"
input = "counts.late"
path = "late"
"#
    )
}

#[test]
fn rotated_logs_give_the_windows_of_one_sorted_file() {
    let line = |time: usize| format!("{{\"k\":\"{}\",\"t\":{time}}}\n", time % 7);
    let part = |range: std::ops::Range<usize>| range.map(line).collect::<String>();
    let windows = |world: &World| {
        let mut windows: Vec<(String, String)> =
            rows(&world.path("out")).into_iter().map(|row| (row.key, row.value.to_string())).collect();
        windows.sort();
        windows
    };
    let sorted = World::new();
    sorted.write("in/in.log", part(0..9_000));
    sorted.write("job.toml", minutes("in/in.log*", ""));
    sorted.run(&["job.toml"]);
    let expected = windows(&sorted);
    assert_eq!(expected.len(), 150 * 7);
    for order in ["time", "modified", "name"] {
        let rotated = World::new();
        // The older file is the newer one on disk, as a copy that did not keep its time.
        rotated.write("in/in.log", part(6_000..9_000));
        rotated.write("in/in.log.1", part(3_000..6_000));
        rotated.write("in/in.log.2", part(0..3_000));
        rotated.write("job.toml", minutes("in/in.log*", &format!("order = \"{order}\"")));
        rotated.run(&["job.toml"]);
        assert_eq!(windows(&rotated), expected, "{order}");
        assert!(rows(&rotated.path("late")).is_empty(), "{order}");
    }
}
