//! How far a job is, put together from what its workers say.

use std::collections::BTreeMap;
use std::time::Duration;

use weir_model::{Attempt, Oddities, Timestamp};

/// Counts of a vertex in the current execution, over all its subtasks.
#[derive(Clone, Debug, PartialEq)]
pub struct VertexProgress {
    /// Its uid.
    pub uid: String,
    /// "source", "operator" or "sink".
    pub kind: &'static str,
    /// Rows in (a source: rows read).
    pub rows_in: u64,
    /// Rows out (a sink: rows written).
    pub rows_out: u64,
    /// Rows rejected.
    pub rows_rejected: u64,
    /// Rows that did not go the normal way.
    pub oddities: Oddities,
    /// Rows in per subtask: shows skew.
    pub rows_in_by_subtask: Vec<u64>,
    /// Share of time its tasks waited for room downstream, 0 to 1, since the last progress.
    pub backpressured: f64,
    /// The same, with work to do.
    pub busy: f64,
}

/// A completed checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointProgress {
    /// Its number.
    pub id: u64,
    /// From trigger to manifest.
    pub duration: Duration,
    /// Bytes written.
    pub bytes: u64,
    /// Bytes of state captured, before compression.
    pub captured_bytes: u64,
    /// Of the bytes written, those that merged older state.
    pub merged_bytes: u64,
    /// Of the bytes written, those that were in flight.
    pub in_flight_bytes: u64,
    /// Its barriers overtook rows.
    pub unaligned: bool,
}

/// How much of the state of a checkpoint is with its tasks again, while they run already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RestoreProgress {
    /// Stored bytes of instances that are.
    pub restored_bytes: u64,
    /// Stored bytes of all; 0 until workers have said it.
    pub bytes: u64,
}

/// How long checkpoints have interrupted tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pauses {
    /// Half were at most this long.
    pub p50: Duration,
    /// All but a hundredth were at most this long.
    pub p99: Duration,
    /// The longest.
    pub max: Duration,
}

impl Progress {
    /// Rows of the whole job that did not go the normal way.
    pub fn oddities(&self) -> Oddities {
        let mut all = Oddities::new();
        self.vertices.iter().for_each(|vertex| all.merge(&vertex.oddities));
        all
    }
}

/// How far a job is.
#[derive(Clone, Debug)]
pub struct Progress {
    /// The execution that is running.
    pub attempt: Attempt,
    /// Time since it began.
    pub running: Duration,
    /// Counts by vertex, in the order of the job file.
    pub vertices: Vec<VertexProgress>,
    /// Worker of each subtask, by vertex.
    pub workers: Vec<Vec<String>>,
    /// Rows read by all sources.
    pub rows_read: u64,
    /// Rows written by all sinks.
    pub rows_written: u64,
    /// Rows read per second since the last progress.
    pub rows_per_second: f64,
    /// The least watermark of all tasks.
    pub watermark: Timestamp,
    /// The last completed checkpoint of this execution.
    pub checkpoint: Option<CheckpointProgress>,
    /// Checkpoints completed in this execution.
    pub checkpoints_completed: u64,
    /// Checkpoints failed in this execution.
    pub checkpoints_failed: u64,
    /// Interruptions by checkpoints.
    pub pauses: Pauses,
    /// What operators count and measure: `operator.name`.
    pub metrics: BTreeMap<String, f64>,
    /// How far the state of the checkpoint is that it goes on from; none where all is with the tasks.
    pub restore: Option<RestoreProgress>,
}
