//! A person writes an operator of their own: from nothing to a job that runs it.

mod support;

use std::process::Command;

use support::{TARGET_DIR, World, run};

/// The first piece of Rust in a document of this repository.
fn first_rust_of(document: &str) -> String {
    let path = format!("{}/../../{document}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).expect("the document");
    let (_, code) = text.split_once("```rust\n").expect("a piece of Rust");
    code.split("```").next().unwrap_or_default().to_owned()
}

/// Builds the crate that `component new` writes, as it is, with cargo alone.
#[test]
fn an_operator_of_ones_own_goes_from_template_to_a_running_job() {
    let world = World::new();
    let made = world.weir(&["component", "new", "--lang", "rust", "my-op"]);
    assert_eq!(made.code, Some(0), "{made:?}");
    // The versions of dependencies this workspace has tested.
    let lock = concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.lock");
    std::fs::copy(lock, world.path("my-op/Cargo.lock")).expect("the lock file");

    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let tested = run(cargo.args(["test", "--quiet"]).current_dir(world.path("my-op")).env("CARGO_TARGET_DIR", TARGET_DIR));
    assert_eq!(tested.code, Some(0), "the template's own tests: {tested:?}");

    // What the documents show is written in such a crate.
    let template = std::fs::read_to_string(world.path("my-op/src/lib.rs")).expect("the template");
    for document in ["README.md", "docs/guide/operators.md"] {
        world.write("my-op/src/lib.rs", first_rust_of(document));
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        let cargo = cargo.args(["build", "--quiet", "--lib"]).current_dir(world.path("my-op"));
        let built = run(cargo.env("CARGO_TARGET_DIR", TARGET_DIR));
        assert_eq!(built.code, Some(0), "the operator in {document}: {built:?}");
    }
    world.write("my-op/src/lib.rs", template);

    let built = world.good(&["component", "build", "my-op"]);
    let digest = built.trim_end().rsplit(' ').next().expect("a digest");
    let inspected: serde_json::Value =
        serde_json::from_str(&world.good(&["component", "inspect", "--json", "my-op/my-op.wasm"])).expect("JSON");
    assert_eq!((&inspected["digest"], &inspected["name"]), (&digest.into(), &"my-op@0.1.0".into()));
    assert_eq!(inspected["snapshots"], serde_json::json!(["image", "portable"]));
    assert!(world.good(&["component", "check", "my-op/my-op.wasm"]).contains("good, my-op@0.1.0"));

    // By path, as the template's job file names it.
    let output = world.good(&["run", "my-op/job.toml"]);
    let counts: Vec<u64> = output
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON lines"))
        .map(|row| row["value"].as_u64().expect("a count"))
        .collect();
    // 1000 rows of 5 keys, a count after each hundredth row of a key.
    assert!((6..=10).contains(&counts.len()) && counts.iter().all(|count| count % 100 == 0), "{output}");

    // What ran has left a last checkpoint.
    assert!(world.good(&["checkpoint", "ls", "my-op-try"]).contains("final"));
    let shown = world.good(&["checkpoint", "show", "my-op-try"]);
    assert!(shown.contains("count, parallelism 1") && shown.contains(&digest[..12]), "{shown}");

    // By name, from the store.
    assert_eq!(world.good(&["component", "push", "my-op/my-op.wasm"]), format!("my-op@0.1.0 {digest}\n"));
    let named = ["--set", "operator.count.component=my-op@0.1.0", "--set", "job.name=named"];
    world.good(&[&["job", "check", "my-op/job.toml"][..], &named].concat());
    assert_eq!(world.good(&[&["run", "my-op/job.toml"][..], &named].concat()).lines().count(), counts.len());
}
