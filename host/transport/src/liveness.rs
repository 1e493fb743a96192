//! Noticing at once that a process is gone.
//!
//! An idle TCP connection under TLS from each node to the one that watches. When a process ends in whatever way, its kernel
//! closes the connection, and the other side hears of it within a round trip; QUIC lives in the process and can only time
//! out. A machine that vanishes is not noticed here: that is what heartbeats are for.
//!
//! The same identities and bounds as for [`Endpoint`](crate::Endpoint). The first bytes a node sends prove that it knows the
//! cluster, else the connection is closed without a word; an open TCP port cannot be hidden. Until a connection has proved who it is, it has a
//! place of those for strangers, and takes none of nodes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use aws_lc_rs::hmac;
use rustls::pki_types::{CertificateDer, ServerName};
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::AbortHandle;
use tokio_rustls::{TlsAcceptor, TlsConnector};
use weir_model::limits::{
    ACCEPTED_QUEUE_MAX, HELLO_MS_MAX, LIVENESS_CONNECTIONS_MAX, LIVENESS_STRANGERS_MAX, LIVENESS_STRANGERS_PER_NETWORK_MAX,
    NODE_CONNECTIONS_MAX,
};

use crate::hello::{self, Hello, Kind};
use crate::node_places::NodePlaces;
use crate::pki::certificate::Subject;
use crate::quic::tls;
use crate::strangers::Strangers;
use crate::{ClusterId, Identity, Incarnation, NodeId, Peer, TransportError, pki};

const ALPN: &[u8] = b"weir-liveness/1";
const NONCE_BYTES: usize = 16;
/// How long to wait for word that a port is closed.
const PROBE_TIMEOUT: Duration = Duration::from_millis(500);
const KNOCK_BYTES: usize = NONCE_BYTES + 32;

/// A node's process came or went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sign {
    /// It is watched from now on.
    Came(Peer),
    /// Its connection is gone, and so, most likely, is the process.
    Gone(NodeId, Incarnation),
}

/// The watching side.
#[derive(Debug)]
pub struct Watcher {
    signs: mpsc::Receiver<Sign>,
    acceptor: AbortHandle,
}

impl Watcher {
    /// The next sign. For each process first `Came`, then `Gone`. Cancelling loses nothing.
    pub async fn next(&mut self) -> Option<Sign> {
        self.signs.recv().await
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.acceptor.abort();
    }
}

/// The watched side. The watcher notices when it is dropped.
#[derive(Debug)]
pub struct WatchedSide {
    peer: Peer,
    stream: tokio_rustls::client::TlsStream<TcpStream>,
}

impl WatchedSide {
    /// Who watches.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Resolves when the watcher is gone.
    pub async fn closed(&mut self) {
        silent_until_end(&mut self.stream).await;
    }
}

/// Watches all nodes that connect. Must be called within a runtime.
pub fn serve(listener: TcpListener, identity: &Arc<Identity>) -> Result<Watcher, TransportError> {
    let config = tls::server(identity, ALPN.to_vec())?;
    let (queue, signs) = mpsc::channel(ACCEPTED_QUEUE_MAX);
    let watch = Watch {
        acceptor: TlsAcceptor::from(Arc::new(config)),
        identity: identity.clone(),
        queue,
        strangers: Mutex::new(Strangers::new(LIVENESS_STRANGERS_MAX, LIVENESS_STRANGERS_PER_NETWORK_MAX)),
        nodes: NodePlaces::default(),
        places: Arc::new(Semaphore::new(LIVENESS_CONNECTIONS_MAX)),
    };
    let acceptor = tokio::spawn(accept(listener, Arc::new(watch)));
    Ok(Watcher { signs, acceptor: acceptor.abort_handle() })
}

/// Lets the node at `address` watch this process for as long as the result is kept.
pub async fn connect(address: &str, identity: &Identity, expected: Option<&NodeId>) -> Result<WatchedSide, TransportError> {
    let limit = Duration::from_millis(HELLO_MS_MAX);
    match tokio::time::timeout(limit, connect_and_greet(address, identity, expected)).await {
        Ok(connected) => connected,
        Err(_) => Err(TransportError::NoAnswer { address: address.into(), waited: limit, cluster: identity.cluster().clone() }),
    }
}

/// Whether nobody has the UDP port at `address` open, so that the process which had it has certainly ended: its machine's
/// kernel says so, usually within a round trip. Without an answer in half a second, nothing is known. Of a name with several
/// addresses, all must say so.
pub async fn is_port_closed(address: &str) -> bool {
    let asked = async {
        let mut all = tokio::net::lookup_host(address).await.ok()?.peekable();
        all.peek()?;
        for address in all {
            let error = ask(address).await.err()?;
            (error.kind() == std::io::ErrorKind::ConnectionRefused).then_some(())?;
        }
        Some(())
    };
    tokio::time::timeout(PROBE_TIMEOUT, asked).await.ok().flatten().is_some()
}

/// Sends to a UDP port, and waits for any answer.
async fn ask(address: SocketAddr) -> std::io::Result<usize> {
    let any: IpAddr = if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(address).await?;
    // No QUIC packet: whoever has the port ignores it.
    socket.send(&[0]).await?;
    socket.recv(&mut [0]).await
}

async fn connect_and_greet(address: &str, identity: &Identity, expected: Option<&NodeId>) -> Result<WatchedSide, TransportError> {
    let refused = |reason: String| TransportError::Refused { address: address.into(), reason };
    let mut stream = TcpStream::connect(address).await.map_err(|error| refused(error.to_string()))?;
    keep_alive(&stream);
    stream.write_all(&knock(identity.cluster(), pki::random()?)).await.map_err(|error| refused(error.to_string()))?;
    let connector = TlsConnector::from(Arc::new(tls::client(identity, ALPN.to_vec())?));
    let name = ServerName::try_from("weir")
        .map_err(|error| TransportError::Crypto { action: "set up TLS", reason: error.to_string() })?;
    let mut stream = connector.connect(name, stream).await.map_err(|error| refused(error.to_string()))?;

    let untrusted = |reason: String| TransportError::Untrusted { address: address.into(), reason };
    let subject = subject(stream.get_ref().1.peer_certificates()).map_err(untrusted)?;
    if let Some(expected) = expected.filter(|&expected| *expected != subject.node) {
        let (address, expected) = (address.into(), expected.clone());
        return Err(TransportError::WrongNode { address, expected, found: subject.node });
    }
    let hello = greet(&mut stream, identity).await.map_err(refused)?;
    check(&subject, &hello, identity).map_err(untrusted)?;
    let address = stream.get_ref().0.peer_addr().map_err(|error| refused(error.to_string()))?;
    Ok(WatchedSide { peer: Peer { node: hello.node, incarnation: hello.incarnation, address }, stream })
}

/// What all connections of a watcher share.
struct Watch {
    acceptor: TlsAcceptor,
    identity: Arc<Identity>,
    queue: mpsc::Sender<Sign>,
    strangers: Mutex<Strangers>,
    nodes: NodePlaces,
    places: Arc<Semaphore>,
}

impl Watch {
    fn strangers(&self) -> MutexGuard<'_, Strangers> {
        self.strangers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn accept(listener: TcpListener, watch: Arc<Watch>) {
    // Those who leave still hold their sockets for a moment.
    let sockets = Arc::new(Semaphore::new(LIVENESS_CONNECTIONS_MAX + 2 * LIVENESS_STRANGERS_MAX));
    loop {
        // A place first: whoever finds none waits in the kernel's queue, which is bounded.
        let Ok(socket) = sockets.clone().acquire_owned().await else { return };
        let (stream, address) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept liveness connections for now");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let watch = watch.clone();
        tokio::spawn(async move {
            watch.watch(stream, address).await;
            drop(socket);
        });
    }
}

impl Watch {
    async fn watch(&self, stream: TcpStream, address: SocketAddr) {
        let queue = &self.queue;
        let limit = Duration::from_millis(HELLO_MS_MAX);
        let place = self.strangers().enter(address.ip());
        let greeting = tokio::select! {
            greeting = tokio::time::timeout(limit, take_in(stream, &self.acceptor, &self.identity)) => greeting,
            () = place.leave.notified() => Ok(Err("newer ones took its place".to_owned())),
            () = queue.closed() => return,
        };
        self.strangers().leave(place.number);
        let (mut stream, hello) = match greeting {
            Ok(Ok(greeted)) => greeted,
            Ok(Err(reason)) => return tracing::debug!(%address, reason, "refused a liveness connection"),
            Err(_) => return tracing::debug!(%address, "a liveness connection said no hello in time"),
        };
        let (node, incarnation) = (hello.node, hello.incarnation);
        let held = (self.nodes.take(&node, NODE_CONNECTIONS_MAX), self.places.try_acquire());
        let (Some(_of_node), Ok(_place)) = held else {
            return tracing::warn!(%address, %node, "refused a liveness connection: there are as many as there may be");
        };
        if queue.send(Sign::Came(Peer { node: node.clone(), incarnation, address })).await.is_err() {
            return;
        }
        tokio::select! {
            () = silent_until_end(&mut stream) => {}
            () = queue.closed() => return,
        }
        // Fails if nobody watches any more.
        let _ = queue.send(Sign::Gone(node, incarnation)).await;
    }
}

async fn take_in(
    mut stream: TcpStream,
    acceptor: &TlsAcceptor,
    identity: &Identity,
) -> Result<(tokio_rustls::server::TlsStream<TcpStream>, Hello), String> {
    keep_alive(&stream);
    let mut knocked = [0; KNOCK_BYTES];
    stream.read_exact(&mut knocked).await.map_err(|error| error.to_string())?;
    let key = knock_key(identity.cluster());
    hmac::verify(&key, &knocked[..NONCE_BYTES], &knocked[NONCE_BYTES..]).map_err(|_| "it does not know the cluster")?;
    let mut stream = acceptor.accept(stream).await.map_err(|error| error.to_string())?;
    let subject = subject(stream.get_ref().1.peer_certificates())?;
    let hello = greet(&mut stream, identity).await?;
    check(&subject, &hello, identity)?;
    Ok((stream, hello))
}

/// Both sides say hello, then nothing more.
async fn greet(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), identity: &Identity) -> Result<Hello, String> {
    let text = |error: std::io::Error| error.to_string();
    stream.write_all(&Hello::of(identity, Kind::Liveness).encode()).await.map_err(text)?;
    stream.flush().await.map_err(text)?;
    let mut prefix = [0; 2];
    stream.read_exact(&mut prefix).await.map_err(text)?;
    let mut body = vec![0; hello::length(prefix)?];
    stream.read_exact(&mut body).await.map_err(text)?;
    Ok(hello::decode(&body)?)
}

/// Until the other side closes, is gone, or says something, which it should not.
async fn silent_until_end(stream: &mut (impl AsyncRead + Unpin)) {
    let _ = stream.read_u8().await;
}

fn subject(certificates: Option<&[CertificateDer<'static>]>) -> Result<Subject, String> {
    let certificate = certificates.and_then(|chain| chain.first()).ok_or("it has shown no certificate")?;
    let subject = Subject::of(certificate)?;
    subject.check_time(SystemTime::now())?;
    Ok(subject)
}

fn check(subject: &Subject, hello: &Hello, identity: &Identity) -> Result<(), String> {
    // What is revoked is looked at where messages go; this connection says nothing but that a process lives.
    if hello.kind != Kind::Liveness {
        return Err("it wants another kind of connection".into());
    }
    hello::check(subject, hello, identity.cluster())
}

/// A nonce and its signature by all who know the cluster.
fn knock(cluster: &ClusterId, nonce: [u8; NONCE_BYTES]) -> [u8; KNOCK_BYTES] {
    let mut out = [0; KNOCK_BYTES];
    out[..NONCE_BYTES].copy_from_slice(&nonce);
    out[NONCE_BYTES..].copy_from_slice(hmac::sign(&knock_key(cluster), &nonce).as_ref());
    out
}

fn knock_key(cluster: &ClusterId) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, format!("weir liveness knock v1 {cluster}").as_bytes())
}

/// Lets the kernel notice a machine that is gone, at some time.
fn keep_alive(stream: &TcpStream) {
    let probes = TcpKeepalive::new().with_time(Duration::from_secs(5)).with_interval(Duration::from_secs(2));
    if let Err(error) = SockRef::from(stream).set_tcp_keepalive(&probes) {
        tracing::debug!(%error, "cannot set TCP keep-alive");
    }
}
