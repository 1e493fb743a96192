//! The worker as its network side sees it.

use weir_protocol::{Command, Execution, Running, WorkerProgress};

use crate::Worker;

/// What runs executions. [`Worker`], but for tests.
pub(super) trait AgentWorker: Send + Sync {
    /// Does what the coordinator says. Returns at once.
    fn command(&self, command: Command);

    /// What runs here.
    fn running(&self) -> Vec<Running>;

    /// How far it is.
    fn progress(&self) -> Vec<(Execution, WorkerProgress)>;

    /// Cancels everything else.
    fn keep_only(&self, keep: &[Execution]);

    /// How many executions do not end.
    fn stuck(&self) -> usize;

    /// Ends everything, and remembers why for the next registration. Gives how much that was.
    fn end_all(&self, reason: &str) -> usize;
}

impl AgentWorker for Worker {
    fn command(&self, command: Command) {
        Worker::command(self, command);
    }

    fn running(&self) -> Vec<Running> {
        Worker::running(self)
    }

    fn progress(&self) -> Vec<(Execution, WorkerProgress)> {
        Worker::progress(self)
    }

    fn keep_only(&self, keep: &[Execution]) {
        Worker::keep_only(self, keep);
    }

    fn stuck(&self) -> usize {
        Worker::stuck(self).len()
    }

    fn end_all(&self, reason: &str) -> usize {
        Worker::end_all(self, reason)
    }
}
