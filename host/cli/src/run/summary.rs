//! The last words about a run, and how numbers and times are written for people.

use std::time::Duration;

use weir_coordinator::Progress;

use crate::output;

/// What a run did.
pub(super) fn text(job: &str, how: &str, progress: &Progress, took: Duration) -> String {
    let seconds = progress.running.as_secs_f64().max(1e-3);
    let mut text = format!(
        "{job}: {how} after {:.1} s; {} rows read, {} written, {} rows/s\n",
        took.as_secs_f64(),
        number(progress.rows_read),
        number(progress.rows_written),
        number((progress.rows_read as f64 / seconds) as u64),
    );
    if let Some(last) = &progress.checkpoint {
        text += &format!(
            "{} checkpoints, {} failed; the last is {} ({}); tasks paused for {:.1?} at most\n",
            progress.checkpoints_completed,
            progress.checkpoints_failed,
            last.id,
            output::size(last.bytes),
            progress.pauses.max,
        );
    }
    let header = ["", "ROWS IN", "ROWS OUT", "REJECTED"].map(str::to_owned).to_vec();
    let rows = progress
        .vertices
        .iter()
        .map(|vertex| vec![vertex.uid.clone(), number(vertex.rows_in), number(vertex.rows_out), number(vertex.rows_rejected)]);
    text + &output::table(&std::iter::once(header).chain(rows).collect::<Vec<_>>())
}

/// A number with its thousands set apart: 1,234,567.
pub(super) fn number(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A moment in UTC to the second: `2026-03-02T08:04:59Z`. `ms` is in milliseconds since the Unix epoch.
pub(super) fn time(ms: i64) -> String {
    let mut text = Vec::new();
    weir_connectors::write_rfc3339(ms, &mut text);
    let text = String::from_utf8_lossy(&text);
    text.split_once('.').map_or_else(|| text.to_string(), |(seconds, _)| format!("{seconds}Z"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_times_are_for_people() {
        assert_eq!([number(0), number(999), number(1_000), number(12_345_678)], ["0", "999", "1,000", "12,345,678"]);
        assert_eq!(time(0), "1970-01-01T00:00:00Z");
        assert_eq!(time(-1), "1969-12-31T23:59:59Z");
        assert_eq!(time(1_772_406_000_000), "2026-03-01T23:00:00Z");
    }
}
