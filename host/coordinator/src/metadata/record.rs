//! What is kept of a job.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use weir_model::Timestamp;
use weir_protocol::JobSpec;
use weir_protocol::api::{CheckpointStatus, JobState, VertexStatus};

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
    /// How far it was when it ended; none before, and of jobs that ended under a coordinator which did not keep it.
    #[serde(default)]
    pub(crate) counts: Option<Counts>,
    /// The last checkpoint it had completed when it ended, likewise.
    #[serde(default)]
    pub(crate) checkpoint: Option<CheckpointStatus>,
}

/// How far an execution is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Counts {
    /// Rows read by all sources.
    pub(crate) rows_read: u64,
    /// Rows written by all sinks.
    pub(crate) rows_written: u64,
    /// The least watermark of all tasks.
    pub(crate) watermark: Timestamp,
    /// Checkpoints completed in this execution.
    pub(crate) checkpoints_completed: u64,
    /// Checkpoints failed in this execution.
    pub(crate) checkpoints_failed: u64,
    /// By vertex, in the order of the job file.
    pub(crate) vertices: Vec<VertexStatus>,
    /// What operators count and measure: `operator.name`. All finite, as JSON has no other numbers.
    pub(crate) metrics: BTreeMap<String, f64>,
}
