//! What the imports of the contract do, but for rows: log lines, numbers, time and randomness.

use std::borrow::Cow;
use std::time::{SystemTime, UNIX_EPOCH};

use wasmtime::component::Linker;
use wasmtime::{AsContext, StoreContextMut};
use weir_model::limits;

use crate::bindings::{LogLevel, TextOut};
use crate::error::Refusal;
use crate::guest::Guest;
use crate::reports::MetricKind;
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
    metrics.func_wrap("add", |mut store: StoreContextMut<'_, Guest>, (counter, delta): (TextOut, u64)| {
        // Out of the store for the moment: the name is borrowed from the store.
        let mut counts = std::mem::take(&mut store.data_mut().counts);
        let counted = metric_name(&store, &counter).map(|counter| counts.add(&store.data().reports, &counter, delta));
        store.data_mut().counts = counts;
        counted
    })?;
    metrics.func_wrap("set", |store: StoreContextMut<'_, Guest>, (gauge, value): (TextOut, f64)| {
        let (gauge, reports) = (metric_name(&store, &gauge)?, &store.data().reports);
        if reports.takes(MetricKind::Gauge, &gauge) {
            reports.gauge(&gauge, value);
        }
        Ok(())
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

/// The name of a metric. Nobody has a reason for one so long that looking at it is work.
fn metric_name<'a>(store: &'a StoreContextMut<'_, Guest>, name: &TextOut) -> wasmtime::Result<Cow<'a, str>> {
    let name = name.to_str(store.as_context())?;
    if name.len() > limits::LOG_LINE_BYTES_MAX {
        let (len, max) = (name.len(), limits::METRIC_NAME_BYTES_MAX);
        return Err(Refusal::limit(format!("the name of a metric has {len} bytes, more than the limit of {max}")));
    }
    Ok(name)
}
