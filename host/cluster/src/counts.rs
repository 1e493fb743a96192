//! How far an execution is, from what its master says. Pure.

use weir_master::{Progress, VertexProgress};
use weir_protocol::api::{RestoreStatus, VertexStatus};

use crate::record::Counts;

/// What a master says, as it is shown and kept.
pub(crate) fn counts(progress: &Progress) -> Counts {
    let finite = progress.metrics.iter().filter(|(_, value)| value.is_finite());
    Counts {
        rows_read: progress.rows_read,
        rows_written: progress.rows_written,
        watermark: progress.watermark,
        checkpoints_completed: progress.checkpoints_completed,
        checkpoints_failed: progress.checkpoints_failed,
        vertices: vertices(progress),
        restore: progress.restore.map(|of| RestoreStatus { restored_bytes: of.restored_bytes, bytes: of.bytes }),
        metrics: finite.map(|(name, value)| (name.clone(), *value)).collect(),
    }
}

fn vertices(progress: &Progress) -> Vec<VertexStatus> {
    let workers = progress.workers.iter().map(Some).chain(std::iter::repeat(None));
    let vertex = |(vertex, workers): (&VertexProgress, Option<&Vec<String>>)| VertexStatus {
        uid: vertex.uid.clone(),
        kind: vertex.kind.to_owned(),
        parallelism: vertex.rows_in_by_subtask.len() as u32,
        rows_in: vertex.rows_in,
        rows_out: vertex.rows_out,
        rows_rejected: vertex.rows_rejected,
        oddities: vertex.oddities.clone(),
        rows_in_by_subtask: vertex.rows_in_by_subtask.clone(),
        workers: workers.cloned().unwrap_or_default(),
        backpressured: vertex.backpressured,
        busy: vertex.busy,
    };
    progress.vertices.iter().zip(workers).map(vertex).collect()
}
