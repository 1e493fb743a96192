//! How far an execution is on this worker, read from the counts of its tasks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use weir_model::{OddKind, Oddities, OperatorUid, TaskId, limits};
use weir_protocol::{TaskProgress, VertexCounts, WorkerProgress};
use weir_task::{TaskStats, VertexStats};

use super::fill::FillBytes;
use super::host::Metrics;
use super::voice::Voice;
use crate::Network;

/// The counts of one task.
#[derive(Clone)]
pub(super) struct TaskMeter {
    pub(super) task: TaskId,
    pub(super) stats: Arc<TaskStats>,
    /// By vertex of its chain.
    pub(super) vertices: Vec<(OperatorUid, Arc<VertexStats>)>,
}

/// The counts of an execution.
#[derive(Clone)]
pub(super) struct Meters {
    pub(super) tasks: Vec<TaskMeter>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) network: Option<Arc<dyn Network>>,
    pub(super) fill: Arc<FillBytes>,
}

impl Meters {
    pub(super) fn read(&self, voice: &Voice) -> WorkerProgress {
        let (sent_bytes, received_bytes) = self.network.as_ref().map_or((0, 0), |network| network.counts(voice.execution()));
        let (restored_bytes, restore_bytes) = self.fill.read();
        WorkerProgress {
            tasks: self.tasks.iter().map(|meter| meter.read(voice)).collect(),
            oddities: self.oddities(),
            counters: self.metrics.counters(),
            gauges: self.metrics.gauges(),
            sent_bytes,
            received_bytes,
            restored_bytes,
            restore_bytes,
        }
    }

    /// By vertex, over its subtasks. Examples beyond [`limits::ODDITY_EXAMPLES_BYTES_MAX`] are left out: this goes with every
    /// heartbeat.
    fn oddities(&self) -> BTreeMap<String, Oddities> {
        let mut all: BTreeMap<String, Oddities> = BTreeMap::new();
        for (uid, stats) in self.tasks.iter().flat_map(|task| &task.vertices) {
            let odd = stats.odd.read();
            if !odd.is_empty() {
                all.entry(uid.to_string()).or_default().merge(&odd);
            }
        }
        let mut left = limits::ODDITY_EXAMPLES_BYTES_MAX;
        for odd in all.values_mut() {
            match left.checked_sub(odd.examples_bytes()) {
                Some(rest) => left = rest,
                None => odd.drop_examples(),
            }
        }
        all
    }
}

impl TaskMeter {
    fn read(&self, voice: &Voice) -> TaskProgress {
        let nanoseconds = |duration: std::time::Duration| duration.as_nanos() as u64;
        let counts = |(_, stats): &(OperatorUid, Arc<VertexStats>)| VertexCounts {
            rows_in: stats.rows_in.load(Ordering::Relaxed),
            rows_out: stats.rows_out.load(Ordering::Relaxed),
            rows_rejected: stats.odd.rows(OddKind::Rejected),
        };
        TaskProgress {
            task: self.task,
            watermark: self.stats.watermark(),
            busy_ns: nanoseconds(self.stats.busy()),
            backpressured_ns: nanoseconds(self.stats.backpressured()),
            pauses: self.stats.pauses.buckets(),
            pause_max_ns: nanoseconds(self.stats.pauses.max()),
            vertices: self.vertices.iter().map(counts).collect(),
            finished: voice.is_finished(self.task),
        }
    }
}
