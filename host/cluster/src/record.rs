//! What a coordinator must not forget, and how it is changed: the shapes of its metadata, and whoever keeps them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use weir_master::Begun;
use weir_model::Epoch;
use weir_model::Timestamp;
use weir_protocol::JobSpec;
use weir_protocol::api::{CheckpointStatus, JobEvent, JobState, RestoreStatus, VertexStatus};

/// What people want of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Intent {
    /// It runs.
    Run,
    /// It stops with a last checkpoint.
    Stop,
    /// It ends without one.
    Cancel,
}

/// A job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobRecord {
    /// The job as its last execution was begun, or as it was submitted.
    pub spec: JobSpec,
    /// All older checkpoints are to be forgotten. Cleared when an execution begins: from then on its checkpoints count.
    pub fresh: bool,
    /// State of operators that the job does not have is dropped.
    pub allow_dropped_state: bool,
    /// What people want.
    pub desired: Intent,
    /// The parallelism that was asked for and that no execution has yet.
    pub rescale: Option<u32>,
    /// Where it is in its life.
    pub state: JobState,
    /// Why.
    pub reason: Option<String>,
    /// Slots it takes.
    pub slots: u32,
    /// Number of its last attempt; 0 before the first.
    pub attempt: u64,
    /// Attempts since it was submitted.
    pub attempts: u64,
    /// When it was submitted.
    pub submitted_at_ms: u64,
    /// When its state changed last.
    pub since_ms: u64,
    /// Number of its last event; 0 before the first.
    pub last_event: u64,
    /// How far it was when it ended; none before, and of jobs that ended under a coordinator which did not keep it.
    #[serde(default)]
    pub counts: Option<Counts>,
    /// The last checkpoint it had completed when it ended, likewise.
    #[serde(default)]
    pub checkpoint: Option<CheckpointStatus>,
}

/// How far an execution is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Counts {
    /// Rows read by all sources.
    pub rows_read: u64,
    /// Rows written by all sinks.
    pub rows_written: u64,
    /// The least watermark of all tasks.
    pub watermark: Timestamp,
    /// Checkpoints completed in this execution.
    pub checkpoints_completed: u64,
    /// Checkpoints failed in this execution.
    pub checkpoints_failed: u64,
    /// By vertex, in the order of the job file.
    pub vertices: Vec<VertexStatus>,
    /// What operators count and measure: `operator.name`. All finite, as JSON has no other numbers.
    pub metrics: BTreeMap<String, f64>,
    /// How far the state of its checkpoint is with its tasks, until all is.
    #[serde(default)]
    pub restore: Option<RestoreStatus>,
}

/// A job as it is found at start.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredJob {
    /// Its record.
    pub record: JobRecord,
    /// Its last execution.
    pub begun: Option<Begun>,
}

/// One change. Everything in it becomes durable together, or nothing.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// A job's record, and what belongs to it.
    Job {
        /// The job's name.
        name: String,
        /// Its record from now on.
        record: Box<JobRecord>,
        /// Its last execution from now on.
        begun: BegunChange,
        /// What happened. Its number is the record's last.
        event: Option<JobEvent>,
    },
    /// A job is forgotten with its events.
    Forget {
        /// Its name.
        name: String,
    },
    /// Coordinators that are lost for good, whose place this one takes.
    Succeeds(Vec<Epoch>),
}

/// What becomes of what is known of a job's last execution.
#[derive(Clone, Debug, PartialEq)]
pub enum BegunChange {
    /// It stays.
    Kept,
    /// It is forgotten.
    Forgotten,
    /// Another one begins.
    Is(Box<Begun>),
}

/// A change is not durable, and nothing of it is there: why, with the place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct WriteFailure(pub String);

/// Where a coordinator's memory is kept. Calls may wait for a disk for as long as that takes.
pub trait Metadata: Send + Sync {
    /// Makes a change durable.
    ///
    /// # Errors
    /// If it is not; nothing of it is there then.
    fn put(&self, change: &Change) -> Result<(), WriteFailure>;

    /// Events of a job with numbers greater than `after`, oldest first; no more than a few hundred at once.
    ///
    /// # Errors
    /// If they cannot be read.
    fn events(&self, name: &str, after: u64) -> Result<Vec<JobEvent>, WriteFailure>;
}
