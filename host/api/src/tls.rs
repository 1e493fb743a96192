//! HTTPS: TLS 1.3 with the node's certificate. Clients show a token, not a certificate.
//!
//! The files are read again when they change, so that a certificate is exchanged while the process runs; files that cannot be used, such as
//! ones that somebody is just writing, change nothing.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::{ApiError, TlsFiles};

/// How often the files are looked at, whoever connects.
const LOOK: Duration = Duration::from_secs(1);

pub(crate) fn config(files: &TlsFiles) -> Result<Arc<ServerConfig>, ApiError> {
    let shown = Shown::read(files)?;
    let builder = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| wrong(&files.certificate, &error))?;
    let mut config = builder.with_no_client_auth().with_cert_resolver(Arc::new(shown));
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn wrong(path: &Path, reason: &dyn ToString) -> ApiError {
    ApiError::Tls { path: path.to_owned(), reason: reason.to_string() }
}

fn read(files: &TlsFiles) -> Result<Arc<CertifiedKey>, ApiError> {
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(&files.certificate)
        .and_then(Iterator::collect)
        .map_err(|error| wrong(&files.certificate, &error))?;
    if chain.is_empty() {
        return Err(wrong(&files.certificate, &"there is no certificate in it"));
    }
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|error| wrong(&files.key, &error))?;
    let key = CertifiedKey::from_der(chain, key, &aws_lc_rs::default_provider());
    key.map(Arc::new).map_err(|error| wrong(&files.certificate, &format!("{error} (its key is {})", files.key.display())))
}

/// The certificate that is shown.
#[derive(Debug)]
struct Shown {
    files: TlsFiles,
    known: Mutex<Known>,
}

#[derive(Debug)]
struct Known {
    key: Arc<CertifiedKey>,
    looked: Instant,
    stamps: Stamps,
}

/// Time and size of certificate and key.
type Stamps = [Option<(SystemTime, u64)>; 2];

fn stamps(files: &TlsFiles) -> Stamps {
    [&files.certificate, &files.key]
        .map(|path| fs::metadata(path).ok().and_then(|file| Some((file.modified().ok()?, file.len()))))
}

impl Shown {
    fn read(files: &TlsFiles) -> Result<Shown, ApiError> {
        let stamps = stamps(files);
        let known = Known { key: read(files)?, looked: Instant::now(), stamps };
        Ok(Shown { files: files.clone(), known: Mutex::new(known) })
    }

    fn get(&self, now: Instant) -> Arc<CertifiedKey> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if now.duration_since(known.looked) >= LOOK {
            known.looked = now;
            let stamps = stamps(&self.files);
            if stamps != known.stamps {
                match read(&self.files) {
                    Ok(key) => (known.key, known.stamps) = (key, stamps),
                    // Looked at again, until they fit.
                    Err(error) => tracing::debug!(%error, "the changed certificate of the API cannot be used yet"),
                }
            }
        }
        known.key.clone()
    }
}

impl ResolvesServerCert for Shown {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.get(Instant::now()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    #[test]
    fn s139_a_changed_certificate_is_shown_once_its_key_is_there_too() {
        let folder = tempfile::tempdir().unwrap();
        let files = TlsFiles { certificate: folder.path().join("node.pem"), key: folder.path().join("node-key.pem") };
        let [one, other] = [(); 2].map(|()| rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap());
        fs::write(&files.certificate, one.cert.pem()).unwrap();
        fs::write(&files.key, one.signing_key.serialize_pem()).unwrap();
        let shown = Shown::read(&files).unwrap();
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let first = shown.get(start);
        let bring = |path: &Path, text: String| {
            fs::remove_file(path).unwrap();
            fs::write(path, text).unwrap();
        };
        bring(&files.certificate, other.cert.pem());
        assert!(Arc::ptr_eq(&shown.get(start + second), &first), "without its key it is of no use");
        bring(&files.key, other.signing_key.serialize_pem());
        assert!(Arc::ptr_eq(&shown.get(start + second), &first), "it was looked at this moment");
        assert_eq!(shown.get(start + 2 * second).cert[0], *other.cert.der());
    }
}
