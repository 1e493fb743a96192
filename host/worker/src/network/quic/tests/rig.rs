//! Nodes with an endpoint and a runtime of their own, and the ends of channels between them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use weir_channel::{Frame, Limits};
use weir_model::{Attempt, Batch};
use weir_protocol::{Execution, WorkerAddress};
use weir_task::{Gate, Sender, Signal};
use weir_transport::pki::{self, Validity};
use weir_transport::{Endpoint, Identity, Settings};

use crate::network::{Inbound, Network, OnLost, Outbound, PeerLost, QuicNetwork, RoomWake};

pub(super) struct Cluster(TempDir);

impl Cluster {
    pub(super) fn new() -> Cluster {
        let dir = TempDir::new().unwrap();
        pki::create_cluster(&dir.path().join("ca"), &Validity::days(30)).unwrap();
        Cluster(dir)
    }

    pub(super) fn node(&self, name: &str) -> Node {
        let folder = self.0.path().join(name);
        if !folder.exists() {
            pki::add_node(
                &self.0.path().join("ca"),
                &folder,
                name,
                weir_transport::Role::Worker,
                &["localhost".into()],
                &Validity::days(30),
            )
            .unwrap();
        }
        let identity = Arc::new(Identity::load(&folder).unwrap());
        // Short, so that a test of silence does not take long; the tests wait longer for everything.
        let settings = Settings {
            socket_buffer_bytes: 256 << 10,
            keep_alive: Duration::from_millis(200),
            idle_timeout: Duration::from_secs(2),
            connect_timeout: Duration::from_secs(3),
            ..Settings::default()
        };
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let listen = "127.0.0.1:0".parse().unwrap();
        let endpoint = Arc::new(Endpoint::bind(identity, listen, settings, runtime.handle()).unwrap());
        let network = Arc::new(QuicNetwork::new(&endpoint, runtime.handle()));
        runtime.spawn({
            let (endpoint, network) = (endpoint.clone(), network.clone());
            async move {
                while let Some(incoming) = endpoint.accept().await {
                    network.incoming(incoming);
                }
            }
        });
        let address = WorkerAddress { worker: name.into(), address: endpoint.local_addr().unwrap().to_string() };
        Node { network, endpoint, address, runtime }
    }
}

pub(super) struct Node {
    pub(super) network: Arc<QuicNetwork>,
    pub(super) endpoint: Arc<Endpoint>,
    pub(super) address: WorkerAddress,
    pub(super) runtime: Runtime,
}

impl Node {
    /// Ends without a word to anybody.
    pub(super) fn kill(self) {
        self.runtime.shutdown_background();
    }

    /// The receiving ends of channels from `from`, numbered from `first`.
    pub(super) fn expect(&self, execution: &Execution, from: &Node, channels: &[u32], lost: &Lost) -> Receiving {
        let mut gate = Gate::new(Arc::new(Signal::default()));
        let inbound = channels.iter().enumerate().map(|(gate_channel, &channel)| {
            let room = Arc::new(RoomWake::default());
            let sender = gate.connect(room.clone(), Limits::default());
            Inbound { channel, from: from.address.clone(), sender, announcer: gate.announcer(), gate_channel, room }
        });
        let inbound: Vec<Inbound> = inbound.collect();
        let rooms = inbound.iter().map(|inbound| Arc::downgrade(&inbound.room)).collect();
        self.network.expect(execution, inbound, lost.told()).unwrap();
        Receiving { gate, rooms }
    }

    /// The sending ends of channels.
    pub(super) fn connect(&self, execution: &Execution, to: &WorkerAddress, channels: &[u32], lost: &Lost) -> Sending {
        let (mut senders, mut outbound, mut readies) = (Vec::new(), Vec::new(), Vec::new());
        for &channel in channels {
            let ready = Arc::new(RoomWake::default());
            let mut gate = Gate::new(ready.clone());
            senders.push(gate.connect(Arc::new(Signal::default()), Limits::default()));
            readies.push(Arc::downgrade(&ready));
            outbound.push(Outbound { channel, to: to.clone(), gate, ready });
        }
        self.network.connect(execution, outbound, lost.told()).unwrap();
        Sending { senders, readies }
    }

    pub(super) fn connections(&self) -> usize {
        self.endpoint.metrics().connections
    }
}

pub(super) struct Receiving {
    pub(super) gate: Gate,
    pub(super) rooms: Vec<std::sync::Weak<RoomWake>>,
}

impl Receiving {
    /// The next frame, whatever its channel.
    pub(super) fn next(&mut self) -> (usize, Frame) {
        let mut next = None;
        until("a frame comes", || {
            next = self.gate.poll();
            next.is_some()
        });
        next.unwrap()
    }
}

pub(super) struct Sending {
    pub(super) senders: Vec<Sender>,
    pub(super) readies: Vec<std::sync::Weak<RoomWake>>,
}

/// What was told about lost peers.
#[derive(Clone, Default)]
pub(super) struct Lost(Arc<Mutex<Vec<PeerLost>>>);

impl Lost {
    fn told(&self) -> OnLost {
        let lost = self.0.clone();
        Arc::new(move |peer| lost.lock().push(peer))
    }

    pub(super) fn all(&self) -> Vec<PeerLost> {
        self.0.lock().clone()
    }

    /// Waits for the first loss.
    pub(super) fn first(&self) -> PeerLost {
        until("a peer is lost", || !self.0.lock().is_empty());
        self.all()[0].clone()
    }
}

pub(super) fn attempt(attempt: u64) -> Execution {
    Execution { job: "job".into(), attempt: Attempt(attempt) }
}

/// One row that says which it is, with a value of this size.
pub(super) fn row(number: usize, value_bytes: usize) -> Frame {
    let mut rows = Batch::default();
    rows.push(number as i64, &number.to_le_bytes(), &vec![number as u8; value_bytes]);
    Frame::Rows(Arc::new(rows))
}

/// Waits for something. The limit is only there to end a test that fails.
pub(super) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < deadline, "did not happen: {what}");
        std::thread::sleep(Duration::from_micros(200));
    }
}
