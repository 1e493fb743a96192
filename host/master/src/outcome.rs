//! How a job ends.

use weir_model::CheckpointId;
use weir_plan::Diagnostics;

use crate::{Progress, StoreFailure};

/// How a job ended.
#[derive(Debug)]
pub enum Outcome {
    /// All input is processed and committed.
    Finished(Box<Progress>),
    /// It was asked to stop, and has, with a last checkpoint; the same job resumes from there.
    Stopped(Box<Progress>),
    /// It was asked to stop, and none of its tasks runs, but no last checkpoint was taken: it did not run, or its execution failed
    /// before. The same job resumes from the checkpoint before, if there is one.
    StoppedBetween {
        /// How far its last execution was, if this process has seen one end.
        progress: Option<Box<Progress>>,
        /// Why its execution failed, if that is how it ended.
        failure: Option<String>,
    },
    /// It was ended without a last checkpoint.
    Cancelled,
    /// It had finished before, and its sources have nothing more; nothing was done.
    AlreadyFinished {
        /// Its final checkpoint.
        checkpoint: CheckpointId,
        /// When that was complete, in milliseconds since the Unix epoch.
        at_ms: u64,
        /// What was looked at for more, by source: its uid, and what it says.
        looked_at: Vec<(String, String)>,
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
    Storage(StoreFailure),
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
