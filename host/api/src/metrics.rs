//! `/metrics`: the cluster in Prometheus' text format, version 0.0.4.
//!
//! Own code, because all that is needed is a page of text of numbers that others keep.

use std::collections::BTreeMap;
use std::fmt::Write;

use weir_model::OddKind;
use weir_protocol::api::{ClusterApi, JobDetail, JobState};

/// Content type of the page.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What a metric is.
#[derive(Clone, Copy)]
enum Kind {
    Gauge,
    /// Only grows, and begins at zero with each attempt of a job.
    Counter,
}

/// A page in the making: samples in order of their metric, as the format wants them.
#[derive(Default)]
struct Page {
    metrics: BTreeMap<&'static str, (Kind, &'static str, String)>,
}

impl Page {
    fn add(&mut self, kind: Kind, name: &'static str, help: &'static str, labels: &[(&str, &str)], value: f64) {
        let (_, _, samples) = self.metrics.entry(name).or_insert_with(|| (kind, help, String::new()));
        samples.push_str(name);
        for (index, (label, text)) in labels.iter().enumerate() {
            let start = if index == 0 { '{' } else { ',' };
            let _ = write!(samples, "{start}{label}=\"{}\"", escaped(text));
        }
        let end = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(samples, "{end} {}", number(value));
    }

    fn gauge(&mut self, name: &'static str, help: &'static str, labels: &[(&str, &str)], value: f64) {
        self.add(Kind::Gauge, name, help, labels, value);
    }

    fn counter(&mut self, name: &'static str, help: &'static str, labels: &[(&str, &str)], value: f64) {
        self.add(Kind::Counter, name, help, labels, value);
    }

    fn text(self) -> String {
        let mut text = String::new();
        for (name, (kind, help, samples)) in self.metrics {
            let kind = match kind {
                Kind::Gauge => "gauge",
                Kind::Counter => "counter",
            };
            let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{samples}");
        }
        text
    }
}

/// A label's value as the format wants it.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn number(value: f64) -> String {
    match value {
        value if value.is_nan() => "NaN".to_owned(),
        f64::INFINITY => "+Inf".to_owned(),
        f64::NEG_INFINITY => "-Inf".to_owned(),
        value => value.to_string(),
    }
}

/// The page of a cluster.
pub(crate) fn page(cluster: &dyn ClusterApi) -> String {
    let mut page = Page::default();
    let status = cluster.status();
    let version = [("version", status.version.as_str()), ("cluster", status.cluster.as_str())];
    page.gauge("weir_cluster_info", "The cluster; always 1", &version, 1.0);
    page.gauge("weir_cluster_start_time_seconds", "When the coordinator started", &[], seconds(status.started_at_ms));
    let until = seconds(status.certificate_until_ms);
    page.gauge("weir_cluster_certificate_expiry_time_seconds", "Until when the coordinator's certificate counts", &[], until);
    page.gauge("weir_cluster_workers", "Workers that are connected", &[], status.workers.into());
    page.gauge("weir_cluster_slots", "Slots of connected workers", &[], status.slots.into());
    page.gauge("weir_cluster_slots_used", "Slots in use", &[], status.slots_used.into());
    let elsewhere = status.led_elsewhere.len() as f64;
    page.gauge("weir_cluster_workers_led_elsewhere", "Workers that follow another coordinator and do not join", &[], elsewhere);
    for worker in cluster.workers() {
        let labels = [("worker", worker.name.as_str())];
        page.gauge("weir_worker_up", "Whether the worker is connected", &labels, u8::from(worker.alive).into());
        page.gauge("weir_worker_slots", "Slots it offers", &labels, worker.slots.into());
        page.gauge("weir_worker_slots_used", "Of these, slots in use", &labels, worker.slots_used.into());
        page.gauge("weir_worker_last_heard_seconds", "When it was heard last", &labels, seconds(worker.heard_at_ms));
        let skew = worker.clock_skew_ms as f64 / 1_000.0;
        page.gauge("weir_worker_clock_skew_seconds", "Its clock minus the coordinator's", &labels, skew);
        let until = seconds(worker.certificate_until_ms);
        page.gauge("weir_worker_certificate_expiry_time_seconds", "Until when its certificate counts", &labels, until);
        let stuck = worker.stuck_executions.into();
        page.gauge("weir_worker_stuck_executions", "Executions that were told to end and have not", &labels, stuck);
        let refused = worker.reports_refused as f64;
        page.gauge("weir_worker_reports_refused", "What it said of tasks that are not its own", &labels, refused);
    }
    for job in cluster.jobs() {
        // A job that was forgotten since is not there any more.
        if let Ok(detail) = cluster.job(&job.name) {
            job_metrics(&mut page, &detail);
        }
    }
    page.text()
}

fn job_metrics(page: &mut Page, detail: &JobDetail) {
    let status = &detail.status;
    let job = [("job", status.name.as_str())];
    for state in JobState::ALL {
        let labels = [job[0], ("state", &state.to_string())];
        page.gauge(
            "weir_job_state",
            "1 for the state the job is in, 0 for others",
            &labels,
            u8::from(state == status.state).into(),
        );
    }
    page.gauge("weir_job_attempt", "Number of its current or last attempt", &job, status.attempt as f64);
    page.gauge("weir_job_slots", "Slots it takes", &job, status.slots.into());
    page.counter("weir_job_restarts_total", "Attempts but for the first", &job, status.restarts as f64);
    page.counter("weir_job_rows_read_total", "Rows read by its sources in this attempt", &job, status.rows_read as f64);
    page.counter("weir_job_rows_written_total", "Rows written by its sinks in this attempt", &job, status.rows_written as f64);
    let (completed, failed) = (detail.checkpoints_completed as f64, detail.checkpoints_failed as f64);
    page.counter("weir_job_checkpoints_completed_total", "Checkpoints completed in this attempt", &job, completed);
    page.counter("weir_job_checkpoints_failed_total", "Checkpoints failed in this attempt", &job, failed);
    if let Some(last) = &status.checkpoint {
        let took = last.duration_ms as f64 / 1_000.0;
        page.gauge("weir_job_checkpoint_id", "Number of the last checkpoint", &job, last.id.0 as f64);
        page.gauge("weir_job_checkpoint_duration_seconds", "From its trigger to its manifest", &job, took);
        page.gauge("weir_job_checkpoint_bytes", "Bytes it wrote", &job, last.bytes as f64);
        page.gauge("weir_job_checkpoint_in_flight_bytes", "Of these, bytes in flight", &job, last.in_flight_bytes as f64);
        page.gauge("weir_job_checkpoint_unaligned", "Whether its barriers overtook rows", &job, u8::from(last.unaligned).into());
        page.gauge("weir_job_checkpoint_completed_seconds", "When it was complete", &job, seconds(last.completed_at_ms));
    }
    // The ends of time stand for "none yet" and "all input processed".
    if let Some(watermark) = detail.watermark.filter(|watermark| ![i64::MIN, i64::MAX].contains(watermark)) {
        page.gauge("weir_job_watermark_seconds", "Its least watermark", &job, watermark as f64 / 1_000.0);
    }
    for vertex in &detail.vertices {
        let labels = [job[0], ("vertex", vertex.uid.as_str())];
        page.gauge("weir_vertex_parallelism", "Its subtasks", &labels, vertex.parallelism.into());
        page.counter("weir_vertex_rows_in_total", "Rows in; a source: rows read", &labels, vertex.rows_in as f64);
        page.counter("weir_vertex_rows_out_total", "Rows out; a sink: rows written", &labels, vertex.rows_out as f64);
        page.counter("weir_vertex_rows_rejected_total", "Rows rejected", &labels, vertex.rows_rejected as f64);
        for kind in OddKind::ALL {
            let rows = vertex.oddities.rows(kind);
            // A counter that appears with its first row has no rise that an alert could see.
            if rows > 0 || is_usual(&vertex.kind, kind) {
                let labels = [labels[0], labels[1], ("kind", kind.name())];
                page.counter("weir_vertex_odd_rows_total", "Rows that did not go the normal way", &labels, rows as f64);
            }
        }
        page.gauge("weir_vertex_busy_ratio", "Share of time with work to do", &labels, vertex.busy);
        let waited = vertex.backpressured;
        page.gauge("weir_vertex_backpressured_ratio", "Share of time waiting for room downstream", &labels, waited);
    }
    for (name, value) in &detail.metrics {
        let labels = [job[0], ("metric", name.as_str())];
        page.gauge("weir_operator_metric", "What operators count and measure", &labels, *value);
    }
}

/// Whether vertices of a sort ("source", "operator", "sink") may have odd rows of a kind.
fn is_usual(vertex: &str, kind: OddKind) -> bool {
    match kind {
        OddKind::Rejected | OddKind::Late | OddKind::UnnamedOutput => vertex == "operator",
        OddKind::LongLine | OddKind::NoTime | OddKind::AheadOfTime | OddKind::SkippedInput => vertex == "source",
    }
}

fn seconds(at_ms: u64) -> f64 {
    at_ms as f64 / 1_000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_a_metric_stand_together_below_its_description() {
        let mut page = Page::default();
        page.gauge("b", "B", &[("job", "one\"\\\n")], 0.5);
        page.counter("a_total", "A", &[], 3.0);
        page.gauge("b", "B", &[("job", "two"), ("state", "x")], f64::INFINITY);
        assert_eq!(
            page.text(),
            "# HELP a_total A\n# TYPE a_total counter\na_total 3\n\
             # HELP b B\n# TYPE b gauge\nb{job=\"one\\\"\\\\\\n\"} 0.5\nb{job=\"two\",state=\"x\"} +Inf\n"
        );
    }
}
