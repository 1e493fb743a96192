//! s138: what a job takes from the environment, tokens and keys are on no screen, in no log and in no text that lies about; and all that
//! Weir itself writes is for its user alone.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use weir_tests::{Cluster, KeyedJob, World};

const SECRET: &str = "s3cret41f6c0";

/// Groups by a field whose name only the environment knows.
const JOB: KeyedJob = KeyedJob {
    name: "secrets",
    job: "checkpoint = { interval = \"50ms\" }",
    source: "path = \"in\"",
    key: "${TEST_SECRET}",
    uid: "sums",
    operator: "component = \"ledger@1.2.0\"\nconfig = { field = \"n\", emit = \"end\" }",
    more: "",
};

fn rows() -> String {
    (0..1_000).map(|row| format!("{{\"{SECRET}\":\"k{}\",\"n\":1}}\n", row % 7)).collect()
}

/// Every file below a folder, but for what is behind links.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry"));
    let below = |entry: fs::DirEntry| match entry.file_type().expect("its type") {
        kind if kind.is_dir() => files(&entry.path()),
        kind if kind.is_file() => vec![entry.path()],
        _ => Vec::new(),
    };
    entries.flat_map(below).collect()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("its mode").permissions().mode() & 0o777
}

/// Only the user gets at any of these files: each is closed, or in a closed folder below `root`.
fn assert_private(root: &Path) {
    for file in files(root) {
        let closed = |path: &Path| mode(path) & 0o077 == 0;
        let folders = file.ancestors().skip(1).take_while(|folder| folder.starts_with(root));
        assert!(closed(&file) || folders.into_iter().any(closed), "{}: {:o}", file.display(), mode(&file));
    }
}

fn assert_silent(what: &str, text: &[u8]) {
    let holds = text.windows(SECRET.len()).any(|part| part == SECRET.as_bytes());
    assert!(!holds, "{what} says it: {}", String::from_utf8_lossy(text));
}

#[test]
fn s138_a_job_of_this_process_leaves_nothing_for_others() {
    let world = World::new();
    world.write("in/a.json", rows());
    world.write("job.toml", JOB.text());
    let mut command = world.weir(["run", "job.toml", "--log", "trace"]);
    let done = world.finish(command.env("TEST_SECRET", SECRET));
    assert!(done.status.success(), "{}", done.stderr);
    assert_silent("standard error", done.stderr.as_bytes());
    assert_private(&world.data().join("jobs"));
    let manifests = files(&world.data().join("jobs/secrets/manifests"));
    assert!(!manifests.is_empty());
    for manifest in manifests {
        assert_silent("a manifest", &fs::read(manifest).expect("the manifest"));
    }
    // What the sink made is for others, as the user's mask says.
    let out: Vec<PathBuf> = files(&world.path("out"));
    let plain = world.write("plain", "");
    assert!(!out.is_empty() && out.iter().all(|file| mode(file) == mode(&plain)), "{out:?}");
    fs::create_dir(world.path("folder")).expect("a folder");
    assert_eq!(mode(&world.path("out")), mode(&world.path("folder")));
    let shown = world.finish(world.weir(["checkpoint", "show", "secrets", "--json"]).env("TEST_SECRET", SECRET));
    assert!(shown.status.success());
    assert_silent("checkpoint show", shown.stdout.as_bytes());
}

#[test]
fn s138_a_cluster_tells_nobody_what_it_was_given() {
    let mut cluster = Cluster::prepared(weir_tests::Place::loopback());
    for node in ["coordinator", "w1"] {
        cluster.setup(node).environment = vec![("WEIR_LOG".to_owned(), "trace".to_owned())];
    }
    cluster.start_coordinator();
    cluster.start_worker("w1", 1);
    cluster.until_connected(1);
    cluster.write("in/a.json", rows());
    cluster.write("job.toml", JOB.text());
    let mut submit = cluster.weir(["job", "submit", "job.toml", "--env", "TEST_SECRET"]);
    let done = cluster.world().finish(submit.env("TEST_SECRET", SECRET));
    assert!(done.status.success(), "{}", done.stderr);
    cluster.until_state("secrets", "finished");
    // In places too: a viewer is shown the variable's name.
    let places = KeyedJob { name: "places", job: "checkpoint = { storage = \"checkpoints-${TEST_SECRET}\" }", ..JOB };
    cluster.write("places.toml", places.text());
    let mut submit = cluster.weir(["job", "submit", "places.toml", "--env", "TEST_SECRET"]);
    let done = cluster.world().finish(submit.env("TEST_SECRET", SECRET));
    assert!(done.status.success(), "{}", done.stderr);
    cluster.good(&["token", "create", "v", "--role", "viewer", "--output", "v.token"]);
    let shown = cluster.good(&["job", "show", "places", "--json", "--token-file", "v.token"]);
    assert!(shown.contains("checkpoints-${TEST_SECRET}"), "{shown}");
    assert_silent("job show of places", shown.as_bytes());
    let token = fs::read_to_string(cluster.path("cluster/token")).expect("the token");
    for (what, text) in [
        ("job submit", done.stderr + &done.stdout),
        ("job show", cluster.good(&["job", "show", "secrets", "--json"])),
        ("job events", cluster.good(&["job", "events", "secrets", "--json"])),
        ("config show", cluster.good(&["config", "show"])),
        ("the coordinator's log", cluster.log("coordinator")),
        ("the worker's log", cluster.log("w1")),
    ] {
        assert!(!text.is_empty(), "{what}");
        assert_silent(what, text.as_bytes());
        assert!(!text.contains(token.trim()), "{what} says the token");
    }
    let manifests = files(&cluster.path("checkpoints/secrets/manifests"));
    assert!(!manifests.is_empty());
    for manifest in manifests {
        assert_silent("a manifest", &fs::read(manifest).expect("the manifest"));
    }
    for folder in ["coordinator", "w1"] {
        assert_private(&cluster.path(&format!("nodes/{folder}")));
    }
}
