//! How many rows a call should get, so that it takes about [`limits::CALL_TARGET_MS`]: a barrier waits for no more than a call.

use std::time::Duration;

use weir_model::{Batch, BatchRef, limits};

/// What was learned from the calls so far.
#[derive(Debug)]
pub(crate) struct Pace {
    /// Nanoseconds a row takes.
    row_ns: f64,
    /// The rows of a call that does not get all there are.
    part: Batch,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace { row_ns: 1_000.0, part: Batch::default() }
    }
}

impl Pace {
    /// Rows for the next call.
    pub(crate) fn rows_per_call(&self) -> usize {
        let target_ns = (limits::CALL_TARGET_MS * 1_000_000) as f64;
        (target_ns / self.row_ns).clamp(1.0, limits::FRAME_ROWS_MAX as f64) as usize
    }

    /// The rows for the next call, from `first` on.
    pub(crate) fn take<'a>(&'a mut self, rows: BatchRef<'a>, first: usize) -> BatchRef<'a> {
        let count = self.rows_per_call().min(rows.len() - first);
        if count == rows.len() {
            return rows;
        }
        self.part.clear();
        self.part.extend_range(rows, first..first + count);
        self.part.view()
    }

    /// A call with this many rows took so long.
    pub(crate) fn learn(&mut self, rows: usize, took: Duration) {
        let row_ns = took.as_nanos() as f64 / rows as f64;
        self.row_ns += (row_ns.max(1.0) - self.row_ns) / 8.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_get_as_many_rows_as_fit_the_target_and_one_at_least() {
        let mut pace = Pace::default();
        (0..200).for_each(|_| pace.learn(10, Duration::from_millis(10)));
        assert_eq!(pace.rows_per_call(), 5);
        (0..200).for_each(|_| pace.learn(1, Duration::from_secs(1)));
        assert_eq!(pace.rows_per_call(), 1);
        (0..200).for_each(|_| pace.learn(10_000, Duration::from_micros(1)));
        assert_eq!(pace.rows_per_call(), limits::FRAME_ROWS_MAX);
    }
}
