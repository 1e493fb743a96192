//! Accepting: bounded at every step, and silent towards whoever is not of the cluster.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use quinn::{Connecting, Connection, ConnectionError, VarInt};
use rustls::pki_types::CertificateDer;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use weir_model::limits::{CONNECTIONS_MAX, HANDSHAKES_MAX, HELLO_MS_MAX, NODE_CONNECTIONS_MAX};

use super::{EndpointState, Incoming};
use crate::hello::{self, Hello, Kind, NoHello};
use crate::link::{Link, code};
use crate::metrics::count;
use crate::pki::certificate::Subject;
use crate::quic::config::open_up;
use crate::{Control, Data, Identity, Peer, Role};

/// How often it is looked whether certificates of connections still count.
const CERTIFICATE_CHECK: Duration = Duration::from_secs(1);

/// Accepts until the endpoint is closed.
pub(super) async fn run(quinn: quinn::Endpoint, shared: Arc<EndpointState>, queue: mpsc::Sender<Incoming>) {
    let handshakes = Arc::new(Semaphore::new(HANDSHAKES_MAX));
    let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    while let Some(incoming) = quinn.accept().await {
        let address = incoming.remote_address();
        let permits = handshakes.clone().try_acquire_owned().and_then(|handshake| {
            let place = connections.clone().try_acquire_owned()?;
            Ok((handshake, place))
        });
        let Ok((handshake, place)) = permits else {
            count(&shared.counters.busy);
            incoming.ignore();
            continue;
        };
        match incoming.accept() {
            Ok(connecting) => {
                let (shared, queue) = (shared.clone(), queue.clone());
                tokio::spawn(async move {
                    greet(connecting, &shared, place, &queue).await;
                    drop(handshake);
                });
            }
            Err(error) if is_unreadable(&error) => {
                count(&shared.counters.strangers);
                tracing::debug!(%address, "dropped packets that cannot be read: another cluster, or garbage");
            }
            Err(error) => refused(&shared, &address, &error.to_string()),
        }
    }
}

/// Whether a first packet was not encrypted by someone who knows the cluster.
fn is_unreadable(error: &ConnectionError) -> bool {
    matches!(error, ConnectionError::TransportError(error) if error.reason == "authentication failed")
}

fn refused(shared: &EndpointState, address: &dyn std::fmt::Display, reason: &str) {
    count(&shared.counters.refused);
    tracing::warn!(%address, reason, "refused a connection from a process of this cluster");
}

async fn greet(connecting: Connecting, shared: &EndpointState, place: OwnedSemaphorePermit, queue: &mpsc::Sender<Incoming>) {
    let address = connecting.remote_address();
    let greeting = tokio::time::timeout(Duration::from_millis(HELLO_MS_MAX), handshake(connecting, shared, place)).await;
    match greeting {
        Ok(Ok(incoming)) => {
            count(&shared.counters.accepted);
            // If nobody takes connections any more, this one is closed by dropping it.
            let _ = queue.send(incoming).await;
        }
        Ok(Err(reason)) => refused(shared, &address, &reason),
        Err(_) => refused(shared, &address, "it did not say hello in time"),
    }
}

async fn handshake(connecting: Connecting, shared: &EndpointState, place: OwnedSemaphorePermit) -> Result<Incoming, String> {
    let connection = connecting.await.map_err(|error| error.to_string())?;
    let close = |reason: String| {
        connection.close(VarInt::from_u32(code::UNWANTED), reason.as_bytes());
        reason
    };
    let (subject, shown) = subject(&connection, &shared.identity).map_err(close)?;
    let no_hello = |error: NoHello| match error {
        NoHello::Lost(error) => error.to_string(),
        NoHello::Wrong(reason) => close(reason.into()),
    };
    let (mut send, mut receive) = connection.accept_bi().await.map_err(|error| error.to_string())?;
    let hello = hello::receive(&mut receive).await.map_err(no_hello)?;
    hello::check(&subject, &hello, shared.identity.cluster()).map_err(close)?;
    if subject.role != Role::Worker {
        return Err(close(format!("its certificate is that of a {}, and only workers connect", subject.role)));
    }
    if hello.kind == Kind::Liveness {
        return Err(close("liveness is watched over TCP, not here".into()));
    }
    let Some(of_node) = shared.nodes.take(&hello.node, NODE_CONNECTIONS_MAX) else {
        return Err(close(format!("{} has {NODE_CONNECTIONS_MAX} connections already", hello.node)));
    };
    hello::send(&mut send, &Hello::of(&shared.identity, hello.kind)).await.map_err(no_hello)?;

    watch(connection.clone(), shown, shared.identity.clone());
    let peer = Peer { node: hello.node, incarnation: hello.incarnation, address: connection.remote_address() };
    let link = Link::new(connection.clone(), peer, Some((place, of_node)), shared.counters.connections.clone());
    if hello.kind == Kind::Control {
        return Ok(Incoming::Control(Control::new(link, send, receive)));
    }
    open_up(&connection, &shared.settings);
    Ok(Incoming::Data(Data::new(link)))
}

/// Whom the peer's certificate is for, with the certificate. Its signature was checked by the handshake.
pub(super) fn subject(connection: &Connection, identity: &Identity) -> Result<(Subject, CertificateDer<'static>), String> {
    let shown = connection.peer_identity().and_then(|any| any.downcast::<Vec<CertificateDer<'static>>>().ok());
    let certificate = shown.as_ref().and_then(|chain| chain.first()).ok_or("it has shown no certificate")?;
    let subject = Subject::of(certificate)?;
    subject.check_time(SystemTime::now())?;
    identity.revoked.check(certificate)?;
    Ok((subject, certificate.clone()))
}

/// Ends a connection when the certificate that it began with does not count any more: it is revoked, or its time is over.
pub(super) fn watch(connection: Connection, shown: CertificateDer<'static>, identity: Arc<Identity>) {
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = connection.closed() => return,
                () = tokio::time::sleep(CERTIFICATE_CHECK) => {}
            }
            let counts = Subject::of(&shown).and_then(|subject| subject.check_time(SystemTime::now()));
            if let Err(reason) = counts.and_then(|()| identity.revoked.check(&shown)) {
                tracing::warn!(address = %connection.remote_address(), reason, "a connection ends: its certificate counts no more");
                connection.close(VarInt::from_u32(code::UNWANTED), reason.as_bytes());
                return;
            }
        }
    });
}
