//! Who this process is: its certificate and key, whom it trusts, and which run of the node it is.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use crate::credentials::{Current, Keeper};
use crate::pki::certificate::Subject;
use crate::pki::revoked::RevocationList;
use crate::pki::{self, files};
use crate::{ClusterId, Incarnation, NodeId, Role, TransportError};

/// Who this process is.
pub struct Identity {
    cluster: ClusterId,
    node: NodeId,
    role: Role,
    incarnation: Incarnation,
    pub(crate) revoked: RevocationList,
    pub(crate) current: Arc<Current>,
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
    /// checked, and the error names the file. The first three are read again when they change, while an endpoint is there.
    pub fn load(dir: &Path) -> Result<Identity, TransportError> {
        let (current, subject) = Current::read(dir)?;
        Ok(Identity {
            cluster: subject.cluster,
            node: subject.node,
            role: subject.role,
            revoked: RevocationList::at(dir.join(files::REVOKED)),
            incarnation: Incarnation(u64::from_le_bytes(pki::random()?)),
            current: Arc::new(current),
            reset_key: reset_key(&dir.join(files::RESET_KEY))?,
        })
    }

    /// Looks after the folder until it is cancelled: takes certificates that change, if they are for this node, and warns of
    /// the end of the one that is shown.
    pub(crate) async fn keep(&self) {
        let is_same =
            |subject: &Subject| (&subject.cluster, &subject.node, subject.role) == (&self.cluster, &self.node, self.role);
        Keeper::new(&self.current).run(&self.current, is_same).await;
    }

    /// The cluster.
    pub fn cluster(&self) -> &ClusterId {
        &self.cluster
    }

    /// The name of this node.
    pub fn node(&self) -> &NodeId {
        &self.node
    }

    /// Until when the certificate counts that it shows now.
    pub fn valid_until(&self) -> SystemTime {
        self.current.until()
    }

    /// The same process once more, for tests that change parts of it.
    #[cfg(test)]
    pub(crate) fn duplicate(&self) -> Identity {
        Identity {
            cluster: self.cluster.clone(),
            node: self.node.clone(),
            role: self.role,
            revoked: self.revoked.again(),
            incarnation: self.incarnation,
            current: self.current.clone(),
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
