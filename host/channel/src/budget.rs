//! How much waits in a channel, and whether its sender has to wait.
//!
//! What waits in channels is what an unaligned checkpoint has to store and what a restore has to work off first, so a channel
//! holds no more than its receiver needs to be kept busy: about [`limits::CHANNEL_TARGET_MS`] worth of what it takes out.

use std::time::Duration;

use weir_model::limits;

/// Bounds of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Frames with rows.
    pub frames_max: usize,
    /// Bytes of rows, however fast the receiver is.
    pub bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { frames_max: limits::CHANNEL_FRAMES_MAX, bytes_max: limits::CHANNEL_BYTES_MAX }
    }
}

/// Shortest time from which a pace is told. A receiver that is held up itself takes in bursts, of which several should be seen.
const MEASURE_MIN: Duration = Duration::from_millis(50);

/// The bound follows the pace by a factor of this at most, so that one odd frame does not change everything.
const CHANGE_MAX: usize = 4;

/// Account of one channel. The frame that crosses a bound is still taken, and what a task still holds when a barrier
/// comes is pushed beyond it (overdraft, bounded by the output of one call).
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    limits: Limits,
    frames: usize,
    bytes: usize,
    /// Bytes that may wait at present.
    bytes_max: usize,
    pace: Pace,
}

/// How fast the receiver takes frames out while there are some.
#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    /// When the last frame was taken, and its size.
    last: Option<(Duration, usize)>,
    /// Some of the time may have been spent without a frame to take, so the receiver is at least as fast as it seems.
    is_bound: bool,
    /// What was measured and not drawn a conclusion from.
    bytes: usize,
    time: Duration,
}

impl Budget {
    /// An empty channel. It starts with little room.
    pub fn new(limits: Limits) -> Budget {
        let bytes_max = limits::CHANNEL_BYTES_MIN.min(limits.bytes_max);
        Budget { limits, frames: 0, bytes: 0, bytes_max, pace: Pace::default() }
    }

    /// Whether another frame with rows may be sent.
    pub fn has_room(&self) -> bool {
        self.frames < self.limits.frames_max && self.bytes < self.bytes_max
    }

    /// A frame with rows came in.
    pub fn add(&mut self, size_bytes: usize) {
        self.frames += 1;
        self.bytes += size_bytes;
    }

    /// A frame with rows went out, at a time since any fixed start. Returns whether the sender, who had to wait, has room again.
    pub fn remove(&mut self, size_bytes: usize, now: Duration) -> bool {
        let had_room = self.has_room();
        debug_assert!(self.frames > 0 && self.bytes >= size_bytes, "more removed than was added");
        self.frames -= 1;
        self.bytes -= size_bytes;
        self.measure(now);
        // The time until the next frame is taken is the receiver's if that frame is here, or comes as soon as the sender hears
        // that there is room. Otherwise it may be the sender's.
        self.pace.last = Some((now, size_bytes));
        self.pace.is_bound |= self.frames == 0 && had_room;
        !had_room && self.has_room()
    }

    /// The receiver does not read for a while, or did not: that is not how fast it is.
    pub fn pause(&mut self) {
        self.pace.last = None;
    }

    /// Bytes of rows that wait.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes of rows that may wait at present.
    pub fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    fn measure(&mut self, now: Duration) {
        let Some((at, size_bytes)) = self.pace.last else { return };
        self.pace.bytes += size_bytes;
        self.pace.time += now.saturating_sub(at);
        if self.pace.time < MEASURE_MIN {
            return;
        }
        let Pace { bytes, time, is_bound, .. } = std::mem::take(&mut self.pace);
        let target_us = u128::from(limits::CHANNEL_TARGET_MS) * 1_000;
        let worth = usize::try_from(bytes as u128 * target_us / time.as_micros().max(1)).unwrap_or(usize::MAX);
        let least = limits::CHANNEL_BYTES_MIN.min(self.limits.bytes_max);
        let lowest = if is_bound { self.bytes_max } else { self.bytes_max / CHANGE_MAX };
        self.bytes_max = worth.clamp(lowest, self.bytes_max * CHANGE_MAX).clamp(least, self.limits.bytes_max);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use std::collections::VecDeque;

    #[test]
    fn a_sender_waits_at_either_bound_and_is_told_once() {
        let mut budget = Budget::new(Limits { frames_max: 2, bytes_max: 100 });
        let now = Duration::ZERO;
        budget.add(10);
        assert!(budget.has_room());
        budget.add(10);
        assert!(!budget.has_room(), "frames are bounded");
        budget.add(500);
        assert!(!budget.remove(10, now), "still over in frames and bytes");
        assert!(!budget.remove(10, now), "still over in bytes");
        assert!(budget.remove(500, now), "room again");
        assert_eq!(budget.bytes(), 0);
    }

    /// A channel whose frames are known by their sizes.
    struct Run {
        budget: Budget,
        queue: VecDeque<usize>,
        now: Duration,
    }

    impl Run {
        fn new() -> Run {
            let budget = Budget::new(Limits { frames_max: 1 << 20, bytes_max: 8 << 20 });
            Run { budget, queue: VecDeque::new(), now: Duration::ZERO }
        }

        fn add(&mut self, size_bytes: usize) {
            self.budget.add(size_bytes);
            self.queue.push_back(size_bytes);
        }

        fn remove(&mut self) -> usize {
            let size_bytes = self.queue.pop_front().unwrap();
            self.budget.remove(size_bytes, self.now);
            size_bytes
        }

        /// The sender fills the channel whenever it may, and the receiver takes so many bytes a millisecond.
        fn go(&mut self, frame: usize, bytes_per_ms: usize, frames: usize) {
            for _ in 0..frames {
                while self.budget.has_room() {
                    self.add(frame);
                }
                let taken = self.remove();
                self.now += Duration::from_micros((taken * 1_000 / bytes_per_ms) as u64);
            }
        }

        /// The receiver takes so many bytes at once, and then nothing for 200 ms: it has to wait for room itself.
        fn bursts(&mut self, burst: usize, count: usize) {
            for _ in 0..count {
                let mut taken = 0;
                while taken < burst {
                    while self.budget.has_room() {
                        self.add(4 << 10);
                    }
                    taken += self.remove();
                    self.now += Duration::from_micros(1);
                }
                self.now += Duration::from_millis(200);
            }
        }
    }

    #[test]
    fn the_bound_follows_the_pace_of_the_receiver() {
        let mut run = Run::new();
        assert_eq!(run.budget.bytes_max(), limits::CHANNEL_BYTES_MIN, "it starts small");
        run.go(1 << 20, 400 << 10, 200);
        assert_eq!(run.budget.bytes_max(), 8 << 20, "a fast receiver has all the room there is");
        run.bursts(256 << 10, 100);
        let bound = run.budget.bytes_max();
        assert!(
            (100 << 10..=300 << 10).contains(&bound),
            "bursts of 256 KiB every 200 ms are about 128 KiB in 100 ms, not {bound}"
        );
        run.go(16 << 10, 10 << 10, 10_000);
        let bound = run.budget.bytes_max();
        assert!((900 << 10..=1_100 << 10).contains(&bound), "10 KiB/ms are about 1 MiB in 100 ms, not {bound}");
        run.go(2 << 10, 100, 10_000);
        assert_eq!(run.budget.bytes_max(), limits::CHANNEL_BYTES_MIN, "a slow one has little, never nothing");
        run.go(1 << 20, 400 << 10, 200);
        assert_eq!(run.budget.bytes_max(), 8 << 20, "also with frames larger than the bound, of which one fits at a time");
    }

    #[test]
    fn time_without_frames_or_without_reading_is_not_the_receivers() {
        let mut run = Run::new();
        run.go(1 << 20, 400 << 10, 200);
        while !run.queue.is_empty() {
            run.remove();
        }
        for _ in 0..1_000 {
            run.add(100);
            run.remove();
            run.now += Duration::from_millis(50);
        }
        assert_eq!(run.budget.bytes_max(), 8 << 20, "the sender had nothing to send");
        run.add(100);
        run.add(100);
        run.remove();
        run.budget.pause();
        run.now += Duration::from_secs(60);
        run.remove();
        assert_eq!(run.budget.bytes_max(), 8 << 20, "the channel was blocked");
    }
}
