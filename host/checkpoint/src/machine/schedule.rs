//! When the next checkpoint is due, as far as time decides it.

/// Delay before a failed last checkpoint is tried again; doubles with each further failure.
const RETRY_MS_MIN: u64 = 100;
/// The longest such delay.
const RETRY_MS_MAX: u64 = 10_000;

/// Interval, pause, requests and retries.
#[derive(Clone, Debug)]
pub(super) struct Schedule {
    interval_ms: Option<u64>,
    min_pause_ms: u64,
    /// When the interval since the last start is over; `None` without interval.
    interval_over_ms: Option<u64>,
    pause_over_ms: u64,
    /// Somebody asked for a checkpoint.
    requested: bool,
    /// When the last checkpoint may be tried again.
    retry_ms: Option<u64>,
    retries: u32,
}

impl Schedule {
    pub(super) fn new(interval_ms: Option<u64>, min_pause_ms: u64, now_ms: u64) -> Schedule {
        // An interval of nothing would start checkpoints as fast as they are counted.
        let interval_ms = interval_ms.map(|interval_ms| interval_ms.max(1));
        let interval_over_ms = interval_ms.map(|interval_ms| now_ms.saturating_add(interval_ms));
        Schedule { interval_ms, min_pause_ms, interval_over_ms, pause_over_ms: 0, requested: false, retry_ms: None, retries: 0 }
    }

    /// When a checkpoint that does not end the job may start; `None`: not by time alone.
    pub(super) fn periodic_ms(&self) -> Option<u64> {
        if self.requested { Some(0) } else { self.interval_over_ms.map(|over_ms| over_ms.max(self.pause_over_ms)) }
    }

    /// When the checkpoint that ends the job may be tried again; `None`: it has not failed yet and may start now.
    pub(super) fn retry_ms(&self) -> Option<u64> {
        self.retry_ms
    }

    pub(super) fn request(&mut self) {
        self.requested = true;
    }

    pub(super) fn started(&mut self, now_ms: u64) {
        self.requested = false;
        self.interval_over_ms = self.interval_ms.map(|interval_ms| now_ms.saturating_add(interval_ms));
    }

    pub(super) fn completed(&mut self, now_ms: u64) {
        self.pause_over_ms = now_ms.saturating_add(self.min_pause_ms);
        self.retry_ms = None;
        self.retries = 0;
    }

    pub(super) fn retry_later(&mut self, now_ms: u64) {
        let delay_ms = RETRY_MS_MIN.saturating_mul(1 << self.retries.min(16)).min(RETRY_MS_MAX);
        self.retries += 1;
        self.retry_ms = Some(now_ms.saturating_add(delay_ms));
    }
}
