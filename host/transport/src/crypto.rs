//! Which cryptography is used, and when a chain of certificates counts: one answer for files that are read and for handshakes.

use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{Error, RootCertStore};

/// AES first: every machine we run on has instructions for it.
pub(crate) fn provider() -> CryptoProvider {
    use aws_lc_rs::cipher_suite::{TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384, TLS13_CHACHA20_POLY1305_SHA256};
    CryptoProvider {
        cipher_suites: vec![TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384, TLS13_CHACHA20_POLY1305_SHA256],
        ..aws_lc_rs::default_provider()
    }
}

/// Whether a certificate was issued by one of the roots, for a server, and counts now.
pub(crate) fn verify_chain(
    certificate: &ParsedCertificate<'_>,
    intermediates: &[CertificateDer<'_>],
    roots: &RootCertStore,
    now: UnixTime,
) -> Result<(), Error> {
    let algorithms = provider().signature_verification_algorithms.all;
    verify_server_cert_signed_by_trust_anchor(certificate, roots, intermediates, now, algorithms)
}
