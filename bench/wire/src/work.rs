//! What all links do alike: the frames, the count, and the CPU time.

use std::sync::Arc;

use anyhow::{Context, Result};
use weir_channel::Frame;
use weir_model::{Batch, limits};

/// The rows of bench/jobs: a key of 8 and a value of 64 bytes; with their time 80.
const KEY_BYTES: usize = 8;
const VALUE_BYTES: usize = 64;
/// On the wire: those and where key and value end.
const ROW_BYTES: usize = 8 + KEY_BYTES + VALUE_BYTES + 2 * 4;

/// What was sent or received.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) rows: u64,
    /// Bytes of encoded frames; only the sender counts them.
    pub(crate) bytes: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, rows: usize, bytes: usize) {
        self.rows += rows as u64;
        self.bytes += bytes as u64;
    }

    pub(crate) fn sum(tallies: impl IntoIterator<Item = Tally>) -> Tally {
        tallies.into_iter().fold(Tally::default(), |sum, one| Tally { rows: sum.rows + one.rows, bytes: sum.bytes + one.bytes })
    }
}

/// A frame of about this size.
pub(crate) fn frame(bytes: usize) -> Frame {
    let rows = (bytes / ROW_BYTES).clamp(1, limits::FRAME_ROWS_MAX);
    let mut batch = Batch::with_capacity(rows, rows * KEY_BYTES, rows * VALUE_BYTES);
    for row in 0..rows as u64 {
        // Nothing that moves them looks at them.
        let key = row.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes();
        batch.push(row as i64, &key, &[row as u8; VALUE_BYTES]);
    }
    Frame::Rows(Arc::new(batch))
}

/// CPU seconds, user and system, of this process so far, to a hundredth.
pub(crate) fn cpu_s() -> Result<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").context("cannot read /proc/self/stat")?;
    let ticks = || {
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
        Some(fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?)
    };
    Ok(ticks().context("/proc/self/stat has an unknown form")? as f64 / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_has_about_the_size_that_was_asked_for() {
        for bytes in [64 << 10, 1 << 20, 2 << 20] {
            let encoded = weir_channel::wire::encode_to_vec(&frame(bytes)).expect("a frame that fits");
            assert!(encoded.len() <= bytes + 256 && encoded.len() >= bytes - ROW_BYTES, "{} of {bytes}", encoded.len());
        }
    }
}
