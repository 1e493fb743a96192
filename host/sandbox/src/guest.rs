//! The host's side of one instance: what it keeps for it in wasmtime's store, and which of the host's functions a call may use.
//!
//! Owns the rows of the running call while it runs, and what the call has sent so far; what the functions do is in [`crate::host`] and
//! [`crate::output`].

use std::hash::BuildHasher;
use std::sync::Arc;

use weir_model::{Batch, BatchRef, Description, KeyGroup, key_group_of, limits};

use crate::emitted_rows::EmittedRows;
use crate::error::Refusal;
use crate::limits::Limiter;
use crate::reports::{Counts, Reports};

/// Which imports a running call may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// `describe`, `open`, `load`, and reading or writing globals.
    Quiet,
    /// `process`, `advance`, `finish`: rows may leave.
    Emitting,
    /// `save`: state may leave.
    Saving,
}

/// The keys that an instance is given on inputs that are partitioned by key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyShare {
    /// Its key group.
    pub group: KeyGroup,
    /// Of how many.
    pub key_groups: u16,
    /// For each input of the description, whether it is partitioned by key: whoever calls sees to it that rows of such an input are of this group.
    pub keyed_inputs: Vec<bool>,
}

/// A store's data: what the host keeps for one instance.
pub(crate) struct Guest {
    pub(crate) limiter: Limiter,
    pub(crate) reports: Arc<Reports>,
    pub(crate) counts: Counts,
    phase: Phase,
    /// What the component says of itself: its outputs.
    description: Arc<Description>,
    share: Option<KeyShare>,
    /// The rows of the running call of `process`. Never read but by functions that such a call uses: `begin` sets it for each call.
    rows: Option<BatchRef<'static>>,
    /// They are all of the instance's key group.
    rows_are_keyed: bool,
    /// What the current call has sent, and calls before it; the caller's while a call runs.
    pub(crate) emitted: EmittedRows,
    /// What the current `save` has written.
    pub(crate) saved: Vec<Batch>,
    sent_bytes: usize,
    sent_batches: usize,
    pub(crate) random: Random,
    /// Room for numbers of rows, used again.
    pub(crate) numbers: Vec<u32>,
    /// Room for the ends of values.
    pub(crate) ends: Vec<u32>,
}

impl Guest {
    pub(crate) fn new(limiter: Limiter, reports: Arc<Reports>, description: Arc<Description>) -> Guest {
        Guest {
            limiter,
            reports,
            counts: Counts::default(),
            phase: Phase::Quiet,
            description,
            share: None,
            rows: None,
            rows_are_keyed: false,
            emitted: EmittedRows::new(),
            saved: Vec::new(),
            sent_bytes: 0,
            sent_batches: 0,
            random: Random::default(),
            numbers: Vec::new(),
            ends: Vec::new(),
        }
    }

    /// From now on rows of outputs that keep the key have to be of this share.
    pub(crate) fn keep_to(&mut self, share: KeyShare) {
        self.share = Some(share);
    }

    /// Before a call.
    #[inline]
    pub(crate) fn begin(&mut self, phase: Phase) {
        self.phase = phase;
        self.rows = None;
        self.limiter.begin();
        self.sent_bytes = 0;
        self.sent_batches = 0;
    }

    /// Before a call of `process`, after [`Guest::begin`].
    ///
    /// # Safety
    /// `rows` live until the call has returned, or [`Guest::begin`] is called again.
    #[allow(unsafe_code, reason = "the rows of a call are lent to the store for the call")]
    #[inline]
    pub(crate) unsafe fn lend(&mut self, input: u32, rows: BatchRef<'_>) {
        self.rows_are_keyed =
            self.share.as_ref().is_some_and(|share| share.keyed_inputs.get(input as usize).is_some_and(|keyed| *keyed));
        // SAFETY: only the lifetime changes. The caller promises that the rows outlive the call, and `rows_of_call` gives them only to
        // functions that the guest calls during it.
        self.rows = Some(unsafe { std::mem::transmute::<BatchRef<'_>, BatchRef<'static>>(rows) });
    }

    /// After a call of `process`.
    #[inline]
    pub(crate) fn take_back(&mut self) {
        self.rows = None;
    }

    /// After a call, however it ended.
    #[inline]
    pub(crate) fn end(&mut self) {
        self.counts.hand_over(&self.reports);
    }

    /// The rows of the running call, for `function`.
    ///
    /// # Errors
    /// If it is no call of `process`.
    pub(crate) fn rows_of_call(&self, function: &str) -> wasmtime::Result<BatchRef<'_>> {
        self.rows.ok_or_else(|| {
            Refusal::contract(format!("{function} may be called during process only: there is no batch of a call else"))
        })
    }

    /// # Errors
    /// If no rows may leave in this call.
    pub(crate) fn check_may_emit(&self, function: &str) -> wasmtime::Result<()> {
        match self.phase {
            Phase::Emitting => Ok(()),
            _ => Err(Refusal::contract(format!("{function} may be called during process, advance and finish only"))),
        }
    }

    /// # Errors
    /// If no state may leave in this call.
    pub(crate) fn check_may_save(&self, function: &str) -> wasmtime::Result<()> {
        match self.phase {
            Phase::Saving => Ok(()),
            _ => Err(Refusal::contract(format!("{function} may be called during save only"))),
        }
    }

    /// # Errors
    /// If the description has no such output.
    pub(crate) fn check_port(&self, port: u32, function: &str) -> wasmtime::Result<()> {
        match self.description.outputs.len() {
            outputs if (port as usize) < outputs => Ok(()),
            outputs => Err(Refusal::contract(format!(
                "{function}: port {port} is not described: the component has {outputs} outputs, counted from 0"
            ))),
        }
    }

    /// Whether the keys of what goes to a port by reference have to be looked at.
    #[inline]
    pub(crate) fn checks_references(&self, port: u32) -> bool {
        self.checks_keys(port) && !self.rows_are_keyed
    }

    /// Whether the keys of what goes to a port have to be looked at.
    #[inline]
    pub(crate) fn checks_keys(&self, port: u32) -> bool {
        self.share.is_some() && self.description.outputs.get(port as usize).is_some_and(|output| output.keeps_key)
    }

    /// # Errors
    /// If a key is of another key group than the instance's. One that is absent is of that of no bytes.
    pub(crate) fn check_keys<'k>(
        &self,
        port: u32,
        keys: impl Iterator<Item = Option<&'k [u8]>>,
        function: &str,
    ) -> wasmtime::Result<()> {
        let Some(KeyShare { group, key_groups, .. }) = self.share else { return Ok(()) };
        let mut wrong = keys.enumerate().filter(|(_, key)| key_group_of(key.unwrap_or_default(), key_groups) != group);
        let Some((row, _)) = wrong.next() else { return Ok(()) };
        let name = self.description.outputs.get(port as usize).map_or("", |output| &output.name);
        Err(Refusal::contract(format!(
            "{function}: the key of row {row} is not of this instance's key group, but output `{name}` is described as keeps-key; emit with a key that this instance \
             was given, or describe the output without keeps-key"
        )))
    }

    /// What one call may still send.
    pub(crate) fn sendable_bytes(&self) -> usize {
        // State is at most what the instance's memory holds, and all of it is saved in one call.
        let state_max = usize::try_from(self.limiter.memory_bytes_max()).unwrap_or(usize::MAX);
        let max = if self.phase == Phase::Saving { limits::EMIT_BYTES_MAX.max(state_max) } else { limits::EMIT_BYTES_MAX };
        max.saturating_sub(self.sent_bytes)
    }

    /// Counts a batch against what one call may send.
    ///
    /// # Errors
    /// If it is too much.
    pub(crate) fn charge(&mut self, bytes: usize) -> wasmtime::Result<()> {
        self.sent_batches += 1;
        if self.sent_batches > limits::EMIT_BATCHES_MAX {
            let max = limits::EMIT_BATCHES_MAX;
            return Err(Refusal::limit(format!("one call sent more than {max} batches; send more rows per batch")));
        }
        let left = self.sendable_bytes();
        if bytes > left {
            let max = self.sent_bytes + left;
            return Err(Refusal::limit(format!("one call sent more than {max} bytes; spread the rows over several calls")));
        }
        self.sent_bytes += bytes;
        Ok(())
    }

    /// Counts so much less: what was charged was a bound.
    pub(crate) fn refund(&mut self, bytes: usize) {
        self.sent_bytes -= bytes.min(self.sent_bytes);
    }
}

/// Numbers for guests: SipHash of a counter under keys from the operating system. Not for secrets.
#[derive(Default)]
pub(crate) struct Random {
    keys: std::hash::RandomState,
    next: u64,
}

impl Random {
    /// So many bytes.
    pub(crate) fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(count.next_multiple_of(8));
        while bytes.len() < count {
            self.next += 1;
            bytes.extend_from_slice(&self.keys.hash_one(self.next).to_le_bytes());
        }
        bytes.truncate(count);
        bytes
    }
}
