//! What is wrong with a job file is named with its place, what was expected, and the nearest valid name.
#![allow(clippy::unwrap_used)]

mod components;

use components::describe;
use proptest::prelude::*;
use weir_plan::{Diagnostics, load};

const GOOD: &str = r#"[job]
name = "pageviews"

[[source]]
id = "log"
connector = "file"
path = "access.log"

[[operator]]
id = "parse"
component = "parse@1.0.0"
input = "log"
config = { malformed = "output" }

[[sink]]
id = "out"
connector = "file"
input = { from = ["parse", "parse.malformed"] }
path = "out"
"#;

fn load_with(text: &str, overrides: &[&str]) -> Result<weir_plan::Job, Diagnostics> {
    let overrides: Vec<(String, String)> =
        overrides.iter().map(|set| set.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned())).unwrap()).collect();
    load("job.toml", text, &overrides, &|_| None, &describe)
}

fn errors(text: &str, overrides: &[&str]) -> String {
    load_with(text, overrides).map(|job| panic!("accepted: {job:?}")).unwrap_or_else(|errors| errors.to_string())
}

/// The messages of the good file with one part replaced.
fn after(old: &str, new: &str) -> String {
    assert!(GOOD.contains(old), "{old}");
    errors(&GOOD.replacen(old, new, 1), &[])
}

#[test]
fn the_good_file_is_good() {
    assert!(load_with(GOOD, &[]).unwrap().warnings().is_empty());
}

#[test]
fn an_unknown_key_is_shown_as_a_compiler_would() {
    let expected = r#"error[E0002]: unknown key `paralelism` in [job]
 --> job.toml:3:1
  |
3 | paralelism = 2
  | ^^^^^^^^^^
  = hint: did you mean `parallelism`?"#;
    assert_eq!(after("name = \"pageviews\"\n", "name = \"pageviews\"\nparalelism = 2\n"), expected);
}

#[test]
fn all_problems_are_named_at_once_in_the_order_of_the_file() {
    let text = r#"[job]
name = "a b"
key_groups = 0
[job.checkpoint]
interval = "10x"
timeout = 5
mode = "exactly_once"
[[source]]
id = "log"
connector = "file"
path = "${NOT_SET}/x"
watermark = { dely = "5s" }
[[operator]]
id = "parse"
component = "parse"
input = "lgo"
[[sink]]
id = "out"
connector = "file"
inputs = ["parse"]
"#;
    let expected = r#"error[E0003]: `name` in [job]: expected a name of letters, digits, `_` and `-`, starting with a letter or digit, 64 at most, found the string "a b"
 --> job.toml:2:8
  |
2 | name = "a b"
  |        ^^^^^

error[E0003]: `key_groups` in [job]: expected a whole number from 1 to 32768, found the number 0
 --> job.toml:3:14
  |
3 | key_groups = 0
  |              ^

error[E0003]: `interval` in [job.checkpoint]: expected a duration such as "500ms", "10s" or "1h30m", or "off", found the string "10x"
 --> job.toml:5:12
  |
5 | interval = "10x"
  |            ^^^^^

error[E0003]: `timeout` in [job.checkpoint]: expected a duration such as "500ms", "10s" or "1h30m", found the number 5
 --> job.toml:6:11
  |
6 | timeout = 5
  |           ^
  = hint: say the unit: "5s" or "5ms"

error[E0003]: `mode` in [job.checkpoint]: expected "exactly-once" or "at-least-once", found the string "exactly_once"
 --> job.toml:7:8
  |
7 | mode = "exactly_once"
  |        ^^^^^^^^^^^^^^
  = hint: did you mean "exactly-once"?

error[E0005]: environment variable `NOT_SET` is not set
  --> job.toml:11:9
   |
11 | path = "${NOT_SET}/x"
   |         ^^^^^^^^^^
   = hint: set it, or give a default: ${NOT_SET:-default}

error[E0002]: unknown key `dely` in `watermark` of source `log`
  --> job.toml:12:15
   |
12 | watermark = { dely = "5s" }
   |               ^^^^
   = hint: did you mean `delay`?

error[E0003]: `component` in operator `parse`: expected "name@version" from the component store, or { path = "my_op.wasm" }, found the string "parse"
  --> job.toml:15:13
   |
15 | component = "parse"
   |             ^^^^^^^
   = hint: say the version: "parse@VERSION" (see `weir component ls`)

error[E0004]: operator `parse` reads `lgo`, but nothing has the id `lgo`
  --> job.toml:16:9
   |
16 | input = "lgo"
   |         ^^^^^
   = hint: did you mean `log`?

error[E0003]: sink `out` has one input
  --> job.toml:20:1
   |
20 | inputs = ["parse"]
   | ^^^^^^^^^^^^^^^^^^
   = hint: join several outputs: input = { from = ["a", "b"] }"#;
    assert_eq!(errors(text, &[]), expected);
}

#[test]
fn a_file_that_is_not_toml_says_where() {
    let message = errors("[job]\nname = pageviews\n", &[]);
    assert!(message.starts_with("error[E0001]: this is not TOML: "), "{message}");
    assert!(message.contains("--> job.toml:2:8\n"), "{message}");
}

/// Parts of the good file, what they are replaced with, and what the messages must then contain.
#[test]
fn each_slip_is_named() {
    let cases: &[(&str, &str, &[&str])] = &[
        ("[job]\nname = \"pageviews\"\n", "", &["the table [job] is missing"]),
        ("[job]\nname = \"pageviews\"\n", "job = 1\n", &["`job` in the job file: expected a table [job], found the number 1"]),
        ("name = \"pageviews\"\n", "", &["`name` is missing in [job]", "job.toml:1:1"]),
        ("[job]\n", "[job]\nparallelism = \"two\"\n", &["expected a whole number from 1 to 1024, found the string \"two\""]),
        ("[job]\n", "[job]\nkey_groups = 40000\n", &["from 1 to 32768, found the number 40000"]),
        (
            "[job]\n",
            "[job]\non_error = \"dead-letter\"\n",
            &["expected \"fail\" or \"dead_letter\"", "did you mean \"dead_letter\"?"],
        ),
        ("[[source]]", "[source]", &["`source` in the job file: expected tables written as [[source]], found a table"]),
        ("[[sink]]", "[[sinks]]", &["unknown key `sinks` in the job file", "did you mean `sink`?"]),
        ("id = \"log\"\n", "", &["`id` is missing in [[source]] number 1"]),
        ("id = \"log\"", "id = \"l.og\"", &["`id` in source `l.og`: expected an id of letters"]),
        ("id = \"log\"", "id = \"dead_letter\"", &["the id `dead_letter` is reserved"]),
        ("id = \"out\"", "id = \"log\"", &["the id of sink `log` is already that of source `log`", "job.toml:16:1"]),
        ("connector = \"file\"\n", "", &["`connector` is missing in source `log`"]),
        ("path = \"access.log\"", "input = \"parse\"", &["source `log` cannot have an input"]),
        ("path = \"access.log\"", "rate = nan", &["`rate`: expected a finite number"]),
        ("component = \"parse@1.0.0\"\n", "", &["`component` is missing in operator `parse`"]),
        ("\"parse@1.0.0\"", "\"./parse.wasm\"", &["hint: a file: component = { path = \"./parse.wasm\" }"]),
        ("\"parse@1.0.0\"", "{ pth = \"x\" }", &["`path` is missing in `component` of operator `parse`", "did you mean `path`?"]),
        ("\"parse@1.0.0\"", "\"parse@\"", &["name and version are of letters"]),
        ("input = \"log\"\n", "", &["`input` is missing in operator `parse`"]),
        ("input = \"log\"", "input = [\"log\"]", &["found an array of 1", "inputs = [{ from = \"a\", as = \"...\" }, ...]"]),
        ("input = \"log\"", "inputs = []", &["`inputs` in operator `parse`: expected an array with one item per input"]),
        ("input = \"log\"", "input = \"log\"\ninputs = [\"log\"]", &["operator `parse` has both `input` and `inputs`"]),
        ("input = \"log\"", "input = { from = [] }", &["`from` in `input` of operator `parse`", "found an array of 0"]),
        ("input = \"log\"", "input = { from = \"log\", exchange = \"hsh\" }", &["did you mean \"hash\"?"]),
        ("input = \"log\"", "input = \"out\"", &["operator `parse` reads sink `out`, but a sink has no output"]),
        ("input = \"log\"", "input = \"parse\"", &["operators form a cycle: parse -> parse"]),
        ("input = \"log\"", "input = { from = [\"log\", \"log\"] }", &["operator `parse` reads `log` twice in one input"]),
        ("input = \"log\"", "input = \"dead_letter\"", &["operator `parse` reads `dead_letter`, which only sinks can read"]),
        ("\"parse.malformed\"", "\"parse.malformd\"", &["has no output `malformd`", "did you mean `parse.malformed`?"]),
        ("\"parse.malformed\"", "\"prase.malformed\"", &["nothing has the id `prase`", "did you mean `parse.malformed`?"]),
        ("\"parse.malformed\"", "\"parse.dead_letter\"", &["`dead_letter` stands for the rejected rows of all operators"]),
        ("\"parse.malformed\"", "\"parse.rest\"", &["has no output `rest`", "it has: parse.main, parse.malformed"]),
        ("config = {", "confg = {", &["unknown key `confg` in operator `parse`", "did you mean `config`?"]),
        (
            "config = { malformed = \"output\" }",
            "config = 1",
            &["`config` in operator `parse`: expected a table, found the number 1"],
        ),
        (
            "config",
            "limits = { memory = \"8GiB\" }\nconfig",
            &["expected a size from \"64KiB\" to \"4GiB\", found the string \"8GiB\""],
        ),
        ("config", "limits = { call = \"0s\" }\nconfig", &["expected a duration of at least 1ms"]),
        (
            "parse@1.0.0",
            "unknown@1",
            &["operator `parse`: there is no component unknown@1", "job.toml:11:1", "weir component ls"],
        ),
        ("parse@1.0.0", "broken@1", &["what its component says of its configuration cannot be used: #/type: expected a type"]),
    ];
    for (old, new, expected) in cases {
        let message = after(old, new);
        for part in *expected {
            assert!(message.contains(part), "{new}\nlacks {part:?}:\n{message}");
        }
    }
}

#[test]
fn a_cycle_is_spelt_out() {
    let more = "[[operator]]\nid = \"a\"\ncomponent = \"a@1\"\ninput = { from = [\"log\", \"c\"] }\n\
                [[operator]]\nid = \"b\"\ncomponent = \"b@1\"\ninput = \"a\"\n\
                [[operator]]\nid = \"c\"\ncomponent = \"c@1\"\ninput = \"b\"\n";
    let message = errors(&format!("{GOOD}{more}"), &[]);
    assert!(message.contains("operators form a cycle: a -> b -> c -> a"), "{message}");
}

#[test]
fn forward_needs_equal_parallelism() {
    let message = after("input = \"log\"", "parallelism = 3\ninput = { from = \"log\", exchange = \"forward\" }");
    assert!(message.contains("source `log` has 1 and operator `parse` has 3"), "{message}");
    assert!(message.contains("job.toml:13:25"), "{message}");
}

#[test]
fn a_keyed_operator_reads_by_hash_or_broadcast_only() {
    let hash_and = |exchange: &str| {
        let (one, other) = (
            "from = \"log\", exchange = \"hash\", as = \"left\"",
            format!("from = \"log\", exchange = \"{exchange}\", as = \"right\""),
        );
        GOOD.replacen("input = \"log\"", &format!("inputs = [{{ {one} }}, {{ {other} }}]"), 1)
            .replacen("parse@1.0.0", "join@1.0.0", 1)
            .replacen("[\"parse\", \"parse.malformed\"]", "\"parse\"", 1)
    };
    for exchange in ["forward", "rebalance"] {
        let message = errors(&hash_and(exchange), &[]);
        assert!(message.contains("operator `parse` is keyed by its hash input `log`, so it cannot read `log` by"), "{message}");
    }
    assert!(load_with(&hash_and("broadcast"), &[]).is_ok());
}

#[test]
fn a_keyed_operator_has_no_more_subtasks_than_key_groups() {
    let input = "parallelism = 9\ninput = { from = \"log\", exchange = \"hash\" }";
    let message = errors(&GOOD.replacen("input = \"log\"", input, 1), &["job.key_groups=8"]);
    assert!(message.contains("has a hash input and parallelism 9, more than the job's 8 key groups"), "{message}");
    assert!(message.contains("job.toml:12:1"), "{message}");
}

#[test]
fn dead_letters_need_a_writer() {
    let alone = GOOD.replacen("{ from = [\"parse\", \"parse.malformed\"] }", "\"dead_letter\"", 1);
    assert!(load_with(&alone, &[]).is_ok());
    let message = errors(&alone, &["job.on_error=fail"]);
    assert!(message.contains("sink `out` reads `dead_letter`, but no operator writes to it"), "{message}");
    let with_others = GOOD.replacen("\"parse.malformed\"]", "\"parse.malformed\", \"dead_letter\"]", 1);
    let job = load_with(&with_others, &["job.on_error=fail"]).unwrap();
    assert!(job.warnings().to_string().contains("no operator writes to it"), "{}", job.warnings());
}

#[test]
fn a_job_needs_a_source_and_someone_who_reads_it() {
    assert!(errors("[job]\nname = \"x\"\n", &[]).contains("the job has no source"));
    let message = errors("[job]\nname = \"x\"\n[[source]]\nid = \"a\"\nconnector = \"stdin\"\n", &[]);
    assert!(message.contains("nothing reads the sources of this job"), "{message}");
}

#[test]
fn an_output_that_nothing_reads_is_warned_about_not_refused() {
    let job = load_with(&GOOD.replacen(", \"parse.malformed\"", "", 1), &[]).unwrap();
    let expected = r#"warning: nothing reads the output `malformed` of operator `parse`: its rows are discarded
  --> job.toml:10:1
   |
10 | id = "parse"
   | ^^^^^^^^^^^^
   = hint: a sink with input = "parse.malformed" reads them; connector = "blackhole" says that nobody wants them"#;
    assert_eq!(job.warnings().to_string(), expected);
    let idle = GOOD.replacen(", \"parse.malformed\"", "", 1).replacen("\"output\"", "\"discard\"", 1);
    assert!(load_with(&idle, &[]).unwrap().warnings().is_empty(), "it gets no rows");
}

#[test]
fn a_flag_that_names_nothing_is_shown_with_the_nearest_name() {
    let cases = [
        (
            "sorce.log.path=x",
            "error[E0006]: `sorce` is not a part of a job\n --> --set sorce.log.path=x\n  = hint: did you mean `source`?",
        ),
        (
            "source.lgo.path=x",
            "error[E0006]: the job has no source `lgo`\n --> --set source.lgo.path=x\n  = hint: did you mean `log`?",
        ),
        (
            "job.paralelism=2",
            "error[E0002]: unknown key `paralelism` in [job]\n --> --set job.paralelism=2\n  = hint: did you mean `parallelism`?",
        ),
        (
            "job.parallelism=x",
            "error[E0003]: `parallelism` in [job]: expected a whole number from 1 to 1024, found the string \"x\"\n --> --set job.parallelism=x",
        ),
        (
            "operator.parse.input.exchange=hash",
            "error[E0006]: `exchange` cannot be set within the string \"log\"\n --> --set operator.parse.input.exchange=hash",
        ),
    ];
    for (flag, expected) in cases {
        assert_eq!(errors(GOOD, &[flag]), expected);
    }
    for flag in ["=x", "job=x", "source.log=x", "a b=c", "job..x=1"] {
        assert!(errors(GOOD, &[flag]).contains("error[E0006]"), "{flag}");
    }
}

#[test]
fn a_connectors_complaint_points_at_its_setting() {
    let job = load_with(GOOD, &["sink.out.path=elsewhere"]).unwrap();
    let placed = |vertex: &str, key: &str| job.diagnostic(vertex, key, "no such file", Some("make it")).to_string();
    let expected = r#"error[E0007]: source `log`: no such file
 --> job.toml:7:1
  |
7 | path = "access.log"
  | ^^^^^^^^^^^^^^^^^^^
  = hint: make it"#;
    assert_eq!(placed("log", "path"), expected);
    assert!(placed("log", "not_there").contains("job.toml:4:1"), "{}", placed("log", "not_there"));
    assert!(placed("parse", "config.size").contains("job.toml:13:1"));
    assert_eq!(
        placed("out", "path"),
        "error[E0007]: sink `out`: no such file\n --> --set sink.out.path=elsewhere\n  = hint: make it"
    );
    assert!(placed("", "checkpoint.storage").contains("error[E0007]: no such file\n --> job.toml:1:1"));
    assert!(placed("no such vertex", "x").contains("job.toml:1:1"));
}

#[test]
fn a_slip_in_a_common_key_is_noticed_when_the_connector_complains() {
    let job = load_with(&GOOD.replacen("path = \"access.log\"", "paralelism = 2", 1), &[]).unwrap();
    let message = job.diagnostic("log", "paralelism", "unknown setting", None).to_string();
    assert!(message.contains("did you mean `parallelism`?"), "{message}");
}

#[test]
fn a_long_line_and_wide_characters_keep_the_caret_in_place() {
    let long = format!("[job]\nname = \"x\"\nx = [\"{}\"]\ny = 1\n", "é".repeat(300));
    let message = errors(&long, &[]);
    assert!(message.lines().all(|line| line.chars().count() < 200), "{message}");
    let message = errors("[job]\n\"ключ\" = 1\nname = \"x\"\n", &[]);
    assert!(message.contains("2 | \"ключ\" = 1\n  | ^^^^^^"), "{message}");
}

/// Pieces that make texts which get past the TOML reader often.
fn piece() -> impl Strategy<Value = String> {
    let words = prop::sample::select(vec![
        "[job]\n",
        "name = \"x\"\n",
        "[[source]]\n",
        "[[operator]]\n",
        "[[sink]]\n",
        "[job.checkpoint]\n",
        "[job.restart]\n",
        "id = \"a\"\n",
        "id = \"b\"\n",
        "id = \"c\"\n",
        "input = \"a\"\n",
        "input = \"b\"\n",
        "input = \"dead_letter\"\n",
        "inputs = [\"a\", { from = [\"b\", \"a.main\"], exchange = \"hash\", as = \"left\" }]\n",
        "component = \"join@1\"\n",
        "component = \"unknown@1\"\n",
        "component = \"typed@1\"\n",
        "connector = \"file\"\n",
        "component = \"a@1\"\n",
        "interval = \"1s\"\n",
        "interval = 1\n",
        "outputs = [\"main\", \"x\"]\n",
        "config = { a.b = 1, c = nan }\n",
        "job.name = 1\n",
        "strategy = \"fixed\"\n",
        "parallelism = 2\n",
        "parallelism = \"${X}\"\n",
        "source = 1\n",
        "operator = [1, {}]\n",
        "path = \"${\"\n",
    ]);
    prop_oneof![8 => words.prop_map(str::to_owned), 1 => any::<String>()]
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in any::<String>(), key in any::<String>(), value in any::<String>()) {
        let _ = load("x", &text, &[(key, value)], &|_| None, &describe).map_err(|errors| errors.to_string());
    }

    #[test]
    fn no_likely_text_makes_it_panic(pieces in prop::collection::vec(piece(), 0..30), flag in "(job|source|operator|sink)\\.[abc]\\.(id|input|parallelism|inputs\\.1)") {
        let flags = [(flag, "b".to_owned())];
        match load("x", &pieces.concat(), &flags, &|_| Some("1".to_owned()), &describe) {
            Ok(job) => {
                let in_chains: usize = job.chains().iter().map(|chain| chain.vertices.len()).sum();
                prop_assert_eq!(in_chains, job.vertices.len());
                let _ = (job.to_text(), job.to_dot(), job.warnings().to_string());
                let _ = job.diagnostic("a", "path.x", "m", None).to_string();
            }
            Err(errors) => {
                prop_assert!(!errors.is_empty());
                let _ = errors.to_string();
            }
        }
    }

    #[test]
    fn no_cut_or_changed_good_file_makes_it_panic(at in 0..GOOD.len(), byte in any::<char>()) {
        let _ = load_with(&GOOD[..at], &[]).map_err(|errors| errors.to_string());
        let _ = load_with(&format!("{}{byte}{}", &GOOD[..at], &GOOD[at + 1..]), &[]).map_err(|errors| errors.to_string());
    }
}

/// What is said about a job of a source, an operator and a sink, given as TOML.
fn warnings_of(source: &str, operator: &str) -> String {
    let text = format!(
        "[job]\nname = \"j\"\n[[source]]\nid = \"log\"\nconnector = \"file\"\n{source}\n[[operator]]\nid = \"op\"\n\
         input = {{ from = \"log\", exchange = \"hash\" }}\n{operator}\n[[sink]]\nid = \"out\"\nconnector = \"stdout\"\ninput = \"op\"\n"
    );
    load_with(&text, &[]).unwrap().warnings().to_string()
}

const TIMED: &str = "event_time = { field = \"at\", format = \"rfc3339\" }\nwatermark = { delay = \"0s\" }";

#[test]
fn an_output_that_gets_rows_and_no_reader_is_warned_of() {
    for component in ["window", "distinct", "rate-alert"] {
        let said = warnings_of(TIMED, &format!("component = \"{component}@1.2.0\""));
        assert!(
            said.contains("nothing reads the output `late` of operator `op`") && said.contains("input = \"op.late\""),
            "{said}"
        );
    }
    for (component, key) in [("filter", "dropped"), ("parse", "malformed")] {
        let said = |to: &str| warnings_of("", &format!("component = \"{component}@1.2.0\"\nconfig = {{ {key} = \"{to}\" }}"));
        assert!(said("output").contains(&format!("nothing reads the output `{key}` of operator `op`")), "{}", said("output"));
        assert_eq!(said("discard"), "");
        assert_eq!(warnings_of("", &format!("component = \"{component}@1.2.0\"")), "");
    }
}

#[test]
fn windows_over_a_source_without_times_are_warned_of() {
    let window = "component = \"window@1.2.0\"";
    let said = warnings_of("", window);
    assert!(said.contains("operator `op` goes by event time, but source `log` has no `event_time`"), "{said}");
    let said = warnings_of("event_time = { field = \"at\", format = \"rfc3339\" }", window);
    assert!(said.contains("source `log` has no `watermark.delay`") && said.contains("may be late"), "{said}");
    assert!(!warnings_of(TIMED, window).contains("event time"), "who says 0s means it");
    assert_eq!(warnings_of("", "component = \"filter@1.2.0\""), "", "nothing goes by it");
}

#[test]
fn what_ends_a_job_at_one_row_is_warned_of() {
    let filter = "component = \"filter@1.2.0\"";
    let said = warnings_of("", &format!("{filter}\non_error = \"fail\""));
    assert!(said.contains("one row that operator `op` cannot process ends the job (`on_error"), "{said}");
    let said = warnings_of("long_lines = \"fail\"", filter);
    assert!(said.contains("one line that is too long in source `log` ends the job"), "{said}");
    let said = warnings_of("event_time = { field = \"at\", format = \"rfc3339\", no_time = \"fail\" }", filter);
    assert!(said.contains("one row without a readable time in source `log` ends the job"), "{said}");
}
