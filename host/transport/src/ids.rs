//! Names of clusters, nodes and processes.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use weir_model::limits::NAME_BYTES_MAX;

/// A text cannot name a node or a cluster.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no name: 1 to {NAME_BYTES_MAX} of a-z, A-Z, 0-9, `-`, `_`, `.`")]
pub struct InvalidName(pub String);

/// Name of a node: what its certificate says.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(Arc<str>);

/// What a node may be: in its certificate, so that the key of a worker, of which there are many, commands nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// Leads: workers take commands from it.
    Coordinator,
    /// Runs tasks: it reports to a coordinator, and sends rows to other workers.
    Worker,
}

impl Role {
    /// As certificates have it.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Coordinator => "coordinator",
            Role::Worker => "worker",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Role> {
        [Role::Coordinator, Role::Worker].into_iter().find(|role| role.as_str() == text)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Whom a connection is meant for. Whoever else answers there is not talked to.
#[derive(Clone, Copy, Debug)]
pub enum Expected<'a> {
    /// A coordinator of the cluster, whatever its name.
    Coordinator,
    /// The worker of this name.
    Worker(&'a NodeId),
    /// Any node, for tests of what comes before roles.
    #[cfg(test)]
    Anyone,
}

impl Expected<'_> {
    /// The name that must answer, where one must.
    pub(crate) fn node(&self) -> Option<&NodeId> {
        match self {
            Expected::Worker(node) => Some(node),
            _ => None,
        }
    }

    pub(crate) fn role(&self) -> Option<Role> {
        match self {
            Expected::Coordinator => Some(Role::Coordinator),
            Expected::Worker(_) => Some(Role::Worker),
            #[cfg(test)]
            Expected::Anyone => None,
        }
    }
}

/// Name of a cluster: in the certificates of all its nodes. Chosen at random when the cluster is made, so that no two are
/// the same and nobody else knows it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClusterId(Arc<str>);

/// A run of a process: random at its start. A node that was restarted has the same name and another incarnation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Incarnation(pub u64);

/// Who is at the other end: proven by its certificate, except for the incarnation, which it says itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Peer {
    /// Its name.
    pub node: NodeId,
    /// Which run of it.
    pub incarnation: Incarnation,
    /// Where it is.
    pub address: SocketAddr,
}

fn check(name: &str) -> Result<Arc<str>, InvalidName> {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(known) {
        // No more of it than a log line should hold: it may come from a peer.
        return Err(InvalidName(name.chars().take(NAME_BYTES_MAX).collect()));
    }
    Ok(name.into())
}

impl NodeId {
    /// Checks a name.
    pub fn new(name: &str) -> Result<NodeId, InvalidName> {
        check(name).map(NodeId)
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl ClusterId {
    /// Checks a name.
    pub fn new(name: &str) -> Result<ClusterId, InvalidName> {
        check(name).map(ClusterId)
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.node, self.address)
    }
}
