//! The time a task goes by. A simulator has its own.

use std::time::{Duration, Instant, SystemTime};

/// A clock that never goes back.
pub trait Clock: Send + Sync {
    /// Time since any fixed start.
    fn now(&self) -> Duration;

    /// The time of day, in milliseconds since 1970. May go back. Only rows are compared with it, never what another machine says.
    fn wall_ms(&self) -> i64 {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    }
}

/// The machine's monotonic clock.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    start: Instant,
}

impl Default for SystemClock {
    fn default() -> SystemClock {
        SystemClock { start: Instant::now() }
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Duration {
        self.start.elapsed()
    }
}
