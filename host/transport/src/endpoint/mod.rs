//! One UDP port: connects to peers and accepts them, for control and for data.

mod accept;
mod connect;

use std::net::SocketAddr;
use std::sync::Arc;

use quinn::{AsyncUdpSocket, Runtime, TokioRuntime, VarInt};
use tokio::runtime::Handle;
use tokio::sync::{Mutex, mpsc};
use tokio::task::AbortHandle;
use weir_model::limits::ACCEPTED_QUEUE_MAX;

use crate::link::code;
use crate::metrics::Counters;
use crate::node_places::NodePlaces;
use crate::quic::config::Configs;
use crate::quic::silence::Silent;
use crate::quic::tls::PROTOCOL_VERSION;
use crate::{Control, Data, EndpointMetrics, Expected, Identity, NodeId, Settings, TransportError, socket};

/// A connection that a peer has made. Its certificate and hello are checked.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "there are few, and they are taken apart at once")]
pub enum Incoming {
    /// For messages.
    Control(Control),
    /// For channels.
    Data(Data),
}

/// One UDP port. Dropping it does not close its connections; [`close`](Endpoint::close) does.
#[derive(Debug)]
pub struct Endpoint {
    quinn: quinn::Endpoint,
    client: quinn::ClientConfig,
    shared: Arc<EndpointState>,
    accepted: Mutex<mpsc::Receiver<Incoming>>,
    acceptor: AbortHandle,
    keeper: AbortHandle,
    buffers: [usize; 2],
}

/// What accepting and connecting have in common.
#[derive(Debug)]
struct EndpointState {
    identity: Arc<Identity>,
    settings: Settings,
    version: u32,
    nodes: NodePlaces,
    counters: Counters,
}

/// What tests put in place of the real thing.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) socket: Arc<dyn AsyncUdpSocket>,
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) buffers: [usize; 2],
    pub(crate) version: u32,
}

impl Endpoint {
    /// Listens at an address; port 0 takes a free one. All work is done on the runtime of `handle`.
    pub fn bind(
        identity: Arc<Identity>,
        listen: SocketAddr,
        settings: Settings,
        handle: &Handle,
    ) -> Result<Endpoint, TransportError> {
        let _runtime = handle.enter();
        settings.check()?;
        let (socket, buffers) = socket::bind(listen, settings.socket_buffer_bytes)?;
        let failed = |source| TransportError::Bind { address: listen, source };
        let socket = TokioRuntime.wrap_udp_socket(socket).map_err(failed)?;
        let parts = Parts { socket, runtime: Arc::new(TokioRuntime), buffers, version: PROTOCOL_VERSION };
        Endpoint::with_parts(identity, settings, parts)
    }

    /// The same with a given socket. Must be called within a runtime.
    pub(crate) fn with_parts(identity: Arc<Identity>, settings: Settings, parts: Parts) -> Result<Endpoint, TransportError> {
        let Parts { socket, runtime, buffers, version } = parts;
        let configs = Configs::new(&identity, &settings, version)?;
        let socket: Arc<dyn AsyncUdpSocket> = Arc::new(Silent(socket));
        let quinn = quinn::Endpoint::new_with_abstract_socket(configs.endpoint, Some(configs.server), socket, runtime)
            .map_err(|error| TransportError::Crypto { action: "start QUIC", reason: error.to_string() })?;
        let shared =
            Arc::new(EndpointState { identity, settings, version, nodes: NodePlaces::default(), counters: Counters::default() });
        let (queue, accepted) = mpsc::channel(ACCEPTED_QUEUE_MAX);
        let acceptor = tokio::spawn(accept::run(quinn.clone(), shared.clone(), queue)).abort_handle();
        let identity = shared.identity.clone();
        let keeper = tokio::spawn(async move { identity.keep().await }).abort_handle();
        Ok(Endpoint { quinn, client: configs.client, shared, accepted: Mutex::new(accepted), acceptor, keeper, buffers })
    }

    /// Where it listens.
    pub fn local_addr(&self) -> Result<SocketAddr, TransportError> {
        self.quinn
            .local_addr()
            .map_err(|error| TransportError::Crypto { action: "find the address of the endpoint", reason: error.to_string() })
    }

    /// Connects to a node for messages. Cancelling closes what there is.
    pub async fn connect_control(&self, address: &str, expected: Expected<'_>) -> Result<Control, TransportError> {
        self.connect_for_control(address, expected).await
    }

    /// Connects to a worker for channels. Cancelling closes what there is.
    pub async fn connect_data(&self, address: &str, expected: &NodeId) -> Result<Data, TransportError> {
        self.connect_for_data(address, expected).await
    }

    /// The next connection that a peer has made; none after the endpoint was closed. Cancelling loses nothing. While nobody
    /// calls this, no more than [`ACCEPTED_QUEUE_MAX`] connections wait, and further attempts get no answer.
    pub async fn accept(&self) -> Option<Incoming> {
        self.accepted.lock().await.recv().await
    }

    /// Numbers about the endpoint.
    pub fn metrics(&self) -> EndpointMetrics {
        self.shared.counters.metrics(self.buffers)
    }

    /// Closes all connections, and waits until the peers know or cannot be reached.
    pub async fn close(self) {
        self.quinn.close(VarInt::from_u32(code::SHUTDOWN), b"the process stops");
        self.quinn.wait_idle().await;
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.acceptor.abort();
        self.keeper.abort();
    }
}
