//! From frames to bytes.

use std::sync::Arc;

use bytes::Bytes;
use weir_model::{Batch, Extras, KeyedBatch, Section};
use zerocopy::IntoBytes;

use super::header::Header;
use super::split::{self, Fit};
use super::{HEADER_BYTES, SECTION_BYTES, WireError};
use crate::Frame;

/// Frames up to this size become one piece: copying them is cheaper than keeping track of columns.
const ONE_PIECE_BYTES_MAX: usize = 8 << 10;

/// Appends a frame's bytes to `out` as a few pieces, and gives how many bytes they are. The large columns are not copied:
/// the pieces keep the frame's memory alive until they are sent.
///
/// Rows beyond what one frame may hold become several frames. A single row beyond the limits is an error, and then
/// nothing was appended.
pub fn encode(frame: Frame, out: &mut Vec<Bytes>) -> Result<usize, WireError> {
    let before = out.len();
    match split::fit(frame)? {
        Fit::One(frame) => encode_one(frame, out),
        Fit::Several(frames) => frames.into_iter().for_each(|frame| encode_one(frame, out)),
    }
    Ok(out[before..].iter().map(Bytes::len).sum())
}

/// A frame's bytes in one piece, for files. As [`encode`] otherwise.
pub fn encode_to_vec(frame: &Frame) -> Result<Vec<u8>, WireError> {
    let mut out = Vec::new();
    if split::fits(frame) {
        copy_one(frame, &mut out);
    } else {
        match split::fit(frame.clone())? {
            Fit::One(frame) => copy_one(&frame, &mut out),
            Fit::Several(frames) => frames.iter().for_each(|frame| copy_one(frame, &mut out)),
        }
    }
    Ok(out)
}

fn encode_one(frame: Frame, out: &mut Vec<Bytes>) {
    if frame.size_bytes() <= ONE_PIECE_BYTES_MAX {
        let mut piece = Vec::with_capacity(HEADER_BYTES + frame.size_bytes() + ONE_PIECE_BYTES_MAX / 8);
        copy_one(&frame, &mut piece);
        out.push(Bytes::from(piece));
        return;
    }
    let mut first = Header::of(&frame).to_bytes().to_vec();
    match frame {
        Frame::Rows(rows) => {
            out.push(Bytes::from(first));
            push_columns(&little_endian(rows), |rows| rows, out);
        }
        Frame::Keyed(rows) => {
            append_sections(&rows, &mut first);
            out.push(Bytes::from(first));
            if cfg!(target_endian = "big") {
                push_columns(&little_endian(Arc::new(rows.columns().clone())), |rows| rows, out);
            } else {
                push_columns(&Arc::new(rows), KeyedBatch::columns, out);
            }
        }
        Frame::Watermark(_) | Frame::Idle | Frame::Barrier(_) | Frame::End => out.push(Bytes::from(first)),
    }
}

fn copy_one(frame: &Frame, out: &mut Vec<u8>) {
    out.extend_from_slice(&Header::of(frame).to_bytes());
    let columns = match frame {
        Frame::Rows(rows) => &**rows,
        Frame::Keyed(rows) => {
            append_sections(rows, out);
            rows.columns()
        }
        Frame::Watermark(_) | Frame::Idle | Frame::Barrier(_) | Frame::End => return,
    };
    if cfg!(target_endian = "big") {
        let columns = little_endian(Arc::new(columns.clone()));
        COLUMNS.iter().for_each(|column| out.extend_from_slice(column(&columns)));
    } else {
        COLUMNS.iter().for_each(|column| out.extend_from_slice(column(columns)));
    }
}

fn append_sections(rows: &KeyedBatch, out: &mut Vec<u8>) {
    out.reserve(rows.sections_len() * SECTION_BYTES);
    for section in rows.section_ends() {
        let Section { key_group, rows_end, key_bytes_end, value_bytes_end, header_bytes_end } = *section;
        let words = [u32::from(key_group), rows_end, key_bytes_end, value_bytes_end, header_bytes_end];
        words.iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
    }
}

/// The columns in their order on the wire. Those of extras are empty where there are none.
const COLUMNS: [fn(&Batch) -> &[u8]; 8] = [
    |rows| rows.timestamps.as_bytes(),
    |rows| rows.keys.ends.as_bytes(),
    |rows| rows.values.ends.as_bytes(),
    |rows| of_extras(rows, |extras| extras.headers.ends.as_bytes()),
    |rows| of_extras(rows, |extras| &extras.absent),
    |rows| &rows.keys.bytes,
    |rows| &rows.values.bytes,
    |rows| of_extras(rows, |extras| &extras.headers.bytes),
];

fn of_extras(rows: &Batch, column: fn(&Extras) -> &[u8]) -> &[u8] {
    rows.extras.as_deref().map_or(&[], column)
}

/// A column that keeps its rows alive.
struct Column<T> {
    rows: Arc<T>,
    columns: fn(&T) -> &Batch,
    column: fn(&Batch) -> &[u8],
}

impl<T> AsRef<[u8]> for Column<T> {
    fn as_ref(&self) -> &[u8] {
        (self.column)((self.columns)(&self.rows))
    }
}

fn push_columns<T: Send + Sync + 'static>(rows: &Arc<T>, columns: fn(&T) -> &Batch, out: &mut Vec<Bytes>) {
    for column in COLUMNS {
        let piece = Bytes::from_owner(Column { rows: rows.clone(), columns, column });
        if !piece.is_empty() {
            out.push(piece);
        }
    }
}

/// Rows whose numbers have the byte order of the wire. On nearly all machines they have it already.
fn little_endian(rows: Arc<Batch>) -> Arc<Batch> {
    if cfg!(target_endian = "little") {
        return rows;
    }
    let mut rows = Arc::unwrap_or_clone(rows);
    swap_on_big_endian(&mut rows);
    Arc::new(rows)
}

/// To or from the byte order of the wire.
pub(super) fn swap_on_big_endian(rows: &mut Batch) {
    if cfg!(target_endian = "big") {
        rows.timestamps.iter_mut().for_each(|time| *time = time.to_le());
        let headers = rows.extras.iter_mut().flat_map(|extras| &mut extras.headers.ends);
        rows.keys.ends.iter_mut().chain(&mut rows.values.ends).chain(headers).for_each(|end| *end = end.to_le());
    }
}
