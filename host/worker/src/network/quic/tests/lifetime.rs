//! Connections are shared while they are used, and a closed execution leaves nothing behind.

use weir_channel::Frame;

use super::rig::{Cluster, Lost, attempt, row, until};
use crate::Network;

#[test]
fn executions_share_connections_and_the_last_one_closes_them() {
    let cluster = Cluster::new();
    let (a, b) = (cluster.node("a"), cluster.node("b"));
    let lost = Lost::default();
    let attempts = [1, 2, 3].map(attempt);
    let mut receiving = attempts.each_ref().map(|execution| b.expect(execution, &a, &[0], &lost));
    let mut sending = attempts.each_ref().map(|execution| a.connect(execution, &b.address, &[0], &lost));
    for (sending, receiving) in sending.iter_mut().zip(&mut receiving) {
        sending.senders[0].send(row(1, 10));
        assert_eq!(receiving.next(), (0, row(1, 10)));
    }
    assert_eq!((a.connections(), b.connections()), (2, 2));

    for gone in [0, 1] {
        b.network.close(&attempts[gone]);
        a.network.close(&attempts[gone]);
        sending[2].senders[0].send(row(2, 10));
        assert_eq!(receiving[2].next(), (0, row(2, 10)));
        assert_eq!((a.connections(), b.connections()), (2, 2));
    }
    sending[2].senders[0].send(Frame::End);
    assert_eq!(receiving[2].next(), (0, Frame::End));
    a.network.close(&attempts[2]);
    b.network.close(&attempts[2]);
    until("nothing is open", || a.connections() + b.connections() == 0);

    // The way is made again when it is needed.
    let next = attempt(4);
    let mut receiving = b.expect(&next, &a, &[0], &lost);
    let mut sending = a.connect(&next, &b.address, &[0], &lost);
    sending.senders[0].send(row(3, 10));
    assert_eq!(receiving.next(), (0, row(3, 10)));
    assert!(lost.all().iter().all(|lost| lost.reason.contains("it has closed channel")), "{:?}", lost.all());
}

#[test]
fn a_receiver_that_is_behind_reads_on_after_the_sender_has_ended() {
    let cluster = Cluster::new();
    let (a, b) = (cluster.node("a"), cluster.node("b"));
    let lost = Lost::default();
    let mut receiving = b.expect(&attempt(1), &a, &[0], &lost);
    let mut sending = a.connect(&attempt(1), &b.address, &[0], &lost);
    // Less than the stream's window, more than the gate holds.
    (0..10).for_each(|number| sending.senders[0].send_beyond_bound(row(number, 10_000)));
    sending.senders[0].send_beyond_bound(Frame::End);
    let ready = sending.readies[0].clone();
    drop(sending);
    until("the sender is done", || ready.strong_count() == 0);
    (0..10).for_each(|number| assert_eq!(receiving.next(), (0, row(number, 10_000))));
    assert_eq!(receiving.next(), (0, Frame::End));
    assert_eq!(lost.all(), []);
}

#[test]
fn a_closed_execution_lets_go_of_everything_also_of_what_is_full_or_was_never_opened() {
    let cluster = Cluster::new();
    let (a, b) = (cluster.node("a"), cluster.node("b"));
    let lost = Lost::default();
    let receiving = b.expect(&attempt(1), &a, &[0, 1, 2], &lost);
    let mut sending = a.connect(&attempt(1), &b.address, &[0, 1], &lost);
    (0..100).for_each(|number| sending.senders[0].send_beyond_bound(row(number, 100_000)));
    until("the receiver is full", || receiving.gate.queued_bytes() > 0);

    // One that is still connecting.
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let nobody = weir_protocol::WorkerAddress { worker: "b".into(), address: silent.local_addr().unwrap().to_string() };
    let connecting = a.connect(&attempt(2), &nobody, &[0], &lost);

    [1, 2].map(attempt).iter().for_each(|execution| a.network.close(execution));
    b.network.close(&attempt(1));
    let held: Vec<_> = [&sending.readies, &connecting.readies, &receiving.rooms].into_iter().flatten().cloned().collect();
    drop((sending, connecting, receiving));
    until("all gates and wakers are gone", || held.iter().all(|held| held.strong_count() == 0));
    until("nothing is open", || a.connections() + b.connections() == 0);
    assert_eq!(a.network.counts(&attempt(1)), (0, 0));
    a.network.close(&attempt(1));
}

#[test]
fn a_data_plane_that_is_dropped_lets_go_of_everything() {
    let cluster = Cluster::new();
    let (a, b) = (cluster.node("a"), cluster.node("b"));
    let lost = Lost::default();
    let mut receiving = b.expect(&attempt(1), &a, &[0], &lost);
    let network = crate::QuicNetwork::new(&a.endpoint, a.runtime.handle());
    let ready = std::sync::Arc::new(crate::RoomWake::default());
    let mut gate = weir_task::Gate::new(ready.clone());
    let mut sender = gate.connect(std::sync::Arc::new(weir_task::Signal::default()), weir_channel::Limits::default());
    let outbound = crate::Outbound { channel: 0, to: b.address.clone(), gate, ready: ready.clone() };
    network.connect(&attempt(1), vec![outbound], std::sync::Arc::new(|lost| panic!("{lost:?}"))).unwrap();
    sender.send(row(1, 10));
    assert_eq!(receiving.next(), (0, row(1, 10)));

    drop((network, sender));
    until("the writer is gone", || std::sync::Arc::strong_count(&ready) == 1);
    assert_eq!(lost.first().worker, "a");
}
