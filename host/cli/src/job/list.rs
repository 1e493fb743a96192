//! `weir job ls`, `show` and `events`: the jobs of a cluster as text for people, or as the API gives them.

use weir_protocol::api::{CheckpointStatus, EventLevel, JobDetail, JobEvent, JobStatus, VertexStatus};

use crate::client::{self, Client};
use crate::failure::Failure;
use crate::global::Global;
use crate::odd;
use crate::output::{self, count, number};

pub(super) fn jobs(client: &Client, global: &Global) -> anyhow::Result<()> {
    let jobs = client.jobs().map_err(not_of_run)?;
    if global.json {
        return output::print_json(&jobs);
    }
    if jobs.is_empty() {
        global.note("the cluster has no jobs; `weir job submit FILE` gives it one");
        return Ok(());
    }
    let header = ["NAME", "STATE", "SINCE", "SLOTS", "RESTARTS", "ROWS", "ROWS/S", "CHECKPOINT"].map(str::to_owned).to_vec();
    let rows = jobs.iter().map(|job| {
        let checkpoint = job.checkpoint.as_ref().map_or_else(|| "-".to_owned(), |last| last.id.to_string());
        vec![
            job.name.clone(),
            job.state.to_string(),
            output::ago(job.since_ms),
            job.slots.to_string(),
            job.restarts.to_string(),
            number(job.rows_read),
            number(job.rows_per_second as u64),
            checkpoint,
        ]
    });
    output::print(&output::table(&std::iter::once(header).chain(rows).collect::<Vec<_>>()))
}

/// Somebody who asks a cluster that is not there may mean the jobs of this machine.
fn not_of_run(failure: Failure) -> Failure {
    if !client::is_unreachable(&failure) {
        return failure;
    }
    let known = failure.hint.as_ref().map(|hint| format!("{hint}; ")).unwrap_or_default();
    failure.hint(format!("{known}jobs of `weir run` are not listed: `weir checkpoint ls NAME` shows theirs"))
}

pub(super) fn job(client: &Client, name: &str, global: &Global) -> anyhow::Result<()> {
    let detail = client.job(name)?;
    if global.json { output::print_json(&detail) } else { output::print(&text(&detail)) }
}

pub(super) fn events(client: &Client, name: &str, global: &Global) -> anyhow::Result<()> {
    print_events(&client.events(name, 0, std::time::Duration::ZERO)?, global)
}

/// Events as lines, for people or as JSON.
pub(crate) fn print_events(events: &[JobEvent], global: &Global) -> anyhow::Result<()> {
    if global.json {
        return events.iter().try_for_each(json_line);
    }
    let lines: String = events.iter().map(|event| format!("{}\n", event_line(event))).collect();
    output::print(&lines)
}

/// An event as one line of JSON.
pub(super) fn json_line(event: &JobEvent) -> anyhow::Result<()> {
    output::print(&format!("{}\n", serde_json::to_string(event)?))
}

/// An event as one line for people.
pub(super) fn event_line(event: &JobEvent) -> String {
    let level = match event.level {
        EventLevel::Info => "",
        EventLevel::Warning => "warning: ",
        EventLevel::Error => "error: ",
    };
    let at = output::time(i64::try_from(event.at_ms).unwrap_or(i64::MAX));
    let by = event.by.as_ref().map(|by| format!(" (by {})", output::line(&by.to_string()))).unwrap_or_default();
    format!("{at}  {:21}  {level}{}{by}", output::line(&event.kind), output::line(&event.message))
}

/// The state of a job with its reason.
pub(super) fn state(status: &JobStatus) -> String {
    match &status.reason {
        Some(reason) => format!("{}: {reason}", status.state),
        None => status.state.to_string(),
    }
}

/// A checkpoint in a few words.
pub(super) fn checkpoint(last: &CheckpointStatus) -> String {
    let mut text = format!("{}: {} ms, {}", last.id, last.duration_ms, output::size(last.bytes));
    if last.in_flight_bytes > 0 {
        text += &format!(" ({} in flight)", output::size(last.in_flight_bytes));
    }
    if last.unaligned { text + ", unaligned" } else { text }
}

fn text(detail: &JobDetail) -> String {
    let JobDetail { status, vertices, .. } = detail;
    let mut text = String::new();
    let mut line = |key: &str, value: String| text.push_str(&format!("{key:12} {}\n", output::line(&value)));
    line("name", status.name.clone());
    line("state", format!("{}, {}", state(status), output::ago(status.since_ms)));
    line("attempt", format!("{}, restarted {}", status.attempt, count(status.restarts, "time")));
    line("slots", status.slots.to_string());
    line("submitted", output::ago(status.submitted_at_ms));
    line("job file", detail.file.clone());
    line("storage", detail.storage.clone());
    if !detail.dead_letters.is_empty() {
        line("dead letters", detail.dead_letters.join(", "));
    }
    let (read, written, rate) = (number(status.rows_read), number(status.rows_written), number(status.rows_per_second as u64));
    line("rows", format!("{read} read, {written} written, {rate} rows/s"));
    if let Some(odd) = odd::words(&status.oddities) {
        line("", odd);
    }
    line(
        "watermark",
        match detail.watermark {
            None | Some(i64::MIN) => "none yet".to_owned(),
            Some(i64::MAX) => "end of input".to_owned(),
            Some(watermark) => output::time(watermark),
        },
    );
    let last = status
        .checkpoint
        .as_ref()
        .map_or_else(|| "none yet".to_owned(), |last| format!("{}, {}", checkpoint(last), output::ago(last.completed_at_ms)));
    line("checkpoint", last);
    line("", format!("{} completed, {} failed in this attempt", detail.checkpoints_completed, detail.checkpoints_failed));
    if let Some(restore) = &detail.restore {
        let (done, all) = (output::size(restore.restored_bytes), output::size(restore.bytes));
        line("restore", format!("{done} of {all} of the state are with its tasks, which run meanwhile"));
    }
    if !vertices.is_empty() {
        let header = ["VERTEX", "KIND", "SUBTASKS", "ROWS IN", "ROWS OUT", "REJECTED", "BUSY", "WAITING", "WORKERS"]
            .map(str::to_owned)
            .to_vec();
        let rows: Vec<Vec<String>> = std::iter::once(header).chain(vertices.iter().map(vertex)).collect();
        text.push_str(&format!("\n{}", output::table(&rows)));
    }
    let odd = odd::details(vertices.iter().map(|vertex| (vertex.uid.as_str(), &vertex.oddities)), None);
    if !odd.is_empty() {
        text.push_str(&format!("\n{odd}"));
    }
    if !detail.metrics.is_empty() {
        let rows: Vec<Vec<String>> = detail.metrics.iter().map(|(name, value)| vec![name.clone(), value.to_string()]).collect();
        text.push_str(&format!("\n{}", output::table(&rows)));
    }
    text
}

fn vertex(vertex: &VertexStatus) -> Vec<String> {
    let percent = |share: f64| format!("{:.0} %", share * 100.0);
    let mut workers: Vec<&str> = vertex.workers.iter().map(String::as_str).collect();
    workers.sort_unstable();
    workers.dedup();
    vec![
        vertex.uid.clone(),
        vertex.kind.clone(),
        vertex.parallelism.to_string(),
        number(vertex.rows_in),
        number(vertex.rows_out),
        number(vertex.rows_rejected),
        percent(vertex.busy),
        percent(vertex.backpressured),
        workers.join(", "),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_model::CheckpointId;

    #[test]
    fn odd_rows_are_shown_with_their_first_and_where_dead_letters_are() {
        let mut oddities = weir_model::Oddities::new();
        oddities.add_rows(weir_model::OddKind::Rejected, 1_200, || weir_model::OddExample::new(b"a row", "no log line"));
        let vertex = serde_json::json!({
            "uid": "parse", "kind": "operator", "parallelism": 1, "rows_in": 5_000, "rows_out": 3_800, "rows_rejected": 1_200,
            "oddities": oddities, "rows_in_by_subtask": [5_000], "workers": ["w"], "backpressured": 0.0, "busy": 0.5,
        });
        let status = serde_json::json!({
            "name": "j", "state": "running", "reason": null, "attempt": 1, "restarts": 0, "slots": 1, "submitted_at_ms": 1, "since_ms": 1,
            "rows_read": 5_000, "rows_written": 3_800, "rows_per_second": 10.0, "oddities": oddities, "checkpoint": null,
        });
        let detail = serde_json::json!({
            "status": status, "file": "/j.toml", "storage": "/s", "dead_letters": ["/d"], "vertices": [vertex], "watermark": null,
            "checkpoints_completed": 0, "checkpoints_failed": 0, "metrics": {},
        });
        let shown = text(&serde_json::from_value(detail).unwrap());
        for line in
            ["dead letters /d", "             1,200 rejected", "parse: 1,200 rejected; the first: no log line", "    a row"]
        {
            assert!(shown.lines().any(|shown| shown == line), "{line:?} is not in\n{shown}");
        }
    }

    #[test]
    fn events_and_checkpoints_are_one_line_each() {
        let mut event = JobEvent {
            number: 1,
            at_ms: 1_772_406_000_000,
            level: EventLevel::Warning,
            kind: "worker-lost".to_owned(),
            message: "worker w2 is gone".to_owned(),
            by: None,
        };
        assert_eq!(event_line(&event), "2026-03-01T23:00:00Z  worker-lost            warning: worker w2 is gone");
        event.by = Some(weir_protocol::access::Person::Token("ci".to_owned()));
        assert!(event_line(&event).ends_with("is gone (by token ci)"));
        let mut last = CheckpointStatus {
            id: CheckpointId(7),
            duration_ms: 40,
            bytes: 2048,
            in_flight_bytes: 0,
            unaligned: false,
            completed_at_ms: 0,
        };
        assert_eq!(checkpoint(&last), "7: 40 ms, 2.0 KiB");
        (last.in_flight_bytes, last.unaligned) = (1024, true);
        assert_eq!(checkpoint(&last), "7: 40 ms, 2.0 KiB (1.0 KiB in flight), unaligned");
    }
}
