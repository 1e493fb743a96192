//! What is durable: snapshots of tasks and manifests.

use std::collections::{BTreeMap, BTreeSet};

use weir_model::CheckpointId;

/// A task's snapshot.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    /// Rows processed, and how often.
    pub(super) rows: BTreeMap<u64, u32>,
    /// Rows a source has made.
    pub(super) position: u64,
    /// Rows received on each input and sent on each output, in this attempt.
    pub(super) received: Vec<u64>,
    pub(super) sent: BTreeMap<usize, u64>,
    /// Rows in flight on each input, and those of the last restore that were not worked off, with their input.
    pub(super) captured: Vec<Vec<u64>>,
    pub(super) left: Vec<(usize, u64)>,
}

impl State {
    /// What is processed before anything new after a restore.
    pub(super) fn in_flight(&self) -> impl Iterator<Item = (usize, u64)> {
        let captured = self.captured.iter().enumerate();
        self.left.iter().copied().chain(captured.flat_map(|(input, rows)| rows.iter().map(move |row| (input, *row))))
    }
}

/// Files and manifests of one job.
pub(super) struct Store {
    tasks: usize,
    files: BTreeMap<(CheckpointId, usize), State>,
    manifests: BTreeSet<CheckpointId>,
    /// Manifests whose writing failed, whether they are there or not.
    uncertain: BTreeSet<CheckpointId>,
    /// The greatest id ever triggered.
    greatest: u64,
}

impl Store {
    pub(super) fn new(tasks: usize) -> Store {
        Store { tasks, files: BTreeMap::new(), manifests: BTreeSet::new(), uncertain: BTreeSet::new(), greatest: 0 }
    }

    pub(super) fn next_id(&self) -> CheckpointId {
        CheckpointId(self.greatest + 1)
    }

    pub(super) fn triggered(&mut self, checkpoint: CheckpointId) {
        assert!(checkpoint.0 > self.greatest, "an id is never used twice");
        self.greatest = checkpoint.0;
    }

    pub(super) fn put(&mut self, checkpoint: CheckpointId, task: usize, state: State) {
        let before = self.files.insert((checkpoint, task), state);
        assert!(before.is_none(), "task {task} snapshotted checkpoint {checkpoint} twice");
    }

    pub(super) fn put_manifest(&mut self, checkpoint: CheckpointId) {
        assert!(self.manifests.insert(checkpoint), "a manifest is written once");
    }

    pub(super) fn manifest_failed(&mut self, checkpoint: CheckpointId) {
        self.uncertain.insert(checkpoint);
    }

    pub(super) fn is_complete(&self, checkpoint: CheckpointId) -> bool {
        self.manifests.contains(&checkpoint)
    }

    pub(super) fn discard(&mut self, checkpoint: CheckpointId, task: usize) {
        assert!(!self.is_complete(checkpoint), "a file of checkpoint {checkpoint} counts and was discarded");
        self.files.remove(&(checkpoint, task));
    }

    pub(super) fn newest_id(&self) -> Option<CheckpointId> {
        self.manifests.last().copied()
    }

    pub(super) fn newest(&self) -> Option<Vec<State>> {
        self.newest_id().map(|newest| (0..self.tasks).map(|task| self.state(newest, task).clone()).collect())
    }

    pub(super) fn state(&self, checkpoint: CheckpointId, task: usize) -> &State {
        &self.files[&(checkpoint, task)]
    }

    /// Files of checkpoints that are neither complete nor possibly complete.
    pub(super) fn leaked(&self) -> Vec<(CheckpointId, usize)> {
        let counts = |checkpoint: &CheckpointId| self.manifests.contains(checkpoint) || self.uncertain.contains(checkpoint);
        self.files.keys().filter(|(checkpoint, _)| !counts(checkpoint)).copied().collect()
    }

    pub(super) fn sweep(&mut self) {
        let manifests = &self.manifests;
        self.files.retain(|(checkpoint, _), _| manifests.contains(checkpoint));
    }
}
