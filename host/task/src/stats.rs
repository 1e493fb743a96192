//! What a task counts while it runs, read by others at any time. Plain atomics, written by one thread.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use weir_model::{Timestamp, WATERMARK_START};

use crate::odd_stats::OddStats;

/// Counts of one subtask of a vertex.
#[derive(Debug, Default)]
pub struct VertexStats {
    /// Rows that came in (for a source: rows read).
    pub rows_in: AtomicU64,
    /// Rows that went out on any port (for a sink: rows written).
    pub rows_out: AtomicU64,
    /// Rows that did not go the normal way.
    pub odd: OddStats,
}

/// Counts of one task.
#[derive(Debug)]
pub struct TaskStats {
    watermark: AtomicI64,
    /// Nanoseconds the task had work to do.
    busy_ns: AtomicU64,
    /// Nanoseconds it waited for room downstream.
    backpressured_ns: AtomicU64,
    /// Interruptions of the data path by checkpoints.
    pub pauses: Histogram,
}

impl Default for TaskStats {
    fn default() -> TaskStats {
        TaskStats {
            watermark: AtomicI64::new(WATERMARK_START),
            busy_ns: AtomicU64::new(0),
            backpressured_ns: AtomicU64::new(0),
            pauses: Histogram::default(),
        }
    }
}

/// Adds rows to a counter that one thread writes: a load and a store are enough then, and cheaper than a locked addition.
pub(crate) fn add(counter: &AtomicU64, rows: usize) {
    counter.store(counter.load(Ordering::Relaxed) + rows as u64, Ordering::Relaxed);
}

impl TaskStats {
    /// The task's watermark.
    pub fn watermark(&self) -> Timestamp {
        self.watermark.load(Ordering::Relaxed)
    }

    /// Time the task had work to do.
    pub fn busy(&self) -> Duration {
        Duration::from_nanos(self.busy_ns.load(Ordering::Relaxed))
    }

    /// Time the task waited for room downstream.
    pub fn backpressured(&self) -> Duration {
        Duration::from_nanos(self.backpressured_ns.load(Ordering::Relaxed))
    }

    pub(crate) fn set_watermark(&self, watermark: Timestamp) {
        self.watermark.store(watermark, Ordering::Relaxed);
    }

    pub(crate) fn add_busy(&self, time: Duration) {
        self.busy_ns.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    }

    pub(crate) fn add_backpressured(&self, time: Duration) {
        self.backpressured_ns.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    }
}

/// Buckets per doubling.
const STEPS: u32 = 4;
const BUCKETS: usize = 40 * STEPS as usize;

/// Counts of durations in buckets a quarter of a doubling wide, so a quantile is exact to 19 %.
#[derive(Debug)]
pub struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    max_ns: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { buckets: std::array::from_fn(|_| AtomicU64::new(0)), max_ns: AtomicU64::new(0) }
    }
}

impl Histogram {
    /// Adds a duration.
    pub fn record(&self, duration: Duration) {
        let ns = duration.as_nanos() as u64;
        self.buckets[Histogram::bucket(ns)].fetch_add(1, Ordering::Relaxed);
        self.max_ns.fetch_max(ns, Ordering::Relaxed);
    }

    /// The longest duration.
    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.max_ns.load(Ordering::Relaxed))
    }

    /// Upper bound in nanoseconds and count of every bucket that is not empty, ascending.
    pub fn buckets(&self) -> Vec<(u64, u64)> {
        let counts = self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).enumerate();
        counts.filter(|(_, count)| *count > 0).map(|(bucket, count)| (Histogram::bound_ns(bucket), count)).collect()
    }

    fn bound_ns(bucket: usize) -> u64 {
        2f64.powf((bucket + 1) as f64 / f64::from(STEPS)) as u64
    }

    fn bucket(ns: u64) -> usize {
        let bucket = (ns.max(1) as f64).log2() * f64::from(STEPS);
        (bucket as usize).min(BUCKETS - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_model::quantile;

    #[test]
    fn quantiles_bound_what_was_recorded() {
        let histogram = Histogram::default();
        let found_ns = |q| quantile(&histogram.buckets(), histogram.max().as_nanos() as u64, q);
        assert_eq!(found_ns(0.5), 0);
        (1..=1_000).for_each(|us| histogram.record(Duration::from_micros(us)));
        for (q, exact) in [(0.5, 500.0), (0.99, 990.0), (1.0, 1_000.0)] {
            let found = (found_ns(q) / 1_000) as f64;
            assert!(found >= exact * 0.99 && found <= exact * 1.2, "{q}: {found}");
        }
        assert_eq!(histogram.max(), Duration::from_millis(1));
    }
}
