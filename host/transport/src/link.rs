//! An authenticated connection, whatever travels on it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use quinn::{Connection, ConnectionError, VarInt};
use tokio::sync::OwnedSemaphorePermit;

use crate::error::CloseCause;
use crate::node_places::NodePlace;
use crate::{ConnectionMetrics, Peer, TransportError};

/// Codes that a connection or a channel is closed with. Callers choose their own from [`code::FIRST_FREE`] on.
pub(crate) mod code {
    pub(crate) const DROPPED: u32 = 1;
    pub(crate) const PROTOCOL: u32 = 2;
    pub(crate) const UNWANTED: u32 = 3;
    pub(crate) const SHUTDOWN: u32 = 4;
}

/// A place among all connections of an endpoint, and one among those of the peer's node.
pub(crate) type Place = (OwnedSemaphorePermit, NodePlace);

/// An authenticated connection. Closes it when dropped.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) connection: Connection,
    pub(crate) peer: Peer,
    /// Its place among the connections of the endpoint, and the count of those that are open.
    _place: Option<Place>,
    open: Arc<AtomicUsize>,
}

impl Link {
    pub(crate) fn new(connection: Connection, peer: Peer, place: Option<Place>, open: Arc<AtomicUsize>) -> Arc<Link> {
        open.fetch_add(1, Ordering::Relaxed);
        Arc::new(Link { connection, peer, _place: place, open })
    }

    pub(crate) fn close(&self, code: u32, reason: &str) {
        self.connection.close(VarInt::from_u32(code), reason.as_bytes());
    }

    /// The peer broke the protocol: nothing else it says can be relied on.
    pub(crate) fn protocol(&self, reason: String) -> TransportError {
        self.close(code::PROTOCOL, &reason);
        TransportError::Protocol { peer: self.peer.to_string(), reason }
    }

    pub(crate) fn lost(&self, error: &ConnectionError) -> TransportError {
        let (cause, reason) = cause(error);
        TransportError::Closed { peer: self.peer.to_string(), cause, reason }
    }

    /// Why nothing can be sent any more, as far as it is known.
    pub(crate) fn closed_now(&self) -> TransportError {
        match self.connection.close_reason() {
            Some(error) => self.lost(&error),
            None => TransportError::Closed {
                peer: self.peer.to_string(),
                cause: CloseCause::Local,
                reason: "this side has stopped using it".into(),
            },
        }
    }

    pub(crate) async fn closed(&self) -> TransportError {
        self.lost(&self.connection.closed().await)
    }

    pub(crate) fn write_error(&self, error: quinn::WriteError) -> TransportError {
        match error {
            quinn::WriteError::Stopped(code) => {
                TransportError::ChannelClosed { peer: self.peer.to_string(), code: code.into_inner() }
            }
            quinn::WriteError::ConnectionLost(error) => self.lost(&error),
            quinn::WriteError::ClosedStream | quinn::WriteError::ZeroRttRejected => self.closed_now(),
        }
    }

    pub(crate) fn read_error(&self, error: quinn::ReadError) -> TransportError {
        match error {
            quinn::ReadError::Reset(code) => {
                TransportError::ChannelClosed { peer: self.peer.to_string(), code: code.into_inner() }
            }
            quinn::ReadError::ConnectionLost(error) => self.lost(&error),
            _ => self.closed_now(),
        }
    }

    pub(crate) fn metrics(&self) -> ConnectionMetrics {
        ConnectionMetrics::of(&self.connection)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
        self.close(code::DROPPED, "not needed any more");
    }
}

/// Why a connection is closed, for programs and for people.
pub(crate) fn cause(error: &ConnectionError) -> (CloseCause, String) {
    match error {
        ConnectionError::LocallyClosed => (CloseCause::Local, "this side closed it".into()),
        ConnectionError::ApplicationClosed(close) => {
            let code = close.error_code.into_inner();
            let reason = String::from_utf8_lossy(&close.reason);
            (
                CloseCause::Peer(code),
                format!("the peer closed it: {} (code {code})", if reason.is_empty() { "-" } else { &reason }),
            )
        }
        ConnectionError::Reset => (CloseCause::Restarted, "the peer was restarted and does not know it any more".into()),
        ConnectionError::TimedOut => (CloseCause::Silent, "there was no sign of life for the idle timeout".into()),
        other => (CloseCause::Failed, other.to_string()),
    }
}
