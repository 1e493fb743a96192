//! What calls of operators emit: rows by output, in the order in which they were emitted, in buffers that are used again.
//!
//! Owns the rows until whoever makes the calls drains them, and the buffers after that. Calls append, so rows of many small calls go on
//! together, without an allocation for each.

use weir_model::{Batch, BatchRef, limits};

/// Buffers that are kept for later entries. Only who changes the output with every few rows has more entries.
const SPARE_MAX: usize = 16;

/// Room of a buffer that is kept: what is worth passing on and a call more. What one call may emit is much more than that.
const ROOM_MAX: usize = 2 * limits::FRAME_BYTES_TARGET;

/// Rows that calls have emitted, in order. Rows for one port that come one after the other are one entry.
#[derive(Debug, Default)]
pub struct EmittedRows {
    entries: Vec<Entry>,
    /// Rows and bytes of all entries but the last, which alone grows.
    closed_rows: usize,
    closed_bytes: usize,
    /// Empty batches, with room.
    spare: Vec<Batch>,
}

/// Rows for one port.
#[derive(Debug)]
struct Entry {
    port: u32,
    rows: Batch,
}

/// How far the rows went at some time.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    entries: usize,
    /// Rows of the last entry.
    rows: usize,
}

impl EmittedRows {
    /// No rows, no buffers.
    pub fn new() -> EmittedRows {
        EmittedRows::default()
    }

    /// Where rows for a port are to be appended, 0 being the main one: to the last entry if it is for this port, else to a new one. Rows
    /// that are there already stay as they are.
    #[inline]
    pub fn rows_to(&mut self, port: u32) -> &mut Batch {
        if self.entries.last().is_none_or(|last| last.port != port) {
            self.open(port);
        }
        let last = self.entries.len() - 1;
        &mut self.entries[last].rows
    }

    fn open(&mut self, port: u32) {
        match self.entries.last_mut() {
            Some(last) if last.rows.is_empty() => {
                last.port = port;
                return;
            }
            Some(last) => {
                self.closed_rows += last.rows.len();
                self.closed_bytes += last.rows.size_bytes();
            }
            None => {}
        }
        let rows = self.spare.pop().unwrap_or_default();
        self.entries.push(Entry { port, rows });
    }

    /// Number of rows.
    #[inline]
    pub fn rows_len(&self) -> usize {
        self.closed_rows + self.entries.last().map_or(0, |last| last.rows.len())
    }

    /// Memory that the rows take.
    #[inline]
    pub fn bytes_len(&self) -> usize {
        self.closed_bytes + self.entries.last().map_or(0, |last| last.rows.size_bytes())
    }

    /// Whether there is no row.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.rows_len() == 0
    }

    /// How far the rows go now: before a call.
    #[inline]
    pub fn mark(&self) -> Mark {
        Mark { entries: self.entries.len(), rows: self.entries.last().map_or(0, |last| last.rows.len()) }
    }

    /// Removes the rows that came after `mark`: after a call that failed. Nothing was drained since.
    pub fn truncate(&mut self, mark: Mark) {
        while self.entries.len() > mark.entries {
            let Some(entry) = self.entries.pop() else { break };
            if let Some(last) = self.entries.last() {
                self.closed_rows -= last.rows.len();
                self.closed_bytes -= last.rows.size_bytes();
            }
            self.keep(entry.rows);
        }
        if let Some(last) = self.entries.last_mut() {
            last.rows.truncate(mark.rows);
        }
    }

    /// The rows in order, with the port of each entry. None is empty.
    pub fn entries(&self) -> impl Iterator<Item = (u32, BatchRef<'_>)> {
        self.entries.iter().filter(|entry| !entry.rows.is_empty()).map(|entry| (entry.port, entry.rows.view()))
    }

    /// Hands over each entry with its port, in order; none is empty. What is left in a batch is dropped, and its room used again: a taker
    /// may take the columns themselves.
    ///
    /// # Errors
    /// The taker's. The rows that it was not given are dropped.
    pub fn drain<E>(&mut self, mut take: impl FnMut(u32, &mut Batch) -> Result<(), E>) -> Result<(), E> {
        (self.closed_rows, self.closed_bytes) = (0, 0);
        let mut entries = std::mem::take(&mut self.entries);
        let mut result = Ok(());
        for Entry { port, mut rows } in entries.drain(..) {
            if result.is_ok() && !rows.is_empty() {
                let (count, keys, values) = (rows.len(), rows.keys.bytes.len(), rows.values.bytes.len());
                let is_kept = rows.size_bytes() <= ROOM_MAX;
                result = take(port, &mut rows);
                if is_kept && rows.timestamps.capacity() == 0 {
                    // Its columns were taken. What comes next will be about as much, and need not grow to it step by step.
                    rows = Batch::with_capacity(count, keys, values);
                }
            }
            self.keep(rows);
        }
        self.entries = entries;
        result
    }

    /// Keeps a buffer for later, unless there are many, or it is large.
    fn keep(&mut self, mut rows: Batch) {
        if self.spare.len() < SPARE_MAX && room(&rows) <= ROOM_MAX {
            rows.clear();
            self.spare.push(rows);
        }
    }
}

/// Memory that a buffer has, used or not.
fn room(batch: &Batch) -> usize {
    let columns = batch.keys.bytes.capacity() + batch.values.bytes.capacity();
    let ends = batch.keys.ends.capacity() + batch.values.ends.capacity();
    columns + ends * size_of::<u32>() + batch.timestamps.capacity() * size_of::<i64>()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn push(emitted: &mut EmittedRows, port: u32, value: &str) {
        emitted.rows_to(port).push(0, b"key", value.as_bytes());
    }

    fn of(emitted: &EmittedRows) -> Vec<(u32, Vec<String>)> {
        let text = |value: &[u8]| String::from_utf8(value.to_vec()).unwrap();
        emitted.entries().map(|(port, rows)| (port, rows.values.iter().map(text).collect())).collect()
    }

    fn entry(port: u32, values: &[&str]) -> (u32, Vec<String>) {
        (port, values.iter().map(ToString::to_string).collect())
    }

    fn check_lengths(emitted: &EmittedRows) {
        let rows: usize = emitted.entries().map(|(_, rows)| rows.len()).sum();
        let bytes: usize = emitted.entries().map(|(_, rows)| rows.size_bytes()).sum();
        assert_eq!((emitted.rows_len(), emitted.bytes_len(), emitted.is_empty()), (rows, bytes, rows == 0));
    }

    #[test]
    fn rows_for_one_port_in_a_row_are_one_entry_and_the_order_over_ports_stays() {
        let mut emitted = EmittedRows::new();
        assert!(emitted.is_empty());
        for (port, value) in [(0, "a"), (0, "b"), (1, "c"), (0, "d"), (0, "e")] {
            push(&mut emitted, port, value);
            check_lengths(&emitted);
        }
        emitted.rows_to(1);
        push(&mut emitted, 0, "f");
        assert_eq!(of(&emitted), [entry(0, &["a", "b"]), entry(1, &["c"]), entry(0, &["d", "e"]), entry(0, &["f"])]);
        check_lengths(&emitted);
    }

    #[test]
    fn what_came_after_a_mark_is_gone_and_nothing_else() {
        let ports = [0, 0, 1, 1, 0, 2, 0];
        for first in 0..=ports.len() {
            let mut emitted = EmittedRows::new();
            ports[..first].iter().for_each(|&port| push(&mut emitted, port, "before"));
            let (mark, before) = (emitted.mark(), of(&emitted));
            ports[first..].iter().for_each(|&port| push(&mut emitted, port, "after"));
            emitted.truncate(mark);
            assert_eq!(of(&emitted), before);
            check_lengths(&emitted);
            push(&mut emitted, 0, "later");
            check_lengths(&emitted);
        }
    }

    #[test]
    fn a_drain_hands_over_all_in_order_and_the_room_is_used_again() {
        let mut emitted = EmittedRows::new();
        (0..100).for_each(|_| push(&mut emitted, 0, "value"));
        push(&mut emitted, 1, "other");
        let mut seen = Vec::new();
        emitted
            .drain(|port, rows| {
                seen.push((port, rows.len()));
                Ok::<(), ()>(())
            })
            .unwrap();
        assert_eq!(seen, [(0, 100), (1, 1)]);
        check_lengths(&emitted);
        assert_eq!(emitted.mark().entries, 0);
        let rooms = [emitted.rows_to(5).timestamps.capacity(), {
            push(&mut emitted, 5, "x");
            emitted.rows_to(6).timestamps.capacity()
        }];
        assert!(rooms.iter().all(|room| *room > 0) && rooms.iter().max() >= Some(&100), "{rooms:?}");
    }

    #[test]
    fn where_columns_are_taken_there_is_room_for_as_many_again() {
        let mut emitted = EmittedRows::new();
        (0..100).for_each(|_| push(&mut emitted, 0, "value"));
        let mut taken = Batch::default();
        emitted
            .drain(|_, rows| {
                taken = std::mem::take(rows);
                Ok::<(), ()>(())
            })
            .unwrap();
        assert_eq!(taken.len(), 100);
        assert!(emitted.rows_to(0).values.bytes.capacity() >= 500);
        assert!(emitted.is_empty());
    }

    #[test]
    fn a_taker_that_fails_gets_no_more_and_nothing_is_left() {
        let mut emitted = EmittedRows::new();
        [0, 1, 2].iter().for_each(|&port| push(&mut emitted, port, "x"));
        let mut seen = Vec::new();
        let error = emitted.drain(|port, _| {
            seen.push(port);
            if port == 1 { Err("no room") } else { Ok(()) }
        });
        assert_eq!((error, seen), (Err("no room"), vec![0, 1]));
        assert!(emitted.is_empty());
        check_lengths(&emitted);
    }

    #[test]
    fn buffers_that_are_many_or_huge_are_given_back() {
        let mut emitted = EmittedRows::new();
        emitted.rows_to(0).push(0, b"", &vec![0; ROOM_MAX]);
        (0..=ROOM_MAX / 16).for_each(|_| emitted.rows_to(1).push(0, b"", b""));
        emitted.rows_to(2).push(0, b"", &vec![0; ROOM_MAX]);
        (0..100).for_each(|n| push(&mut emitted, 1 + n % 2, "x"));
        let take = |port, rows: &mut Batch| {
            if port == 0 {
                drop(std::mem::take(rows));
            }
            Ok::<(), ()>(())
        };
        emitted.drain(take).unwrap();
        assert_eq!((emitted.spare.len(), emitted.spare.iter().any(|rows| room(rows) > 1_000)), (SPARE_MAX, false));
    }
}
