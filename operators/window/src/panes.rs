//! Tumbling and sliding windows.
//!
//! Time is divided into panes, the longest spans of which both the windows' size and their slide are multiples. A row
//! goes into one pane; a window is the merger of its panes. For a tumbling window pane and window are the same.

use std::collections::BTreeSet;

use weir_sdk::prelude::*;

use crate::config::{Plan, Shape};
use crate::totals::{Results, Totals};

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
    panes: Vec<Pane<T>>,
    /// Windows that end here or earlier have been sent.
    sent_until: Timestamp,
    /// No window with rows that has not been sent ends before this.
    next_end: Timestamp,
}

impl<T> Default for Panes<T> {
    fn default() -> Panes<T> {
        Panes { panes: Vec::new(), sent_until: Timestamp::MIN, next_end: Timestamp::MAX }
    }
}

/// How windows lie in time: `[n * slide, n * slide + size)`. All in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Grid {
    size: i64,
    slide: i64,
    pane: i64,
}

impl Grid {
    /// Windows of `size`, `slide` apart. Tumbling where the two are equal.
    pub(crate) fn new(size: i64, slide: i64) -> Grid {
        Grid { size, slide, pane: greatest_common_divisor(size, slide) }
    }

    fn pane_of(&self, timestamp: Timestamp) -> Timestamp {
        timestamp - timestamp.rem_euclid(self.pane)
    }

    /// Start of the first window that holds the pane at `pane`.
    fn first_window(&self, pane: Timestamp) -> Timestamp {
        let earliest = pane + self.pane - self.size;
        earliest + (-earliest).rem_euclid(self.slide)
    }

    /// Start of the last window that holds the pane at `pane`.
    fn last_window(&self, pane: Timestamp) -> Timestamp {
        pane - pane.rem_euclid(self.slide)
    }

    /// Times for which nothing here overflows.
    fn holds(&self, timestamp: Timestamp) -> bool {
        const FAR: Timestamp = Timestamp::MAX / 4;
        (-FAR..FAR).contains(&timestamp) && self.size < FAR
    }
}

impl<T: Totals> Panes<T> {
    /// Takes in the rows of a call.
    pub(crate) fn process(&mut self, plan: &Plan, rows: BatchRef<'_>, out: &mut Outputs) -> Result<(), Error> {
        let grid = grid_of(plan);
        // The pane of the last row, and whether a window of it has been sent: most rows of a call share it.
        let mut current: Option<(usize, bool)> = None;
        let mut span = 0..0;
        for row in rows.rows(0) {
            if !span.contains(&row.timestamp) {
                if !grid.holds(row.timestamp) {
                    out.reject(row.index, format_args!("time {} is out of range", row.timestamp));
                    continue;
                }
                let start = grid.pane_of(row.timestamp);
                span = start..start + grid.pane;
                current = self.open_pane(plan, grid, start, out.watermark());
            }
            let Some((pane, sent)) = current else {
                out.to(1).emit(row.timestamp, row.key, row.value);
                continue;
            };
            let added = T::part(plan.field.as_ref(), &row).and_then(|part| self.panes[pane].keys.or_default(row.key).add(part));
            match added {
                Ok(()) if sent => self.send_again(plan, grid, pane, row.key, out)?,
                Ok(()) => {}
                Err(error) => out.reject(row.index, error),
            }
        }
        Ok(())
    }

    /// The pane that starts at `start`, and whether a window that holds it has been sent. `None` if no window takes
    /// its rows any more.
    fn open_pane(&mut self, plan: &Plan, grid: Grid, start: Timestamp, watermark: Timestamp) -> Option<(usize, bool)> {
        if expired(plan, grid, start, watermark) {
            return None;
        }
        let first_end = grid.first_window(start) + grid.size;
        let index = match self.panes.binary_search_by_key(&start, |pane| pane.start) {
            Ok(index) => index,
            Err(index) => {
                self.panes.insert(index, Pane { start, keys: KeyMap::default() });
                let next_end = if first_end > self.sent_until {
                    first_end
                } else {
                    let windows = (self.sent_until - first_end) / grid.slide + 1;
                    first_end + windows * grid.slide
                };
                if next_end <= grid.last_window(start) + grid.size {
                    self.next_end = self.next_end.min(next_end);
                }
                index
            }
        };
        Some((index, first_end <= self.sent_until))
    }

    /// A row came after a window that holds it was sent, within the allowed lateness: sends the key's new result.
    #[cold]
    fn send_again(&self, plan: &Plan, grid: Grid, pane: usize, key: &[u8], out: &mut Outputs) -> Result<(), Error> {
        let pane = self.panes[pane].start;
        let mut start = grid.first_window(pane);
        while start <= grid.last_window(pane) && start + grid.size <= self.sent_until {
            if (start + grid.size).saturating_add(plan.lateness) > out.watermark() {
                let mut totals = T::default();
                for part in self.of_window(grid, start).iter().filter_map(|pane| pane.keys.get(key)) {
                    totals.merge(part)?;
                }
                Results::of(start, start + grid.size).send(plan, key, &totals, out.to(0));
            }
            start += grid.slide;
        }
        Ok(())
    }

    /// Event time has reached `watermark`: sends the windows that end by then, forgets what no window needs any more.
    pub(crate) fn advance(&mut self, plan: &Plan, watermark: Timestamp, out: &mut Outputs) -> Result<(), Error> {
        let grid = grid_of(plan);
        if watermark >= self.next_end {
            let mut due = BTreeSet::new();
            for pane in &self.panes {
                let mut start = grid.first_window(pane.start);
                while start <= grid.last_window(pane.start) && start + grid.size <= watermark {
                    if start + grid.size > self.sent_until {
                        due.insert(start);
                    }
                    start += grid.slide;
                }
            }
            for start in due {
                self.send(plan, grid, start, out)?;
            }
        }
        self.sent_until = watermark;
        if self.panes.first().is_some_and(|pane| expired(plan, grid, pane.start, watermark)) {
            self.panes.retain(|pane| !expired(plan, grid, pane.start, watermark));
        }
        if watermark >= self.next_end {
            self.next_end = self.earliest_unsent_end(grid);
        }
        Ok(())
    }

    fn earliest_unsent_end(&self, grid: Grid) -> Timestamp {
        let mut earliest = Timestamp::MAX;
        for pane in &self.panes {
            let first_end = grid.first_window(pane.start) + grid.size;
            let last_end = grid.last_window(pane.start) + grid.size;
            let mut end = first_end;
            while end <= last_end && end <= self.sent_until {
                end += grid.slide;
            }
            if end <= last_end {
                earliest = earliest.min(end);
            }
        }
        earliest
    }

    /// Sends the results of all keys of the window that starts at `start`.
    fn send(&self, plan: &Plan, grid: Grid, start: Timestamp, out: &mut Outputs) -> Result<(), Error> {
        let results = Results::of(start, start + grid.size);
        match self.of_window(grid, start) {
            [] => {}
            [pane] => pane.keys.for_each(|key, totals| results.send(plan, key, totals, out.to(0))),
            panes => {
                let mut merged: KeyMap<T> = KeyMap::default();
                let mut result = Ok(());
                for pane in panes {
                    pane.keys.for_each(|key, totals| {
                        if let Err(error) = merged.or_default(key).merge(totals) {
                            result = Err(Error::fail(error));
                        }
                    });
                }
                result?;
                merged.for_each(|key, totals| results.send(plan, key, totals, out.to(0)));
            }
        }
        Ok(())
    }

    fn of_window(&self, grid: Grid, start: Timestamp) -> &[Pane<T>] {
        let from = self.panes.partition_point(|pane| pane.start < start);
        let to = self.panes.partition_point(|pane| pane.start < start + grid.size);
        &self.panes[from..to]
    }
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

/// The longest span of which both are multiples.
pub(crate) fn greatest_common_divisor(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}
