//! What people see, put together from what is known.

use weir_model::Oddities;
use weir_plan::VertexKind;
use weir_protocol::api::{ClusterStatus, ComponentStatus, JobDetail, JobStatus, VertexStatus, WorkerStatus};
use weir_storage::StoredComponent;

use crate::Counts;
use crate::book::Book;
use crate::elsewhere::Elsewhere;
use crate::registry::Member;
use crate::schedule::Schedule;
use crate::state::Settings;

pub(crate) fn cluster(options: &Settings, started_at_ms: u64, workers: &[WorkerStatus], elsewhere: &Elsewhere) -> ClusterStatus {
    let alive = || workers.iter().filter(|worker| worker.alive);
    ClusterStatus {
        cluster: options.cluster.clone(),
        certificate_until_ms: options.certificate_until_ms,
        version: options.version.clone(),
        started_at_ms,
        workers: alive().count() as u32,
        slots: alive().map(|worker| worker.slots).sum(),
        slots_used: alive().map(|worker| worker.slots_used).sum(),
        epoch: elsewhere.epoch(),
        succeeds: elsewhere.succeeds().to_vec(),
        led_elsewhere: elsewhere.shown(),
    }
}

pub(crate) fn worker(name: &str, member: &Member, schedule: &Schedule, reports_refused: u64) -> WorkerStatus {
    WorkerStatus {
        name: name.to_owned(),
        alive: member.link.is_some(),
        address: member.candidate.address.clone(),
        version: member.candidate.version.clone(),
        slots: member.candidate.slots,
        slots_used: schedule.used(name),
        jobs: schedule.jobs_on(name),
        since_ms: member.since.wall_ms,
        heard_at_ms: member.heard.wall_ms,
        clock_skew_ms: member.skew_ms,
        certificate_until_ms: member.certificate_until_ms,
        stuck_executions: member.stuck,
        reports_refused,
    }
}

/// A component of the store, as it is shown.
pub fn component(stored: StoredComponent) -> ComponentStatus {
    let StoredComponent { name, version, digest, size_bytes, pushed_at_ms } = stored;
    ComponentStatus { name, version, digest, size_bytes, pushed_at_ms: pushed_at_ms.unwrap_or_default() }
}

pub(crate) fn status(name: &str, book: &Book) -> JobStatus {
    let record = &book.record;
    let counts = book.counts.as_ref();
    JobStatus {
        name: name.to_owned(),
        state: record.state,
        reason: record.reason.clone(),
        attempt: record.attempt,
        restarts: record.attempts.saturating_sub(1),
        slots: record.slots,
        submitted_at_ms: record.submitted_at_ms,
        since_ms: record.since_ms,
        rows_read: counts.map_or(0, |counts| counts.rows_read),
        rows_written: counts.map_or(0, |counts| counts.rows_written),
        rows_per_second: counts.filter(|_| !record.state.is_over()).map_or(0.0, |_| book.rows_per_second),
        oddities: counts.map(odd_rows).unwrap_or_default(),
        checkpoint: book.checkpoint.clone(),
    }
}

/// The numbers of a whole job.
fn odd_rows(counts: &Counts) -> Oddities {
    let mut all = Oddities::new();
    counts.vertices.iter().for_each(|vertex| all.merge(&vertex.oddities));
    all.drop_examples();
    all
}

pub(crate) fn detail(name: &str, book: &Book, default_storage: &str) -> JobDetail {
    let counts = book.counts.as_ref();
    let job = book.record.spec.load().ok();
    let dead_letters = job.as_ref().map(weir_plan::Job::dead_letters).unwrap_or_default();
    let covered = |place: String| book.record.spec.covered(&place);
    let storage = job.as_ref().and_then(|job| job.checkpoint.storage.clone());
    JobDetail {
        status: status(name, book),
        file: book.record.spec.file.clone(),
        dead_letters: dead_letters.into_iter().map(covered).collect(),
        storage: storage.map_or_else(|| default_storage.to_owned(), covered),
        vertices: match (counts, job) {
            (Some(counts), _) => counts.vertices.clone(),
            (None, Some(job)) => job.vertices.iter().map(idle_vertex).collect(),
            (None, None) => Vec::new(),
        },
        watermark: counts.map(|counts| counts.watermark),
        checkpoints_completed: counts.map_or(0, |counts| counts.checkpoints_completed),
        checkpoints_failed: counts.map_or(0, |counts| counts.checkpoints_failed),
        metrics: counts.map(|counts| counts.metrics.clone()).unwrap_or_default(),
        restore: counts.and_then(|counts| counts.restore),
    }
}

/// A vertex that does not run.
fn idle_vertex(vertex: &weir_plan::Vertex) -> VertexStatus {
    let kind = match vertex.kind {
        VertexKind::Source(_) => "source",
        VertexKind::Operator(_) => "operator",
        VertexKind::Sink(_) => "sink",
    };
    VertexStatus {
        uid: vertex.uid.clone(),
        kind: kind.to_owned(),
        parallelism: vertex.parallelism,
        rows_in: 0,
        rows_out: 0,
        rows_rejected: 0,
        oddities: Default::default(),
        rows_in_by_subtask: vec![0; vertex.parallelism as usize],
        workers: Vec::new(),
        backpressured: 0.0,
        busy: 0.0,
    }
}
