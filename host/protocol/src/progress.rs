//! How far an execution is on a worker.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use weir_model::{Oddities, TaskId, Timestamp};

/// Counts of one subtask of a vertex.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VertexCounts {
    /// Rows in (a source: rows read).
    pub rows_in: u64,
    /// Rows out (a sink: rows written).
    pub rows_out: u64,
    /// Rows rejected.
    pub rows_rejected: u64,
}

/// Counts of durations: (upper bound in nanoseconds, count), ascending; buckets without any are left out.
pub type Durations = Vec<(u64, u64)>;

/// One task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskProgress {
    /// Which.
    pub task: TaskId,
    /// Its watermark, in milliseconds since the Unix epoch.
    pub watermark: Timestamp,
    /// Nanoseconds it had work to do.
    pub busy_ns: u64,
    /// Nanoseconds it waited for room downstream.
    pub backpressured_ns: u64,
    /// Interruptions of the data path by checkpoints.
    pub pauses: Durations,
    /// The longest interruption.
    pub pause_max_ns: u64,
    /// By vertex of its chain, in the chain's order.
    pub vertices: Vec<VertexCounts>,
    /// All its inputs have ended.
    pub finished: bool,
}

/// What a worker knows of one execution.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkerProgress {
    /// Its tasks.
    pub tasks: Vec<TaskProgress>,
    /// Rows that did not go the normal way, by the uid of their vertex, over its subtasks here. Over workers these add up.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub oddities: BTreeMap<String, Oddities>,
    /// What operators count: `operator.name`. Over workers these add up.
    pub counters: BTreeMap<String, u64>,
    /// What operators measure: `operator.name`. Over workers the largest is shown.
    pub gauges: BTreeMap<String, f64>,
    /// Bytes sent to other workers.
    pub sent_bytes: u64,
    /// Bytes received from other workers.
    pub received_bytes: u64,
}
