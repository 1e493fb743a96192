//! How far a job is, read from the counts of its tasks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use weir_model::{Attempt, Timestamp, WATERMARK_START};
use weir_plan::{Job, VertexKind};
use weir_task::{Histogram, TaskStats, VertexStats};

use crate::host::Metrics;

/// Counts of a vertex in the current execution, over all its subtasks.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// Rows in per subtask: shows skew.
    pub rows_in_by_subtask: Vec<u64>,
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

/// How far a job is.
#[derive(Clone, Debug)]
pub struct Progress {
    /// The execution that is running.
    pub attempt: Attempt,
    /// Time since it began.
    pub running: Duration,
    /// Counts by vertex, in the order of the job file.
    pub vertices: Vec<VertexProgress>,
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
    /// What operators count: `operator.name`.
    pub metrics: BTreeMap<String, f64>,
}

/// The counts of an execution.
pub(crate) struct Meters {
    attempt: Attempt,
    started: Instant,
    vertices: Vec<(String, &'static str, Vec<Arc<VertexStats>>)>,
    tasks: Vec<Arc<TaskStats>>,
    metrics: Arc<Metrics>,
    last: (Instant, u64),
}

/// What the driver knows of checkpoints.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CheckpointCounts {
    pub(crate) last: Option<CheckpointProgress>,
    pub(crate) completed: u64,
    pub(crate) failed: u64,
}

impl Meters {
    pub(crate) fn new(
        attempt: Attempt,
        job: &Job,
        stats: &[Vec<Arc<VertexStats>>],
        tasks: Vec<Arc<TaskStats>>,
        metrics: Arc<Metrics>,
    ) -> Meters {
        let vertices = job.vertices.iter().zip(stats).map(|(vertex, stats)| {
            let kind = match vertex.kind {
                VertexKind::Source(_) => "source",
                VertexKind::Operator(_) => "operator",
                VertexKind::Sink(_) => "sink",
            };
            (vertex.uid.clone(), kind, stats.clone())
        });
        let started = Instant::now();
        Meters { attempt, started, vertices: vertices.collect(), tasks, metrics, last: (started, 0) }
    }

    pub(crate) fn read(&mut self, checkpoints: CheckpointCounts) -> Progress {
        let vertices: Vec<VertexProgress> = self.vertices.iter().map(|(uid, kind, stats)| vertex(uid, kind, stats)).collect();
        let of_kind = |kind| vertices.iter().filter(move |vertex| vertex.kind == kind);
        let rows_read: u64 = of_kind("source").map(|vertex| vertex.rows_in).sum();
        let rows_written = of_kind("sink").map(|vertex| vertex.rows_out).sum();
        let now = Instant::now();
        let seconds = (now - self.last.0).as_secs_f64().max(1e-6);
        let rows_per_second = rows_read.saturating_sub(self.last.1) as f64 / seconds;
        self.last = (now, rows_read);
        let quantile = |q| Histogram::quantile(self.tasks.iter().map(|task| &task.pauses), q);
        Progress {
            attempt: self.attempt,
            running: now - self.started,
            vertices,
            rows_read,
            rows_written,
            rows_per_second,
            watermark: self.tasks.iter().map(|task| task.watermark()).min().unwrap_or(WATERMARK_START),
            checkpoint: checkpoints.last,
            checkpoints_completed: checkpoints.completed,
            checkpoints_failed: checkpoints.failed,
            pauses: Pauses { p50: quantile(0.5), p99: quantile(0.99), max: quantile(1.0) },
            metrics: self.metrics.snapshot(),
        }
    }
}

fn vertex(uid: &str, kind: &'static str, stats: &[Arc<VertexStats>]) -> VertexProgress {
    let sum = |count: fn(&VertexStats) -> u64| stats.iter().map(|stats| count(stats)).sum();
    VertexProgress {
        uid: uid.to_owned(),
        kind,
        rows_in: sum(|stats| stats.rows_in.load(Ordering::Relaxed)),
        rows_out: sum(|stats| stats.rows_out.load(Ordering::Relaxed)),
        rows_rejected: sum(|stats| stats.rows_rejected.load(Ordering::Relaxed)),
        rows_in_by_subtask: stats.iter().map(|stats| stats.rows_in.load(Ordering::Relaxed)).collect(),
    }
}
