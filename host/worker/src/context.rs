//! What all executions of a worker share: its options, and what earlier ones have learnt about operators. Owns nothing that runs.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use weir_task::CallRows;

use crate::WorkerOptions;

/// What all executions of a worker share.
pub(crate) struct WorkerContext {
    pub(crate) options: WorkerOptions,
    pub(crate) call_rows: KnownCalls,
}

/// Operators whose calls are remembered beyond their executions.
const KNOWN_CALLS_MAX: usize = 10_000;

/// What is known of the calls of operators, by job and uid: an operator whose call with many rows met its deadline gets fewer in the
/// next execution, which would only meet the same again.
#[derive(Default)]
pub(crate) struct KnownCalls(Mutex<BTreeMap<(String, String), Arc<CallRows>>>);

impl KnownCalls {
    /// What is known of an operator.
    pub(crate) fn of(&self, job: &str, uid: &str) -> Arc<CallRows> {
        let mut known = self.0.lock();
        if known.len() >= KNOWN_CALLS_MAX {
            known.retain(|_, of| Arc::strong_count(of) > 1);
        }
        known.entry((job.to_owned(), uid.to_owned())).or_default().clone()
    }
}
