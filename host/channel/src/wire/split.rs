//! Frames that grew beyond what one may hold on the wire, in pieces that fit.
//!
//! Within a process a frame may be as large as what one call of an operator emits. Others do not have to trust us that
//! far, so it is divided here, where it leaves the process. Rare, so it copies.

use std::sync::Arc;

use weir_model::{Batch, BatchRef, Blobs, KeyGroup, KeyedBatch, Section, limits};

use super::WireError;
use super::header::Sizes;
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
    let (key_bytes, value_bytes) = (columns.keys.bytes.len(), columns.values.bytes.len());
    !columns.is_empty() && Sizes { rows: columns.len(), sections, key_bytes, value_bytes }.check().is_ok()
}

/// The frame, or pieces of it in order, each within the bounds. None for a frame of rows without any.
pub(super) fn fit(frame: Frame) -> Result<Fit, WireError> {
    if fits(&frame) {
        return Ok(Fit::One(frame));
    }
    let mut pieces = Vec::new();
    match &frame {
        Frame::Rows(rows) => {
            let mut piece = Batch::default();
            for (index, (time, key, value)) in rows.rows().enumerate() {
                check_row(index, key, value)?;
                piece.push(time, key, value);
                if is_full(piece.view()) {
                    pieces.push(Frame::Rows(Arc::new(std::mem::take(&mut piece))));
                }
            }
            if !piece.is_empty() {
                pieces.push(Frame::Rows(Arc::new(piece)));
            }
        }
        Frame::Keyed(rows) => {
            let mut piece = Piece::default();
            let mut index = 0;
            for (group, section) in rows.sections() {
                for (time, key, value) in section.rows() {
                    check_row(index, key, value)?;
                    index += 1;
                    piece.push(group, time, key, value);
                    if is_full(piece.columns.view()) {
                        pieces.push(std::mem::take(&mut piece).finish()?);
                    }
                }
            }
            if !piece.columns.is_empty() {
                pieces.push(piece.finish()?);
            }
        }
        Frame::Watermark(_) | Frame::Idle | Frame::Barrier(_) | Frame::End => {}
    }
    Ok(Fit::Several(pieces))
}

fn is_full(rows: BatchRef<'_>) -> bool {
    let bytes = rows.keys.bytes.len() + rows.values.bytes.len();
    rows.len() >= limits::FRAME_ROWS_MAX || bytes >= limits::FRAME_BYTES_TARGET
}

fn check_row(row: usize, key: &[u8], value: &[u8]) -> Result<(), WireError> {
    if key.len() > limits::KEY_BYTES_MAX || value.len() > limits::VALUE_BYTES_MAX {
        return Err(WireError::Row { row, key_bytes: key.len(), value_bytes: value.len() });
    }
    Ok(())
}

/// Rows by key group, as far as they fit into one frame.
#[derive(Default)]
struct Piece {
    columns: Batch,
    sections: Vec<Section>,
}

impl Piece {
    fn push(&mut self, key_group: KeyGroup, time: i64, key: &[u8], value: &[u8]) {
        if self.sections.last().is_none_or(|last| last.key_group != key_group) {
            let (keys, values) = (&self.columns.keys.bytes, &self.columns.values.bytes);
            let (key_bytes_end, value_bytes_end) = (keys.len() as u32, values.len() as u32);
            let rows_end = self.columns.len() as u32;
            self.sections.push(Section { key_group, rows_end, key_bytes_end, value_bytes_end });
        }
        let last = self.sections.len() - 1;
        let start = last.checked_sub(1).map(|before| self.sections[before]);
        let section = &mut self.sections[last];
        self.columns.timestamps.push(time);
        section.rows_end = self.columns.len() as u32;
        section.key_bytes_end = append(&mut self.columns.keys, start.map_or(0, |s| s.key_bytes_end), key);
        section.value_bytes_end = append(&mut self.columns.values, start.map_or(0, |s| s.value_bytes_end), value);
    }

    fn finish(self) -> Result<Frame, WireError> {
        Ok(Frame::Keyed(KeyedBatch::from_parts(self.columns, self.sections)?))
    }
}

/// Appends an item to a section that starts at byte `start`. Gives where its bytes end.
fn append(column: &mut Blobs, start: u32, item: &[u8]) -> u32 {
    column.bytes.extend_from_slice(item);
    let end = column.bytes.len() as u32;
    column.ends.push(end - start);
    end
}
