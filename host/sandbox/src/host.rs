//! What the imports of the contract do, but for rows: log lines, numbers, time and randomness.

use std::time::{SystemTime, UNIX_EPOCH};

use wasmtime::component::Linker;
use wasmtime::{AsContext, StoreContextMut};
use weir_model::limits;

use crate::bindings::{LogLevel, TextOut};
use crate::error::Refusal;
use crate::guest::Guest;
use crate::reports::{HostEvents, MetricKind};
use crate::{names, output};

/// Offers the host's functions to components.
pub(crate) fn link(linker: &mut Linker<Guest>) -> wasmtime::Result<()> {
    output::link(linker)?;
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
    ambient.func_wrap("random", |mut store, (count,): (u32,)| {
        let (count, max) = (count as usize, limits::RANDOM_BYTES_MAX);
        if count > max {
            return Err(Refusal::limit(format!("ambient.random: {count} bytes, more than the limit of {max} a call")));
        }
        Ok((store.data_mut().random.bytes(count),))
    })?;
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
