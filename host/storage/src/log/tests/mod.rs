//! One history, whatever happens to its writers.
#![allow(clippy::unwrap_used)]

mod crashes;
mod explorer;
mod folding;
pub(crate) mod job;
mod retention;
mod takeover;

use weir_model::{Attempt, CheckpointId, Epoch};

use super::decision::{Decision, Owner, StoredCheckpoint, Writer};
use super::state::JobState;
use crate::ManifestKind;

/// The writer of that number; all of different coordinators.
fn writer(nonce: u64) -> Writer {
    let origin = u128::from(nonce).to_be_bytes();
    Writer { epoch: Epoch { origin, count: 1 }, nonce }
}

fn owner() -> Owner {
    Owner { origin: "jobs/a.toml".to_owned(), key_groups: 128, since_ms: 5 }
}

/// A checkpoint that `by` takes in the newest attempt, with the next number.
fn next_checkpoint(state: &JobState, by: Writer, kind: ManifestKind) -> StoredCheckpoint {
    let id = CheckpointId(state.checkpoint_max.0 + 1);
    StoredCheckpoint { id, attempt: state.attempt, kind, manifest: format!("{id}-{}-{}", state.attempt, by.nonce) }
}

fn completed(state: &JobState, by: Writer, keep: usize) -> Decision {
    let checkpoint = next_checkpoint(state, by, ManifestKind::Checkpoint);
    Decision::Completed { checkpoint, forgets: state.beyond(keep.saturating_sub(1)) }
}

fn begun(state: &JobState) -> Decision {
    let from = state.newest().map(|newest| newest.id);
    Decision::Begun { attempt: Attempt(state.attempt.0 + 1), from, void: Vec::new() }
}
