//! How many rows a call should get, so that it takes about [`limits::CALL_TARGET_MS`]: a barrier waits for no more than a call.
//!
//! A call must not meet its deadline because it got many rows: a trap restarts the job from its last checkpoint, where it would
//! meet the same again. So calls begin small, a call has at most twice the rows of the one before, one that takes long is believed
//! at once, and where a call of several rows meets its deadline all the same, since its rows cost suddenly more than any before,
//! [`CallRows`] bounds those of the executions after it, until many calls within the bound went well.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use weir_model::{Batch, BatchRef, limits};

/// How much of what is faster than expected is believed.
const FASTER_SHARE: f64 = 1.0 / 4.0;

/// Rows that a call of an operator may have. Outlives executions.
#[derive(Debug)]
pub struct CallRows {
    max: AtomicUsize,
    /// Calls that had as many rows as they may, and met no deadline, since that number changed.
    went_well: AtomicUsize,
}

impl Default for CallRows {
    fn default() -> CallRows {
        CallRows { max: AtomicUsize::new(limits::FRAME_ROWS_MAX), went_well: AtomicUsize::new(0) }
    }
}

impl CallRows {
    /// Rows that a call may have at most; one at least.
    pub fn max(&self) -> usize {
        self.max.load(Ordering::Relaxed)
    }

    /// A call with this many rows has met its deadline.
    pub(crate) fn were_too_many(&self, rows: usize) {
        self.max.fetch_min((rows / limits::CALL_ROWS_DIVISOR).max(1), Ordering::Relaxed);
        self.went_well.store(0, Ordering::Relaxed);
    }

    /// A call with this many rows met no deadline. What made rows slow once may be over: after many calls at the bound, it doubles.
    pub(crate) fn were_fine(&self, rows: usize) {
        let max = self.max();
        if rows < max || max >= limits::FRAME_ROWS_MAX {
            return;
        }
        if self.went_well.fetch_add(1, Ordering::Relaxed) + 1 >= limits::CALLS_UNTIL_MORE_ROWS {
            self.went_well.store(0, Ordering::Relaxed);
            // Where another task has changed it meanwhile, that stays.
            let doubled = (2 * max).min(limits::FRAME_ROWS_MAX);
            let _ = self.max.compare_exchange(max, doubled, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

/// What was learned from the calls so far.
#[derive(Debug)]
pub(crate) struct Pace {
    /// Nanoseconds that a call should take.
    target_ns: f64,
    /// Nanoseconds a row takes.
    row_ns: f64,
    /// Rows that the next call may have: twice those of the largest call so far, and twice what is expected to fit.
    most: usize,
    /// The rows of a call that does not get all there are.
    part: Batch,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace::new(Duration::from_millis(limits::CALL_TARGET_MS))
    }
}

impl Pace {
    /// For calls that should take so long.
    pub(crate) fn new(target: Duration) -> Pace {
        let target_ns = target.as_nanos() as f64;
        Pace { target_ns, row_ns: 1_000.0, most: limits::CALL_ROWS_FIRST, part: Batch::default() }
    }

    /// Rows for the next call.
    pub(crate) fn rows_per_call(&self) -> usize {
        self.expected().clamp(1, self.most)
    }

    /// The rows for the next call, from `first` on.
    pub(crate) fn take<'a>(&'a mut self, rows: BatchRef<'a>, first: usize, max: usize) -> BatchRef<'a> {
        let count = self.rows_per_call().min(max).min(rows.len() - first);
        if count == rows.len() {
            return rows;
        }
        self.part.clear();
        self.part.extend_range(rows, first..first + count);
        self.part.view()
    }

    /// A call with this many rows took so long.
    pub(crate) fn learn(&mut self, rows: usize, took: Duration) {
        let row_ns = (took.as_nanos() as f64 / rows as f64).max(1.0);
        // Too slow is learned at once: the next call might be as much slower again. What was a hiccup is forgotten soon.
        self.row_ns = if row_ns > self.row_ns { row_ns } else { self.row_ns + (row_ns - self.row_ns) * FASTER_SHARE };
        let reach = (2 * self.expected()).max(1);
        self.most = self.most.max(2 * rows).min(reach).min(limits::FRAME_ROWS_MAX);
    }

    /// What so many rows will take.
    pub(crate) fn cost(&self, rows: usize) -> Duration {
        Duration::from_nanos((self.row_ns * rows as f64) as u64)
    }

    /// Rows that take as long as a call should.
    fn expected(&self) -> usize {
        (self.target_ns / self.row_ns) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn took(pace: &mut Pace, row: Duration) -> usize {
        let rows = pace.rows_per_call();
        pace.learn(rows, row * rows as u32);
        rows
    }

    #[test]
    fn calls_get_as_many_rows_as_fit_the_target_and_one_at_least() {
        let mut pace = Pace::default();
        (0..200).for_each(|_| pace.learn(10, Duration::from_millis(10)));
        assert_eq!(pace.rows_per_call(), 5);
        (0..200).for_each(|_| pace.learn(1, Duration::from_secs(1)));
        assert_eq!(pace.rows_per_call(), 1);
        (0..200).for_each(|_| pace.learn(pace.rows_per_call(), Duration::from_micros(1)));
        assert_eq!(pace.rows_per_call(), limits::FRAME_ROWS_MAX);
    }

    #[test]
    fn s92_calls_begin_small_and_at_most_double() {
        let mut pace = Pace::default();
        let mut before = limits::CALL_ROWS_FIRST / 2;
        let mut calls = 0;
        while before < limits::FRAME_ROWS_MAX {
            let rows = took(&mut pace, Duration::from_nanos(100));
            assert!(rows <= 2 * before, "{rows} after {before}");
            before = rows;
            calls += 1;
            assert!(calls < 60, "it gets there");
        }
    }

    #[test]
    fn s92_rows_that_cost_more_are_believed_at_once_and_a_hiccup_is_forgotten() {
        let mut pace = Pace::default();
        (0..100).for_each(|_| {
            took(&mut pace, Duration::from_nanos(100));
        });
        let many = pace.rows_per_call();
        took(&mut pace, Duration::from_millis(1));
        assert_eq!(pace.rows_per_call(), 5);
        let calls = (0..).find(|_| took(&mut pace, Duration::from_nanos(100)) == many);
        assert!(calls.is_some_and(|calls| calls < 80), "{calls:?}");
    }

    #[test]
    fn s92_the_bound_of_a_deadline_that_was_met_doubles_after_many_calls_at_it_that_went_well() {
        let known = CallRows::default();
        known.were_too_many(80);
        assert_eq!(known.max(), 80 / limits::CALL_ROWS_DIVISOR);
        let bound = known.max();
        let times = |count: usize, rows: usize| (0..count).for_each(|_| known.were_fine(rows));
        times(10 * limits::CALLS_UNTIL_MORE_ROWS, bound - 1);
        assert_eq!(known.max(), bound, "smaller calls say nothing");
        times(limits::CALLS_UNTIL_MORE_ROWS - 1, bound);
        assert_eq!(known.max(), bound);
        known.were_too_many(bound * limits::CALL_ROWS_DIVISOR);
        times(limits::CALLS_UNTIL_MORE_ROWS - 1, bound);
        assert_eq!(known.max(), bound, "another deadline, and it is counted anew");
        times(1, bound);
        assert_eq!(known.max(), 2 * bound);
        (0..40).for_each(|_| times(limits::CALLS_UNTIL_MORE_ROWS, known.max()));
        assert_eq!(known.max(), limits::FRAME_ROWS_MAX, "it gets there and no further");
    }

    #[test]
    fn s92_calls_with_few_rows_do_not_hold_larger_ones_back() {
        let mut pace = Pace::default();
        (0..100).for_each(|_| {
            took(&mut pace, Duration::from_nanos(100));
        });
        (0..100).for_each(|_| pace.learn(2, Duration::from_nanos(400)));
        assert!(pace.rows_per_call() > 10_000, "{}", pace.rows_per_call());
    }
}
