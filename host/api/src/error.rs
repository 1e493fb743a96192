//! Why an API server does not start.

use std::net::SocketAddr;
use std::path::PathBuf;

/// An API server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// Other machines could reach it, and it would not be protected.
    #[error("cannot serve the API on {listen}: others than the user of this process can reach it, and there is no {missing}")]
    Unprotected {
        /// The address.
        listen: SocketAddr,
        /// What is missing: "TLS certificate", "token that counts".
        missing: &'static str,
    },
    /// The address is taken, or not one of this machine.
    #[error("cannot serve the API on {listen}: {reason}")]
    Bind {
        /// The address.
        listen: SocketAddr,
        /// Why.
        reason: std::io::Error,
    },
    /// Certificate or key cannot be used.
    #[error("cannot use {} for the API: {reason}", path.display())]
    Tls {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A token cannot be read or written.
    #[error("cannot {action} the token file {}: {reason}", path.display())]
    Token {
        /// What was attempted.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// There are no random bytes.
    #[error("cannot make a token: the operating system gives no random bytes")]
    Random,
}

impl ApiError {
    /// What to do about it.
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self {
            ApiError::Unprotected { .. } => {
                "serve it on 127.0.0.1, or with the node's certificate and the cluster's token: `weir cluster init DIR` makes \
                 them, `weir cluster add-node` a certificate for one more node"
            }
            ApiError::Bind { .. } => "another process may use it; another address can be named with --api",
            ApiError::Tls { .. } => "`weir cluster add-node` issues a new certificate (remove the node's folder first)",
            ApiError::Token { action: "create", .. } => return None,
            ApiError::Token { .. } => {
                "a token file holds one line of 32 to 256 visible characters, and only its owner may read it"
            }
            ApiError::Random => return None,
        })
    }
}
