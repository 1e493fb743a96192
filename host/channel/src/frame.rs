//! One entry of a channel.

use std::sync::Arc;

use weir_model::{Barrier, Batch, KeyedBatch, Timestamp};

/// One entry of a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// Rows for whichever instance the receiver has (forward, rebalance, broadcast).
    Rows(Arc<Batch>),
    /// Rows ordered by key group (hash).
    Keyed(KeyedBatch),
    /// No row with an earlier event time follows, but for late ones. Also ends idleness.
    Watermark(Timestamp),
    /// The sender has nothing for now; the receiver's watermark need not wait for it. Any later rows or watermark end it.
    Idle,
    /// Marker of a checkpoint.
    Barrier(Barrier),
    /// Nothing follows.
    End,
}

impl Frame {
    /// Memory the frame takes, for accounting.
    pub fn size_bytes(&self) -> usize {
        match self {
            Frame::Rows(rows) => rows.size_bytes(),
            Frame::Keyed(rows) => rows.size_bytes(),
            Frame::Watermark(_) | Frame::Idle | Frame::Barrier(_) | Frame::End => 0,
        }
    }

    /// Rows in the frame.
    pub fn rows_len(&self) -> usize {
        match self {
            Frame::Rows(rows) => rows.len(),
            Frame::Keyed(rows) => rows.len(),
            Frame::Watermark(_) | Frame::Idle | Frame::Barrier(_) | Frame::End => 0,
        }
    }
}
