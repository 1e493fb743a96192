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

fn barrier(checkpoint: u64) -> Barrier {
    let (attempt, checkpoint) = (weir_model::Attempt(1), weir_model::CheckpointId(checkpoint));
    Barrier { attempt, checkpoint, kind: weir_model::BarrierKind::Checkpoint, unaligned: true }
}

fn arrivals(gate: &mut Gate) -> Vec<Event> {
    let mut events = Vec::new();
    gate.take_arrivals(&mut events);
    events
}

#[test]
fn markers_and_ends_are_told_once_unless_they_are_read_first() {
    let (mut gate, mut senders) = gate(2);
    senders[0].send(rows(0));
    senders[0].send(Frame::Barrier(barrier(1)));
    senders[1].send(Frame::End);
    let expected = [Event::Arrived { channel: 0, barrier: barrier(1) }, Event::EndArrived { channel: 1 }];
    assert_eq!(arrivals(&mut gate), expected);
    assert_eq!(arrivals(&mut gate), []);
    senders[0].send(Frame::Barrier(barrier(2)));
    while gate.poll().is_some() {}
    assert_eq!(arrivals(&mut gate), []);
}

#[test]
fn a_capture_holds_what_waits_before_the_marker_and_what_comes_until_it_does() {
    let (mut gate, mut senders) = gate(3);
    let stale = Barrier { attempt: weir_model::Attempt(0), ..barrier(1) };
    senders[0].send(rows(0));
    senders[0].send(Frame::Watermark(5));
    senders[0].send(Frame::Barrier(barrier(1)));
    senders[0].send(rows(1));
    senders[1].send(rows(10));
    senders[2].send(rows(20));
    senders[2].send(Frame::End);
    (0..3).for_each(|channel| gate.capture(channel, barrier(1)));
    senders[1].send(Frame::Barrier(stale));
    senders[1].send_beyond_bound(rows(11));
    senders[1].send(Frame::Barrier(barrier(1)));
    senders[1].send_beyond_bound(rows(12));
    let expected = [(0, vec![rows(0)]), (1, vec![rows(10), rows(11)]), (2, vec![rows(20)])];
    assert_eq!(gate.take_captured(), expected);
    assert_eq!(gate.take_captured(), []);
    assert_eq!(std::iter::from_fn(|| gate.poll()).filter(|(_, frame)| frame.rows_len() > 0).count(), 6, "all are still there");
}

#[test]
fn an_announcement_lifts_the_bound_until_the_marker_comes_and_a_stale_one_does_nothing() {
    let (mut gate, mut senders) = gate(1);
    let announcer = gate.announcer();
    (0..4).for_each(|n| senders[0].send(rows(n)));
    assert!(!senders[0].flush(), "two fit");
    announcer.announce(0, barrier(3));
    announcer.announce(0, barrier(3));
    announcer.announce(7, barrier(3));
    assert_eq!(arrivals(&mut gate), [Event::Announced { channel: 0, barrier: barrier(3) }]);
    assert!(senders[0].flush());
    senders[0].send(rows(4));
    senders[0].send(Frame::Barrier(barrier(3)));
    senders[0].send(rows(5));
    assert!(!senders[0].is_flushed(), "bounded again");
    arrivals(&mut gate);
    announcer.announce(0, barrier(3));
    announcer.announce(0, barrier(2));
    assert_eq!(arrivals(&mut gate), []);
    assert!(!senders[0].flush());
}

#[test]
fn what_senders_announce_is_given_once_and_only_the_newest() {
    let (mut gate, mut senders) = gate(1);
    senders[0].announce(barrier(1));
    senders[0].announce(barrier(3));
    senders[0].announce(barrier(2));
    assert_eq!(gate.take_announcements(), [barrier(3)]);
    assert_eq!(gate.take_announcements(), []);
}
