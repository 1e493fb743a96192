//! The other ways in which an endpoint would tell a stranger that it is there.

use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use aws_lc_rs::hmac;
use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, ConnectionId, UdpPoller};
use quinn_proto::{ConnectionIdGenerator, InvalidCid};

const NONCE_BYTES: usize = 8;
const TAG_BYTES: usize = 8;

/// Connection ids that only this node can make, and that it recognises after a restart. For a packet with such an id, of a
/// connection that is no more, the peer is told so (a stateless reset); any other gets no answer.
pub(crate) struct SignedIds {
    key: Arc<hmac::Key>,
}

impl SignedIds {
    pub(crate) fn new(reset_key: &hmac::Key) -> SignedIds {
        let derived = hmac::sign(reset_key, b"weir connection ids v1");
        SignedIds { key: Arc::new(hmac::Key::new(hmac::HMAC_SHA256, derived.as_ref())) }
    }

    pub(crate) fn clone_boxed(&self) -> Box<dyn ConnectionIdGenerator> {
        Box::new(SignedIds { key: self.key.clone() })
    }
}

impl ConnectionIdGenerator for SignedIds {
    fn generate_cid(&mut self) -> ConnectionId {
        let mut id = [0; NONCE_BYTES + TAG_BYTES];
        // Only uniqueness is needed, and the signature hides everything else. If this fails, all of TLS has failed already.
        let _ = aws_lc_rs::rand::fill(&mut id[..NONCE_BYTES]);
        let tag = hmac::sign(&self.key, &id[..NONCE_BYTES]);
        id[NONCE_BYTES..].copy_from_slice(&tag.as_ref()[..TAG_BYTES]);
        ConnectionId::new(&id)
    }

    fn validate(&self, id: &ConnectionId) -> Result<(), InvalidCid> {
        let (nonce, tag) = id.split_at_checked(NONCE_BYTES).ok_or(InvalidCid)?;
        if &hmac::sign(&self.key, nonce).as_ref()[..TAG_BYTES] == tag { Ok(()) } else { Err(InvalidCid) }
    }

    fn cid_len(&self) -> usize {
        NONCE_BYTES + TAG_BYTES
    }

    fn cid_lifetime(&self) -> Option<std::time::Duration> {
        None
    }
}

/// A socket that does not send version negotiation, which quinn answers to whoever speaks another version of QUIC.
#[derive(Debug)]
pub(crate) struct Silent(pub(crate) Arc<dyn AsyncUdpSocket>);

impl AsyncUdpSocket for Silent {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        self.0.clone().create_io_poller()
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        if is_version_negotiation(transmit.contents) {
            return Ok(());
        }
        self.0.try_send(transmit)
    }

    fn poll_recv(&self, cx: &mut Context<'_>, bufs: &mut [IoSliceMut<'_>], meta: &mut [RecvMeta]) -> Poll<io::Result<usize>> {
        self.0.poll_recv(cx, bufs, meta)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.0.max_transmit_segments()
    }

    fn max_receive_segments(&self) -> usize {
        self.0.max_receive_segments()
    }

    fn may_fragment(&self) -> bool {
        self.0.may_fragment()
    }
}

/// A long header with version zero.
pub(crate) fn is_version_negotiation(packet: &[u8]) -> bool {
    matches!(packet, [first, 0, 0, 0, 0, ..] if first & 0x80 != 0)
}
