//! Where an operator's rows go: gathered by output, handed to the host once an output and call.
//!
//! Rows of an output are sent in the order in which they were emitted, of whatever kind they are: what is gathered of one kind is handed
//! over before the first of another. Owns the host's bounds for what is emitted: what exceeds them is never handed over, since the host
//! would end the instance for it, but refused here, where the row at hand can be rejected instead.

use serde::Serialize;

use crate::rows::{KEY_ABSENT, VALUE_ABSENT, append};
use crate::{Batch, Error, NewRow, Rejection, Row, Timestamp};

/// Bytes gathered for a port before they are handed over within a call. Small, because the pages this buffer
/// lives on are written to every checkpoint.
const FLUSH_BYTES: usize = 64 << 10;

/// Rows gathered for a port before they are handed over within a call.
const FLUSH_ROWS: usize = 4_096;

/// The longest key that the host takes.
pub const KEY_BYTES_MAX: usize = 64 << 10;

/// The longest value that the host takes.
pub const VALUE_BYTES_MAX: usize = 16 << 20;

/// The longest headers of a row that the host takes: names and values, and 8 bytes for each pair.
pub const HEADERS_BYTES_MAX: usize = 64 << 10;

/// The most that the host takes within one call: keys, values and headers, and [`ROW_BYTES`] for each row.
pub const CALL_BYTES_MAX: usize = 64 << 20;

/// Outputs an operator may have.
const PORTS_MAX: u32 = 16;

/// What a row costs beside its key, value and headers, at most.
const ROW_BYTES: usize = 24;

/// Bytes of a reason that the host keeps.
const REASON_BYTES_MAX: usize = 1 << 10;

/// What an operator sends on and sets aside during a call.
///
/// Outputs count in the order of [`Operator::describe`](crate::Operator::describe); 0 is the main one.
#[derive(Debug)]
pub struct Outputs {
    ports: Vec<Gathered>,
    pub(crate) rejections: Vec<Rejection>,
    watermark: Timestamp,
    /// Rows of this call's batch.
    call_rows: u32,
    /// Bytes that were taken from the operator in this call.
    call_bytes: usize,
    /// Why a row was not taken from the operator, until somebody asks.
    refused: Option<Refused>,
    /// Where what is handed over is packed.
    #[cfg(target_arch = "wasm32")]
    packed: Vec<u8>,
    /// What a host would have been given.
    #[cfg(not(target_arch = "wasm32"))]
    emitted: Vec<(u32, Emission)>,
}

/// What is gathered for an output: all of one kind.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    kind: Kind,
    /// Numbers of rows of the batch: those that are forwarded, or that have new values.
    rows: Vec<u32>,
    /// Rows; of new values only the values.
    batch: Batch,
    /// Of new values, which are absent; empty where none is.
    absent: Vec<u8>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Kind {
    /// Rows of any kind.
    #[default]
    Rows,
    /// Rows of the batch as they are.
    Forward,
    /// New values under the keys, times and headers of rows of the batch.
    Values,
}

/// What is handed over for an output where there is no sandbox.
#[cfg(not(target_arch = "wasm32"))]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Emission {
    /// Rows.
    Rows(Batch),
    /// Rows of the call's batch, by number.
    Forward(Vec<u32>),
    /// New values for rows of the call's batch.
    Values {
        /// Their numbers.
        rows: Vec<u32>,
        /// As many values.
        values: crate::Blobs,
        /// [`VALUE_ABSENT`](crate::VALUE_ABSENT) or 0 for each; empty where none is absent.
        absent: Vec<u8>,
    },
}

impl Gathered {
    fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.batch.is_empty()
    }

    fn is_full(&self) -> bool {
        let Gathered { rows, batch, .. } = self;
        batch.values.bytes.len() + batch.keys.bytes.len() >= FLUSH_BYTES || batch.len().max(rows.len()) >= FLUSH_ROWS
    }

    #[cfg(target_arch = "wasm32")]
    fn clear(&mut self) {
        self.rows.clear();
        self.batch.clear();
        self.absent.clear();
    }
}

impl Outputs {
    pub(crate) fn new() -> Outputs {
        Outputs {
            ports: vec![Gathered::default()],
            rejections: Vec::new(),
            watermark: Timestamp::MIN,
            call_rows: 0,
            call_bytes: 0,
            refused: None,
            #[cfg(target_arch = "wasm32")]
            packed: Vec::new(),
            #[cfg(not(target_arch = "wasm32"))]
            emitted: Vec::new(),
        }
    }

    /// Sends a row to the main output.
    #[inline]
    pub fn emit(&mut self, timestamp: Timestamp, key: &[u8], value: &[u8]) {
        self.to(0).emit(timestamp, key, value);
    }

    /// Sends a row with a JSON value to the main output.
    ///
    /// # Errors
    /// A failure, if the value has no JSON form.
    pub fn emit_json(&mut self, timestamp: Timestamp, key: &[u8], value: &impl Serialize) -> Result<(), Error> {
        self.to(0).emit_json(timestamp, key, value)
    }

    /// Sends a row of this call to the main output as it is: see [`Port::forward`].
    #[inline]
    pub fn forward(&mut self, row: Row<'_>) {
        self.to(0).forward(row);
    }

    /// Sends a new value under a row's key, time and headers to the main output: see [`Port::emit_value`].
    #[inline]
    pub fn emit_value(&mut self, row: Row<'_>, value: &[u8]) {
        self.to(0).emit_value(row, value);
    }

    /// Sends a new value, as JSON, under a row's key, time and headers to the main output: see [`Port::emit_json_value`].
    ///
    /// # Errors
    /// A failure, if the value has no JSON form.
    pub fn emit_json_value(&mut self, row: Row<'_>, value: &impl Serialize) -> Result<(), Error> {
        self.to(0).emit_json_value(row, value)
    }

    /// An output by number.
    ///
    /// # Panics
    /// If an operator cannot have as many.
    #[inline]
    pub fn to(&mut self, port: u32) -> Port<'_> {
        if self.ports.len() <= port as usize {
            self.add_ports(port);
        }
        Port { port, outputs: self }
    }

    /// Sets row `row` of this call's batch aside. What was emitted for it so far stays emitted. Of the reason, 1 KiB is kept.
    ///
    /// For `process` and `process_batch`: the calls for `advance` and `finish` have no rows, and fail if there is a rejection.
    #[cold]
    pub fn reject(&mut self, row: u32, reason: impl std::fmt::Display) {
        let mut reason = reason.to_string();
        if reason.len() > REASON_BYTES_MAX {
            reason.truncate(reason.floor_char_boundary(REASON_BYTES_MAX));
            reason.shrink_to_fit();
        }
        self.rejections.push(Rejection { row, reason });
    }

    /// Before a call with so many rows: nothing of an earlier one counts.
    #[inline]
    pub(crate) fn begin(&mut self, rows: usize) {
        self.rejections.clear();
        self.call_rows = rows as u32;
        self.call_bytes = 0;
        self.refused = None;
    }

    /// Why a row that was emitted since the last question was not taken.
    #[inline]
    pub(crate) fn take_refused(&mut self) -> Option<Refused> {
        self.refused.take()
    }

    /// How far event time has come: no row before it is expected any more. `Timestamp::MIN` until the first
    /// [`advance`](crate::Operator::advance).
    #[inline]
    pub fn watermark(&self) -> Timestamp {
        self.watermark
    }

    pub(crate) fn set_watermark(&mut self, watermark: Timestamp) {
        self.watermark = watermark;
    }

    /// Hands over all that is gathered: at the end of each call.
    #[inline]
    pub(crate) fn flush(&mut self) {
        for port in 0..self.ports.len() {
            if !self.ports[port].is_empty() {
                self.flush_port(port);
            }
        }
    }

    /// Rows go on by their numbers in the batch of this call, so those of another batch would be others.
    #[inline]
    fn expect_of_call(&self, row: Row<'_>) {
        assert!(row.index() < self.call_rows, "what is sent on as it is has to be a row of this call; send others with `emit`");
    }

    #[cold]
    fn add_ports(&mut self, port: u32) {
        assert!(port < PORTS_MAX, "output {port}: an operator has at most {PORTS_MAX} outputs");
        self.ports.resize_with(port as usize + 1, Gathered::default);
    }

    /// What is gathered for a port, if it is of this kind; what is there of another is handed over first.
    #[inline]
    fn gathered(&mut self, port: u32, kind: Kind) -> &mut Gathered {
        if self.ports[port as usize].kind != kind {
            self.change_kind(port, kind);
        }
        &mut self.ports[port as usize]
    }

    fn change_kind(&mut self, port: u32, kind: Kind) {
        if !self.ports[port as usize].is_empty() {
            self.flush_port(port as usize);
        }
        self.ports[port as usize].kind = kind;
    }

    #[cfg(target_arch = "wasm32")]
    fn flush_port(&mut self, port: usize) {
        use zerocopy::IntoBytes;

        use crate::bindings::weir::operator::output;

        let gathered = &mut self.ports[port];
        let number = port as u32;
        self.packed.clear();
        match gathered.kind {
            Kind::Forward => output::forward(number, gathered.rows.as_bytes()),
            Kind::Values => {
                crate::pack::pack_values(&gathered.batch.values, &gathered.absent, &mut self.packed);
                output::emit_values(number, gathered.rows.as_bytes(), &self.packed);
            }
            Kind::Rows => {
                let has = crate::pack::pack(&gathered.batch, &mut self.packed);
                let rows = crate::pack::batch_out(gathered.batch.len(), has, std::mem::take(&mut self.packed));
                output::emit(number, &rows);
                self.packed = rows.data;
            }
        }
        gathered.clear();
    }

    #[cfg(not(target_arch = "wasm32"))]
    fn flush_port(&mut self, port: usize) {
        let Gathered { kind, rows, batch, absent } = &mut self.ports[port];
        let room = batch.same_room();
        let emission = match kind {
            Kind::Forward => Emission::Forward(std::mem::take(rows)),
            Kind::Rows => Emission::Rows(std::mem::replace(batch, room)),
            Kind::Values => Emission::Values {
                rows: std::mem::take(rows),
                values: std::mem::replace(batch, room).values,
                absent: std::mem::take(absent),
            },
        };
        self.emitted.push((port as u32, emission));
    }

    #[cfg(not(target_arch = "wasm32"))]
    pub(crate) fn take_emitted(&mut self) -> impl Iterator<Item = (u32, Emission)> {
        self.emitted.drain(..)
    }
}

/// Why a row was not taken from the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    Key(usize),
    Value(usize),
    Headers(usize),
    Call,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Refused::Key(bytes) => {
                write!(f, "the key of what is sent on has {bytes} bytes; at most {KEY_BYTES_MAX} are possible")
            }
            Refused::Value(bytes) => {
                write!(f, "the value of what is sent on has {bytes} bytes; at most {VALUE_BYTES_MAX} are possible")
            }
            Refused::Headers(bytes) => {
                write!(f, "the headers of what is sent on have {bytes} bytes; at most {HEADERS_BYTES_MAX} are possible")
            }
            Refused::Call => write!(f, "more than {CALL_BYTES_MAX} bytes were sent on within one call"),
        }
    }
}

impl std::error::Error for Refused {}

/// Takes bytes as long as a value may be.
struct Bounded<'a> {
    bytes: &'a mut Vec<u8>,
    end: usize,
    /// Bytes that the whole would have.
    wanted: usize,
}

impl std::io::Write for Bounded<'_> {
    fn write(&mut self, part: &[u8]) -> std::io::Result<usize> {
        self.wanted += part.len();
        if self.wanted <= self.end {
            append(self.bytes, part);
        }
        Ok(part.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// One output during a call.
///
/// A key of more than [`KEY_BYTES_MAX`], a value of more than [`VALUE_BYTES_MAX`], and what exceeds [`CALL_BYTES_MAX`] in one call
/// are not sent. In [`process`](crate::Operator::process) this rejects the row at hand, with the reason; in the other calls,
/// which have no such row, it fails. [`try_write`](Port::try_write) tells at once.
#[derive(Debug)]
pub struct Port<'a> {
    port: u32,
    outputs: &'a mut Outputs,
}

impl Port<'_> {
    /// Sends a row.
    #[inline]
    pub fn emit(&mut self, timestamp: Timestamp, key: &[u8], value: &[u8]) {
        self.write(timestamp, key, |bytes| append(bytes, value));
    }

    /// Sends a row of this call as it is, with all it has, also with columns that were not asked for. Nothing is copied: for filters, routing,
    /// deduplication. A row may be sent more than once.
    #[inline]
    pub fn forward(&mut self, row: Row<'_>) {
        self.outputs.expect_of_call(row);
        let call_bytes = self.outputs.call_bytes + row.known_bytes() + ROW_BYTES;
        if call_bytes > CALL_BYTES_MAX {
            self.refuse(Refused::Call);
            return;
        }
        self.outputs.call_bytes = call_bytes;
        let gathered = self.outputs.gathered(self.port, Kind::Forward);
        gathered.rows.push(row.index());
        if gathered.rows.len() >= FLUSH_ROWS {
            self.outputs.flush_port(self.port as usize);
        }
    }

    /// The same for many rows of this call, by number.
    ///
    /// # Errors
    /// A failure, if one of them is no row of this call, or they are too many for one call.
    pub fn forward_rows(&mut self, rows: &[u32]) -> Result<(), Error> {
        if let Some(row) = rows.iter().find(|row| **row >= self.outputs.call_rows) {
            let given = self.outputs.call_rows;
            return Err(Error::fail(format_args!("row {row} is to be forwarded, in a call with {given} rows")));
        }
        let call_bytes = self.outputs.call_bytes + rows.len() * ROW_BYTES;
        if call_bytes > CALL_BYTES_MAX {
            return Err(Error::fail(Refused::Call));
        }
        self.outputs.call_bytes = call_bytes;
        for rows in rows.chunks(FLUSH_ROWS) {
            self.outputs.gathered(self.port, Kind::Forward).rows.extend_from_slice(rows);
            if self.outputs.ports[self.port as usize].is_full() {
                self.outputs.flush_port(self.port as usize);
            }
        }
        Ok(())
    }

    /// Sends a new value under the key, time and headers of a row of this call, which are not copied: for maps and running aggregates.
    #[inline]
    pub fn emit_value(&mut self, row: Row<'_>, value: &[u8]) {
        self.write_value(row, |bytes| append(bytes, value));
    }

    /// As [`emit_value`](Port::emit_value), for a value that `write` appends to the bytes it is given.
    #[inline]
    pub fn write_value(&mut self, row: Row<'_>, write: impl FnOnce(&mut Vec<u8>)) {
        if let Err(refused) = self.append_value(row, write) {
            self.refuse(refused);
        }
    }

    /// As [`write_value`](Port::write_value); tells whether the row was taken.
    ///
    /// # Errors
    /// A rejection: the value is too long, or too much was sent in this call.
    #[inline]
    pub fn try_write_value(&mut self, row: Row<'_>, write: impl FnOnce(&mut Vec<u8>)) -> Result<(), Error> {
        self.append_value(row, write).map_err(Error::reject)
    }

    #[inline]
    fn append_value(&mut self, row: Row<'_>, write: impl FnOnce(&mut Vec<u8>)) -> Result<(), Refused> {
        let bytes = &mut self.outputs.gathered(self.port, Kind::Values).batch.values.bytes;
        let start = bytes.len();
        write(bytes);
        let length = appended(start, bytes.len());
        self.close_value(row, start, length)?;
        self.flush_if_full();
        Ok(())
    }

    /// Sends a tombstone under the key, time and headers of a row of this call: what has its key is deleted.
    pub fn emit_tombstone(&mut self, row: Row<'_>) {
        let gathered = self.outputs.gathered(self.port, Kind::Values);
        let before = gathered.batch.values.ends.len();
        let start = gathered.batch.values.bytes.len();
        match self.close_value(row, start, 0) {
            Ok(()) => {
                let gathered = &mut self.outputs.ports[self.port as usize];
                gathered.absent.resize(before, 0);
                gathered.absent.push(VALUE_ABSENT);
                self.flush_if_full();
            }
            Err(refused) => self.refuse(refused),
        }
    }

    /// Makes a value of the `length` bytes that lie behind `start`, if the host takes it.
    #[inline]
    fn close_value(&mut self, row: Row<'_>, start: usize, length: usize) -> Result<(), Refused> {
        let outputs = &mut *self.outputs;
        outputs.expect_of_call(row);
        let call_bytes = outputs.call_bytes + row.known_bytes_but_value() + length + ROW_BYTES;
        let gathered = &mut outputs.ports[self.port as usize];
        if length > VALUE_BYTES_MAX || call_bytes > CALL_BYTES_MAX {
            gathered.batch.values.bytes.truncate(start);
            return Err(refusal(0, length));
        }
        outputs.call_bytes = call_bytes;
        gathered.batch.values.close_item();
        gathered.rows.push(row.index());
        if !gathered.absent.is_empty() {
            gathered.absent.resize(gathered.rows.len(), 0);
        }
        Ok(())
    }

    /// Sends a row with all that a row can have: headers, no key, no value.
    pub fn emit_row(&mut self, row: NewRow<'_>) {
        let headers: usize = row.headers.iter().map(|(name, value)| name.len() + value.len() + 8).sum();
        let (key, value) = (row.key.map_or(0, <[u8]>::len), row.value.map_or(0, <[u8]>::len));
        let call_bytes = self.outputs.call_bytes + key + value + headers + ROW_BYTES;
        if headers > HEADERS_BYTES_MAX {
            self.refuse(Refused::Headers(headers));
            return;
        }
        if key > KEY_BYTES_MAX || value > VALUE_BYTES_MAX || call_bytes > CALL_BYTES_MAX {
            self.refuse(refusal(key, value));
            return;
        }
        self.outputs.call_bytes = call_bytes;
        self.outputs.gathered(self.port, Kind::Rows).batch.push_row(row);
        self.flush_if_full();
    }

    /// Sends a row with a JSON value.
    ///
    /// # Errors
    /// A failure, if the value has no JSON form.
    pub fn emit_json(&mut self, timestamp: Timestamp, key: &[u8], value: &impl Serialize) -> Result<(), Error> {
        let (start, wanted) = self.write_json(Kind::Rows, value)?;
        match self.close(timestamp, key, start, wanted) {
            Ok(()) => self.flush_if_full(),
            Err(refused) => self.refuse(refused),
        }
        Ok(())
    }

    /// Sends a new value, as JSON, under the key, time and headers of a row of this call.
    ///
    /// # Errors
    /// A failure, if the value has no JSON form.
    pub fn emit_json_value(&mut self, row: Row<'_>, value: &impl Serialize) -> Result<(), Error> {
        let (start, wanted) = self.write_json(Kind::Values, value)?;
        match self.close_value(row, start, wanted) {
            Ok(()) => self.flush_if_full(),
            Err(refused) => self.refuse(refused),
        }
        Ok(())
    }

    /// Writes JSON behind the values that are there. Gives where it starts, and how long it is, or would be.
    fn write_json(&mut self, kind: Kind, value: &impl Serialize) -> Result<(usize, usize), Error> {
        let bytes = &mut self.outputs.gathered(self.port, kind).batch.values.bytes;
        let start = bytes.len();
        let mut bounded = Bounded { end: start + VALUE_BYTES_MAX, wanted: start, bytes };
        let result = serde_json::to_writer(&mut bounded, value);
        let wanted = bounded.wanted - start;
        if let Err(error) = result {
            self.outputs.ports[self.port as usize].batch.values.bytes.truncate(start);
            return Err(Error::fail(format_args!("writing a value as JSON: {error}")));
        }
        Ok((start, wanted))
    }

    /// Sends a row whose value `write` appends to the bytes it is given, without a copy in between.
    #[inline]
    pub fn write(&mut self, timestamp: Timestamp, key: &[u8], write: impl FnOnce(&mut Vec<u8>)) {
        if let Err(refused) = self.append(timestamp, key, write) {
            self.refuse(refused);
        }
    }

    /// As [`write`](Port::write); tells whether the row was taken.
    ///
    /// # Errors
    /// A rejection: key or value are too long, or too much was sent in this call.
    #[inline]
    pub fn try_write(&mut self, timestamp: Timestamp, key: &[u8], write: impl FnOnce(&mut Vec<u8>)) -> Result<(), Error> {
        self.append(timestamp, key, write).map_err(Error::reject)
    }

    /// As [`try_write`](Port::try_write), for a row that may have no key, which is not the same as a key of no bytes.
    ///
    /// # Errors
    /// A rejection: key or value are too long, or too much was sent in this call.
    pub fn try_write_under(
        &mut self,
        timestamp: Timestamp,
        key: Option<&[u8]>,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), Error> {
        let start = self.outputs.gathered(self.port, Kind::Rows).batch.len();
        self.append_unflushed(timestamp, key.unwrap_or_default(), write).map_err(Error::reject)?;
        if key.is_none() {
            self.outputs.ports[self.port as usize].batch.mark_absent(start, KEY_ABSENT);
        }
        self.flush_if_full();
        Ok(())
    }

    #[inline]
    fn append(&mut self, timestamp: Timestamp, key: &[u8], write: impl FnOnce(&mut Vec<u8>)) -> Result<(), Refused> {
        self.append_unflushed(timestamp, key, write)?;
        self.flush_if_full();
        Ok(())
    }

    #[inline]
    fn append_unflushed(&mut self, timestamp: Timestamp, key: &[u8], write: impl FnOnce(&mut Vec<u8>)) -> Result<(), Refused> {
        let bytes = &mut self.outputs.gathered(self.port, Kind::Rows).batch.values.bytes;
        let start = bytes.len();
        write(bytes);
        let length = appended(start, bytes.len());
        self.close(timestamp, key, start, length)
    }

    /// Makes a row of the `length` bytes that lie behind `start`, if the host takes it.
    #[inline]
    fn close(&mut self, timestamp: Timestamp, key: &[u8], start: usize, length: usize) -> Result<(), Refused> {
        let outputs = &mut *self.outputs;
        let batch = &mut outputs.ports[self.port as usize].batch;
        let call_bytes = outputs.call_bytes + key.len() + length + ROW_BYTES;
        if key.len() > KEY_BYTES_MAX || length > VALUE_BYTES_MAX || call_bytes > CALL_BYTES_MAX {
            batch.values.bytes.truncate(start);
            return Err(refusal(key.len(), length));
        }
        outputs.call_bytes = call_bytes;
        batch.values.close_item();
        batch.keys.push(key);
        batch.timestamps.push(timestamp);
        if let Some(extras) = &mut batch.extras {
            extras.absent.push(0);
            extras.headers.push(&[]);
        }
        Ok(())
    }

    #[inline]
    fn flush_if_full(&mut self) {
        if self.outputs.ports[self.port as usize].is_full() {
            self.outputs.flush_port(self.port as usize);
        }
    }

    #[cold]
    fn refuse(&mut self, refused: Refused) {
        self.outputs.refused = self.outputs.refused.or(Some(refused));
    }
}

/// What was written behind `start`.
#[inline]
fn appended(start: usize, end: usize) -> usize {
    assert!(
        end >= start,
        "what writes a value appends to the bytes it is given, which hold other values, and takes nothing away"
    );
    end - start
}

#[cold]
fn refusal(key_bytes: usize, value_bytes: usize) -> Refused {
    match (key_bytes > KEY_BYTES_MAX, value_bytes > VALUE_BYTES_MAX) {
        (true, _) => Refused::Key(key_bytes),
        (_, true) => Refused::Value(value_bytes),
        _ => Refused::Call,
    }
}
