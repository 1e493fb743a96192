//! Rows, column by column, as an operator sees and makes them. How they cross the boundary is in `pack.rs`.

use crate::columns::Columns;

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

/// Owned rows. The columns have the same number of items.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Event times.
    pub timestamps: Vec<Timestamp>,
    /// Keys.
    pub keys: Blobs,
    /// Values.
    pub values: Blobs,
    /// What few rows have.
    pub extras: Option<Box<Extras>>,
}

/// What few rows have; one item a row in each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extras {
    /// [`KEY_ABSENT`], [`VALUE_ABSENT`]. What is absent has zero bytes in its column.
    pub absent: Vec<u8>,
    /// Headers: (u32 bytes of the name, u32 bytes of the value, name, value) each, little-endian.
    pub headers: Blobs,
}

/// The row has no key.
pub const KEY_ABSENT: u8 = 1;

/// The row has no value.
pub const VALUE_ABSENT: u8 = 2;

/// Rows of one call: what [`process_batch`](crate::Operator::process_batch) gets. Has the columns that
/// [`Operator::columns`](crate::Operator::columns) asked for; reading another one panics.
#[derive(Clone, Copy, Debug, Default)]
pub struct BatchRef<'a> {
    pub(crate) len: usize,
    pub(crate) has: Columns,
    pub(crate) timestamps: &'a [Timestamp],
    pub(crate) hashes: &'a [u64],
    pub(crate) keys: BlobsRef<'a>,
    pub(crate) values: BlobsRef<'a>,
    pub(crate) headers: BlobsRef<'a>,
    /// One bit a row; empty where none is absent.
    pub(crate) absent_keys: &'a [u8],
    pub(crate) absent_values: &'a [u8],
}

/// One row of an input.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    input: u32,
    index: u32,
    timestamp: Timestamp,
    key: &'a [u8],
    value: &'a [u8],
    rows: &'a BatchRef<'a>,
}

/// A row that is to be sent with all that a row can have: see [`Port::emit_row`](crate::Port::emit_row).
#[derive(Clone, Copy, Debug, Default)]
pub struct NewRow<'a> {
    /// Event time.
    pub timestamp: Timestamp,
    /// Its key; none is not the same as one of no bytes.
    pub key: Option<&'a [u8]>,
    /// Its value. None is a tombstone: what has its key is deleted.
    pub value: Option<&'a [u8]>,
    /// Names and values.
    pub headers: &'a [(&'a str, &'a [u8])],
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
    /// Appends one row with key and value, without headers.
    #[inline]
    pub fn push(&mut self, timestamp: Timestamp, key: &[u8], value: &[u8]) {
        self.timestamps.push(timestamp);
        self.keys.push(key);
        self.values.push(value);
        if let Some(extras) = &mut self.extras {
            extras.absent.push(0);
            extras.headers.push(&[]);
        }
    }

    /// Appends one row.
    pub fn push_row(&mut self, row: NewRow<'_>) {
        let absent = if row.key.is_none() { KEY_ABSENT } else { 0 } | if row.value.is_none() { VALUE_ABSENT } else { 0 };
        if absent != 0 || !row.headers.is_empty() {
            self.extras_mut();
        }
        self.push(row.timestamp, row.key.unwrap_or_default(), row.value.unwrap_or_default());
        if let Some(extras) = &mut self.extras {
            *extras.absent.last_mut().expect("one a row") = absent;
            let Blobs { ends, bytes } = &mut extras.headers;
            ends.pop();
            for (name, value) in row.headers {
                bytes.extend_from_slice(&(name.len() as u32).to_le_bytes());
                bytes.extend_from_slice(&(value.len() as u32).to_le_bytes());
                bytes.extend_from_slice(name.as_bytes());
                bytes.extend_from_slice(value);
            }
            extras.headers.close_item();
        }
    }

    /// Notes of a row that is here what it does not have.
    pub(crate) fn mark_absent(&mut self, row: usize, marks: u8) {
        self.extras_mut();
        if let Some(extras) = &mut self.extras {
            extras.absent[row] |= marks;
        }
    }

    /// Makes the extras of the rows that are here.
    #[cold]
    fn extras_mut(&mut self) {
        let rows = self.len();
        self.extras.get_or_insert_with(|| {
            Box::new(Extras { absent: vec![0; rows], headers: Blobs { ends: vec![0; rows], bytes: Vec::new() } })
        });
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
        self.extras = None;
    }

    /// An empty batch with room for as much as this one holds now.
    #[cfg(not(target_arch = "wasm32"))]
    pub(crate) fn same_room(&self) -> Batch {
        let column = |c: &Blobs| Blobs { ends: Vec::with_capacity(c.ends.len()), bytes: Vec::with_capacity(c.bytes.len()) };
        Batch {
            timestamps: Vec::with_capacity(self.timestamps.len()),
            keys: column(&self.keys),
            values: column(&self.values),
            extras: None,
        }
    }
}

impl<'a> BatchRef<'a> {
    /// Rows that have these columns and nothing else: for who calls operators natively.
    pub fn new(timestamps: &'a [Timestamp], keys: BlobsRef<'a>, values: BlobsRef<'a>) -> BatchRef<'a> {
        BatchRef { len: timestamps.len(), has: Columns::ROWS, timestamps, keys, values, ..BatchRef::default() }
    }

    /// Number of rows.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Event times.
    #[inline]
    pub fn timestamps(&self) -> &'a [Timestamp] {
        self.has.expect(Columns::TIMESTAMPS);
        self.timestamps
    }

    /// Keys. One that is absent has no bytes; [`Row::has_key`] tells.
    #[inline]
    pub fn keys(&self) -> BlobsRef<'a> {
        self.has.expect(Columns::KEYS);
        self.keys
    }

    /// Values. One that is absent has no bytes; [`Row::is_tombstone`] tells.
    #[inline]
    pub fn values(&self) -> BlobsRef<'a> {
        self.has.expect(Columns::VALUES);
        self.values
    }

    /// Hashes of the keys. Equal hashes are not equal keys.
    #[inline]
    pub fn hashes(&self) -> &'a [u64] {
        self.has.expect(Columns::HASHES);
        self.hashes
    }

    /// The rows in order, as rows of input `input`.
    #[inline]
    pub fn rows(&'a self, input: u32) -> impl Iterator<Item = Row<'a>> {
        let (mut key_start, mut value_start) = (0, 0);
        (0..self.len).map(move |row| Row {
            input,
            index: row as u32,
            timestamp: self.timestamps.get(row).copied().unwrap_or_default(),
            key: next(self.keys, row, &mut key_start),
            value: next(self.values, row, &mut value_start),
            rows: self,
        })
    }
}

/// Item `row` of a column, which begins at `start`; nothing where there is no such column.
#[inline]
fn next<'a>(column: BlobsRef<'a>, row: usize, start: &mut usize) -> &'a [u8] {
    let Some(&end) = column.ends.get(row) else { return &[] };
    let item = &column.bytes[*start..end as usize];
    *start = end as usize;
    item
}

/// Whether the bit of a row is set; bits that are not there are not.
#[inline]
fn bit(bits: &[u8], row: usize) -> bool {
    bits.get(row / 8).is_some_and(|byte| byte >> (row % 8) & 1 != 0)
}

/// A column that the operator did not ask for ([`Operator::columns`](crate::Operator::columns)) is not there: reading it panics.
impl<'a> Row<'a> {
    /// Which input it came from, in the order of the description.
    #[inline]
    pub fn input(&self) -> u32 {
        self.input
    }

    /// Its place in this call's batch: what [`Outputs::reject`](crate::Outputs::reject) takes.
    #[inline]
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Event time.
    #[inline]
    pub fn timestamp(&self) -> Timestamp {
        self.rows.has.expect(Columns::TIMESTAMPS);
        self.timestamp
    }

    /// Its key; no bytes where it has none.
    #[inline]
    pub fn key(&self) -> &'a [u8] {
        self.rows.has.expect(Columns::KEYS);
        self.key
    }

    /// Its value; no bytes where it has none.
    #[inline]
    pub fn value(&self) -> &'a [u8] {
        self.rows.has.expect(Columns::VALUES);
        self.value
    }

    /// Its value, for an operator that can do nothing without one.
    ///
    /// # Errors
    /// A rejection, if it has none.
    #[inline]
    pub fn present_value(&self) -> Result<&'a [u8], crate::Error> {
        if self.is_tombstone() {
            return Err(crate::Error::reject("the row has no value (it is a tombstone)"));
        }
        Ok(self.value)
    }

    /// Whether it has a key, of however many bytes.
    #[inline]
    pub fn has_key(&self) -> bool {
        self.rows.has.expect(Columns::KEYS);
        !bit(self.rows.absent_keys, self.index as usize)
    }

    /// Whether it has no value, so that what has its key is deleted.
    #[inline]
    pub fn is_tombstone(&self) -> bool {
        self.rows.has.expect(Columns::VALUES);
        bit(self.rows.absent_values, self.index as usize)
    }

    /// The 64-bit hash of its key.
    #[inline]
    pub fn hash(&self) -> u64 {
        self.rows.hashes()[self.index as usize]
    }

    /// Its headers, as names and values. A name that is not UTF-8 comes as it is.
    pub fn headers(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        self.rows.has.expect(Columns::HEADERS);
        let mut left = self.rows.headers.get(self.index as usize);
        std::iter::from_fn(move || {
            let (&name, rest) = left.split_first_chunk()?;
            let (&value, rest) = rest.split_first_chunk()?;
            let (name, rest) = rest.split_at_checked(u32::from_le_bytes(name) as usize)?;
            let (value, rest) = rest.split_at_checked(u32::from_le_bytes(value) as usize)?;
            left = rest;
            Some((name, value))
        })
    }

    /// Which row it is, as far as it is known here, for messages.
    pub(crate) fn shown(&self) -> String {
        let has = self.rows.has;
        let key = has.has(Columns::KEYS).then(|| format!(" with key \"{}\"", weir_notation::text::Shown(self.key)));
        let time = has.has(Columns::TIMESTAMPS).then(|| format!(" and time {}", self.timestamp));
        format!("row{}{}", key.unwrap_or_default(), time.unwrap_or_default())
    }

    /// What its key and headers take of what a call may send, as far as they are known here.
    #[inline]
    pub(crate) fn known_bytes_but_value(&self) -> usize {
        let headers = self.rows.headers;
        self.key.len() + if headers.bytes.is_empty() { 0 } else { headers.get(self.index as usize).len() }
    }

    /// What it takes of what a call may send, as far as it is known here.
    #[inline]
    pub(crate) fn known_bytes(&self) -> usize {
        self.known_bytes_but_value() + self.value.len()
    }

    /// The value, read as JSON.
    ///
    /// # Errors
    /// A rejection that says what is wrong where.
    pub fn json<T: serde::Deserialize<'a>>(&self) -> Result<T, crate::Error> {
        serde_json::from_slice(self.present_value()?)
            .map_err(|error| crate::Error::reject(format_args!("value is not as expected: {error}")))
    }

    /// The key as text; bytes that are not UTF-8 are replaced.
    pub fn key_text(&self) -> std::borrow::Cow<'a, str> {
        String::from_utf8_lossy(self.key())
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
        let rows = BatchRef::new(&batch.timestamps, batch.keys.view(), batch.values.view());
        let row = rows.rows(3).nth(1).expect("the second");
        assert_eq!((row.input(), row.index(), row.timestamp(), row.key(), row.value()), (3, 1, 6, &b""[..], &b"w"[..]));
        assert!(row.has_key() && !row.is_tombstone());
    }

    #[test]
    #[should_panic(expected = "reads values of its input, but did not ask for them")]
    fn s113_a_column_that_was_not_asked_for_does_not_look_empty() {
        let batch = BatchRef { len: 1, has: Columns::KEYS, ..BatchRef::default() };
        let _ = batch.rows(0).next().expect("one").value();
    }
}
