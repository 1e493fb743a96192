//! Why a coordinator does not start.

use std::path::PathBuf;

/// A coordinator cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Another coordinator works on the data folder.
    #[error(
        "cannot start a coordinator on {}: another one runs on this folder{}; stop it first, or give this one a folder of its \
         own with --data-dir", folder.display(), holder.map(|pid| format!(" (process {pid})")).unwrap_or_default()
    )]
    Locked {
        /// The data folder.
        folder: PathBuf,
        /// The process that has it, where it says so.
        holder: Option<u32>,
    },
    /// What it must not forget cannot be read or written.
    #[error(transparent)]
    Metadata(#[from] crate::metadata::MetadataError),
    /// Its certificate cannot be used, or its address is taken.
    #[error(transparent)]
    Transport(#[from] weir_transport::TransportError),
    /// A thread cannot be started.
    #[error("cannot start a coordinator: {0}")]
    Process(#[source] std::io::Error),
}
