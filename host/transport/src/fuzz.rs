//! Entry points for fuzzing: the bytes that anybody sends, before anything else has seen them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use bytes::BytesMut;
use quinn_proto::{DatagramEvent, Endpoint};

use crate::data::header;
use crate::quic::config::Configs;
use crate::quic::silence::is_version_negotiation;
use crate::{Identity, Settings, hello as greeting};

/// The first bytes of a channel. What is accepted is the same when it is written again.
///
/// # Panics
/// If it is not.
pub fn channel_header(bytes: &[u8]) -> String {
    match header::decode(bytes) {
        Ok(read) => {
            assert_eq!(header::encode(&read).ok().as_deref(), Some(bytes), "it is another one when it is written again");
            "a header".to_owned()
        }
        Err(reason) => reason.to_string(),
    }
}

/// The first words of a connection, likewise.
///
/// # Panics
/// If they are not the same.
pub fn hello(bytes: &[u8]) -> String {
    match greeting::decode(bytes) {
        Ok(read) => {
            assert_eq!(read.encode()[2..], *bytes, "it is another one when it is written again");
            format!("a hello {:?}", read.kind)
        }
        Err(reason) => reason.to_string(),
    }
}

/// A first packet from anywhere. Who cannot write one that this cluster can read is not answered, whatever else it is.
///
/// # Panics
/// If it is answered.
pub fn knock(identity: &Identity, bytes: &[u8]) -> String {
    let settings = Settings::default();
    let configs = Configs::new(identity, &settings, 1).expect("it can be configured");
    let (endpoint, server) = (Arc::new(configs.endpoint), Some(Arc::new(configs.server)));
    let mut endpoint = Endpoint::new(endpoint, server, true, Some([7; 32]));
    let (from, mut out) = (SocketAddr::from(([192, 0, 2, 1], 7)), Vec::new());
    #[allow(clippy::disallowed_methods, reason = "quinn wants to know")]
    let now = Instant::now();
    match endpoint.handle(now, from, None, None, BytesMut::from(bytes), &mut out) {
        None => "dropped".to_owned(),
        Some(DatagramEvent::ConnectionEvent(..)) => "of a connection".to_owned(),
        Some(DatagramEvent::Response(transmit)) => {
            assert!(is_version_negotiation(&out[..transmit.size]), "who does not know the cluster is answered");
            "a response that is not sent".to_owned()
        }
        Some(DatagramEvent::NewConnection(incoming)) => match endpoint.accept(incoming, now, &mut out, None) {
            Ok(_) => panic!("who does not know the cluster is taken in"),
            Err(error) => {
                assert!(error.response.is_none(), "who does not know the cluster is answered");
                error.cause.to_string()
            }
        },
    }
}
