//! Bad input of any kind: what was attempted, why it failed, what to do; before anything starts where that is possible.

use std::fs;

use weir_tests::{Finished, World, rows};

const JOB: &str = r#"
[job]
name = "bad"

[[source]]
id = "log"
connector = "file"
path = "in.jsonl"

[[operator]]
id = "parse"
component = "parse@1.2.0"
input = "log"
config = { format = "json", key = "k" }

[[sink]]
id = "out"
connector = "file"
input = "parse"
path = "out"
"#;

/// Runs the job with one text replaced, and expects it to be refused before anything starts.
fn refused(from: &str, to: &str, code: i32, words: &[&str]) -> Finished {
    let world = World::new();
    world.write("in.jsonl", "{\"k\":\"a\"}\n");
    assert!(JOB.contains(from), "{from} is in the job");
    world.write("job.toml", JOB.replace(from, to));
    let finished = world.finish(&mut world.weir(["run", "job.toml"]));
    assert_eq!(finished.status.code(), Some(code), "{}", finished.stderr);
    for word in words {
        assert!(finished.stderr.contains(word), "`{word}` is not in:\n{}", finished.stderr);
    }
    assert!(finished.stdout.is_empty(), "messages go to standard error: {}", finished.stdout);
    assert!(rows(&world.path("out")).is_empty(), "nothing was written");
    finished
}

#[test]
fn a_job_file_is_checked_before_anything_starts_with_places_and_nearest_names() {
    refused(
        "connector = \"file\"\npath = \"in",
        "conector = \"file\"\npath = \"in",
        2,
        &["job.toml:7:1", "conector", "connector"],
    );
    refused("path = \"in.jsonl\"", "path = \"in.jsonl\"\nfolow = true", 2, &["job.toml:9", "folow", "follow"]);
    refused("connector = \"file\"\ninput", "connector = \"fil\"\ninput", 2, &["fil", "file"]);
    refused("input = \"parse\"", "input = \"prase\"", 2, &["prase", "parse"]);
    refused("parse@1.2.0", "parze@1.2.0", 2, &["parze@1.2.0", "parse@1.2.0"]);
    refused("parse@1.2.0", "parse@9.9.9", 2, &["parse@9.9.9", "1.2.0"]);
    refused("name = \"bad\"", "name = \"bad\"\nparallelism = \"two\"", 2, &["parallelism", "job.toml:4"]);
    refused("[job]", "[job", 2, &["job.toml:2"]);
}

#[test]
fn a_component_that_is_none_is_refused_with_what_it_is() {
    let world = World::new();
    world.write("in.jsonl", "");
    world.write("not.wasm", "this is text");
    world.write("job.toml", JOB.replace("\"parse@1.2.0\"", "{ path = \"not.wasm\" }"));
    let finished = world.finish(&mut world.weir(["run", "job.toml"]));
    assert_eq!(finished.status.code(), Some(2), "{}", finished.stderr);
    assert!(finished.stderr.contains("not.wasm"), "{}", finished.stderr);
}

#[test]
fn an_operators_bad_configuration_is_told_with_its_key() {
    refused("format = \"json\"", "formt = \"json\"", 2, &["parse", "formt", "format", "job.toml:14:1"]);
}

#[test]
fn a_missing_input_ends_the_job_at_once_and_names_the_path() {
    let finished = refused("in.jsonl", "nowhere.jsonl", 1, &["nowhere.jsonl"]);
    assert!(!finished.stderr.contains("restarting"), "another try would be no use: {}", finished.stderr);
}

#[test]
fn a_folder_that_cannot_be_written_is_named() {
    let world = World::new();
    world.write("in.jsonl", "{\"k\":\"a\"}\n");
    world.write("out", "a file, not a folder");
    world.write("job.toml", JOB);
    let finished = world.finish(&mut world.weir(["run", "job.toml"]));
    assert_eq!(finished.status.code(), Some(1), "{}", finished.stderr);
    assert!(finished.stderr.contains("/out"), "{}", finished.stderr);
    assert_eq!(fs::read_to_string(world.path("out")).expect("still there"), "a file, not a folder");
}

#[test]
fn flags_are_explained() {
    let world = World::new();
    world.write("job.toml", JOB);
    for (arguments, word) in [
        (&["run"][..], "JOB"),
        (&["run", "job.toml", "--for", "soon"][..], "soon"),
        (&["run", "job.toml", "--set", "nonsense"][..], "KEY=VALUE"),
        (&["run", "job.toml", "--set", "source.lug.path=x"][..], "log"),
        (&["run", "nothing.toml"][..], "nothing.toml"),
        (&["runn", "job.toml"][..], "run"),
    ] {
        let finished = world.finish(&mut world.weir(arguments));
        assert_eq!(finished.status.code(), Some(2), "{arguments:?}: {}", finished.stderr);
        assert!(finished.stderr.contains(word), "{arguments:?}: `{word}` is not in:\n{}", finished.stderr);
    }
}

#[test]
fn a_rejected_row_fails_the_job_where_the_job_file_says_so() {
    let world = World::new();
    world.write("in.jsonl", "{\"k\":\"a\"}\nnot json\n");
    let job = JOB.replace("name = \"bad\"", "name = \"bad\"\non_error = \"fail\"\n[job.restart]\nstrategy = \"none\"");
    world.write("job.toml", job);
    let finished = world.finish(&mut world.weir(["run", "job.toml"]));
    assert_eq!(finished.status.code(), Some(1), "{}", finished.stderr);
    assert!(finished.stderr.contains("not json") && finished.stderr.contains("dead_letter"), "{}", finished.stderr);
    assert!(rows(&world.path("out")).is_empty(), "what was not checkpointed is not visible");
}

#[test]
fn a_rejected_row_that_ends_the_job_ends_it_once_and_is_told_also_to_the_quiet() {
    let world = World::new();
    world.write("in.jsonl", "{\"k\":\"a\"}\n");
    let job = JOB.replace("name = \"bad\"", "name = \"bad\"\non_error = \"fail\"\n[job.checkpoint]\ninterval = \"50ms\"");
    world.write("job.toml", job.replace("path = \"in.jsonl\"", "path = \"in.jsonl\"\nfollow = true"));
    let mut running = world.start(&mut world.weir(["run", "job.toml", "--json"]));
    running.event(|event| event["event"] == "progress" && event["checkpoint"].is_object());
    world.write("in.jsonl", "{\"k\":\"a\"}\nnot json\n");
    let status = running.wait();
    let said = running.messages();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("would meet the same again") && said.contains("goes on from the last checkpoint"), "{said}");
    // Put aside instead, by a job that is to be quiet.
    let aside = fs::read_to_string(world.path("job.toml")).expect("the job").replace("\"fail\"", "\"dead_letter\"");
    world.write("job.toml", aside.replace("follow = true", ""));
    let finished = world.finish(&mut world.weir(["run", "-q", "job.toml", "--fresh"]));
    assert!(finished.stderr.contains("1 rejected") && !finished.stderr.contains("ROWS IN"), "{}", finished.stderr);
}
