//! What an API server is given.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use weir_protocol::api::ClusterApi;

use crate::Token;

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
    /// Where it listens. Port 0: any free one. An address that is not a loopback needs `tls` and `token`.
    pub listen: SocketAddr,
    /// Serve HTTPS with this certificate; without, plain HTTP.
    pub tls: Option<TlsFiles>,
    /// What every request must carry as `Authorization: Bearer`, but for those that `owner_passes` lets through.
    pub token: Option<Token>,
    /// On a loopback address: processes of this process's user, and of root, need no token. Others of the machine do; where there is no
    /// token, they cannot ask.
    pub owner_passes: bool,
    /// What it serves.
    pub cluster: Arc<dyn ClusterApi>,
}
