//! Who is let in, who is not, and what each side learns.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::pki_types::PrivateKeyDer;
use weir_model::limits::{ACCEPTED_QUEUE_MAX, HANDSHAKES_MAX, NODE_CONNECTIONS_MAX};

use super::rig::{Cluster, address, bind, control, data, node, of_version, soon};
use crate::pki::{self, Validity};
use crate::quic::tls::PROTOCOL_VERSION;
use crate::{Endpoint, Identity, Incoming, Settings, TransportError};
use crate::{Expected, Role};

#[tokio::test]
async fn members_meet_and_know_each_other() {
    let cluster = Cluster::new();
    let (a, b) = (cluster.endpoint("a"), cluster.endpoint("b"));
    let (ours, theirs) = soon("control", control(&a, &b)).await;
    assert_eq!((&ours.peer().node, &theirs.peer().node), (&node("b"), &node("a")));
    let (ours, theirs) = soon("data", data(&a, &b, "b")).await;
    assert_eq!((&ours.peer().node, &theirs.peer().node), (&node("b"), &node("a")));
    assert_eq!(theirs.peer().address, a.local_addr().unwrap());
    assert_eq!((b.metrics().accepted, b.metrics().connections, b.metrics().refused), (2, 2, 0));
    drop((ours, theirs));
}

#[tokio::test]
async fn a_node_with_another_name_than_expected_is_not_used() {
    let cluster = Cluster::new();
    let (a, b) = (cluster.endpoint("a"), cluster.endpoint("b"));
    let error = soon("answer", a.connect_data(&address(&b), &node("c"))).await.unwrap_err();
    assert!(matches!(&error, TransportError::WrongNode { found, .. } if *found == node("b")), "{error}");
    let error = soon("answer", a.connect_control(&address(&b), Expected::Worker(&node("c")))).await.unwrap_err();
    assert!(error.to_string().contains("expected node c"), "{error}");
    while b.metrics().refused < 2 {
        tokio::task::yield_now().await;
    }
    assert_eq!(b.metrics().accepted, 0);
}

#[tokio::test]
async fn another_protocol_version_is_named() {
    let cluster = Cluster::new();
    let (old, new) = (cluster.endpoint("a"), of_version(cluster.identity("b"), PROTOCOL_VERSION + 1));
    let error = soon("answer", old.connect_control(&address(&new), Expected::Anyone)).await.unwrap_err();
    assert!(matches!(error, TransportError::Version { ours: PROTOCOL_VERSION, .. }), "{error}");
    assert!(error.to_string().contains(&format!("version {PROTOCOL_VERSION}")), "{error}");
    assert_eq!(new.metrics().refused, 1);
}

/// An identity with some parts replaced, as no honest process has it.
fn forged(base: &Identity, cert: &Identity) -> Arc<Identity> {
    let mut identity = copy(base);
    identity.current = Arc::new(base.current.showing(cert.current.shown()));
    Arc::new(identity)
}

fn copy(of: &Identity) -> Identity {
    of.duplicate()
}

/// A certificate for node `a` of the cluster that does not count now. Made with the cluster's own authority.
fn at_another_time(cluster: &Cluster, validity: Validity) -> Arc<Identity> {
    let folder = tempfile::TempDir::new().unwrap();
    pki::add_node(&cluster.ca(), folder.path(), "a", Role::Worker, &[], &validity).unwrap();
    let chain = crate::pki::certificate::read_all(&folder.path().join("node.pem")).unwrap();
    let key = std::fs::read(folder.path().join("node-key.pem")).unwrap();
    let key = <PrivateKeyDer<'_> as rustls::pki_types::pem::PemObject>::from_pem_slice(&key).unwrap();
    let shown = rustls::sign::CertifiedKey::from_der(chain, key, &crate::crypto::provider()).unwrap();
    let mut identity = copy(&cluster.identity("a"));
    identity.current = Arc::new(identity.current.showing(Arc::new(shown)));
    Arc::new(identity)
}

#[tokio::test]
async fn certificates_of_other_times_are_refused_on_both_sides() {
    let cluster = Cluster::new();
    let day = Duration::from_secs(86_400);
    let now = SystemTime::now();
    let server = cluster.endpoint("b");
    for (validity, words) in [
        (Validity { from: now - 3 * day, until: now - day }, "expired"),
        (Validity { from: now + day, until: now + 3 * day }, "not valid yet"),
    ] {
        let wrong = bind(at_another_time(&cluster, validity), "127.0.0.1:0".parse().unwrap());
        let error = soon("answer", wrong.connect_control(&address(&server), Expected::Anyone)).await.unwrap_err();
        assert!(matches!(error, TransportError::Refused { .. }), "{error}");
        assert!(error.to_string().contains(words) && error.to_string().contains("clocks"), "{error}");

        let error = soon("answer", server.connect_control(&address(&wrong), Expected::Anyone)).await.unwrap_err();
        assert!(matches!(error, TransportError::Untrusted { .. }), "{error}");
        assert!(error.to_string().contains(words) && error.to_string().contains("clocks"), "{error}");
    }
    while server.metrics().refused < 2 {
        tokio::task::yield_now().await;
    }
    assert_eq!(server.metrics().accepted, 0);
}

#[tokio::test]
async fn knowing_the_cluster_is_not_enough() {
    let cluster = Cluster::new();
    let server = cluster.endpoint("b");
    let honest = cluster.identity("a");
    // Certificates of another authority, for a node of the same name.
    let foreign = forged(&honest, &Cluster::new().identity("a"));
    let endpoint = bind(foreign, "127.0.0.1:0".parse().unwrap());
    let error = soon("answer", endpoint.connect_control(&address(&server), Expected::Anyone)).await.unwrap_err();
    assert!(matches!(error, TransportError::Refused { .. }), "{error}");
    let error = soon("answer", server.connect_control(&address(&endpoint), Expected::Anyone)).await.unwrap_err();
    assert!(matches!(error, TransportError::Untrusted { .. }), "{error}");
    while server.metrics().refused < 1 {
        tokio::task::yield_now().await;
    }
    assert_eq!((server.metrics().accepted, server.metrics().connections), (0, 0));
}

#[tokio::test]
async fn another_cluster_gets_no_answer_and_the_error_says_what_it_may_be() {
    let (cluster, other) = (Cluster::new(), Cluster::new());
    let server = cluster.endpoint("b");
    let settings = Settings { connect_timeout: Duration::from_millis(300), ..super::rig::settings() };
    let handle = tokio::runtime::Handle::current();
    let stranger = crate::Endpoint::bind(other.identity("a"), "127.0.0.1:0".parse().unwrap(), settings, &handle).unwrap();
    let error = stranger.connect_control(&address(&server), Expected::Anyone).await.unwrap_err();
    assert!(matches!(error, TransportError::NoAnswer { .. }), "{error}");
    assert!(error.to_string().contains(other.identity("a").cluster().as_str()), "{error}");
    assert_eq!((server.metrics().accepted, server.metrics().refused), (0, 0));
}

#[tokio::test]
async fn closing_is_noticed_at_once_with_the_reason() {
    let cluster = Cluster::new();
    let (a, b) = (cluster.endpoint("a"), cluster.endpoint("b"));
    let (ours, theirs) = soon("data", data(&a, &b, "b")).await;
    ours.close(77, "the job is over");
    let error = soon("close", theirs.closed()).await;
    assert!(matches!(error, TransportError::Closed { cause: crate::CloseCause::Peer(77), .. }), "{error}");
    assert!(error.to_string().contains("the job is over") && error.to_string().contains("a at "), "{error}");

    let (ours, theirs) = soon("control", control(&a, &b)).await;
    drop(ours);
    let (_, mut receiver) = theirs.split();
    soon("close", receiver.recv()).await.unwrap_err();

    let (ours, _theirs) = soon("data", data(&a, &b, "b")).await;
    soon("shutdown", b.close()).await;
    let error = soon("close", ours.closed()).await;
    assert!(error.to_string().contains("the process stops"), "{error}");
}

#[tokio::test]
async fn an_address_that_does_not_exist_is_named() {
    let cluster = Cluster::new();
    let a = cluster.endpoint("a");
    let error = soon("answer", a.connect_control("nowhere.invalid:1", Expected::Anyone)).await.unwrap_err();
    assert!(matches!(error, TransportError::Resolve { .. }) && error.to_string().contains("nowhere.invalid"), "{error}");
    soon("answer", a.connect_control("127.0.0.1:0", Expected::Anyone)).await.unwrap_err();
}

#[tokio::test]
async fn connections_that_nobody_takes_are_bounded_and_further_attempts_get_no_answer() {
    let cluster = Cluster::new();
    let b = cluster.endpoint("b");
    let settings = Settings { connect_timeout: Duration::from_millis(1_500), ..super::rig::settings() };
    let handle = tokio::runtime::Handle::current();
    let bind = |node: usize| {
        Endpoint::bind(cluster.identity(&format!("a{node}")), "127.0.0.1:0".parse().unwrap(), settings, &handle).unwrap()
    };
    // One node may not have so many.
    let nodes: Vec<Endpoint> = (0..(ACCEPTED_QUEUE_MAX + HANDSHAKES_MAX).div_ceil(NODE_CONNECTIONS_MAX) + 1).map(bind).collect();
    let mut connected = Vec::new();
    let refused = loop {
        match nodes[connected.len() / NODE_CONNECTIONS_MAX].connect_control(&address(&b), Expected::Anyone).await {
            Ok(control) => connected.push(control),
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, TransportError::NoAnswer { .. }), "{refused}");
    assert_eq!(connected.len(), ACCEPTED_QUEUE_MAX + HANDSHAKES_MAX);
    assert!(b.metrics().busy > 0);

    assert!(matches!(soon("accept", b.accept()).await, Some(Incoming::Control(_))));
    let a = &nodes[nodes.len() - 1];
    soon("room for one more", async { while a.connect_control(&address(&b), Expected::Anyone).await.is_err() {} }).await;
}

#[tokio::test]
async fn s134_one_node_takes_no_place_of_another() {
    let cluster = Cluster::new();
    let (a, b, c) = (cluster.endpoint("a"), cluster.endpoint("b"), cluster.endpoint("c"));
    let mut held = Vec::new();
    for _ in 0..NODE_CONNECTIONS_MAX {
        let ours = soon("connect", a.connect_control(&address(&b), Expected::Anyone)).await.unwrap();
        held.push((ours, soon("accept", b.accept()).await.unwrap()));
    }
    let error = soon("answer", a.connect_control(&address(&b), Expected::Anyone)).await.unwrap_err();
    assert!(error.to_string().contains("connections already"), "{error}");
    soon("another node", c.connect_control(&address(&b), Expected::Anyone)).await.unwrap();
    drop(held);
    soon("its places are free", async { while a.connect_control(&address(&b), Expected::Anyone).await.is_err() {} }).await;
}
