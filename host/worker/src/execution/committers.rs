//! The lanes that commit: sinks make visible what a completed checkpoint holds, off their tasks' threads.
//!
//! Owns the committing halves of sinks once tasks run, and what they have still to commit. That is bounded: the commits of a later
//! checkpoint hold those of an earlier one that were not confirmed, so of each task only the newest wait. A sink that takes long to
//! commit holds up no row and no snapshot. What the checkpoint holds that the execution goes on from is committed once all of it was
//! read and is whole: one that is damaged is given up for an older one, which writes the same rows again. A job that ends waits for
//! its last commits, without a bound; its master tells people of one that takes long.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use weir_connectors::{Commit, Committer};
use weir_model::{CheckpointId, TaskId};
use weir_protocol::Commits;
use weir_task::{Turn, Wake};

use super::failure::{OfConnector, Trouble};
use super::lanes::{PersistLanes, SeatedLane, lane_of};
use super::voice::Voice;
use crate::WorkerOptions;
use crate::executor::{Actor, Place, PlaceRole};

/// The committing halves of the sinks of some tasks, by task and uid.
pub(super) type Committers = BTreeMap<(TaskId, String), Box<dyn Committer>>;

/// The lanes that commit.
pub(super) struct CommitLanes {
    voice: Arc<Voice>,
    queues: Vec<Arc<Queue>>,
    /// Those with a sink.
    tasks: Vec<TaskId>,
}

/// What the checkpoint that is restored holds for sinks to commit, by task.
pub(super) struct RestoredCommits {
    pub(super) checkpoint: CheckpointId,
    pub(super) commits: BTreeMap<TaskId, Commits>,
}

/// What waits for one lane.
struct Queue {
    state: Mutex<Backlog>,
    wake: Arc<dyn Wake>,
}

#[derive(Default)]
struct Backlog {
    commits: BTreeMap<TaskId, (CheckpointId, Commits)>,
    /// What the restored checkpoint holds: before anything else.
    held: BTreeMap<TaskId, (CheckpointId, Commits)>,
    /// It is whole.
    may_settle: bool,
    is_closed: bool,
}

impl CommitLanes {
    /// Lanes, and the actors to start.
    pub(super) fn new(
        voice: &Arc<Voice>,
        options: &WorkerOptions,
        persist: &PersistLanes,
        committers: Committers,
        restored: Option<&RestoredCommits>,
    ) -> (CommitLanes, Vec<SeatedLane>) {
        let mut tasks: Vec<TaskId> = committers.keys().map(|(task, _)| *task).collect();
        tasks.dedup();
        let count = options.executor.lanes().min(tasks.len());
        let mut of_lane: Vec<Committers> = std::iter::repeat_with(Committers::new).take(count).collect();
        for ((task, uid), committer) in committers {
            of_lane[lane_of(task, count)].insert((task, uid), committer);
        }
        let (mut queues, mut seated) = (Vec::new(), Vec::new());
        for (number, committers) in of_lane.into_iter().enumerate() {
            let (execution, name) = (voice.execution().clone(), format!("commit-{number}"));
            let place = Place { execution, role: PlaceRole::Commit(number), name };
            let seat = options.executor.seat(&place);
            let of = |(task, _): &(TaskId, String)| {
                let restored = restored?;
                Some((*task, (restored.checkpoint, restored.commits.get(task)?.clone())))
            };
            let held = committers.keys().filter_map(of).collect();
            let queue = Arc::new(Queue { state: Mutex::new(Backlog { held, ..Backlog::default() }), wake: seat.wake() });
            let lane = CommitLane { committers, queue: queue.clone(), persist: persist.clone(), voice: voice.clone() };
            seated.push(SeatedLane { place, seat, actor: Box::new(lane) });
            queues.push(queue);
        }
        (CommitLanes { voice: voice.clone(), queues, tasks }, seated)
    }

    /// A checkpoint is complete: the sinks of a task commit this. One without sinks has nothing to commit, and says so at once.
    pub(super) fn commit(&self, task: TaskId, checkpoint: CheckpointId, commits: Commits) {
        if self.tasks.binary_search(&task).is_err() {
            return self.voice.committed(task, checkpoint);
        }
        let queue = &self.queues[lane_of(task, self.queues.len())];
        queue.state.lock().commits.insert(task, (checkpoint, commits));
        queue.wake.wake();
    }

    /// The checkpoint that the execution goes on from is whole: what it holds is committed. Said again without effect.
    pub(super) fn settle(&self) {
        for queue in &self.queues {
            queue.state.lock().may_settle = true;
            queue.wake.wake();
        }
    }

    /// Nothing more is committed but what is being committed now; the actors are over then.
    pub(super) fn close(&self) {
        for queue in &self.queues {
            let mut state = queue.state.lock();
            (state.is_closed, state.commits, state.held) = (true, BTreeMap::new(), BTreeMap::new());
            queue.wake.wake();
        }
    }
}

struct CommitLane {
    committers: Committers,
    queue: Arc<Queue>,
    persist: PersistLanes,
    voice: Arc<Voice>,
}

impl Actor for CommitLane {
    fn turn(&mut self) -> Turn {
        let held = self.queue.state.lock().pop_held();
        if let Some((task, (checkpoint, commits))) = held {
            match self.commit(task, checkpoint, commits) {
                Ok(()) => self.persist.committed(task, checkpoint),
                Err(trouble) => self.voice.failed(trouble),
            }
            return Turn::Go;
        }
        let next = {
            let mut state = self.queue.state.lock();
            match state.commits.pop_first() {
                Some(next) => next,
                None => return if state.is_closed { Turn::Over } else { Turn::Wait(None) },
            }
        };
        let (task, (checkpoint, commits)) = next;
        match self.commit(task, checkpoint, commits) {
            Ok(()) => {
                self.persist.committed(task, checkpoint);
                self.voice.committed(task, checkpoint);
            }
            Err(trouble) => self.voice.failed(trouble),
        }
        Turn::Go
    }
}

impl Backlog {
    fn pop_held(&mut self) -> Option<(TaskId, (CheckpointId, Commits))> {
        if self.may_settle { self.held.pop_first() } else { None }
    }
}

impl CommitLane {
    fn commit(&mut self, task: TaskId, checkpoint: CheckpointId, commits: Commits) -> Result<(), Trouble> {
        for (uid, values) in commits {
            let Some(committer) = self.committers.get_mut(&(task, uid.clone())) else { continue };
            for value in &values {
                let done = committer.commit(value).map_err(|error| Trouble::from(OfConnector(&uid, error)))?;
                check_there(&uid, checkpoint, done)?;
            }
        }
        Ok(())
    }
}

/// Output that cannot become visible any more ends the job: its rows are in no later checkpoint.
pub(super) fn check_there(uid: &str, checkpoint: CheckpointId, done: Commit) -> Result<(), Trouble> {
    match done {
        Commit::Done | Commit::DoneBefore => Ok(()),
        Commit::Gone { reason } => Err(Trouble::permanent(format!(
            "sink {uid} cannot show output of checkpoint {checkpoint}, which is complete: {reason}; its rows are lost, unless the job starts \
             over with --fresh"
        ))),
    }
}
