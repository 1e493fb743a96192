//! What a coordinator tells a worker.
//!
//! An execution comes into being in steps, and each step is finished on every worker before the next begins anywhere:
//!
//! 1. `Prepare`: job file, connectors, components. Nothing outside is touched.
//! 2. `Open`, at one worker: templates of operators that the checkpoint does not hold. Runs guest code.
//! 3. `Restore`: templates and images are read. Whatever of the checkpoint is damaged shows here. After that, sinks remove what earlier
//!    executions have left and no checkpoint holds.
//! 4. `Build`: sinks take back and commit what the checkpoint says; tasks and the receiving ends of channels are there.
//! 5. `Start`: tasks run, the sending ends connect.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use weir_model::{CheckpointId, Digest, Epoch, TaskId};
use weir_storage::Segment;

use crate::{Execution, JobSpec};

/// Where a worker's data endpoint is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerAddress {
    /// Its name.
    pub worker: String,
    /// `host:port` of its endpoint; empty in `weir run`.
    pub address: String,
}

/// Which worker runs which task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// The workers of the execution.
    pub workers: Vec<WorkerAddress>,
    /// By task: index of its worker in `workers`.
    pub tasks: Vec<u32>,
}

impl Placement {
    /// The worker that runs a task.
    pub fn worker_of(&self, task: TaskId) -> &WorkerAddress {
        &self.workers[self.tasks[task.0 as usize] as usize]
    }

    /// The tasks that a worker runs.
    pub fn tasks_of(&self, worker: &str) -> Vec<TaskId> {
        let here = |index: &u32| self.workers.get(*index as usize).is_some_and(|of| of.worker == worker);
        self.tasks.iter().enumerate().filter(|(_, index)| here(index)).map(|(task, _)| TaskId(task as u32)).collect()
    }
}

/// The first step of an execution.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prepare {
    /// The execution.
    pub execution: Execution,
    /// The job.
    pub spec: JobSpec,
    /// Where its tasks run.
    pub placement: Placement,
    /// Where its checkpoints are: every worker must see this place.
    pub storage: String,
    /// The checkpoint it goes on from.
    pub restore: Option<CheckpointId>,
    /// The first number that a checkpoint of this execution may have.
    pub first_checkpoint: CheckpointId,
    /// Edges whose ends are in tasks of their own although they could be chained: something is in flight on them.
    pub edges_apart: Vec<usize>,
    /// Set where rows after this checkpoint will be written again although sinks have made them visible.
    pub retract_after: Option<CheckpointId>,
}

/// What the sinks of a task commit: by sink uid, oldest first.
pub type Commits = Vec<(String, Vec<Value>)>;

/// What a coordinator tells a worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Command {
    /// The answer to a registration. Executions the worker runs that are not named here are to be cancelled.
    Welcome {
        /// Executions that go on.
        keep: Vec<Execution>,
        /// Coordinators that are lost for good, whose place this one takes because a person said so.
        succeeds: Vec<Epoch>,
    },
    /// The registration is refused; the worker tells its operator why and tries again later.
    Refused {
        /// Why, with a hint.
        reason: String,
    },
    /// A part of a component that the worker asked for; its bytes are attached.
    Component {
        /// Which.
        digest: Digest,
        /// Where the part starts.
        offset: u64,
        /// Size of the whole.
        total: u64,
    },
    /// The component that the worker asked for is not there.
    NoComponent {
        /// Which.
        digest: Digest,
        /// Why.
        reason: String,
    },
    /// Step 1. Answered by `Prepared`.
    Prepare(Box<Prepare>),
    /// Step 2, at one worker. Answered by `Opened`.
    Open {
        /// The execution.
        execution: Execution,
        /// The operators.
        uids: Vec<String>,
        /// Whether templates are stored; otherwise operators are only opened, to see whether they can be.
        store: bool,
    },
    /// Step 3. Answered by `Restored`.
    Restore {
        /// The execution.
        execution: Execution,
        /// Where each operator's template is: by uid.
        templates: Vec<(String, Segment)>,
    },
    /// Step 4. Answered by `Built`.
    Build {
        /// The execution.
        execution: Execution,
    },
    /// After step 1, where a job had finished: sources look whether there is more to read. Answered by `Looked`.
    Look {
        /// The execution.
        execution: Execution,
    },
    /// Instead of steps 2 to 5, where there is nothing more: sinks commit what the last checkpoint holds. Answered by `Built`.
    Commit {
        /// The execution.
        execution: Execution,
    },
    /// Step 5. Not answered.
    Start {
        /// The execution.
        execution: Execution,
    },
    /// All tasks of the execution have all of their state, so the checkpoint that it goes on from is whole: sinks commit what it holds for
    /// them. May be said again. Not answered.
    Settle {
        /// The execution.
        execution: Execution,
    },
    /// A checkpoint has begun.
    Trigger {
        /// The execution.
        execution: Execution,
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// Sources give no row after it.
        stop: bool,
        /// Barriers overtake rows from the start.
        unaligned: bool,
    },
    /// Its barriers overtake rows from now on.
    Unalign {
        /// The execution.
        execution: Execution,
        /// The checkpoint.
        checkpoint: CheckpointId,
    },
    /// It is given up.
    Abort {
        /// The execution.
        execution: Execution,
        /// The checkpoint.
        checkpoint: CheckpointId,
    },
    /// It is complete.
    Completed {
        /// The execution.
        execution: Execution,
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// What the sinks of the worker's tasks commit. Every task of the worker is named.
        commits: Vec<(TaskId, Commits)>,
    },
    /// The execution is over: threads end, then `Ended` is said. Also for an execution that the worker does not know.
    Cancel {
        /// The execution.
        execution: Execution,
        /// What was handed over is still written (a job that ends well); otherwise it is dropped.
        finish: bool,
    },
}

impl Command {
    /// The execution it belongs to.
    pub fn execution(&self) -> Option<&Execution> {
        match self {
            Command::Welcome { .. } | Command::Refused { .. } | Command::Component { .. } | Command::NoComponent { .. } => None,
            Command::Prepare(prepare) => Some(&prepare.execution),
            Command::Open { execution, .. }
            | Command::Restore { execution, .. }
            | Command::Build { execution }
            | Command::Look { execution }
            | Command::Commit { execution }
            | Command::Start { execution }
            | Command::Settle { execution }
            | Command::Trigger { execution, .. }
            | Command::Unalign { execution, .. }
            | Command::Abort { execution, .. }
            | Command::Completed { execution, .. }
            | Command::Cancel { execution, .. } => Some(execution),
        }
    }
}
