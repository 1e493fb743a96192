//! How much should be sent at once, over channels of different paces.

use weir_model::limits;

/// Bytes that what is sent at once should not exceed, as one channel or several see it. Where rows wait in a channel, its bound
/// counts: the receiver is behind. Where none do, the channel may be fast, or hardly used and have its first, small bound for
/// ever; that must not make small what goes to others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Worth {
    /// The least of the channels in which rows wait.
    held: Option<usize>,
    /// The most of the others.
    free: Option<usize>,
}

impl Worth {
    pub(crate) fn of(bytes: usize, is_free: bool) -> Worth {
        if is_free { Worth { held: None, free: Some(bytes) } } else { Worth { held: Some(bytes), free: None } }
    }

    /// What both allow.
    pub(crate) fn and(self, other: Worth) -> Worth {
        let held = self.held.into_iter().chain(other.held).min();
        Worth { held, free: self.free.max(other.free) }
    }

    /// The same for rows that are divided over so many channels.
    pub(crate) fn times(self, count: usize) -> Worth {
        let times = |bytes: usize| bytes.saturating_mul(count);
        Worth { held: self.held.map(times), free: self.free.map(times) }
    }

    /// Bytes; at most what a frame may hold, also where there is no channel.
    pub(crate) fn bytes(self) -> usize {
        self.held.or(self.free).unwrap_or(usize::MAX).min(limits::FRAME_BYTES_TARGET)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_that_are_behind_decide_and_hardly_used_ones_do_not() {
        let unused = Worth::of(8, true);
        let (fast, slow, slower) = (Worth::of(1_000, true), Worth::of(100, false), Worth::of(50, false));
        assert_eq!(Worth::default().bytes(), limits::FRAME_BYTES_TARGET);
        assert_eq!(unused.bytes(), 8, "nothing better is known");
        assert_eq!(unused.and(fast).bytes(), 1_000);
        assert_eq!(unused.and(fast).and(slow).bytes(), 100);
        assert_eq!(slow.and(unused).and(slower).bytes(), 50);
        assert_eq!(slow.and(fast).times(4).bytes(), 400);
    }
}
