//! `weir run --json`: one JSON document a line on standard output.
//!
//! Times are in milliseconds unless the name says otherwise. `at_ms` counts from the start of the process.

use std::time::Instant;

use serde_json::{Value, json};
use weir_coordinator::{CheckpointProgress, Notice, Progress, VertexProgress};
use weir_model::{CheckpointId, Timestamp, WATERMARK_END, WATERMARK_START};
use weir_plan::Job;
use weir_worker::ConnectorLine;

use crate::output;

/// Prints lines.
pub(super) struct Lines {
    job: String,
    letters: Vec<String>,
    started: Instant,
}

impl Lines {
    /// `letters` says where rejected rows go.
    pub(super) fn new(job: &Job, letters: &[String]) -> Lines {
        Lines { job: job.name.clone(), letters: letters.to_vec(), started: Instant::now() }
    }

    fn line(&self, event: &str, mut fields: Value) {
        fields["event"] = event.into();
        fields["at_ms"] = (self.started.elapsed().as_millis() as u64).into();
        // A reader that has gone away is no reason to stop the job.
        let _ = output::print(&format!("{fields}\n"));
    }

    pub(super) fn begin(&self, connectors: &[ConnectorLine], tracking: &str) {
        let connectors: Vec<Value> = connectors
            .iter()
            .map(|line| json!({ "id": line.uid, "description": line.description, "promise": line.promise }))
            .collect();
        self.line(
            "job",
            json!({ "job": self.job, "page_tracking": tracking, "connectors": connectors, "dead_letters": self.letters }),
        );
    }

    pub(super) fn notice(&self, notice: &Notice) {
        match notice {
            Notice::Started { attempt, from } => {
                self.line("started", json!({ "attempt": attempt.0, "from_checkpoint": from.map(|checkpoint| checkpoint.0) }));
            }
            Notice::MoreInput { checkpoint, found, event_time_max } => {
                let fields = json!({ "checkpoint": checkpoint.0, "found": by_source(found), "event_time_max": event_time_max });
                self.line("more_input", fields);
            }
            Notice::FellBack { checkpoint, reason } => {
                self.line("fell_back", json!({ "checkpoint": checkpoint.0, "reason": reason }));
            }
            Notice::Progress(progress) => self.line("progress", fields(progress)),
            Notice::Completed { checkpoint, duration, bytes, in_flight_bytes, unaligned } => {
                let duration_ms = duration.as_secs_f64() * 1e3;
                let fields = json!({
                    "checkpoint": checkpoint.0, "duration_ms": duration_ms, "bytes": bytes, "in_flight_bytes": in_flight_bytes,
                    "unaligned": unaligned,
                });
                self.line("checkpoint_completed", fields);
            }
            Notice::CheckpointFailed { checkpoint, reason } => {
                self.line("checkpoint_failed", json!({ "checkpoint": checkpoint.0, "reason": reason }));
            }
            Notice::Restarting { reason, delay } => {
                self.line("restarting", json!({ "reason": reason, "delay_ms": delay.as_millis() as u64 }));
            }
            Notice::SlowStep { step, waited, .. } => {
                self.line("slow_step", json!({ "message": step, "waited_ms": waited.as_millis() as u64 }));
            }
            Notice::SlowStorage { what, place, waited } => {
                self.line("slow_storage", json!({ "waits_for": what, "place": place, "waited_ms": waited.as_millis() as u64 }));
            }
            Notice::SlowCommit { sinks, waited, .. } => {
                self.line("slow_commit", json!({ "sinks": sinks, "waited_ms": waited.as_millis() as u64 }));
            }
            Notice::OddRows { message } => self.line("odd_rows", json!({ "message": message })),
            Notice::Stopping => self.line("stopping", json!({})),
            Notice::WaitsForRestore { what, checkpoint, restore } => {
                let (restored_bytes, bytes) = (restore.restored_bytes, restore.bytes);
                let fields =
                    json!({ "waits": what, "checkpoint": checkpoint.0, "restored_bytes": restored_bytes, "bytes": bytes });
                self.line("restoring", fields);
            }
            Notice::Restored { checkpoint } => self.line("restored", json!({ "checkpoint": checkpoint.0 })),
            // Of a cluster; a process alone has one worker, and slots for everyone.
            Notice::Waiting(_)
            | Notice::Deploying { .. }
            | Notice::TakenOver { .. }
            | Notice::WorkerLost { .. }
            | Notice::Ending { .. }
            | Notice::SlowEnd { .. }
            | Notice::NotRecorded { .. }
            | Notice::Rescaling { .. }
            | Notice::RescaleRefused { .. } => {}
        }
    }

    pub(super) fn summary(&self, how: &str, progress: Option<&Progress>) -> anyhow::Result<()> {
        let mut fields = progress.map_or_else(|| json!({}), fields);
        fields["outcome"] = how.into();
        self.line("summary", fields);
        Ok(())
    }

    pub(super) fn already_finished(
        &self,
        checkpoint: CheckpointId,
        at_ms: u64,
        looked_at: &[(String, String)],
    ) -> anyhow::Result<()> {
        self.line(
            "summary",
            json!({
                "outcome": "already_finished",
                "checkpoint_id": checkpoint.0,
                "finished_at_unix_ms": at_ms,
                "looked_at": by_source(looked_at),
            }),
        );
        Ok(())
    }
}

/// What sources say, by their uid.
fn by_source(said: &[(String, String)]) -> Value {
    said.iter().map(|(uid, what)| (uid.clone(), Value::from(what.as_str()))).collect::<serde_json::Map<_, _>>().into()
}

fn fields(progress: &Progress) -> Value {
    json!({
        "attempt": progress.attempt.0,
        "running_ms": progress.running.as_millis() as u64,
        "rows_in": progress.rows_read,
        "rows_out": progress.rows_written,
        "rows_per_second": progress.rows_per_second.round(),
        "watermark": watermark(progress.watermark),
        "checkpoint": progress.checkpoint.as_ref().map(|last| checkpoint(last, progress)),
        "checkpoints_completed": progress.checkpoints_completed,
        "checkpoints_failed": progress.checkpoints_failed,
        "pauses": {
            "p50_us": progress.pauses.p50.as_micros() as u64,
            "p99_us": progress.pauses.p99.as_micros() as u64,
            "max_us": progress.pauses.max.as_micros() as u64,
        },
        "vertices": progress.vertices.iter().map(vertex).collect::<Vec<_>>(),
        "metrics": progress.metrics,
        "restore": progress.restore.map(|of| json!({ "restored_bytes": of.restored_bytes, "bytes": of.bytes })),
    })
}

fn checkpoint(last: &CheckpointProgress, progress: &Progress) -> Value {
    json!({
        "id": last.id,
        "duration_ms": last.duration.as_millis() as u64,
        "bytes": last.bytes,
        "captured_bytes": last.captured_bytes,
        "merged_bytes": last.merged_bytes,
        "in_flight_bytes": last.in_flight_bytes,
        "unaligned": last.unaligned,
        "pause_us_max": progress.pauses.max.as_micros() as u64,
    })
}

fn vertex(vertex: &VertexProgress) -> Value {
    json!({
        "id": vertex.uid,
        "kind": vertex.kind,
        "rows_in": vertex.rows_in,
        "rows_out": vertex.rows_out,
        "rows_rejected": vertex.rows_rejected,
        "oddities": vertex.oddities,
        "rows_in_by_subtask": vertex.rows_in_by_subtask,
        "backpressured": vertex.backpressured,
        "busy": vertex.busy,
    })
}

/// Event time in milliseconds since the Unix epoch; null before the first row, "end" after the last.
fn watermark(watermark: Timestamp) -> Value {
    match watermark {
        WATERMARK_START => Value::Null,
        WATERMARK_END => "end".into(),
        time => time.into(),
    }
}
