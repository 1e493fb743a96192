//! Who this process is: its certificate and key, whom it trusts, and which run of the node it is.

use std::fmt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;

use crate::pki::certificate::{self, Subject};
use crate::pki::revoked::Revoked;
use crate::pki::{self, files};
use crate::quic::tls;
use crate::{ClusterId, Incarnation, NodeId, Role, TransportError};

/// How long before its end a certificate is warned of.
const EXPIRY_WARNED: Duration = Duration::from_secs(30 * 86_400);

/// Who this process is.
pub struct Identity {
    cluster: ClusterId,
    node: NodeId,
    role: Role,
    until: SystemTime,
    incarnation: Incarnation,
    pub(crate) revoked: Revoked,
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
    pub(crate) roots: RootCertStore,
    /// Makes what a predecessor of this process has handed out recognisable.
    pub(crate) reset_key: Vec<u8>,
}

impl Identity {
    /// Reads the folder of a node that is to be this.
    ///
    /// # Errors
    /// Like [`Identity::load`], and if its certificate is for something else.
    pub fn load_as(dir: &Path, role: Role) -> Result<Identity, TransportError> {
        let identity = Identity::load(dir)?;
        if identity.role == role {
            return Ok(identity);
        }
        let option = if role == Role::Coordinator { " --coordinator" } else { "" };
        let reason = format!(
            "it is the certificate of a {}, and a {role} needs another: `weir cluster add-node{option}` makes one",
            identity.role
        );
        Err(TransportError::Identity { path: dir.join(files::NODE), reason })
    }

    /// Reads a node's folder, as [`pki::add_node`] makes it or with certificates from elsewhere: `ca.pem`, `node.pem`,
    /// `node-key.pem`, and `reset.key`, which is made if it is not there. Everything that would fail at a peer later is
    /// checked, and the error names the file.
    pub fn load(dir: &Path) -> Result<Identity, TransportError> {
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
        CertifiedKey::from_der(chain.clone(), key.clone_key(), &tls::provider())
            .map_err(|error| wrong(&key_path, format!("it does not belong to {}: {error}", node_path.display())))?;

        let until = subject.until();
        let left = until.duration_since(SystemTime::now()).unwrap_or_default();
        if left < EXPIRY_WARNED {
            let days = left.as_secs() / 86_400;
            tracing::warn!(
                node = %subject.node,
                "the certificate {} expires in {days} days; `weir cluster add-node` makes a new one (remove its folder first)",
                node_path.display()
            );
        }
        Ok(Identity {
            cluster: subject.cluster,
            until,
            node: subject.node,
            role: subject.role,
            revoked: Revoked::at(dir.join(files::REVOKED)),
            incarnation: Incarnation(u64::from_le_bytes(pki::random()?)),
            chain,
            key,
            roots,
            reset_key: reset_key(&dir.join(files::RESET_KEY))?,
        })
    }

    /// The cluster.
    pub fn cluster(&self) -> &ClusterId {
        &self.cluster
    }

    /// The name of this node.
    pub fn node(&self) -> &NodeId {
        &self.node
    }

    /// Until when its certificate counts.
    pub fn valid_until(&self) -> SystemTime {
        self.until
    }

    /// The same process once more, for tests that change parts of it.
    #[cfg(test)]
    pub(crate) fn duplicate(&self) -> Identity {
        Identity {
            cluster: self.cluster.clone(),
            node: self.node.clone(),
            role: self.role,
            until: self.until,
            revoked: self.revoked.again(),
            incarnation: self.incarnation,
            chain: self.chain.clone(),
            key: self.key.clone_key(),
            roots: self.roots.clone(),
            reset_key: self.reset_key.clone(),
        }
    }

    /// This run of it.
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity")
            .field("cluster", &self.cluster)
            .field("node", &self.node)
            .field("incarnation", &self.incarnation)
            .finish_non_exhaustive()
    }
}

fn check_chain(chain: &[CertificateDer<'static>], roots: &RootCertStore) -> Result<(), rustls::Error> {
    let certificate = ParsedCertificate::try_from(&chain[0])?;
    tls::verify_chain(&certificate, &chain[1..], roots, UnixTime::now())
}

/// The key by which peers recognise that the process they were connected to has been restarted.
fn reset_key(path: &Path) -> Result<Vec<u8>, TransportError> {
    match files::read_secret(path) {
        Ok(key) if key.len() >= 32 => Ok(key),
        Ok(key) => {
            let reason = format!("it has {} bytes, but needs 32: delete it, a new one is made", key.len());
            Err(TransportError::Identity { path: path.into(), reason })
        }
        Err(TransportError::File { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            let key = pki::random::<32>()?;
            if let Err(error) = files::create_secret(path, &key) {
                tracing::warn!(%error, "peers will notice a restart of this node later than they could");
            }
            Ok(key.to_vec())
        }
        Err(error) => Err(error),
    }
}
