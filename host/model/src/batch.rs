//! Rows, column by column: the shape of `types.batch` in the WIT, on the wire and in the host.

use std::ops::Range;

use crate::{Blobs, BlobsRef, Timestamp};

/// Owned rows. The three columns have the same number of items.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Event times, milliseconds since the Unix epoch.
    pub timestamps: Vec<Timestamp>,
    /// Keys; zero bytes mean the row has no key.
    pub keys: Blobs,
    /// Values.
    pub values: Blobs,
}

/// Borrowed [`Batch`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchRef<'a> {
    /// Event times, milliseconds since the Unix epoch.
    pub timestamps: &'a [Timestamp],
    /// Keys; zero bytes mean the row has no key.
    pub keys: BlobsRef<'a>,
    /// Values.
    pub values: BlobsRef<'a>,
}

impl Batch {
    /// An empty batch with room for `rows` of `key_bytes` and `value_bytes` in all.
    pub fn with_capacity(rows: usize, key_bytes: usize, value_bytes: usize) -> Batch {
        Batch {
            timestamps: Vec::with_capacity(rows),
            keys: Blobs::with_capacity(rows, key_bytes),
            values: Blobs::with_capacity(rows, value_bytes),
        }
    }

    /// Appends one row.
    #[inline]
    pub fn push(&mut self, timestamp: Timestamp, key: &[u8], value: &[u8]) {
        self.timestamps.push(timestamp);
        self.keys.push(key);
        self.values.push(value);
    }

    /// Appends all rows of another batch.
    pub fn extend(&mut self, rows: BatchRef<'_>) {
        self.timestamps.extend_from_slice(rows.timestamps);
        self.keys.extend(rows.keys);
        self.values.extend(rows.values);
    }

    /// Appends some rows of another batch.
    pub fn extend_range(&mut self, rows: BatchRef<'_>, range: Range<usize>) {
        for row in range {
            self.push(rows.timestamps[row], rows.keys.get(row), rows.values.get(row));
        }
    }

    /// Number of rows.
    #[inline]
    pub fn len(&self) -> usize {
        self.timestamps.len()
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.timestamps.is_empty()
    }

    /// Removes all rows, keeps the room.
    pub fn clear(&mut self) {
        self.timestamps.clear();
        self.keys.clear();
        self.values.clear();
    }

    /// The rows, borrowed.
    #[inline]
    pub fn view(&self) -> BatchRef<'_> {
        BatchRef { timestamps: &self.timestamps, keys: self.keys.view(), values: self.values.view() }
    }

    /// Memory the rows take.
    pub fn size_bytes(&self) -> usize {
        self.view().size_bytes()
    }

    /// The rows in order, as (timestamp, key, value).
    pub fn rows(&self) -> impl ExactSizeIterator<Item = (Timestamp, &[u8], &[u8])> {
        self.view().rows()
    }
}

impl<'a> BatchRef<'a> {
    /// Number of rows.
    #[inline]
    pub fn len(&self) -> usize {
        self.timestamps.len()
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.timestamps.is_empty()
    }

    /// A copy that owns its columns.
    pub fn to_batch(self) -> Batch {
        let mut batch = Batch::with_capacity(self.len(), self.keys.bytes.len(), self.values.bytes.len());
        batch.extend(self);
        batch
    }

    /// Memory the rows take.
    pub fn size_bytes(self) -> usize {
        self.len() * (size_of::<Timestamp>() + 2 * size_of::<u32>()) + self.keys.bytes.len() + self.values.bytes.len()
    }

    /// The rows in order, as (timestamp, key, value).
    pub fn rows(self) -> impl ExactSizeIterator<Item = (Timestamp, &'a [u8], &'a [u8])> {
        self.timestamps.iter().zip(self.keys.iter().zip(self.values.iter())).map(|(&t, (k, v))| (t, k, v))
    }

    /// Whether the columns agree in length and each is well-formed. What a guest or a peer sent must pass
    /// this before any row is read.
    pub fn is_valid(self) -> bool {
        self.keys.len() == self.len() && self.values.len() == self.len() && self.keys.is_valid() && self.values.is_valid()
    }
}
