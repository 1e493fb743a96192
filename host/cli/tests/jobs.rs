//! `weir job check`, configuration, and how commands end.

mod support;

use support::{World, run};

const JOB: &str = r#"[job]
name = "try"

[[source]]
id = "rows"
connector = "generator"
rows = 10

[[operator]]
id = "count"
component = "count@1.0.0"
input = { from = "rows", exchange = "hash" }

[[sink]]
id = "out"
connector = "blackhole"
input = "count"
"#;

fn with_component() -> World {
    let world = World::new();
    world.component("count.wasm", 1, Some(("count", "1.0.0")));
    world.good(&["component", "push", "count.wasm"]);
    world.write("job.toml", JOB);
    world
}

#[test]
fn a_good_job_is_drawn_on_standard_output() {
    let world = with_component();
    let drawn = world.good(&["job", "check", "job.toml"]);
    assert!(drawn.starts_with("job try: 2 chains, 2 tasks"), "{drawn}");
    assert!(drawn.contains("operator count: count@1.0.0, keyed"), "{drawn}");
    assert!(world.good(&["job", "check", "job.toml", "--dot"]).starts_with("digraph \"try\" {"));
    let json: serde_json::Value = serde_json::from_str(&world.good(&["job", "check", "job.toml", "--json"])).expect("JSON");
    assert_eq!(json["edges"][0]["exchange"], "hash");
    assert_eq!(json["vertices"][1]["digest"].as_str().map(str::len), Some(64));
}

#[test]
fn a_wrong_job_is_answered_with_its_lines_and_code_2() {
    let world = with_component();
    world.write("job.toml", JOB.replace("connector = \"blackhole\"", "connector = \"blackhloe\""));
    let message = world.bad(2, &["job", "check", "job.toml"]);
    assert!(message.contains("error[E0007]: sink `out`: ") && message.contains("--> job.toml:16:1"), "{message}");
    assert!(message.contains("blackhole"), "{message}");
    world.write("job.toml", JOB.replace("count@1.0.0", "cuont@1.0.0"));
    let message = world.bad(2, &["job", "check", "job.toml"]);
    assert!(message.contains("error[E0007]: operator `count`: there is no component cuont@1.0.0"), "{message}");
    assert!(message.contains("--> job.toml:11:1") && message.contains("did you mean count@1.0.0?"), "{message}");

    world.write("job.toml", JOB.replace("rows = 10", "rosw = 10"));
    let message = world.bad(2, &["job", "check", "job.toml"]);
    assert!(message.contains("--> job.toml:7:1") && message.contains("rows"), "{message}");

    world.write("job.toml", JOB.replace("input = \"count\"", "input = \"cuont\""));
    let message = world.bad(2, &["job", "check", "job.toml"]);
    assert!(
        message.starts_with("error[E0004]: sink `out` reads `cuont`") && message.contains("did you mean `count`?"),
        "{message}"
    );
}

#[test]
fn flags_of_the_job_are_read_and_wrong_ones_named() {
    let world = with_component();
    let drawn = world.good(&["job", "check", "job.toml", "--set", "job.parallelism=3", "--set", "job.name=other"]);
    assert!(drawn.starts_with("job other: 2 chains, 6 tasks"), "{drawn}");
    let message = world.bad(2, &["job", "check", "job.toml", "--set", "source.rows.rosw=3"]);
    assert!(message.contains("--> --set source.rows.rosw=3"), "{message}");
    let message = world.bad(2, &["job", "check", "job.toml", "--set", "parallelism"]);
    assert!(message.contains("error[E0006]: `--set parallelism` sets nothing: expected KEY=VALUE"), "{message}");
}

#[test]
fn a_component_in_a_file_counts_from_the_job_files_folder() {
    let world = with_component();
    world.component("deep/op.wasm", 2, None);
    world.write("deep/job.toml", JOB.replace("\"count@1.0.0\"", "{ path = \"op.wasm\" }"));
    world.good(&["job", "check", "deep/job.toml"]);
    world.write("deep/op.wasm", "broken");
    let message = world.bad(2, &["job", "check", "deep/job.toml"]);
    assert!(
        message.contains("cannot use op.wasm as a component: not a WebAssembly component")
            && message.contains("--> deep/job.toml:11:1"),
        "{message}"
    );
}

#[test]
fn a_job_file_that_cannot_be_read_is_named() {
    let world = with_component();
    let message = world.bad(2, &["job", "check", "jobb.toml"]);
    assert!(message.contains("cannot read the job file jobb.toml: ") && message.contains("did you mean job.toml?"), "{message}");
    world.write("latin1.toml", b"[job]\nname = \"\xe9\"\n");
    let message = world.bad(2, &["job", "check", "latin1.toml"]);
    assert!(message.contains("latin1.toml: line 2 is not UTF-8"), "{message}");
}

#[test]
fn usage_errors_end_with_code_2_and_success_with_0() {
    let world = World::new();
    assert_eq!(world.weir(&["no-such-command"]).code, Some(2));
    assert_eq!(world.weir(&["job", "check"]).code, Some(2));
    assert!(world.good(&["--version"]).starts_with("weir "));
    for shell in ["bash", "zsh", "fish"] {
        assert!(world.good(&["completions", shell]).contains("component"), "{shell}");
    }
}

#[test]
fn messages_are_plain_when_piped_and_coloured_when_asked_for() {
    let world = World::new();
    assert!(!world.bad(2, &["job", "check", "x.toml"]).contains('\u{1b}'));
    assert!(world.bad(2, &["job", "check", "x.toml", "--color", "always"]).starts_with("\u{1b}["));
    assert!(world.bad(2, &["--color", "sometimes", "component", "ls"]).contains("sometimes"));
}

#[test]
fn each_value_of_the_configuration_says_where_it_comes_from() {
    let world = World::new();
    let file = world.write("config/weir/weir.toml", "data_dir = \"here\"\nlog = \"info\"\n");
    let shown = |arguments: &[&str], variables: &[(&str, &str)]| -> serde_json::Value {
        let mut command = world.command(&["--json", "config", "show"]);
        let done = run(command.args(arguments).env_remove("WEIR_DATA_DIR").envs(variables.iter().copied()));
        assert_eq!(done.code, Some(0), "{done:?}");
        serde_json::from_str(&done.stdout).expect("JSON")
    };
    let origins = |shown: &serde_json::Value, key: &str| {
        (
            shown[key]["value"].as_str().unwrap_or_default().to_owned(),
            shown[key]["origin"].as_str().unwrap_or_default().to_owned(),
        )
    };
    let here = file.with_file_name("here").to_string_lossy().into_owned();
    let file = file.to_string_lossy().into_owned();

    let plain = shown(&[], &[]);
    assert_eq!(origins(&plain, "data_dir"), (here, file.clone()));
    assert_eq!(origins(&plain, "log"), ("info".to_owned(), file.clone()));
    assert_eq!(origins(&plain, "color"), ("auto".to_owned(), "default".to_owned()));
    let variable = shown(&[], &[("WEIR_DATA_DIR", "/from-variable")]);
    assert_eq!(origins(&variable, "data_dir"), ("/from-variable".to_owned(), "environment WEIR_DATA_DIR".to_owned()));
    let flag = shown(&["--data-dir", "/from-flag"], &[("WEIR_DATA_DIR", "/from-variable")]);
    assert_eq!(origins(&flag, "data_dir"), ("/from-flag".to_owned(), "flag --data-dir".to_owned()));

    std::fs::remove_file(&file).expect("removed");
    let default = shown(&[], &[("HOME", "/somewhere")]);
    assert_eq!(origins(&default, "data_dir"), ("/somewhere/.local/share/weir".to_owned(), "default".to_owned()));

    world.write("weir.toml", "data-dir = \"x\"\n");
    let message = world.bad(2, &["config", "show"]);
    assert!(
        message.contains("error[E0026]: unknown key `data-dir`") && message.contains("did you mean `data_dir`?"),
        "{message}"
    );
}

#[test]
fn looking_for_checkpoints_that_are_not_there_creates_nothing() {
    let world = World::new();
    let message = world.bad(2, &["checkpoint", "ls", "try"]);
    assert!(message.contains("error[E0028]: there are no checkpoints of a job `try`"), "{message}");
    assert!(!world.path("data").exists());
    std::fs::create_dir_all(world.path("data/jobs/pageviews")).expect("a folder");
    assert!(world.bad(2, &["checkpoint", "show", "pagveiws"]).contains("did you mean `pageviews`?"));
}
