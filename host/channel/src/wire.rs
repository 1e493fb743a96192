//! Frames as bytes: between processes, and in the files that keep in-flight data.
//!
//! A frame is a fixed header and its columns, little-endian, never the memory layout of a Rust struct:
//!
//! | offset | size | what |
//! |---|---|---|
//! | 0 | 4 | `WEIR` |
//! | 4 | 1 | version of this format |
//! | 5 | 1 | kind |
//! | 6 | 2 | flags: of rows, 1: extras follow; of a barrier, 1: stop, 2: unaligned |
//! | 8 | 4 | rows |
//! | 12 | 4 | sections (key groups that have rows) |
//! | 16 | 4 | bytes of keys |
//! | 20 | 4 | bytes of values |
//! | 24 | 8 | watermark, or attempt of a barrier, or bytes of headers |
//! | 32 | 8 | checkpoint of a barrier |
//! | 40 | 8 | XXH3 of the 40 bytes before |
//!
//! Then, for rows: sections (key group, end of rows, of key bytes, of value bytes, of header bytes; 4 bytes each), timestamps (8 bytes
//! each), ends of keys, ends of values (4 bytes each), of extras: ends of headers (4 bytes each) and what is absent (1 byte a row: 1 the key,
//! 2 the value), keys, values, of extras: headers (as the WIT has them). Extras follow only where a row has headers or lacks something, and
//! what a kind does not use is zero, so that a frame has exactly one encoding.
//!
//! [`encode`] does not copy large columns, [`Decoder`] copies each byte once, into its column. Everything is checked before
//! it is believed: a decoder never panics, and never holds more than a frame may have.

mod decode;
mod encode;
#[doc(hidden)]
pub mod fuzz;
mod header;
mod split;
#[cfg(test)]
mod tests;

use weir_model::{KeyedBatchError, limits};

pub use decode::{Decoder, decode_all};
pub use encode::{encode, encode_to_vec};

/// Length of the header every frame starts with.
pub const HEADER_BYTES: usize = 48;

/// Numbers of a section.
const SECTION_WORDS: usize = 5;

/// Bytes of a section.
const SECTION_BYTES: usize = 4 * SECTION_WORDS;

/// Why bytes are no frame, or a frame cannot become bytes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The bytes are not a frame, or reading started in the middle of one.
    #[error("not a frame: it starts with {0:02x?} instead of \"WEIR\"")]
    Magic([u8; 4]),
    /// A newer or older Weir wrote it.
    #[error("the frame has format version {0}, this program reads version {ours}", ours = header::VERSION)]
    Version(u8),
    /// The header was damaged.
    #[error("the header of the frame is damaged: its checksum is {found:016x}, it should be {expected:016x}")]
    Checksum {
        /// What the header says.
        found: u64,
        /// What its bytes give.
        expected: u64,
    },
    /// The header says what no frame can be.
    #[error("the header of the frame makes no sense: {0}")]
    Header(&'static str),
    /// More than a frame may hold.
    #[error("the frame has {found} {what}, more than the limit of {max}")]
    TooLarge {
        /// Of what.
        what: &'static str,
        /// How much it says to have.
        found: usize,
        /// The limit.
        max: usize,
    },
    /// The ends of items fall, or the last one is not the number of bytes.
    #[error("the ends of the {0} disagree with their bytes")]
    Column(&'static str),
    /// The extras are not what the rows can have.
    #[error("the headers of the rows, or what they say is absent, disagree with their bytes")]
    Extras,
    /// The sections disagree with each other or with the columns.
    #[error("the frame's sections are wrong: {0}")]
    Sections(#[from] KeyedBatchError),
    /// The bytes end within a frame.
    #[error("the bytes end within a frame")]
    Truncated,
    /// A row that no frame can carry.
    #[error(
        "row {row} has a key of {key_bytes} bytes, a value of {value_bytes} and headers of {header_bytes}; the limits are {key}, {value} and \
         {headers}",
        key = limits::KEY_BYTES_MAX,
        value = limits::VALUE_BYTES_MAX,
        headers = limits::HEADERS_BYTES_MAX
    )]
    Row {
        /// Its index in the frame.
        row: usize,
        /// Length of its key.
        key_bytes: usize,
        /// Length of its value.
        value_bytes: usize,
        /// Length of its headers.
        header_bytes: usize,
    },
}
