//! s14: any interleaving of markers, data, ends, triggers and aborts keeps the one sentence.
//!
//! A miniature task reads rows from the channels that are not blocked; its state is how many it has read from each. Channels
//! and the coordinator's messages are queues whose interleaving is arbitrary.

use std::collections::{BTreeSet, VecDeque};

use proptest::prelude::*;
use weir_model::BarrierKind;

use super::{ATTEMPT, barrier, blocked};
use crate::align::{Action, Aligner, Event, Mode};
use weir_model::{Attempt, Barrier, CheckpointId};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Frame {
    Row,
    Marker(Barrier),
    End,
}

/// What one sender does before, and about, one checkpoint.
#[derive(Clone, Debug)]
struct Round {
    rows: usize,
    /// It heard of the abort first, so it sends no marker.
    skips: bool,
    /// A marker of an older attempt is among the rows.
    stale: bool,
}

#[derive(Clone, Debug)]
struct Case {
    mode: Mode,
    /// For each channel: its rounds, and whether an end follows. Rounds that are missing were not sent any more.
    channels: Vec<Vec<Round>>,
    /// For each checkpoint: whether the coordinator aborts it although no sender skipped it, and how many of its messages later.
    checkpoints: Vec<(bool, usize)>,
    order: Vec<u16>,
}

fn round() -> impl Strategy<Value = Round> {
    (0..4usize, prop::bool::weighted(0.15), prop::bool::weighted(0.1)).prop_map(|(rows, skips, stale)| Round {
        rows,
        skips,
        stale,
    })
}

fn case() -> impl Strategy<Value = Case> {
    (1..7usize).prop_flat_map(|checkpoints| {
        let channel = prop::collection::vec(round(), 0..=checkpoints + 2);
        (
            prop_oneof![Just(Mode::ExactlyOnce), Just(Mode::AtLeastOnce)],
            prop::collection::vec(channel, 0..5),
            prop::collection::vec((prop::bool::weighted(0.25), 0..4usize), checkpoints),
            prop::collection::vec(any::<u16>(), 0..120),
        )
            .prop_map(|(mode, channels, checkpoints, order)| Case { mode, channels, checkpoints, order })
    })
}

impl Case {
    fn barrier(id: u64) -> Barrier {
        let kind = if id.is_multiple_of(3) { BarrierKind::Stop } else { BarrierKind::Checkpoint };
        Barrier { kind, ..barrier(id) }
    }

    /// A channel shorter than the number of checkpoints ends early; a longer one stays open.
    fn frames(&self, channel: &[Round]) -> VecDeque<Frame> {
        let mut frames = VecDeque::new();
        for (id, round) in (1..).zip(channel.iter().take(self.checkpoints.len())) {
            frames.extend(std::iter::repeat_n(Frame::Row, round.rows));
            if round.stale {
                frames.push_back(Frame::Marker(Barrier { attempt: Attempt(ATTEMPT.0 - 1), ..Case::barrier(id) }));
            }
            if !round.skips {
                frames.push_back(Frame::Marker(Case::barrier(id)));
            }
        }
        frames.push_back(Frame::Row);
        if channel.len() <= self.checkpoints.len() {
            frames.push_back(Frame::End);
        }
        frames
    }

    fn is_aborted(&self, id: u64) -> bool {
        let index = id as usize - 1;
        self.checkpoints[index].0 || self.channels.iter().any(|channel| channel.get(index).is_some_and(|round| round.skips))
    }

    /// The coordinator's messages, in its order.
    fn control(&self) -> VecDeque<Event> {
        let mut messages: Vec<(usize, Event)> = Vec::new();
        for (index, (_, delay)) in self.checkpoints.iter().enumerate() {
            let id = index as u64 + 1;
            messages.push((2 * index, Event::Trigger(Case::barrier(id))));
            if self.is_aborted(id) {
                messages.push((2 * (index + delay) + 1, Event::Abort(CheckpointId(id))));
            }
        }
        messages.sort_by_key(|(time, _)| *time);
        messages.into_iter().map(|(_, event)| event).collect()
    }
}

struct MiniTask {
    aligner: Aligner,
    mode: Mode,
    channels: Vec<VecDeque<Frame>>,
    control: VecDeque<Event>,
    /// Rows read from each channel: the task's state.
    read: Vec<usize>,
    blocked: BTreeSet<usize>,
    aborts_told: BTreeSet<CheckpointId>,
    snapshots: Vec<(CheckpointId, Vec<usize>)>,
    declined: Vec<CheckpointId>,
}

impl MiniTask {
    fn new(case: &Case) -> MiniTask {
        MiniTask {
            aligner: Aligner::new(ATTEMPT, case.channels.len(), case.mode),
            mode: case.mode,
            channels: case.channels.iter().map(|channel| case.frames(channel)).collect(),
            control: case.control(),
            read: vec![0; case.channels.len()],
            blocked: BTreeSet::new(),
            aborts_told: BTreeSet::new(),
            snapshots: Vec::new(),
            declined: Vec::new(),
        }
    }

    /// What can happen next: a frame of a channel, or (the number of channels) a message of the coordinator.
    fn possible(&self) -> Vec<usize> {
        let readable =
            (0..self.channels.len()).filter(|index| !self.channels[*index].is_empty() && !self.blocked.contains(index));
        readable.chain((!self.control.is_empty()).then_some(self.channels.len())).collect()
    }

    fn step(&mut self, choice: usize) {
        let event = if choice == self.channels.len() {
            self.control.pop_front().unwrap()
        } else {
            match self.channels[choice].pop_front().unwrap() {
                Frame::Row => {
                    self.read[choice] += 1;
                    return;
                }
                Frame::Marker(barrier) => Event::Barrier { channel: choice, barrier },
                Frame::End => Event::End { channel: choice },
            }
        };
        if let Event::Abort(checkpoint) = event {
            self.aborts_told.insert(checkpoint);
        }
        let mut actions = Vec::new();
        self.aligner.handle(event, &mut actions);
        for action in actions {
            self.carry_out(&action);
        }
        self.check();
    }

    fn carry_out(&mut self, action: &Action) {
        match *action {
            Action::Block(channel) => assert!(self.blocked.insert(channel), "channel {channel} blocked twice"),
            Action::Unblock(channel) => assert!(self.blocked.remove(&channel), "channel {channel} opened twice"),
            Action::Snapshot(barrier) => {
                let id = barrier.checkpoint;
                assert_eq!(barrier, Case::barrier(id.0), "the barrier is passed on as it came");
                assert!(!self.aborts_told.contains(&id), "checkpoint {id} was aborted");
                assert!(!self.declined.contains(&id), "checkpoint {id} was declined");
                assert!(self.snapshots.last().is_none_or(|(last, _)| *last < id), "checkpoint {id} out of order");
                self.snapshots.push((id, self.read.clone()));
            }
            Action::Decline { checkpoint, .. } => self.declined.push(checkpoint),
            Action::Aborted(checkpoint) => assert!(self.aborts_told.contains(&checkpoint)),
            Action::Capture { .. } | Action::CaptureDone(_) | Action::Announce(_) => panic!("no checkpoint is unaligned"),
        }
    }

    fn check(&self) {
        assert_eq!(self.blocked.iter().copied().collect::<Vec<_>>(), blocked(&self.aligner));
        if self.mode == Mode::AtLeastOnce {
            assert!(self.blocked.is_empty());
        }
        let is_settled = |id| self.aborts_told.contains(&id) || self.snapshots.iter().any(|(snapshot, _)| *snapshot == id);
        match self.aligner.pending() {
            Some(id) => assert!(!is_settled(id), "checkpoint {id} pends and is settled"),
            None => assert!(self.blocked.is_empty(), "blocked for nothing"),
        }
    }
}

/// Rows before the marker of a checkpoint; all of them if the channel ends without.
fn rows_before(frames: &VecDeque<Frame>, id: CheckpointId) -> usize {
    let marker = Frame::Marker(Case::barrier(id.0));
    frames.iter().take_while(|frame| **frame != marker).filter(|frame| **frame == Frame::Row).count()
}

fn holds(case: &Case) {
    let mut task = MiniTask::new(case);
    let sent = task.channels.clone();
    let mut order = case.order.iter();
    loop {
        let possible = task.possible();
        if possible.is_empty() {
            break;
        }
        let choice = order.next().map_or(0, |choice| *choice as usize % possible.len());
        task.step(possible[choice]);
    }
    assert!(task.channels.iter().all(VecDeque::is_empty), "a channel stays blocked for ever");
    assert_eq!(task.aligner.pending(), None, "a checkpoint pends for ever");
    for (id, state) in &task.snapshots {
        for (channel, frames) in sent.iter().enumerate() {
            let expected = rows_before(frames, *id);
            match case.mode {
                Mode::ExactlyOnce => assert_eq!(state[channel], expected, "checkpoint {id}, channel {channel}"),
                Mode::AtLeastOnce => assert!(state[channel] >= expected, "checkpoint {id}, channel {channel}"),
            }
        }
    }
    for id in (1..=case.checkpoints.len() as u64).filter(|id| !case.is_aborted(*id)) {
        let taken = task.snapshots.iter().any(|(snapshot, _)| snapshot.0 == id);
        let may_decline = case.mode == Mode::AtLeastOnce;
        assert!(taken || may_decline && task.declined.contains(&CheckpointId(id)), "checkpoint {id} was forgotten");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn s14_any_interleaving_snapshots_exactly_the_rows_before_the_barrier(case in case()) {
        holds(&case);
    }
}
