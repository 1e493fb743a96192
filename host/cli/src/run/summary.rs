//! The last words about a run, and how numbers and times are written for people.

use std::time::Duration;

use weir_worker::Progress;

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

/// A moment in UTC to the second. `ms` is in milliseconds since the Unix epoch.
pub(super) fn time(ms: i64) -> String {
    let (days, second) = (ms.div_euclid(86_400_000), ms.rem_euclid(86_400_000) / 1_000);
    let (year, month, day) = civil(days);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}", second / 3_600, second / 60 % 60, second % 60)
}

/// Date of a number of days since 1970-01-01 in the Gregorian calendar (Howard Hinnant, "chrono-Compatible Low-Level Date
/// Algorithms": years begin in March, eras have 146,097 days).
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days.saturating_add(719_468);
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_times_are_for_people() {
        assert_eq!([number(0), number(999), number(1_000), number(12_345_678)], ["0", "999", "1,000", "12,345,678"]);
        assert_eq!(time(0), "1970-01-01 00:00:00");
        assert_eq!(time(951_782_400_000), "2000-02-29 00:00:00");
        assert_eq!(time(-1), "1969-12-31 23:59:59");
        assert_eq!(time(1_772_406_000_000), "2026-03-01 23:00:00");
    }
}
