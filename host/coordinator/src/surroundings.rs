//! What the master of a job needs from the process around it, and what it is told. A cluster's coordinator has it, and so
//! has `weir run`.

use weir_master::{Begun, Notice, Shortage, Slots, Wish};
use weir_protocol::{Command, Report, WorkerId};
use weir_storage::{JobStorage, StorageError};

use crate::master::Written;

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
