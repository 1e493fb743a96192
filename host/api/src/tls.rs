//! HTTPS: TLS 1.3 with the node's certificate. Clients show a token, not a certificate.

use std::path::Path;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::{ApiError, TlsFiles};

pub(crate) fn config(files: &TlsFiles) -> Result<Arc<ServerConfig>, ApiError> {
    let wrong = |path: &Path, reason: String| ApiError::Tls { path: path.to_owned(), reason };
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(&files.certificate)
        .and_then(Iterator::collect)
        .map_err(|error| wrong(&files.certificate, error.to_string()))?;
    if chain.is_empty() {
        return Err(wrong(&files.certificate, "there is no certificate in it".to_owned()));
    }
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|error| wrong(&files.key, error.to_string()))?;
    let builder = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| wrong(&files.certificate, error.to_string()))?;
    let mut config = builder
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|error| wrong(&files.certificate, format!("{error} (its key is {})", files.key.display())))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
