//! One attempt of a job: tasks, queues and the coordinator, moved by random steps.

use std::collections::{BTreeSet, VecDeque};

use weir_model::{Attempt, Barrier, BarrierKind, CheckpointId, TaskId};

use super::Sightings;
use super::channel::{Channel, Frame};
use super::graph::Graph;
use super::random::Random;
use super::store::{State, Store};
use crate::align::{self, Aligner, DeclineReason, Mode};
use crate::machine::{AbortReason, Action, CheckpointMachine, CompletionKind, Config, Event};

/// Far beyond what any run needs.
const STEPS_MAX: usize = 200_000;

/// Something that can happen next.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// A source makes a row or ends.
    Source(usize),
    /// A task reads a frame from one of its inputs.
    Read(usize),
    /// A task processes a row that a restore has brought back.
    Restored(usize),
    /// A frame comes from the wire into its channel.
    Carry(usize),
    /// An announcement comes to its channel.
    Announce(usize),
    /// A task hears what has come into its channels.
    Arrival(usize),
    /// A task hears the coordinator.
    Control(usize),
    /// The coordinator hears a task, or (the number of tasks) what an older attempt's tasks said.
    Answer(usize),
    /// A snapshot becomes durable, or fails to.
    Persist(usize),
    /// The manifest becomes durable, or fails to.
    Manifest(CheckpointId),
    /// Time passes.
    Pass,
}

struct Task {
    aligner: Aligner,
    state: State,
    blocked: BTreeSet<usize>,
    /// In-flight rows of a restore, with their input.
    restored: VecDeque<(usize, u64)>,
    arrivals: VecDeque<align::Event>,
    /// An unaligned snapshot whose rows are still coming.
    capturing: Option<(CheckpointId, State)>,
    /// A stop barrier has passed.
    stopped: bool,
    finished: bool,
}

pub(super) enum Outcome {
    Done(CompletionKind),
    Failed,
}

/// What an attempt starts from.
pub(super) struct Start {
    pub(super) attempt: Attempt,
    pub(super) mode: Mode,
    /// Failures to come; when they are used up, time only passes while nothing else can happen.
    pub(super) faults: u64,
    /// What tasks of the attempt before have said and nobody has heard yet.
    pub(super) leftovers: VecDeque<Event>,
}

pub(super) struct Execution<'a> {
    graph: &'a Graph,
    random: &'a mut Random,
    store: &'a mut Store,
    seen: &'a mut Sightings,
    mode: Mode,
    attempt: Attempt,
    faults: u64,
    now_ms: u64,
    coordinator: CheckpointMachine,
    tasks: Vec<Task>,
    channels: Vec<Channel>,
    to_task: Vec<VecDeque<align::Event>>,
    to_coordinator: Vec<VecDeque<Event>>,
    persisting: Vec<(usize, CheckpointId, State)>,
    writing: Option<CheckpointId>,
    /// Acknowledgements that the coordinator has heard: the files that a discard knows of.
    acknowledged: BTreeSet<(CheckpointId, usize)>,
    /// How likely each kind of step is in this attempt.
    weights: [u64; 11],
    outcome: Option<Outcome>,
}

impl<'a> Execution<'a> {
    /// Restores the newest checkpoint.
    pub(super) fn new(
        graph: &'a Graph,
        random: &'a mut Random,
        store: &'a mut Store,
        seen: &'a mut Sightings,
        start: Start,
    ) -> Execution<'a> {
        let count = graph.tasks();
        let config = Config {
            interval_ms: (!random.percent(15)).then(|| 5 + random.below(60)),
            min_pause_ms: random.below(30),
            timeout_ms: 30 + random.below(600),
            tolerable_failures: if random.percent(30) { 1_000 } else { random.below(4) as u32 },
            max_concurrent: 1 + random.below(3) as u32,
            unaligned_after_ms: match start.mode {
                Mode::AtLeastOnce => None,
                Mode::ExactlyOnce => [None, Some(0), Some(random.below(40))][random.below(3) as usize],
            },
        };
        let restored = store.newest();
        let task = |task: usize| {
            let inputs = graph.inputs[task].len();
            let before = restored.as_ref().map(|states| states[task].clone()).unwrap_or_default();
            let restored = before.in_flight().collect();
            // Channels are new in each attempt, and so are the counts of what went through them.
            let state = State { received: vec![0; inputs], sent: Default::default(), captured: vec![], left: vec![], ..before };
            let aligner = Aligner::new(start.attempt, inputs, start.mode);
            Task {
                aligner,
                state,
                blocked: BTreeSet::new(),
                restored,
                arrivals: VecDeque::new(),
                capturing: None,
                stopped: false,
                finished: false,
            }
        };
        let mut to_coordinator = vec![VecDeque::new(); count];
        to_coordinator.push(start.leftovers);
        Execution {
            mode: start.mode,
            attempt: start.attempt,
            faults: start.faults,
            now_ms: 0,
            coordinator: CheckpointMachine::new(config, start.attempt, count, store.next_id(), 0),
            tasks: (0..count).map(task).collect(),
            channels: graph.edges.iter().map(|edge| Channel::new(edge.input, random.percent(50))).collect(),
            to_task: vec![VecDeque::new(); count],
            to_coordinator,
            persisting: vec![],
            writing: None,
            acknowledged: BTreeSet::new(),
            weights: std::array::from_fn(|_| 1 + random.below(30)),
            outcome: None,
            graph,
            random,
            store,
            seen,
        }
    }

    /// Runs to the end of the attempt. Also returns what its tasks have said that nobody has heard.
    pub(super) fn run(mut self) -> (Outcome, VecDeque<Event>) {
        let stop_at = self.random.percent(25).then(|| self.random.below(400) as usize);
        let ask_at = self.random.below(400) as usize;
        for step in 0..STEPS_MAX {
            if self.outcome.is_some() {
                break;
            }
            if stop_at == Some(step) {
                self.tell(Event::RequestStop);
            }
            if ask_at == step {
                self.tell(Event::RequestCheckpoint);
            }
            let next = self.choose();
            self.carry_out(next);
        }
        let outcome = self.outcome.take().expect("the attempt ends");
        if self.random.percent(50) {
            self.drain();
            assert_eq!(self.store.leaked(), [], "files that nobody will remove");
        }
        let unheard = self.to_coordinator.into_iter().flatten();
        (outcome, unheard.collect())
    }

    fn choose(&mut self) -> Step {
        let mut possible = vec![];
        for (index, task) in self.tasks.iter().enumerate() {
            let is_source = self.graph.inputs[index].is_empty();
            if is_source && !task.stopped && !task.finished {
                possible.push((self.weights[0], Step::Source(index)));
            }
            if !task.restored.is_empty() {
                possible.push((self.weights[7], Step::Restored(index)));
            }
            for (input, edge) in self.graph.inputs[index].iter().enumerate() {
                let channel = &self.channels[*edge];
                if task.restored.is_empty() && !task.blocked.contains(&input) && !channel.queue.is_empty() {
                    possible.push((self.weights[1], Step::Read(*edge)));
                }
                if !channel.wire.is_empty() {
                    possible.push((self.weights[8], Step::Carry(*edge)));
                }
                if !channel.announcements.is_empty() {
                    possible.push((self.weights[9], Step::Announce(*edge)));
                }
            }
            if !task.arrivals.is_empty() {
                possible.push((self.weights[10], Step::Arrival(index)));
            }
        }
        let told = (0..self.to_task.len()).filter(|index| !self.to_task[*index].is_empty());
        possible.extend(told.map(|index| (self.weights[2], Step::Control(index))));
        let answered = (0..self.to_coordinator.len()).filter(|index| !self.to_coordinator[*index].is_empty());
        possible.extend(answered.map(|index| (self.weights[3], Step::Answer(index))));
        possible.extend((0..self.persisting.len()).map(|index| (self.weights[4], Step::Persist(index))));
        possible.extend(self.writing.map(|checkpoint| (self.weights[5], Step::Manifest(checkpoint))));
        if self.faults > 0 || possible.is_empty() {
            possible.push((self.weights[6], Step::Pass));
        }
        let mut chosen = self.random.below(possible.iter().map(|(weight, _)| weight).sum());
        for (weight, step) in &possible {
            if chosen < *weight {
                return *step;
            }
            chosen -= weight;
        }
        unreachable!("the weights add up")
    }

    fn carry_out(&mut self, step: Step) {
        match step {
            Step::Source(task) => self.make_row(task),
            Step::Read(edge) => self.read(edge),
            Step::Restored(task) => {
                if let Some((_, row)) = self.tasks[task].restored.pop_front() {
                    self.seen.restored_rows += 1;
                    self.process(task, row);
                }
            }
            Step::Carry(edge) => {
                let arrival = self.channels[edge].carry();
                self.tasks[self.graph.edges[edge].to].arrivals.extend(arrival);
            }
            Step::Announce(edge) => {
                let announced = self.channels[edge].hear();
                self.seen.announced += usize::from(announced.is_some());
                self.tasks[self.graph.edges[edge].to].arrivals.extend(announced);
            }
            Step::Arrival(task) => {
                if let Some(event) = self.tasks[task].arrivals.pop_front() {
                    self.align(task, event);
                }
            }
            Step::Control(task) => {
                if let Some(event) = self.to_task[task].pop_front() {
                    self.align(task, event);
                }
            }
            Step::Answer(queue) => {
                if let Some(event) = self.to_coordinator[queue].pop_front() {
                    self.seen.stale += usize::from(queue == self.tasks.len());
                    if let Event::Acknowledged { task, attempt, checkpoint } = event
                        && attempt == self.attempt
                    {
                        self.acknowledged.insert((checkpoint, task.0 as usize));
                    }
                    self.tell(event);
                }
            }
            Step::Persist(index) => self.persist(index),
            Step::Manifest(checkpoint) => self.write_manifest(checkpoint),
            Step::Pass => self.pass(),
        }
    }

    fn pass(&mut self) {
        let deadline_ms = self.coordinator.deadline_ms();
        if self.faults > 0 {
            self.now_ms += 1 + self.random.below(20);
        } else {
            self.now_ms = deadline_ms.expect("nothing can happen any more and the job is not done");
        }
        if deadline_ms.is_some_and(|deadline_ms| deadline_ms <= self.now_ms) || self.random.percent(10) {
            self.tell(Event::Tick);
        }
    }

    /// A failure, if there is one left and chance wants it.
    fn fault(&mut self) -> bool {
        let happens = self.faults > 0 && self.random.percent(10);
        self.faults -= u64::from(happens);
        happens
    }

    fn make_row(&mut self, task: usize) {
        let position = self.tasks[task].state.position;
        if position == self.graph.rows[task] {
            self.finish(task);
        } else {
            self.tasks[task].state.position += 1;
            self.process(task, Graph::row(task, position));
        }
    }

    fn process(&mut self, task: usize, row: u64) {
        *self.tasks[task].state.rows.entry(row).or_default() += 1;
        for (edge, row) in self.graph.route(task, row) {
            *self.tasks[task].state.sent.entry(edge).or_default() += 1;
            self.send(edge, Frame::Row(row));
        }
    }

    fn send(&mut self, edge: usize, frame: Frame) {
        let arrival = self.channels[edge].send(frame);
        self.tasks[self.graph.edges[edge].to].arrivals.extend(arrival);
    }

    fn read(&mut self, edge: usize) {
        let (task, channel) = (self.graph.edges[edge].to, self.graph.edges[edge].input);
        let frame = self.channels[edge].queue.pop_front();
        // What is read need not be told any more.
        self.tasks[task].arrivals.retain(|arrival| match (arrival, frame) {
            (align::Event::Arrived { channel: of, barrier }, Some(Frame::Marker(read))) => *of != channel || *barrier != read,
            (align::Event::EndArrived { channel: of }, Some(Frame::End)) => *of != channel,
            _ => true,
        });
        match frame {
            Some(Frame::Row(row)) => {
                self.tasks[task].state.received[channel] += 1;
                self.process(task, row);
            }
            Some(Frame::Marker(barrier)) => self.align(task, align::Event::Barrier { channel, barrier }),
            Some(Frame::End) => {
                self.align(task, align::Event::End { channel });
                if self.tasks[task].aligner.open_channels() == 0 {
                    self.finish(task);
                }
            }
            None => {}
        }
    }

    fn finish(&mut self, task: usize) {
        self.tasks[task].finished = true;
        for edge in &self.graph.outputs[task] {
            self.send(*edge, Frame::End);
        }
        self.to_coordinator[task].push_back(Event::TaskFinished { task: TaskId(task as u32), attempt: self.attempt });
    }

    fn align(&mut self, task: usize, event: align::Event) {
        let mut actions = vec![];
        self.tasks[task].aligner.handle(event, &mut actions);
        for action in actions {
            match action {
                align::Action::Block(channel) => assert!(self.tasks[task].blocked.insert(channel)),
                align::Action::Unblock(channel) => assert!(self.tasks[task].blocked.remove(&channel)),
                align::Action::Snapshot(barrier) => self.snapshot(task, barrier),
                align::Action::Capture { channel, barrier } => {
                    assert!(self.tasks[task].capturing.as_ref().is_some_and(|(id, _)| *id == barrier.checkpoint));
                    self.channels[self.graph.inputs[task][channel]].capture(barrier);
                }
                align::Action::CaptureDone(checkpoint) => self.capture_done(task, checkpoint),
                align::Action::Announce(barrier) => {
                    self.graph.outputs[task].iter().for_each(|edge| self.channels[*edge].announce(barrier));
                }
                align::Action::Decline { checkpoint, reason } => {
                    self.give_up(task, checkpoint);
                    assert!(matches!(reason, DeclineReason::Subsumed { by } if by > checkpoint));
                    self.seen.declined += 1;
                    let declined = Event::Declined { task: TaskId(task as u32), attempt: self.attempt, checkpoint, reason };
                    self.to_coordinator[task].push_back(declined);
                }
                align::Action::Aborted(checkpoint) => self.give_up(task, checkpoint),
            }
        }
    }

    fn snapshot(&mut self, task: usize, barrier: Barrier) {
        if !self.tasks[task].finished {
            for edge in &self.graph.outputs[task] {
                self.send(*edge, Frame::Marker(barrier));
                if barrier.unaligned {
                    self.channels[*edge].announce(barrier);
                }
            }
        }
        let of = &mut self.tasks[task];
        of.stopped |= barrier.kind == BarrierKind::Stop;
        let left: Vec<(usize, u64)> = of.restored.iter().copied().collect();
        self.seen.captured_again += left.len();
        let state = State { captured: vec![vec![]; self.graph.inputs[task].len()], left, ..of.state.clone() };
        assert!(of.capturing.is_none(), "an unaligned snapshot was not given up");
        if barrier.unaligned {
            of.capturing = Some((barrier.checkpoint, state));
        } else {
            assert!(state.left.is_empty(), "an aligned barrier overtook rows of a restore");
            self.persisting.push((task, barrier.checkpoint, state));
        }
    }

    fn capture_done(&mut self, task: usize, checkpoint: CheckpointId) {
        let (id, mut state) = self.tasks[task].capturing.take().expect("an unaligned snapshot was taken");
        assert_eq!(id, checkpoint);
        for (input, edge) in self.graph.inputs[task].iter().enumerate() {
            assert!(!self.channels[*edge].is_armed(), "rows of checkpoint {checkpoint} may still come");
            state.captured[input] = self.channels[*edge].take_captured();
            self.seen.captured_rows += state.captured[input].len();
        }
        self.persisting.push((task, checkpoint, state));
    }

    fn give_up(&mut self, task: usize, checkpoint: CheckpointId) {
        if self.tasks[task].capturing.take_if(|(id, _)| *id == checkpoint).is_some() {
            self.graph.inputs[task].iter().for_each(|edge| drop(self.channels[*edge].take_captured()));
        }
    }

    fn persist(&mut self, index: usize) {
        let (index_of_task, checkpoint, state) = self.persisting.swap_remove(index);
        let (task, attempt) = (TaskId(index_of_task as u32), self.attempt);
        let answer = if self.fault() {
            self.seen.persist_failed += 1;
            Event::PersistFailed { task, attempt, checkpoint, reason: "fault".to_owned() }
        } else {
            self.store.put(checkpoint, index_of_task, state);
            Event::Acknowledged { task, attempt, checkpoint }
        };
        self.to_coordinator[index_of_task].push_back(answer);
    }

    /// A manifest that is said to have failed may be there all the same.
    fn write_manifest(&mut self, checkpoint: CheckpointId) {
        self.writing = None;
        let fails = self.fault();
        if !fails || self.random.percent(50) {
            self.check_cut(checkpoint);
            self.store.put_manifest(checkpoint);
        }
        if fails {
            self.seen.manifest_failed += 1;
            self.store.manifest_failed(checkpoint);
            self.tell(Event::ManifestFailed { checkpoint, reason: "fault".to_owned() });
        } else {
            self.tell(Event::ManifestWritten(checkpoint));
        }
    }

    /// What was sent before the sender's snapshot was received before the receiver's or captured, and in exactly-once mode nothing
    /// else was.
    fn check_cut(&self, checkpoint: CheckpointId) {
        for (index, edge) in self.graph.edges.iter().enumerate() {
            let sent = self.store.state(checkpoint, edge.from).sent.get(&index).copied().unwrap_or(0);
            let of = self.store.state(checkpoint, edge.to);
            let received = of.received[edge.input] + of.captured[edge.input].len() as u64;
            match self.mode {
                Mode::ExactlyOnce => assert_eq!(sent, received, "checkpoint {checkpoint}, {edge:?}"),
                Mode::AtLeastOnce => assert!(sent <= received, "checkpoint {checkpoint}, {edge:?}"),
            }
        }
    }

    fn tell(&mut self, event: Event) {
        let mut actions = vec![];
        self.coordinator.handle(self.now_ms, event, &mut actions);
        for action in actions {
            assert!(self.outcome.is_none() || matches!(action, Action::DiscardOf { .. }), "{action:?} after the end");
            self.act(action);
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Trigger(barrier) => {
                self.store.triggered(barrier.checkpoint);
                self.to_task.iter_mut().for_each(|queue| queue.push_back(align::Event::Trigger(barrier)));
            }
            Action::Unalign(checkpoint) => {
                self.seen.switched += 1;
                self.to_task.iter_mut().for_each(|queue| queue.push_back(align::Event::Unalign(checkpoint)));
            }
            Action::Abort { checkpoint, reason } => {
                match reason {
                    AbortReason::TimedOut { .. } => {
                        self.faults = self.faults.saturating_sub(1);
                        self.seen.timed_out += 1;
                    }
                    AbortReason::Subsumed { .. } => self.seen.overtaken += 1,
                    _ => {}
                }
                self.to_task.iter_mut().for_each(|queue| queue.push_back(align::Event::Abort(checkpoint)));
            }
            Action::WriteManifest { checkpoint, .. } => {
                assert!(self.writing.replace(checkpoint).is_none(), "two manifests at a time");
            }
            Action::Complete { checkpoint, .. } => {
                self.seen.completed += 1;
                self.seen.unaligned +=
                    usize::from(self.coordinator.last_completed().is_some_and(|completed| completed.unaligned));
                assert!(self.store.is_complete(checkpoint));
            }
            Action::Discard(checkpoint) => {
                let tasks = self.acknowledged.iter().filter(|(of, _)| *of == checkpoint);
                tasks.for_each(|(_, task)| self.store.discard(checkpoint, *task));
            }
            Action::DiscardOf { task, checkpoint } => {
                self.seen.late += 1;
                self.store.discard(checkpoint, task.0 as usize);
            }
            Action::FailJob { .. } => self.outcome = Some(Outcome::Failed),
            Action::Done(kind) => self.outcome = Some(Outcome::Done(kind)),
        }
    }

    /// Everything under way at the end of the attempt comes to rest.
    fn drain(&mut self) {
        if let Some(checkpoint) = self.writing {
            self.write_manifest(checkpoint);
        }
        while !self.persisting.is_empty() {
            self.persist(0);
        }
        for queue in 0..self.to_coordinator.len() {
            while !self.to_coordinator[queue].is_empty() {
                self.carry_out(Step::Answer(queue));
            }
        }
    }
}
