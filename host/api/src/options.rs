//! What an API server is given.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use weir_protocol::api::ClusterApi;

/// Certificate and key in PEM files.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The certificate, followed by those between it and the authority, if any.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// What an API server is given.
#[derive(Clone)]
pub struct ApiOptions {
    /// Where it listens. Port 0: any free one. An address that is not a loopback needs `tls`.
    pub listen: SocketAddr,
    /// Serve HTTPS with this certificate; without, plain HTTP.
    pub tls: Option<TlsFiles>,
    /// On a loopback address: processes of this process's user, and of root, need no token, and may everything. All others show one,
    /// as `Authorization: Bearer`.
    pub owner_passes: bool,
    /// What it serves, and who knows the tokens. An address that is not a loopback needs one that counts.
    pub cluster: Arc<dyn ClusterApi>,
}
