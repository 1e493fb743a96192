//! s14: any interleaving of markers, announcements, data, ends, triggers, switches and aborts keeps the one sentence.
//!
//! A miniature task reads rows from the channels that are not blocked; its state is how many it has read from each. Frames are
//! first on the wire, then in the queue of their channel; that they have come is told later, that they will come earlier.
//! Which of all this happens next is arbitrary.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::prelude::*;
use weir_model::BarrierKind;

use super::{ATTEMPT, barrier, blocked};
use crate::align::{Action, Aligner, Event, Mode};
use weir_model::{Attempt, Barrier, CheckpointId};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Frame {
    /// With its number in its channel.
    Row(usize),
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
    /// Of a checkpoint that is let go on unaligned: it had sent its marker before.
    was_aligned: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Aligned,
    Unaligned,
    /// Unaligned as soon as the coordinator says so, and it does.
    Switched,
}

#[derive(Clone, Debug)]
struct Checkpoint {
    kind: Kind,
    /// The job stops with it.
    stops: bool,
    /// The coordinator aborts it although no sender skipped it.
    aborted: bool,
    /// How many of the coordinator's messages later it does, or switches.
    delay: usize,
}

#[derive(Clone, Debug)]
struct Case {
    mode: Mode,
    /// The coordinator starts a checkpoint only when the one before is settled.
    one_at_a_time: bool,
    /// For each channel: its rounds, and whether an end follows. Rounds that are missing were not sent any more.
    channels: Vec<Vec<Round>>,
    checkpoints: Vec<Checkpoint>,
    order: Vec<u16>,
}

fn round() -> impl Strategy<Value = Round> {
    let chance = prop::bool::weighted;
    (0..4usize, chance(0.1), chance(0.1), chance(0.5)).prop_map(|(rows, skips, stale, was_aligned)| Round {
        rows,
        skips,
        stale,
        was_aligned,
    })
}

fn checkpoint() -> impl Strategy<Value = Checkpoint> {
    let kind = prop_oneof![2 => Just(Kind::Aligned), 3 => Just(Kind::Unaligned), 3 => Just(Kind::Switched)];
    let chance = prop::bool::weighted;
    (kind, chance(0.2), chance(0.2), 0..4usize).prop_map(|(kind, stops, aborted, delay)| Checkpoint {
        kind,
        stops,
        aborted,
        delay,
    })
}

fn case() -> impl Strategy<Value = Case> {
    (1..7usize).prop_flat_map(|checkpoints| {
        let channel = prop::collection::vec(round(), 0..=checkpoints + 2);
        (
            prop_oneof![4 => Just(Mode::ExactlyOnce), 1 => Just(Mode::AtLeastOnce)],
            any::<bool>(),
            prop::collection::vec(channel, 0..5),
            prop::collection::vec(checkpoint(), checkpoints),
            prop::collection::vec(any::<u16>(), 0..200),
        )
            .prop_map(|(mode, one_at_a_time, channels, checkpoints, order)| Case {
                mode,
                one_at_a_time,
                channels,
                checkpoints,
                order,
            })
    })
}

impl Case {
    fn of(&self, id: u64) -> &Checkpoint {
        &self.checkpoints[id as usize - 1]
    }

    fn barrier(&self, id: u64) -> Barrier {
        let kind = if self.of(id).stops { BarrierKind::Stop } else { BarrierKind::Checkpoint };
        Barrier { kind, unaligned: self.of(id).kind == Kind::Unaligned, ..barrier(id) }
    }

    /// A channel shorter than the number of checkpoints ends early; a longer one stays open.
    fn frames(&self, channel: &[Round]) -> VecDeque<Frame> {
        let mut frames = VecDeque::new();
        let mut rows = (0..).map(Frame::Row);
        for (id, round) in (1..).zip(channel.iter().take(self.checkpoints.len())) {
            frames.extend(rows.by_ref().take(round.rows));
            let barrier = self.barrier(id);
            if round.stale {
                frames.push_back(Frame::Marker(Barrier { attempt: Attempt(ATTEMPT.0 - 1), ..barrier }));
            }
            if !round.skips {
                let switched = self.of(id).kind == Kind::Switched && !round.was_aligned;
                frames.push_back(Frame::Marker(Barrier { unaligned: barrier.unaligned || switched, ..barrier }));
            }
        }
        frames.extend(rows.by_ref().take(1));
        if channel.len() <= self.checkpoints.len() {
            frames.push_back(Frame::End);
        }
        frames
    }

    fn is_aborted(&self, id: u64) -> bool {
        let index = id as usize - 1;
        self.of(id).aborted || self.channels.iter().any(|channel| channel.get(index).is_some_and(|round| round.skips))
    }

    /// The coordinator's messages, in its order.
    fn control(&self) -> VecDeque<Event> {
        let mut messages: Vec<(usize, Event)> = Vec::new();
        for (index, Checkpoint { kind, delay, .. }) in self.checkpoints.iter().enumerate() {
            let id = index as u64 + 1;
            let delay = if self.one_at_a_time { 0 } else { *delay };
            messages.push((3 * index, Event::Trigger(self.barrier(id))));
            if *kind == Kind::Switched {
                messages.push((3 * (index + delay) + 1, Event::Unalign(CheckpointId(id))));
            }
            if self.is_aborted(id) {
                messages.push((3 * (index + delay) + 2, Event::Abort(CheckpointId(id))));
            }
        }
        messages.sort_by_key(|(time, _)| *time);
        messages.into_iter().map(|(_, event)| event).collect()
    }
}

#[derive(Default)]
struct Channel {
    wire: VecDeque<Frame>,
    queue: VecDeque<Frame>,
    /// The newest marker that came, and the newest that was announced.
    newest: u64,
    announced: u64,
    armed: Option<Barrier>,
    captured: Vec<usize>,
    /// Rows read: the task's state.
    read: usize,
}

/// A snapshot: rows read of each channel, and rows captured.
type Snapshot = (Vec<usize>, Vec<Vec<usize>>);

struct MiniTask<'a> {
    case: &'a Case,
    aligner: Aligner,
    channels: Vec<Channel>,
    arrivals: VecDeque<Event>,
    control: VecDeque<Event>,
    blocked: BTreeSet<usize>,
    aborts_told: BTreeSet<CheckpointId>,
    last_snapshot: Option<CheckpointId>,
    /// The unaligned snapshot whose rows are still coming, with what was read.
    capturing: Option<(CheckpointId, Vec<usize>)>,
    complete: BTreeMap<CheckpointId, Snapshot>,
    declined: BTreeSet<CheckpointId>,
    announced: BTreeSet<CheckpointId>,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Push(usize),
    Read(usize),
    Announce(usize, Barrier),
    Arrival,
    Control,
}

fn ends(frame: &Frame, barrier: &Barrier) -> bool {
    match frame {
        Frame::Marker(marker) => marker.attempt == barrier.attempt && marker.checkpoint >= barrier.checkpoint,
        Frame::End => true,
        Frame::Row(_) => false,
    }
}

impl MiniTask<'_> {
    fn new(case: &Case) -> MiniTask<'_> {
        let channel = |rounds: &Vec<Round>| Channel { wire: case.frames(rounds), ..Channel::default() };
        MiniTask {
            case,
            aligner: Aligner::new(ATTEMPT, case.channels.len(), case.mode),
            channels: case.channels.iter().map(channel).collect(),
            arrivals: VecDeque::new(),
            control: case.control(),
            blocked: BTreeSet::new(),
            aborts_told: BTreeSet::new(),
            last_snapshot: None,
            capturing: None,
            complete: BTreeMap::new(),
            declined: BTreeSet::new(),
            announced: BTreeSet::new(),
        }
    }

    fn is_settled(&self, id: u64) -> bool {
        let id = CheckpointId(id);
        self.complete.contains_key(&id) || self.declined.contains(&id) || self.aborts_told.contains(&id)
    }

    /// Whether the coordinator has started a checkpoint, as far as that depends on the ones before.
    fn may_exist(&self, barrier: &Barrier) -> bool {
        let id = barrier.checkpoint.0;
        !self.case.one_at_a_time || barrier.attempt != ATTEMPT || (1..id).all(|earlier| self.is_settled(earlier))
    }

    fn possible(&self) -> Vec<Step> {
        let mut possible = Vec::new();
        for (index, channel) in self.channels.iter().enumerate() {
            if channel.wire.front().is_some_and(|frame| !matches!(frame, Frame::Marker(barrier) if !self.may_exist(barrier))) {
                possible.push(Step::Push(index));
            }
            if !channel.queue.is_empty() && !self.blocked.contains(&index) {
                possible.push(Step::Read(index));
            }
            // What was sent before it was switched is announced again; what was skipped or is of another attempt never is.
            possible.extend(channel.wire.iter().find_map(|frame| match frame {
                Frame::Marker(barrier) if self.may_announce(channel, barrier) => Some(Step::Announce(index, *barrier)),
                _ => None,
            }));
        }
        possible.extend((!self.arrivals.is_empty()).then_some(Step::Arrival));
        possible.extend(
            self.control
                .front()
                .filter(|event| match event {
                    Event::Trigger(barrier) => self.may_exist(barrier),
                    _ => true,
                })
                .map(|_| Step::Control),
        );
        possible
    }

    fn may_announce(&self, channel: &Channel, barrier: &Barrier) -> bool {
        let kind = self.case.of(barrier.checkpoint.0).kind;
        barrier.attempt == ATTEMPT
            && matches!(kind, Kind::Unaligned | Kind::Switched)
            && barrier.checkpoint.0 > channel.newest.max(channel.announced)
            && self.may_exist(barrier)
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Push(index) => self.push(index),
            Step::Read(index) => match self.channels[index].queue.pop_front().unwrap() {
                Frame::Row(row) => {
                    assert_eq!(self.channels[index].read, row);
                    self.channels[index].read += 1;
                }
                Frame::Marker(barrier) => self.tell(Event::Barrier { channel: index, barrier }),
                Frame::End => self.tell(Event::End { channel: index }),
            },
            Step::Announce(index, barrier) => {
                self.channels[index].announced = barrier.checkpoint.0;
                self.tell(Event::Announced { channel: index, barrier: Barrier { unaligned: true, ..barrier } });
            }
            Step::Arrival => {
                let event = self.arrivals.pop_front().unwrap();
                // What was read already need not be told, and by a gate is not.
                let was_read = match event {
                    Event::Arrived { channel, barrier } => !self.channels[channel].queue.contains(&Frame::Marker(barrier)),
                    Event::EndArrived { channel } => !self.channels[channel].queue.contains(&Frame::End),
                    _ => unreachable!(),
                };
                if !was_read {
                    self.tell(event);
                }
            }
            Step::Control => {
                let event = self.control.pop_front().unwrap();
                if let Event::Abort(checkpoint) = event {
                    self.aborts_told.insert(checkpoint);
                }
                self.tell(event);
            }
        }
        self.check();
    }

    fn push(&mut self, index: usize) {
        let channel = &mut self.channels[index];
        let frame = channel.wire.pop_front().unwrap();
        channel.queue.push_back(frame);
        channel.armed.take_if(|armed| ends(&frame, armed));
        match frame {
            Frame::Row(row) => channel.captured.extend(channel.armed.map(|_| row)),
            Frame::Marker(barrier) => {
                if barrier.attempt == ATTEMPT {
                    channel.newest = barrier.checkpoint.0;
                }
                self.arrivals.push_back(Event::Arrived { channel: index, barrier });
            }
            Frame::End => self.arrivals.push_back(Event::EndArrived { channel: index }),
        }
    }

    fn tell(&mut self, event: Event) {
        let mut actions = Vec::new();
        self.aligner.handle(event, &mut actions);
        for action in actions {
            self.carry_out(&action);
        }
    }

    fn carry_out(&mut self, action: &Action) {
        match *action {
            Action::Block(channel) => assert!(self.blocked.insert(channel), "channel {channel} blocked twice"),
            Action::Unblock(channel) => assert!(self.blocked.remove(&channel), "channel {channel} opened twice"),
            Action::Snapshot(barrier) => self.snapshot(barrier),
            Action::Capture { channel, barrier } => {
                assert_eq!(self.capturing.as_ref().map(|(id, _)| *id), Some(barrier.checkpoint));
                let of = &mut self.channels[channel];
                let before: Vec<&Frame> = of.queue.iter().take_while(|frame| !ends(frame, &barrier)).collect();
                of.armed = (before.len() == of.queue.len()).then_some(barrier);
                let rows = before.into_iter().filter_map(|frame| if let Frame::Row(row) = frame { Some(*row) } else { None });
                let rows: Vec<usize> = rows.collect();
                of.captured = rows;
            }
            Action::CaptureDone(checkpoint) => {
                assert!(self.channels.iter().all(|channel| channel.armed.is_none()), "checkpoint {checkpoint} is not complete");
                let captured = self.channels.iter_mut().map(|channel| std::mem::take(&mut channel.captured)).collect();
                let (id, read) = self.capturing.take().expect("an unaligned snapshot was taken");
                assert_eq!(id, checkpoint);
                self.complete.insert(checkpoint, (read, captured));
            }
            Action::Announce(barrier) => {
                assert!(barrier.unaligned && self.last_snapshot == Some(barrier.checkpoint));
                assert_eq!(self.case.of(barrier.checkpoint.0).kind, Kind::Switched);
                assert!(self.announced.insert(barrier.checkpoint), "said once");
            }
            Action::Decline { checkpoint, .. } => {
                assert!(!self.aborts_told.contains(&checkpoint));
                self.give_up(checkpoint);
                self.declined.insert(checkpoint);
            }
            Action::Aborted(checkpoint) => {
                assert!(self.aborts_told.contains(&checkpoint));
                self.give_up(checkpoint);
            }
        }
    }

    fn snapshot(&mut self, barrier: Barrier) {
        let id = barrier.checkpoint;
        let case = self.case;
        let expected = Barrier { unaligned: barrier.unaligned, ..case.barrier(id.0) };
        assert_eq!(barrier, expected, "the barrier is passed on as it came");
        let may_overtake = case.mode == Mode::ExactlyOnce && matches!(case.of(id.0).kind, Kind::Unaligned | Kind::Switched);
        assert!(may_overtake || !barrier.unaligned, "{barrier:?}");
        assert!(barrier.unaligned || case.of(id.0).kind != Kind::Unaligned || case.mode == Mode::AtLeastOnce);
        assert!(!self.is_settled(id.0), "checkpoint {id} is dead");
        assert!(self.last_snapshot < Some(id), "checkpoint {id} out of order");
        assert_eq!(self.capturing, None, "an unaligned snapshot was not given up");
        self.last_snapshot = Some(id);
        let read = self.channels.iter().map(|channel| channel.read).collect();
        if barrier.unaligned {
            self.capturing = Some((id, read));
        } else {
            let nothing = vec![Vec::new(); self.channels.len()];
            self.complete.insert(id, (read, nothing));
        }
    }

    fn give_up(&mut self, checkpoint: CheckpointId) {
        assert!(!self.complete.contains_key(&checkpoint));
        if self.capturing.take_if(|(id, _)| *id == checkpoint).is_some() {
            for channel in &mut self.channels {
                channel.armed = None;
                channel.captured.clear();
            }
        }
    }

    fn check(&self) {
        assert_eq!(self.blocked.iter().copied().collect::<Vec<_>>(), blocked(&self.aligner));
        if self.case.mode == Mode::AtLeastOnce {
            assert!(self.blocked.is_empty());
        }
        match self.aligner.pending() {
            Some(id) => {
                assert!(!self.is_settled(id.0), "checkpoint {id} pends and is settled");
                assert!(self.capturing.is_none() || self.blocked.is_empty(), "blocked although the snapshot is taken");
            }
            None => {
                assert!(self.blocked.is_empty(), "blocked for nothing");
                assert_eq!(self.capturing, None);
            }
        }
    }
}

/// Rows before the marker of a checkpoint; all of them if the channel ends without.
fn rows_before(frames: &VecDeque<Frame>, barrier: &Barrier) -> usize {
    frames.iter().take_while(|frame| !ends(frame, barrier)).filter(|frame| matches!(frame, Frame::Row(_))).count()
}

fn holds(case: &Case) {
    let mut task = MiniTask::new(case);
    let sent: Vec<VecDeque<Frame>> = task.channels.iter().map(|channel| channel.wire.clone()).collect();
    let mut order = case.order.iter();
    loop {
        let possible = task.possible();
        if possible.is_empty() {
            break;
        }
        let choice = order.next().map_or(0, |choice| *choice as usize % possible.len());
        task.step(possible[choice]);
    }
    let is_worked_off = |channel: &Channel| channel.queue.is_empty() && channel.wire.is_empty();
    assert!(task.channels.iter().all(is_worked_off), "a channel stays blocked for ever");
    assert!(task.control.is_empty() && task.arrivals.is_empty());
    assert_eq!(task.aligner.pending(), None, "a checkpoint pends for ever");
    for (id, (read, captured)) in &task.complete {
        for (channel, frames) in sent.iter().enumerate() {
            let expected = rows_before(frames, &case.barrier(id.0));
            match case.mode {
                Mode::ExactlyOnce => {
                    // What was read, then what was captured: each row before the marker once, in order, and none behind it.
                    let held: Vec<usize> = (0..read[channel]).chain(captured[channel].iter().copied()).collect();
                    assert_eq!(held, (0..expected).collect::<Vec<_>>(), "checkpoint {id}, channel {channel}");
                }
                Mode::AtLeastOnce => assert!(read[channel] >= expected, "checkpoint {id}, channel {channel}"),
            }
        }
    }
    let any_overtakes = case.checkpoints.iter().any(|of| matches!(of.kind, Kind::Unaligned | Kind::Switched));
    if any_overtakes && !case.one_at_a_time {
        // What is overtaken before the task has heard of it is not worth a word: the coordinator has started a newer one.
        return;
    }
    for id in (1..=case.checkpoints.len() as u64).filter(|id| !case.is_aborted(*id)) {
        let id = CheckpointId(id);
        let may_decline = !case.one_at_a_time && case.mode == Mode::AtLeastOnce;
        assert!(task.complete.contains_key(&id) || may_decline && task.declined.contains(&id), "checkpoint {id} was forgotten");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn s14_any_interleaving_snapshots_exactly_the_rows_before_the_barrier(case in case()) {
        holds(&case);
    }
}
