//! From bytes to frames.

use std::sync::Arc;

use weir_model::{Batch, Blobs, Extras, KeyedBatch, Section, limits};
use zerocopy::IntoBytes;

use super::encode::swap_on_big_endian;
use super::header::{Header, Kind, Sizes};
use super::{HEADER_BYTES, SECTION_WORDS, WireError};
use crate::Frame;

/// Reads frames from bytes that arrive in pieces of any size.
///
/// Holds at most one frame, and of it little more than what has arrived. After an error it must not be used again.
#[derive(Debug)]
pub struct Decoder {
    header: [u8; HEADER_BYTES],
    filled: usize,
    body: Option<Body>,
}

impl Default for Decoder {
    fn default() -> Decoder {
        Decoder::new()
    }
}

impl Decoder {
    /// At the start of a frame.
    pub fn new() -> Decoder {
        Decoder { header: [0; HEADER_BYTES], filled: 0, body: None }
    }

    /// Takes bytes from the front of `input`, up to the end of a frame or of the input. Gives the frame if that was the
    /// rest of one; call again while `input` is not empty.
    pub fn push(&mut self, input: &mut &[u8]) -> Result<Option<Frame>, WireError> {
        if self.body.is_none() {
            if !fill(&mut self.header, &mut self.filled, input) {
                return Ok(None);
            }
            let header = Header::from_bytes(&self.header)?;
            if let Some(frame) = header.to_frame() {
                self.filled = 0;
                return Ok(Some(frame));
            }
            self.body = Some(Body::new(header));
        }
        if !self.body.as_mut().is_some_and(|body| body.fill(input)) {
            return Ok(None);
        }
        self.filled = 0;
        self.body.take().map(Body::finish).transpose()
    }

    /// Whether all that was taken were whole frames.
    pub fn is_between_frames(&self) -> bool {
        self.filled == 0 && self.body.is_none()
    }
}

/// Reads a sequence of frames, as files hold it.
pub fn decode_all(mut bytes: &[u8]) -> Result<Vec<Frame>, WireError> {
    let mut decoder = Decoder::new();
    let mut frames = Vec::new();
    while !bytes.is_empty() {
        frames.extend(decoder.push(&mut bytes)?);
    }
    if decoder.is_between_frames() { Ok(frames) } else { Err(WireError::Truncated) }
}

/// The columns of a frame, as far as they have arrived.
#[derive(Debug)]
struct Body {
    kind: Kind,
    sizes: Sizes,
    /// Five numbers a section.
    sections: Vec<u32>,
    columns: Batch,
    /// Column that is being filled, in the order of the wire, and how much of it is.
    column: usize,
    filled: usize,
}

impl Body {
    /// The sizes have been checked. The fixed columns are within a mebibyte; keys and values grow as they arrive.
    fn new(header: Header) -> Body {
        let sizes = header.sizes;
        let blobs =
            |bytes: usize| Blobs { ends: vec![0; sizes.rows], bytes: Vec::with_capacity(bytes.min(limits::FRAME_BYTES_TARGET)) };
        Body {
            kind: header.kind,
            sizes,
            sections: vec![0; SECTION_WORDS * sizes.sections],
            columns: Batch {
                timestamps: vec![0; sizes.rows],
                keys: blobs(sizes.key_bytes),
                values: blobs(sizes.value_bytes),
                extras: sizes
                    .header_bytes
                    .map(|header_bytes| Box::new(Extras { absent: vec![0; sizes.rows], headers: blobs(header_bytes) })),
            },
            column: 0,
            filled: 0,
        }
    }

    /// Takes what belongs to this frame. Whether it is whole.
    fn fill(&mut self, input: &mut &[u8]) -> bool {
        let columns = &mut self.columns;
        // Where there are no extras, their columns are empty and so are full at once.
        let mut none = Extras::default();
        let extras = columns.extras.as_deref_mut().unwrap_or(&mut none);
        loop {
            let done = match self.column {
                0 => fill(self.sections.as_mut_bytes(), &mut self.filled, input),
                1 => fill(columns.timestamps.as_mut_bytes(), &mut self.filled, input),
                2 => fill(columns.keys.ends.as_mut_bytes(), &mut self.filled, input),
                3 => fill(columns.values.ends.as_mut_bytes(), &mut self.filled, input),
                4 => fill(extras.headers.ends.as_mut_bytes(), &mut self.filled, input),
                5 => fill(&mut extras.absent, &mut self.filled, input),
                6 => append(&mut columns.keys.bytes, self.sizes.key_bytes, input),
                7 => append(&mut columns.values.bytes, self.sizes.value_bytes, input),
                8 => append(&mut extras.headers.bytes, self.sizes.header_bytes.unwrap_or_default(), input),
                _ => return true,
            };
            if !done {
                return false;
            }
            self.column += 1;
            self.filled = 0;
        }
    }

    fn finish(mut self) -> Result<Frame, WireError> {
        swap_on_big_endian(&mut self.columns);
        if self.columns.extras.as_ref().is_some_and(|extras| extras.view().is_plain()) {
            return Err(WireError::Header("it has a flag for extras, and no row has any"));
        }
        if self.kind == Kind::Keyed {
            let sections = self.sections.as_chunks::<SECTION_WORDS>().0.iter().map(section).collect::<Result<_, _>>()?;
            return Ok(Frame::Keyed(KeyedBatch::from_parts(self.columns, sections)?));
        }
        let rows = self.columns.view();
        if !rows.keys.is_valid() {
            return Err(WireError::Column("keys"));
        }
        if !rows.values.is_valid() {
            return Err(WireError::Column("values"));
        }
        if rows.extras.is_some() && !rows.is_valid() {
            return Err(WireError::Extras);
        }
        Ok(Frame::Rows(Arc::new(self.columns)))
    }
}

fn section(words: &[u32; SECTION_WORDS]) -> Result<Section, WireError> {
    let [key_group, rows_end, key_bytes_end, value_bytes_end, header_bytes_end] = words.map(u32::from_le);
    let key_group = u16::try_from(key_group).map_err(|_| WireError::TooLarge {
        what: "as the number of a key group",
        found: key_group as usize,
        max: usize::from(limits::KEY_GROUPS_MAX) - 1,
    })?;
    Ok(Section { key_group, rows_end, key_bytes_end, value_bytes_end, header_bytes_end })
}

/// Moves bytes from `input` to the unfilled part of `to`. Whether it is full.
fn fill(to: &mut [u8], filled: &mut usize, input: &mut &[u8]) -> bool {
    let len = input.len().min(to.len() - *filled);
    let (taken, rest) = input.split_at(len);
    to[*filled..*filled + len].copy_from_slice(taken);
    *filled += len;
    *input = rest;
    *filled == to.len()
}

/// Moves bytes from `input` to the end of `to` until it has `len`. Whether it has.
fn append(to: &mut Vec<u8>, len: usize, input: &mut &[u8]) -> bool {
    let (taken, rest) = input.split_at(input.len().min(len - to.len()));
    to.extend_from_slice(taken);
    *input = rest;
    to.len() == len
}
