//! Odd rows of one subtask of a vertex, as others may read them at any time.
//!
//! One thread writes, without a lock; a row that is not the first of its kind costs an addition.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use weir_model::{Odd, OddExample, OddKind, Oddities};

const KINDS: usize = OddKind::ALL.len();

/// Counts and first examples by kind.
#[derive(Debug, Default)]
pub struct OddStats {
    rows: [AtomicU64; KINDS],
    first: [OnceLock<OddExample>; KINDS],
}

impl OddStats {
    /// Counts rows of a kind; `example` is called if they are the first.
    pub(crate) fn add(&self, kind: OddKind, rows: usize, example: impl FnOnce() -> OddExample) {
        if rows == 0 {
            return;
        }
        self.first[kind as usize].get_or_init(example);
        let counter = &self.rows[kind as usize];
        // One thread writes, so a load and a store are enough. Released, so that who sees the number sees the example.
        counter.store(counter.load(Ordering::Relaxed) + rows as u64, Ordering::Release);
    }

    /// Takes over what somebody else has counted since the start.
    pub(crate) fn show(&self, oddities: &Oddities) {
        for (kind, odd) in oddities.iter() {
            if let Some(first) = &odd.first {
                self.first[kind as usize].get_or_init(|| first.clone());
            }
            self.rows[kind as usize].store(odd.rows, Ordering::Release);
        }
    }

    /// Rows of a kind so far.
    pub fn rows(&self, kind: OddKind) -> u64 {
        self.rows[kind as usize].load(Ordering::Relaxed)
    }

    /// All so far, with examples.
    pub fn read(&self) -> Oddities {
        let of_kind = |kind: OddKind| {
            let rows = self.rows[kind as usize].load(Ordering::Acquire);
            (kind, Odd { rows, first: self.first[kind as usize].get().cloned() })
        };
        OddKind::ALL.into_iter().map(of_kind).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_grow_and_the_first_example_stays() {
        let stats = OddStats::default();
        assert!(stats.read().is_empty());
        stats.add(OddKind::Late, 0, || unreachable!("no row"));
        stats.add(OddKind::Late, 2, || OddExample::new(b"a", "b"));
        stats.add(OddKind::Late, 3, || unreachable!("there is one"));
        let mut of_source = Oddities::new();
        of_source.add_rows(OddKind::LongLine, 7, || OddExample::new(b"c", "d"));
        stats.show(&of_source);
        of_source.add(OddKind::LongLine, || unreachable!("there is one"));
        stats.show(&of_source);
        let read = stats.read();
        assert_eq!((read.rows(OddKind::Late), read.rows(OddKind::LongLine), read.total()), (5, 8, 13));
        assert_eq!(read.get(OddKind::Late).unwrap().first, Some(OddExample::new(b"a", "b")));
        assert_eq!(read.get(OddKind::LongLine).unwrap().first, Some(OddExample::new(b"c", "d")));
    }
}
