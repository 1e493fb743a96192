//! The demo's progress on the terminal: one line that is rewritten on a terminal, a line now and then elsewhere.

use super::verdict::grouped;
use crate::progress::Progress;
use std::io::{IsTerminal, Write, stdout};
use std::time::{Duration, Instant};

/// How often a line is shown where lines cannot be rewritten.
const EVERY: Duration = Duration::from_secs(1);

pub(crate) struct Screen {
    is_terminal: bool,
    shown: Option<Instant>,
    /// The line on the terminal is not ended yet.
    is_open: bool,
}

impl Screen {
    pub(crate) fn new() -> Screen {
        Screen { is_terminal: stdout().is_terminal(), shown: None, is_open: false }
    }

    /// A message that stays.
    pub(crate) fn say(&mut self, text: &str) {
        if std::mem::take(&mut self.is_open) {
            println!();
        }
        println!("{text}");
        self.shown = None;
    }

    /// A message that the next one replaces.
    pub(crate) fn pass(&mut self, text: &str) {
        if self.is_terminal {
            print!("\r\x1b[2K{text}");
            self.is_open = true;
        } else if self.shown.is_none_or(|at| at.elapsed() >= EVERY) {
            println!("{text}");
            self.shown = Some(Instant::now());
        }
        let _ = stdout().flush();
    }

    /// A running job, of `lines` rows in all.
    pub(crate) fn progress(&mut self, progress: &Progress, lines: u64) {
        let percent = progress.rows_in * 100 / lines.max(1);
        let rate = grouped(progress.rows_per_second as u64);
        let mut text = format!(
            "  {percent:>3} %  {:>10} rows  {rate:>9} rows/s  watermark {}",
            grouped(progress.rows_in),
            clock(progress.watermark)
        );
        match &progress.checkpoint {
            Some(checkpoint) => {
                let (id, ms, kib) = (checkpoint.id, checkpoint.duration_ms, grouped(checkpoint.bytes / 1024));
                text += &format!("  checkpoint {id}: {ms} ms, {kib} KiB");
            }
            None => text += "  no checkpoint yet",
        }
        self.pass(&text);
    }
}

/// A time as `Mon 13:04:05`, UTC.
fn clock(time_ms: Option<i64>) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    // The watermarks before the first row and after the last are no times of day.
    let Some(seconds) = time_ms.map(|ms| ms.div_euclid(1_000)).filter(|s| (0..253_402_300_800).contains(s)) else {
        return "-".to_string();
    };
    let day = DAYS[(seconds / 86_400 % 7) as usize];
    format!("{day} {:02}:{:02}:{:02}", seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watermarks_are_shown_as_times_where_they_are_times() {
        assert_eq!(clock(Some(1_772_406_000_000)), "Sun 23:00:00");
        assert_eq!(
            (clock(None), clock(Some(i64::MIN)), clock(Some(i64::MAX))),
            ("-".to_string(), "-".to_string(), "-".to_string())
        );
    }
}
