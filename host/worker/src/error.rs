//! Why a job did not run, or does no longer.

use weir_plan::Diagnostics;
use weir_storage::StorageError;

/// A job cannot start, or has failed for good.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// The job file, as far as only connectors and components can tell.
    #[error("{0}")]
    JobFile(Diagnostics),
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
