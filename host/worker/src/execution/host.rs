//! What operators say while they run: log lines and metrics.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use weir_model::{OperatorUid, limits};
use weir_sandbox::{HostEvents, LogLevel};

/// Metrics of all operators of an execution, by operator and name. The sandbox bounds the names of each operator, this their
/// bytes over all operators.
#[derive(Debug, Default)]
pub(super) struct Metrics {
    operators: Mutex<BTreeMap<OperatorUid, Arc<OperatorMetrics>>>,
    /// Bytes of all names, each with its operator's.
    bytes: Arc<AtomicUsize>,
}

/// Metrics of one operator.
#[derive(Debug, Default)]
struct OperatorMetrics {
    values: Mutex<Values>,
    bytes: Arc<AtomicUsize>,
}

#[derive(Debug, Default)]
struct Values {
    counters: BTreeMap<String, u64>,
    gauges: BTreeMap<String, f64>,
    is_full: bool,
}

impl Metrics {
    /// All counters so far: `operator.name`.
    pub(super) fn counters(&self) -> BTreeMap<String, u64> {
        self.named(|values| &values.counters)
    }

    /// All gauges so far: `operator.name`.
    pub(super) fn gauges(&self) -> BTreeMap<String, f64> {
        self.named(|values| &values.gauges)
    }

    fn named<T: Copy>(&self, of: impl Fn(&Values) -> &BTreeMap<String, T>) -> BTreeMap<String, T> {
        let mut named = BTreeMap::new();
        for (uid, operator) in &*self.operators.lock() {
            named.extend(of(&operator.values.lock()).iter().map(|(name, value)| (format!("{uid}.{name}"), *value)));
        }
        named
    }

    fn operator(&self, uid: &OperatorUid) -> Arc<OperatorMetrics> {
        let new = || Arc::new(OperatorMetrics { bytes: self.bytes.clone(), ..OperatorMetrics::default() });
        self.operators.lock().entry(uid.clone()).or_insert_with(new).clone()
    }
}

/// The ear of one operator.
pub(super) struct OperatorHost {
    job: Arc<str>,
    uid: OperatorUid,
    metrics: Arc<OperatorMetrics>,
}

impl OperatorHost {
    pub(super) fn new(job: Arc<str>, uid: OperatorUid, metrics: &Metrics) -> OperatorHost {
        OperatorHost { job, metrics: metrics.operator(&uid), uid }
    }

    /// Changes a value; a new name only where there is room for it.
    fn change<T: Default>(&self, name: &str, of: impl Fn(&mut Values) -> &mut BTreeMap<String, T>, change: impl FnOnce(&mut T)) {
        let mut values = self.metrics.values.lock();
        if let Some(value) = of(&mut values).get_mut(name) {
            return change(value);
        }
        let bytes = self.uid.len() + name.len();
        if self.metrics.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes <= limits::METRIC_BYTES_MAX {
            return change(of(&mut values).entry(name.to_owned()).or_default());
        }
        self.metrics.bytes.fetch_sub(bytes, Ordering::Relaxed);
        if !std::mem::replace(&mut values.is_full, true) {
            drop(values);
            let max = limits::METRIC_BYTES_MAX;
            self.log(
                LogLevel::Warn,
                &format!("metric {name:?} is ignored: the names of the job's metrics take more than {max} bytes"),
            );
        }
    }
}

impl HostEvents for OperatorHost {
    fn log(&self, level: LogLevel, message: &str) {
        let (job, operator) = (&*self.job, &*self.uid);
        match level {
            LogLevel::Debug => tracing::debug!(job, operator, "{message}"),
            LogLevel::Info => tracing::info!(job, operator, "{message}"),
            LogLevel::Warn => tracing::warn!(job, operator, "{message}"),
            LogLevel::Error => tracing::error!(job, operator, "{message}"),
        }
    }

    fn count(&self, counter: &str, delta: u64) {
        self.change(counter, |values| &mut values.counters, |value: &mut u64| *value = value.saturating_add(delta));
    }

    fn gauge(&self, gauge: &str, value: f64) {
        self.change(gauge, |values| &mut values.gauges, |held: &mut f64| *held = value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s91_names_of_metrics_of_an_execution_are_bounded_and_the_first_go_on_counting() {
        let metrics = Metrics::default();
        let name = |number: usize| format!("{number:0>256}");
        let operators: Vec<OperatorHost> =
            (0..100).map(|n| OperatorHost::new("job".into(), format!("operator-{n}").as_str().into(), &metrics)).collect();
        for _ in 0..2 {
            for operator in &operators {
                (0..limits::METRIC_NAMES_MAX).for_each(|number| operator.count(&name(number), 1));
            }
        }
        let counters = metrics.counters();
        let bytes: usize = counters.keys().map(String::len).sum();
        assert!(bytes <= limits::METRIC_BYTES_MAX + counters.len(), "{bytes}");
        assert!(bytes > limits::METRIC_BYTES_MAX / 2);
        assert!(counters.values().all(|&count| count == 2));
        assert!(operators.last().is_some_and(|operator| operator.metrics.values.lock().is_full), "it is said");
    }
}
