//! Virtual time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use weir_task::Clock;

/// The only clock of a run. The event loop sets it; what a task's turn costs is added while the turn lasts, so a task that
/// looks at the clock twice sees time pass.
#[derive(Debug, Default)]
pub(crate) struct SimClock {
    now_us: AtomicU64,
}

impl SimClock {
    pub(crate) fn set(&self, now_us: u64) {
        self.now_us.store(now_us, Ordering::Relaxed);
    }

    /// Somebody computes for this long.
    pub(crate) fn spend(&self, us: u64) {
        self.now_us.fetch_add(us, Ordering::Relaxed);
    }

    pub(crate) fn now_us(&self) -> u64 {
        self.now_us.load(Ordering::Relaxed)
    }
}

impl Clock for SimClock {
    fn now(&self) -> Duration {
        Duration::from_micros(self.now_us())
    }

    fn wall_ms(&self) -> i64 {
        (self.now_us() / 1_000) as i64
    }
}
