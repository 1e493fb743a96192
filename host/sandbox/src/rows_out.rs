//! `types.batch` on its way out: checked where it lies in the guest's memory, then appended to the host's columns, column by column.
//!
//! Owns what is refused of what a guest hands over as rows, and what it is told then; who may hand over rows, when and how many, is
//! [`crate::output`]'s. A list of bytes may lie anywhere, so numbers are read byte by byte, which costs nothing.

use weir_model::{Batch, Columns, RowRef, are_headers, limits};

use crate::error::Refusal;

/// Rows of a guest, checked.
#[derive(Clone, Copy)]
pub(crate) struct RowsOut<'a> {
    rows: usize,
    /// None: they are state, and have none.
    timestamps: Option<&'a [[u8; 8]]>,
    /// None: no row has a key.
    keys: Option<ColumnOut<'a>>,
    values: ColumnOut<'a>,
    headers: ColumnOut<'a>,
}

/// A column of byte strings.
#[derive(Clone, Copy, Default)]
pub(crate) struct ColumnOut<'a> {
    ends: &'a [[u8; 4]],
    bytes: &'a [u8],
    /// One bit an item, the least first. None: no item is absent.
    absent: Option<&'a [u8]>,
}

impl<'a> RowsOut<'a> {
    /// Checks rows that `function` was given.
    ///
    /// # Errors
    /// What is wrong with them: a refusal that becomes a trap.
    pub(crate) fn read(rows: u32, has: Columns, data: &'a [u8], function: &str) -> wasmtime::Result<RowsOut<'a>> {
        check_columns(has, function)?;
        RowsOut::read_columns(rows, has, data, function)
    }

    fn read_columns(rows: u32, has: Columns, data: &'a [u8], function: &str) -> wasmtime::Result<RowsOut<'a>> {
        let rows = rows as usize;
        let mut rest = Rest { bytes: data, function };
        let timestamps = match has.has(Columns::TIMESTAMPS) {
            true => Some(rest.array("the timestamps", rows)?),
            false => None,
        };
        let mut ends = |column, what| if has.has(column) { rest.array(what, rows).map(Some) } else { Ok(None) };
        let (key_ends, value_ends) = (ends(Columns::KEYS, "where keys end")?, ends(Columns::VALUES, "where values end")?);
        let header_ends = ends(Columns::HEADERS, "where headers end")?.unwrap_or_default();
        let mut column = |ends, what| rest.column(ends, what);
        let keys = key_ends.map(|ends| column(ends, "keys")).transpose()?;
        let values = column(value_ends.unwrap_or_default(), "values")?;
        let headers = column(header_ends, "headers")?;
        let mut bits = |column, what| if has.has(column) { rest.take(what, rows.div_ceil(8)).map(Some) } else { Ok(None) };
        let absent_keys = bits(Columns::ABSENT_KEYS, "the bits of absent keys")?;
        let absent_values = bits(Columns::ABSENT_VALUES, "the bits of absent values")?;
        if !rest.bytes.is_empty() {
            let (more, len) = (rest.bytes.len(), data.len());
            return Err(Refusal::contract(format!(
                "{function}: {more} of the {len} bytes belong to no column ({rows} rows of {has})"
            )));
        }
        let keys = keys.map(|keys| ColumnOut { absent: absent_keys, ..keys });
        let values = ColumnOut { absent: absent_values, ..values };
        keys.unwrap_or_default().check(limits::KEY_BYTES_MAX, function, "key")?;
        values.check(limits::VALUE_BYTES_MAX, function, "value")?;
        headers.check(limits::HEADERS_BYTES_MAX, function, "header")?;
        if let Some(row) = (0..headers.ends.len()).find(|&row| !are_headers(headers.get(row))) {
            return Err(Refusal::contract(format!("{function}: the headers of row {row} are malformed")));
        }
        Ok(RowsOut { rows, timestamps, keys, values, headers })
    }

    /// Checks rows of state: keys and values, and nothing else but their bits. Their times are 0.
    ///
    /// # Errors
    /// What is wrong with them.
    pub(crate) fn read_state(rows: u32, has: Columns, data: &'a [u8], function: &str) -> wasmtime::Result<RowsOut<'a>> {
        let needed = Columns::KEYS | Columns::VALUES;
        if !has.has(needed) || !has.without(needed | Columns::ABSENT_KEYS | Columns::ABSENT_VALUES).is_empty() {
            return Err(Refusal::contract(format!(
                "{function}: rows with {has}: keys and values have to be there, and nothing else but bits of those that are absent"
            )));
        }
        RowsOut::read_columns(rows, has, data, function)
    }

    /// Number of rows.
    pub(crate) fn len(&self) -> usize {
        self.rows
    }

    /// The key of each row.
    pub(crate) fn keys(&self) -> impl Iterator<Item = Option<&'a [u8]>> {
        let keys = self.keys;
        (0..self.len()).map(move |row| keys.and_then(|keys| keys.item(row)))
    }

    /// Appends the rows.
    pub(crate) fn append_to(&self, batch: &mut Batch) {
        match self.keys {
            Some(keys)
                if batch.extras.is_none() && self.headers.bytes.is_empty() && keys.is_whole() && self.values.is_whole() =>
            {
                match self.timestamps {
                    Some(timestamps) => batch.timestamps.extend(timestamps.iter().map(|bytes| i64::from_le_bytes(*bytes))),
                    None => batch.timestamps.resize(batch.len() + self.rows, 0),
                }
                keys.append_to(&mut batch.keys);
                self.values.append_to(&mut batch.values);
            }
            _ => (0..self.len()).for_each(|row| batch.push_row(self.row(row))),
        }
    }

    fn row(&self, row: usize) -> RowRef<'a> {
        RowRef {
            timestamp: self.timestamps.map_or(0, |timestamps| i64::from_le_bytes(timestamps[row])),
            key: self.keys.and_then(|keys| keys.item(row)),
            value: self.values.item(row),
            headers: if self.headers.ends.is_empty() { b"" } else { self.headers.get(row) },
        }
    }
}

/// Refuses columns that rows of a guest cannot have, or lack.
fn check_columns(has: Columns, function: &str) -> wasmtime::Result<()> {
    let needed = Columns::TIMESTAMPS | Columns::VALUES;
    let refused = if has.has(Columns::HASHES) {
        "hashes are the host's: leave them out"
    } else if !has.has(needed) {
        "timestamps and values have to be there (a value is absent by its bit)"
    } else if has.has(Columns::ABSENT_KEYS) && !has.has(Columns::KEYS) {
        "bits of absent keys without keys: without keys, no row has one"
    } else {
        return Ok(());
    };
    Err(Refusal::contract(format!("{function}: rows with {has}: {refused}")))
}

/// Bytes of `batch.data` that belong to no column yet.
struct Rest<'a, 'f> {
    bytes: &'a [u8],
    function: &'f str,
}

impl<'a> Rest<'a, '_> {
    fn take(&mut self, what: &str, len: usize) -> wasmtime::Result<&'a [u8]> {
        let Some((taken, rest)) = self.bytes.split_at_checked(len) else {
            let (function, left) = (self.function, self.bytes.len());
            return Err(Refusal::contract(format!(
                "{function}: the columns do not agree: {what} take {len} bytes, and {left} are left"
            )));
        };
        self.bytes = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, what: &str, count: usize) -> wasmtime::Result<&'a [[u8; N]]> {
        Ok(self.take(what, count.saturating_mul(N))?.as_chunks().0)
    }

    fn column(&mut self, ends: &'a [[u8; 4]], what: &str) -> wasmtime::Result<ColumnOut<'a>> {
        check_ends(ends, self.function, what)?;
        let len = ends.last().map_or(0, |end| u32::from_le_bytes(*end) as usize);
        Ok(ColumnOut { ends, bytes: self.take(&format!("the {what}"), len)?, absent: None })
    }
}

fn check_ends(ends: &[[u8; 4]], function: &str, what: &str) -> wasmtime::Result<()> {
    let mut before = 0;
    let falls = ends.iter().fold(false, |falls, end| {
        let end = u32::from_le_bytes(*end);
        let falls = falls | (end < before);
        before = end;
        falls
    });
    if falls { Err(Refusal::contract(format!("{function}: where {what} end falls somewhere; ends never fall"))) } else { Ok(()) }
}

impl<'a> ColumnOut<'a> {
    /// Reads `count` items as `emit-values` has them: ends, bytes, and bits if any are left.
    ///
    /// # Errors
    /// What is wrong with them.
    pub(crate) fn read(count: usize, data: &'a [u8], function: &str) -> wasmtime::Result<ColumnOut<'a>> {
        let mut rest = Rest { bytes: data, function };
        let ends = rest.array("where values end", count)?;
        let mut column = rest.column(ends, "values")?;
        column.absent = match rest.bytes.len() {
            0 => None,
            bits if bits == count.div_ceil(8) => Some(rest.bytes),
            more => {
                let bits = count.div_ceil(8);
                return Err(Refusal::contract(format!(
                    "{function}: {more} bytes follow the last of {count} values; bits of absent values would take {bits}"
                )));
            }
        };
        column.check(limits::VALUE_BYTES_MAX, function, "value")?;
        Ok(column)
    }

    /// Where items end.
    pub(crate) fn ends(&self) -> impl Iterator<Item = u32> {
        self.ends.iter().map(|end| u32::from_le_bytes(*end))
    }

    /// The items, one after the other.
    pub(crate) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Whether nothing is absent.
    pub(crate) fn is_whole(&self) -> bool {
        self.absent.is_none_or(|bits| (0..self.ends.len()).all(|item| !bit(bits, item)))
    }

    /// Whether an item is absent.
    pub(crate) fn is_absent(&self, item: usize) -> bool {
        self.absent.is_some_and(|bits| bit(bits, item))
    }

    fn get(&self, item: usize) -> &'a [u8] {
        let end = |item: usize| u32::from_le_bytes(self.ends[item]) as usize;
        &self.bytes[item.checked_sub(1).map_or(0, end)..end(item)]
    }

    fn item(&self, item: usize) -> Option<&'a [u8]> {
        (!self.is_absent(item)).then(|| self.get(item))
    }

    /// Refuses items longer than anything downstream takes, and absent ones that have bytes. Looks at single items only if one could be.
    fn check(&self, max: usize, function: &str, what: &str) -> wasmtime::Result<()> {
        if self.bytes.len() > max
            && let Some(row) = (0..self.ends.len()).find(|&row| self.get(row).len() > max)
        {
            let len = self.get(row).len();
            return Err(Refusal::limit(format!(
                "{function}: the {what} of row {row} has {len} bytes, more than the limit of {max}"
            )));
        }
        let lies = |&row: &usize| self.is_absent(row) && !self.get(row).is_empty();
        match self.absent.and_then(|_| (0..self.ends.len()).find(lies)) {
            Some(row) => Err(Refusal::contract(format!("{function}: the {what} of row {row} is absent, and has bytes"))),
            None => Ok(()),
        }
    }

    fn append_to(&self, column: &mut weir_model::Blobs) {
        let base = column.bytes.len();
        assert!(base + self.bytes.len() <= u32::MAX as usize, "a column holds less than 4 GiB");
        column.bytes.extend_from_slice(self.bytes);
        column.ends.extend(self.ends().map(|end| end + base as u32));
    }
}

fn bit(bits: &[u8], item: usize) -> bool {
    bits[item / 8] >> (item % 8) & 1 != 0
}
