//! Certificates that count no more, although their time is not over: their keys are lost, or their nodes have gone bad.
//!
//! A list in a file `revoked`, one line each: the SHA-256 of the certificate, then whatever a person wants to read there. It lies in the
//! folder of each node that is to know it, and is read again when it changes. A list that is there and cannot be read revokes everything:
//! whom it was to keep out must not gain by damaging it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use aws_lc_rs::digest::{SHA256, digest};
use rustls::pki_types::CertificateDer;

use super::{certificate, files};
use crate::TransportError;

/// The list of one node.
#[derive(Debug)]
pub(crate) struct RevocationList {
    path: PathBuf,
    known: Mutex<KnownRevocations>,
}

#[derive(Debug)]
struct KnownRevocations {
    /// Time and size of the file that was read; none where there was none.
    of: Option<(SystemTime, u64)>,
    listed: Result<BTreeSet<String>, String>,
}

impl RevocationList {
    /// The list at a path, which may not be there.
    pub(crate) fn at(path: PathBuf) -> RevocationList {
        RevocationList { path, known: Mutex::new(KnownRevocations { of: None, listed: Ok(BTreeSet::new()) }) }
    }

    /// The same list once more.
    #[cfg(test)]
    pub(crate) fn again(&self) -> RevocationList {
        RevocationList::at(self.path.clone())
    }

    /// # Errors
    /// If the certificate counts no more; why.
    pub(crate) fn check(&self, certificate: &CertificateDer<'_>) -> Result<(), String> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let found = match fs::metadata(&self.path) {
            Ok(found) => Some((found.modified().unwrap_or(SystemTime::UNIX_EPOCH), found.len())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => {
                return Err(format!("the list of revoked certificates {} cannot be read: {error}", self.path.display()));
            }
        };
        if known.of != found {
            let listed = if found.is_some() { read(&self.path) } else { Ok(BTreeSet::new()) };
            *known = KnownRevocations { of: found, listed };
        }
        match &known.listed {
            Ok(listed) if listed.contains(&fingerprint(certificate)) => Err("the certificate is revoked".to_owned()),
            Ok(_) => Ok(()),
            Err(reason) => Err(reason.clone()),
        }
    }
}

fn read(path: &Path) -> Result<BTreeSet<String>, String> {
    let text = files::read_text(path).map_err(|error| error.to_string())?;
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let digest = |line: &str| {
        let digest = line.split_whitespace().next().unwrap_or_default().to_ascii_lowercase();
        let is_one = digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_one.then_some(digest).ok_or_else(|| format!("{} has a line that is no SHA-256: {line}", path.display()))
    };
    lines.map(digest).collect()
}

/// SHA-256 of a certificate, in hexadecimal digits.
pub(crate) fn fingerprint(certificate: &CertificateDer<'_>) -> String {
    digest(&SHA256, certificate).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Adds the certificate of a node's folder to the list in the cluster's folder. Gives the list's path: each node that is to refuse the
/// certificate needs a copy in its own folder.
///
/// # Errors
/// If there is no certificate, or the list cannot be read or written.
pub fn revoke(ca_dir: &Path, node_dir: &Path) -> Result<PathBuf, TransportError> {
    let certificates = certificate::read_all(&node_dir.join(files::NODE))?;
    let name = certificate::Subject::of(&certificates[0]).map_or_else(|_| String::new(), |subject| subject.node.to_string());
    let list = ca_dir.join(files::REVOKED);
    let failed = |action, source| TransportError::File { action, path: list.clone(), source };
    let mut text = match fs::read_to_string(&list) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(failed("read", error)),
    };
    let line = format!("{} {name}\n", fingerprint(&certificates[0]));
    if !text.contains(&line) {
        text.push_str(&line);
        let new = list.with_extension("new");
        let _ = fs::remove_file(&new);
        files::create(&new, text.as_bytes())?;
        fs::rename(&new, &list).map_err(|error| failed("replace", error))?;
    }
    Ok(list)
}
