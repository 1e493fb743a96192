//! What calls of one node have emitted and is not passed on yet.
//!
//! Owns how much that may be. Rows of many small calls go on as one frame, or as one call of what comes next in the chain, but a
//! barrier waits until all of them have: so they are passed on once they are a frame, or as many as go on in [`HELD_TARGET`], which is
//! learned like the rows of a call ([`Pace`]). Nothing is held across a barrier, or from one turn of the task to the next.

use std::time::Duration;

use weir_model::limits;
use weir_sandbox::EmittedRows;

use crate::pace::Pace;

/// Time that passing on what is held should take, with all that comes of it: little beside what a call may.
const HELD_TARGET: Duration = Duration::from_millis(limits::CALL_TARGET_MS / 5);

/// Rows that are held at most for what leaves the task: as many as a router gathers.
const FRAME_ROWS: usize = limits::FRAME_ROWS_MAX / 2;

/// The same for what comes next in the chain. A call gains nothing by more, and these stay in the processor's cache.
const CALL_ROWS: usize = limits::FRAME_ROWS_MAX / 4;
const CALL_BYTES: usize = limits::FRAME_BYTES_TARGET / 4;

/// Rows that a node has emitted, and what is known of passing them on.
#[derive(Debug)]
pub(crate) struct HeldRows {
    pub(crate) rows: EmittedRows,
    pace: Pace,
    rows_max: usize,
    bytes_max: usize,
}

impl HeldRows {
    pub(crate) fn new() -> HeldRows {
        HeldRows { rows: EmittedRows::new(), pace: Pace::new(HELD_TARGET), rows_max: CALL_ROWS, bytes_max: CALL_BYTES }
    }

    /// Some of the rows leave the task, over edges over which so many bytes are worth sending.
    pub(crate) fn set_frame_bytes(&mut self, bytes: usize) {
        (self.rows_max, self.bytes_max) = (FRAME_ROWS, bytes);
    }

    /// Whether it is time to pass on what there is.
    pub(crate) fn is_due(&self) -> bool {
        self.rows.rows_len() >= self.pace.rows_per_call().min(self.rows_max) || self.rows.bytes_len() >= self.bytes_max
    }

    /// Passing on so many rows took so long, all that came of it included.
    pub(crate) fn learn(&mut self, rows: usize, took: Duration) {
        self.pace.learn(rows, took);
    }

    /// What passing on so many rows will take.
    pub(crate) fn cost(&self, rows: usize) -> Duration {
        self.pace.cost(rows)
    }
}
