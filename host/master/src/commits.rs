//! Up to where the sinks of each task have committed, and since when they have not: a commit that hangs holds up no row and no
//! checkpoint, but nobody sees its output, and a job that ends waits for it.

use std::time::Duration;

use weir_model::{CheckpointId, TaskId};

use crate::limits::Limits;

/// What tasks have committed, by task.
pub(crate) struct CommitWatch {
    tasks: Vec<TaskCommits>,
    /// When to look next whether any is slow; none while nothing is to be committed.
    look_ms: Option<u64>,
}

#[derive(Clone, Copy)]
struct TaskCommits {
    committed: CheckpointId,
    /// Since when it has had something to commit and has said nothing.
    since_ms: Option<u64>,
}

/// Commits that take long.
pub(crate) struct SlowCommits {
    /// The tasks.
    pub(crate) tasks: Vec<TaskId>,
    /// How long the first of them has taken.
    pub(crate) waited: Duration,
}

impl CommitWatch {
    pub(crate) fn new(tasks: usize) -> CommitWatch {
        CommitWatch { tasks: vec![TaskCommits { committed: CheckpointId(0), since_ms: None }; tasks], look_ms: None }
    }

    /// Tasks are told to commit what belongs to a checkpoint, those that have not.
    pub(crate) fn told(&mut self, checkpoint: CheckpointId, now_ms: u64, limits: &Limits) {
        let mut waits = false;
        for task in self.tasks.iter_mut().filter(|task| task.committed < checkpoint) {
            task.since_ms.get_or_insert(now_ms);
            waits = true;
        }
        if waits {
            self.look_ms.get_or_insert(now_ms.saturating_add(limits.slow_commit_ms));
        }
    }

    /// A task has committed up to this checkpoint, of which `newest` is the last that it was told of. What it has yet to commit is waited
    /// for from now on.
    pub(crate) fn committed(&mut self, task: TaskId, checkpoint: CheckpointId, newest: CheckpointId, now_ms: u64) {
        if let Some(task) = self.tasks.get_mut(task.0 as usize) {
            task.committed = checkpoint.max(task.committed);
            task.since_ms = (task.committed < newest).then_some(now_ms);
        }
    }

    /// Whether all tasks have committed up to there.
    pub(crate) fn reaches(&self, checkpoint: CheckpointId) -> bool {
        self.tasks.iter().all(|task| task.committed >= checkpoint)
    }

    /// When [`CommitWatch::slow`] is due.
    pub(crate) fn deadline_ms(&self) -> Option<u64> {
        self.look_ms
    }

    /// Tasks whose commits take long, if that is to be told now; again after twice as long, and so on.
    pub(crate) fn slow(&mut self, now_ms: u64, limits: &Limits) -> Option<SlowCommits> {
        self.look_ms.take_if(|look_ms| *look_ms <= now_ms)?;
        let first_ms = self.tasks.iter().filter_map(|task| task.since_ms).min()?;
        let is_slow = |since_ms: u64| since_ms.saturating_add(limits.slow_commit_ms) <= now_ms;
        if !is_slow(first_ms) {
            self.look_ms = Some(first_ms.saturating_add(limits.slow_commit_ms));
            return None;
        }
        let waited_ms = now_ms - first_ms;
        self.look_ms = Some(now_ms.saturating_add(waited_ms.max(1)));
        let tasks = self.tasks.iter().zip(0..).filter(|(task, _)| task.since_ms.is_some_and(is_slow));
        Some(SlowCommits { tasks: tasks.map(|(_, id)| TaskId(id)).collect(), waited: Duration::from_millis(waited_ms) })
    }
}
