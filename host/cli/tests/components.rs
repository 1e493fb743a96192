//! Components and their store, by the commands.

mod support;

use support::World;

fn digest_in(stdout: &str) -> &str {
    let digest = stdout.trim_end().rsplit(' ').next().expect("a digest");
    assert_eq!(digest.len(), 64, "{stdout}");
    digest
}

#[test]
fn a_component_is_pushed_listed_shown_and_removed() {
    let world = World::new();
    let of_weir = world.good(&["component", "ls"]);
    assert!(of_weir.lines().skip(1).all(|line| line.ends_with("with weir")), "{of_weir}");
    world.component("count.wasm", 1, Some(("count", "1.0.0")));
    let pushed = world.good(&["component", "push", "count.wasm"]);
    assert!(pushed.starts_with("count@1.0.0 "), "{pushed}");
    let digest = digest_in(&pushed);

    let listed = world.good(&["component", "ls"]);
    let row = listed.lines().find(|line| line.starts_with("count ")).expect("a row");
    assert!(row.contains(" 1.0.0 ") && row.contains(&digest[..12]), "{listed}");
    let listed: serde_json::Value = serde_json::from_str(&world.good(&["--json", "component", "ls"])).expect("JSON");
    let count = listed.as_array().expect("a list").iter().find(|one| one["name"] == "count").expect("it");
    assert_eq!((&count["digest"], &count["version"]), (&digest.into(), &"1.0.0".into()));

    assert!(world.good(&["component", "show", "count@1.0.0"]).contains(digest));
    let shown = world.good(&["component", "inspect", "count.wasm"]);
    assert!(shown.contains("weir:operator/lifecycle@0.2.0") && shown.contains("\noutputs    main\n"), "{shown}");
    let inspected: serde_json::Value =
        serde_json::from_str(&world.good(&["component", "inspect", "--json", "count.wasm"])).expect("JSON");
    assert_eq!((&inspected["digest"], &inspected["name"]), (&digest.into(), &"count@1.0.0".into()));
    assert_eq!(
        (&inspected["description"]["inputs"][0]["name"], &inspected["description"]["config"]),
        (&"in".into(), &true.into())
    );

    world.good(&["component", "rm", "count@1.0.0"]);
    assert_eq!(world.good(&["component", "ls"]), of_weir);
    let message = world.bad(2, &["component", "rm", "count@1.0.0"]);
    assert!(message.starts_with("error[E0020]: there is no component count@1.0.0 in "), "{message}");
}

#[test]
fn the_contract_is_written_out() {
    let world = World::new();
    let text = world.good(&["component", "wit"]);
    assert!(text.contains("package weir:operator@0.2.0;") && text.contains("describe: func() -> description"), "{text}");
    assert_eq!(world.good(&["component", "wit", "a/wit"]), "");
    assert_eq!(std::fs::read_to_string(world.path("a/wit/weir.wit")).expect("the file"), text);
}

#[test]
fn a_version_is_never_given_other_bytes() {
    let world = World::new();
    world.component("one.wasm", 1, Some(("count", "1.0.0")));
    world.component("two.wasm", 2, Some(("count", "1.0.0")));
    let first = world.good(&["component", "push", "one.wasm"]);
    let again = world.weir(&["component", "push", "one.wasm"]);
    assert_eq!((again.code, &again.stdout), (Some(0), &first));
    assert!(again.stderr.contains("count@1.0.0 was already there"), "{}", again.stderr);
    let message = world.bad(4, &["component", "push", "two.wasm"]);
    assert!(message.starts_with("error[E0021]: cannot push count@1.0.0: it stands for other bytes already"), "{message}");
    assert!(message.contains("hint: a version never changes"), "{message}");
    let second = world.good(&["component", "push", "two.wasm", "--version", "1.0.1"]);
    assert_ne!(digest_in(&first), digest_in(&second));
}

#[test]
fn a_component_without_a_name_needs_one_to_be_pushed() {
    let world = World::new();
    world.component("plain.wasm", 1, None);
    let message = world.bad(2, &["component", "push", "plain.wasm"]);
    assert!(message.contains("carries no name and version") && message.contains("--name NAME --version VERSION"), "{message}");
    assert!(world.good(&["component", "push", "plain.wasm", "--name", "a", "--version", "1"]).starts_with("a@1 "));
    assert!(world.bad(2, &["component", "push", "plain.wasm", "--name", "../a", "--version", "1"]).contains("error[E0020]"));
}

#[test]
fn what_is_no_component_is_refused_with_the_reason() {
    let world = World::new();
    world.write("text.wasm", "not wasm");
    world.write("core.wasm", wat::parse_str("(module)").expect("a module"));
    for command in ["check", "inspect", "push"] {
        for file in ["text.wasm", "core.wasm"] {
            let message = world.bad(4, &["component", command, file]);
            assert!(message.starts_with(&format!("error[E0022]: cannot use {file} as a component: ")), "{message}");
            assert!(message.contains("  = hint: "), "{message}");
        }
    }
    let message = world.bad(2, &["component", "inspect", "txt.wasm"]);
    assert!(message.contains("cannot read the component txt.wasm: ") && message.contains("did you mean text.wasm?"), "{message}");
}

#[test]
fn other_languages_are_answered_with_what_there_is() {
    let world = World::new();
    let message = world.bad(2, &["component", "new", "--lang", "cobol", "my-op"]);
    assert!(message.contains("there is one for rust") && message.contains("weir component check FILE"), "{message}");
}

#[test]
fn a_new_component_overwrites_nothing_and_has_a_usable_name() {
    let world = World::new();
    world.write("there/file", "mine");
    let message = world.bad(2, &["component", "new", "there"]);
    assert!(message.contains("there is something at that path"), "{message}");
    for name in ["1op", "my.op", "test", ".."] {
        assert!(world.bad(2, &["component", "new", name]).contains("error[E0027]"), "{name}");
    }
}

#[test]
fn building_where_there_is_no_crate_says_so() {
    let world = World::new();
    let message = world.bad(2, &["component", "build"]);
    assert!(message.starts_with("error[E0024]") && message.contains("weir component new NAME"), "{message}");
}
