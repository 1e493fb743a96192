//! The time a task goes by. A simulator has its own.

use std::sync::Arc;
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

/// Measures one piece of work after the other: the end of one is the start of the next, so that a clock is read once for each.
pub(crate) struct StopWatch {
    clock: Arc<dyn Clock>,
    last: Duration,
}

impl StopWatch {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> StopWatch {
        let last = clock.now();
        StopWatch { clock, last }
    }

    /// The time since the last lap, or since it was made.
    pub(crate) fn lap(&mut self) -> Duration {
        let now = self.clock.now();
        now.saturating_sub(std::mem::replace(&mut self.last, now))
    }

    /// When the last lap ended.
    pub(crate) fn last(&self) -> Duration {
        self.last
    }
}
