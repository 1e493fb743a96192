//! A cluster of two nodes in a temporary folder.

use std::fs;
use std::future::Future;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use quinn::{Runtime, TokioRuntime};
use tempfile::TempDir;
use tokio::runtime::Handle;
use weir_channel::Frame;
use weir_model::{Attempt, Batch};

use crate::endpoint::Parts;
use crate::pki::{self, Validity};
use crate::{ChannelHeader, Control, Data, Endpoint, Identity, Incoming, NodeId, Settings};
use crate::{Expected, Role};

pub(super) struct Cluster {
    dir: TempDir,
}

impl Cluster {
    pub(super) fn new() -> Cluster {
        let dir = TempDir::new().unwrap();
        pki::create_cluster(&dir.path().join("ca"), &Validity::days(30)).unwrap();
        Cluster { dir }
    }

    pub(super) fn ca(&self) -> PathBuf {
        self.dir.path().join("ca")
    }

    pub(super) fn folder(&self, name: &str) -> PathBuf {
        let folder = self.dir.path().join(name);
        if !folder.exists() {
            pki::add_node(&self.ca(), &folder, name, Role::Worker, &["localhost".into()], &Validity::days(30)).unwrap();
        }
        folder
    }

    pub(super) fn identity(&self, name: &str) -> Arc<Identity> {
        Arc::new(Identity::load(&self.folder(name)).unwrap())
    }

    pub(super) fn endpoint(&self, name: &str) -> Endpoint {
        bind(self.identity(name), "127.0.0.1:0".parse().unwrap())
    }
}

pub(super) fn settings() -> Settings {
    Settings { socket_buffer_bytes: 64 << 10, ..Settings::default() }
}

pub(super) fn bind(identity: Arc<Identity>, address: SocketAddr) -> Endpoint {
    Endpoint::bind(identity, address, settings(), &Handle::current()).unwrap()
}

/// An endpoint of another protocol version.
pub(super) fn of_version(identity: Arc<Identity>, version: u32) -> Endpoint {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let socket = TokioRuntime.wrap_udp_socket(socket).unwrap();
    let parts = Parts { socket, runtime: Arc::new(TokioRuntime), buffers: [0, 0], version };
    Endpoint::with_parts(identity, settings(), parts).unwrap()
}

pub(super) fn address(endpoint: &Endpoint) -> String {
    endpoint.local_addr().unwrap().to_string()
}

pub(super) fn node(name: &str) -> NodeId {
    NodeId::new(name).unwrap()
}

/// Both ends of a new data connection from `a` to `b`.
pub(super) async fn data(a: &Endpoint, b: &Endpoint, b_name: &str) -> (Data, Data) {
    let (address, expected) = (address(b), node(b_name));
    let (ours, theirs) = tokio::join!(a.connect_data(&address, &expected), b.accept());
    match theirs {
        Some(Incoming::Data(theirs)) => (ours.unwrap(), theirs),
        other => panic!("no data connection: {other:?}"),
    }
}

/// Both ends of a new control connection from `a` to `b`.
pub(super) async fn control(a: &Endpoint, b: &Endpoint) -> (Control, Control) {
    let address = address(b);
    let (ours, theirs) = tokio::join!(a.connect_control(&address, Expected::Anyone), b.accept());
    match theirs {
        Some(Incoming::Control(theirs)) => (ours.unwrap(), theirs),
        other => panic!("no control connection: {other:?}"),
    }
}

pub(super) fn header(channel: u32) -> ChannelHeader {
    ChannelHeader { job: "job".into(), attempt: Attempt(1), channel }
}

/// Rows that say who they are.
pub(super) fn rows(first: i64, count: i64, value_bytes: usize) -> Frame {
    let mut rows = Batch::default();
    (first..first + count).for_each(|row| rows.push(row, &row.to_le_bytes(), &vec![row as u8; value_bytes]));
    Frame::Rows(Arc::new(rows))
}

/// Anything that should happen soon. The limit is only there to end a test that fails.
pub(super) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(Duration::from_secs(30), future).await {
        Ok(value) => value,
        Err(_) => panic!("{what}: did not happen"),
    }
}

pub(super) fn copy(from: &Path, to: &Path) {
    let _ = fs::remove_file(to);
    fs::copy(from, to).unwrap();
}
