//! Names of the files, and reading and creating them with errors that name them.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use crate::TransportError;

pub(crate) const CA: &str = "ca.pem";
pub(crate) const CA_KEY: &str = "ca-key.pem";
pub(crate) const NODE: &str = "node.pem";
pub(crate) const NODE_KEY: &str = "node-key.pem";
pub(crate) const RESET_KEY: &str = "reset.key";
pub(crate) const REVOKED: &str = "revoked";

/// More than any of these files needs; a larger one is not what its name says.
const FILE_BYTES_MAX: u64 = 1 << 20;

pub(crate) fn read(path: &Path) -> Result<Vec<u8>, TransportError> {
    let failed = |source| TransportError::File { action: "read", path: path.into(), source };
    if fs::metadata(path).map_err(failed)?.len() > FILE_BYTES_MAX {
        return Err(failed(io::Error::other(format!("it is larger than {FILE_BYTES_MAX} bytes"))));
    }
    fs::read(path).map_err(failed)
}

/// Reads a file that only its owner may read.
pub(crate) fn read_secret(path: &Path) -> Result<Vec<u8>, TransportError> {
    let failed = |source| TransportError::File { action: "read", path: path.into(), source };
    let mode = fs::metadata(path).map_err(failed)?.permissions().mode();
    if mode & 0o077 != 0 {
        let reason = format!("its mode is {:o}, so others than its owner have access; chmod 600 it", mode & 0o777);
        return Err(TransportError::Identity { path: path.into(), reason });
    }
    read(path)
}

pub(crate) fn read_secret_text(path: &Path) -> Result<String, TransportError> {
    String::from_utf8(read_secret(path)?)
        .map_err(|_| TransportError::Identity { path: path.into(), reason: "it is not a PEM file (not even text)".into() })
}

pub(crate) fn read_text(path: &Path) -> Result<String, TransportError> {
    String::from_utf8(read(path)?)
        .map_err(|_| TransportError::Identity { path: path.into(), reason: "it is not a PEM file (not even text)".into() })
}

pub(crate) fn create_dir(path: &Path) -> Result<(), TransportError> {
    fs::create_dir_all(path).map_err(|source| TransportError::File { action: "create", path: path.into(), source })
}

/// Creates a file that everyone may read.
pub(crate) fn create(path: &Path, content: &[u8]) -> Result<(), TransportError> {
    create_with_mode(path, content, 0o644)
}

/// Creates a file that only its owner may read.
pub(crate) fn create_secret(path: &Path, content: &[u8]) -> Result<(), TransportError> {
    create_with_mode(path, content, 0o600)
}

fn create_with_mode(path: &Path, content: &[u8], mode: u32) -> Result<(), TransportError> {
    let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    file.and_then(|mut file| file.write_all(content).and_then(|()| file.sync_all())).map_err(|source| TransportError::File {
        action: "create",
        path: path.into(),
        source,
    })
}
