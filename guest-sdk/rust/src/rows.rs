//! Rows, column by column: the shapes of `weir:operator/types`.
//!
//! The generated bindings use these very types, so a batch crosses the sandbox boundary without being rebuilt.

/// Event time: milliseconds since the Unix epoch, UTC.
pub type Timestamp = i64;

/// An owned column of byte strings. Item `i` is `bytes[ends[i-1]..ends[i]]`, with `ends[-1]` taken as 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Blobs {
    /// Where each item ends in `bytes`.
    pub ends: Vec<u32>,
    /// The items, one after the other.
    pub bytes: Vec<u8>,
}

/// A borrowed [`Blobs`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlobsRef<'a> {
    /// Where each item ends in `bytes`.
    pub ends: &'a [u32],
    /// The items, one after the other.
    pub bytes: &'a [u8],
}

/// Owned rows. The three columns have the same number of items.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Event times.
    pub timestamps: Vec<Timestamp>,
    /// Keys; zero bytes mean the row has no key.
    pub keys: Blobs,
    /// Values.
    pub values: Blobs,
}

/// Borrowed rows: what [`process_batch`](crate::Operator::process_batch) gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchRef<'a> {
    /// Event times.
    pub timestamps: &'a [Timestamp],
    /// Keys; zero bytes mean the row has no key.
    pub keys: BlobsRef<'a>,
    /// Values.
    pub values: BlobsRef<'a>,
}

/// One row of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row<'a> {
    /// Which input it came from: 0 for the first in the job file.
    pub input: u32,
    /// Its place in this call's batch: what [`Outputs::reject`](crate::Outputs::reject) takes.
    pub index: u32,
    /// Event time.
    pub timestamp: Timestamp,
    /// Key; zero bytes mean the row has no key.
    pub key: &'a [u8],
    /// Value.
    pub value: &'a [u8],
}

/// A row of the input that the operator could not process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// Its place in the batch of the call.
    pub row: u32,
    /// Why.
    pub reason: String,
}

/// What an operator may know about where it runs. The same for all instances of an operator, and unchanged by
/// restoring a checkpoint or changing the parallelism.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Context {
    /// Name of the job.
    pub job: String,
    /// The operator's `id` in the job file.
    pub operator: String,
    /// The component, as `name@version` where it has a name.
    pub component: String,
    /// The operator's `config` table as JSON.
    pub config: String,
}

impl Blobs {
    /// Appends one item.
    ///
    /// # Panics
    /// If the column would exceed 4 GiB.
    #[inline]
    pub fn push(&mut self, item: &[u8]) {
        append(&mut self.bytes, item);
        self.close_item();
    }

    /// Ends an item whose bytes were appended to `bytes` directly.
    #[inline]
    pub fn close_item(&mut self) {
        let end = u32::try_from(self.bytes.len()).expect("a column holds less than 4 GiB");
        self.ends.push(end);
    }

    /// Removes all items, keeps the room.
    pub fn clear(&mut self) {
        self.ends.clear();
        self.bytes.clear();
    }

    /// The column, borrowed.
    #[inline]
    pub fn view(&self) -> BlobsRef<'_> {
        BlobsRef { ends: &self.ends, bytes: &self.bytes }
    }
}

/// Appends a byte string. Short ones are copied by fixed-size moves: a copy of unknown length is a call out of the
/// sandbox, which costs more than moving a key.
#[inline]
pub(crate) fn append(to: &mut Vec<u8>, item: &[u8]) {
    if let Ok(word) = <&[u8; 8]>::try_from(item) {
        to.extend_from_slice(word);
        return;
    }
    if item.len() > 32 {
        to.extend_from_slice(item);
        return;
    }
    let (words, rest) = item.as_chunks::<8>();
    to.reserve(item.len());
    for word in words {
        to.extend_from_slice(word);
    }
    for &byte in rest {
        to.push(byte);
    }
}

impl<'a> BlobsRef<'a> {
    /// Number of items.
    #[inline]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is no item.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Item `index`.
    #[inline]
    pub fn get(&self, index: usize) -> &'a [u8] {
        let start = if index == 0 { 0 } else { self.ends[index - 1] as usize };
        &self.bytes[start..self.ends[index] as usize]
    }

    /// The items in order.
    #[inline]
    pub fn iter(self) -> impl ExactSizeIterator<Item = &'a [u8]> {
        let mut start = 0;
        self.ends.iter().map(move |&end| {
            let item = &self.bytes[start..end as usize];
            start = end as usize;
            item
        })
    }
}

impl Batch {
    /// Appends one row.
    #[inline]
    pub fn push(&mut self, timestamp: Timestamp, key: &[u8], value: &[u8]) {
        self.timestamps.push(timestamp);
        self.keys.push(key);
        self.values.push(value);
    }

    /// Number of rows.
    #[inline]
    pub fn len(&self) -> usize {
        self.timestamps.len()
    }

    /// Whether there is no row.
    #[inline]
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

    /// An empty batch with room for as much as this one holds now.
    #[cfg(not(target_arch = "wasm32"))]
    pub(crate) fn same_room(&self) -> Batch {
        let column = |c: &Blobs| Blobs { ends: Vec::with_capacity(c.ends.len()), bytes: Vec::with_capacity(c.bytes.len()) };
        Batch { timestamps: Vec::with_capacity(self.timestamps.len()), keys: column(&self.keys), values: column(&self.values) }
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

    /// The rows in order, as rows of input `input`.
    #[inline]
    pub fn rows(self, input: u32) -> impl Iterator<Item = Row<'a>> {
        self.timestamps
            .iter()
            .zip(self.keys.iter().zip(self.values.iter()))
            .zip(0u32..)
            .map(move |((&timestamp, (key, value)), index)| Row { input, index, timestamp, key, value })
    }
}

impl<'a> Row<'a> {
    /// The value, read as JSON.
    ///
    /// # Errors
    /// A rejection that says what is wrong where.
    pub fn json<T: serde::Deserialize<'a>>(&self) -> Result<T, crate::Error> {
        serde_json::from_slice(self.value)
            .map_err(|error| crate::Error::reject(format_args!("value is not as expected: {error}")))
    }

    /// The key as text; bytes that are not UTF-8 are replaced.
    pub fn key_text(&self) -> std::borrow::Cow<'a, str> {
        String::from_utf8_lossy(self.key)
    }

    /// A rejection of this row: `return Err(row.reject("no such account"))`.
    pub fn reject(&self, reason: impl std::fmt::Display) -> crate::Error {
        crate::Error::reject(reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_of_any_length_come_back_as_they_went_in() {
        let items: Vec<Vec<u8>> = (0..70u8).map(|length| (0..length).collect()).collect();
        let mut blobs = Blobs::default();
        items.iter().for_each(|item| blobs.push(item));
        assert_eq!(blobs.view().len(), items.len());
        for (index, item) in items.iter().enumerate() {
            assert_eq!(blobs.view().get(index), item.as_slice());
        }
        assert!(blobs.view().iter().eq(items.iter().map(Vec::as_slice)));
    }

    #[test]
    fn rows_know_their_input_and_place() {
        let mut batch = Batch::default();
        batch.push(5, b"k", b"v");
        batch.push(6, b"", b"w");
        let rows: Vec<Row<'_>> = batch.view().rows(3).collect();
        assert_eq!(rows[1], Row { input: 3, index: 1, timestamp: 6, key: b"", value: b"w" });
    }
}
