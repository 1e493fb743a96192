//! The lanes that make an execution's snapshots durable, off its tasks' threads: a few actors that share the tasks.
//!
//! All that concerns one task goes through one lane, in order. A lane that waits for a storage that hangs holds up its own tasks'
//! snapshots, and nothing else.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_model::{CheckpointId, TaskId};
use weir_storage::JobStorage;
use weir_task::{Outlet, SnapshotPart, TaskReport, Turn};

use super::voice::Voice;
use crate::WorkerOptions;
use crate::executor::{Actor, Place, PlaceRole, Seat};
use crate::persist::{Item, Load, Outcome, Persister, Popped, Queue, RETRY_DELAY, TaskStart};

/// An actor that is not started, and where.
pub(super) struct SeatedLane {
    pub(super) place: Place,
    pub(super) seat: Box<dyn Seat>,
    pub(super) actor: Box<dyn Actor>,
}

/// The lanes that make snapshots durable. All clones are one.
#[derive(Clone)]
pub(super) struct PersistLanes {
    voice: Arc<Voice>,
    load: Arc<Load>,
    congested_bytes: usize,
    queues: Vec<Arc<Queue>>,
}

impl PersistLanes {
    /// Lanes, and the actors to start.
    pub(super) fn new(
        storage: &JobStorage,
        voice: &Arc<Voice>,
        options: &WorkerOptions,
        tasks: BTreeMap<TaskId, TaskStart>,
    ) -> (PersistLanes, Vec<SeatedLane>) {
        let count = options.executor.lanes().min(tasks.len()).max(1);
        let mut of_lane: Vec<BTreeMap<TaskId, TaskStart>> = std::iter::repeat_with(BTreeMap::new).take(count).collect();
        for (task, start) in tasks {
            of_lane[lane_of(task, count)].insert(task, start);
        }
        let load = Arc::new(Load::default());
        let (mut queues, mut seated) = (Vec::new(), Vec::new());
        for (number, tasks) in of_lane.into_iter().enumerate() {
            let (execution, name) = (voice.execution().clone(), format!("persist-{number}"));
            let place = Place { execution, role: PlaceRole::Persist(number), name };
            let seat = options.executor.seat(&place);
            let queue = Arc::new(Queue::new(seat.wake(), load.clone()));
            let persister = Persister::new(storage.clone(), voice.execution().attempt, RETRY_DELAY, tasks);
            let lane = PersistLane { persister, queue: queue.clone(), load: load.clone(), voice: voice.clone() };
            seated.push(SeatedLane { place, seat, actor: Box::new(lane) });
            queues.push(queue);
        }
        (PersistLanes { voice: voice.clone(), load, congested_bytes: options.congested_bytes, queues }, seated)
    }

    /// The way of a task to here and to the events.
    pub(super) fn outlet(&self) -> Box<dyn Outlet> {
        let PersistLanes { voice, load, congested_bytes, queues, .. } = self;
        Box::new(TaskOutlet {
            voice: voice.clone(),
            load: load.clone(),
            congested_bytes: *congested_bytes,
            queues: queues.clone(),
        })
    }

    /// A checkpoint is complete. Must be said before tasks are told.
    pub(super) fn completed(&self, checkpoint: CheckpointId) {
        self.queues.iter().for_each(|queue| queue.push(Item::Completed(checkpoint)));
    }

    /// A task's sinks have committed: what they had prepared up to a checkpoint is nobody's to keep any more.
    pub(super) fn committed(&self, task: TaskId, checkpoint: CheckpointId) {
        self.queues[lane_of(task, self.queues.len())].push(Item::Committed(task, checkpoint));
    }

    /// Gives up what is not being written yet; the actors are over then.
    pub(super) fn discard(&self) {
        self.queues.iter().for_each(|queue| queue.discard());
    }

    /// Takes nothing more; the actors are over once what was asked for is done.
    pub(super) fn close(&self) {
        self.queues.iter().for_each(|queue| queue.close());
    }
}

struct PersistLane {
    persister: Persister,
    queue: Arc<Queue>,
    load: Arc<Load>,
    voice: Arc<Voice>,
}

impl Actor for PersistLane {
    fn turn(&mut self) -> Turn {
        let (item, bytes) = match self.queue.pop() {
            Popped::Item(item, bytes) => (item, bytes),
            Popped::Nothing => return Turn::Wait(None),
            Popped::Closed => return Turn::Over,
        };
        let outcome = self.persister.handle(item);
        self.load.done(bytes);
        match outcome {
            Some(Outcome::Acknowledged(acknowledgement)) => self.voice.acknowledged(acknowledgement),
            Some(Outcome::Failed { task, checkpoint, reason }) => self.voice.persist_failed(task, checkpoint, reason),
            None => {}
        }
        Turn::Go
    }
}

/// The lane of a task.
pub(super) fn lane_of(task: TaskId, lanes: usize) -> usize {
    task.0 as usize % lanes
}

struct TaskOutlet {
    voice: Arc<Voice>,
    load: Arc<Load>,
    congested_bytes: usize,
    queues: Vec<Arc<Queue>>,
}

impl TaskOutlet {
    fn send(&self, task: TaskId, item: Item) {
        self.queues[lane_of(task, self.queues.len())].push(item);
    }
}

impl Outlet for TaskOutlet {
    fn snapshot(&mut self, task: TaskId, part: SnapshotPart) {
        self.send(task, Item::Part(task, part));
    }

    fn report(&mut self, task: TaskId, report: TaskReport) {
        match report {
            TaskReport::Declined { checkpoint, reason } => self.voice.declined(task, checkpoint, &reason),
            TaskReport::Restored => self.voice.restored(task),
            TaskReport::Finished => self.voice.finished(task),
            TaskReport::Failed(error) => self.voice.failed(&error),
        }
    }

    fn is_congested(&self) -> bool {
        self.load.bytes() > self.congested_bytes
    }
}
