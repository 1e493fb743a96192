//! Announcements reach the receiving task past full channels.

use weir_channel::Frame;
use weir_model::{Attempt, Barrier, BarrierKind, CheckpointId};
use weir_protocol::{Execution, PeerMessage, encode};
use weir_transport::{Control, Expected, NodeId, TransportError};

use super::rig::{Cluster, Lost, Node, Receiving, attempt, row, until};

const FRAMES: usize = 100;
const VALUE_BYTES: usize = 100_000;

fn barrier(checkpoint: u64) -> Barrier {
    Barrier { attempt: Attempt(1), checkpoint: CheckpointId(checkpoint), kind: BarrierKind::Checkpoint, unaligned: true }
}

/// Bytes that wait when all frames before the marker have come, though nobody reads.
fn all_bytes() -> usize {
    FRAMES * row(0, VALUE_BYTES).size_bytes()
}

fn read_all(receiving: &mut Receiving) {
    (0..FRAMES).for_each(|number| assert_eq!(receiving.next(), (0, row(number, VALUE_BYTES))));
    assert_eq!(receiving.next(), (0, Frame::Barrier(barrier(3))));
    assert_eq!(receiving.next(), (0, row(FRAMES, VALUE_BYTES)));
}

#[test]
fn an_announcement_overtakes_a_full_channel_which_is_then_read_up_to_the_marker() {
    let cluster = Cluster::new();
    let (a, b) = (cluster.node("a"), cluster.node("b"));
    let lost = Lost::default();
    let mut receiving = b.expect(&attempt(1), &a, &[7], &lost);
    let mut sending = a.connect(&attempt(1), &b.address, &[7], &lost);
    let sender = &mut sending.senders[0];

    (0..FRAMES).for_each(|number| sender.send_beyond_bound(row(number, VALUE_BYTES)));
    until("the receiving gate is full", || receiving.gate.queued_bytes() > 0);
    sender.send_beyond_bound(Frame::Barrier(barrier(3)));
    assert!(receiving.gate.queued_bytes() < all_bytes() / 2, "what is not announced waits for room");
    sender.announce(barrier(3));
    until("everything before the marker has come", || receiving.gate.queued_bytes() == all_bytes());

    sender.send(row(FRAMES, VALUE_BYTES));
    read_all(&mut receiving);
    assert_eq!(lost.all(), []);
}

/// A connection for messages as any worker may make it.
fn control(from: &Node, to: &Node) -> Control {
    let expected = NodeId::new(&to.address.worker).unwrap();
    from.runtime.block_on(from.endpoint.connect_control(&to.address.address, Expected::Worker(&expected))).unwrap()
}

#[test]
fn an_announcement_may_come_before_its_channel_is_open_and_one_of_nothing_does_no_harm() {
    let cluster = Cluster::new();
    let (a, b, c) = (cluster.node("a"), cluster.node("b"), cluster.node("c"));
    let lost = Lost::default();
    let mut receiving = b.expect(&attempt(1), &a, &[7], &lost);
    let say = |control: Control, from: &Node, messages: &[(Execution, u32)]| {
        let (sender, receiver) = control.split();
        for (execution, channel) in messages {
            let announce = PeerMessage::Announce { execution: execution.clone(), channel: *channel, checkpoint: CheckpointId(3) };
            from.runtime.block_on(sender.send(encode(&announce, &[]).into())).unwrap();
        }
        from.runtime.block_on(sender.send(b"what".to_vec().into())).unwrap();
        let closed = from.runtime.block_on(sender.closed());
        assert!(matches!(closed, TransportError::Closed { .. }) && closed.to_string().contains("cannot read"), "{closed}");
        drop(receiver);
    };
    let other = Execution { job: "other".into(), attempt: Attempt(1) };
    say(control(&c, &b), &c, &[(attempt(1), 7)]);
    say(control(&a, &b), &a, &[(attempt(2), 7), (other, 7), (attempt(1), 8)]);

    let mut sending = a.connect(&attempt(1), &b.address, &[7], &lost);
    let sender = &mut sending.senders[0];
    (0..FRAMES).for_each(|number| sender.send_beyond_bound(row(number, VALUE_BYTES)));
    until("the receiving gate is full", || receiving.gate.queued_bytes() > 0);
    assert!(receiving.gate.queued_bytes() < all_bytes() / 2, "none of these lifts the bound");

    say(control(&a, &b), &a, &[(attempt(1), 7)]);
    until("everything before the marker has come", || receiving.gate.queued_bytes() == all_bytes());
    sender.send_beyond_bound(Frame::Barrier(barrier(3)));
    sender.send(row(FRAMES, VALUE_BYTES));
    read_all(&mut receiving);

    // Another execution, whose announcement comes first.
    let mut receiving = b.expect(&attempt(2), &a, &[7], &lost);
    say(control(&a, &b), &a, &[(attempt(2), 7)]);
    let mut sending = a.connect(&attempt(2), &b.address, &[7], &lost);
    (0..FRAMES).for_each(|number| sending.senders[0].send_beyond_bound(row(number, VALUE_BYTES)));
    until("everything has come", || receiving.gate.queued_bytes() == all_bytes());
    assert_eq!(receiving.next(), (0, row(0, VALUE_BYTES)));
    assert_eq!(lost.all(), []);
}
