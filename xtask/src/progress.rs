//! The events that `weir run --json` prints, one JSON document a line. The one place in xtask that knows their names.

use serde_json::Value;

/// What a running job last said about itself.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Progress {
    /// Milliseconds since the process started.
    pub(crate) at_ms: u64,
    pub(crate) rows_in: u64,
    pub(crate) rows_out: u64,
    pub(crate) rows_per_second: f64,
    /// Event time in milliseconds since the Unix epoch; nothing before the first row.
    pub(crate) watermark: Option<i64>,
    /// The last completed checkpoint.
    pub(crate) checkpoint: Option<Checkpoint>,
    pub(crate) pauses: Pauses,
}

/// A completed checkpoint.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Checkpoint {
    pub(crate) id: u64,
    pub(crate) duration_ms: u64,
    pub(crate) bytes: u64,
    /// Bytes of guest memory that it captured, before compression: whole pages.
    pub(crate) captured_bytes: u64,
    /// Of the bytes written, those that merged older captures.
    pub(crate) merged_bytes: u64,
    /// Of the bytes written, those that were in flight.
    pub(crate) in_flight_bytes: u64,
    /// Its barriers overtook rows.
    pub(crate) unaligned: bool,
}

/// How long checkpoints have interrupted tasks since the process started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Pauses {
    pub(crate) p50_us: u64,
    pub(crate) p99_us: u64,
    pub(crate) max_us: u64,
}

/// One line of the output.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Event {
    Progress(Progress),
    /// The last line of a run that ended by itself.
    Summary(Progress),
}

impl Event {
    /// Nothing for lines that are not ours to read.
    pub(crate) fn parse(line: &str) -> Option<Event> {
        let value: Value = serde_json::from_str(line).ok()?;
        let progress = Progress {
            at_ms: value["at_ms"].as_u64().unwrap_or_default(),
            rows_in: value["rows_in"].as_u64().unwrap_or_default(),
            rows_out: value["rows_out"].as_u64().unwrap_or_default(),
            rows_per_second: value["rows_per_second"].as_f64().unwrap_or_default(),
            watermark: value["watermark"].as_i64(),
            checkpoint: Checkpoint::parse(&value["checkpoint"]),
            pauses: Pauses::parse(&value["pauses"]),
        };
        match value["event"].as_str()? {
            "progress" => Some(Event::Progress(progress)),
            "summary" => Some(Event::Summary(progress)),
            _ => None,
        }
    }
}

impl Checkpoint {
    /// The object `checkpoint`, of a line or of the status of a job on a cluster. Nothing where there is none yet.
    pub(crate) fn parse(value: &Value) -> Option<Checkpoint> {
        let number = |key: &str| value[key].as_u64().unwrap_or_default();
        let id = value["id"].as_u64()?;
        let (duration_ms, bytes) = (number("duration_ms"), number("bytes"));
        Some(Checkpoint {
            id,
            duration_ms,
            bytes,
            captured_bytes: number("captured_bytes"),
            merged_bytes: number("merged_bytes"),
            in_flight_bytes: number("in_flight_bytes"),
            unaligned: value["unaligned"] == true,
        })
    }
}

impl Pauses {
    fn parse(value: &Value) -> Pauses {
        let number = |key: &str| value[key].as_u64().unwrap_or_default();
        Pauses { p50_us: number("p50_us"), p99_us: number("p99_us"), max_us: number("max_us") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_progress_line_is_read_with_and_without_a_checkpoint() {
        let line = r#"{"event":"progress","at_ms":7,"rows_in":5,"rows_out":3,"rows_per_second":2.5,"watermark":-1,
            "checkpoint":{"id":4,"duration_ms":12,"bytes":99,"captured_bytes":8192,"merged_bytes":1,"in_flight_bytes":5,"unaligned":true},
            "pauses":{"p50_us":1,"p99_us":2,"max_us":3}}"#;
        let Some(Event::Progress(progress)) = Event::parse(line) else { panic!("no progress in {line}") };
        assert_eq!((progress.rows_in, progress.rows_out, progress.watermark), (5, 3, Some(-1)));
        assert_eq!(
            progress.checkpoint,
            Some(Checkpoint {
                id: 4,
                duration_ms: 12,
                bytes: 99,
                captured_bytes: 8192,
                merged_bytes: 1,
                in_flight_bytes: 5,
                unaligned: true
            })
        );
        assert_eq!(progress.pauses, Pauses { p50_us: 1, p99_us: 2, max_us: 3 });
        let Some(Event::Summary(summary)) = Event::parse(r#"{"event":"summary","rows_in":9}"#) else { panic!("no summary") };
        assert_eq!((summary.rows_in, summary.checkpoint), (9, None));
    }

    #[test]
    fn other_lines_are_not_ours() {
        assert_eq!(Event::parse("started"), None);
        assert_eq!(Event::parse(r#"{"event":"restart"}"#), None);
    }
}
