//! How far event time is in each split of one source subtask, where it reads several: files that are open together, or wait.
//!
//! A source owns one and says which rows are whose and which splits hold event time back; the task says which times rows have. So
//! event time is where the split is that is furthest behind, and a file that is yet to be read is not late when its turn comes.
//! Pure.

use std::ops::Range;

use weir_model::{Batch, Timestamp, WATERMARK_START};

/// A split, as long as its source lives and has not closed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slot(usize);

/// Event time by split.
#[derive(Clone, Debug)]
pub struct SplitTimes {
    entries: Vec<Option<Entry>>,
    /// Where `entries` has none, each once.
    free: Vec<usize>,
    /// Rows of the last poll that came from each split, in order.
    parts: Vec<(Slot, Range<usize>)>,
    /// First rows of splits that wait, to be looked at for their time.
    heads: Vec<(Slot, Batch)>,
    /// Splits that have given their last row with the last poll.
    closing: Vec<Slot>,
    is_timed: bool,
    /// Greatest time of all splits there were.
    max: Timestamp,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Greatest time read, or the least time seen at the beginning of what waits; `WATERMARK_START` if neither is known.
    time: Timestamp,
    holds: bool,
}

impl Default for SplitTimes {
    fn default() -> SplitTimes {
        let (entries, free, parts, heads, closing) = (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
        SplitTimes { entries, free, parts, heads, closing, is_timed: false, max: WATERMARK_START }
    }
}

impl SplitTimes {
    /// A split that holds event time at `time`, or altogether with `WATERMARK_START`.
    pub fn open(&mut self, time: Timestamp) -> Slot {
        let entry = Some(Entry { time, holds: true });
        match self.free.pop() {
            Some(free) => {
                self.entries[free] = entry;
                Slot(free)
            }
            None => {
                self.entries.push(entry);
                Slot(self.entries.len() - 1)
            }
        }
    }

    /// The split has given its last row, perhaps with this very poll.
    pub fn close(&mut self, slot: Slot) {
        self.set_holds(slot, false);
        self.closing.push(slot);
    }

    /// Whether what the split is yet to give may be older than what others gave. One that was caught up with gives what happens
    /// now.
    pub fn set_holds(&mut self, slot: Slot, holds: bool) {
        if let Some(entry) = &mut self.entries[slot.0] {
            entry.holds = holds;
        }
    }

    /// Begins a poll: what is said from here on is about the rows of an empty batch.
    pub fn begin(&mut self) {
        self.parts.clear();
        for slot in self.closing.drain(..) {
            // One that was closed twice is free once.
            if self.entries[slot.0].take().is_some() {
                self.free.push(slot.0);
            }
        }
    }

    /// The rows up to `end` that belong to no other split are this one's.
    pub fn rows_until(&mut self, slot: Slot, end: usize) {
        let start = self.parts.last().map_or(0, |(_, range)| range.end);
        if end > start {
            self.parts.push((slot, start..end));
        }
    }

    /// Rows that a split will begin with: none of them is given yet. Makes sense where [`SplitTimes::is_timed`].
    pub fn show_head(&mut self, slot: Slot, rows: Batch) {
        self.heads.push((slot, rows));
    }

    /// Whether rows have times of their own, so that it matters which is read first.
    pub fn is_timed(&self) -> bool {
        self.is_timed
    }

    /// Says that rows have times of their own. Before the first poll.
    pub fn set_timed(&mut self) {
        self.is_timed = true;
    }

    /// How far the split is: the greatest time read, or the least seen at its beginning. `WATERMARK_START`: unknown.
    pub fn time(&self, slot: Slot) -> Timestamp {
        self.entries[slot.0].map_or(WATERMARK_START, |entry| entry.time)
    }

    /// Whether there is no split at all, so that nobody should wait for this subtask.
    pub fn is_empty(&self) -> bool {
        self.entries.iter().all(Option::is_none)
    }

    /// Takes the first rows that were shown.
    pub(crate) fn take_heads(&mut self) -> Vec<(Slot, Batch)> {
        std::mem::take(&mut self.heads)
    }

    /// Takes which rows of the last poll are whose, until they are [put back](SplitTimes::put_parts).
    pub(crate) fn take_parts(&mut self) -> Vec<(Slot, Range<usize>)> {
        std::mem::take(&mut self.parts)
    }

    /// Gives back what was taken, so that the next poll has its room.
    pub(crate) fn put_parts(&mut self, parts: Vec<(Slot, Range<usize>)>) {
        self.parts = parts;
    }

    /// A row of the split has this time, or its waiting rows begin with it.
    pub(crate) fn reach(&mut self, slot: Slot, time: Timestamp) {
        if let Some(entry) = &mut self.entries[slot.0] {
            entry.time = entry.time.max(time);
        }
    }

    /// Rows were given up to this time.
    pub(crate) fn reach_max(&mut self, time: Timestamp) {
        self.max = self.max.max(time);
    }

    /// No row older than this is expected, but for disorder: the least time of the splits that hold it back, or the greatest
    /// time read where none does.
    pub(crate) fn low(&self) -> Timestamp {
        let holding = self.entries.iter().flatten().filter(|entry| entry.holds).map(|entry| entry.time);
        holding.min().unwrap_or(self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_time_is_where_the_split_is_that_is_furthest_behind() {
        let mut times = SplitTimes::default();
        assert!(times.is_empty());
        let (one, other) = (times.open(WATERMARK_START), times.open(WATERMARK_START));
        times.begin();
        times.rows_until(one, 3);
        times.rows_until(other, 3);
        times.rows_until(other, 5);
        assert_eq!(times.parts, [(one, 0..3), (other, 3..5)]);
        times.reach(one, 100);
        times.reach_max(100);
        assert_eq!(times.low(), WATERMARK_START, "the other may have anything");
        times.reach(other, 40);
        assert_eq!(times.low(), 40);
        times.set_holds(other, false);
        assert_eq!(times.low(), 100);
        times.close(one);
        assert_eq!((times.low(), times.time(one)), (100, 100), "all are caught up with or at their ends");
        times.begin();
        let third = times.open(7);
        assert_eq!((third, times.low(), times.time(third)), (one, 7, 7), "its place is used again");
        assert!(!times.is_empty());
    }

    #[test]
    fn the_place_of_a_split_that_is_closed_twice_is_given_once() {
        let mut times = SplitTimes::default();
        let one = times.open(1);
        times.close(one);
        times.close(one);
        times.begin();
        let (second, third) = (times.open(2), times.open(3));
        assert_eq!((second, times.time(second), times.time(third)), (one, 2, 3));
    }
}
