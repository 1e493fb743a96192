//! What the master of a job needs from the process around it, and what it is told. A cluster's coordinator has it, and so
//! has `weir run`.

use weir_model::CheckpointId;
use weir_protocol::{Command, Execution, Prepare, Report, Running, WorkerAddress, WorkerId};
use weir_storage::{JobStorage, Segment, StorageError};

use crate::Notice;
use crate::master::Written;

/// The slots of a job. A slot runs one subtask of every chain: subtask `i` of each is in slot `i`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slots {
    /// The workers that offer them.
    pub workers: Vec<WorkerAddress>,
    /// By slot: index of its worker.
    pub slots: Vec<u32>,
}

/// There are not enough free slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// Slots the job needs.
    pub needed: u32,
    /// Slots that are free.
    pub free: u32,
    /// Slots that jobs wait for which were submitted before. They are served first.
    pub ahead: u32,
    /// Workers that are connected.
    pub workers: u32,
}

/// What a person wants of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Stop with a last checkpoint.
    Stop,
    /// End without one.
    Cancel,
    /// Go on with another parallelism, from a checkpoint taken now.
    Rescale(u32),
}

/// What a master is told, through its inbox.
#[derive(Debug)]
pub enum Told {
    /// A worker reports about an execution of the job (of any attempt).
    Report {
        /// The worker.
        worker: WorkerId,
        /// What it says.
        report: Box<Report>,
    },
    /// A worker is gone: it is not heard any more, or has started anew.
    WorkerLost {
        /// The worker.
        worker: WorkerId,
        /// How this is known.
        reason: String,
    },
    /// There may be slots where there were none.
    SlotsChanged,
    /// A person wants something.
    Wish(Wish),
    /// What became of a manifest; only a master tells itself.
    Kept(Kept),
    /// The process ends: give up at once, and leave everything as it is for the next coordinator.
    Leave,
}

/// What the thread that writes manifests says.
#[derive(Debug)]
pub struct Kept(pub(crate) Written);

/// An execution that is about to begin. Recorded durably before any of its tasks runs, so that a coordinator that is started
/// again can take it over.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Begun {
    /// How it was prepared.
    pub prepare: Prepare,
    /// Where the template of each operator is: by uid.
    pub templates: Vec<(String, Segment)>,
}

/// An execution that a new coordinator takes over from the one before it: all its tasks run.
#[derive(Clone, Debug)]
pub struct Adopted {
    /// What was recorded of it.
    pub begun: Begun,
    /// What each of its workers said when it registered.
    pub running: Vec<(WorkerId, Running)>,
}

impl Adopted {
    /// The execution.
    pub fn execution(&self) -> &Execution {
        &self.begun.prepare.execution
    }

    /// The greatest checkpoint number that any task was told of.
    pub fn last_checkpoint(&self) -> CheckpointId {
        self.running.iter().map(|(_, running)| running.last_checkpoint).max().unwrap_or(CheckpointId(0))
    }
}

/// What a master needs. No call waits for another process, but for the disk where it says so.
pub trait Surroundings: Send + Sync {
    /// Takes slots for a job, all or none. Slots that it held before are given back first; workers that are lost have none.
    ///
    /// # Errors
    /// If there are not enough. The master is told [`Told::SlotsChanged`] when there may be more.
    fn reserve(&self, job: &str, slots: u32) -> Result<Slots, Shortage>;

    /// Gives the slots of a job back.
    fn release(&self, job: &str);

    /// Tells a worker something. To one that is lost it goes nowhere.
    fn send(&self, worker: &str, command: Command);

    /// Opens the place of a job's checkpoints.
    ///
    /// # Errors
    /// If it cannot be used.
    fn storage(&self, url: &str, job: &str) -> Result<JobStorage, StorageError>;

    /// Records durably that an execution is about to begin.
    ///
    /// # Errors
    /// If the disk does not take it; the execution is then not begun.
    fn record(&self, begun: &Begun) -> Result<(), String>;

    /// Something that people may want to see.
    fn notice(&self, job: &str, notice: &Notice);
}
