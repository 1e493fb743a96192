//! A process that was killed, and replaced by another one.

use std::time::Duration;

use tokio::time::Instant;

use super::net::{Net, Weather};
use super::rig::{Cluster, control, data};
use crate::{CloseCause, TransportError};

const CALM: Weather = Weather { lost_of_1000: 0, delay: Duration::from_millis(1), jitter: Duration::ZERO };

#[tokio::test(start_paused = true)]
async fn a_restarted_peer_is_noticed_by_the_first_packet_it_gets() {
    let cluster = Cluster::new();
    let net = Net::new(1, CALM);
    let (a, killed) = (net.endpoint(cluster.identity("a"), 1), net.endpoint(cluster.identity("b"), 2));
    let (ours, _theirs) = control(&a, &killed).await;
    let (ours_data, _theirs_data) = data(&a, &killed, "b").await;
    let before = ours.peer().incarnation;
    let b = net.endpoint(cluster.identity("b"), 2);

    let started = Instant::now();
    let (sender, _receiver) = ours.split();
    sender.try_send(vec![1].into()).unwrap();
    let error = sender.closed().await;
    assert!(matches!(error, TransportError::Closed { cause: CloseCause::Restarted, .. }), "{error}");
    assert!(started.elapsed() < Duration::from_millis(50), "a round trip: {:?}", started.elapsed());
    // A silent connection notices by its keep-alive.
    let error = ours_data.closed().await;
    assert!(matches!(error, TransportError::Closed { cause: CloseCause::Restarted, .. }), "{error}");
    assert!(started.elapsed() < Duration::from_millis(2_500), "the second keep-alive at the latest: {:?}", started.elapsed());

    let (again, _theirs) = control(&a, &b).await;
    assert_ne!(again.peer().incarnation, before);
}

#[tokio::test(start_paused = true)]
async fn a_killed_peer_that_does_not_come_back_is_noticed_by_its_silence() {
    let cluster = Cluster::new();
    let net = Net::new(1, CALM);
    let (a, killed) = (net.endpoint(cluster.identity("a"), 1), net.endpoint(cluster.identity("b"), 2));
    let (ours, _theirs) = data(&a, &killed, "b").await;
    let started = Instant::now();
    net.cut();
    let error = ours.closed().await;
    assert!(matches!(error, TransportError::Closed { cause: CloseCause::Silent, .. }), "{error}");
    assert!((Duration::from_secs(4)..Duration::from_secs(7)).contains(&started.elapsed()), "{:?}", started.elapsed());
}
