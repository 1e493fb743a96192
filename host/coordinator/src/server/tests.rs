//! What reaches a coordinator over its sockets, from members of the cluster that do not behave.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::runtime::Runtime;
use weir_protocol::{Command, Envelope, Order, Register, Report, decode, encode};
use weir_transport::pki::{self, Validity};
use weir_transport::{Control, Endpoint, Expected, Identity, Role, Settings, liveness};

use crate::{ServeError, ServeOptions, Server, serve};

fn options(folder: &Path) -> ServeOptions {
    ServeOptions {
        data_dir: folder.join("data"),
        identity_dir: folder.join("coordinator"),
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        default_storage: format!("file:{}", folder.join("checkpoints").display()),
        storage: Arc::new(weir_storage::JobStorage::open),
        token: None,
        describe: Arc::new(|_| Ok(weir_model::Description::plain())),
    }
}

struct Client {
    runtime: Runtime,
    identity: Arc<Identity>,
    endpoint: Endpoint,
    address: String,
}

/// A coordinator and a member of its cluster.
fn world() -> (tempfile::TempDir, Server, Client) {
    let folder = tempfile::tempdir().unwrap();
    pki::create_cluster(&folder.path().join("ca"), &Validity::days(1)).unwrap();
    for node in ["coordinator", "a"] {
        pki::add_node(
            &folder.path().join("ca"),
            &folder.path().join(node),
            node,
            if node == "coordinator" { Role::Coordinator } else { Role::Worker },
            &[],
            &Validity::days(1),
        )
        .unwrap();
    }
    let server = serve(options(folder.path())).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let identity = Arc::new(Identity::load(&folder.path().join("a")).unwrap());
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let endpoint = Endpoint::bind(identity.clone(), any, Settings::default(), runtime.handle()).unwrap();
    let address = server.local_addr.to_string();
    (folder, server, Client { runtime, identity, endpoint, address })
}

/// Where rows are sent to; nothing listens there.
const NOWHERE: &str = "127.0.0.1:1";

fn register(data_address: &str) -> Report {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    Report::Register(Register {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        slots: 1,
        data_address: data_address.to_owned(),
        clock_ms: now.as_millis() as u64,
        running: Vec::new(),
        led_by: None,
    })
}

impl Client {
    fn connect(&self) -> Control {
        self.runtime.block_on(self.endpoint.connect_control(&self.address, Expected::Coordinator)).unwrap()
    }

    /// The same, where connections before it may not have given their places back yet.
    fn connect_in_time(&self) -> Control {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            match self.runtime.block_on(self.endpoint.connect_control(&self.address, Expected::Coordinator)) {
                Ok(control) => return control,
                Err(error) => assert!(Instant::now() < deadline, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Says something first on a new connection; gives how that was closed.
    fn say(&self, message: Vec<u8>) -> String {
        let (sender, mut receiver) = self.connect().split();
        self.runtime.block_on(async {
            sender.send(Bytes::from(message)).await.unwrap();
            loop {
                if let Err(error) = receiver.recv().await {
                    return error.to_string();
                }
            }
        })
    }
}

fn alive(server: &Server) -> bool {
    server.cluster.workers().iter().any(|worker| worker.alive)
}

fn until(what: &str, poll: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !poll() {
        assert!(Instant::now() < deadline, "this did not happen: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn garbage_closes_its_connection_and_nothing_else() {
    let (_folder, server, client) = world();
    let reason = client.say(encode(&Report::Heartbeat { progress: Vec::new() }, &[]));
    assert!(reason.contains("the first message was no registration"), "{reason}");
    let reason = client.say(vec![0xff; 1_000]);
    assert!(reason.contains("cannot read a message"), "{reason}");
    let reason = client.say(encode(&"something else", &[]));
    assert!(reason.contains("are all processes of the cluster of the same version"), "{reason}");
    assert!(server.cluster.workers().is_empty());

    let (sender, mut receiver) = client.connect().split();
    client.runtime.block_on(async {
        sender.send(encode(&register(NOWHERE), &[]).into()).await.unwrap();
        let answer: Envelope<Order> = decode(&receiver.recv().await.unwrap()).unwrap();
        assert_eq!(answer.message.command, Command::Welcome { keep: Vec::new(), succeeds: Vec::new() });
        assert_eq!(answer.message.epoch, server.cluster.status().epoch);
        sender.send(Bytes::from_static(b"garbage")).await.unwrap();
        assert!(receiver.recv().await.unwrap_err().to_string().contains("cannot read a message"));
    });
    until("it is lost", || !alive(&server));
    server.shutdown();
}

#[test]
fn a_worker_whose_process_has_ended_is_lost_before_its_heartbeats_are_missed() {
    let (_folder, server, client) = world();
    let (sender, mut receiver) = client.connect().split();
    let data_address = client.endpoint.local_addr().unwrap().to_string();
    let watched = client.runtime.block_on(async {
        let watched = liveness::connect(&client.address, &client.identity, None).await.unwrap();
        sender.send(encode(&register(&data_address), &[]).into()).await.unwrap();
        receiver.recv().await.unwrap();
        watched
    });
    assert!(alive(&server));
    let heartbeats = client.runtime.spawn(async move {
        loop {
            let heartbeat = encode(&Report::Heartbeat { progress: Vec::new() }, &[]);
            if sender.send(heartbeat.into()).await.is_err() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    // A connection that breaks while the process is heard proves nothing.
    drop(watched);
    let heard = server.cluster.workers()[0].heard_at_ms;
    until("it is heard for a while", || server.cluster.workers()[0].heard_at_ms > heard + 800);
    assert!(alive(&server));
    let watched = client.runtime.block_on(liveness::connect(&client.address, &client.identity, None)).unwrap();
    heartbeats.abort();
    let heard = server.cluster.workers()[0].heard_at_ms;
    drop(watched);
    until("it is lost", || !alive(&server));
    let worker = &server.cluster.workers()[0];
    assert!(worker.since_ms >= heard, "{worker:?}");
    server.shutdown();
}

#[test]
fn a_worker_whose_port_is_closed_too_is_lost_at_once() {
    let (_folder, server, client) = world();
    let (sender, mut receiver) = client.connect().split();
    let watched = client.runtime.block_on(async {
        let watched = liveness::connect(&client.address, &client.identity, None).await.unwrap();
        sender.send(encode(&register(NOWHERE), &[]).into()).await.unwrap();
        receiver.recv().await.unwrap();
        watched
    });
    assert!(alive(&server));
    // Words of it that are read late do not count, however many.
    client.runtime.spawn(async move {
        while sender.send(encode(&Report::Heartbeat { progress: Vec::new() }, &[]).into()).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    drop(watched);
    until("it is lost", || !alive(&server));
    server.shutdown();
}

#[test]
fn a_worker_that_was_refused_more_often_than_a_node_has_connections_joins_when_it_may() {
    let (_folder, server, client) = world();
    let Report::Register(right) = register(NOWHERE) else { unreachable!() };
    let wrong = Report::Register(Register { version: "0.0.0".to_owned(), ..right });
    for _ in 0..20 {
        // As a worker does: it reads why, and closes.
        let (sender, mut receiver) = client.connect_in_time().split();
        client.runtime.block_on(async {
            sender.send(encode(&wrong, &[]).into()).await.unwrap();
            let answer: Envelope<Order> = decode(&receiver.recv().await.unwrap()).unwrap();
            assert!(matches!(answer.message.command, Command::Refused { .. }), "{answer:?}");
        });
        sender.close(0, "refused");
    }
    let (sender, mut receiver) = client.connect_in_time().split();
    client.runtime.block_on(async {
        sender.send(encode(&register(NOWHERE), &[]).into()).await.unwrap();
        let answer: Envelope<Order> = decode(&receiver.recv().await.unwrap()).unwrap();
        assert!(matches!(answer.message.command, Command::Welcome { .. }), "{answer:?}");
    });
    assert!(alive(&server));
    server.shutdown();
}

#[test]
fn s41_a_second_coordinator_on_the_folder_does_not_start() {
    let (folder, server, _client) = world();
    let error = serve(options(folder.path())).map(|_| ()).unwrap_err();
    assert!(matches!(error, ServeError::Locked { .. }), "{error}");
    server.shutdown();
    serve(options(folder.path())).unwrap().shutdown();
}
