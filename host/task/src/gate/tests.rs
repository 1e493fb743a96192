use super::*;
use crate::signal::Signal;
use weir_model::Batch;

fn signal() -> Arc<Signal> {
    Arc::default()
}

fn rows(n: i64) -> Frame {
    let mut batch = Batch::default();
    batch.push(n, b"", b"x");
    Frame::Rows(Arc::new(batch))
}

fn gate(channels: usize) -> (Gate, Vec<Sender>) {
    let mut gate = Gate::new(signal());
    let limits = Limits { frames_max: 2, bytes_max: 1 << 20 };
    let senders = (0..channels).map(|_| gate.connect(signal(), limits)).collect();
    (gate, senders)
}

#[test]
fn frames_keep_their_order_through_a_full_channel() {
    let (mut gate, mut senders) = gate(1);
    (0..5).for_each(|n| senders[0].send(rows(n)));
    senders[0].send(Frame::Watermark(9));
    assert!(!senders[0].is_flushed(), "two frames fit");
    let mut seen = Vec::new();
    while let Some((_, frame)) = gate.poll() {
        seen.push(frame);
        senders[0].flush();
    }
    assert_eq!(seen, [rows(0), rows(1), rows(2), rows(3), rows(4), Frame::Watermark(9)]);
}

#[test]
fn a_full_or_blocked_channel_does_not_stop_the_others() {
    let (mut gate, mut senders) = gate(2);
    (0..3).for_each(|n| senders[0].send(rows(n)));
    senders[1].send(rows(7));
    gate.set_blocked(0, true);
    assert_eq!(gate.poll(), Some((1, rows(7))));
    assert_eq!(gate.poll(), None);
    gate.set_blocked(0, false);
    assert_eq!(gate.poll(), Some((0, rows(0))));
}

#[test]
fn channels_are_read_in_turn() {
    let (mut gate, mut senders) = gate(2);
    for sender in &mut senders {
        sender.send(rows(0));
        sender.send(rows(1));
    }
    let order: Vec<usize> = std::iter::from_fn(|| gate.poll().map(|(channel, _)| channel)).collect();
    assert_eq!(order, [0, 1, 0, 1]);
}

#[test]
fn what_a_task_still_holds_goes_beyond_the_bound_before_its_barrier() {
    let (mut gate, mut senders) = gate(1);
    (0..4).for_each(|n| senders[0].send(rows(n)));
    senders[0].send_beyond_bound(Frame::End);
    assert!(senders[0].is_flushed());
    assert_eq!(std::iter::from_fn(|| gate.poll()).count(), 5);
}
