//! How things of a run are called: processes, connections, actors, channels, workers.

use weir_model::Attempt;

/// Numbers the coordinator's processes.
pub(crate) type ProcessId = u64;

/// Number of a connection between a worker and the coordinator.
pub(crate) type Session = u64;

/// Number of an actor. Never used twice in a run.
pub(crate) type ActorId = u64;

/// Names a channel of an execution.
pub(crate) type WireKey = (Attempt, u32);

/// A process of a worker: which worker, and the how manieth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ProcessOf {
    pub(crate) worker: usize,
    pub(crate) incarnation: u64,
}

/// Name of a worker.
pub(crate) fn name_of(worker: usize) -> String {
    format!("w{worker}")
}

/// Number of a worker of that name.
pub(crate) fn number_of(name: &str) -> usize {
    name[1..].parse().unwrap_or(usize::MAX)
}
