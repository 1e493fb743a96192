//! What a job file says becomes what [`Job`] holds.
#![allow(clippy::unwrap_used)]

mod components;

use std::time::Duration;

use serde_json::json;
use weir_plan::{
    CheckpointMode, ComponentRef, Exchange, Job, MaxAhead, OnError, OperatorSpec, Port, RestartSettings, SourceSpec, VertexKind,
    load,
};

const PAGEVIEWS: &str = r#"
[job]
name = "pageviews"
parallelism = 2
key_groups = 64
on_error = "dead_letter"

[job.checkpoint]
interval = "10s"
mode = "at-least-once"
unaligned_after = "never"
timeout = "1h30m"
min_pause = "250ms"
tolerable_failures = 0
retained = 7
storage = "file:./checkpoints"

[job.restart]
strategy = "fixed"
delay = "2s"
attempts = 5

[[source]]
id = "log"
connector = "file"
path = "access.log"
follow = false
rate = 2.5
event_time = { field = "time", format = "clf" }
watermark = { delay = "5s", idle_after = "30s", max_ahead = "2h" }

[[operator]]
id = "parse"
component = "parse@1.0.0"
input = "log"
config = { format = "combined", keys = ["/path", { deep = 1 }], malformed = "output" }
on_error = "fail"

[[operator]]
id = "count"
component = { path = "../op.wasm" }
input = { from = "parse", exchange = "hash" }
limits = { memory = "64MiB", call = "3s" }

[[sink]]
id = "out"
connector = "file"
input = "count"
path = "out"

[[sink]]
id = "bad"
connector = "file"
parallelism = 1
input = { from = ["parse.malformed", "dead_letter"] }
path = "bad"
"#;

/// As short as a job can be.
const SMALL: &str = r#"
[job]
name = "small"
[[source]]
id = "in"
connector = "generator"
[[operator]]
id = "op"
component = "op@1"
input = "in"
[[sink]]
id = "out"
connector = "stdout"
input = "op"
"#;

fn read_with(text: &str, overrides: &[&str], env: &[(&str, &str)]) -> Job {
    let overrides: Vec<(String, String)> =
        overrides.iter().map(|set| set.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned())).unwrap()).collect();
    let lookup = |name: &str| env.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
    load("job.toml", text, &overrides, &lookup, &components::describe).unwrap_or_else(|errors| panic!("{errors}"))
}

fn read(text: &str) -> Job {
    read_with(text, &[], &[])
}

fn source<'a>(job: &'a Job, uid: &str) -> &'a SourceSpec {
    match &job.vertices[job.vertex(uid).unwrap()].kind {
        VertexKind::Source(spec) => spec,
        other => panic!("{other:?}"),
    }
}

fn operator<'a>(job: &'a Job, uid: &str) -> &'a OperatorSpec {
    match &job.vertices[job.vertex(uid).unwrap()].kind {
        VertexKind::Operator(spec) => spec,
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_setting_is_read() {
    let job = read(PAGEVIEWS);
    assert_eq!((job.name.as_str(), job.parallelism, job.key_groups, job.on_error), ("pageviews", 2, 64, OnError::DeadLetter));
    let checkpoint = &job.checkpoint;
    assert_eq!(checkpoint.interval, Some(Duration::from_secs(10)));
    assert_eq!(checkpoint.mode, CheckpointMode::AtLeastOnce);
    assert_eq!(checkpoint.unaligned_after, None);
    assert_eq!(checkpoint.timeout, Duration::from_secs(5_400));
    assert_eq!(checkpoint.min_pause, Duration::from_millis(250));
    assert_eq!((checkpoint.tolerable_failures, checkpoint.retained), (0, 7));
    assert_eq!(checkpoint.storage.as_deref(), Some("file:./checkpoints"));
    assert_eq!(job.restart, RestartSettings::Fixed { delay: Duration::from_secs(2), attempts: Some(5) });

    let log = source(&job, "log");
    assert_eq!(log.connector, "file");
    assert_eq!(json!(log.settings), json!({ "path": "access.log", "follow": false, "rate": 2.5 }));
    assert_eq!(json!(log.event_time.as_ref().unwrap().settings), json!({ "field": "time", "format": "clf" }));
    assert_eq!((log.watermark.delay, log.watermark.idle_after), (Duration::from_secs(5), Some(Duration::from_secs(30))));
    assert_eq!(log.watermark.max_ahead, MaxAhead::Of(Duration::from_secs(7_200)));

    let parse = operator(&job, "parse");
    assert_eq!(parse.component, ComponentRef::Named { name: "parse".to_owned(), version: "1.0.0".to_owned() });
    assert_eq!(parse.config, json!({ "format": "combined", "keys": ["/path", { "deep": 1 }], "malformed": "output" }));
    assert_eq!(parse.description.output("malformed"), Some(1));
    assert_eq!(parse.on_error, OnError::Fail);

    let count = operator(&job, "count");
    assert_eq!(count.component, ComponentRef::Path("../op.wasm".to_owned()));
    assert_eq!((count.limits.memory_bytes, count.limits.call), (64 << 20, Duration::from_secs(3)));
    assert_eq!(count.on_error, OnError::DeadLetter);
    let warnings = job.warnings().to_string();
    assert_eq!(warnings.matches("warning: ").count(), warnings.matches("(`on_error = \"fail\"`)").count(), "{warnings}");
}

#[test]
fn what_is_not_said_has_a_default() {
    let job = read(SMALL);
    assert_eq!((job.parallelism, job.key_groups, job.on_error), (1, 128, OnError::DeadLetter));
    assert_eq!(job.checkpoint.interval, Some(Duration::from_secs(10)));
    assert_eq!(job.checkpoint.mode, CheckpointMode::ExactlyOnce);
    assert_eq!(job.checkpoint.storage, None);
    assert!(matches!(job.restart, RestartSettings::Exponential { max, .. } if max == Duration::from_secs(30)));
    let op = operator(&job, "op");
    assert_eq!((op.description.outputs.len(), &op.config), (1, &json!({})));
    assert_eq!((op.limits.memory_bytes, op.limits.call), (256 << 20, Duration::from_secs(10)));
    assert_eq!((source(&job, "in").watermark.delay, source(&job, "in").watermark.idle_after), (Duration::ZERO, None));
    assert_eq!(source(&job, "in").watermark.max_ahead, MaxAhead::Unset);
}

/// Edges as "from.port -> to/input exchange".
fn edges(job: &Job) -> Vec<String> {
    let name = |edge: &weir_plan::Edge| {
        let (from, to) = (&job.vertices[edge.from].uid, &job.vertices[edge.to].uid);
        format!("{from}.{} -> {to}/{} {}", job.port_name(edge), edge.input, edge.exchange)
    };
    job.edges.iter().map(name).collect()
}

#[test]
fn references_become_edges() {
    let job = read(PAGEVIEWS);
    assert_eq!(
        edges(&job),
        [
            "log.main -> parse/0 forward",
            "parse.main -> count/0 hash",
            "count.main -> out/0 forward",
            "parse.malformed -> bad/0 rebalance",
            // parse has on_error = "fail", so only count writes dead letters.
            "count.dead_letter -> bad/0 rebalance",
        ]
    );
    assert_eq!(job.edges[4].port, Port::DeadLetter);
    let keyed: Vec<bool> = (0..job.vertices.len()).map(|vertex| job.is_keyed(vertex)).collect();
    assert_eq!(keyed, [false, false, true, false, false]);
}

#[test]
fn inputs_are_found_by_their_names_and_each_output_within_one_is_an_edge() {
    let text = SMALL.replace(
        "input = \"in\"",
        "inputs = [{ from = \"two\", exchange = \"broadcast\", as = \"right\" }, { from = [\"in\", \"two\"], exchange = \"hash\", as = \"left\" }]",
    ).replace("op@1", "join@1") + "[[source]]\nid = \"two\"\nconnector = \"generator\"\nparallelism = 3\n";
    let job = read(&text);
    assert_eq!(edges(&job)[..3], ["in.main -> op/0 hash", "two.main -> op/0 hash", "two.main -> op/1 broadcast"]);
    let op = job.vertex("op").unwrap();
    let names: Vec<Option<&str>> = job.edges.iter().map(|edge| job.input_name(edge)).collect();
    assert_eq!(names, [Some("left"), Some("left"), Some("right"), None]);
    let is_keyed: Vec<bool> = (0..3).map(|input| job.is_keyed_input(op, input)).collect();
    assert_eq!((is_keyed, job.keeps_to_its_groups(op)), (vec![true, false, false], false));
    assert!(job.is_keyed(op));
}

#[test]
fn a_keyed_sink_is_partitioned_but_has_no_key_groups_of_its_own() {
    let job = read(&SMALL.replace("input = \"op\"", "input = { from = \"op\", exchange = \"hash\" }"));
    assert_eq!(job.edges[1].exchange, Exchange::Hash);
    assert!(!job.is_keyed(job.vertex("out").unwrap()));
}

#[test]
fn chains_follow_forward_edges_that_are_the_only_ones_into_their_reader() {
    let job = read(PAGEVIEWS);
    let chains: Vec<(Vec<&str>, u32)> = job
        .chains()
        .iter()
        .map(|chain| (chain.vertices.iter().map(|vertex| job.vertices[*vertex].uid.as_str()).collect(), chain.parallelism))
        .collect();
    assert_eq!(chains, [(vec!["log", "parse"], 2), (vec!["count", "out"], 2), (vec!["bad"], 1)]);
    let chained: Vec<bool> = (0..job.edges.len()).map(|edge| job.edge_is_chained(edge)).collect();
    assert_eq!(chained, [true, false, true, false, false]);
}

#[test]
fn a_fork_stays_in_one_chain_and_a_join_starts_a_new_one() {
    let text = r#"
[job]
name = "diamond"
[[source]]
id = "in"
connector = "generator"
[[operator]]
id = "join"
component = "j@1"
input = { from = ["left", "right"] }
[[operator]]
id = "left"
component = "l@1"
input = "in"
[[operator]]
id = "right"
component = "r@1"
input = "in"
[[sink]]
id = "out"
connector = "stdout"
input = "join"
"#;
    let job = read(text);
    let chains: Vec<Vec<&str>> = job
        .chains()
        .iter()
        .map(|chain| chain.vertices.iter().map(|vertex| job.vertices[*vertex].uid.as_str()).collect())
        .collect();
    assert_eq!(chains, [vec!["in", "left", "right"], vec!["join", "out"]]);
}

#[test]
fn flags_replace_and_add_values() {
    let job = read_with(
        PAGEVIEWS,
        &[
            "job.parallelism=4",
            "job.checkpoint.interval=off",
            "job.restart.strategy=none",
            "source.log.path=/var/log/access.log",
            "source.log.follow=true",
            "operator.count.config.size=1m",
            "operator.count.limits.memory=\"1GiB\"",
            "operator.count.limits.memory_total=\"5GiB\"",
            "sink.bad.parallelism=2",
            "sink.out.path=2024",
        ],
        &[],
    );
    assert_eq!(job.parallelism, 4);
    assert_eq!(job.checkpoint.interval, None);
    assert_eq!(job.restart, RestartSettings::None);
    assert_eq!(json!(source(&job, "log").settings), json!({ "path": "/var/log/access.log", "follow": true, "rate": 2.5 }));
    assert_eq!(operator(&job, "count").config, json!({ "size": "1m" }));
    let limits = operator(&job, "count").limits;
    assert_eq!((limits.memory_bytes, limits.memory_total_bytes), (1 << 30, Some(5 << 30)));
    assert_eq!(job.vertices[job.vertex("bad").unwrap()].parallelism, 2);
    let warnings = job.warnings().to_string();
    assert!(warnings.contains("`delay` in [job.restart] has no effect with the strategy \"none\""), "{warnings}");
}

#[test]
fn a_flag_may_give_text_where_text_is_expected_even_if_it_reads_as_a_number() {
    assert_eq!(read_with(SMALL, &["job.name=2024"], &[]).name, "2024");
}

#[test]
fn environment_variables_are_replaced_in_all_strings() {
    let text = SMALL
        .replace("connector = \"generator\"", "connector = \"file\"\npath = \"${DIR}/${FILE:-a.log}\"\nparallelism = \"${N}\"")
        .replace("input = \"in\"", "input = \"in\"\nconfig = { deep = [\"${DIR}\"], kept = \"$${DIR}\" }");
    let job = read_with(&text, &[], &[("DIR", "/logs"), ("N", "3")]);
    assert_eq!(json!(source(&job, "in").settings), json!({ "path": "/logs/a.log" }));
    assert_eq!(job.vertices[0].parallelism, 3);
    assert_eq!(operator(&job, "op").config, json!({ "deep": ["/logs"], "kept": "${DIR}" }));
}

#[test]
fn a_flag_may_replace_a_value_whose_variable_is_not_set() {
    let text = SMALL.replace("connector = \"generator\"", "connector = \"file\"\npath = \"${DIR}\"");
    let job = read_with(&text, &["source.in.path=here"], &[]);
    assert_eq!(json!(source(&job, "in").settings), json!({ "path": "here" }));
}

#[test]
fn the_graph_can_be_drawn_as_text() {
    let expected = "\
job pageviews: 3 chains, 5 tasks, checkpoint every 10s, at-least-once, 64 key groups

chain 1, 2 tasks
  source log: file
    main -> parse (chained)
  operator parse: parse@1.0.0
    main -> count (hash to chain 2)
    malformed -> bad (rebalance to chain 3)

chain 2, 2 tasks
  operator count: ../op.wasm, keyed
    main -> out (chained)
    dead_letter -> bad (rebalance to chain 3)
  sink out: file

chain 3, 1 task
  sink bad: file
";
    assert_eq!(read(PAGEVIEWS).to_text(), expected);
}

#[test]
fn the_graph_can_be_drawn_for_graphviz() {
    let expected = r#"digraph "small" {
  rankdir = LR
  node [shape = box]
  subgraph cluster_1 {
    label = "chain 1, 1 task"
    "in" [label = "source in: generator"]
    "op" [label = "operator op: a\"b.wasm"]
    "out" [label = "sink out: stdout"]
  }
  "in" -> "op" [label = "main: chained", style = solid]
  "op" -> "out" [label = "main: chained", style = solid]
}
"#;
    assert_eq!(read(&SMALL.replace("\"op@1\"", "{ path = 'a\"b.wasm' }")).to_dot(), expected);
}

#[test]
fn a_setting_that_has_no_effect_is_said_where_it_stands() {
    let warned = |mode: &str| {
        let sets = ["job.checkpoint.unaligned_after=1s".to_owned(), format!("job.checkpoint.mode={mode}")];
        let sets: Vec<&str> = sets.iter().map(String::as_str).collect();
        read_with(SMALL, &sets, &[]).warnings().to_string().contains("no barrier ever waits there")
    };
    assert!(warned("at-least-once"));
    assert!(!warned("exactly-once"));
    assert!(read(SMALL).warnings().is_empty(), "a default is nobody's wish");
}

#[test]
fn the_examples_give_no_reason_for_a_warning() {
    let examples = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let folders = std::fs::read_dir(examples).unwrap().map(|entry| entry.unwrap().path().join("job.toml"));
    let mut seen = 0;
    for file in folders.filter(|file| file.exists()) {
        let text = std::fs::read_to_string(&file).unwrap();
        let job = weir_plan::load(&file.to_string_lossy(), &text, &[], &|_| None, &components::describe).unwrap();
        assert!(job.warnings().is_empty(), "{}", job.warnings());
        seen += 1;
    }
    assert!(seen >= 4, "{seen} examples");
}
