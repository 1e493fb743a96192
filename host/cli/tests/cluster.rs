//! Commands against a coordinator's API.

mod support;

use std::os::unix::fs::PermissionsExt;

use serde_json::Value;
use support::cluster::Api;
use support::{Done, World, run};
use weir_api::Token;
use weir_protocol::api::JobState;

const JOB: &str = r#"[job]
name = "try"

[[source]]
id = "rows"
connector = "file"
path = "${ROWS:-rows.txt}"

[[operator]]
id = "count"
component = "count@1.0.0"
input = { from = "rows", exchange = "hash" }

[[operator]]
id = "own"
component = { path = "own.wasm" }
input = "count"

[[sink]]
id = "out"
connector = "blackhole"
input = "own"
"#;

fn with_job() -> (World, Api) {
    let world = World::new();
    world.component("count.wasm", 1, Some(("count", "1.0.0")));
    world.component("own.wasm", 2, None);
    world.good(&["component", "push", "count.wasm"]);
    world.write("jobs/job.toml", JOB.replace("own.wasm", "../own.wasm"));
    // What the job file names may be taken along.
    world.write("config/weir/weir.toml", "env = [\"ROWS\"]\n");
    (world, Api::new(None))
}

fn weir(world: &World, api: &Api, arguments: &[&str]) -> Done {
    run(world.command(arguments).env("WEIR_COORDINATOR", api.address.to_string()).env("ROWS", "in.txt"))
}

fn good(world: &World, api: &Api, arguments: &[&str]) -> String {
    let done = weir(world, api, arguments);
    assert_eq!(done.code, Some(0), "weir {arguments:?}: {done:?}");
    done.stdout
}

#[test]
fn a_submission_brings_components_environment_and_folder() {
    let (world, api) = with_job();
    let done = weir(&world, &api, &["job", "submit", "jobs/job.toml", "--set", "job.parallelism=2", "--fresh"]);
    assert_eq!((done.code, done.stdout.as_str()), (Some(0), ""), "{done:?}");
    assert!(done.stderr.contains("uploaded count@1.0.0") && done.stderr.contains("try is submitted (waiting)"), "{done:?}");
    let told = api.cluster.told();
    let submission = &told.submissions[0];
    assert!(submission.fresh && !submission.allow_dropped_state);
    assert_eq!(submission.spec.job_dir, world.path("jobs").to_str().expect("a path"));
    assert_eq!(submission.spec.environment["ROWS"], "in.txt");
    assert_eq!(submission.spec.dead_letters, world.path("jobs/dead-letter/try").to_str().expect("a path"));
    assert_eq!(submission.spec.load().expect("a job").parallelism, 2);
    assert_eq!(submission.spec.components.len(), 2);
    assert_eq!(told.components.len(), 1, "the one with a name");
    assert_eq!(told.pushes, 2);
    drop(told);
    assert!(weir(&world, &api, &["job", "submit", "jobs/job.toml"]).stderr.contains("submitted"));
    assert_eq!(api.cluster.told().pushes, 2, "nothing is uploaded twice");
}

#[test]
fn a_wrong_job_is_refused_here_with_its_lines() {
    let (world, api) = with_job();
    world.write("jobs/job.toml", JOB.replace("blackhole", "blackhloe").replace("count@1.0.0", "cuont@1.0.0"));
    let done = weir(&world, &api, &["job", "submit", "jobs/job.toml"]);
    assert_eq!(done.code, Some(2), "{done:?}");
    assert!(done.stderr.contains("--> jobs/job.toml:11:1") && done.stderr.contains("nor on the cluster"), "{done:?}");
    assert!(api.cluster.told().submissions.is_empty());
}

#[test]
fn waiting_ends_with_the_job_and_as_it_does() {
    let (world, api) = with_job();
    api.cluster.told().ends = Some((JobState::Finished, String::new()));
    let done = weir(&world, &api, &["job", "submit", "jobs/job.toml", "--wait"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.stderr.contains("the job has ended") && done.stderr.contains("try: finished; 12,345 rows read"), "{done:?}");
    api.cluster.told().ends = Some((JobState::Failed, "the disk is full".to_owned()));
    let done = weir(&world, &api, &["job", "submit", "jobs/job.toml", "--wait"]);
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(done.stderr.contains("error[E0034]: job try failed: the disk is full"), "{done:?}");
}

#[test]
fn ctrl_c_ends_the_waiting_and_not_the_job() {
    let (world, api) = with_job();
    let mut command = world.command(&["job", "submit", "jobs/job.toml", "--wait"]);
    command.env("WEIR_COORDINATOR", api.address.to_string()).stderr(std::process::Stdio::piped());
    let child = command.spawn().expect("weir starts");
    support::until("the job is submitted", || api.cluster.told().jobs.contains_key("try"));
    api.cluster.told().event("try", "seen", "the client watches");
    let pid = i32::try_from(child.id()).expect("a process id");
    // The handler is there before the first look at the job; what comes before would end it with the signal's own code.
    support::until("a signal is taken", || support::handles_interrupts(pid));
    std::process::Command::new("kill").args(["-INT", &pid.to_string()]).status().expect("kill");
    let output = child.wait_with_output().expect("its end");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{stderr}");
    assert!(stderr.contains("the job goes on"), "{stderr}");
    assert_eq!(api.cluster.told().jobs["try"].0.state, JobState::Running);
}

#[test]
fn a_coordinator_that_is_gone_is_waited_for() {
    let (world, api) = with_job();
    let (cluster, address) = (api.cluster.clone(), api.address);
    let mut command = world.command(&["job", "submit", "jobs/job.toml", "--wait"]);
    command.env("WEIR_COORDINATOR", address.to_string()).stderr(std::process::Stdio::piped());
    let mut child = command.spawn().expect("weir starts");
    support::until("the job is submitted", || cluster.told().jobs.contains_key("try"));
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stderr.take().expect("its messages")));
    drop(api);
    assert!(lines.any(|line| line.expect("text").contains("this waits until it is there again")));
    cluster.told().ends = Some((JobState::Finished, String::new()));
    let _api = Api::at(address, cluster, None);
    assert!(lines.any(|line| line.expect("text").contains("the coordinator is there again")));
    assert!(lines.any(|line| line.expect("text").contains("try: finished")));
    assert_eq!(child.wait().expect("its end").code(), Some(0));
}

#[test]
fn jobs_are_looked_after() {
    let (world, api) = with_job();
    assert_eq!(good(&world, &api, &["job", "ls"]), "");
    api.cluster.told().add_job("try", JobState::Running);
    let listed = good(&world, &api, &["job", "ls"]);
    assert!(listed.lines().nth(1).is_some_and(|row| row.starts_with("try   running")), "{listed}");
    let json: Value = serde_json::from_str(&good(&world, &api, &["job", "ls", "--json"])).expect("JSON");
    assert_eq!(json[0]["state"], "running");
    let shown = good(&world, &api, &["job", "show", "try"]);
    assert!(shown.contains("checkpoint   7: 40 ms, 2.0 KiB"), "{shown}");
    let events = good(&world, &api, &["job", "events", "try"]);
    assert!(events.contains("submitted") && events.ends_with("the job was submitted\n"), "{events}");
    let rescaled: Value =
        serde_json::from_str(&good(&world, &api, &["job", "rescale", "try", "--parallelism", "5", "--json"])).expect("JSON");
    assert_eq!(rescaled["slots"], 5);
    good(&world, &api, &["job", "stop", "try", "--no-wait"]);
    assert_eq!(api.cluster.told().jobs["try"].0.state, JobState::Stopping);
    api.cluster.told().ends = Some((JobState::Stopped, String::new()));
    let done = weir(&world, &api, &["job", "stop", "try"]);
    assert!(done.code == Some(0) && done.stderr.contains("try: stopped"), "{done:?}");
    let refused = weir(&world, &api, &["job", "cancel", "try"]);
    assert_eq!(refused.code, Some(4), "{refused:?}");
    assert!(refused.stderr.contains("error[E0043]: job try is over"), "{refused:?}");
    assert!(refused.stderr.contains("= hint: a hint of the coordinator"), "{refused:?}");
    good(&world, &api, &["job", "rm", "try"]);
    let missing = weir(&world, &api, &["job", "show", "try"]);
    assert!(missing.code == Some(2) && missing.stderr.starts_with("error[E0042]"), "{missing:?}");
}

#[test]
fn components_go_to_the_cluster_where_one_is_configured() {
    let (world, api) = with_job();
    let pushed = weir(&world, &api, &["component", "push", "count.wasm"]);
    assert!(pushed.code == Some(0) && pushed.stderr.contains("the store of the cluster at http://127.0.0.1"), "{pushed:?}");
    assert_eq!(good(&world, &api, &["component", "push", "count.wasm"]), pushed.stdout);
    assert_eq!(api.cluster.told().pushes, 1);
    assert!(good(&world, &api, &["component", "ls"]).lines().nth(1).is_some_and(|row| row.starts_with("count  1.0.0")));
    let shown = good(&world, &api, &["component", "show", "count@1.0.0"]);
    assert!(shown.starts_with("count@1.0.0 in the store of the cluster at http://127.0.0.1"), "{shown}");
    let missing = weir(&world, &api, &["component", "show", "count@2.0.0"]);
    assert!(missing.code == Some(2) && missing.stderr.contains("there is count@1.0.0"), "{missing:?}");
    world.component("other.wasm", 9, Some(("count", "1.0.0")));
    let refused = weir(&world, &api, &["component", "push", "other.wasm"]);
    assert!(refused.code == Some(4) && refused.stderr.starts_with("error[E0021]"), "{refused:?}");
    good(&world, &api, &["component", "rm", "count@1.0.0"]);
    assert_eq!(good(&world, &api, &["component", "ls"]), "");
    assert!(good(&world, &api, &["component", "ls", "--local"]).contains("count"), "that of this machine is untouched");
}

#[test]
fn the_cluster_and_its_workers_are_shown() {
    let (world, api) = with_job();
    let shown = good(&world, &api, &["cluster", "status"]);
    assert!(shown.contains("slots        3 of 4 used") && shown.contains("worker-1  connected"), "{shown}");
    assert!(good(&world, &api, &["worker", "ls"]).contains("10.0.0.5:7702"));
    let json: Value = serde_json::from_str(&good(&world, &api, &["worker", "ls", "--json"])).expect("JSON");
    assert_eq!(json[0]["slots"], 4);
}

#[test]
fn a_coordinator_that_is_not_there_is_told_with_what_to_do() {
    let world = World::new();
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("its address");
    let message = world.bad(3, &["job", "ls", "--coordinator", &nobody.to_string()]);
    assert!(
        message.starts_with(&format!("error[E0050]: cannot reach the coordinator at http://{nobody}: connection refused")),
        "{message}"
    );
    assert!(message.contains("= hint: is it running?"), "{message}");
    let message = world.bad(3, &["job", "ls", "--coordinator", "http://no-such-host.invalid:1", "--insecure"]);
    assert!(message.starts_with("error[E0050]"), "{message}");
    let message = world.bad(2, &["job", "ls", "--coordinator", "10.0.0.5:7701", "--ca", "/dev/null"]);
    assert!(message.contains("there is no certificate in it"), "{message}");
    let message = world.bad(2, &["job", "ls", "--coordinator", "host:nonsense"]);
    assert!(
        message.starts_with(
            "error[E0026]: `host:nonsense` (flag --coordinator) is not the address of a coordinator: `nonsense` is not a port"
        ),
        "{message}"
    );
}

#[test]
fn the_token_is_found_and_a_missing_or_wrong_one_refused() {
    let world = World::new();
    let token = Token::generate().expect("random bytes");
    let api = Api::new(Some(token.clone()));
    let address = api.address.to_string();
    let ask = |configure: &dyn Fn(&mut std::process::Command)| {
        let mut command = world.command(&["job", "ls", "--coordinator", &address]);
        configure(&mut command);
        run(&mut command)
    };
    let none = ask(&|_| {});
    assert!(none.code == Some(4) && none.stderr.starts_with("error[E0051]"), "{none:?}");
    assert_eq!(ask(&|command| _ = command.env("WEIR_TOKEN", token.secret())).code, Some(0));
    let file = world.path("token");
    token.create(&file).expect("a file");
    assert_eq!(ask(&|command| _ = command.env("WEIR_TOKEN_FILE", &file)).code, Some(0));
    world.write("config/weir/weir.toml", "token_file = \"../../token\"\n");
    assert_eq!(ask(&|_| {}).code, Some(0));
    let other = Token::generate().expect("random bytes");
    assert_eq!(ask(&|command| _ = command.env("WEIR_TOKEN", other.secret())).code, Some(4));
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).expect("its mode");
    let open = ask(&|_| {});
    assert!(open.code == Some(2) && open.stderr.contains("chmod 600"), "{open:?}");
}

#[test]
fn a_cluster_is_made_once_and_gets_more_nodes() {
    let world = World::new();
    let id = world.good(&["cluster", "init", "c", "--node", "coordinator=weir.example,10.0.0.5", "--node", "w1"]);
    assert_eq!(id.trim().len(), 32, "{id}");
    let mode = |path: &str| std::fs::metadata(world.path(path)).expect(path).permissions().mode() & 0o777;
    for secret in
        ["c/ca-key.pem", "c/token", "c/nodes/coordinator/token", "c/nodes/coordinator/node-key.pem", "c/nodes/w1/node-key.pem"]
    {
        assert_eq!(mode(secret), 0o600, "{secret}");
    }
    assert!(!world.path("c/nodes/w1/token").exists() && !world.path("c/nodes/w1/ca-key.pem").exists());
    let message = world.bad(2, &["cluster", "init", "c"]);
    assert!(message.starts_with("error[E0057]: cannot make a cluster in c: the folder is not empty"), "{message}");
    assert_eq!(world.good(&["cluster", "add-node", "c", "w2=10.0.0.7"]), "c/nodes/w2\n");
    assert!(world.bad(2, &["cluster", "add-node", "c", "w2"]).contains("has a certificate already"));
    assert!(world.bad(2, &["cluster", "add-node", "nowhere", "w3"]).contains("ca.pem"));
    assert!(world.bad(2, &["cluster", "init", "d", "--node", "a", "--node", "a"]).contains("two nodes named a"));
}

#[test]
fn a_coordinator_is_not_opened_to_others_without_a_token() {
    let world = World::new();
    world.good(&["cluster", "init", "c"]);
    std::fs::remove_file(world.path("c/nodes/coordinator/token")).expect("the token");
    let start = ["coordinator", "--identity", "c/nodes/coordinator", "--listen", "127.0.0.1:0", "--checkpoints", "cp", "--api"];
    let message = world.bad(2, &[&start[..], &["0.0.0.0:0"]].concat());
    assert!(message.starts_with("error[E0053]: cannot serve the API on 0.0.0.0:0"), "{message}");
    assert!(!world.path("data/coordinator").exists(), "nothing was touched");
}

#[test]
fn workers_join_over_ipv6_and_by_name() {
    let world = World::new();
    world.good(&["cluster", "init", "c"]);
    // Both families where the machine has both.
    let listen = if std::net::UdpSocket::bind("[::1]:0").is_ok() { "[::]:0" } else { "0.0.0.0:0" };
    let coordinator = support::Daemon::listening(&world, "c/nodes/coordinator", "localhost:0", "data", listen);
    let workers = coordinator.line["workers"].as_str().unwrap();
    let port = workers.rsplit_once(':').unwrap().1;
    let api = coordinator.line["api"].as_str().unwrap().to_owned();
    let by_literal = if listen == "[::]:0" { format!("[::1]:{port}") } else { format!("127.0.0.1:{port}") };
    let _first = support::Daemon::worker(&world, "c/nodes/worker-1", &by_literal);
    let _second = support::Daemon::worker(&world, "c/nodes/worker-2", &format!("localhost:{port}"));
    let listed = || -> Vec<serde_json::Value> {
        serde_json::from_str(&world.good(&["worker", "ls", "--json", "--coordinator", &api])).unwrap()
    };
    support::until("both workers are connected", || listed().iter().filter(|worker| worker["alive"] == true).count() == 2);
    let address = |worker: &str| -> std::net::SocketAddr {
        let found = listed().into_iter().find(|one| one["name"] == worker).unwrap();
        found["address"].as_str().unwrap().parse().unwrap()
    };
    assert_eq!(address("worker-1").is_ipv6(), listen == "[::]:0", "it tells others what it reached the coordinator from");
    assert!(address("worker-1").ip().is_loopback() && address("worker-2").ip().is_loopback());
}

#[test]
fn addresses_that_nobody_can_reach_are_refused_with_what_to_write() {
    let world = World::new();
    for (flags, part) in [
        (vec!["worker", "--identity", "n", "--coordinator", "https://a:7701"], "a worker does not use the API"),
        (vec!["worker", "--identity", "n", "--coordinator", "::1:7700"], "Write [::1]:7700"),
        (vec!["worker", "--identity", "n", "--coordinator", "a", "--advertise", "0.0.0.0:1"], "nobody can connect to it"),
        (vec!["worker", "--identity", "n", "--coordinator", "a", "--advertise", "b"], "--advertise names no port"),
        (vec!["coordinator", "--identity", "n", "--checkpoints", "cp", "--listen", ":7700"], "write 0.0.0.0:7700"),
        (vec!["coordinator", "--identity", "n", "--checkpoints", "cp", "--api", "weir.example"], "in digits"),
    ] {
        let message = world.bad(2, &flags);
        assert!(message.contains(part), "{flags:?}: {message}");
    }
}

#[test]
fn s137_a_worker_of_another_machines_coordinator_or_of_root_says_which_paths_jobs_may_use() {
    let world = World::new();
    let start = |coordinator: &str, more: &[&str]| {
        let flags = [&["worker", "--identity", "n", "--coordinator", coordinator][..], more].concat();
        world.command(&flags).output().map(|ended| String::from_utf8_lossy(&ended.stderr).into_owned()).expect("weir ends")
    };
    for elsewhere in ["10.0.0.5:7700", "weir.example:7700", "[2001:db8::1]:7700"] {
        let message = start(elsewhere, &[]);
        assert!(message.contains(&format!("--allow-path is missing: the coordinator {elsewhere}")), "{message}");
        assert!(message.contains("--allow-any-path allows all"), "{message}");
    }
    let both = start("localhost", &["--coordinator", "weir.example"]);
    assert!(both.contains("the coordinator weir.example:7700 is not on a loopback address"), "{both}");
    // Here it is the user who counts.
    let here = start("localhost", &[]);
    assert_eq!(here.contains("this is root"), rustix::process::geteuid().is_root(), "{here}");
    // With either flag it goes on to the certificate, which is not there.
    for more in [&["--allow-path", "."][..], &["--allow-any-path"]] {
        for coordinator in ["10.0.0.5:7700", "localhost"] {
            let message = start(coordinator, more);
            assert!(message.contains("ca.pem") && !message.contains("allow-path is missing"), "{message}");
        }
    }
    assert!(start("localhost", &["--allow-path", "nowhere"]).contains("names a folder that is not there"));
}

#[test]
fn a_coordinator_serves_this_machine_and_others_over_tls() {
    let world = World::new();
    world.good(&["cluster", "init", "c"]);
    let mut outside = support::Daemon::coordinator(&world, "c/nodes/coordinator", "0.0.0.0:0", "one");
    let port = outside.line["api"].as_str().and_then(|url| url.rsplit(':').next()).expect("a port").to_owned();
    assert!(outside.line["api"].as_str().is_some_and(|url| url.starts_with("https://")), "{}", outside.line);
    let address = format!("https://127.0.0.1:{port}");
    let flags = ["cluster", "status", "--coordinator", &address, "--token-file", "c/token"];
    let shown = world.good(&[&flags[..], &["--ca", "c/ca.pem"]].concat());
    assert!(shown.contains("workers      0 connected"), "{shown}");
    world.good(&["cluster", "init", "other"]);
    let message = world.bad(3, &[&flags[..], &["--ca", "other/ca.pem"]].concat());
    assert!(message.starts_with("error[E0055]"), "{message}");
    assert!(world.bad(2, &flags).contains("no certificate authority is named"));
    let plain = format!("http://127.0.0.1:{port}");
    assert!(world.bad(3, &["job", "ls", "--coordinator", &plain]).starts_with("error[E0050]"));

    let inside = support::Daemon::coordinator(&world, "c/nodes/coordinator", "127.0.0.1:0", "two");
    let address = inside.line["api"].as_str().expect("a URL").to_owned();
    assert!(world.good(&["cluster", "status", "--coordinator", &address]).contains("slots        0 of 0 used"));
    assert!(
        world.bad(3, &["job", "ls", "--coordinator", &address.replace("http:", "https:"), "--ca", "c/ca.pem"]).contains("E005")
    );
    assert_eq!(outside.terminate(), Some(0));
}
