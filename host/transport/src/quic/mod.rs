//! QUIC as this crate wants it: settings of quinn, TLS, and silence towards strangers.

pub(crate) mod config;
pub(crate) mod knock;
pub(crate) mod silence;
pub(crate) mod tls;
