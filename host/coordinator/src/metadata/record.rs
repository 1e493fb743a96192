//! What is kept of a job.

use serde::{Deserialize, Serialize};
use weir_protocol::JobSpec;
use weir_protocol::api::JobState;

/// What people want of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Desired {
    /// It runs.
    Run,
    /// It stops with a last checkpoint.
    Stop,
    /// It ends without one.
    Cancel,
}

/// A job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct JobRecord {
    /// The job as its last execution was begun, or as it was submitted.
    pub(crate) spec: JobSpec,
    /// All older checkpoints are to be forgotten. Cleared when an execution begins: from then on its checkpoints count.
    pub(crate) fresh: bool,
    /// State of operators that the job does not have is dropped.
    pub(crate) allow_dropped_state: bool,
    /// What people want.
    pub(crate) desired: Desired,
    /// The parallelism that was asked for and that no execution has yet.
    pub(crate) rescale: Option<u32>,
    /// Where it is in its life.
    pub(crate) state: JobState,
    /// Why.
    pub(crate) reason: Option<String>,
    /// Slots it takes.
    pub(crate) slots: u32,
    /// Number of its last attempt; 0 before the first.
    pub(crate) attempt: u64,
    /// Attempts since it was submitted.
    pub(crate) attempts: u64,
    /// When it was submitted.
    pub(crate) submitted_at_ms: u64,
    /// When its state changed last.
    pub(crate) since_ms: u64,
    /// Number of its last event; 0 before the first.
    pub(crate) last_event: u64,
}
