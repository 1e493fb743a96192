//! TLS by hand: version 1.3 only, one provider, both sides prove who they are, nothing is resumed.

use std::fmt;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::{NoServerSessionStorage, ParsedCertificate};
use rustls::{ClientConfig, DigitallySignedStruct, Error, ServerConfig, SignatureScheme};

use crate::credentials::Current;
use crate::crypto::{provider, verify_chain};
use crate::{Identity, TransportError};

/// Version of everything that travels between processes. Processes of different versions refuse each other.
pub(crate) const PROTOCOL_VERSION: u32 = 2;

/// The protocol's name during the handshake.
pub(crate) fn alpn(version: u32) -> Vec<u8> {
    format!("weir/{version}").into_bytes()
}

/// For the side that is connected to. A client must show a certificate of one of the roots.
pub(crate) fn server(identity: &Identity, alpn: Vec<u8>) -> Result<ServerConfig, TransportError> {
    let provider = Arc::new(provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| failed(&error))?
        .with_client_cert_verifier(identity.current.clone())
        .with_cert_resolver(identity.current.clone());
    config.alpn_protocols = vec![alpn];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config.max_early_data_size = 0;
    Ok(config)
}

/// For the side that connects. The name that the server shows is checked after the handshake: it may not be known before.
pub(crate) fn client(identity: &Identity, alpn: Vec<u8>) -> Result<ClientConfig, TransportError> {
    let provider = Arc::new(provider());
    let members = Arc::new(Members { current: identity.current.clone(), provider: provider.clone() });
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| failed(&error))?
        .dangerous()
        .with_custom_certificate_verifier(members)
        .with_client_cert_resolver(identity.current.clone());
    config.alpn_protocols = vec![alpn];
    config.resumption = Resumption::disabled();
    config.enable_early_data = false;
    config.enable_sni = false;
    Ok(config)
}

fn failed(error: &dyn fmt::Display) -> TransportError {
    TransportError::Crypto { action: "set up TLS", reason: error.to_string() }
}

/// Accepts servers with any name, if their certificate is of an authority that is believed at that moment.
#[derive(Debug)]
struct Members {
    current: Arc<Current>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Members {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        verify_chain(&ParsedCertificate::try_from(end_entity)?, intermediates, &self.current.roots(), now)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("only TLS 1.3 is spoken here".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
