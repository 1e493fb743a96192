//! Being watched.

use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use weir_model::limits::{LIVENESS_CONNECTIONS_MAX, NODE_CONNECTIONS_MAX};

use super::rig::{Cluster, node, soon};
use crate::liveness::{self, Sign, Watcher};
use crate::{Identity, TransportError};

async fn watcher(identity: &Arc<Identity>) -> (Watcher, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (liveness::serve(listener, identity).unwrap(), address)
}

#[tokio::test]
async fn coming_and_going_is_noticed_with_name_and_incarnation() {
    let cluster = Cluster::new();
    let (mut watcher, address) = watcher(&cluster.identity("coordinator")).await;
    let identity = cluster.identity("worker-1");
    let watched = soon("connect", liveness::connect(&address, &identity, Some(&node("coordinator")))).await.unwrap();
    assert_eq!(watched.peer().node, node("coordinator"));
    match soon("sign", watcher.next()).await {
        Some(Sign::Came(peer)) => assert_eq!((peer.node, peer.incarnation), (node("worker-1"), identity.incarnation())),
        other => panic!("{other:?}"),
    }
    drop(watched);
    assert_eq!(soon("sign", watcher.next()).await, Some(Sign::Gone(node("worker-1"), identity.incarnation())));
}

#[tokio::test]
async fn the_watched_notice_when_nobody_watches_any_more() {
    let cluster = Cluster::new();
    let (mut watcher, address) = watcher(&cluster.identity("coordinator")).await;
    let mut watched = soon("connect", liveness::connect(&address, &cluster.identity("w"), None)).await.unwrap();
    soon("sign", watcher.next()).await.unwrap();
    drop(watcher);
    soon("notice", watched.closed()).await;
}

#[tokio::test]
async fn strangers_and_wrong_names_are_refused() {
    let (cluster, other) = (Cluster::new(), Cluster::new());
    let (mut watcher, address) = watcher(&cluster.identity("coordinator")).await;
    let error = soon("refusal", liveness::connect(&address, &other.identity("w"), None)).await.unwrap_err();
    assert!(matches!(error, TransportError::Refused { .. }), "{error}");
    let error = soon("refusal", liveness::connect(&address, &cluster.identity("w"), Some(&node("c")))).await.unwrap_err();
    assert!(matches!(error, TransportError::WrongNode { .. }), "{error}");

    let mut stranger = TcpStream::connect(&address).await.unwrap();
    stranger.write_all(&[0x16; 300]).await.unwrap();
    let mut answer = Vec::new();
    // Closed or reset, but not a byte.
    let _ = soon("close", stranger.read_to_end(&mut answer)).await;
    assert!(answer.is_empty());

    let identity = cluster.identity("w");
    let _watched = soon("connect", liveness::connect(&address, &identity, None)).await.unwrap();
    match soon("sign", watcher.next()).await {
        Some(Sign::Came(peer)) => assert_eq!(peer.incarnation, identity.incarnation(), "nobody came before"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn s134_strangers_that_wait_are_in_no_nodes_way() {
    let cluster = Cluster::new();
    let (mut watcher, address) = watcher(&cluster.identity("coordinator")).await;
    let mut silent = Vec::new();
    // More than the nodes' places, and each waits for as long as it may.
    for _ in 0..LIVENESS_CONNECTIONS_MAX + 500 {
        silent.push(TcpStream::connect(&address).await.unwrap());
    }
    let identity = cluster.identity("w");
    let _watched = soon("connect", liveness::connect(&address, &identity, None)).await.unwrap();
    match soon("sign", watcher.next()).await {
        Some(Sign::Came(peer)) => assert_eq!(peer.incarnation, identity.incarnation()),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn s134_one_node_takes_no_place_of_another() {
    let cluster = Cluster::new();
    let (mut watcher, address) = watcher(&cluster.identity("coordinator")).await;
    let greedy = cluster.identity("greedy");
    let mut held = Vec::new();
    for _ in 0..NODE_CONNECTIONS_MAX {
        held.push(soon("connect", liveness::connect(&address, &greedy, None)).await.unwrap());
        soon("sign", watcher.next()).await.unwrap();
    }
    let mut more = soon("connect", liveness::connect(&address, &greedy, None)).await.unwrap();
    soon("refusal", more.closed()).await;
    let _other = soon("connect", liveness::connect(&address, &cluster.identity("w"), None)).await.unwrap();
    match soon("sign", watcher.next()).await {
        Some(Sign::Came(peer)) => assert_eq!(peer.node, node("w"), "the one too many never came"),
        other => panic!("{other:?}"),
    }
    drop(held.pop());
    assert!(matches!(soon("sign", watcher.next()).await, Some(Sign::Gone(..))));
    let _again = soon("connect", liveness::connect(&address, &greedy, None)).await.unwrap();
    assert!(matches!(soon("sign", watcher.next()).await, Some(Sign::Came(_))), "its place is free");
}

#[tokio::test]
async fn a_port_that_nobody_has_is_closed_and_one_that_does_not_answer_is_not() {
    let socket = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap().to_string();
    assert!(!liveness::is_port_closed(&address).await);
    drop(socket);
    assert!(liveness::is_port_closed(&address).await);
    assert!(!liveness::is_port_closed("nowhere.invalid:1").await);
}
