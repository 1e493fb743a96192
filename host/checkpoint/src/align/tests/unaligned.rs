//! The acceptance scenarios of checkpoints that overtake rows.

use super::*;

fn unaligned(checkpoint: u64) -> Barrier {
    Barrier { unaligned: true, ..barrier(checkpoint) }
}

fn taken(checkpoint: u64) -> Action {
    Action::Snapshot(unaligned(checkpoint))
}

fn capture(channel: usize, checkpoint: u64) -> Action {
    Action::Capture { channel, barrier: unaligned(checkpoint) }
}

fn done(checkpoint: u64) -> Action {
    Action::CaptureDone(CheckpointId(checkpoint))
}

/// A marker comes into a channel.
fn comes(aligner: &mut Aligner, channel: usize, barrier: Barrier) -> Vec<Action> {
    tell(aligner, Event::Arrived { channel, barrier })
}

fn unalign(aligner: &mut Aligner, checkpoint: u64) -> Vec<Action> {
    tell(aligner, Event::Unalign(CheckpointId(checkpoint)))
}

#[test]
fn s02_a_timeout_before_the_first_marker_makes_the_first_marker_overtake() {
    let mut aligner = aligner(2);
    assert_eq!(unalign(&mut aligner, 1), []);
    assert_eq!(comes(&mut aligner, 1, barrier(1)), [taken(1), capture(0, 1), capture(1, 1)]);
    assert_eq!(comes(&mut aligner, 0, barrier(1)), [done(1)]);
    assert_eq!(marker(&mut aligner, 0, 1), [], "reading up to the markers is no part of it");
    assert_eq!(marker(&mut aligner, 1, 1), []);
    assert_eq!(blocked(&aligner), []);
}

#[test]
fn a_timeout_after_some_markers_opens_their_channels_and_captures_the_others() {
    let mut aligner = aligner(3);
    marker(&mut aligner, 0, 1);
    assert_eq!(comes(&mut aligner, 1, barrier(1)), [], "it is still to be read");
    assert_eq!(unalign(&mut aligner, 1), [taken(1), Action::Unblock(0), capture(1, 1), capture(2, 1)]);
    assert_eq!(marker(&mut aligner, 1, 1), []);
    assert_eq!(aligner.pending(), Some(CheckpointId(1)));
    assert_eq!(comes(&mut aligner, 2, barrier(1)), [done(1)]);
    assert_eq!(unalign(&mut aligner, 1), [], "it was sent on as an unaligned one");
}

#[test]
fn a_timeout_after_the_snapshot_announces_the_marker_that_was_sent() {
    let mut aligner = aligner(1);
    marker(&mut aligner, 0, 1);
    assert_eq!(unalign(&mut aligner, 1), [Action::Announce(unaligned(1))]);
    assert_eq!(unalign(&mut aligner, 1), [], "once");
    let mut source = super::aligner(0);
    trigger(&mut source, 1);
    assert_eq!(unalign(&mut source, 1), [Action::Announce(unaligned(1))]);
}

#[test]
fn s03_an_announcement_takes_the_snapshot_and_the_marker_later_completes_it() {
    let mut aligner = aligner(2);
    let announced = Event::Announced { channel: 0, barrier: unaligned(1) };
    assert_eq!(tell(&mut aligner, announced), [taken(1), capture(0, 1), capture(1, 1)]);
    assert_eq!(tell(&mut aligner, announced), [], "said again");
    assert_eq!(comes(&mut aligner, 1, unaligned(1)), []);
    assert_eq!(comes(&mut aligner, 0, unaligned(1)), [done(1)], "only the marker says that all rows before it have come");
    assert_eq!(tell(&mut aligner, announced), [], "said too late");
}

#[test]
fn s04_an_announcement_for_the_next_checkpoint_overtakes_what_another_channel_still_sends_for_the_last() {
    let mut aligner = aligner(2);
    comes(&mut aligner, 0, barrier(1));
    marker(&mut aligner, 0, 1);
    let announced = Event::Announced { channel: 0, barrier: unaligned(2) };
    let expected = [overtaken(1, 2), Action::Unblock(0), taken(2), capture(0, 2), capture(1, 2)];
    assert_eq!(tell(&mut aligner, announced), expected);
    assert_eq!(comes(&mut aligner, 1, barrier(1)), [], "rows after it still belong to 2");
    assert_eq!(marker(&mut aligner, 1, 1), []);
    assert_eq!(comes(&mut aligner, 0, unaligned(2)), []);
    assert_eq!(comes(&mut aligner, 1, unaligned(2)), [done(2)]);
}

#[test]
fn s05_the_checkpoint_after_one_that_timed_out_is_aligned_again() {
    let mut aligner = aligner(2);
    marker(&mut aligner, 0, 1);
    unalign(&mut aligner, 1);
    assert_eq!(comes(&mut aligner, 1, barrier(1)), [done(1)]);
    marker(&mut aligner, 1, 1);
    assert_eq!(comes(&mut aligner, 0, barrier(2)), []);
    assert_eq!(marker(&mut aligner, 0, 2), [Action::Block(0)]);
    assert_eq!(marker(&mut aligner, 1, 2), [snapshot(2), Action::Unblock(0)]);
}

#[test]
fn s88a_a_stop_overtakes_as_any_checkpoint_does() {
    let mut aligner = aligner(2);
    let stop = Barrier { kind: BarrierKind::Stop, ..barrier(1) };
    let overtaking = Barrier { unaligned: true, ..stop };
    assert_eq!(comes(&mut aligner, 0, stop), []);
    let capture = |channel| Action::Capture { channel, barrier: overtaking };
    assert_eq!(unalign(&mut aligner, 1), [Action::Snapshot(overtaking), capture(0), capture(1)]);
    assert_eq!(comes(&mut aligner, 1, stop), [done(1)]);
}

#[test]
fn at_least_once_never_overtakes() {
    let mut aligner = Aligner::new(ATTEMPT, 2, Mode::AtLeastOnce);
    assert_eq!(comes(&mut aligner, 0, unaligned(1)), []);
    assert_eq!(unalign(&mut aligner, 1), []);
    assert_eq!(tell(&mut aligner, Event::Barrier { channel: 0, barrier: unaligned(1) }), []);
    assert_eq!(tell(&mut aligner, Event::Barrier { channel: 1, barrier: unaligned(1) }), [snapshot(1)]);
}

#[test]
fn s07_a_newer_marker_declines_a_checkpoint_whose_rows_are_still_coming() {
    let mut aligner = aligner(2);
    comes(&mut aligner, 0, unaligned(1));
    marker(&mut aligner, 0, 1);
    assert_eq!(comes(&mut aligner, 0, unaligned(2)), [overtaken(1, 2), taken(2), capture(0, 2), capture(1, 2)]);
    assert_eq!(comes(&mut aligner, 1, unaligned(1)), [], "a late marker of the overtaken one");
    assert_eq!(comes(&mut aligner, 1, unaligned(2)), [done(2)]);
    comes(&mut aligner, 0, unaligned(3));
    assert_eq!(comes(&mut aligner, 1, barrier(4)), [overtaken(3, 4)], "the marker of 3 will not come here any more");
    assert_eq!(aligner.pending(), None);
}

#[test]
fn s08_s09_what_comes_of_a_dead_unaligned_checkpoint_does_nothing() {
    let mut aligner = aligner(2);
    abort(&mut aligner, 1);
    assert_eq!(comes(&mut aligner, 0, unaligned(1)), []);
    assert_eq!(tell(&mut aligner, Event::Announced { channel: 1, barrier: unaligned(1) }), []);
    assert_eq!(unalign(&mut aligner, 1), []);
    assert_eq!(marker(&mut aligner, 0, 1), []);
    assert_eq!((aligner.pending(), blocked(&aligner)), (None, vec![]));
}

#[test]
fn s10_an_abort_ends_a_capture() {
    let mut aligner = aligner(2);
    comes(&mut aligner, 0, unaligned(1));
    assert_eq!(abort(&mut aligner, 1), [aborted(1)]);
    assert_eq!(aligner.pending(), None);
    assert_eq!(comes(&mut aligner, 1, unaligned(1)), []);
}

#[test]
fn s11_an_end_that_has_come_counts_as_a_marker() {
    let mut aligner = aligner(3);
    tell(&mut aligner, Event::EndArrived { channel: 2 });
    assert_eq!(comes(&mut aligner, 0, unaligned(1)), [taken(1), capture(0, 1), capture(1, 1), capture(2, 1)]);
    assert_eq!(tell(&mut aligner, Event::EndArrived { channel: 1 }), [done(1)], "also after the snapshot");
    end(&mut aligner, 2);
    end(&mut aligner, 1);
    assert_eq!(comes(&mut aligner, 0, unaligned(2)), [taken(2), capture(0, 2), done(2)], "ended channels hold nothing");
}

#[test]
fn s11_where_only_ends_wait_the_trigger_of_an_unaligned_checkpoint_is_enough() {
    let mut aligner = aligner(2);
    tell(&mut aligner, Event::EndArrived { channel: 0 });
    assert_eq!(trigger(&mut aligner, 1), []);
    assert_eq!(tell(&mut aligner, Event::EndArrived { channel: 1 }), [], "an aligned one waits until they are read");
    assert_eq!(unalign(&mut aligner, 1), [taken(1), capture(0, 1), capture(1, 1), done(1)]);
    end(&mut aligner, 0);
    assert_eq!(end(&mut aligner, 1), []);
    let last = [taken(2), done(2)];
    assert_eq!(tell(&mut aligner, Event::Trigger(unaligned(2))), last);
}

#[test]
fn s12_nothing_of_another_attempt_overtakes_or_ends_a_capture() {
    let mut aligner = aligner(2);
    let stale = Barrier { attempt: Attempt(2), ..unaligned(1) };
    assert_eq!(comes(&mut aligner, 0, stale), []);
    assert_eq!(tell(&mut aligner, Event::Announced { channel: 0, barrier: stale }), []);
    comes(&mut aligner, 0, unaligned(1));
    assert_eq!(comes(&mut aligner, 1, stale), []);
    assert_eq!(comes(&mut aligner, 1, unaligned(1)), [done(1)]);
}
