//! How many components are compiled at a time: what one may use is bounded, and so is what all may.

use std::sync::{Condvar, Mutex, PoisonError};

use weir_model::limits::COMPILATIONS_MAX;

/// Whose turn it is. Those who wait are not ordered.
#[derive(Default)]
pub(crate) struct Turns {
    taken: Mutex<usize>,
    free: Condvar,
}

/// A turn, until it is dropped.
pub(crate) struct Turn<'a>(&'a Turns);

impl Turns {
    /// Waits for a turn.
    pub(crate) fn take(&self) -> Turn<'_> {
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = self.free.wait_while(taken, |taken| *taken >= COMPILATIONS_MAX);
        *taken.unwrap_or_else(PoisonError::into_inner) += 1;
        Turn(self)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.0.taken.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.0.free.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn s95_no_more_are_compiled_at_a_time_than_there_are_turns_and_all_get_one() {
        let (turns, busy, most, done) = (Turns::default(), AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..20 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let _turn = turns.take();
                        most.fetch_max(busy.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        std::thread::yield_now();
                        busy.fetch_sub(1, Ordering::SeqCst);
                        done.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert_eq!(done.into_inner(), 1_000);
        assert!(most.into_inner() <= COMPILATIONS_MAX);
    }
}
