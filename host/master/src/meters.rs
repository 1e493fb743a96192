//! How far a job is, put together from what its workers say.

use std::collections::BTreeMap;
use std::time::Duration;

use weir_model::{Attempt, Oddities, TaskId, WATERMARK_START, quantile};
use weir_plan::{Job, Port, Topology, VertexKind};
use weir_protocol::{Placement, TaskProgress, VertexCounts, WorkerProgress};

use crate::{CheckpointProgress, Pauses, Progress, RestoreProgress, VertexProgress};

/// What the master knows of checkpoints.
#[derive(Clone, Copy, Debug, Default)]
pub struct CheckpointCounts {
    /// The last that was completed.
    pub last: Option<CheckpointProgress>,
    /// How many were completed.
    pub completed: u64,
    /// How many failed.
    pub failed: u64,
}

/// Busy and backpressured nanoseconds of a task.
type Times = (u64, u64);

/// The counts of an execution.
pub struct Meters {
    attempt: Attempt,
    started_ms: u64,
    /// By worker, what it has said so far.
    workers: BTreeMap<String, WorkerProgress>,
    /// When progress was read last, and what it said.
    last: (u64, u64, BTreeMap<TaskId, Times>),
}

impl Meters {
    /// An execution that begins, or is taken over, now.
    pub fn new(attempt: Attempt, now_ms: u64) -> Meters {
        Meters { attempt, started_ms: now_ms, workers: BTreeMap::new(), last: (now_ms, 0, BTreeMap::new()) }
    }

    /// A worker has said how far it is, or a part of that.
    pub fn hear(&mut self, worker: &str, progress: WorkerProgress) {
        match self.workers.get_mut(worker) {
            Some(said) => said.merge(progress),
            None => drop(self.workers.insert(worker.to_owned(), progress)),
        }
    }

    /// Puts everything together. Shares and rates are since the last time.
    pub fn read(
        &mut self,
        now_ms: u64,
        job: &Job,
        topology: &Topology,
        placement: &Placement,
        checkpoints: CheckpointCounts,
    ) -> Progress {
        let tasks: BTreeMap<TaskId, &TaskProgress> =
            self.workers.values().flat_map(|worker| &worker.tasks).map(|task| (task.task, task)).collect();
        let passed = Duration::from_millis(now_ms.saturating_sub(self.last.0));
        let vertex = |index: usize| self.vertex(index, job, topology, &tasks, passed);
        let vertices: Vec<VertexProgress> = (0..job.vertices.len()).map(vertex).collect();
        let rows_read: u64 = vertices.iter().filter(|vertex| vertex.kind == "source").map(|vertex| vertex.rows_in).sum();
        // Dead letters are no output: rows that were put aside are counted as rejected.
        let is_output = |(index, vertex): &(usize, &VertexProgress)| vertex.kind == "sink" && !takes_letters_only(job, *index);
        let rows_written = vertices.iter().enumerate().filter(is_output).map(|(_, vertex)| vertex.rows_out).sum();
        let rows_per_second = rows_read.saturating_sub(self.last.1) as f64 / passed.as_secs_f64().max(1e-3);
        let workers_of = |vertex: &usize| {
            let chain = topology.chain_of(*vertex);
            let subtasks = 0..topology.chains()[chain].parallelism;
            subtasks.map(|subtask| placement.worker_of(topology.task(chain, subtask)).worker.clone()).collect()
        };
        // What has reached the ends: gates leave out what is idle, which the watermark of a source cannot.
        let at_end = |task: &&TaskProgress| {
            let chain = &topology.chains()[topology.locate(task.task).0];
            chain.vertices.iter().any(|&vertex| matches!(job.vertices[vertex].kind, VertexKind::Sink(_)))
        };
        let all = || tasks.values().copied().filter(at_end).map(|task| task.watermark);
        let watermark = if tasks.len() < topology.tasks() { None } else { all().min() };
        let progress = Progress {
            attempt: self.attempt,
            running: Duration::from_millis(now_ms.saturating_sub(self.started_ms)),
            workers: (0..job.vertices.len()).map(|vertex| workers_of(&vertex)).collect(),
            vertices,
            rows_read,
            rows_written,
            rows_per_second,
            watermark: watermark.unwrap_or(WATERMARK_START),
            checkpoint: checkpoints.last,
            checkpoints_completed: checkpoints.completed,
            checkpoints_failed: checkpoints.failed,
            pauses: pauses(tasks.values().copied()),
            metrics: self.metrics(),
            restore: None,
        };
        let times = tasks.values().map(|task| (task.task, (task.busy_ns, task.backpressured_ns))).collect();
        self.last = (now_ms, rows_read, times);
        progress
    }

    /// How much of the checkpoint's state is with tasks, as far as workers have said.
    pub fn restore(&self) -> RestoreProgress {
        let sum = |bytes: fn(&WorkerProgress) -> u64| self.workers.values().map(bytes).fold(0, u64::saturating_add);
        RestoreProgress { restored_bytes: sum(|worker| worker.restored_bytes), bytes: sum(|worker| worker.restore_bytes) }
    }

    fn metrics(&self) -> BTreeMap<String, f64> {
        let mut metrics: BTreeMap<String, f64> = BTreeMap::new();
        for worker in self.workers.values() {
            worker.counters.iter().for_each(|(name, value)| *metrics.entry(name.clone()).or_default() += *value as f64);
            for (name, value) in &worker.gauges {
                let held = metrics.entry(name.clone()).or_insert(*value);
                *held = held.max(*value);
            }
        }
        metrics
    }

    fn oddities(&self, uid: &str) -> Oddities {
        let mut all = Oddities::new();
        self.workers.values().filter_map(|worker| worker.oddities.get(uid)).for_each(|odd| all.merge(odd));
        all
    }

    fn vertex(
        &self,
        index: usize,
        job: &Job,
        topology: &Topology,
        tasks: &BTreeMap<TaskId, &TaskProgress>,
        passed: Duration,
    ) -> VertexProgress {
        let vertex = &job.vertices[index];
        let chain = topology.chain_of(index);
        let position = topology.chains()[chain].vertices.iter().position(|member| *member == index).unwrap_or(0);
        let of_subtasks: Vec<Option<&TaskProgress>> =
            (0..vertex.parallelism).map(|subtask| tasks.get(&topology.task(chain, subtask)).copied()).collect();
        let counts: Vec<VertexCounts> = of_subtasks
            .iter()
            .map(|task| task.and_then(|task| task.vertices.get(position)).copied().unwrap_or_default())
            .collect();
        let share = |time: fn(Times) -> u64| {
            let spent = |task: &&TaskProgress| {
                let before = self.last.2.get(&task.task).copied().unwrap_or_default();
                time((task.busy_ns, task.backpressured_ns)).saturating_sub(time(before))
            };
            let total: u64 = of_subtasks.iter().flatten().map(spent).sum();
            (total as f64 / (passed.as_nanos() as f64 * f64::from(vertex.parallelism)).max(1.0)).min(1.0)
        };
        VertexProgress {
            uid: vertex.uid.clone(),
            kind: match vertex.kind {
                VertexKind::Source(_) => "source",
                VertexKind::Operator(_) => "operator",
                VertexKind::Sink(_) => "sink",
            },
            rows_in: counts.iter().map(|counts| counts.rows_in).sum(),
            rows_out: counts.iter().map(|counts| counts.rows_out).sum(),
            rows_rejected: counts.iter().map(|counts| counts.rows_rejected).sum(),
            oddities: self.oddities(&vertex.uid),
            rows_in_by_subtask: counts.iter().map(|counts| counts.rows_in).collect(),
            backpressured: share(|(_, backpressured)| backpressured),
            busy: share(|(busy, _)| busy),
        }
    }
}

/// Whether a vertex reads nothing but dead letters.
fn takes_letters_only(job: &Job, vertex: usize) -> bool {
    let mut inputs = job.edges.iter().filter(|edge| edge.to == vertex).peekable();
    inputs.peek().is_some() && inputs.all(|edge| edge.port == Port::DeadLetter)
}

fn pauses<'a>(tasks: impl Iterator<Item = &'a TaskProgress>) -> Pauses {
    let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
    let mut max_ns = 0;
    for task in tasks {
        max_ns = max_ns.max(task.pause_max_ns);
        task.pauses.iter().for_each(|(bound, count)| *counts.entry(*bound).or_default() += count);
    }
    let counts: Vec<(u64, u64)> = counts.into_iter().collect();
    let quantile = |q| Duration::from_nanos(quantile(&counts, max_ns, q));
    Pauses { p50: quantile(0.5), p99: quantile(0.99), max: Duration::from_nanos(max_ns) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    #[test]
    fn a_sink_of_dead_letters_writes_no_output_and_one_of_both_does() {
        let text = r#"
            [job]
            name = "j"
            [[source]]
            id = "log"
            connector = "file"
            path = "in"
            [[operator]]
            id = "parse"
            component = "parse@1.2.0"
            input = "log"
            [[sink]]
            id = "out"
            connector = "file"
            path = "out"
            input = "parse"
            [[sink]]
            id = "bad"
            connector = "file"
            path = "bad"
            input = "dead_letter"
            [[sink]]
            id = "all"
            connector = "file"
            path = "all"
            input = { from = ["parse", "dead_letter"] }
        "#;
        let job = weir_plan::load("j.toml", text, &[], &|_| None, &weir_plan::plain).unwrap();
        let letters = |uid| takes_letters_only(&job, job.vertex(uid).unwrap());
        assert_eq!(["out", "bad", "all"].map(letters), [false, true, false]);
    }
}
