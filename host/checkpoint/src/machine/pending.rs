//! A checkpoint in progress, and sets of tasks.

use weir_model::{CheckpointId, TaskId};

use super::CompletionKind;

/// How far a checkpoint in progress is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Some task has not acknowledged it.
    Collecting,
    /// All have; another manifest is being written.
    Acknowledged,
    /// Its manifest is being written, so it may already count.
    Writing,
}

/// A checkpoint in progress.
#[derive(Clone, Debug)]
pub struct PendingCheckpoint {
    checkpoint: CheckpointId,
    kind: CompletionKind,
    since_ms: u64,
    acknowledged: TaskSet,
    pub(super) phase: Phase,
    pub(super) unaligned: bool,
}

impl PendingCheckpoint {
    pub(super) fn new(checkpoint: CheckpointId, kind: CompletionKind, since_ms: u64, tasks: usize) -> PendingCheckpoint {
        PendingCheckpoint {
            checkpoint,
            kind,
            since_ms,
            acknowledged: TaskSet::new(tasks),
            phase: Phase::Collecting,
            unaligned: false,
        }
    }

    pub(super) fn acknowledge(&mut self, task: TaskId) {
        self.acknowledged.insert(task);
        if self.phase == Phase::Collecting && self.acknowledged.is_full() {
            self.phase = Phase::Acknowledged;
        }
    }

    /// Its id.
    pub fn checkpoint(&self) -> CheckpointId {
        self.checkpoint
    }

    /// What its completion will mean.
    pub fn kind(&self) -> CompletionKind {
        self.kind
    }

    /// Whether its markers may overtake rows, from the start or by now.
    pub fn is_unaligned(&self) -> bool {
        self.unaligned
    }

    /// When it started.
    pub fn since_ms(&self) -> u64 {
        self.since_ms
    }

    /// Number of tasks of the job.
    pub fn tasks(&self) -> usize {
        self.acknowledged.len()
    }

    /// Number of tasks that have acknowledged it.
    pub fn acknowledged(&self) -> usize {
        self.acknowledged.count
    }

    /// The tasks that have not acknowledged it.
    pub fn missing(&self) -> impl Iterator<Item = TaskId> {
        self.acknowledged.missing()
    }
}

/// A set of the tasks `0..len`.
#[derive(Clone, Debug)]
pub(super) struct TaskSet {
    members: Vec<bool>,
    count: usize,
}

impl TaskSet {
    pub(super) fn new(len: usize) -> TaskSet {
        TaskSet { members: vec![false; len], count: 0 }
    }

    /// Number of tasks that exist, in the set or not.
    pub(super) fn len(&self) -> usize {
        self.members.len()
    }

    /// Those that are not in it.
    pub(super) fn missing(&self) -> impl Iterator<Item = TaskId> {
        self.members.iter().zip(0..).filter(|(member, _)| !**member).map(|(_, index)| TaskId(index))
    }

    pub(super) fn is_full(&self) -> bool {
        self.count == self.members.len()
    }

    /// Repeated and unknown tasks change nothing.
    pub(super) fn insert(&mut self, task: TaskId) {
        if let Some(member) = self.members.get_mut(task.0 as usize)
            && !std::mem::replace(member, true)
        {
            self.count += 1;
        }
    }
}
