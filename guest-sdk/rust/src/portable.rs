//! State that outlives the code that made it: rows to which an operator writes its state and from which another
//! version of it, or another operator, reads it.
//!
//! A checkpoint needs none of this; it is for upgrades to new code and for savepoints that are read elsewhere.
//! `export!(Count, portable)` implements [`Portable`] for an operator that serde can read and write: the state is
//! one CBOR value with named fields, cut into pieces. A field that is new in the code needs `#[serde(default)]`.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{Batch, BatchRef, Error};

/// Bytes of one piece of a saved value: far below the longest value a row may have.
const PIECE_BYTES: usize = 1 << 20;

/// An operator whose state can be written as rows and read from rows.
pub trait Portable {
    /// The version of what the rows mean. Raise it when code of before could not load them.
    const VERSION: u32 = 1;

    /// Writes the state.
    ///
    /// # Errors
    /// The savepoint fails; the job goes on.
    fn save(&self, out: &mut StateWriter<'_>) -> Result<(), Error>;

    /// Takes over saved rows: after `open`, before any other call; several times where the rows are many.
    ///
    /// # Errors
    /// The upgrade or start fails.
    fn load(&mut self, rows: StateRows<'_>) -> Result<(), Error>;
}

/// Where [`Portable::save`] writes.
pub struct StateWriter<'a> {
    batch: Batch,
    write: &'a mut dyn FnMut(&Batch),
}

impl<'a> StateWriter<'a> {
    pub(crate) fn new(write: &'a mut dyn FnMut(&Batch)) -> StateWriter<'a> {
        StateWriter { batch: Batch::default(), write }
    }

    /// Writes one row of state.
    pub fn row(&mut self, key: &[u8], value: &[u8]) {
        self.batch.push(0, key, value);
        if self.batch.values.bytes.len() >= PIECE_BYTES {
            self.flush();
        }
    }

    /// Writes a whole value, cut into pieces, which [`StateRows::value`] puts together again.
    ///
    /// # Errors
    /// If serde cannot write the value.
    pub fn value(&mut self, value: &impl Serialize) -> Result<(), Error> {
        let mut bytes = Vec::new();
        ciborium::into_writer(value, &mut bytes).map_err(|error| Error::fail(format_args!("writing the state: {error}")))?;
        let pieces = bytes.len().div_ceil(PIECE_BYTES);
        for (index, piece) in bytes.chunks(PIECE_BYTES).enumerate() {
            self.row(format!("{index:08}/{pieces:08}").as_bytes(), piece);
        }
        Ok(())
    }

    pub(crate) fn flush(&mut self) {
        if !self.batch.is_empty() {
            (self.write)(&self.batch);
            self.batch.clear();
        }
    }
}

/// Pieces of a value that have arrived so far.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    bytes: Vec<u8>,
    arrived: usize,
    expected: usize,
}

impl Pieces {
    #[inline]
    pub(crate) fn check_complete(&self) -> Result<(), String> {
        if self.expected == 0 {
            return Ok(());
        }
        Err(format!(
            "loading saved state: {} of {} pieces have arrived; the savepoint is incomplete",
            self.arrived, self.expected
        ))
    }
}

/// Saved rows, as [`Portable::load`] gets them.
pub struct StateRows<'a> {
    /// The rows.
    pub rows: BatchRef<'a>,
    /// `name@version` of the component that saved them.
    pub written_by: &'a str,
    pieces: &'a mut Pieces,
}

impl<'a> StateRows<'a> {
    pub(crate) fn new(rows: BatchRef<'a>, written_by: &'a str, pieces: &'a mut Pieces) -> StateRows<'a> {
        StateRows { rows, written_by, pieces }
    }

    /// The value that [`StateWriter::value`] wrote; `None` until all its pieces have arrived.
    ///
    /// # Errors
    /// If the rows are not the pieces of a value in order, or the value does not fit `S`.
    pub fn value<S: DeserializeOwned>(&mut self) -> Result<Option<S>, Error> {
        let mut value = None;
        for (key, piece) in self.rows.keys().iter().zip(self.rows.values().iter()) {
            let (index, count) = piece_number(key).ok_or_else(|| self.refuse("a row is not a piece of a saved value"))?;
            if index != self.pieces.arrived || (index > 0 && count != self.pieces.expected) || value.is_some() {
                return Err(self.refuse(&format!("piece {index} of {count} is out of order")));
            }
            self.pieces.bytes.extend_from_slice(piece);
            self.pieces.arrived += 1;
            self.pieces.expected = count;
            if self.pieces.arrived == count {
                let bytes = std::mem::take(self.pieces).bytes;
                value = Some(ciborium::from_reader(bytes.as_slice()).map_err(|error| {
                    self.refuse(&format!("it does not fit this version: {error}; give new fields #[serde(default)]"))
                })?);
            }
        }
        Ok(value)
    }

    fn refuse(&self, why: &str) -> Error {
        Error::fail(format_args!("loading state saved by {}: {why}", self.written_by))
    }
}

/// Index and number of pieces, from a key that [`StateWriter::value`] wrote.
fn piece_number(key: &[u8]) -> Option<(usize, usize)> {
    let (index, count) = std::str::from_utf8(key).ok()?.split_once('/')?;
    let (index, count) = (index.parse().ok()?, count.parse().ok()?);
    (index < count).then_some((index, count))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn saved(value: &impl Serialize) -> Vec<Batch> {
        let mut batches = Vec::new();
        let mut keep = |batch: &Batch| batches.push(batch.clone());
        let mut writer = StateWriter::new(&mut keep);
        writer.value(value).unwrap();
        writer.flush();
        batches
    }

    fn view(batch: &Batch) -> BatchRef<'_> {
        BatchRef::new(&batch.timestamps, batch.keys.view(), batch.values.view())
    }

    #[test]
    fn a_value_larger_than_a_piece_comes_back_whole() {
        let value: Vec<u64> = (0..700_000).collect();
        let batches = saved(&value);
        assert!(batches.len() > 1);
        let mut pieces = Pieces::default();
        let mut loaded = None;
        for batch in &batches {
            assert!(loaded.is_none());
            loaded = StateRows::new(view(batch), "x@1", &mut pieces).value::<Vec<u64>>().unwrap();
            assert_eq!(pieces.check_complete().is_ok(), loaded.is_some());
        }
        assert_eq!(loaded, Some(value));
    }

    #[test]
    fn a_missing_piece_is_noticed() {
        let batches = saved(&vec![7u64; 3_000_000]);
        let mut pieces = Pieces::default();
        StateRows::new(view(&batches[0]), "x@1", &mut pieces).value::<Vec<u64>>().unwrap();
        let error = StateRows::new(view(&batches[2]), "x@1", &mut pieces).value::<Vec<u64>>().unwrap_err();
        assert!(error.message().contains("out of order") && error.message().contains("x@1"), "{error}");
    }

    #[test]
    fn maps_with_any_keys_are_kept() {
        let value = std::collections::HashMap::from([(b"k".to_vec(), (1u64, -5i128))]);
        let batches = saved(&value);
        let mut pieces = Pieces::default();
        let loaded = StateRows::new(view(&batches[0]), "x@1", &mut pieces).value().unwrap();
        assert_eq!(loaded, Some(value));
    }
}
