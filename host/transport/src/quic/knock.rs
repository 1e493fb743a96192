//! Why a stranger gets no answer.
//!
//! A TLS server has to show itself before its client does, so client certificates alone do not hide it. But QUIC encrypts
//! even the first packets, with keys that anyone can derive from the connection id in them. Here they are derived from that
//! id *and* the id of the cluster: without it nobody can write a packet that this endpoint can read, and what it cannot read
//! it drops. This hides; it protects nothing. That is what the certificates are for.

use std::any::Any;
use std::sync::Arc;

use aws_lc_rs::hmac;
use quinn::crypto::{self, ExportKeyingMaterialError, HeaderKey, KeyPair, Keys, PacketKey, Session, UnsupportedVersion};
use quinn::{ConnectError, ConnectionId, Side};
use quinn_proto::TransportError;
use quinn_proto::transport_parameters::TransportParameters;

use crate::ClusterId;

/// Shorter ids are against the protocol, and quinn would answer them.
const CLIENT_ID_BYTES_MIN: usize = 8;
const CONNECTION_ID_BYTES_MAX: usize = 20;

/// Turns connection ids into what first packets are encrypted by.
#[derive(Clone)]
pub(crate) struct Knock(Arc<hmac::Key>);

impl Knock {
    pub(crate) fn new(cluster: &ClusterId) -> Knock {
        let secret = format!("weir knock v1 {cluster}");
        Knock(Arc::new(hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes())))
    }

    fn apply(&self, id: &ConnectionId) -> ConnectionId {
        ConnectionId::new(&hmac::sign(&self.0, id).as_ref()[..CONNECTION_ID_BYTES_MAX])
    }
}

/// A server's or client's TLS configuration behind the knock.
pub(crate) struct KnockedConfig<T> {
    pub(crate) inner: Arc<T>,
    pub(crate) knock: Knock,
}

impl<T: crypto::ServerConfig> crypto::ServerConfig for KnockedConfig<T> {
    fn initial_keys(&self, version: u32, id: &ConnectionId) -> Result<Keys, UnsupportedVersion> {
        if id.len() < CLIENT_ID_BYTES_MIN {
            return Err(UnsupportedVersion);
        }
        self.inner.initial_keys(version, &self.knock.apply(id))
    }

    fn retry_tag(&self, version: u32, id: &ConnectionId, packet: &[u8]) -> [u8; 16] {
        self.inner.retry_tag(version, id, packet)
    }

    fn start_session(self: Arc<Self>, version: u32, params: &TransportParameters) -> Box<dyn Session> {
        let inner = self.inner.clone().start_session(version, params);
        Box::new(KnockedSession { inner, knock: self.knock.clone() })
    }
}

impl<T: crypto::ClientConfig> crypto::ClientConfig for KnockedConfig<T> {
    fn start_session(
        self: Arc<Self>,
        version: u32,
        server_name: &str,
        params: &TransportParameters,
    ) -> Result<Box<dyn Session>, ConnectError> {
        let inner = self.inner.clone().start_session(version, server_name, params)?;
        Ok(Box::new(KnockedSession { inner, knock: self.knock.clone() }))
    }
}

/// Differs from the session inside in the keys of first packets only.
struct KnockedSession {
    inner: Box<dyn Session>,
    knock: Knock,
}

impl Session for KnockedSession {
    fn initial_keys(&self, id: &ConnectionId, side: Side) -> Keys {
        self.inner.initial_keys(&self.knock.apply(id), side)
    }

    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        self.inner.handshake_data()
    }

    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        self.inner.peer_identity()
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        self.inner.early_crypto()
    }

    fn early_data_accepted(&self) -> Option<bool> {
        self.inner.early_data_accepted()
    }

    fn is_handshaking(&self) -> bool {
        self.inner.is_handshaking()
    }

    fn read_handshake(&mut self, buf: &[u8]) -> Result<bool, TransportError> {
        self.inner.read_handshake(buf)
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        self.inner.transport_parameters()
    }

    fn write_handshake(&mut self, buf: &mut Vec<u8>) -> Option<Keys> {
        self.inner.write_handshake(buf)
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        self.inner.next_1rtt_keys()
    }

    fn is_valid_retry(&self, id: &ConnectionId, header: &[u8], payload: &[u8]) -> bool {
        self.inner.is_valid_retry(id, header, payload)
    }

    fn export_keying_material(&self, output: &mut [u8], label: &[u8], context: &[u8]) -> Result<(), ExportKeyingMaterialError> {
        self.inner.export_keying_material(output, label, context)
    }
}
