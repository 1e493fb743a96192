//! Connecting, with errors that say what to look at.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::Poll;
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

/// Addresses of a name that are tried.
const ADDRESSES_MAX: usize = 8;

/// Time after which the next address of a name is tried beside those before.
const STAGGER: Duration = Duration::from_millis(250);

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
        let connected = async {
            let all = self.resolve(address).await?;
            first_of(all, |socket| self.connect_and_greet(address, socket, expected, kind, started)).await
        };
        match tokio::time::timeout(limit, connected).await {
            Ok(connected) => connected,
            Err(_) => Err(self.no_answer(address, limit)),
        }
    }

    async fn connect_and_greet(
        &self,
        address: &str,
        socket: SocketAddr,
        expected: Expected<'_>,
        kind: Kind,
        started: Instant,
    ) -> Result<(std::sync::Arc<Link>, Streams), TransportError> {
        let failed = |error: ConnectionError| self.explain(address, &error, started);
        let connecting = self
            .quinn
            .connect_with(self.client.clone(), socket, SERVER_NAME)
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

    /// The addresses of the family that this endpoint's socket has; at least one, [`ADDRESSES_MAX`] at most.
    async fn resolve(&self, address: &str) -> Result<Vec<SocketAddr>, TransportError> {
        let failed = |reason: String| TransportError::Resolve { address: address.into(), reason };
        let ours = self.local_addr()?;
        let found = tokio::net::lookup_host(address).await.map_err(|error| failed(error.to_string()))?;
        let mut usable: Vec<SocketAddr> = Vec::new();
        for found in found.filter(|found| ours.is_ipv6() || found.is_ipv4()) {
            if usable.len() < ADDRESSES_MAX && !usable.contains(&found) {
                usable.push(found);
            }
        }
        if usable.is_empty() {
            return Err(failed(format!(
                "it has IPv6 addresses only, and this process listens at {ours}, from where it reaches IPv4 alone; \
                 --listen [::]:{} reaches both",
                ours.port()
            )));
        }
        Ok(usable)
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

/// Makes an attempt at each address in turn, the next one once the one before has failed or has taken [`STAGGER`]. Gives what
/// succeeds first, or else the first error.
async fn first_of<T, E, F: Future<Output = Result<T, E>>>(
    addresses: Vec<SocketAddr>,
    attempt: impl Fn(SocketAddr) -> F,
) -> Result<T, E> {
    let mut waiting = addresses.into_iter();
    let mut running: Vec<Pin<Box<F>>> = waiting.next().map(|first| Box::pin(attempt(first))).into_iter().collect();
    let mut first_error = None;
    loop {
        let any = poll_fn(|context| {
            let ready = |(index, attempt): (usize, &mut Pin<Box<F>>)| match attempt.as_mut().poll(context) {
                Poll::Ready(result) => Some((index, result)),
                Poll::Pending => None,
            };
            running.iter_mut().enumerate().find_map(ready).map_or(Poll::Pending, Poll::Ready)
        });
        let (index, result) = match tokio::time::timeout(STAGGER, any).await {
            Ok(ended) => ended,
            Err(_) => {
                running.extend(waiting.next().map(|next| Box::pin(attempt(next))));
                continue;
            }
        };
        drop(running.swap_remove(index));
        match result {
            Ok(connected) => return Ok(connected),
            Err(error) => first_error = first_error.or(Some(error)),
        }
        running.extend(waiting.next().map(|next| Box::pin(attempt(next))));
        if running.is_empty()
            && let Some(error) = first_error.take()
        {
            return Err(error);
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU16, Ordering};

    use super::*;

    fn addresses(ports: &[u16]) -> Vec<SocketAddr> {
        ports.iter().map(|&port| SocketAddr::from(([127, 0, 0, 1], port))).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn every_address_of_a_name_is_tried_and_one_that_does_not_answer_holds_up_no_other() {
        let tried = AtomicU16::new(0);
        let attempt = async |address: SocketAddr| {
            tried.fetch_add(1, Ordering::SeqCst);
            match address.port() {
                1 => Err("refused 1"),
                2 => Err("refused 2"),
                3 => std::future::pending().await,
                port => Ok(port),
            }
        };
        let attempt = |address| Box::pin(attempt(address));
        assert_eq!(first_of(addresses(&[1, 3, 4, 5]), attempt).await, Ok(4));
        assert_eq!(tried.load(Ordering::SeqCst), 3, "the last was not needed");
        assert_eq!(first_of(addresses(&[1, 2]), attempt).await, Err("refused 1"));
        let silent = tokio::time::timeout(Duration::from_secs(60), first_of(addresses(&[2, 3]), attempt)).await;
        assert!(silent.is_err(), "one may still answer");
    }
}
