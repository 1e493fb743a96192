//! Where an operator's rows go: gathered column by column, handed to the host once a port and call.
//!
//! Owns the host's bounds for what is emitted: what exceeds them is never handed over, since the host would end the instance
//! for it, but refused here, where the row at hand can be rejected instead.

use serde::Serialize;

use crate::rows::append;
use crate::{Batch, Error, Rejection, Timestamp};

/// Bytes gathered for a port before they are handed over within a call. Small, because the pages this buffer
/// lives on are written to every checkpoint.
const FLUSH_BYTES: usize = 64 << 10;

/// Rows gathered for a port before they are handed over within a call.
const FLUSH_ROWS: usize = 4_096;

/// The longest key that the host takes.
pub const KEY_BYTES_MAX: usize = 64 << 10;

/// The longest value that the host takes.
pub const VALUE_BYTES_MAX: usize = 16 << 20;

/// The most that the host takes within one call: keys and values, and [`ROW_BYTES`] for each row.
pub const CALL_BYTES_MAX: usize = 64 << 20;

/// What a row costs beside its key and value.
const ROW_BYTES: usize = 16;

/// Bytes of a reason that the host keeps.
const REASON_BYTES_MAX: usize = 1 << 10;

/// What an operator sends on and sets aside during a call.
///
/// Port 0 is the main output; more ports are named under `outputs` in the job file, in order.
#[derive(Debug)]
pub struct Outputs {
    ports: Vec<Batch>,
    pub(crate) rejections: Vec<Rejection>,
    watermark: Timestamp,
    /// Bytes that were taken from the operator in this call.
    call_bytes: usize,
    /// Why a row was not taken from the operator, until somebody asks.
    refused: Option<Refused>,
    /// What a host would have been given.
    #[cfg(not(target_arch = "wasm32"))]
    emitted: Vec<(u32, Batch)>,
}

impl Outputs {
    pub(crate) fn new() -> Outputs {
        Outputs {
            ports: vec![Batch::default()],
            rejections: Vec::new(),
            watermark: Timestamp::MIN,
            call_bytes: 0,
            refused: None,
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

    /// An output by number.
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

    /// Before a call: nothing of an earlier one counts.
    #[inline]
    pub(crate) fn begin(&mut self) {
        self.rejections.clear();
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

    #[cold]
    fn add_ports(&mut self, port: u32) {
        assert!(port < 64, "port {port}: an operator has at most 64 outputs");
        self.ports.resize_with(port as usize + 1, Batch::default);
    }

    #[cfg(target_arch = "wasm32")]
    fn flush_port(&mut self, port: usize) {
        crate::bindings::weir::operator::output::emit(port as u32, &self.ports[port]);
        self.ports[port].clear();
    }

    #[cfg(not(target_arch = "wasm32"))]
    fn flush_port(&mut self, port: usize) {
        let room = self.ports[port].same_room();
        self.emitted.push((port as u32, std::mem::replace(&mut self.ports[port], room)));
    }

    #[cfg(not(target_arch = "wasm32"))]
    pub(crate) fn take_emitted(&mut self) -> impl Iterator<Item = (u32, Batch)> {
        self.emitted.drain(..)
    }
}

/// Why a row was not taken from the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    Key(usize),
    Value(usize),
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

    /// Sends a row with a JSON value.
    ///
    /// # Errors
    /// A failure, if the value has no JSON form.
    pub fn emit_json(&mut self, timestamp: Timestamp, key: &[u8], value: &impl Serialize) -> Result<(), Error> {
        let bytes = &mut self.outputs.ports[self.port as usize].values.bytes;
        let start = bytes.len();
        let mut bounded = Bounded { end: start + VALUE_BYTES_MAX, wanted: start, bytes };
        let result = serde_json::to_writer(&mut bounded, value);
        let wanted = bounded.wanted - start;
        if let Err(error) = result {
            self.outputs.ports[self.port as usize].values.bytes.truncate(start);
            return Err(Error::fail(format_args!("writing a value as JSON: {error}")));
        }
        let refused = self.close(timestamp, key, start, wanted).err();
        self.outputs.refused = self.outputs.refused.or(refused);
        Ok(())
    }

    /// Sends a row whose value `write` appends to the bytes it is given, without a copy in between.
    #[inline]
    pub fn write(&mut self, timestamp: Timestamp, key: &[u8], write: impl FnOnce(&mut Vec<u8>)) {
        if let Err(refused) = self.append(timestamp, key, write) {
            self.outputs.refused = self.outputs.refused.or(Some(refused));
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

    #[inline]
    fn append(&mut self, timestamp: Timestamp, key: &[u8], write: impl FnOnce(&mut Vec<u8>)) -> Result<(), Refused> {
        let bytes = &mut self.outputs.ports[self.port as usize].values.bytes;
        let start = bytes.len();
        write(bytes);
        let length = bytes.len() - start;
        self.close(timestamp, key, start, length)
    }

    /// Makes a row of the `length` bytes that lie behind `start`, if the host takes it.
    #[inline]
    fn close(&mut self, timestamp: Timestamp, key: &[u8], start: usize, length: usize) -> Result<(), Refused> {
        let outputs = &mut *self.outputs;
        let batch = &mut outputs.ports[self.port as usize];
        let call_bytes = outputs.call_bytes + key.len() + length + ROW_BYTES;
        if key.len() > KEY_BYTES_MAX || length > VALUE_BYTES_MAX || call_bytes > CALL_BYTES_MAX {
            batch.values.bytes.truncate(start);
            return Err(refusal(key.len(), length));
        }
        outputs.call_bytes = call_bytes;
        batch.values.close_item();
        batch.keys.push(key);
        batch.timestamps.push(timestamp);
        if batch.values.bytes.len() + batch.keys.bytes.len() >= FLUSH_BYTES || batch.len() >= FLUSH_ROWS {
            outputs.flush_port(self.port as usize);
        }
        Ok(())
    }
}

#[cold]
fn refusal(key_bytes: usize, value_bytes: usize) -> Refused {
    match (key_bytes > KEY_BYTES_MAX, value_bytes > VALUE_BYTES_MAX) {
        (true, _) => Refused::Key(key_bytes),
        (_, true) => Refused::Value(value_bytes),
        _ => Refused::Call,
    }
}
