//! What an operator says while it runs: log lines and metrics.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use weir_model::OperatorUid;
use weir_sandbox::{HostEvents, LogLevel};

/// Metrics of all operators of a job, by operator and name.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    values: Mutex<BTreeMap<(OperatorUid, String), f64>>,
}

impl Metrics {
    /// All values so far: `operator.name`.
    pub(crate) fn snapshot(&self) -> BTreeMap<String, f64> {
        let values = self.values.lock().expect("no thread panics while it holds this lock");
        values.iter().map(|((uid, name), value)| (format!("{uid}.{name}"), *value)).collect()
    }

    fn update(&self, uid: &OperatorUid, name: &str, update: impl FnOnce(&mut f64)) {
        let mut values = self.values.lock().expect("no thread panics while it holds this lock");
        update(values.entry((uid.clone(), name.to_owned())).or_default());
    }
}

/// The ear of one operator.
pub(crate) struct OperatorHost {
    pub(crate) job: Arc<str>,
    pub(crate) uid: OperatorUid,
    pub(crate) metrics: Arc<Metrics>,
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
        self.metrics.update(&self.uid, counter, |value| *value += delta as f64);
    }

    fn gauge(&self, gauge: &str, value: f64) {
        self.metrics.update(&self.uid, gauge, |held| *held = value);
    }
}
