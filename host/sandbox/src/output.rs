//! Rows leave the guest: `output` and `state-writer` of the contract. Rows of the call's own batch go by their numbers and are selection from
//! the host's columns; others are read where they lie in the guest's memory.
//!
//! Owns in which order things are checked, and that what goes out is counted before it is copied; the shape of rows is
//! [`crate::rows_out`]'s.

use wasmtime::component::{Linker, WasmList};
use wasmtime::{AsContext, StoreContextMut};
use weir_model::limits::FRAME_ROWS_MAX;
use weir_model::{Batch, BatchRef, BlobsRef, Extras};

use crate::bindings::BatchOut;
use crate::emitted_rows::EmittedRows;
use crate::error::Refusal;
use crate::guest::Guest;
use crate::names;
use crate::rows_out::{ColumnOut, RowsOut};

/// What a row takes beside keys, values and headers.
const ROW_BYTES: usize = size_of::<i64>() + 2 * size_of::<u32>();

const FORWARD: &str = "output.forward";
const EMIT_VALUES: &str = "output.emit-values";
const EMIT: &str = "output.emit";
const WRITE: &str = "state-writer.write";

type Store<'a> = StoreContextMut<'a, Guest>;
type Bytes = WasmList<u8>;

/// Offers the functions to components.
pub(crate) fn link(linker: &mut Linker<Guest>) -> wasmtime::Result<()> {
    let mut output = linker.instance(names::OUTPUT)?;
    output.func_wrap("forward", |mut store, (port, rows): (u32, Bytes)| {
        gather(&mut store, FORWARD, port, &rows, |store, selection, emitted| selection.forward(store, emitted))
    })?;
    output.func_wrap("emit-values", |mut store, (port, rows, values): (u32, Bytes, Bytes)| {
        gather(&mut store, EMIT_VALUES, port, &rows, |store, selection, emitted| selection.with_values(store, &values, emitted))
    })?;
    output.func_wrap("emit", |mut store, (port, rows): (u32, BatchOut)| {
        // Out of the store for the moment: the rows are borrowed from the store.
        let mut emitted = std::mem::take(&mut store.data_mut().emitted);
        let result = emit(&mut store, port, &rows, &mut emitted);
        store.data_mut().emitted = emitted;
        result
    })?;
    linker.instance(names::STATE_WRITER)?.func_wrap("write", |mut store, (rows,): (BatchOut,)| write(&mut store, &rows))
}

fn emit(store: &mut Store<'_>, port: u32, rows: &BatchOut, emitted: &mut EmittedRows) -> wasmtime::Result<()> {
    store.data().check_may_emit(EMIT)?;
    store.data().check_port(port, EMIT)?;
    store.data_mut().charge(rows.data.len())?;
    let rows = RowsOut::read(rows.rows, rows.has.into(), rows.data.as_le_slice(store.as_context()), EMIT)?;
    if rows.len() == 0 {
        return Ok(());
    }
    if store.data().checks_keys(port) {
        store.data().check_keys(port, rows.keys(), EMIT)?;
    }
    rows.append_to(emitted.rows_to(port));
    Ok(())
}

fn write(store: &mut Store<'_>, rows: &BatchOut) -> wasmtime::Result<()> {
    store.data().check_may_save(WRITE)?;
    store.data_mut().charge(rows.data.len())?;
    let mut saved = Batch::default();
    let data = rows.data.as_le_slice(store.as_context());
    RowsOut::read_state(rows.rows, rows.has.into(), data, WRITE)?.append_to(&mut saved);
    store.data_mut().saved.push(saved);
    Ok(())
}

/// Rows of the call's batch by their numbers, none beyond it.
struct Selection<'a> {
    port: u32,
    numbers: &'a [u32],
}

/// Reads numbers of rows, checks them, and has them selection.
fn gather(
    store: &mut Store<'_>,
    function: &str,
    port: u32,
    rows: &Bytes,
    take: impl FnOnce(&mut Store<'_>, &Selection<'_>, &mut EmittedRows) -> wasmtime::Result<()>,
) -> wasmtime::Result<()> {
    let guest = store.data_mut();
    // Out of the store for the moment: the batch of the call is borrowed from the store.
    let (mut numbers, mut emitted) = (std::mem::take(&mut guest.numbers), std::mem::take(&mut guest.emitted));
    let result = read_numbers(store, function, rows, &mut numbers)
        .and_then(|()| store.data().check_port(port, function))
        .and_then(|()| take(store, &Selection { port, numbers: &numbers }, &mut emitted));
    // What one call may name once is worth keeping room for, and no more: nobody accounts for it.
    numbers.shrink_to(FRAME_ROWS_MAX);
    let guest = store.data_mut();
    guest.ends.shrink_to(FRAME_ROWS_MAX);
    (guest.numbers, guest.emitted) = (numbers, emitted);
    result
}

fn read_numbers(store: &Store<'_>, function: &str, rows: &Bytes, numbers: &mut Vec<u32>) -> wasmtime::Result<()> {
    let count = store.data().rows_of_call(function)?.len();
    let (all, rest) = rows.as_le_slice(store.as_context()).as_chunks::<4>();
    if !rest.is_empty() {
        let len = rows.len();
        return Err(Refusal::contract(format!(
            "{function}: numbers of rows are 4 bytes each; {len} bytes are no whole number of them"
        )));
    }
    // Before they are copied: each of these rows takes so much at least.
    if all.len().saturating_mul(ROW_BYTES) > store.data().sendable_bytes() {
        let rows = all.len();
        return Err(Refusal::limit(format!(
            "{function}: {rows} rows are more than one call may send; spread them over several calls"
        )));
    }
    numbers.clear();
    numbers.extend(all.iter().map(|number| u32::from_le_bytes(*number)));
    let greatest = numbers.iter().copied().max();
    match greatest.filter(|&row| row as usize >= count) {
        Some(row) => Err(Refusal::contract(format!("{function}: row {row} is not one of the {count} rows of this call"))),
        None => Ok(()),
    }
}

impl Selection<'_> {
    fn forward(&self, store: &mut Store<'_>, emitted: &mut EmittedRows) -> wasmtime::Result<()> {
        let guest = store.data_mut();
        let rows = guest.rows_of_call(FORWARD)?;
        let bytes = self.bytes_of(rows, true, guest.sendable_bytes());
        guest.charge(bytes)?;
        self.check_keys(guest, FORWARD)?;
        if !self.numbers.is_empty() {
            let before = emitted.bytes_len();
            emitted.rows_to(self.port).gather(guest.rows_of_call(FORWARD)?, self.numbers);
            guest.refund(bytes.saturating_sub(emitted.bytes_len() - before));
        }
        Ok(())
    }

    fn with_values(&self, store: &mut Store<'_>, values: &Bytes, emitted: &mut EmittedRows) -> wasmtime::Result<()> {
        let mut ends = std::mem::take(&mut store.data_mut().ends);
        let guest = store.data_mut();
        let rows = guest.rows_of_call(EMIT_VALUES)?;
        let bytes = self.bytes_of(rows, false, guest.sendable_bytes()).saturating_add(values.len());
        guest.charge(bytes)?;
        self.check_keys(guest, EMIT_VALUES)?;
        let count = self.numbers.len();
        let values = ColumnOut::read(count, values.as_le_slice(store.as_context()), EMIT_VALUES)?;
        if count > 0 {
            ends.clear();
            ends.extend(values.ends());
            let column = BlobsRef { ends: &ends, bytes: values.bytes() };
            let absent: Option<Vec<u8>> = (!values.is_whole())
                .then(|| (0..count).map(|item| if values.is_absent(item) { Extras::VALUE_ABSENT } else { 0 }).collect());
            let rows = store.data().rows_of_call(EMIT_VALUES)?;
            let before = emitted.bytes_len();
            emitted.rows_to(self.port).gather_with_values(rows, self.numbers, column, absent.as_deref());
            let copied = emitted.bytes_len() - before;
            store.data_mut().refund(bytes.saturating_sub(copied));
        }
        store.data_mut().ends = ends;
        Ok(())
    }

    fn check_keys(&self, guest: &Guest, function: &str) -> wasmtime::Result<()> {
        if !guest.checks_references(self.port) {
            return Ok(());
        }
        let rows = guest.rows_of_call(function)?;
        guest.check_keys(self.port, self.numbers.iter().map(|&row| rows.row(row as usize).key), function)
    }

    /// What the rows take. Where even the whole batch is far less than may be sent, rows that are all different are not looked at:
    /// what is too much is given back.
    fn bytes_of(&self, rows: BatchRef<'_>, with_values: bool, sendable: usize) -> usize {
        let fixed = self.numbers.len() * ROW_BYTES;
        let is_rising = self.numbers.windows(2).all(|pair| pair[0] < pair[1]);
        let whole = rows.size_bytes();
        if is_rising && self.numbers.len() * 4 > rows.len() && whole * 16 <= sendable {
            return whole;
        }
        let bytes = |row: u32| {
            let row = rows.row(row as usize);
            let value = if with_values { row.value_bytes().len() } else { 0 };
            row.key_bytes().len() + value + row.headers.len()
        };
        self.numbers.iter().fold(fixed, |sum, &row| sum.saturating_add(bytes(row)))
    }
}
