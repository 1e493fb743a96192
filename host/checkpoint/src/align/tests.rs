//! The acceptance scenarios of barrier handling, and every order of a few events.

mod interleavings;
mod unaligned;

use weir_model::BarrierKind;

use super::*;

const ATTEMPT: Attempt = Attempt(3);

fn barrier(checkpoint: u64) -> Barrier {
    Barrier { attempt: ATTEMPT, checkpoint: CheckpointId(checkpoint), kind: BarrierKind::Checkpoint, unaligned: false }
}

fn aligner(channels: usize) -> Aligner {
    Aligner::new(ATTEMPT, channels, Mode::ExactlyOnce)
}

fn tell(aligner: &mut Aligner, event: Event) -> Vec<Action> {
    let mut actions = Vec::new();
    aligner.handle(event, &mut actions);
    actions
}

fn marker(aligner: &mut Aligner, channel: usize, checkpoint: u64) -> Vec<Action> {
    tell(aligner, Event::Barrier { channel, barrier: barrier(checkpoint) })
}

fn trigger(aligner: &mut Aligner, checkpoint: u64) -> Vec<Action> {
    tell(aligner, Event::Trigger(barrier(checkpoint)))
}

fn abort(aligner: &mut Aligner, checkpoint: u64) -> Vec<Action> {
    tell(aligner, Event::Abort(CheckpointId(checkpoint)))
}

fn end(aligner: &mut Aligner, channel: usize) -> Vec<Action> {
    tell(aligner, Event::End { channel })
}

fn snapshot(checkpoint: u64) -> Action {
    Action::Snapshot(barrier(checkpoint))
}

fn overtaken(checkpoint: u64, by: u64) -> Action {
    Action::Decline { checkpoint: CheckpointId(checkpoint), reason: DeclineReason::Subsumed { by: CheckpointId(by) } }
}

fn aborted(checkpoint: u64) -> Action {
    Action::Aborted(CheckpointId(checkpoint))
}

fn blocked(aligner: &Aligner) -> Vec<usize> {
    (0..aligner.channels.len()).filter(|channel| aligner.is_blocked(*channel)).collect()
}

#[test]
fn s01_each_of_123_barriers_on_123_channels_triggers_once_and_in_order() {
    const COUNT: usize = 123;
    for mode in [Mode::ExactlyOnce, Mode::AtLeastOnce] {
        let mut aligner = Aligner::new(ATTEMPT, COUNT, mode);
        let mut snapshots = Vec::new();
        for id in 1..=COUNT as u64 {
            let kind = if id % 2 == 0 { BarrierKind::Stop } else { BarrierKind::Checkpoint };
            let barrier = Barrier { kind, ..barrier(id) };
            for turn in 0..COUNT {
                // 50 and 123 have no common factor, so each round visits all channels, each in another order.
                let channel = (turn * 50 + id as usize * 7) % COUNT;
                let actions = tell(&mut aligner, Event::Barrier { channel, barrier });
                let is_last = turn == COUNT - 1;
                assert_eq!(actions.contains(&Action::Snapshot(barrier)), is_last, "id {id}, turn {turn}");
                let expected = if is_last || mode == Mode::AtLeastOnce { 0 } else { turn + 1 };
                assert_eq!(blocked(&aligner).len(), expected, "id {id}, turn {turn}");
                snapshots.extend(actions.into_iter().filter(|action| matches!(action, Action::Snapshot(_))));
            }
        }
        let ids = |action: &Action| if let Action::Snapshot(barrier) = action { barrier.checkpoint.0 } else { 0 };
        assert_eq!(snapshots.iter().map(ids).collect::<Vec<_>>(), (1..=COUNT as u64).collect::<Vec<_>>());
    }
}

#[test]
fn blocked_channels_open_after_the_snapshot_and_only_those() {
    let mut aligner = aligner(3);
    assert_eq!(marker(&mut aligner, 1, 5), [Action::Block(1)]);
    assert_eq!(marker(&mut aligner, 0, 5), [Action::Block(0)]);
    assert_eq!(aligner.pending(), Some(CheckpointId(5)));
    assert_eq!(marker(&mut aligner, 2, 5), [snapshot(5), Action::Unblock(0), Action::Unblock(1)]);
    assert_eq!(aligner.pending(), None);
}

#[test]
fn a_single_channel_is_never_blocked() {
    let mut aligner = aligner(1);
    for id in 1..5 {
        assert_eq!(marker(&mut aligner, 0, id), [snapshot(id)]);
    }
}

#[test]
fn s07_newer_barrier_declines_the_older_and_completes() {
    let mut aligner = aligner(3);
    marker(&mut aligner, 0, 1);
    assert_eq!(marker(&mut aligner, 1, 2), [overtaken(1, 2), Action::Unblock(0), Action::Block(1)]);
    assert_eq!(marker(&mut aligner, 2, 1), [], "a late marker of the overtaken one");
    assert_eq!(blocked(&aligner), [1]);
    assert_eq!(marker(&mut aligner, 2, 2), [Action::Block(2)]);
    assert_eq!(marker(&mut aligner, 0, 2), [snapshot(2), Action::Unblock(1), Action::Unblock(2)]);
    assert_eq!(trigger(&mut aligner, 1), [], "the overtaken one is not taken later");
}

#[test]
fn s08_late_marker_of_a_dead_id_leaves_its_channel_open() {
    let mut aligner = aligner(2);
    marker(&mut aligner, 0, 1);
    marker(&mut aligner, 1, 1);
    marker(&mut aligner, 0, 3);
    abort(&mut aligner, 3);
    for dead in [0, 1, 2, 3] {
        assert_eq!(marker(&mut aligner, 1, dead), [], "id {dead}");
    }
    assert_eq!(blocked(&aligner), []);
    assert_eq!(marker(&mut aligner, 0, 4), [Action::Block(0)]);
}

#[test]
fn s09_markers_after_an_early_abort_are_ignored() {
    let mut aligner = aligner(2);
    assert_eq!(abort(&mut aligner, 7), [aborted(7)]);
    assert_eq!(abort(&mut aligner, 7), [], "an abort is acted on once");
    assert_eq!(trigger(&mut aligner, 7), []);
    assert_eq!(marker(&mut aligner, 0, 7), []);
    assert_eq!(marker(&mut aligner, 1, 7), []);
    assert_eq!(blocked(&aligner), []);
    marker(&mut aligner, 0, 8);
    assert_eq!(marker(&mut aligner, 1, 8), [snapshot(8), Action::Unblock(0)]);
}

#[test]
fn s10_abort_opens_blocked_channels_at_once() {
    let mut aligner = aligner(3);
    marker(&mut aligner, 2, 4);
    marker(&mut aligner, 0, 4);
    assert_eq!(abort(&mut aligner, 4), [aborted(4), Action::Unblock(0), Action::Unblock(2)]);
    assert_eq!(blocked(&aligner), []);
    assert_eq!(marker(&mut aligner, 1, 4), []);
}

#[test]
fn s11_end_of_a_channel_as_the_last_event_completes() {
    let mut aligner = aligner(3);
    marker(&mut aligner, 0, 1);
    assert_eq!(end(&mut aligner, 1), []);
    assert_eq!(end(&mut aligner, 2), [snapshot(1), Action::Unblock(0)]);
    assert_eq!(marker(&mut aligner, 0, 2), [snapshot(2)], "ended channels are not waited for");
    assert_eq!(end(&mut aligner, 0), []);
    assert_eq!(trigger(&mut aligner, 3), [snapshot(3)]);
    assert_eq!(end(&mut aligner, 0), [], "an end counts once");
}

#[test]
fn s12_barriers_of_another_attempt_are_ignored() {
    let mut aligner = aligner(2);
    for attempt in [Attempt(2), Attempt(4)] {
        let stale = Barrier { attempt, ..barrier(1) };
        assert_eq!(tell(&mut aligner, Event::Barrier { channel: 0, barrier: stale }), []);
        assert_eq!(tell(&mut aligner, Event::Trigger(stale)), []);
    }
    assert_eq!((aligner.pending(), blocked(&aligner)), (None, vec![]));
    marker(&mut aligner, 0, 1);
    assert_eq!(marker(&mut aligner, 1, 1), [snapshot(1), Action::Unblock(0)]);
    end(&mut aligner, 0);
    assert_eq!(end(&mut aligner, 1), [], "no trigger of another attempt was remembered");
}

#[test]
fn a_source_snapshots_on_trigger_once() {
    let mut aligner = aligner(0);
    assert_eq!(trigger(&mut aligner, 1), [snapshot(1)]);
    assert_eq!(trigger(&mut aligner, 1), []);
    assert_eq!(abort(&mut aligner, 2), [aborted(2)]);
    assert_eq!(trigger(&mut aligner, 2), []);
    assert_eq!(trigger(&mut aligner, 3), [snapshot(3)]);
    assert_eq!(abort(&mut aligner, 3), [], "too late, it was taken");
}

#[test]
fn abort_of_a_newer_id_leaves_an_older_one_alive() {
    let mut aligner = aligner(2);
    trigger(&mut aligner, 1);
    marker(&mut aligner, 0, 1);
    assert_eq!(abort(&mut aligner, 2), [aborted(2)]);
    assert_eq!(marker(&mut aligner, 1, 1), [snapshot(1), Action::Unblock(0)]);
    assert_eq!(marker(&mut aligner, 1, 2), [], "the newer one stays dead");
}

#[test]
fn remembered_triggers_are_all_answered_when_the_input_ends() {
    let mut aligner = aligner(2);
    for id in [1, 2, 3] {
        assert_eq!(trigger(&mut aligner, id), []);
    }
    abort(&mut aligner, 2);
    end(&mut aligner, 1);
    assert_eq!(end(&mut aligner, 0), [snapshot(1), snapshot(3)]);
}

#[test]
fn at_least_once_waits_for_the_last_marker_without_blocking() {
    let mut aligner = Aligner::new(ATTEMPT, 3, Mode::AtLeastOnce);
    assert_eq!(marker(&mut aligner, 0, 1), []);
    assert_eq!(marker(&mut aligner, 0, 1), [], "a repeated marker does not count for another channel");
    assert_eq!(marker(&mut aligner, 1, 1), []);
    assert_eq!(end(&mut aligner, 0), [], "nor does an end behind the marker");
    assert_eq!(marker(&mut aligner, 2, 1), [snapshot(1)]);
    marker(&mut aligner, 1, 2);
    assert_eq!(marker(&mut aligner, 1, 3), [overtaken(2, 3)]);
    assert_eq!(abort(&mut aligner, 3), [aborted(3)]);
    assert_eq!(marker(&mut aligner, 2, 3), []);
}

#[test]
fn memory_of_aborted_ids_is_bounded_and_what_it_forgets_is_declined() {
    let mut aligner = aligner(2);
    trigger(&mut aligner, 1);
    marker(&mut aligner, 0, 2);
    trigger(&mut aligner, 3);
    let newest = 10 + ABORTED_MAX as u64;
    for id in 10..newest {
        assert_eq!(abort(&mut aligner, id), [aborted(id)]);
    }
    assert_eq!(blocked(&aligner), [0], "older ones wait patiently");
    assert_eq!(abort(&mut aligner, newest), [aborted(newest), overtaken(2, 10), overtaken(3, 10), Action::Unblock(0)]);
    assert_eq!(aligner.aborted.len(), ABORTED_MAX);
    for dead in [2, 3, 10, 11, newest] {
        assert_eq!(marker(&mut aligner, 1, dead), []);
    }
    marker(&mut aligner, 0, newest + 1);
    assert_eq!(marker(&mut aligner, 1, newest + 1), [snapshot(newest + 1), Action::Unblock(0)]);
    assert!(aligner.aborted.is_empty());
}

/// All orders in which the events of several first-in-first-out queues can be told, blocked channels left alone.
fn explore(aligner: &Aligner, queues: &[Vec<Event>], snapshots: usize, ends: &mut Vec<(usize, Vec<usize>)>) {
    let mut is_done = true;
    for (index, queue) in queues.iter().enumerate() {
        let is_control = index == queues.len() - 1;
        let Some((event, rest)) = queue.split_first() else { continue };
        if !is_control && aligner.is_blocked(index) {
            continue;
        }
        is_done = false;
        let mut aligner = aligner.clone();
        let taken = tell(&mut aligner, *event).iter().filter(|action| matches!(action, Action::Snapshot(_))).count();
        let mut queues = queues.to_vec();
        queues[index] = rest.to_vec();
        explore(&aligner, &queues, snapshots + taken, ends);
    }
    if is_done {
        assert!(queues.iter().all(Vec::is_empty), "stuck with {queues:?}");
        ends.push((snapshots, blocked(aligner)));
    }
}

#[test]
fn marker_trigger_and_end_in_any_order_give_one_snapshot() {
    let shapes = |channel| {
        let marker = Event::Barrier { channel, barrier: barrier(1) };
        [vec![marker], vec![marker, Event::End { channel }], vec![Event::End { channel }]]
    };
    for mode in [Mode::ExactlyOnce, Mode::AtLeastOnce] {
        for (first, second, third) in (0..27).map(|shape| (shape % 3, shape / 3 % 3, shape / 9)) {
            let control = vec![Event::Trigger(barrier(1))];
            let queues = [shapes(0)[first].clone(), shapes(1)[second].clone(), shapes(2)[third].clone(), control];
            let mut ends = Vec::new();
            explore(&Aligner::new(ATTEMPT, 3, mode), &queues, 0, &mut ends);
            assert!(ends.len() >= 24);
            assert!(ends.iter().all(|end| *end == (1, vec![])), "shapes {first} {second} {third}, {mode:?}");
        }
    }
}

#[test]
fn an_abort_at_any_moment_leaves_nothing_blocked_and_at_most_one_snapshot() {
    let queue = |channel| vec![Event::Barrier { channel, barrier: barrier(1) }, Event::End { channel }];
    let control = vec![Event::Trigger(barrier(1)), Event::Abort(CheckpointId(1))];
    let mut ends = Vec::new();
    explore(&aligner(3), &[queue(0), queue(1), queue(2), control], 0, &mut ends);
    assert!(ends.iter().all(|(snapshots, blocked)| *snapshots <= 1 && blocked.is_empty()));
    assert!(ends.iter().any(|(snapshots, _)| *snapshots == 0) && ends.iter().any(|(snapshots, _)| *snapshots == 1));
}
