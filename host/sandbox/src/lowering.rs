//! `types.batch` on its way in: the columns that a guest asked for, written into its memory straight from the host's columns, with one
//! allocation in the guest whatever their number.
//!
//! Owns the layout of what goes in, and the `Lower` that puts it there; what comes out is read in [`crate::rows_out`].
#![allow(unsafe_code, reason = "wasmtime's traits of shapes are unsafe to implement")]

use std::mem::MaybeUninit;

use wasmtime::ValRaw;
use wasmtime::component::__internal::{CanonicalAbiInfo, InstanceType, InterfaceType, LowerContext};
use wasmtime::component::{ComponentType, Lower};
use weir_model::{BatchRef, BlobsRef, Columns, Extras, key_hash};

/// `batch.data`: a list of bytes that exists nowhere but in the guest.
#[derive(Clone, Copy)]
pub(crate) struct DataIn<'a> {
    rows: BatchRef<'a>,
    has: Columns,
    /// What all columns take.
    len: usize,
}

impl<'a> DataIn<'a> {
    /// Those columns of rows that `asked` names; with bits where some are absent.
    ///
    /// # Errors
    /// If they take more bytes than a guest can address.
    #[inline]
    pub(crate) fn new(rows: BatchRef<'a>, asked: Columns) -> wasmtime::Result<DataIn<'a>> {
        let mut has = asked;
        if let Some(extras) = rows.extras {
            let some = |bit: u8| extras.absent.iter().any(|absent| absent & bit != 0);
            if asked.has(Columns::KEYS) && some(Extras::KEY_ABSENT) {
                has = has | Columns::ABSENT_KEYS;
            }
            if asked.has(Columns::VALUES) && some(Extras::VALUE_ABSENT) {
                has = has | Columns::ABSENT_VALUES;
            }
        }
        let (count, has_column) = (rows.len(), |column, bytes| if has.has(column) { bytes } else { 0 });
        let len = has_column(Columns::TIMESTAMPS, 8 * count)
            + has_column(Columns::HASHES, 8 * count)
            + has_column(Columns::KEYS, 4 * count + rows.keys.bytes.len())
            + has_column(Columns::VALUES, 4 * count + rows.values.bytes.len())
            + has_column(Columns::HEADERS, 4 * count + rows.extras.map_or(0, |extras| extras.headers.bytes.len()))
            + has_column(Columns::ABSENT_KEYS, count.div_ceil(8))
            + has_column(Columns::ABSENT_VALUES, count.div_ceil(8));
        u32::try_from(len).map_err(|_| wasmtime::Error::msg(format!("the rows of one call take {len} bytes")))?;
        Ok(DataIn { rows, has, len })
    }

    /// The columns that there are.
    #[inline]
    pub(crate) fn has(&self) -> Columns {
        self.has
    }

    /// Writes all columns, in the order of the contract. `to` is as long as they are.
    fn write(&self, to: &mut [u8]) {
        let DataIn { rows, has, .. } = *self;
        let headers = rows.extras.map(|extras| extras.headers);
        let mut to = to;
        if has.has(Columns::TIMESTAMPS) {
            let timestamps = take(&mut to, 8 * rows.len()).as_chunks_mut().0;
            timestamps.iter_mut().zip(rows.timestamps).for_each(|(to, timestamp)| *to = timestamp.to_le_bytes());
        }
        if has.has(Columns::HASHES) {
            let hashes = take(&mut to, 8 * rows.len()).as_chunks_mut().0;
            hashes.iter_mut().zip(rows.keys.iter()).for_each(|(to, key)| *to = key_hash(key).to_le_bytes());
        }
        if has.has(Columns::KEYS) {
            write_ends(take(&mut to, 4 * rows.len()), rows.keys);
        }
        if has.has(Columns::VALUES) {
            write_ends(take(&mut to, 4 * rows.len()), rows.values);
        }
        if has.has(Columns::HEADERS) {
            let ends = take(&mut to, 4 * rows.len());
            match headers {
                Some(headers) => write_ends(ends, headers),
                None => ends.fill(0),
            }
        }
        if has.has(Columns::KEYS) {
            take(&mut to, rows.keys.bytes.len()).copy_from_slice(rows.keys.bytes);
        }
        if has.has(Columns::VALUES) {
            take(&mut to, rows.values.bytes.len()).copy_from_slice(rows.values.bytes);
        }
        if let Some(headers) = headers.filter(|_| has.has(Columns::HEADERS)) {
            take(&mut to, headers.bytes.len()).copy_from_slice(headers.bytes);
        }
        let absent = rows.extras.map_or(&[][..], |extras| extras.absent);
        for (column, bit) in [(Columns::ABSENT_KEYS, Extras::KEY_ABSENT), (Columns::ABSENT_VALUES, Extras::VALUE_ABSENT)] {
            if has.has(column) {
                let bytes = take(&mut to, rows.len().div_ceil(8));
                let packed = absent
                    .chunks(8)
                    .map(|rows| rows.iter().zip(0..).fold(0, |byte, (absent, row)| byte | u8::from(absent & bit != 0) << row));
                bytes.iter_mut().zip(packed).for_each(|(to, byte)| *to = byte);
            }
        }
    }

    /// Room in the guest, with the columns in it.
    fn put<T: 'static>(&self, cx: &mut LowerContext<'_, T>) -> wasmtime::Result<usize> {
        let at = cx.realloc(0, 0, 1, self.len)?;
        // `realloc` has checked that it is there.
        let to = cx.as_slice_mut().get_mut(at..).and_then(|rest| rest.get_mut(..self.len));
        self.write(to.ok_or_else(|| wasmtime::Error::msg("realloc gave room beyond the end of memory"))?);
        Ok(at)
    }
}

/// The next bytes.
fn take<'a>(to: &mut &'a mut [u8], len: usize) -> &'a mut [u8] {
    let (taken, rest) = std::mem::take(to).split_at_mut(len);
    *to = rest;
    taken
}

fn write_ends(to: &mut [u8], column: BlobsRef<'_>) {
    to.as_chunks_mut().0.iter_mut().zip(column.ends).for_each(|(to, end)| *to = end.to_le_bytes());
}

// SAFETY: it has the shape of a list of bytes in everything: `typecheck` is that of one, so are `ABI` and `Lower`, the two flat values
// that a list is, address and length, which are plain `ValRaw`.
unsafe impl ComponentType for DataIn<'_> {
    type Lower = <[u8] as ComponentType>::Lower;
    const ABI: CanonicalAbiInfo = <[u8] as ComponentType>::ABI;

    fn typecheck(ty: &InterfaceType, types: &InstanceType<'_>) -> wasmtime::Result<()> {
        <[u8] as ComponentType>::typecheck(ty, types)
    }
}

// SAFETY: as wasmtime's own for lists of bytes: room comes from the guest's `realloc`, which wasmtime checks to lie within memory; it
// is written through a checked slice, and where it is and how long goes to both values of `dst`, or to eight bytes at `offset`.
unsafe impl Lower for DataIn<'_> {
    fn linear_lower_to_flat<T>(
        &self,
        cx: &mut LowerContext<'_, T>,
        _ty: InterfaceType,
        dst: &mut MaybeUninit<Self::Lower>,
    ) -> wasmtime::Result<()> {
        let at = self.put(cx)?;
        // Both are less than 2^32; a 64-bit value has the same low half, from which the guest takes it.
        dst.write([ValRaw::i64(at as i64), ValRaw::i64(self.len as i64)]);
        Ok(())
    }

    fn linear_lower_to_memory<T>(&self, cx: &mut LowerContext<'_, T>, _ty: InterfaceType, offset: usize) -> wasmtime::Result<()> {
        let at = self.put(cx)?;
        *cx.get(offset) = u32::try_from(at)?.to_le_bytes();
        *cx.get(offset + 4) = u32::try_from(self.len)?.to_le_bytes();
        Ok(())
    }
}
