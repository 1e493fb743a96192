//! Where an operator's rows go: gathered column by column, handed to the host once a port and call.

use serde::Serialize;

use crate::rows::append;
use crate::{Batch, Error, Rejection, Timestamp};

/// Bytes gathered for a port before they are handed over within a call. Small, because the pages this buffer
/// lives on are written to every checkpoint.
const FLUSH_BYTES: usize = 64 << 10;

/// Rows gathered for a port before they are handed over within a call.
const FLUSH_ROWS: usize = 4_096;

/// What an operator sends on and sets aside during a call.
///
/// Port 0 is the main output; more ports are named under `outputs` in the job file, in order.
#[derive(Debug)]
pub struct Outputs {
    ports: Vec<Batch>,
    pub(crate) rejections: Vec<Rejection>,
    watermark: Timestamp,
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

    /// Sets row `row` of this call's batch aside. What was emitted for it so far stays emitted.
    #[cold]
    pub fn reject(&mut self, row: u32, reason: impl std::fmt::Display) {
        self.rejections.push(Rejection { row, reason: reason.to_string() });
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

/// One output during a call.
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
        let batch = &mut self.outputs.ports[self.port as usize];
        let start = batch.values.bytes.len();
        if let Err(error) = serde_json::to_writer(&mut batch.values.bytes, value) {
            batch.values.bytes.truncate(start);
            return Err(Error::fail(format_args!("writing a value as JSON: {error}")));
        }
        self.write(timestamp, key, |_| ());
        Ok(())
    }

    /// Sends a row whose value `write` appends to the bytes it is given, without a copy in between.
    #[inline]
    pub fn write(&mut self, timestamp: Timestamp, key: &[u8], write: impl FnOnce(&mut Vec<u8>)) {
        let batch = &mut self.outputs.ports[self.port as usize];
        write(&mut batch.values.bytes);
        batch.values.close_item();
        batch.keys.push(key);
        batch.timestamps.push(timestamp);
        if batch.values.bytes.len() + batch.keys.bytes.len() >= FLUSH_BYTES || batch.len() >= FLUSH_ROWS {
            self.outputs.flush_port(self.port as usize);
        }
    }
}
