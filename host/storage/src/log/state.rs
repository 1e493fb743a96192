//! What a job's log says of the job: the state after an entry. Pure.

use serde::{Deserialize, Serialize};
use weir_model::{Attempt, CheckpointId};

use super::decision::{Decision, Owner, StoredCheckpoint, Writer};
use crate::manifest::ManifestKind;

/// Leading entries that are never deleted. A writer that is paused before a put finds its number taken unless it sleeps while this
/// many others lead.
pub(crate) const FENCES_MAX: usize = 256;

/// What is decided about a job.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct JobState {
    /// Whose state it is; none before anybody has claimed it.
    pub owner: Option<Owner>,
    /// Who may write entries.
    pub leader: Option<Writer>,
    /// The newest attempt; 0 before the first.
    pub attempt: Attempt,
    /// Checkpoints that can be gone on from, oldest first.
    pub checkpoints: Vec<StoredCheckpoint>,
    /// The greatest number that a completed checkpoint ever had, also of those that are void or forgotten; 0 before the first.
    pub checkpoint_max: CheckpointId,
    /// Output that follows the newest checkpoint (or the beginning, where there is none) is to be taken back: it was gone back, and nothing
    /// was completed since.
    pub takes_back: bool,
    /// Numbers of the leading entries that stay.
    pub fences: Vec<u64>,
}

impl Default for JobState {
    /// That of a job that nobody has claimed.
    fn default() -> JobState {
        JobState {
            owner: None,
            leader: None,
            attempt: Attempt(0),
            checkpoints: Vec::new(),
            checkpoint_max: CheckpointId(0),
            takes_back: false,
            fences: Vec::new(),
        }
    }
}

impl JobState {
    /// The checkpoint that an attempt would go on from, if it is whole.
    pub fn newest(&self) -> Option<&StoredCheckpoint> {
        self.checkpoints.iter().rev().find(|checkpoint| !checkpoint.is_pinned())
    }

    /// The checkpoint of that number.
    pub fn checkpoint(&self, id: CheckpointId) -> Option<&StoredCheckpoint> {
        self.checkpoints.iter().find(|checkpoint| checkpoint.id == id)
    }

    /// Those beyond the newest `keep`, oldest first. Savepoints are not counted.
    pub(crate) fn beyond(&self, keep: usize) -> Vec<CheckpointId> {
        let counted: Vec<CheckpointId> =
            self.checkpoints.iter().filter(|checkpoint| !checkpoint.is_pinned()).map(|checkpoint| checkpoint.id).collect();
        counted[..counted.len().saturating_sub(keep)].to_vec()
    }

    /// Whether `by` may decide this, as things are. The text says why not, and goes on from "job X: ".
    pub(crate) fn refusal(&self, by: &Writer, decision: &Decision) -> Option<Refusal> {
        let older = self.leader.filter(|leader| by.epoch < leader.epoch);
        match decision {
            _ if decision.leads() && older.is_some() => Some(Refusal::Fenced),
            _ if !decision.leads() && self.leader != Some(*by) => Some(Refusal::Fenced),
            Decision::Begun { attempt, from, .. } => {
                let is_known = from.is_none_or(|from| self.checkpoint(from).is_some());
                (*attempt <= self.attempt || !is_known)
                    .then_some(Refusal::Misuse("of an attempt that is not new, or from nowhere"))
            }
            Decision::Led { attempt } => {
                (*attempt != self.attempt).then_some(Refusal::Misuse("of an attempt that is not the newest"))
            }
            Decision::Completed { checkpoint, .. } if checkpoint.attempt != self.attempt => {
                Some(Refusal::Misuse("of another attempt than the newest"))
            }
            Decision::Completed { checkpoint, .. } => (checkpoint.id <= self.checkpoint_max).then_some(Refusal::Exists),
            Decision::Claimed(_) => self.owner.as_ref().map(|_| Refusal::Misuse("of a job that is claimed")),
            Decision::StartedOver(_) => None,
        }
    }

    /// The state after entry `number`, with which `by` decides what [`JobState::refusal`] has nothing against.
    pub(crate) fn after(&self, number: u64, by: Writer, decision: &Decision) -> JobState {
        let mut after = self.clone();
        if decision.leads() {
            after.leader = Some(by);
            after.fences.push(number);
            let retired = after.fences.len().saturating_sub(FENCES_MAX);
            after.fences.drain(..retired);
        }
        match decision {
            Decision::Claimed(owner) => after.owner = Some(owner.clone()),
            Decision::StartedOver(owner) => {
                after.owner = Some(owner.clone());
                after.checkpoints.clear();
                after.takes_back = true;
            }
            Decision::Led { .. } => {}
            Decision::Begun { attempt, from, void } => {
                after.attempt = *attempt;
                let is_newer = |id: CheckpointId| from.is_none_or(|from| id > from);
                let goes_back = |checkpoint: &StoredCheckpoint| !checkpoint.is_pinned() && is_newer(checkpoint.id);
                after.takes_back |= after.checkpoints.iter().any(goes_back);
                after.checkpoints.retain(|checkpoint| !goes_back(checkpoint) && !void.contains(&checkpoint.id));
            }
            Decision::Completed { checkpoint, forgets } => {
                after.checkpoints.retain(|other| !forgets.contains(&other.id));
                after.checkpoints.push(checkpoint.clone());
                after.checkpoint_max = checkpoint.id;
                after.takes_back = false;
            }
        }
        after
    }

    /// Checkpoints that `after` has not any more.
    pub(crate) fn lost_in(&self, after: &JobState) -> Vec<StoredCheckpoint> {
        self.checkpoints.iter().filter(|checkpoint| after.checkpoint(checkpoint.id) != Some(checkpoint)).cloned().collect()
    }
}

impl StoredCheckpoint {
    /// Whether it stays until a person deletes it, and nobody goes on from it without being told to.
    pub fn is_pinned(&self) -> bool {
        self.kind == ManifestKind::Savepoint
    }
}

/// Why something can't be decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Another writer leads.
    Fenced,
    /// The number of the checkpoint was used.
    Exists,
    /// The caller broke a rule.
    Misuse(&'static str),
}
