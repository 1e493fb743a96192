//! Whatever goes wrong with a worker is told, once, to every execution that shares channels with it.

use weir_channel::Frame;
use weir_protocol::WorkerAddress;

use super::rig::{Cluster, Lost, attempt, row, until};
use crate::{Network, PeerLost};

fn assert_lost(lost: &PeerLost, worker: &str, reason: &str) {
    assert!(lost.worker == worker && lost.reason.contains(reason), "{lost:?}");
}

#[test]
fn a_worker_that_is_killed_is_lost_once_to_senders_and_receivers_also_where_they_are_idle_or_full() {
    let cluster = Cluster::new();
    let (a, b, c) = (cluster.node("a"), cluster.node("b"), cluster.node("c"));
    let [to_b, from_b, ended, of_b] = [(); 4].map(|()| Lost::default());

    // a -> b: idle and full channels; b -> c: one that is full, its receiver does not read.
    let mut at_b = b.expect(&attempt(1), &a, &[0, 1, 2, 3], &of_b);
    let mut sending = a.connect(&attempt(1), &b.address, &[0, 1, 2, 3], &to_b);
    (0..100).for_each(|number| sending.senders[0].send_beyond_bound(row(number, 100_000)));
    let mut at_c = c.expect(&attempt(1), &b, &[4, 5], &from_b);
    let mut of_c = b.connect(&attempt(1), &c.address, &[4, 5], &of_b);
    (0..100).for_each(|number| of_c.senders[0].send_beyond_bound(row(number, 100_000)));

    // An execution whose channels have all ended loses nothing.
    let mut at_b_ended = b.expect(&attempt(2), &a, &[0], &of_b);
    let mut sending_ended = a.connect(&attempt(2), &b.address, &[0], &ended);
    sending_ended.senders[0].send(Frame::End);
    assert_eq!(at_b_ended.next(), (0, Frame::End));
    let ready = sending_ended.readies[0].clone();
    drop(sending_ended);
    until("its writer is done", || ready.strong_count() == 0);

    assert_eq!(at_b.next().0, 0);
    // Channels overtake each other: what is small is sent when what is large has come.
    assert_eq!(at_c.next().0, 0);
    of_c.senders[1].send(Frame::Watermark(1));
    b.kill();
    assert_lost(&to_b.first(), "b", "no sign of life");
    assert_lost(&from_b.first(), "b", "no sign of life");
    until("all readers know", || c.connections() == 0);
    assert_eq!((to_b.all().len(), from_b.all().len(), ended.all().len()), (1, 1, 0));
}

#[test]
fn a_worker_that_stops_is_lost_at_once_with_the_reason_it_gave() {
    let cluster = Cluster::new();
    let (a, b) = (cluster.node("a"), cluster.node("b"));
    let [to_b, from_a] = [(); 2].map(|()| Lost::default());
    let mut receiving = b.expect(&attempt(1), &a, &[0, 1], &from_a);
    let mut sending = a.connect(&attempt(1), &b.address, &[0, 1], &to_b);
    (0..100).for_each(|number| sending.senders[1].send_beyond_bound(row(number, 100_000)));
    assert_eq!(receiving.next().0, 1);

    b.network.close(&attempt(1));
    let lost = to_b.first();
    assert_lost(&lost, "b", "it has closed channel");
    assert_eq!(from_a.all(), [], "it has closed the execution itself");

    // The next attempt, with a worker whose endpoint is closed under it.
    let [to_b, from_a] = [(); 2].map(|()| Lost::default());
    a.network.close(&attempt(1));
    let mut receiving = b.expect(&attempt(2), &a, &[0], &from_a);
    let mut sending = a.connect(&attempt(2), &b.address, &[0], &to_b);
    (0..100).for_each(|number| sending.senders[0].send_beyond_bound(row(number, 100_000)));
    until("the receiver is full", || receiving.gate.queued_bytes() > 0);
    a.network.close(&attempt(2));
    assert_lost(&from_a.first(), "a", "the execution is closed");
    assert_eq!(to_b.all(), []);
    receiving.gate.poll();
    assert_eq!(from_a.all().len(), 1);
}

#[test]
fn nobody_at_the_address_or_somebody_else_is_a_loss() {
    let cluster = Cluster::new();
    let (a, b) = (cluster.node("a"), cluster.node("b"));
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let nobody = WorkerAddress { worker: "b".into(), address: silent.local_addr().unwrap().to_string() };
    let (one, two, wrong) = (Lost::default(), Lost::default(), Lost::default());
    let _one = a.connect(&attempt(1), &nobody, &[0, 1], &one);
    let _two = a.connect(&attempt(2), &nobody, &[0], &two);
    let _wrong = a.connect(&attempt(3), &WorkerAddress { worker: "c".into(), ..b.address.clone() }, &[0], &wrong);
    assert_lost(&wrong.first(), "c", "expected node c");
    assert_lost(&one.first(), "b", "no answer");
    assert_lost(&two.first(), "b", "no answer");
    assert_eq!(one.all().len(), 1);
}

#[test]
fn what_is_of_an_older_attempt_or_from_another_worker_is_refused() {
    let cluster = Cluster::new();
    let (a, b, c) = (cluster.node("a"), cluster.node("b"), cluster.node("c"));
    let [at_b, of_old, of_other, of_stranger, good] = [(); 5].map(|()| Lost::default());
    let mut receiving = b.expect(&attempt(2), &a, &[0, 1], &at_b);
    let mut refused = [
        a.connect(&attempt(1), &b.address, &[0], &of_old),
        a.connect(&attempt(2), &b.address, &[5], &of_other),
        c.connect(&attempt(2), &b.address, &[1], &of_stranger),
    ];
    refused.iter_mut().for_each(|sending| sending.senders[0].send(row(99, 10)));
    assert_lost(&of_old.first(), "b", "it does not expect channel 0 of attempt 1 of job job");
    assert_lost(&of_other.first(), "b", "it does not expect channel 5 of attempt 2 of job job");
    assert_lost(&of_stranger.first(), "b", "it does not expect channel 1 of attempt 2 of job job");

    a.network.close(&attempt(2));
    let mut sending = a.connect(&attempt(2), &b.address, &[0, 1], &good);
    sending.senders.iter_mut().for_each(|sender| sender.send(row(1, 10)));
    let came = [receiving.next(), receiving.next()].map(|(_, frame)| frame);
    assert_eq!(came, [row(1, 10), row(1, 10)], "and nothing else");
    assert_eq!(receiving.gate.poll(), None);

    // A channel has one sender.
    let second = Lost::default();
    let twin = cluster.node("a");
    let _second = twin.connect(&attempt(2), &b.address, &[0], &second);
    assert_lost(&second.first(), "b", "it does not expect channel 0");
    assert_eq!((at_b.all(), good.all()), (Vec::new(), Vec::new()));
}
