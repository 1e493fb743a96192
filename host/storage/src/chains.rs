//! What is stored of an instance: a chain of encoded captures, oldest first, and when it is worth merging.
//!
//! Captures of a checkpoint count only once it is complete; until then the chain is that of the last completed one. A
//! capture holds everything that changed since a completed checkpoint, so it can follow the chain of that one or of any
//! later one.
//!
//! That a checkpoint was given up says nothing about what is stored of it: its manifest may have become durable all the same,
//! and then it is announced as complete by whoever finds it. So a chain of a whole snapshot stays until a later checkpoint is
//! complete, as the pages that an instance has written stay uncommitted; only of a snapshot that nobody was told of is
//! there nothing to keep.

use std::collections::BTreeMap;

use weir_model::{CheckpointId, limits};

use crate::manifest::Segment;

/// Deltas beyond which a chain is merged even if this checkpoint has merged its share.
const CHAIN_HARD_MAX: usize = 4 * limits::IMAGE_CHAIN_MAX;

/// Deltas from which a chain that has outgrown its base is merged.
const CHAIN_OUTGROWN_MIN: usize = limits::IMAGE_CHAIN_MAX / 2;

/// The stored images of one instance.
#[derive(Clone, Debug, Default)]
pub struct StoredInstance {
    /// The chain of the last completed checkpoint.
    completed: Vec<Segment>,
    /// Chains of checkpoints that are not complete.
    pending: BTreeMap<CheckpointId, Vec<Segment>>,
}

/// What to do with the next capture of an instance.
#[derive(Debug, PartialEq, Eq)]
pub enum Plan {
    /// Append it.
    Append,
    /// Merge it with the captures from this index of the chain on.
    Merge(usize),
}

impl StoredInstance {
    /// An instance that a checkpoint holds.
    pub fn restored(chain: Vec<Segment>) -> StoredInstance {
        StoredInstance { completed: chain, pending: BTreeMap::new() }
    }

    /// The chain that a new capture follows.
    pub fn chain(&self) -> &[Segment] {
        &self.completed
    }

    /// How the next capture is stored. `may_merge`: this checkpoint has not merged its share yet, so that instances that
    /// were all captured together are not all merged together.
    pub fn plan(&self, may_merge: bool) -> Plan {
        let chain = &self.completed;
        let Some((base, deltas)) = chain.split_first() else { return Plan::Append };
        let delta_bytes: u64 = deltas.iter().map(|segment| segment.length).sum();
        let outgrown = delta_bytes > base.length / 2;
        let long = chain.len() >= limits::IMAGE_CHAIN_MAX;
        let due = long || (outgrown && chain.len() >= CHAIN_OUTGROWN_MIN);
        if !(due && may_merge) && chain.len() < CHAIN_HARD_MAX {
            return Plan::Append;
        }
        // A large base is not written again as long as the deltas are small beside it.
        Plan::Merge(if outgrown { 0 } else { 1 })
    }

    /// The chain of a checkpoint that is not complete yet: the first `kept` segments of the completed one, then `segment`.
    pub fn add(&mut self, checkpoint: CheckpointId, kept: usize, segment: Segment) -> Vec<Segment> {
        let mut chain = self.completed[..kept].to_vec();
        chain.push(segment);
        self.pending.insert(checkpoint, chain.clone());
        chain
    }

    /// A checkpoint is complete.
    pub fn complete(&mut self, checkpoint: CheckpointId) {
        let later = self.pending.split_off(&CheckpointId(checkpoint.0 + 1));
        if let Some(chain) = self.pending.remove(&checkpoint) {
            self.completed = chain;
        }
        self.pending = later;
    }

    /// The task's snapshot for a checkpoint was not acknowledged and never will be, so that checkpoint cannot be complete.
    pub fn forget(&mut self, checkpoint: CheckpointId) {
        self.pending.remove(&checkpoint);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(n: u64, length: u64) -> Segment {
        Segment { file: format!("f{n}"), offset: 0, length, checksum: String::new() }
    }

    fn instance(base: u64, deltas: &[u64]) -> StoredInstance {
        StoredInstance::restored([base].iter().chain(deltas).zip(0..).map(|(&length, n)| segment(n, length)).collect())
    }

    #[test]
    fn s51_a_capture_of_a_dead_checkpoint_is_no_part_of_later_chains() {
        let mut instance = instance(100, &[]);
        instance.add(CheckpointId(1), 1, segment(10, 5));
        instance.forget(CheckpointId(1));
        let chain = instance.add(CheckpointId(2), 1, segment(20, 5));
        assert_eq!(chain, [segment(0, 100), segment(20, 5)]);
        instance.complete(CheckpointId(2));
        assert_eq!(instance.chain(), chain);
    }

    #[test]
    fn s80_a_chain_stays_until_a_later_checkpoint_is_complete() {
        let mut instance = instance(100, &[]);
        let second = instance.add(CheckpointId(2), 1, segment(20, 5));
        let third = instance.add(CheckpointId(3), 1, segment(30, 5));
        assert_eq!(third, [segment(0, 100), segment(30, 5)]);
        instance.complete(CheckpointId(2));
        assert_eq!(instance.chain(), second);
        instance.complete(CheckpointId(3));
        assert_eq!(instance.chain(), third);
        assert!(instance.pending.is_empty());
    }

    #[test]
    fn an_instance_that_was_not_captured_keeps_its_chain() {
        let mut instance = instance(100, &[5]);
        instance.complete(CheckpointId(7));
        assert_eq!(instance.chain().len(), 2);
    }

    #[test]
    fn the_base_is_spared_while_deltas_are_small() {
        assert_eq!(instance(1_000, &[10; 15]).plan(true), Plan::Merge(1));
        assert_eq!(instance(1_000, &[100; 15]).plan(true), Plan::Merge(0));
        assert_eq!(instance(1_000, &[10; 14]).plan(true), Plan::Append);
        assert_eq!(instance(1_000, &[100; 7]).plan(true), Plan::Merge(0));
        assert_eq!(StoredInstance::default().plan(true), Plan::Append);
    }

    #[test]
    fn merging_is_put_off_but_not_for_ever() {
        assert_eq!(instance(1_000, &[10; 15]).plan(false), Plan::Append);
        assert_eq!(instance(1_000, &[5; CHAIN_HARD_MAX - 1]).plan(false), Plan::Merge(1));
    }
}
