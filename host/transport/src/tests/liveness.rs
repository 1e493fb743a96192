//! Being watched.

use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

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
async fn a_port_that_nobody_has_is_closed_and_one_that_does_not_answer_is_not() {
    let socket = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap().to_string();
    assert!(!liveness::is_port_closed(&address).await);
    drop(socket);
    assert!(liveness::is_port_closed(&address).await);
    assert!(!liveness::is_port_closed("nowhere.invalid:1").await);
}
