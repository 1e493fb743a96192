//! Rows, column by column: the shape of `types.batch` in the WIT, on the wire and in the host.

#[cfg(test)]
mod bench;
#[cfg(test)]
mod tests;

use std::ops::Range;

use crate::{Blobs, BlobsRef, Extras, ExtrasRef, RowRef, Timestamp};

/// Owned rows. The columns have the same number of items.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Event times, milliseconds since the Unix epoch.
    pub timestamps: Vec<Timestamp>,
    /// Keys; those that are absent have no bytes.
    pub keys: Blobs,
    /// Values; those that are absent have no bytes.
    pub values: Blobs,
    /// What few rows have. There only if one of these rows says something by it; who appends to the other columns directly keeps it so.
    pub extras: Option<Box<Extras>>,
}

/// Borrowed [`Batch`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchRef<'a> {
    /// Event times, milliseconds since the Unix epoch.
    pub timestamps: &'a [Timestamp],
    /// Keys; those that are absent have no bytes.
    pub keys: BlobsRef<'a>,
    /// Values; those that are absent have no bytes.
    pub values: BlobsRef<'a>,
    /// What few rows have: absent keys and values, headers.
    pub extras: Option<ExtrasRef<'a>>,
}

impl Batch {
    /// An empty batch with room for `rows` of `key_bytes` and `value_bytes` in all.
    pub fn with_capacity(rows: usize, key_bytes: usize, value_bytes: usize) -> Batch {
        Batch {
            timestamps: Vec::with_capacity(rows),
            keys: Blobs::with_capacity(rows, key_bytes),
            values: Blobs::with_capacity(rows, value_bytes),
            extras: None,
        }
    }

    /// Appends a row that has key and value, and no headers.
    #[inline]
    pub fn push(&mut self, timestamp: Timestamp, key: &[u8], value: &[u8]) {
        self.timestamps.push(timestamp);
        self.keys.push(key);
        self.values.push(value);
        if let Some(extras) = &mut self.extras {
            extras.push_plain(1, 0);
        }
    }

    /// Appends one row of any kind.
    #[inline]
    pub fn push_row(&mut self, row: RowRef<'_>) {
        if !row.is_plain() {
            let rows = self.len();
            let extras = self.extras.get_or_insert_with(|| Box::new(Extras::plain(rows)));
            extras.absent.push(row.absent());
            extras.headers.push(row.headers);
        } else if let Some(extras) = &mut self.extras {
            extras.push_plain(1, 0);
        }
        self.timestamps.push(row.timestamp);
        self.keys.push(row.key_bytes());
        self.values.push(row.value_bytes());
    }

    /// Appends all rows of another batch.
    pub fn extend(&mut self, rows: BatchRef<'_>) {
        self.extend_range(rows, 0..rows.len());
    }

    /// Appends some rows of another batch.
    pub fn extend_range(&mut self, rows: BatchRef<'_>, range: Range<usize>) {
        if self.extras.is_some() || rows.extras.is_some() {
            self.extend_extras(0, rows.extras, range.clone());
        }
        self.timestamps.extend_from_slice(&rows.timestamps[range.clone()]);
        self.keys.extend_range(rows.keys, range.clone());
        self.values.extend_range(rows.values, range);
    }

    /// Appends some rows of another batch as a section of their own, in which the ends start again at zero.
    pub(crate) fn extend_section(&mut self, rows: BatchRef<'_>, range: Range<usize>) {
        if self.extras.is_some() || rows.extras.is_some() {
            let base = self.extras.as_ref().map_or(0, |extras| extras.headers.bytes.len());
            self.extend_extras(base, rows.extras, range.clone());
        }
        self.timestamps.extend_from_slice(&rows.timestamps[range.clone()]);
        self.keys.extend_range_from(self.keys.bytes.len(), rows.keys, range.clone());
        self.values.extend_range_from(self.values.bytes.len(), rows.values, range);
    }

    /// Appends what some rows say beside their columns, before those are appended. Ends of headers count from byte `base`.
    fn extend_extras(&mut self, base: usize, other: Option<ExtrasRef<'_>>, range: Range<usize>) {
        match other.filter(|other| !other.is_plain_in(range.clone())) {
            Some(other) => {
                let rows = self.len();
                let extras = self.extras.get_or_insert_with(|| Box::new(Extras::plain(rows)));
                extras.absent.extend_from_slice(&other.absent[range.clone()]);
                extras.headers.extend_range_from(base, other.headers, range);
            }
            None => {
                if let Some(extras) = &mut self.extras {
                    extras.push_plain(range.len(), base);
                }
            }
        }
    }

    /// Appends rows of another batch by their numbers, in any order, and again.
    pub fn gather(&mut self, rows: BatchRef<'_>, numbers: &[u32]) {
        if self.extras.is_some() || rows.extras.is_some() {
            self.gather_extras(rows.extras, numbers, None);
        }
        self.timestamps.extend(numbers.iter().map(|&row| rows.timestamps[row as usize]));
        self.keys.gather(rows.keys, numbers);
        self.values.gather(rows.values, numbers);
    }

    /// Appends rows of another batch by their numbers, with other values: as many. `absent`, where it is there, has
    /// [`Extras::VALUE_ABSENT`] or zero for each of them.
    pub fn gather_with_values(&mut self, rows: BatchRef<'_>, numbers: &[u32], values: BlobsRef<'_>, absent: Option<&[u8]>) {
        debug_assert_eq!(numbers.len(), values.len(), "a value a row");
        if self.extras.is_some() || rows.extras.is_some() || absent.is_some() {
            let present = vec![0; if absent.is_none() { numbers.len() } else { 0 }];
            self.gather_extras(rows.extras, numbers, Some(absent.unwrap_or(&present)));
        }
        self.timestamps.extend(numbers.iter().map(|&row| rows.timestamps[row as usize]));
        self.keys.gather(rows.keys, numbers);
        self.values.extend(values);
    }

    /// Appends what rows say beside their columns, before those are appended. Which values are absent is said by `values`, where it is there.
    fn gather_extras(&mut self, other: Option<ExtrasRef<'_>>, numbers: &[u32], values: Option<&[u8]>) {
        let absent_at = |at: usize, row: u32| {
            let absent = other.map_or(0, |other| other.absent[row as usize]);
            values.map_or(absent, |values| absent & Extras::KEY_ABSENT | values[at])
        };
        let header_bytes = |row: u32| other.map_or(0, |other| other.headers.get(row as usize).len());
        let plain = numbers.iter().enumerate().all(|(at, &row)| absent_at(at, row) == 0 && header_bytes(row) == 0);
        if plain {
            if let Some(extras) = &mut self.extras {
                extras.push_plain(numbers.len(), 0);
            }
            return;
        }
        let rows = self.len();
        let extras = self.extras.get_or_insert_with(|| Box::new(Extras::plain(rows)));
        extras.absent.extend(numbers.iter().enumerate().map(|(at, &row)| absent_at(at, row)));
        match other {
            Some(other) => extras.headers.gather(other.headers, numbers),
            None => extras.headers.ends.resize(extras.absent.len(), extras.headers.bytes.len() as u32),
        }
    }

    /// Removes all rows but the first ones.
    pub fn truncate(&mut self, rows: usize) {
        self.timestamps.truncate(rows);
        self.keys.truncate(rows);
        self.values.truncate(rows);
        if let Some(extras) = &mut self.extras {
            extras.absent.truncate(rows);
            extras.headers.truncate(rows);
        }
        self.extras.take_if(|extras| extras.view().is_plain());
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
        self.extras = None;
    }

    /// The rows, borrowed.
    #[inline]
    pub fn view(&self) -> BatchRef<'_> {
        BatchRef {
            timestamps: &self.timestamps,
            keys: self.keys.view(),
            values: self.values.view(),
            extras: self.extras.as_ref().map(|extras| extras.view()),
        }
    }

    /// Memory the rows take.
    pub fn size_bytes(&self) -> usize {
        self.view().size_bytes()
    }

    /// The rows in order.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = RowRef<'_>> {
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
        let extras = self.extras.map_or(0, ExtrasRef::size_bytes);
        let columns = self.keys.bytes.len() + self.values.bytes.len() + extras;
        self.len() * (size_of::<Timestamp>() + 2 * size_of::<u32>()) + columns
    }

    /// Row `index`.
    #[inline]
    pub fn row(self, index: usize) -> RowRef<'a> {
        self.with_extras(index, RowRef::new(self.timestamps[index], self.keys.get(index), self.values.get(index)))
    }

    /// The rows in order.
    pub fn rows(self) -> impl ExactSizeIterator<Item = RowRef<'a>> {
        let columns = self.timestamps.iter().zip(self.keys.iter().zip(self.values.iter()));
        columns.enumerate().map(move |(index, (&time, (key, value)))| self.with_extras(index, RowRef::new(time, key, value)))
    }

    #[inline]
    fn with_extras(self, index: usize, mut row: RowRef<'a>) -> RowRef<'a> {
        if let Some(extras) = self.extras {
            let absent = extras.absent[index];
            row.key = row.key.filter(|_| absent & Extras::KEY_ABSENT == 0);
            row.value = row.value.filter(|_| absent & Extras::VALUE_ABSENT == 0);
            row.headers = extras.headers.get(index);
        }
        row
    }

    /// Whether the columns agree in length and each is well-formed. What a guest or a peer sent must pass
    /// this before any row is read.
    pub fn is_valid(self) -> bool {
        self.keys.len() == self.len()
            && self.values.len() == self.len()
            && self.keys.is_valid()
            && self.values.is_valid()
            && self.extras.is_none_or(|extras| extras.are_valid(self.keys, self.values))
    }
}
