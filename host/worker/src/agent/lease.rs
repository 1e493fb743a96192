//! How long what runs here goes on without a coordinator.
//!
//! Tasks go on while a coordinator is started again. But without one no checkpoint comes, so nothing that they write is committed: a
//! sink's unfinished file grows until the disk is full. So a worker ends what it runs when no coordinator was there for
//! [`COORDINATOR_ABSENT_MS_MAX`]; the jobs go on from their last checkpoints once there is one. Owns the time only.

use std::time::{Duration, Instant};

use weir_model::limits::COORDINATOR_ABSENT_MS_MAX;

/// The time without a coordinator.
#[derive(Debug, Default)]
pub(super) struct Lease {
    since: Option<Instant>,
}

impl Lease {
    /// A coordinator that had welcomed this worker is lost.
    pub(super) fn lost(&mut self, now: Instant) {
        self.since = Some(now);
    }

    /// How long there was none, once that is too long. Said once.
    pub(super) fn is_over(&mut self, now: Instant) -> Option<Duration> {
        let absent = now.saturating_duration_since(self.since?);
        if absent < Duration::from_millis(COORDINATOR_ABSENT_MS_MAX) {
            return None;
        }
        self.since = None;
        Some(absent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_over_once_after_its_time_and_begins_anew_with_each_coordinator() {
        let (mut lease, start) = (Lease::default(), Instant::now());
        let after = |ms| start + Duration::from_millis(ms);
        assert_eq!(lease.is_over(after(u64::from(u32::MAX))), None, "nothing ran before the first coordinator");
        lease.lost(start);
        assert_eq!(lease.is_over(after(COORDINATOR_ABSENT_MS_MAX - 1)), None);
        lease.lost(after(1_000));
        assert_eq!(lease.is_over(after(COORDINATOR_ABSENT_MS_MAX)), None);
        let absent = Duration::from_millis(COORDINATOR_ABSENT_MS_MAX);
        assert_eq!(lease.is_over(after(COORDINATOR_ABSENT_MS_MAX + 1_000)), Some(absent));
        assert_eq!(lease.is_over(after(COORDINATOR_ABSENT_MS_MAX + 2_000)), None, "once");
    }
}
