//! How one thread wakes another: a task waits on its own signal, and whoever has something for it notifies.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// Whoever may have to be told that a channel has something, or has room again. Called by any thread, at any time, also
/// without a reason; must return at once.
pub trait Wake: Send + Sync + std::fmt::Debug {
    /// Makes it look.
    fn wake(&self);
}

const EMPTY: u8 = 0;
const WAITING: u8 = 1;
const NOTIFIED: u8 = 2;

/// A wake-up that is never lost: a notification that comes before the wait ends it at once. One thread waits, any may
/// notify. A notification of a thread that does not wait costs one atomic swap.
#[derive(Debug, Default)]
pub struct Signal {
    state: AtomicU8,
    mutex: Mutex<()>,
    condition: Condvar,
}

impl Signal {
    /// Wakes the waiting thread, or makes its next wait return at once.
    pub fn notify(&self) {
        if self.state.swap(NOTIFIED, Ordering::AcqRel) == WAITING {
            // The lock makes sure that the waiter either has not looked yet or is in the wait.
            drop(self.mutex.lock());
            self.condition.notify_one();
        }
    }

    /// Waits for a notification, at most until `timeout` has passed.
    pub fn wait(&self, timeout: Option<Duration>) {
        if self.state.compare_exchange(EMPTY, WAITING, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            let deadline = timeout.map(|timeout| Instant::now() + timeout);
            let mut guard = self.mutex.lock();
            while self.state.load(Ordering::Acquire) == WAITING {
                match deadline {
                    Some(deadline) if self.condition.wait_until(&mut guard, deadline).timed_out() => break,
                    Some(_) => {}
                    None => self.condition.wait(&mut guard),
                }
            }
        }
        // A swap, not a store: it orders what the caller looks at next after this, and reads the notification that it takes
        // away. With a store, what came with a notification could be missed and the notification be overwritten.
        self.state.swap(EMPTY, Ordering::AcqRel);
    }
}

impl Wake for Signal {
    fn wake(&self) {
        self.notify();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn no_wake_up_is_lost() {
        let (ping, pong) = (Arc::new(Signal::default()), Arc::new(Signal::default()));
        let counter = Arc::new(AtomicU64::new(0));
        let thread = {
            let (ping, pong, counter) = (ping.clone(), pong.clone(), counter.clone());
            std::thread::spawn(move || {
                for n in 1..=10_000 {
                    while counter.load(Ordering::Acquire) < n {
                        ping.wait(None);
                    }
                    pong.notify();
                }
            })
        };
        for n in 1..=10_000 {
            counter.store(n, Ordering::Release);
            ping.notify();
            pong.wait(None);
        }
        thread.join().unwrap();
    }

    #[test]
    fn a_wait_ends_at_its_timeout_and_at_an_earlier_notification() {
        let signal = Signal::default();
        signal.wait(Some(Duration::from_millis(1)));
        signal.notify();
        signal.wait(None);
    }
}
