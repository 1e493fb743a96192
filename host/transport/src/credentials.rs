//! What a node shows of itself and whom it believes, as its folder says: `node.pem`, `node-key.pem`, `ca.pem`.
//!
//! It is read again when one of the files changes, so that certificates and authorities are exchanged while the process runs. What every
//! new connection is made with is what was read last; connections that stand are left as they are. A folder that cannot be used, such
//! as one that somebody is just writing to, changes nothing. Owns the files' content; what else a node is, it stays.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use rustls::client::ResolvesClientCert;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, ParsedCertificate, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme};

use crate::TransportError;
use crate::crypto::{provider, verify_chain};
use crate::pki::certificate::{self, Subject};
use crate::pki::files;

/// How long before its end a certificate is warned of.
const EXPIRY_WARNED: Duration = Duration::from_secs(30 * 86_400);

/// How often it is warned of from then on.
const WARNED_EVERY: Duration = Duration::from_secs(86_400);

/// How often it is looked whether the folder has changed. As long a change must have stood before something is wrong with it.
const LOOK: Duration = Duration::from_secs(1);

/// What was read at one time.
#[derive(Debug)]
struct Credentials {
    shown: Arc<CertifiedKey>,
    roots: Arc<RootCertStore>,
    clients: Arc<dyn ClientCertVerifier>,
    until: SystemTime,
}

impl Credentials {
    fn new(shown: Arc<CertifiedKey>, roots: Arc<RootCertStore>, until: SystemTime) -> Result<Credentials, String> {
        let clients = WebPkiClientVerifier::builder_with_provider(roots.clone(), Arc::new(provider())).build();
        Ok(Credentials { shown, roots, clients: clients.map_err(|error| error.to_string())?, until })
    }

    /// Reads a node's folder. Everything that would fail at a peer later is checked, and the error names the file.
    fn read(dir: &Path) -> Result<(Credentials, Subject), TransportError> {
        let (ca_path, node_path, key_path) = (dir.join(files::CA), dir.join(files::NODE), dir.join(files::NODE_KEY));
        let wrong = |path: &Path, reason: String| TransportError::Identity { path: path.into(), reason };

        let mut roots = RootCertStore::empty();
        for ca in certificate::read_all(&ca_path)? {
            roots.add(ca).map_err(|error| wrong(&ca_path, format!("it is no certificate authority: {error}")))?;
        }
        let chain = certificate::read_all(&node_path)?;
        let subject = Subject::of(&chain[0]).map_err(|reason| wrong(&node_path, reason))?;
        subject.check_time(SystemTime::now()).map_err(|reason| wrong(&node_path, reason))?;
        check_chain(&chain, &roots)
            .map_err(|error| wrong(&node_path, format!("it was not issued by {}: {error}", ca_path.display())))?;

        let key = PrivateKeyDer::from_pem_slice(&files::read_secret(&key_path)?)
            .map_err(|error| wrong(&key_path, format!("there is no private key in it: {error}")))?;
        let shown = CertifiedKey::from_der(chain, key, &provider())
            .map_err(|error| wrong(&key_path, format!("it does not belong to {}: {error}", node_path.display())))?;
        let credentials = Credentials::new(Arc::new(shown), Arc::new(roots), subject.until());
        Ok((credentials.map_err(|reason| wrong(&ca_path, reason))?, subject))
    }
}

fn check_chain(chain: &[CertificateDer<'static>], roots: &RootCertStore) -> Result<(), Error> {
    let certificate = ParsedCertificate::try_from(&chain[0])?;
    verify_chain(&certificate, &chain[1..], roots, UnixTime::now())
}

/// What counts now.
#[derive(Debug)]
pub(crate) struct Current {
    dir: PathBuf,
    credentials: RwLock<Arc<Credentials>>,
}

impl Current {
    /// What a folder says, and for whom it is.
    pub(crate) fn read(dir: &Path) -> Result<(Current, Subject), TransportError> {
        let (credentials, subject) = Credentials::read(dir)?;
        let current = Current { dir: dir.to_owned(), credentials: RwLock::new(Arc::new(credentials)) };
        Ok((current, subject))
    }

    /// Until when the certificate counts that is shown.
    pub(crate) fn until(&self) -> SystemTime {
        self.get().until
    }

    /// The authorities that are believed.
    pub(crate) fn roots(&self) -> Arc<RootCertStore> {
        self.get().roots.clone()
    }

    /// The certificate that is shown.
    #[cfg(test)]
    pub(crate) fn shown(&self) -> Arc<CertifiedKey> {
        self.get().shown.clone()
    }

    /// The same with another certificate, as no honest process has it.
    #[cfg(test)]
    pub(crate) fn showing(&self, shown: Arc<CertifiedKey>) -> Current {
        let Credentials { roots, until, .. } = &*self.get();
        let credentials = Credentials::new(shown, roots.clone(), *until).unwrap();
        Current { dir: self.dir.clone(), credentials: RwLock::new(Arc::new(credentials)) }
    }

    fn get(&self) -> Arc<Credentials> {
        self.credentials.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes what the folder says now, if it is for the same node.
    fn renew(&self, is_same: &dyn Fn(&Subject) -> bool) -> Result<(), TransportError> {
        let (credentials, subject) = Credentials::read(&self.dir)?;
        if !is_same(&subject) {
            let reason = format!("it is for the {} {}, and this process is another one", subject.role, subject.node);
            return Err(TransportError::Identity { path: self.dir.join(files::NODE), reason });
        }
        *self.credentials.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(credentials);
        Ok(())
    }

    fn stamps(&self) -> Stamps {
        [files::CA, files::NODE, files::NODE_KEY].map(|name| {
            let found = fs::metadata(self.dir.join(name)).ok()?;
            Some((found.modified().ok()?, found.len()))
        })
    }
}

/// Time and size of each file.
type Stamps = [Option<(SystemTime, u64)>; 3];

/// Looks after the folder as long as the process runs: takes what changes, and warns of the end.
pub(crate) struct Keeper {
    taken: Stamps,
    /// Files that could not be used, and whether that was said.
    tried: Option<(Stamps, bool)>,
    warned: Option<SystemTime>,
}

impl Keeper {
    pub(crate) fn new(current: &Current) -> Keeper {
        Keeper { taken: current.stamps(), tried: None, warned: None }
    }

    /// Runs until it is cancelled.
    pub(crate) async fn run(mut self, current: &Current, is_same: impl Fn(&Subject) -> bool) {
        loop {
            self.look(current, &is_same, SystemTime::now());
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Gives what it has said, if anything.
    fn look(&mut self, current: &Current, is_same: &dyn Fn(&Subject) -> bool, now: SystemTime) -> Option<String> {
        let stamps = current.stamps();
        if stamps != self.taken {
            return self.take(current, is_same, stamps);
        }
        let left = current.until().duration_since(now).unwrap_or_default();
        let is_due = self.warned.is_none_or(|warned| now.duration_since(warned).is_ok_and(|since| since >= WARNED_EVERY));
        if left >= EXPIRY_WARNED || !is_due {
            return None;
        }
        self.warned = Some(now);
        let node = current.dir.join(files::NODE);
        let said = format!("the certificate {} expires in {} days", node.display(), left.as_secs() / 86_400);
        tracing::warn!(
            "{said}; `weir cluster add-node` makes a new one, which counts once its files are in the place of the old ones"
        );
        Some(said)
    }

    fn take(&mut self, current: &Current, is_same: &dyn Fn(&Subject) -> bool, stamps: Stamps) -> Option<String> {
        match current.renew(is_same) {
            Ok(()) => {
                *self = Keeper { taken: stamps, tried: None, warned: None };
                let days = current.until().duration_since(SystemTime::now()).unwrap_or_default().as_secs() / 86_400;
                let said = format!("the certificates in {} have changed and count from now on", current.dir.display());
                tracing::info!(days_left = days, "{said}");
                Some(said)
            }
            // One file after the other is being brought: only what stays so is wrong.
            Err(error) if self.tried.is_none_or(|(tried, _)| tried != stamps) => {
                tracing::debug!(%error, "changed certificates cannot be used yet");
                self.tried = Some((stamps, false));
                None
            }
            Err(error) => {
                let was_said = self.tried.replace((stamps, true)).is_some_and(|(_, was_said)| was_said);
                let said = format!("the changed certificates are not used, those of before still count: {error}");
                (!was_said).then(|| {
                    tracing::error!("{said}");
                    said
                })
            }
        }
    }
}

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.get().shown.clone())
    }
}

impl ResolvesClientCert for Current {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.get().shown.clone())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// Of clients, a certificate of an authority that is believed at that moment.
impl ClientCertVerifier for Current {
    /// A node has one certificate, and needs no hint which to show.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.get().clients.verify_client_cert(end_entity, intermediates, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.get().clients.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.get().clients.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.get().clients.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use tempfile::TempDir;

    use super::*;
    use crate::Role;
    use crate::pki::{self, Validity};

    const DAY: Duration = Duration::from_secs(86_400);

    /// A folder with a certificate of a new authority.
    fn node(name: &str, days: u32) -> TempDir {
        let folder = TempDir::new().unwrap();
        pki::create_cluster(&folder.path().join("ca"), &Validity::days(days)).unwrap();
        pki::add_node(&folder.path().join("ca"), folder.path(), name, Role::Worker, &[], &Validity::days(days)).unwrap();
        folder
    }

    #[test]
    fn s132_an_end_is_warned_of_from_30_days_before_once_a_day() {
        let folder = node("a", 60);
        let (current, _) = Current::read(folder.path()).unwrap();
        let mut keeper = Keeper::new(&current);
        let start = SystemTime::now();
        let mut said = |at: Duration| keeper.look(&current, &|_| true, start + at);
        assert_eq!(said(DAY), None);
        assert_eq!(said(29 * DAY), None);
        assert!(said(31 * DAY).unwrap().contains("expires in 28 days"), "it began to count an hour ago");
        assert_eq!(said(31 * DAY + DAY / 2), None);
        assert!(said(32 * DAY).unwrap().contains("27 days"));
        assert!(said(61 * DAY).unwrap().contains("0 days"));
    }

    #[test]
    fn s139_changed_files_count_when_they_fit_and_what_stays_wrong_is_said_once() {
        let (folder, other) = (node("a", 60), node("a", 90));
        let (current, subject) = Current::read(folder.path()).unwrap();
        let mut keeper = Keeper::new(&current);
        let (before, until) = (current.shown(), current.until());
        let bring = |name: &str| {
            // As a file that is copied: a new one, with a time of its own.
            fs::remove_file(folder.path().join(name)).unwrap();
            fs::copy(other.path().join(name), folder.path().join(name)).unwrap();
        };
        let node = subject.node.clone();
        let is_same = move |subject: &Subject| subject.node == node;
        let mut look = |current: &Current| keeper.look(current, &is_same, SystemTime::now());
        assert_eq!(look(&current), None);
        bring(files::NODE);
        assert_eq!(look(&current), None, "the rest may be on its way");
        assert!(look(&current).unwrap().contains("not issued by"));
        assert_eq!(look(&current), None, "once");
        assert!(Arc::ptr_eq(&current.shown(), &before));
        bring(files::CA);
        assert_eq!(look(&current), None);
        assert!(look(&current).unwrap().contains("does not belong to"));
        bring(files::NODE_KEY);
        assert!(look(&current).unwrap().contains("count from now on"));
        assert!(!Arc::ptr_eq(&current.shown(), &before) && current.until() > until);
        assert_eq!(look(&current), None);

        // What is another node's is not taken.
        let third = self::node("b", 90);
        for name in [files::NODE, files::NODE_KEY, files::CA] {
            fs::copy(third.path().join(name), folder.path().join(name)).unwrap();
        }
        assert_eq!(look(&current), None);
        assert!(look(&current).unwrap().contains("for the worker b"));
    }
}
