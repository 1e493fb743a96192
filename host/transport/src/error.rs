//! What can go wrong between processes.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use weir_channel::wire::WireError;

use crate::{ClusterId, InvalidName, NodeId};

/// What closed a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CloseCause {
    /// This side.
    Local,
    /// The peer, with this code.
    Peer(u64),
    /// The process at the other end was replaced by another one.
    Restarted,
    /// Nothing was heard for the idle timeout.
    Silent,
    /// A failure of the protocol below.
    Failed,
}

/// What can go wrong between processes. The first group is about files and settings of this node, and goes away when they
/// are corrected; the others are about a peer, and may go away by trying again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransportError {
    /// A file of the identity could not be read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    File {
        /// Read, write or create.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file of the identity holds the wrong thing.
    #[error("cannot use {}: {reason}", path.display())]
    Identity {
        /// The file.
        path: PathBuf,
        /// Why, and what to do.
        reason: String,
    },
    /// A name that nodes and clusters cannot have.
    #[error(transparent)]
    Name(#[from] InvalidName),
    /// A certificate or a TLS configuration could not be made.
    #[error("cannot {action}: {reason}")]
    Crypto {
        /// What was attempted.
        action: &'static str,
        /// Why.
        reason: String,
    },
    /// A setting is out of its range.
    #[error("the setting {name} is {value}, but must be {range}")]
    Setting {
        /// Its name.
        name: &'static str,
        /// What it is.
        value: u64,
        /// What it may be.
        range: String,
    },
    /// The address to listen at cannot be had.
    #[error("cannot listen at {address}: {source}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// An address could not be found.
    #[error("cannot resolve `{address}`: {reason}")]
    Resolve {
        /// As it was given.
        address: String,
        /// Why.
        reason: String,
    },
    /// Nothing answered.
    #[error(
        "no answer from {address} within {waited:?}: nothing listens there, a firewall drops UDP, or it is of another \
         cluster than {cluster}"
    )]
    NoAnswer {
        /// As it was given.
        address: String,
        /// How long it was waited for.
        waited: Duration,
        /// Ours.
        cluster: ClusterId,
    },
    /// This side does not accept the other.
    #[error("cannot trust {address}: {reason}")]
    Untrusted {
        /// As it was given.
        address: String,
        /// Why.
        reason: String,
    },
    /// The other side does not accept this one.
    #[error("{address} refuses this node: {reason}")]
    Refused {
        /// As it was given.
        address: String,
        /// Why, as far as it says.
        reason: String,
    },
    /// Another node than expected answered.
    #[error("expected node {expected} at {address}, found {found}: is the address right?")]
    WrongNode {
        /// As it was given.
        address: String,
        /// Whom the caller wanted.
        expected: NodeId,
        /// Whose certificate it is.
        found: NodeId,
    },
    /// The other side runs another version.
    #[error("{address} does not speak protocol version {ours}: run the same version of weir on all nodes")]
    Version {
        /// As it was given.
        address: String,
        /// The version this program speaks.
        ours: u32,
    },
    /// A connection was lost or closed.
    #[error("the connection to {peer} is closed: {reason}")]
    Closed {
        /// Whom it was to.
        peer: String,
        /// What closed it.
        cause: CloseCause,
        /// Why.
        reason: String,
    },
    /// The peer closed one channel, not the connection.
    #[error("{peer} closed the channel (code {code})")]
    ChannelClosed {
        /// The peer.
        peer: String,
        /// The code it gave.
        code: u64,
    },
    /// A peer sent what is no frame, or a frame cannot be sent.
    #[error("channel with {peer}: {source}")]
    Frame {
        /// The peer.
        peer: String,
        /// What is wrong with it.
        source: WireError,
    },
    /// A peer sent, or the caller wants to send, a message over the bound.
    #[error("a message of {len} bytes with {peer} is over the limit of {max}")]
    MessageTooLong {
        /// The peer.
        peer: String,
        /// Its length.
        len: usize,
        /// The limit.
        max: usize,
    },
    /// A peer did not keep to the protocol.
    #[error("{peer} does not keep to the protocol: {reason}")]
    Protocol {
        /// The peer.
        peer: String,
        /// What it did.
        reason: String,
    },
}
