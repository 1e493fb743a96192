//! Connecting, with errors that say what to look at.

use std::net::SocketAddr;
use std::time::Duration;

use quinn::{Connection, ConnectionError, RecvStream, SendStream, VarInt};
use tokio::time::Instant;

use super::{Endpoint, accept};
use crate::hello::{self, Hello, Kind, NoHello};
use crate::link::{Link, code};
use crate::quic::config::open_up;
use crate::{CloseCause, Control, Data, Expected, NodeId, Peer, TransportError};

/// The name during the handshake. The true one is in the certificate, checked afterwards.
const SERVER_NAME: &str = "weir";

/// TLS alerts that come as an error code of QUIC.
const ALERTS: u64 = 0x100;
const NO_APPLICATION_PROTOCOL: u64 = ALERTS + 120;

type Streams = (SendStream, RecvStream);

impl Endpoint {
    pub(super) async fn connect_for_control(&self, address: &str, expected: Expected<'_>) -> Result<Control, TransportError> {
        let (link, (send, receive)) = self.connect(address, expected, Kind::Control).await?;
        Ok(Control::new(link, send, receive))
    }

    pub(super) async fn connect_for_data(&self, address: &str, expected: &NodeId) -> Result<Data, TransportError> {
        let (link, _) = self.connect(address, Expected::Worker(expected), Kind::Data).await?;
        open_up(&link.connection, &self.shared.settings);
        Ok(Data::new(link))
    }

    async fn connect(
        &self,
        address: &str,
        expected: Expected<'_>,
        kind: Kind,
    ) -> Result<(std::sync::Arc<Link>, Streams), TransportError> {
        let started = Instant::now();
        let limit = self.shared.settings.connect_timeout;
        match tokio::time::timeout(limit, self.connect_and_greet(address, expected, kind, started)).await {
            Ok(connected) => connected,
            Err(_) => Err(self.no_answer(address, limit)),
        }
    }

    async fn connect_and_greet(
        &self,
        address: &str,
        expected: Expected<'_>,
        kind: Kind,
        started: Instant,
    ) -> Result<(std::sync::Arc<Link>, Streams), TransportError> {
        let failed = |error: ConnectionError| self.explain(address, &error, started);
        let connecting = self
            .quinn
            .connect_with(self.client.clone(), self.resolve(address).await?, SERVER_NAME)
            .map_err(|error| TransportError::Resolve { address: address.into(), reason: error.to_string() })?;
        let connection = connecting.await.map_err(failed)?;
        let untrusted = |reason: String| {
            connection.close(VarInt::from_u32(code::UNWANTED), reason.as_bytes());
            TransportError::Untrusted { address: address.into(), reason }
        };
        let (subject, shown) = accept::subject(&connection, &self.shared.identity).map_err(untrusted)?;
        if let Some(role) = expected.role().filter(|role| *role != subject.role) {
            return Err(untrusted(format!("its certificate is that of a {}, and a {role} is expected there", subject.role)));
        }
        if let Some(expected) = expected.node().filter(|&expected| *expected != subject.node) {
            untrusted(format!("expected node {expected} at this address"));
            let (address, expected) = (address.into(), expected.clone());
            return Err(TransportError::WrongNode { address, expected, found: subject.node });
        }
        let (streams, hello) = self.greet(&connection, kind).await.map_err(|error| match error {
            NoHello::Lost(error) => self.explain(address, &error, started),
            NoHello::Wrong(reason) => untrusted(reason.into()),
        })?;
        hello::check(&subject, &hello, self.shared.identity.cluster()).map_err(untrusted)?;
        accept::watch(connection.clone(), shown, self.shared.identity.clone());
        let peer = Peer { node: hello.node, incarnation: hello.incarnation, address: connection.remote_address() };
        Ok((Link::new(connection.clone(), peer, None, self.shared.counters.connections.clone()), streams))
    }

    async fn greet(&self, connection: &Connection, kind: Kind) -> Result<(Streams, Hello), NoHello> {
        let (mut send, mut receive) = connection.open_bi().await.map_err(NoHello::Lost)?;
        hello::send(&mut send, &Hello::of(&self.shared.identity, kind)).await?;
        let hello = hello::receive(&mut receive).await?;
        if hello.kind != kind {
            return Err(NoHello::Wrong("it answers for another kind of connection"));
        }
        Ok(((send, receive), hello))
    }

    /// The first address of the family that this endpoint's socket has.
    async fn resolve(&self, address: &str) -> Result<SocketAddr, TransportError> {
        let failed = |reason: String| TransportError::Resolve { address: address.into(), reason };
        let ours = self.local_addr()?;
        if let Ok(address) = address.parse::<SocketAddr>() {
            return Ok(address);
        }
        let found = tokio::net::lookup_host(address).await.map_err(|error| failed(error.to_string()))?;
        let mut usable = found.filter(|found| ours.is_ipv6() || found.is_ipv4());
        usable.next().ok_or_else(|| failed(format!("it has no address that can be reached from {ours}")))
    }

    fn no_answer(&self, address: &str, waited: Duration) -> TransportError {
        TransportError::NoAnswer { address: address.into(), waited, cluster: self.shared.identity.cluster().clone() }
    }

    fn explain(&self, address: &str, error: &ConnectionError, started: Instant) -> TransportError {
        let address_owned = || address.to_string();
        match error {
            ConnectionError::TimedOut => self.no_answer(address, started.elapsed()),
            ConnectionError::TransportError(error) => {
                let reason = with_hint(&error.reason);
                TransportError::Untrusted { address: address_owned(), reason }
            }
            ConnectionError::ConnectionClosed(close) => {
                let code = u64::from(close.error_code);
                if code == NO_APPLICATION_PROTOCOL {
                    return TransportError::Version { address: address_owned(), ours: self.shared.version };
                }
                TransportError::Refused { address: address_owned(), reason: with_hint(&String::from_utf8_lossy(&close.reason)) }
            }
            ConnectionError::ApplicationClosed(close) => {
                TransportError::Refused { address: address_owned(), reason: String::from_utf8_lossy(&close.reason).into_owned() }
            }
            other => {
                let (cause, reason) = crate::link::cause(other);
                debug_assert!(cause != CloseCause::Silent, "explained above");
                TransportError::Closed { peer: address_owned(), cause, reason }
            }
        }
    }
}

/// What to look at, for the reasons that rustls gives about certificates.
fn with_hint(reason: &str) -> String {
    let hint = if reason.contains("not valid yet") || reason.contains("expired") {
        "; issue a new certificate, or set the clocks of both machines right"
    } else if reason.contains("UnknownIssuer") || reason.contains("BadSignature") {
        "; the certificate is not of an authority in ca.pem"
    } else {
        ""
    };
    format!("{reason}{hint}")
}
