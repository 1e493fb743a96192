//! How a job ends.

use weir_model::CheckpointId;
use weir_plan::Diagnostics;
use weir_storage::StorageError;

use crate::Progress;

/// How a job ended.
#[derive(Debug)]
pub enum Outcome {
    /// All input is processed and committed.
    Finished(Box<Progress>),
    /// It was asked to stop; the same job resumes from its last checkpoint. There is no progress where it stopped between
    /// two executions.
    Stopped(Option<Box<Progress>>),
    /// It was ended without a last checkpoint.
    Cancelled,
    /// It had finished before; nothing was done.
    AlreadyFinished {
        /// Its final checkpoint.
        checkpoint: CheckpointId,
        /// When that was complete, in milliseconds since the Unix epoch.
        at_ms: u64,
    },
    /// The process ends; its tasks may run on, and the next coordinator takes them over.
    Left,
}

/// A job cannot start, or has failed for good.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// The job file, as far as only connectors and components can tell.
    #[error("{0}")]
    JobFile(Diagnostics),
    /// A worker cannot use what the job file names; said in the job file's terms.
    #[error("{0}")]
    Rejected(String),
    /// Checkpoints cannot be read or written.
    #[error("{0}")]
    Storage(#[from] StorageError),
    /// What the job says does not fit the state that it has.
    #[error("{0}")]
    Refused(String),
    /// No retained checkpoint can be restored.
    #[error("{0}")]
    Damaged(String),
    /// It failed, and its restart strategy gave up.
    #[error("the job failed: {reason}; {why_not_restarted}")]
    Failed {
        /// The last failure.
        reason: String,
        /// Which rule ended it.
        why_not_restarted: String,
    },
}
