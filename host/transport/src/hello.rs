//! The first words on each connection: what it is for, and who speaks. The certificate has proven the name before; the
//! hello adds which run of the node it is.

use quinn::{RecvStream, SendStream};
use weir_model::limits::HELLO_BYTES_MAX;

use crate::pki::certificate::Subject;
use crate::{ClusterId, Identity, Incarnation, NodeId};

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Messages.
    Control = 1,
    /// Channels.
    Data = 2,
    /// Nothing but noticing its end.
    Liveness = 3,
}

/// What a side says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    /// What the connection is for.
    pub kind: Kind,
    /// Which run of the node.
    pub incarnation: Incarnation,
    /// The cluster, as in the certificate.
    pub cluster: ClusterId,
    /// The node, as in the certificate.
    pub node: NodeId,
}

impl Hello {
    pub(crate) fn of(identity: &Identity, kind: Kind) -> Hello {
        Hello { kind, incarnation: identity.incarnation(), cluster: identity.cluster().clone(), node: identity.node().clone() }
    }

    /// Kind (1 byte), incarnation (8, little-endian), cluster and node (a byte with the length, then the name). Before it
    /// its length (2, little-endian).
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut body = vec![self.kind as u8];
        body.extend_from_slice(&self.incarnation.0.to_le_bytes());
        for name in [self.cluster.as_str(), self.node.as_str()] {
            body.push(name.len() as u8);
            body.extend_from_slice(name.as_bytes());
        }
        let mut out = (body.len() as u16).to_le_bytes().to_vec();
        out.extend_from_slice(&body);
        out
    }
}

/// Reads a hello from its bytes, without the length.
pub(crate) fn decode(body: &[u8]) -> Result<Hello, &'static str> {
    const SHORT: &str = "the hello is too short";
    let (&kind, rest) = body.split_first().ok_or(SHORT)?;
    let kind = match kind {
        1 => Kind::Control,
        2 => Kind::Data,
        3 => Kind::Liveness,
        _ => return Err("the hello is for an unknown kind of connection"),
    };
    let (incarnation, rest) = rest.split_first_chunk().ok_or(SHORT)?;
    let (cluster, rest) = name(rest).ok_or(SHORT)?;
    let (node, rest) = name(rest).ok_or(SHORT)?;
    if !rest.is_empty() {
        return Err("the hello is too long");
    }
    Ok(Hello {
        kind,
        incarnation: Incarnation(u64::from_le_bytes(*incarnation)),
        cluster: std::str::from_utf8(cluster)
            .ok()
            .and_then(|name| ClusterId::new(name).ok())
            .ok_or("no cluster has that name")?,
        node: std::str::from_utf8(node).ok().and_then(|name| NodeId::new(name).ok()).ok_or("no node has that name")?,
    })
}

fn name(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&len, rest) = bytes.split_first()?;
    rest.split_at_checked(usize::from(len))
}

/// The length of a hello from the bytes before it.
pub(crate) fn length(prefix: [u8; 2]) -> Result<usize, &'static str> {
    let len = usize::from(u16::from_le_bytes(prefix));
    if len <= HELLO_BYTES_MAX { Ok(len) } else { Err("the hello is too long") }
}

/// Whether the peer is of this cluster, and says the same about itself as its certificate.
pub(crate) fn check(subject: &Subject, hello: &Hello, ours: &ClusterId) -> Result<(), String> {
    if subject.cluster != *ours {
        return Err(format!("its certificate is of cluster {}, this is cluster {ours}", subject.cluster));
    }
    if hello.cluster != *ours {
        return Err(format!("it says it is of cluster {}, this is cluster {ours}", hello.cluster));
    }
    if hello.node != subject.node {
        return Err(format!("it says it is node {}, but its certificate is that of {}", hello.node, subject.node));
    }
    Ok(())
}

/// Why there was no hello.
pub(crate) enum NoHello {
    Lost(quinn::ConnectionError),
    Wrong(&'static str),
}

pub(crate) async fn send(stream: &mut SendStream, hello: &Hello) -> Result<(), NoHello> {
    stream.write_all(&hello.encode()).await.map_err(|error| match error {
        quinn::WriteError::ConnectionLost(error) => NoHello::Lost(error),
        _ => NoHello::Wrong("it does not want to hear a hello"),
    })
}

pub(crate) async fn receive(stream: &mut RecvStream) -> Result<Hello, NoHello> {
    let failed = |error| match error {
        quinn::ReadExactError::ReadError(quinn::ReadError::ConnectionLost(error)) => NoHello::Lost(error),
        _ => NoHello::Wrong("the hello ends early"),
    };
    let mut prefix = [0; 2];
    stream.read_exact(&mut prefix).await.map_err(failed)?;
    let mut body = vec![0; length(prefix).map_err(NoHello::Wrong)?];
    stream.read_exact(&mut body).await.map_err(failed)?;
    decode(&body).map_err(NoHello::Wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hello_comes_back_as_it_was_and_nothing_else_is_one() {
        let name = "n".repeat(weir_model::limits::NAME_BYTES_MAX);
        let hello = Hello {
            kind: Kind::Data,
            incarnation: Incarnation(u64::MAX - 1),
            cluster: ClusterId::new(&name).unwrap(),
            node: NodeId::new("worker-1").unwrap(),
        };
        let bytes = hello.encode();
        assert_eq!(length([bytes[0], bytes[1]]), Ok(bytes.len() - 2));
        assert_eq!(decode(&bytes[2..]), Ok(hello));
        for cut in 2..bytes.len() {
            assert!(decode(&bytes[2..cut]).is_err());
        }
        assert!(decode(&[&bytes[2..], &[0]].concat()).is_err());
        assert!(length([255, 255]).is_err());
    }
}
