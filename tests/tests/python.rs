//! s50 with a component written in Python: killed in the middle, a restored interpreter goes on counting.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use weir_tests::{KeyedJob, Random, World, rows};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the repository").to_owned()
}

/// Builds examples/python-count as its README says.
fn build(world: &World) -> PathBuf {
    let tool = std::env::var_os("WEIR_COMPONENTIZE_PY").expect("WEIR_COMPONENTIZE_PY is not set: run by `cargo xtask test`");
    let component = world.path("python-count.wasm");
    let built = Command::new(tool)
        .arg("-d")
        .arg(repository().join("wit/weir.wit"))
        .args(["-w", "operator", "componentize", "--stub-wasi", "app", "-p"])
        .arg(repository().join("examples/python-count"))
        .arg("-o")
        .arg(&component)
        .output()
        .expect("componentize-py starts");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    component
}

const JOB: KeyedJob = KeyedJob {
    name: "python",
    job: "key_groups = 8\ncheckpoint = { interval = \"100ms\" }",
    source: "path = \"in.jsonl\"",
    key: "k",
    uid: "count",
    operator: "component = { path = \"python-count.wasm\" }",
    more: "",
};

#[test]
fn s50_a_python_operator_goes_on_counting_after_kills() {
    let world = World::new();
    build(&world);
    let mut random = Random::new(50);
    let mut expected: BTreeMap<String, u64> = BTreeMap::new();
    let mut input = String::new();
    for _ in 0..150_000 {
        let key = format!("k{}", random.below(40));
        input += &format!("{{\"k\":\"{key}\"}}\n");
        *expected.entry(key).or_default() += 1;
    }
    world.write("in.jsonl", input);
    world.write("job.toml", JOB.text());
    let mut kills = 0;
    for at in [1, 2, 4] {
        let mut running = world.start(&mut world.weir(["run", "job.toml", "--json"]));
        running.event(|event| {
            let completed = event["event"] == "checkpoint_completed" && event["checkpoint"].as_u64() >= Some(at);
            completed || event["event"] == "summary"
        });
        kills += u32::from(running.kill());
    }
    assert!(kills > 0, "no kill hit a running job");
    world.run(&["job.toml"]);
    let mut found: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for row in rows(&world.path("out")) {
        found.entry(row.key).or_default().push(row.value.as_u64().expect("a count"));
    }
    for (key, count) in expected {
        let counts = found.remove(&key).unwrap_or_default();
        assert!(
            counts == (1..=count).collect::<Vec<_>>(),
            "{key}: each count once and in order, up to {count}: {} came",
            counts.len()
        );
    }
    assert!(found.is_empty(), "{:?} were never there", found.keys());
}
