//! The host's side of one instance: what its imports do, and what is checked before anything it sent is used.

use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use wasmtime::component::Linker;
use wasmtime::{AsContext, StoreContextMut};
use weir_model::{Batch, BatchRef, Blobs, BlobsRef, Extras, limits};

use crate::bindings::{BatchOut, LogLevel, TextOut};
use crate::emitted_rows::EmittedRows;
use crate::error::Refusal;
use crate::limits::Limiter;
use crate::names;
use crate::reports::{HostEvents, MetricKind, Reports};

/// Which imports a running call may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// `open`, `load`, and reading or writing globals.
    Quiet,
    /// `process`, `advance`, `finish`: rows may leave.
    Emitting,
    /// `save`: state may leave.
    Saving,
}

/// A store's data: what the host keeps for one instance.
pub(crate) struct Guest {
    pub(crate) limiter: Limiter,
    phase: Phase,
    /// What the current call has sent, and calls before it; the caller's while a call runs.
    pub(crate) emitted: EmittedRows,
    /// What the current `save` has written.
    pub(crate) saved: Vec<Batch>,
    sent_bytes: usize,
    sent_batches: usize,
    reports: Arc<Reports>,
    random: Random,
}

impl Guest {
    pub(crate) fn new(limiter: Limiter, reports: Arc<Reports>) -> Guest {
        Guest {
            limiter,
            phase: Phase::Quiet,
            emitted: EmittedRows::new(),
            saved: Vec::new(),
            sent_bytes: 0,
            sent_batches: 0,
            reports,
            random: Random::default(),
        }
    }

    /// Before a call.
    #[inline]
    pub(crate) fn begin(&mut self, phase: Phase) {
        self.phase = phase;
        self.limiter.begin();
        self.sent_bytes = 0;
        self.sent_batches = 0;
    }

    /// Counts a batch against what one call may send.
    fn charge(&mut self, bytes: usize) -> wasmtime::Result<()> {
        self.sent_batches += 1;
        self.sent_bytes = self.sent_bytes.saturating_add(bytes);
        if self.sent_batches > limits::EMIT_BATCHES_MAX {
            let max = limits::EMIT_BATCHES_MAX;
            return Err(Refusal::limit(format!("one call sent more than {max} batches; send more rows per batch")));
        }
        // State is at most what the instance's memory holds, and all of it is saved in one call.
        let state_max = usize::try_from(self.limiter.memory_bytes_max()).unwrap_or(usize::MAX);
        let max = if self.phase == Phase::Saving { limits::EMIT_BYTES_MAX.max(state_max) } else { limits::EMIT_BYTES_MAX };
        if self.sent_bytes > max {
            return Err(Refusal::limit(format!("one call sent more than {max} bytes; spread the rows over several calls")));
        }
        Ok(())
    }
}

/// Numbers for guests: SipHash of a counter under keys from the operating system. Not for secrets.
#[derive(Default)]
struct Random {
    keys: std::hash::RandomState,
    next: u64,
}

impl Random {
    fn next(&mut self) -> u64 {
        self.next += 1;
        self.keys.hash_one(self.next)
    }
}

/// Offers the host's functions to components.
pub(crate) fn link(linker: &mut Linker<Guest>) -> wasmtime::Result<()> {
    linker.instance(names::OUTPUT)?.func_wrap("emit", |mut store, (port, rows): (u32, BatchOut)| {
        if store.data().phase != Phase::Emitting {
            return Err(Refusal::contract("output.emit may be called during process, advance and finish only"));
        }
        // Out of the store for the moment: the rows are borrowed from the store.
        let mut emitted = std::mem::take(&mut store.data_mut().emitted);
        let taken = take_rows(&mut store, &rows, "output.emit", |rows| {
            if !rows.is_empty() {
                let absent = absent_keys(rows);
                let extras = absent.as_ref().map(Extras::view);
                emitted.rows_to(port).extend(BatchRef { extras, ..rows });
            }
        });
        store.data_mut().emitted = emitted;
        taken
    })?;
    linker.instance(names::STATE_WRITER)?.func_wrap("write", |mut store, (rows,): (BatchOut,)| {
        if store.data().phase != Phase::Saving {
            return Err(Refusal::contract("state-writer.write may be called during save only"));
        }
        let mut saved = Batch::default();
        take_rows(&mut store, &rows, "state-writer.write", |rows| saved.extend(rows))?;
        store.data_mut().saved.push(saved);
        Ok(())
    })?;
    linker.instance(names::LOG)?.func_wrap(
        "write",
        |store: StoreContextMut<'_, Guest>, (level, message): (LogLevel, TextOut)| {
            let reports = &store.data().reports;
            if reports.takes_line() {
                reports.line(level, &message.to_str(store.as_context())?);
            }
            Ok(())
        },
    )?;
    let mut metrics = linker.instance(names::METRICS)?;
    metrics.func_wrap("add", |store, (counter, delta): (TextOut, u64)| {
        metric(&store, MetricKind::Counter, &counter, |events, counter| events.count(counter, delta))
    })?;
    metrics.func_wrap("set", |store, (gauge, value): (TextOut, f64)| {
        metric(&store, MetricKind::Gauge, &gauge, |events, gauge| events.gauge(gauge, value))
    })?;
    let mut ambient = linker.instance(names::AMBIENT)?;
    ambient.func_wrap("now", |_store, (): ()| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok((i64::try_from(since.as_millis()).unwrap_or(i64::MAX),))
    })?;
    ambient.func_wrap("random", |mut store, (): ()| Ok((store.data_mut().random.next(),)))?;
    Ok(())
}

/// Reports a number under a name. Nobody has a reason for a name so long that looking at it is work.
fn metric(
    store: &StoreContextMut<'_, Guest>,
    kind: MetricKind,
    name: &TextOut,
    report: impl FnOnce(&dyn HostEvents, &str),
) -> wasmtime::Result<()> {
    let name = name.to_str(store.as_context())?;
    if name.len() > limits::LOG_LINE_BYTES_MAX {
        let (len, max) = (name.len(), limits::METRIC_NAME_BYTES_MAX);
        return Err(Refusal::limit(format!("the name of a metric has {len} bytes, more than the limit of {max}")));
    }
    store.data().reports.metric(kind, &name, |events| report(events, &name));
    Ok(())
}

/// Checks rows where they are in the guest's memory, then hands them to `take`, which copies them out, column by column. Their
/// lengths were checked against the size of that memory when they were lifted.
fn take_rows(
    store: &mut StoreContextMut<'_, Guest>,
    rows: &BatchOut,
    function: &str,
    take: impl FnOnce(BatchRef<'_>),
) -> wasmtime::Result<()> {
    let bytes =
        rows.timestamps.len() * (size_of::<i64>() + 2 * size_of::<u32>()) + rows.keys.bytes.len() + rows.values.bytes.len();
    store.data_mut().charge(bytes)?;
    let view = BatchRef {
        timestamps: rows.timestamps.as_le_slice(store.as_context()),
        keys: BlobsRef {
            ends: rows.keys.ends.as_le_slice(store.as_context()),
            bytes: rows.keys.bytes.as_le_slice(store.as_context()),
        },
        values: BlobsRef {
            ends: rows.values.ends.as_le_slice(store.as_context()),
            bytes: rows.values.bytes.as_le_slice(store.as_context()),
        },
        extras: None,
    };
    if !view.is_valid() {
        return Err(Refusal::contract(format!("{function}: the columns do not agree: {}", disagreement(view))));
    }
    check_lengths(view.keys, limits::KEY_BYTES_MAX, function, "key")?;
    check_lengths(view.values, limits::VALUE_BYTES_MAX, function, "value")?;
    take(view);
    Ok(())
}

/// What a guest of contract 0.1 says by keys of no bytes: that there is none.
fn absent_keys(rows: BatchRef<'_>) -> Option<Extras> {
    let is_absent = |key: &[u8]| if key.is_empty() { Extras::KEY_ABSENT } else { 0 };
    rows.keys.iter().any(<[u8]>::is_empty).then(|| Extras {
        absent: rows.keys.iter().map(is_absent).collect(),
        headers: Blobs { ends: vec![0; rows.len()], bytes: Vec::new() },
    })
}

/// Refuses items longer than anything downstream takes. Looks at single items only if one could be.
fn check_lengths(column: BlobsRef<'_>, max: usize, function: &str, what: &str) -> wasmtime::Result<()> {
    if column.bytes.len() <= max {
        return Ok(());
    }
    match column.iter().position(|item| item.len() > max) {
        Some(row) => {
            let len = column.get(row).len();
            Err(Refusal::limit(format!("{function}: the {what} of row {row} has {len} bytes, more than the limit of {max}")))
        }
        None => Ok(()),
    }
}

fn disagreement(rows: BatchRef<'_>) -> String {
    if rows.keys.len() != rows.len() || rows.values.len() != rows.len() {
        return format!("{} timestamps, {} keys, {} values", rows.len(), rows.keys.len(), rows.values.len());
    }
    let (what, column) = if rows.keys.is_valid() { ("values", rows.values) } else { ("keys", rows.keys) };
    let last = column.ends.last().copied().unwrap_or(0);
    format!("the ends of the {what} must not fall and the last one ({last}) must be the number of bytes ({})", column.bytes.len())
}
