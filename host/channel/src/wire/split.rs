//! Frames that grew beyond what one may hold on the wire, in pieces that fit.
//!
//! Within a process a frame may be as large as what one call of an operator emits. Others do not have to trust us that
//! far, so it is divided here, where it leaves the process. Rare, so it copies.

use std::sync::Arc;

use weir_model::{Batch, BatchRef, KeyedBatch, RowRef, limits};

use super::WireError;
use super::header::sizes_of;
use crate::Frame;

pub(super) enum Fit {
    One(Frame),
    Several(Vec<Frame>),
}

/// Whether a frame is within the bounds of the wire as it is.
pub(super) fn fits(frame: &Frame) -> bool {
    let (columns, sections) = match frame {
        Frame::Rows(rows) => (&**rows, 0),
        Frame::Keyed(rows) => (rows.columns(), rows.sections_len()),
        Frame::Watermark(_) | Frame::Idle | Frame::Barrier(_) | Frame::End => return true,
    };
    !columns.is_empty() && sizes_of(columns, sections).check().is_ok()
}

/// The frame, or pieces of it in order, each within the bounds. None for a frame of rows without any.
pub(super) fn fit(frame: Frame) -> Result<Fit, WireError> {
    if fits(&frame) {
        return Ok(Fit::One(frame));
    }
    let mut pieces = Vec::new();
    match &frame {
        Frame::Rows(rows) => {
            let (mut piece, mut room) = (Batch::default(), Room::default());
            let mut first = 0;
            while first < rows.len() {
                let end = room.take(rows.view(), first, 0)?;
                piece.extend_range(rows.view(), first..end);
                first = end;
                if room.is_full() || first == rows.len() {
                    pieces.push(Frame::Rows(Arc::new(std::mem::take(&mut piece))));
                    room = Room::default();
                }
            }
        }
        Frame::Keyed(rows) => {
            let (mut piece, mut room) = (KeyedBatch::default(), Room::default());
            let mut rows_before = 0;
            for (group, section) in rows.sections() {
                let mut first = 0;
                while first < section.len() {
                    let end = room.take(section, first, rows_before)?;
                    piece.push_section(group, section, first..end);
                    first = end;
                    if room.is_full() {
                        pieces.push(Frame::Keyed(std::mem::take(&mut piece)));
                        room = Room::default();
                    }
                }
                rows_before += section.len();
            }
            if !piece.is_empty() {
                pieces.push(Frame::Keyed(piece));
            }
        }
        Frame::Watermark(_) | Frame::Idle | Frame::Barrier(_) | Frame::End => {}
    }
    Ok(Fit::Several(pieces))
}

/// What a piece has taken in.
#[derive(Default)]
struct Room {
    rows: usize,
    bytes: usize,
}

impl Room {
    /// Takes rows from `first` on until the piece is full. Gives one past the last of them. `rows_before` is how many rows of the frame
    /// come before these.
    fn take(&mut self, rows: BatchRef<'_>, first: usize, rows_before: usize) -> Result<usize, WireError> {
        let mut row = first;
        while row < rows.len() && !self.is_full() {
            self.bytes += row_bytes(rows_before + row, rows.row(row))?;
            self.rows += 1;
            row += 1;
        }
        Ok(row)
    }

    fn is_full(&self) -> bool {
        self.rows >= limits::FRAME_ROWS_MAX || self.bytes >= limits::FRAME_BYTES_TARGET
    }
}

/// Bytes of a row, if a frame can carry it. `index` is its place in the frame.
fn row_bytes(index: usize, row: RowRef<'_>) -> Result<usize, WireError> {
    let (key_bytes, value_bytes, header_bytes) = (row.key_bytes().len(), row.value_bytes().len(), row.headers.len());
    if key_bytes > limits::KEY_BYTES_MAX || value_bytes > limits::VALUE_BYTES_MAX || header_bytes > limits::HEADERS_BYTES_MAX {
        return Err(WireError::Row { row: index, key_bytes, value_bytes, header_bytes });
    }
    Ok(key_bytes + value_bytes + header_bytes)
}
