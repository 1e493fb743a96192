//! Tumbling and sliding windows.
//!
//! Time is divided into panes, the longest spans of which both the windows' size and their slide are multiples. A row
//! goes into one pane; a window is the merger of its panes. For a tumbling window pane and window are the same.

use std::collections::VecDeque;
use std::hash::Hasher;

use weir_sdk::FastHasher;
use weir_sdk::memory::{self, NoRoom};
use weir_sdk::prelude::*;

use crate::config::{LATE, Plan, Shape};
use crate::grid::Grid;
use crate::totals::{Results, Totals, count_rounded};

/// Keys whose panes are merged at a time.
const MERGED_KEYS_MAX: usize = 50_000;

/// One stretch of time that has rows.
#[derive(Debug, Serialize, Deserialize)]
#[serde(bound = "T: Totals")]
struct Pane<T> {
    start: Timestamp,
    keys: KeyMap<T>,
}

/// What is kept: the panes that some window still needs, in order of time.
#[derive(Debug, Serialize, Deserialize)]
#[serde(bound = "T: Totals")]
pub(crate) struct Panes<T> {
    panes: VecDeque<Pane<T>>,
    /// Windows that end here or earlier have been sent.
    sent_until: Timestamp,
    /// No window with rows that has not been sent ends before this.
    next_end: Timestamp,
    /// Windows that end here or earlier were closed by an end of the input, after which more came, and take no more rows.
    closed_until: Timestamp,
}

impl<T> Default for Panes<T> {
    fn default() -> Panes<T> {
        Panes { panes: VecDeque::new(), sent_until: Timestamp::MIN, next_end: Timestamp::MAX, closed_until: Timestamp::MIN }
    }
}

impl<T: Totals> Panes<T> {
    /// Takes in the rows of a call.
    pub(crate) fn process(&mut self, plan: &Plan, rows: BatchRef<'_>, out: &mut Outputs) -> Result<(), Error> {
        let grid = grid_of(plan);
        // The pane of the last row, and whether a window of it has been sent: most rows of a call share it.
        let mut current: Option<(usize, bool)> = None;
        let mut span = 0..0;
        let mut rounded = 0;
        for row in rows.rows(0) {
            if !span.contains(&row.timestamp()) {
                if !grid.holds(row.timestamp()) {
                    out.reject(row.index(), format_args!("time {} is out of range", row.timestamp()));
                    continue;
                }
                let start = grid.pane_of(row.timestamp());
                span = start..start + grid.pane;
                match self.open_pane(plan, grid, start, out.watermark()) {
                    Ok(pane) => current = pane,
                    Err(no_room) => {
                        span = 0..0;
                        out.reject(row.index(), no_room);
                        continue;
                    }
                }
            }
            let Some((pane, sent)) = current else {
                out.to(LATE).forward(row);
                continue;
            };
            match T::part(plan, &row, &mut rounded) {
                Ok(part) => match self.panes[pane].keys.try_or_default(row.key()) {
                    Ok(totals) => {
                        totals.add(part);
                        if sent {
                            self.send_again(plan, grid, pane, row.key(), out);
                        }
                    }
                    Err(no_room) => out.reject(row.index(), no_room),
                },
                Err(error) => out.reject(row.index(), error),
            }
        }
        count_rounded(rounded);
        Ok(())
    }

    /// The pane that starts at `start`, and whether a window that holds it has been sent. `None` if no window takes
    /// its rows any more.
    fn open_pane(
        &mut self,
        plan: &Plan,
        grid: Grid,
        start: Timestamp,
        watermark: Timestamp,
    ) -> Result<Option<(usize, bool)>, NoRoom> {
        if expired(plan, grid, start, watermark) || grid.last_window(start) + grid.size <= self.closed_until {
            return Ok(None);
        }
        let first_end = grid.first_window(start) + grid.size;
        let index = match self.panes.binary_search_by_key(&start, |pane| pane.start) {
            Ok(index) => index,
            Err(index) => {
                if self.panes.len() == self.panes.capacity() {
                    memory::reserve(self.panes.len().max(4) * 2 * size_of::<Pane<T>>())?;
                    self.panes.try_reserve(1).map_err(|_| NoRoom)?;
                }
                self.panes.insert(index, Pane { start, keys: KeyMap::default() });
                if let Some(window) = grid.unsent_window(start, self.sent_until) {
                    self.next_end = self.next_end.min(window + grid.size);
                }
                index
            }
        };
        Ok(Some((index, first_end <= self.sent_until)))
    }

    /// A row came after a window that holds it was sent, within the allowed lateness: sends the key's new result.
    #[cold]
    fn send_again(&self, plan: &Plan, grid: Grid, pane: usize, key: &[u8], out: &mut Outputs) {
        let pane = self.panes[pane].start;
        // Those that end later than this still take rows.
        let closed = out.watermark().saturating_sub(plan.lateness).max(self.closed_until);
        let mut next = grid.unsent_window(pane, closed);
        while let Some(start) = next.filter(|start| start + grid.size <= self.sent_until) {
            let mut totals = T::default();
            self.of_window(grid, start).filter_map(|pane| pane.keys.get(key)).for_each(|part| totals.merge(part));
            Results::of(start, start + grid.size).send(plan, key, &totals, out.to(0));
            next = grid.unsent_window(pane, start + grid.size);
        }
    }

    /// Event time has reached `watermark`: sends the windows that end by then, forgets what no window needs any more.
    pub(crate) fn advance(&mut self, plan: &Plan, watermark: Timestamp, out: &mut Outputs) -> Result<(), Error> {
        let grid = grid_of(plan);
        if self.sent_until == Timestamp::MAX && watermark < Timestamp::MAX {
            self.closed_until =
                if grid.holds(watermark) { grid.last_window(grid.pane_of(watermark)) + grid.size } else { watermark };
        }
        while self.next_end <= watermark && self.next_end < Timestamp::MAX {
            let end = self.next_end;
            self.send(plan, grid, end - grid.size, out);
            self.next_end = self.end_after(grid, end);
        }
        self.sent_until = watermark.max(self.closed_until);
        while self.panes.front().is_some_and(|pane| expired(plan, grid, pane.start, watermark)) {
            self.panes.pop_front();
        }
        Ok(())
    }

    /// The end of the first window with rows that ends after `end`.
    fn end_after(&self, grid: Grid, end: Timestamp) -> Timestamp {
        // Of the panes that such a window holds, the first is also in the first such window.
        let first = self.panes.partition_point(|pane| grid.last_window(pane.start) + grid.size <= end);
        let window = self.panes.get(first).and_then(|pane| grid.unsent_window(pane.start, end));
        window.map_or(Timestamp::MAX, |window| window + grid.size)
    }

    /// Sends the results of all keys of the window that starts at `start`.
    fn send(&self, plan: &Plan, grid: Grid, start: Timestamp, out: &mut Outputs) {
        let results = Results::of(start, start + grid.size);
        let mut panes = self.of_window(grid, start);
        if panes.len() == 1 {
            let pane = panes.next();
            pane.into_iter().for_each(|pane| pane.keys.for_each(|key, totals| results.send(plan, key, totals, out.to(0))));
            return;
        }
        // State may fill nearly all memory, so what is merged at a time is bounded: a part of the keys after the other.
        let entries: usize = self.of_window(grid, start).map(|pane| pane.keys.len()).sum();
        let parts = entries.div_ceil(MERGED_KEYS_MAX) as u64;
        for part in 0..parts {
            let is_of_part = |key: &[u8]| parts == 1 || part_of(key) % parts == part;
            let mut merged: KeyMap<T> = KeyMap::default();
            for pane in self.of_window(grid, start) {
                pane.keys.for_each(|key, totals| {
                    if is_of_part(key) {
                        merged.or_default(key).merge(totals);
                    }
                });
            }
            merged.for_each(|key, totals| results.send(plan, key, totals, out.to(0)));
        }
    }

    fn of_window(&self, grid: Grid, start: Timestamp) -> impl ExactSizeIterator<Item = &Pane<T>> {
        let from = self.panes.partition_point(|pane| pane.start < start);
        let to = self.panes.partition_point(|pane| pane.start < start + grid.size);
        self.panes.range(from..to)
    }
}

/// A number that is the same for the same key, and spread evenly.
fn part_of(key: &[u8]) -> u64 {
    let mut hasher = FastHasher::default();
    hasher.write(key);
    hasher.finish() >> 32
}

/// Whether the last window that holds the pane at `start` takes no more rows.
fn expired(plan: &Plan, grid: Grid, start: Timestamp, watermark: Timestamp) -> bool {
    (grid.last_window(start) + grid.size).saturating_add(plan.lateness) <= watermark
}

fn grid_of(plan: &Plan) -> Grid {
    match plan.shape {
        Shape::Fixed(grid) => grid,
        Shape::Session { .. } => unreachable!("sessions are not kept in panes"),
    }
}

#[cfg(test)]
impl<T> Panes<T> {
    /// Number of panes that are kept.
    pub(crate) fn len(&self) -> usize {
        self.panes.len()
    }
}
