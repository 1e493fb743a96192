//! Rows that do not go the normal way: counted, shown with the first of them and its reason, and never the end of a job.

use serde_json::Value;
use weir_tests::{KeyedJob, World, rows};

/// Minutes of event time, each a window; `changes` are made in the text.
fn job(changes: &[(&str, &str)]) -> String {
    let job = KeyedJob {
        name: "odd",
        job: "",
        source: "path = \"in.jsonl\"\nevent_time = { field = \"at\", format = \"unix-ms\" }\nwatermark = { delay = \"0s\" }",
        key: "k",
        uid: "count",
        operator: "component = \"window@1.2.0\"\nconfig = { kind = \"tumbling\", size = \"1m\" }",
        more: "",
    };
    let mut text = job.text();
    for (from, to) in changes {
        assert!(text.contains(from), "{from} is in the job");
        text = text.replace(from, to);
    }
    text
}

/// Rows of one a second, many more than are read between two watermarks.
const ROWS: u64 = 600_000;

/// One row a second for days; then one of the first minute, whose window a watermark has closed long ago.
fn days_and_a_late_row() -> String {
    let row = |second: u64| format!("{{\"k\":\"a\",\"at\":{}}}\n", second * 1_000);
    (0..ROWS).map(row).chain([row(1)]).collect()
}

/// Runs the job to its end with `--json`. Gives the vertex of the summary, and what was said as `odd_rows`.
fn run(world: &World, job: &str, uid: &str) -> (Value, Vec<String>) {
    world.write("job.toml", job);
    let finished = world.finish(&mut world.weir(["run", "job.toml", "--json"]));
    assert_eq!(finished.status.code(), Some(0), "{}\n{}", finished.stderr, finished.stdout);
    let lines: Vec<Value> = finished.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let told = lines.iter().filter(|line| line["event"] == "odd_rows");
    let told = told.map(|line| line["message"].as_str().expect("a message").to_owned()).collect();
    let summary = lines.last().expect("a summary");
    let vertex = summary["vertices"].as_array().expect("vertices").iter().find(|vertex| vertex["id"] == uid);
    (vertex.expect("the vertex").clone(), told)
}

#[test]
fn a_window_whose_late_rows_nothing_reads_is_warned_of_and_ends_well() {
    let world = World::new();
    world.write("in.jsonl", days_and_a_late_row());
    world.write("job.toml", job(&[]));
    let checked = world.finish(&mut world.weir(["job", "check", "job.toml"]));
    assert!(
        checked.stderr.contains("nothing reads the output `late` of operator `count`: its rows are discarded"),
        "{}",
        checked.stderr
    );
    let (count, told) = run(&world, &job(&[]), "count");
    let late = &count["oddities"]["late"];
    assert_eq!(late["rows"], 1, "{count}");
    assert_eq!(late["first"]["value"], "{\"k\":\"a\",\"at\":1000}", "{count}");
    assert!(late["first"]["reason"].as_str().unwrap().contains("nothing reads the output for late rows"), "{count}");
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].starts_with("count has discarded a late row; the first: "), "{told:?}");
    let counted: u64 = rows(&world.path("out")).iter().map(|row| row.value["count"].as_u64().expect("a count")).sum();
    assert_eq!(counted, ROWS, "all others are in their windows");
}

#[test]
fn many_rejected_rows_are_warned_of_with_the_setting_the_reason_and_the_place() {
    let world = World::new();
    let row =
        |n: u64| if n.is_multiple_of(5) { format!("no json \u{1b}[31m {n}\n") } else { format!("{{\"k\":\"a\",\"at\":{n}}}\n") };
    world.write("in.jsonl", (0..2_000).map(row).collect::<String>());
    let (parse, told) = run(&world, &job(&[]), "parse");
    let rejected = &parse["oddities"]["rejected"];
    assert_eq!((&rejected["rows"], &parse["rows_rejected"]), (&400.into(), &400.into()), "{parse}");
    assert_eq!(rejected["first"]["value"], "no json \\u{1b}[31m 0", "nothing that a terminal would obey");
    let told = told.iter().find(|message| message.starts_with("parse has rejected 400 of 2,000 rows (20 %)")).expect("a warning");
    assert!(told.contains("`config.format` of operator parse") && told.contains("dead-letter"), "{told}");
    world.write("job.toml", job(&[]));
    let finished = world.finish(&mut world.weir(["run", "job.toml", "--fresh"]));
    for words in [
        "warning: parse has rejected 400 of 2,000 rows",
        "parse: 400 rejected; the first: not JSON",
        "rejected rows, each with its reason, are in ",
    ] {
        assert!(finished.stderr.contains(words), "`{words}` is not in:\n{}", finished.stderr);
    }
}

#[test]
fn a_misspelt_field_of_event_time_is_loud_and_names_the_likely_one() {
    let world = World::new();
    world.write("in.jsonl", (0..2_000).map(|n| format!("{{\"k\":\"a\",\"time\":{n}}}\n")).collect::<String>());
    let (log, told) = run(&world, &job(&[("field = \"at\"", "field = \"tiem\"")]), "log");
    assert_eq!(log["oddities"]["no_time"]["rows"], 2_000, "{log}");
    assert!(told[0].starts_with("log could not read a time from any of its 2,000 rows"), "{told:?}");
    assert!(told[0].contains("did you mean \"time\""), "{told:?}");
}
