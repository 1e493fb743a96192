//! Over TCP with TLS 1.3 and AES-128-GCM, as QUIC has it. The receiver shows its certificate; the sender shows none.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use rustls::crypto::aws_lc_rs;
use rustls::crypto::{CryptoProvider, aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::link::Options;
use crate::plain::{connect, listen, read_frames, write_frames};
use crate::work::{Tally, frame};

/// The name in the receiver's certificate.
pub(crate) const HOST: &str = "localhost";

fn provider() -> Arc<CryptoProvider> {
    Arc::new(CryptoProvider { cipher_suites: vec![TLS13_AES_128_GCM_SHA256], ..aws_lc_rs::default_provider() })
}

fn certificate(path: &Path) -> Result<CertificateDer<'static>> {
    CertificateDer::from_pem_file(path).with_context(|| format!("cannot read {}", path.display()))
}

fn client(identity: &Path) -> Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(certificate(&identity.join("ca.pem"))?).context("cannot trust ca.pem")?;
    let versions = ClientConfig::builder_with_provider(provider()).with_protocol_versions(&[&rustls::version::TLS13])?;
    Ok(versions.with_root_certificates(roots).with_no_client_auth())
}

fn server(identity: &Path) -> Result<ServerConfig> {
    let key = identity.join("node-key.pem");
    let key = PrivateKeyDer::from_pem_file(&key).with_context(|| format!("cannot read {}", key.display()))?;
    let versions = ServerConfig::builder_with_provider(provider()).with_protocol_versions(&[&rustls::version::TLS13])?;
    Ok(versions.with_no_client_auth().with_single_cert(vec![certificate(&identity.join("node.pem"))?], key)?)
}

pub(crate) async fn send(identity: &Path, address: SocketAddr, options: Options) -> Result<(Tally, Value)> {
    let connector = TlsConnector::from(Arc::new(client(identity)?));
    let (frame, until) = (frame(options.frame_bytes), Instant::now() + options.time);
    let mut channels = JoinSet::new();
    for _ in 0..options.channels {
        let stream = connector.connect(ServerName::try_from(HOST)?, connect(address).await?).await;
        let (stream, frame) = (stream.context("no TLS connection")?, frame.clone());
        channels.spawn(async move { write_frames(stream, &frame, until).await });
    }
    let tallies = channels.join_all().await.into_iter().collect::<Result<Vec<_>>>()?;
    Ok((Tally::sum(tallies), json!({})))
}

pub(crate) async fn receive(identity: &Path, options: Options, listening: impl Fn(SocketAddr)) -> Result<Tally> {
    let acceptor = TlsAcceptor::from(Arc::new(server(identity)?));
    let listener = listen(listening).await?;
    let mut channels = JoinSet::new();
    for _ in 0..options.channels {
        let (stream, _) = listener.accept().await.context("cannot accept a connection")?;
        let acceptor = acceptor.clone();
        channels.spawn(async move { read_frames(acceptor.accept(stream).await.context("no TLS connection")?).await });
    }
    Ok(Tally::sum(channels.join_all().await.into_iter().collect::<Result<Vec<_>>>()?))
}
