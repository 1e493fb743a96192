//! quinn's configuration from ours.

use std::sync::Arc;

use aws_lc_rs::hmac;
use quinn::congestion::{BbrConfig, ControllerFactory, CubicConfig, NewRenoConfig};
use quinn::crypto::rustls::{NoInitialCipherSuite, QuicClientConfig, QuicServerConfig};
use quinn::{ClientConfig, EndpointConfig, IdleTimeout, MtuDiscoveryConfig, ServerConfig, TransportConfig, VarInt};
use weir_model::limits;

use super::knock::{Knock, KnockedConfig};
use super::silence::SignedIds;
use super::tls;
use crate::{Congestion, Identity, Settings, TransportError};

/// Everything an endpoint needs.
pub(crate) struct Configs {
    pub(crate) endpoint: EndpointConfig,
    pub(crate) server: ServerConfig,
    pub(crate) client: ClientConfig,
}

impl Configs {
    pub(crate) fn new(identity: &Identity, settings: &Settings, version: u32) -> Result<Configs, TransportError> {
        settings.check()?;
        let reset_key = hmac::Key::new(hmac::HMAC_SHA256, &identity.reset_key);
        let ids = SignedIds::new(&reset_key);
        let mut endpoint = EndpointConfig::new(Arc::new(reset_key));
        endpoint.cid_generator(move || ids.clone_boxed());
        endpoint.supported_versions(vec![QUIC_V1]);
        endpoint.max_udp_payload_size(settings.packet_bytes_max).map_err(|error| failed(&error))?;

        let transport = Arc::new(transport(settings)?);
        let knock = Knock::new(identity.cluster());
        let no_suite = |error: NoInitialCipherSuite| failed(&error);

        let inner = Arc::new(QuicServerConfig::try_from(tls::server(identity, tls::alpn(version))?).map_err(no_suite)?);
        let mut server = ServerConfig::with_crypto(Arc::new(KnockedConfig { inner, knock: knock.clone() }));
        server.transport_config(transport.clone());
        server.migration(false);
        server.max_incoming(limits::HANDSHAKES_MAX);
        server.incoming_buffer_size(limits::HANDSHAKE_BUFFER_BYTES_MAX / limits::HANDSHAKES_MAX as u64);
        server.incoming_buffer_size_total(limits::HANDSHAKE_BUFFER_BYTES_MAX);

        let inner = Arc::new(QuicClientConfig::try_from(tls::client(identity, tls::alpn(version))?).map_err(no_suite)?);
        let mut client = ClientConfig::new(Arc::new(KnockedConfig { inner, knock }));
        client.transport_config(transport);
        Ok(Configs { endpoint, server, client })
    }
}

const QUIC_V1: u32 = 1;

/// What a peer may do before it has said hello; [`open_up`] allows more.
fn transport(settings: &Settings) -> Result<TransportConfig, TransportError> {
    let mut config = TransportConfig::default();
    config
        .max_concurrent_bidi_streams(1u32.into())
        .max_concurrent_uni_streams(0u32.into())
        .stream_receive_window(settings.channel_window_bytes.into())
        .receive_window(settings.channel_window_bytes.into())
        .send_window(settings.send_window_bytes)
        .send_fairness(true)
        .max_idle_timeout(Some(IdleTimeout::try_from(settings.idle_timeout).map_err(|error| failed(&error))?))
        .keep_alive_interval(Some(settings.keep_alive))
        .initial_rtt(settings.initial_rtt)
        .mtu_discovery_config(Some(mtu_discovery(settings)))
        .congestion_controller_factory(congestion(settings))
        .datagram_receive_buffer_size(None);
    Ok(config)
}

fn mtu_discovery(settings: &Settings) -> MtuDiscoveryConfig {
    let mut config = MtuDiscoveryConfig::default();
    config.upper_bound(settings.packet_bytes_max);
    config
}

fn congestion(settings: &Settings) -> Arc<dyn ControllerFactory + Send + Sync> {
    let window = settings.initial_window_bytes;
    match settings.congestion {
        Congestion::Cubic => {
            let mut config = CubicConfig::default();
            config.initial_window(window);
            Arc::new(config)
        }
        Congestion::NewReno => {
            let mut config = NewRenoConfig::default();
            config.initial_window(window);
            Arc::new(config)
        }
        Congestion::Bbr => {
            let mut config = BbrConfig::default();
            config.initial_window(window);
            Arc::new(config)
        }
    }
}

/// Allows a peer that has proven who it is to open channels. A channel that nobody reads must not use up the allowance of
/// its neighbours: the connection's is that of all channels together.
pub(crate) fn open_up(connection: &quinn::Connection, settings: &Settings) {
    let all = u64::from(settings.channel_window_bytes) * (u64::from(settings.channels_max) + 1);
    connection.set_receive_window(VarInt::from_u64(all).unwrap_or(VarInt::MAX));
    connection.set_max_concurrent_uni_streams(settings.channels_max.into());
}

fn failed(error: &dyn std::fmt::Display) -> TransportError {
    TransportError::Crypto { action: "set up QUIC", reason: error.to_string() }
}
