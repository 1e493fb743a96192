//! Rows without key or value, with empty keys, and with headers, through whole jobs.

use std::collections::BTreeMap;
use std::fs;

use serde_json::{Value, json};
use weir_tests::World;

const ROWS: u64 = 3_000;

/// Two subtasks of a source, whose rows go by their keys to three of what reads them. A sink has what comes `from` somewhere.
fn job(reader: &str, from: &str) -> String {
    format!(
        r#"
[job]
name = "whole"

[[source]]
id = "made"
connector = "generator"
parallelism = 2
rows = {ROWS}
keys = 50
value_bytes = 8
no_key_every = 4
empty_key_every = 6
no_value_every = 5
headers_every = 3

{reader}
[[sink]]
id = "out"
connector = "file"
input = {from}
parallelism = 3
path = "out"
"#
    )
}

/// The lines that a file sink has written, as JSON.
fn lines(world: &World) -> Vec<Value> {
    let files = fs::read_dir(world.path("out")).expect("the folder of the sink").flatten().map(|entry| entry.path());
    let files = files.filter(|path| path.extension().is_some_and(|extension| extension == "json"));
    let text: Vec<String> = files.map(|path| fs::read_to_string(path).expect("a file of the sink")).collect();
    text.iter().flat_map(|text| text.lines()).map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// How many lines say the same of themselves.
fn kinds(lines: &[Value]) -> BTreeMap<(&'static str, bool, bool), u64> {
    let mut kinds = BTreeMap::new();
    for line in lines {
        let key = match &line["key"] {
            Value::Null => "absent",
            Value::String(key) if key.is_empty() => "empty",
            _ => "there",
        };
        *kinds.entry((key, line["value"].is_null(), line.get("headers").is_some())).or_default() += 1;
    }
    kinds
}

/// The same, of those rows that the source is to make whose numbers are `taken`.
fn expected(taken: fn(u64) -> bool) -> BTreeMap<(&'static str, bool, bool), u64> {
    let mut kinds = BTreeMap::new();
    let splits = 2;
    for number in (0..splits)
        .flat_map(|split| (0..ROWS / splits).map(move |row| split * ((1 << 42) / splits) + row))
        .filter(|number| taken(*number))
    {
        let key = if number % 4 == 0 {
            "absent"
        } else if number % 6 == 0 {
            "empty"
        } else {
            "there"
        };
        *kinds.entry((key, number % 5 == 0, number % 3 == 0)).or_default() += 1;
    }
    kinds
}

fn run(job: &str) -> Vec<Value> {
    let world = World::new();
    world.write("job.toml", job);
    let finished = world.finish(&mut world.weir(["run", "job.toml"]));
    assert_eq!(finished.status.code(), Some(0), "{}", finished.stderr);
    lines(&world)
}

#[test]
fn s114_rows_of_all_kinds_come_out_as_they_were_made() {
    let lines = run(&job("", "{ from = \"made\", exchange = \"hash\" }"));
    assert_eq!(kinds(&lines), expected(|_| true));
    for line in lines.iter().filter(|line| line.get("headers").is_some()) {
        let number = line["headers"][0][1].as_str().and_then(|number| number.parse::<u64>().ok()).expect("a number");
        assert_eq!((&line["headers"], number % 3), (&json!([["row", number.to_string()]]), 0));
        assert_eq!(line["key"].is_null(), number % 4 == 0, "the headers are those of their row: {line}");
        assert_eq!(line["value"].is_null(), number % 5 == 0, "{line}");
    }
}

/// Hardly a value could be JSON, so the operator rejects nearly all rows. Of their columns it gets the values only.
#[test]
fn s114_rows_of_all_kinds_that_a_component_rejects_are_dead_letters_under_their_keys_and_headers() {
    let reader = r#"
[[operator]]
id = "picky"
component = "filter@1.2.0"
input = { from = "made", exchange = "hash" }
parallelism = 3
config = { all = [{ field = "amount", exists = true }] }
"#;
    let mut lines = run(&job(reader, "\"dead_letter\""));
    assert!(lines.iter().all(|line| line["value"]["operator"] == "picky"), "{:?}", lines.first());
    lines.iter_mut().for_each(|line| line["value"] = line["value"]["value"].take());
    // What begins like an array has no field, so it does not pass: that is dropped, not rejected. Values begin with their numbers.
    assert_eq!(kinds(&lines), expected(|number| number % 256 != u64::from(b'[') || number % 5 == 0));
}
