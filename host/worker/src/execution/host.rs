//! What an operator says while it runs: log lines and metrics.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use weir_model::OperatorUid;
use weir_sandbox::{HostEvents, LogLevel};

/// Metrics of all operators of an execution, by operator and name.
#[derive(Debug, Default)]
pub(super) struct Metrics {
    values: Mutex<Values>,
}

#[derive(Debug, Default)]
struct Values {
    counters: BTreeMap<(OperatorUid, String), u64>,
    gauges: BTreeMap<(OperatorUid, String), f64>,
}

impl Metrics {
    /// All counters so far: `operator.name`.
    pub(super) fn counters(&self) -> BTreeMap<String, u64> {
        named(&self.values.lock().counters)
    }

    /// All gauges so far: `operator.name`.
    pub(super) fn gauges(&self) -> BTreeMap<String, f64> {
        named(&self.values.lock().gauges)
    }
}

fn named<T: Copy>(values: &BTreeMap<(OperatorUid, String), T>) -> BTreeMap<String, T> {
    values.iter().map(|((uid, name), value)| (format!("{uid}.{name}"), *value)).collect()
}

/// The ear of one operator.
pub(super) struct OperatorHost {
    pub(super) job: Arc<str>,
    pub(super) uid: OperatorUid,
    pub(super) metrics: Arc<Metrics>,
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
        let mut values = self.metrics.values.lock();
        let counter = values.counters.entry((self.uid.clone(), counter.to_owned())).or_default();
        *counter = counter.saturating_add(delta);
    }

    fn gauge(&self, gauge: &str, value: f64) {
        self.metrics.values.lock().gauges.insert((self.uid.clone(), gauge.to_owned()), value);
    }
}
