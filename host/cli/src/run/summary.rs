//! The last words about a run.

use std::time::Duration;

use weir_coordinator::Progress;

use crate::odd;
use crate::output::{self, count, number};

/// What a run did. `letters` says where rejected rows are.
pub(super) fn text(job: &str, how: &str, progress: &Progress, took: Duration, letters: Option<&str>) -> String {
    let seconds = progress.running.as_secs_f64().max(1e-3);
    let mut text = format!(
        "{job}: {how} after {:.1} s; {} read, {} written, {} rows/s\n",
        took.as_secs_f64(),
        count(progress.rows_read, "row"),
        number(progress.rows_written),
        number((progress.rows_read as f64 / seconds) as u64),
    );
    if let Some(last) = &progress.checkpoint {
        text += &format!(
            "{}, {} failed; the last is {} ({}); tasks paused for {:.1?} at most\n",
            count(progress.checkpoints_completed, "checkpoint"),
            number(progress.checkpoints_failed),
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
    text += &output::table(&std::iter::once(header).chain(rows).collect::<Vec<_>>());
    text + &self::odd(progress, letters)
}

/// What did not go the normal way; nothing where all did. `letters` says where rejected rows are.
pub(super) fn odd(progress: &Progress, letters: Option<&str>) -> String {
    odd::details(progress.vertices.iter().map(|vertex| (vertex.uid.as_str(), &vertex.oddities)), letters)
}
