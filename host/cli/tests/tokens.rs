//! Tokens of a real coordinator: who may what, who did what, and what is on disk of them.

mod support;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::Value;
use support::{Daemon, Done, World, run};

/// A cluster whose API everybody has to show a token for, and its admin.
struct Site {
    world: World,
    coordinator: Daemon,
}

impl Site {
    fn new() -> Site {
        let world = World::new();
        world.good(&["cluster", "init", "c"]);
        let coordinator = Daemon::coordinator(&world, "c/nodes/coordinator", "0.0.0.0:0", "data");
        Site { world, coordinator }
    }

    fn ask(&self, token_file: &str, arguments: &[&str]) -> Done {
        let port = self.coordinator.line["api"].as_str().and_then(|url| url.rsplit(':').next()).expect("a port").to_owned();
        let mut command = self.world.command(arguments);
        command.env("WEIR_COORDINATOR", format!("https://127.0.0.1:{port}"));
        command.env("WEIR_CA", self.world.path("c/ca.pem")).env("WEIR_TOKEN_FILE", self.world.path(token_file));
        run(&mut command)
    }

    fn admin(&self, arguments: &[&str]) -> String {
        let done = self.ask("c/token", arguments);
        assert_eq!(done.code, Some(0), "weir {arguments:?}: {done:?}");
        done.stdout
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

#[test]
fn a_token_may_what_its_role_says_until_it_is_revoked_and_events_name_it() {
    let site = Site::new();
    site.world.component("count.wasm", 1, Some(("count", "1.0.0")));
    assert_eq!(site.admin(&["token", "create", "v", "--role", "viewer", "--output", "v.token"]), "v.token\n");
    let mode = std::fs::metadata(site.world.path("v.token")).expect("the file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let secret = site.admin(&["token", "create", "s", "--role", "submitter", "--expires", "90d"]);
    assert_eq!(secret.trim().len(), 64, "{secret}");
    site.world.write("s.token", &secret);
    std::fs::set_permissions(site.world.path("s.token"), std::fs::Permissions::from_mode(0o600)).expect("its mode");

    assert_eq!(site.ask("v.token", &["job", "ls"]).code, Some(0));
    let refused = site.ask("v.token", &["component", "push", "count.wasm"]);
    assert!(refused.code == Some(4) && refused.stderr.starts_with("error[E0059]"), "{refused:?}");
    assert!(refused.stderr.contains("needs the role submitter") && refused.stderr.contains("token v has the role viewer"));
    assert_eq!(site.ask("s.token", &["component", "push", "count.wasm"]).code, Some(0));
    assert_eq!(site.ask("s.token", &["token", "ls"]).code, Some(4));

    let shown = site.admin(&["token", "ls"]);
    assert!(["init ", "s ", "v "].iter().all(|name| shown.lines().any(|line| line.starts_with(name))), "{shown}");
    assert!(!shown.contains(secret.trim()), "{shown}");
    let refused = site.ask("c/token", &["token", "revoke", "init"]);
    assert!(refused.code == Some(4) && refused.stderr.contains("E0060"), "{refused:?}");
    site.admin(&["token", "revoke", "s"]);
    let gone = site.ask("s.token", &["job", "ls"]);
    assert!(gone.code == Some(4) && gone.stderr.starts_with("error[E0051]") && !gone.stderr.contains("revoked"), "{gone:?}");

    let events = site.admin(&["cluster", "events", "--json"]);
    let events: Vec<Value> = events.lines().map(|line| serde_json::from_str(line).expect("an event")).collect();
    let named: Vec<(&str, &str)> =
        events.iter().map(|event| (event["kind"].as_str().unwrap(), event["by"].as_str().unwrap_or("nobody"))).collect();
    let expected = [
        ("token-created", "nobody"),
        ("token-created", "token:init"),
        ("token-created", "token:init"),
        ("component-pushed", "token:s"),
        ("token-revoked", "token:init"),
    ];
    assert_eq!(named, expected);
    assert!(site.admin(&["cluster", "events"]).contains("(by token s)"));
}

#[test]
fn s138_tokens_are_in_their_own_files_only() {
    let site = Site::new();
    let secret = site.admin(&["token", "create", "v", "--role", "viewer"]);
    let of_file = std::fs::read_to_string(site.world.path("c/token")).expect("the token");
    assert_eq!(site.ask("c/token", &["job", "ls"]).code, Some(0));
    let holding = |text: &str| -> Vec<PathBuf> {
        let holds = |path: &PathBuf| std::fs::read(path).is_ok_and(|bytes| bytes.windows(64).any(|part| part == text.as_bytes()));
        files(site.world.folder()).into_iter().filter(holds).collect()
    };
    assert_eq!(holding(secret.trim()), Vec::<PathBuf>::new());
    assert_eq!(holding(of_file.trim()).len(), 2, "of the cluster's folder and of the coordinator's");
    // The look would have seen them.
    site.world.write("copy", &secret);
    assert_eq!(holding(secret.trim()).len(), 1);
}

#[test]
fn a_token_is_not_created_where_its_file_cannot_be() {
    let site = Site::new();
    site.world.write("there", "x");
    let done = site.ask("c/token", &["token", "create", "v", "--role", "viewer", "--output", "there"]);
    assert!(done.code == Some(2) && done.stderr.starts_with("error[E0023]"), "{done:?}");
    let done = site.ask("c/token", &["token", "create", "v", "--role", "viewer", "--output", "no/folder"]);
    assert!(done.code == Some(2) && done.stderr.starts_with("error[E0023]"), "{done:?}");
    assert!(!site.admin(&["token", "ls"]).contains("v "), "nobody has it, so it does not count");
    let done = site.ask("c/token", &["token", "create", "v", "--role", "boss"]);
    assert!(done.code == Some(2) && done.stderr.contains("viewer, operator, submitter and admin"), "{done:?}");
}

#[test]
fn a_coordinator_with_tokens_starts_without_the_file_and_its_token_is_gone() {
    let mut site = Site::new();
    site.admin(&["token", "create", "a", "--role", "admin", "--output", "a.token"]);
    site.coordinator.terminate();
    std::fs::remove_file(site.world.path("c/nodes/coordinator/token")).expect("the file");
    site.coordinator = Daemon::coordinator(&site.world, "c/nodes/coordinator", "0.0.0.0:0", "data");
    assert_eq!(site.ask("c/token", &["job", "ls"]).code, Some(4));
    assert_eq!(site.ask("a.token", &["token", "ls"]).code, Some(0));
}
