//! A real coordinator and the real network on loopback; a worker that only notes what it is told.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use weir_coordinator::{ServeOptions, Server, serve};
use weir_model::{Attempt, CheckpointId, Digest, Epoch};
use weir_protocol::access::Person;
use weir_protocol::api::{ClusterApi, JobSubmission, WorkerStatus};
use weir_protocol::{Command, ComponentPin, Execution, JobSpec, Running, WorkerProgress};
use weir_storage::digest_of;
use weir_transport::pki::{self, Validity};
use weir_transport::{Endpoint, Identity, Role, Settings};

use super::allegiance::Allegiance;
use super::components::FetchedComponents;
use super::connect;
use super::hosted::AgentWorker;
use super::outbox::Outbox;
use super::station::Station;
use crate::ComponentSource;

fn until<T>(what: &str, mut poll: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(found) = poll() {
            return found;
        }
        assert!(Instant::now() < deadline, "this did not happen: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[derive(Default)]
struct Noting {
    told: Mutex<Vec<Command>>,
    running: Mutex<Vec<Running>>,
    kept: Mutex<Vec<Vec<Execution>>>,
}

impl AgentWorker for Noting {
    fn command(&self, command: Command) {
        self.told.lock().push(command);
    }

    fn running(&self) -> Vec<Running> {
        self.running.lock().clone()
    }

    fn progress(&self) -> Vec<(Execution, WorkerProgress)> {
        Vec::new()
    }

    fn keep_only(&self, keep: &[Execution]) {
        self.kept.lock().push(keep.to_vec());
    }

    fn stuck(&self) -> usize {
        0
    }

    fn end_all(&self, _: &str) -> usize {
        0
    }
}

fn cluster(folder: &Path, nodes: &[&str]) {
    pki::create_cluster(&folder.join("ca"), &Validity::days(1)).unwrap();
    for node in nodes {
        pki::add_node(
            &folder.join("ca"),
            &folder.join(node),
            node,
            if *node == "coordinator" { Role::Coordinator } else { Role::Worker },
            &[],
            &Validity::days(1),
        )
        .unwrap();
    }
}

fn coordinator(folder: &Path, listen: SocketAddr) -> Server {
    coordinator_of(folder, "data", listen)
}

fn coordinator_of(folder: &Path, data: &str, listen: SocketAddr) -> Server {
    let options = ServeOptions {
        data_dir: folder.join(data),
        identity_dir: folder.join("coordinator"),
        listen,
        default_storage: format!("file:{}", folder.join("checkpoints").display()),
        storage: Arc::new(weir_storage::JobStorage::open),
        token: None,
        describe: Arc::new(|_| Ok(weir_model::Description::plain())),
    };
    until("the address is free again", || serve(options.clone()).ok())
}

/// A worker's process; ends when dropped.
struct Agent {
    worker: Arc<Noting>,
    components: Arc<FetchedComponents>,
    runtime: Option<tokio::runtime::Runtime>,
}

impl Agent {
    fn start(folder: &Path, node: &str, coordinators: &[String]) -> Agent {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let identity = Arc::new(Identity::load(&folder.join(node)).unwrap());
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let endpoint = Arc::new(Endpoint::bind(identity.clone(), any, Settings::default(), runtime.handle()).unwrap());
        let outbox = Arc::new(Outbox::default());
        let cache = folder.join(format!("{node}-cache"));
        let components = Arc::new(FetchedComponents::new(&cache, outbox.clone()).unwrap());
        let worker = Arc::new(Noting::default());
        let station = Station {
            local_addr: endpoint.local_addr().unwrap(),
            identity,
            endpoint,
            coordinators: coordinators.to_vec(),
            advertise: None,
            slots: 3,
            outbox,
            components: components.clone(),
            allegiance: Allegiance::default(),
            worker: worker.clone(),
        };
        runtime.spawn(async move { connect::run(&station).await });
        Agent { worker, components, runtime: Some(runtime) }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn running(execution: &Execution) -> Running {
    Running {
        execution: execution.clone(),
        tasks: Vec::new(),
        started: true,
        restored: Vec::new(),
        finished: Vec::new(),
        committed: Vec::new(),
        last_checkpoint: CheckpointId(0),
        failure: None,
    }
}

fn by() -> Person {
    Person::User("tests".to_owned())
}

fn alive(cluster: &dyn ClusterApi) -> Vec<WorkerStatus> {
    cluster.workers().into_iter().filter(|worker| worker.alive).collect()
}

/// A job whose operator is this component.
fn job_of(digest: Digest) -> JobSubmission {
    let text = "[job]\nname = \"j\"\n[[source]]\nid = \"in\"\nconnector = \"generator\"\n[[operator]]\nid = \"op\"\ncomponent = \"op@1.0.0\"\n\
                input = \"in\"\n[[sink]]\nid = \"out\"\nconnector = \"blackhole\"\ninput = \"op\"\n";
    let spec = JobSpec {
        job_dir: "/jobs".to_owned(),
        components: [(
            "op@1.0.0".to_owned(),
            ComponentPin { digest, name: "op@1.0.0".to_owned(), description: weir_model::Description::plain() },
        )]
        .into(),
        ..JobSpec::new("j.toml", text)
    };
    JobSubmission { spec, fresh: false, allow_dropped_state: false }
}

const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

#[test]
fn a_worker_joins_gets_components_and_finds_a_coordinator_that_was_started_again() {
    let folder = tempfile::tempdir().unwrap();
    cluster(folder.path(), &["coordinator", "a"]);
    let server = coordinator(folder.path(), ANY);
    let address = server.local_addr;
    let agent = Agent::start(folder.path(), "a", &[address.to_string()]);
    let status = until("it joins", || alive(&*server.cluster).pop());
    assert_eq!((status.name.as_str(), status.slots, status.slots_used), ("a", 3, 0));
    assert!(status.address.starts_with("127.0.0.1:") && status.address != address.to_string());
    assert_eq!(until("it is welcomed", || agent.worker.kept.lock().first().cloned()), []);

    // Larger than a message may be.
    let bytes: Vec<u8> = (0..20_000_000u32).map(|index| (index % 251) as u8).collect();
    let digest = server.cluster.push_component(&by(), &bytes, None).unwrap();
    let refused = agent.components.fetch(digest).unwrap_err();
    assert!(refused.contains("belongs to no execution that runs there"), "{refused}");
    server.cluster.submit(&by(), job_of(digest)).unwrap();
    until("the worker is told of the job", || agent.components.fetch(digest).ok());
    std::fs::remove_dir_all(folder.path().join("a-cache")).unwrap();
    std::fs::create_dir(folder.path().join("a-cache")).unwrap();
    let fetch = |components: Arc<FetchedComponents>| std::thread::spawn(move || components.fetch(digest));
    let both = [fetch(agent.components.clone()), fetch(agent.components.clone())];
    for fetched in both {
        assert!(fetched.join().unwrap().unwrap() == bytes);
    }
    let missing = agent.components.fetch(Digest([7; 32])).unwrap_err();
    assert!(missing.contains("from the coordinator: "), "{missing}");

    server.shutdown();
    assert!(agent.components.fetch(digest).unwrap() == bytes, "it is in the cache");
    let server = coordinator(folder.path(), address);
    until("it joins the next one", || alive(&*server.cluster).pop());
    until("it is welcomed again", || (agent.worker.kept.lock().len() == 2).then_some(()));
    drop(agent);
    until("its end is noticed", || alive(&*server.cluster).is_empty().then_some(()));
    server.shutdown();
}

#[test]
fn s88_a_worker_that_runs_something_obeys_no_other_coordinator_and_waits_for_its_own() {
    let folder = tempfile::tempdir().unwrap();
    cluster(folder.path(), &["coordinator", "a"]);
    let first = coordinator(folder.path(), ANY);
    let other = coordinator_of(folder.path(), "other", ANY);
    let address = first.local_addr;
    let agent = Agent::start(folder.path(), "a", &[address.to_string(), other.local_addr.to_string()]);
    until("it joins the first", || alive(&*first.cluster).pop());
    let execution = Execution { job: "j".to_owned(), attempt: Attempt(1) };
    agent.worker.running.lock().push(running(&execution));
    let kept = until("it is welcomed", || Some(agent.worker.kept.lock().len()).filter(|kept| *kept > 0));
    first.shutdown();
    until("it finds the other", || other.cluster.status().led_elsewhere.pop());
    assert!(alive(&*other.cluster).is_empty());
    let first = coordinator(folder.path(), address);
    until("it finds its own again", || alive(&*first.cluster).pop());
    until("it is welcomed there", || (agent.worker.kept.lock().len() > kept).then_some(()));
    assert_eq!(agent.worker.kept.lock()[kept..], [vec![]], "only the first has said what may go on");
    assert!(agent.worker.told.lock().is_empty());

    // The same, and a person says that the first is lost for good.
    let lost = first.cluster.status().epoch;
    first.shutdown();
    until("it finds the other", || other.cluster.status().led_elsewhere.pop().filter(|worker| worker.led_by == lost));
    assert!(other.cluster.adopt(&by(), "0123").is_err());
    other.cluster.adopt(&by(), &lost.origin_short()).unwrap();
    until("it joins the other", || alive(&*other.cluster).pop());
    other.shutdown();
}

#[test]
fn s88_a_coordinator_that_welcomes_whom_it_does_not_lead_is_not_obeyed() {
    let (own, other) = (Epoch { origin: [1; 16], count: 2 }, Epoch { origin: [2; 16], count: 9 });
    let allegiance = Allegiance::default();
    assert_eq!(allegiance.join(None, own, &[]), Ok(()));
    let runs = [running(&Execution { job: "j".to_owned(), attempt: Attempt(1) })];
    let led_by = allegiance.of(&runs);
    assert_eq!(led_by, Some(own));
    let refused = allegiance.join(led_by, other, &[]).unwrap_err();
    assert!(refused.to_string().contains("weir cluster adopt 01010101"), "{refused}");
    assert_eq!(allegiance.of(&runs), Some(own), "it stays");
    assert_eq!(allegiance.of(&[]), None, "it runs nothing");
    assert_eq!(allegiance.join(led_by, other, &[own]), Ok(()));
    assert_eq!(allegiance.of(&runs), Some(other));
}

#[test]
fn of_two_processes_with_one_certificate_only_the_first_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    cluster(folder.path(), &["coordinator", "a"]);
    let server = coordinator(folder.path(), ANY);
    let address = [server.local_addr.to_string()];
    let first = Agent::start(folder.path(), "a", &address);
    let joined = until("the first joins", || alive(&*server.cluster).pop());
    let second = Agent::start(folder.path(), "a", &address);
    let third = Agent::start(folder.path(), "a", &address);
    // Long enough for both to be refused, which shows in that the first one stays.
    let heard = joined.heard_at_ms;
    until("the first is heard again and again", || {
        let now = alive(&*server.cluster).pop()?;
        assert_eq!(now.address, joined.address);
        (now.heard_at_ms > heard + 1_500).then_some(())
    });
    assert!(second.worker.kept.lock().is_empty() && third.worker.kept.lock().is_empty());
    drop(first);
    until("another one takes its place", || alive(&*server.cluster).pop().filter(|worker| worker.address != joined.address));
    server.shutdown();
}

#[test]
fn a_component_is_refused_unless_it_has_its_digest_and_a_damaged_copy_is_fetched_again() {
    let folder = tempfile::tempdir().unwrap();
    let outbox = Arc::new(Outbox::default());
    let components = FetchedComponents::new(folder.path(), outbox.clone()).unwrap();
    let components = Arc::new(components.with_patience(Duration::from_secs(20)));
    let digest = digest_of(b"component");
    let fetch = || {
        let components = components.clone();
        let mut reports = outbox.connect();
        let fetched = std::thread::spawn(move || components.fetch(digest));
        until("it is asked for", || reports.try_recv().ok());
        fetched
    };
    let fetched = fetch();
    components.part(digest, 0, 9, b"compo");
    components.part(digest, 5, 9, b"nenX");
    assert!(fetched.join().unwrap().unwrap_err().contains("what came has digest"));

    let fetched = fetch();
    components.part(digest, 3, 9, b"ponent");
    assert!(fetched.join().unwrap().unwrap_err().contains("its parts do not fit together"));

    let fetched = fetch();
    components.part(digest, 0, 1 << 40, b"component");
    assert!(fetched.join().unwrap().is_err(), "nobody believes such a length");

    let fetched = fetch();
    components.part(digest, 0, 9, b"compo");
    // The connection is lost, and the next one begins from the start.
    let _reports = outbox.connect();
    components.connected();
    components.part(digest, 0, 9, b"component");
    assert_eq!(fetched.join().unwrap().unwrap(), b"component");
    assert_eq!(components.fetch(digest).unwrap(), b"component");

    std::fs::write(folder.path().join(format!("{digest}.wasm")), b"damaged").unwrap();
    let fetched = fetch();
    components.part(digest, 0, 9, b"component");
    assert_eq!(fetched.join().unwrap().unwrap(), b"component");
    assert_eq!(std::fs::read(folder.path().join(format!("{digest}.wasm"))).unwrap(), b"component");
}

#[test]
fn components_that_were_used_longest_ago_are_deleted_when_all_together_are_too_large() {
    let folder = tempfile::tempdir().unwrap();
    let outbox = Arc::new(Outbox::default());
    let components = FetchedComponents::new(folder.path(), outbox.clone()).unwrap();
    let components = Arc::new(components.with_patience(Duration::from_secs(20)).keeping(25));
    let path = |digest: Digest| folder.path().join(format!("{digest}.wasm"));
    let fetch = |bytes: &'static [u8; 10]| {
        let (digest, components_of_thread) = (digest_of(bytes), components.clone());
        let mut reports = outbox.connect();
        let fetched = std::thread::spawn(move || components_of_thread.fetch(digest));
        until("it is asked for", || reports.try_recv().ok());
        components.part(digest, 0, 10, bytes);
        assert_eq!(fetched.join().unwrap().unwrap(), bytes);
        digest
    };
    let age = |digest: Digest, hours: u64| {
        let then = std::time::SystemTime::now() - Duration::from_secs(hours * 3_600);
        std::fs::File::open(path(digest)).unwrap().set_modified(then).unwrap();
    };
    let (one, two) = (fetch(b"component1"), fetch(b"component2"));
    age(one, 3);
    age(two, 2);
    // What a killed process has left.
    let part = folder.path().join(".unfinished.part");
    std::fs::write(&part, b"12345").unwrap();
    std::fs::File::open(&part).unwrap().set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    assert_eq!(components.fetch(one).unwrap(), b"component1", "used now, from the cache");
    let three = fetch(b"component3");
    let there = [one, two, three].map(|digest| path(digest).exists());
    assert_eq!(there, [true, false, true]);
    assert!(!part.exists());
    assert_eq!(fetch(b"component2"), two, "it can be fetched again");
}

#[test]
fn whoever_waits_for_a_component_that_never_comes_learns_it() {
    let folder = tempfile::tempdir().unwrap();
    let components = FetchedComponents::new(folder.path(), Arc::default()).unwrap();
    let error = components.with_patience(Duration::from_millis(20)).fetch(Digest([1; 32])).unwrap_err();
    assert!(error.contains("nothing of it came from the coordinator for 0.02 s"), "{error}");
}
