//! Rows as one list of bytes: `types.batch` of the contract, in which integers come first, so that they can be viewed in place.

use zerocopy::{FromBytes, IntoBytes};

#[cfg(target_arch = "wasm32")]
use crate::bindings::weir::operator::types as wit;
use crate::columns::Columns;
use crate::rows::{KEY_ABSENT, VALUE_ABSENT};
use crate::{Batch, BatchRef, BlobsRef};

/// Views rows where they lie.
///
/// # Panics
/// If the bytes do not begin at a multiple of 8, or are not what the contract says: then the host is not what it says.
#[inline]
pub(crate) fn view(rows: u32, has: Columns, data: &[u8]) -> BatchRef<'_> {
    let rows = rows as usize;
    let mut left = data;
    let mut batch = BatchRef { len: rows, has, ..BatchRef::default() };
    if has.has(Columns::TIMESTAMPS) {
        batch.timestamps = numbers(&mut left, rows);
    }
    if has.has(Columns::HASHES) {
        batch.hashes = numbers(&mut left, rows);
    }
    let columns = [Columns::KEYS, Columns::VALUES, Columns::HEADERS].map(|column| has.has(column));
    let ends = columns.map(|there| if there { numbers(&mut left, rows) } else { &[][..] });
    let bytes = ends.map(|ends: &[u32]| take(&mut left, ends.last().map_or(0, |&end| end as usize)));
    let [keys, values, headers] = [0, 1, 2].map(|column| BlobsRef { ends: ends[column], bytes: bytes[column] });
    (batch.keys, batch.values, batch.headers) = (keys, values, headers);
    let bits = rows.div_ceil(8);
    if has.has(Columns::ABSENT_KEYS) {
        batch.absent_keys = take(&mut left, bits);
    }
    if has.has(Columns::ABSENT_VALUES) {
        batch.absent_values = take(&mut left, bits);
    }
    batch
}

#[inline]
fn numbers<'a, T: FromBytes + zerocopy::Immutable>(left: &mut &'a [u8], count: usize) -> &'a [T] {
    let bytes = take(left, count * size_of::<T>());
    <[T]>::ref_from_bytes(bytes).expect("integers lie at their alignment")
}

#[inline]
fn take<'a>(left: &mut &'a [u8], len: usize) -> &'a [u8] {
    let (taken, rest) = left.split_at(len);
    *left = rest;
    taken
}

/// Writes rows that are emitted to the end of `data`. Gives which columns they have.
#[cfg(any(target_arch = "wasm32", test))]
pub(crate) fn pack(batch: &Batch, data: &mut Vec<u8>) -> Columns {
    let Batch { timestamps, keys, values, extras } = batch;
    data.extend_from_slice(timestamps.as_bytes());
    let headers = extras.as_deref().map(|extras| &extras.headers).filter(|headers| !headers.bytes.is_empty());
    let columns = [Some(keys), Some(values), headers];
    columns.iter().flatten().for_each(|column| data.extend_from_slice(column.ends.as_bytes()));
    columns.iter().flatten().for_each(|column| data.extend_from_slice(&column.bytes));
    let mut has = Columns::ROWS;
    if headers.is_some() {
        has = has | Columns::HEADERS;
    }
    if let Some(extras) = extras {
        for (mark, column) in [(KEY_ABSENT, Columns::ABSENT_KEYS), (VALUE_ABSENT, Columns::ABSENT_VALUES)] {
            if push_bits(&extras.absent, mark, data) {
                has = has | column;
            }
        }
    }
    has
}

/// Writes values for `emit-values`.
#[cfg(target_arch = "wasm32")]
pub(crate) fn pack_values(values: &crate::Blobs, absent: &[u8], data: &mut Vec<u8>) {
    data.extend_from_slice(values.ends.as_bytes());
    data.extend_from_slice(&values.bytes);
    push_bits(absent, VALUE_ABSENT, data);
}

/// Writes keys and values of saved state.
#[cfg(target_arch = "wasm32")]
pub(crate) fn pack_state(batch: &Batch, data: &mut Vec<u8>) -> Columns {
    let Batch { keys, values, .. } = batch;
    [keys, values].iter().for_each(|column| data.extend_from_slice(column.ends.as_bytes()));
    [keys, values].iter().for_each(|column| data.extend_from_slice(&column.bytes));
    Columns::KEYS | Columns::VALUES
}

/// A batch as the bindings take it.
#[cfg(target_arch = "wasm32")]
pub(crate) fn batch_out(rows: usize, has: Columns, data: Vec<u8>) -> wit::Batch {
    wit::Batch { rows: rows as u32, has: columns_out(has), data }
}

/// Columns as the bindings take them.
#[cfg(target_arch = "wasm32")]
pub(crate) fn columns_out(columns: Columns) -> wit::Columns {
    wit::Columns::from_bits_truncate(columns.bits())
}

/// One bit a row that has `mark`; nothing, if none has.
fn push_bits(marks: &[u8], mark: u8, data: &mut Vec<u8>) -> bool {
    if marks.iter().all(|marks| marks & mark == 0) {
        return false;
    }
    let bits = |eight: &[u8]| eight.iter().rev().fold(0u8, |bits, marks| bits << 1 | u8::from(marks & mark != 0));
    data.extend(marks.chunks(8).map(bits));
    true
}

/// Rows as the host would send them to an operator that asked for `wanted`: for tests, and for who calls operators natively with what
/// few rows have. In words, so that they lie at their alignment.
#[cfg(not(target_arch = "wasm32"))]
#[derive(Debug, Default)]
pub struct Packed {
    words: Vec<u64>,
    len: usize,
    rows: u32,
    has: Columns,
}

#[cfg(not(target_arch = "wasm32"))]
impl Packed {
    /// Packs the columns of `batch` that are wanted.
    pub fn new(batch: &Batch, wanted: Columns) -> Packed {
        let mut data = Vec::new();
        let mut has = wanted;
        if wanted.has(Columns::TIMESTAMPS) {
            data.extend_from_slice(batch.timestamps.as_bytes());
        }
        if wanted.has(Columns::HASHES) {
            batch.keys.view().iter().for_each(|key| data.extend(xxhash_rust::xxh3::xxh3_64(key).to_le_bytes()));
        }
        let none = crate::Blobs { ends: vec![0; batch.len()], bytes: Vec::new() };
        let headers = batch.extras.as_deref().map_or(&none, |extras| &extras.headers);
        let columns = [(Columns::KEYS, &batch.keys), (Columns::VALUES, &batch.values), (Columns::HEADERS, headers)];
        let there: Vec<&crate::Blobs> =
            columns.iter().filter(|(column, _)| wanted.has(*column)).map(|(_, items)| *items).collect();
        there.iter().for_each(|column| data.extend_from_slice(column.ends.as_bytes()));
        there.iter().for_each(|column| data.extend_from_slice(&column.bytes));
        if let Some(extras) = &batch.extras {
            let bits =
                [(Columns::KEYS, KEY_ABSENT, Columns::ABSENT_KEYS), (Columns::VALUES, VALUE_ABSENT, Columns::ABSENT_VALUES)];
            for (column, mark, absent) in bits {
                if wanted.has(column) && push_bits(&extras.absent, mark, &mut data) {
                    has = has | absent;
                }
            }
        }
        let mut words = vec![0u64; data.len().div_ceil(8)];
        words.as_mut_bytes()[..data.len()].copy_from_slice(&data);
        Packed { words, len: data.len(), rows: batch.len() as u32, has }
    }

    /// The rows, as an operator sees them.
    pub fn view(&self) -> BatchRef<'_> {
        view(self.rows, self.has, &self.words.as_bytes()[..self.len])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NewRow;

    #[test]
    fn s114_rows_come_out_as_they_went_in() {
        let mut batch = Batch::default();
        for n in 0..19i64 {
            let (key, value) = (n.to_le_bytes(), vec![7; n as usize]);
            batch.push_row(NewRow {
                timestamp: -n,
                key: (n % 3 != 0).then_some(&key[..(n % 2) as usize * 8]),
                value: (n % 5 != 0).then_some(&value),
                headers: if n % 4 == 0 { &[("trace", b"\0\x01"), ("", b"")] } else { &[] },
            });
        }
        let packed = Packed::new(&batch, Columns::ROWS | Columns::HEADERS | Columns::HASHES);
        let rows = packed.view();
        for (n, row) in rows.rows(0).enumerate() {
            assert_eq!((row.timestamp(), row.has_key(), row.is_tombstone()), (-(n as i64), n % 3 != 0, n % 5 == 0));
            let key = (n as i64).to_le_bytes();
            assert_eq!(row.key(), if n % 3 != 0 { &key[..n % 2 * 8] } else { &[] });
            assert_eq!(row.value(), vec![7; if n % 5 == 0 { 0 } else { n }]);
            let headers: Vec<_> = row.headers().collect();
            assert_eq!(headers, if n % 4 == 0 { vec![(&b"trace"[..], &b"\0\x01"[..]), (&b""[..], &b""[..])] } else { vec![] });
        }
        let mut data = Vec::new();
        let has = pack(&batch, &mut data);
        assert_eq!(has, Columns::ROWS | Columns::HEADERS | Columns::ABSENT_KEYS | Columns::ABSENT_VALUES);
        let same = Packed::new(&batch, Columns::ROWS | Columns::HEADERS);
        assert_eq!(data, same.words.as_bytes()[..same.len]);
    }

    #[test]
    fn s111_what_was_not_asked_for_is_not_there() {
        let mut batch = Batch::default();
        batch.push(1, b"key", b"a value");
        let packed = Packed::new(&batch, Columns::KEYS);
        assert_eq!(packed.len, 4 + 3);
        assert_eq!(packed.view().keys().get(0), b"key");
    }
}
