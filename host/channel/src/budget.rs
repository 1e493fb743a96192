//! How much waits in a channel, and whether its sender has to wait.

use weir_model::limits;

/// Bounds of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Frames with rows.
    pub frames_max: usize,
    /// Bytes of rows.
    pub bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { frames_max: limits::CHANNEL_FRAMES_MAX, bytes_max: limits::CHANNEL_BYTES_MAX }
    }
}

/// Account of one channel. The frame that crosses a bound is still taken, and what a task still holds when a barrier
/// comes is pushed beyond it (overdraft, bounded by the output of one call).
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    limits: Limits,
    frames: usize,
    bytes: usize,
}

impl Budget {
    /// An empty channel.
    pub fn new(limits: Limits) -> Budget {
        Budget { limits, frames: 0, bytes: 0 }
    }

    /// Whether another frame with rows may be sent.
    pub fn has_room(&self) -> bool {
        self.frames < self.limits.frames_max && self.bytes < self.limits.bytes_max
    }

    /// A frame with rows came in.
    pub fn add(&mut self, size_bytes: usize) {
        self.frames += 1;
        self.bytes += size_bytes;
    }

    /// A frame with rows went out. Returns whether the sender, who had to wait, has room again.
    pub fn remove(&mut self, size_bytes: usize) -> bool {
        let had_room = self.has_room();
        debug_assert!(self.frames > 0 && self.bytes >= size_bytes, "more removed than was added");
        self.frames -= 1;
        self.bytes -= size_bytes;
        !had_room && self.has_room()
    }

    /// Bytes of rows that wait.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_waits_at_either_bound_and_is_told_once() {
        let mut budget = Budget::new(Limits { frames_max: 2, bytes_max: 100 });
        budget.add(10);
        assert!(budget.has_room());
        budget.add(10);
        assert!(!budget.has_room(), "frames are bounded");
        budget.add(500);
        assert!(!budget.remove(10), "still over in frames and bytes");
        assert!(!budget.remove(10), "still over in bytes");
        assert!(budget.remove(500), "room again");
        assert_eq!(budget.bytes(), 0);
    }
}
