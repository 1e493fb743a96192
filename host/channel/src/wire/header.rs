//! The fixed part of a frame: 48 bytes, checked before anything is allocated for the rest.

use weir_model::{Attempt, Barrier, BarrierKind, CheckpointId, limits};
use xxhash_rust::xxh3::xxh3_64;

use super::{HEADER_BYTES, WireError};
use crate::Frame;

pub(super) const VERSION: u8 = 2;
const MAGIC: [u8; 4] = *b"WEIR";
const CHECKED: usize = HEADER_BYTES - 8;

const FLAG_STOP: u16 = 1;
const FLAG_UNALIGNED: u16 = 2;
/// Of rows.
const FLAG_EXTRAS: u16 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Rows = 1,
    Keyed = 2,
    Watermark = 3,
    Idle = 4,
    Barrier = 5,
    End = 6,
}

/// How much of each column follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sizes {
    pub(super) rows: usize,
    pub(super) sections: usize,
    pub(super) key_bytes: usize,
    pub(super) value_bytes: usize,
    /// Bytes of headers, where the rows have extras.
    pub(super) header_bytes: Option<usize>,
}

/// A header that makes sense and is within bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) kind: Kind,
    flags: u16,
    pub(super) sizes: Sizes,
    words: [u64; 2],
}

impl Sizes {
    /// Whether a frame may be this large.
    pub(super) fn check(self) -> Result<(), WireError> {
        let at_most = |what, found, max| if found <= max { Ok(()) } else { Err(WireError::TooLarge { what, found, max }) };
        at_most("rows", self.rows, limits::FRAME_ROWS_MAX)?;
        at_most("sections", self.sections, usize::from(limits::KEY_GROUPS_MAX).min(self.rows))?;
        let header_bytes = self.header_bytes.unwrap_or_default();
        at_most("bytes", self.key_bytes.saturating_add(self.value_bytes).saturating_add(header_bytes), limits::FRAME_BYTES_MAX)
    }
}

impl Header {
    pub(super) fn of(frame: &Frame) -> Header {
        let plain = |kind| Header { kind, flags: 0, sizes: Sizes::default(), words: [0, 0] };
        match frame {
            Frame::Rows(rows) => Header::of_rows(Kind::Rows, sizes_of(rows, 0)),
            Frame::Keyed(rows) => Header::of_rows(Kind::Keyed, sizes_of(rows.columns(), rows.sections_len())),
            Frame::Watermark(time) => Header { words: [time.cast_unsigned(), 0], ..plain(Kind::Watermark) },
            Frame::Idle => plain(Kind::Idle),
            Frame::Barrier(barrier) => {
                let stop = if barrier.kind == BarrierKind::Stop { FLAG_STOP } else { 0 };
                let unaligned = if barrier.unaligned { FLAG_UNALIGNED } else { 0 };
                let words = [barrier.attempt.0, barrier.checkpoint.0];
                Header { flags: stop | unaligned, words, ..plain(Kind::Barrier) }
            }
            Frame::End => plain(Kind::End),
        }
    }

    fn of_rows(kind: Kind, sizes: Sizes) -> Header {
        let flags = if sizes.header_bytes.is_some() { FLAG_EXTRAS } else { 0 };
        Header { kind, flags, sizes, words: [sizes.header_bytes.unwrap_or_default() as u64, 0] }
    }

    /// The header as bytes. The sizes have been checked.
    pub(super) fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        out[..4].copy_from_slice(&MAGIC);
        out[4] = VERSION;
        out[5] = self.kind as u8;
        out[6..8].copy_from_slice(&self.flags.to_le_bytes());
        let sizes = [self.sizes.rows, self.sizes.sections, self.sizes.key_bytes, self.sizes.value_bytes];
        for (index, size) in sizes.into_iter().enumerate() {
            out[8 + 4 * index..][..4].copy_from_slice(&(size as u32).to_le_bytes());
        }
        for (index, word) in self.words.into_iter().enumerate() {
            out[24 + 8 * index..][..8].copy_from_slice(&word.to_le_bytes());
        }
        let checksum = xxh3_64(&out[..CHECKED]);
        out[CHECKED..].copy_from_slice(&checksum.to_le_bytes());
        out
    }

    pub(super) fn from_bytes(bytes: &[u8; HEADER_BYTES]) -> Result<Header, WireError> {
        let magic = array(bytes, 0);
        if magic != MAGIC {
            return Err(WireError::Magic(magic));
        }
        if bytes[4] != VERSION {
            return Err(WireError::Version(bytes[4]));
        }
        let (found, expected) = (u64::from_le_bytes(array(bytes, CHECKED)), xxh3_64(&bytes[..CHECKED]));
        if found != expected {
            return Err(WireError::Checksum { found, expected });
        }
        let kind = match bytes[5] {
            1 => Kind::Rows,
            2 => Kind::Keyed,
            3 => Kind::Watermark,
            4 => Kind::Idle,
            5 => Kind::Barrier,
            6 => Kind::End,
            _ => return Err(WireError::Header("the kind is unknown")),
        };
        let size = |at| u32::from_le_bytes(array(bytes, at)) as usize;
        let words = [24, 32].map(|at| u64::from_le_bytes(array(bytes, at)));
        let flags = u16::from_le_bytes(array(bytes, 6));
        let has_extras = matches!(kind, Kind::Rows | Kind::Keyed) && flags & FLAG_EXTRAS != 0;
        // What does not fit is too large anyway.
        let header_bytes = has_extras.then(|| usize::try_from(words[0]).unwrap_or(usize::MAX));
        let sizes = Sizes { rows: size(8), sections: size(12), key_bytes: size(16), value_bytes: size(20), header_bytes };
        let header = Header { kind, flags, sizes, words };
        header.check()?;
        Ok(header)
    }

    fn check(&self) -> Result<(), WireError> {
        self.sizes.check()?;
        let flags_max = match self.kind {
            Kind::Barrier => FLAG_STOP | FLAG_UNALIGNED,
            Kind::Rows | Kind::Keyed => FLAG_EXTRAS,
            Kind::Watermark | Kind::Idle | Kind::End => 0,
        };
        let words_used = match self.kind {
            Kind::Barrier => 2,
            Kind::Watermark => 1,
            Kind::Rows | Kind::Keyed => usize::from(self.sizes.header_bytes.is_some()),
            Kind::Idle | Kind::End => 0,
        };
        if self.flags & !flags_max != 0 {
            return Err(WireError::Header("it has flags that its kind does not know"));
        }
        if self.words[words_used..].iter().any(|&word| word != 0) {
            return Err(WireError::Header("it has fields that its kind does not use"));
        }
        match (self.kind, self.sizes.rows, self.sizes.sections) {
            (Kind::Rows | Kind::Keyed, 0, _) => Err(WireError::Header("there are no rows")),
            (Kind::Rows, _, 1..) => Err(WireError::Header("rows without key groups have sections")),
            (Kind::Keyed, _, 0) => Err(WireError::Header("rows by key group have no sections")),
            (Kind::Rows | Kind::Keyed, ..) => Ok(()),
            _ if self.sizes != Sizes::default() => Err(WireError::Header("a frame without rows has columns")),
            _ => Ok(()),
        }
    }

    /// The frame, if it has no rows.
    pub(super) fn to_frame(self) -> Option<Frame> {
        match self.kind {
            Kind::Rows | Kind::Keyed => None,
            Kind::Watermark => Some(Frame::Watermark(self.words[0].cast_signed())),
            Kind::Idle => Some(Frame::Idle),
            Kind::Barrier => Some(Frame::Barrier(Barrier {
                attempt: Attempt(self.words[0]),
                checkpoint: CheckpointId(self.words[1]),
                kind: if self.flags & FLAG_STOP != 0 { BarrierKind::Stop } else { BarrierKind::Checkpoint },
                unaligned: self.flags & FLAG_UNALIGNED != 0,
            })),
            Kind::End => Some(Frame::End),
        }
    }
}

pub(super) fn sizes_of(columns: &weir_model::Batch, sections: usize) -> Sizes {
    let header_bytes = columns.extras.as_ref().map(|extras| extras.headers.bytes.len());
    let (key_bytes, value_bytes) = (columns.keys.bytes.len(), columns.values.bytes.len());
    Sizes { rows: columns.len(), sections, key_bytes, value_bytes, header_bytes }
}

/// Some bytes of a frame's header, whose length is known.
fn array<const N: usize>(bytes: &[u8; HEADER_BYTES], at: usize) -> [u8; N] {
    std::array::from_fn(|index| bytes[at + index])
}
