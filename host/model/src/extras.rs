//! What few rows have beside time, key and value: that the key or the value is absent, and headers.
//!
//! A batch has extras only where one of its rows says something by them, so that all others pay one test for it, and equal rows are
//! equal batches. One byte a row and not a bit, so that rows can be sliced anywhere.

use std::ops::Range;

use crate::headers::are_headers;
use crate::{Blobs, BlobsRef, Timestamp};

/// What few rows have. Both columns have one item a row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extras {
    /// [`Extras::KEY_ABSENT`] and [`Extras::VALUE_ABSENT`] of each row. What is absent has no bytes in its own column.
    pub absent: Vec<u8>,
    /// The headers of each row, in the WIT's form (`headers_of`).
    pub headers: Blobs,
}

/// Borrowed [`Extras`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExtrasRef<'a> {
    /// [`Extras::KEY_ABSENT`] and [`Extras::VALUE_ABSENT`] of each row.
    pub absent: &'a [u8],
    /// The headers of each row, in the WIT's form.
    pub headers: BlobsRef<'a>,
}

/// One row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowRef<'a> {
    /// Event time, milliseconds since the Unix epoch.
    pub timestamp: Timestamp,
    /// The key. `None`: the row has none, which is not a key of no bytes.
    pub key: Option<&'a [u8]>,
    /// The value. `None`: a tombstone, which is not a value of no bytes.
    pub value: Option<&'a [u8]>,
    /// The headers in the WIT's form; no bytes: there are none.
    pub headers: &'a [u8],
}

impl<'a> RowRef<'a> {
    /// A row that has key and value, and no headers.
    pub fn new(timestamp: Timestamp, key: &'a [u8], value: &'a [u8]) -> RowRef<'a> {
        RowRef { timestamp, key: Some(key), value: Some(value), headers: b"" }
    }

    /// The bytes of the key; none where it is absent. Its hash is that of these.
    #[inline]
    pub fn key_bytes(self) -> &'a [u8] {
        self.key.unwrap_or_default()
    }

    /// The bytes of the value; none where it is absent.
    #[inline]
    pub fn value_bytes(self) -> &'a [u8] {
        self.value.unwrap_or_default()
    }

    /// Whether the row has key and value, and no headers: nothing that needs extras.
    #[inline]
    pub fn is_plain(self) -> bool {
        self.key.is_some() && self.value.is_some() && self.headers.is_empty()
    }

    /// The row's item of [`Extras::absent`].
    pub(crate) fn absent(self) -> u8 {
        let key = if self.key.is_none() { Extras::KEY_ABSENT } else { 0 };
        let value = if self.value.is_none() { Extras::VALUE_ABSENT } else { 0 };
        key | value
    }
}

impl Extras {
    /// The row has no key.
    pub const KEY_ABSENT: u8 = 1;
    /// The row has no value.
    pub const VALUE_ABSENT: u8 = 2;

    /// Of so many rows that say nothing.
    pub(crate) fn plain(rows: usize) -> Extras {
        Extras { absent: vec![0; rows], headers: Blobs { ends: vec![0; rows], bytes: Vec::new() } }
    }

    /// Appends rows that say nothing. Ends of headers count from byte `base`.
    pub(crate) fn push_plain(&mut self, rows: usize, base: usize) {
        let len = self.absent.len() + rows;
        self.absent.resize(len, 0);
        self.headers.ends.resize(len, (self.headers.bytes.len() - base) as u32);
    }

    /// The extras, borrowed.
    pub fn view(&self) -> ExtrasRef<'_> {
        ExtrasRef { absent: &self.absent, headers: self.headers.view() }
    }
}

impl<'a> ExtrasRef<'a> {
    /// Whether no row has any headers nor lacks anything: then a batch has no extras.
    pub fn is_plain(self) -> bool {
        self.headers.bytes.is_empty() && self.absent.iter().all(|&absent| absent == 0)
    }

    /// Whether that is so of some rows.
    pub(crate) fn is_plain_in(self, rows: Range<usize>) -> bool {
        self.headers.start(rows.start) == self.headers.start(rows.end) && self.absent[rows].iter().all(|&absent| absent == 0)
    }

    /// Whether that is so of a row.
    pub(crate) fn is_plain_at(self, row: usize) -> bool {
        self.absent[row] == 0 && self.headers.get(row).is_empty()
    }

    /// Memory they take.
    pub(crate) fn size_bytes(self) -> usize {
        self.absent.len() * (1 + size_of::<u32>()) + self.headers.bytes.len()
    }

    /// Whether they fit rows with these keys and values and are well-formed; that they say something is not asked.
    pub(crate) fn are_valid(self, keys: BlobsRef<'_>, values: BlobsRef<'_>) -> bool {
        let known = self.absent.iter().all(|&absent| absent & !(Extras::KEY_ABSENT | Extras::VALUE_ABSENT) == 0);
        let lengths = self.absent.len() == keys.len() && self.headers.len() == keys.len();
        lengths
            && known
            && self.headers.is_valid()
            && self.headers.iter().all(are_headers)
            && self.absent.iter().enumerate().filter(|(_, absent)| **absent != 0).all(|(row, absent)| {
                (absent & Extras::KEY_ABSENT == 0 || keys.get(row).is_empty())
                    && (absent & Extras::VALUE_ABSENT == 0 || values.get(row).is_empty())
            })
    }
}
