//! Entry point for fuzzing: entries of a log, as whoever can write to the storage may have left them.

use weir_model::{Attempt, CheckpointId, Epoch};

use super::decision::{Decision, Owner, StoredCheckpoint, Writer};
use super::entry::{Entry, LOG_FORMAT};
use super::pen::{TAIL, dispensable};
use super::state::JobState;
use crate::fuzz::read;
use crate::manifest::ManifestKind;

/// Reads an entry, given as it is stored or as the JSON in it, and does with its state all that a coordinator does: what it decides is
/// decided once more, by the same and by another. What is read is the same when it is written again.
///
/// # Panics
/// If it is not.
pub fn entry(bytes: &[u8]) -> String {
    let entry = match read::<Entry>(bytes, LOG_FORMAT) {
        Ok(entry) if entry.can_be() => entry,
        Ok(_) => return "numbers that cannot be".to_owned(),
        Err(reason) => return reason,
    };
    let Entry { number, by, decision, state, .. } = entry;
    let other = Writer { nonce: by.nonce ^ 1, ..by };
    let refused = [by, other].map(|by| state.refusal(&by, &decision).is_some());
    let after = state.after(number + 1, by, &decision);
    let (lost, beyond) = (state.lost_in(&after).len(), after.beyond(1).len());
    let kept = dispensable(number, TAIL, &after, 1..=9).len();
    let words =
        [("by it", refused[0]), ("by another", refused[1]), ("lost", lost > 0), ("beyond", beyond > 0), ("kept", kept > 0)];
    let words: Vec<&str> = words.iter().filter(|(_, holds)| *holds).map(|(word, _)| *word).collect();
    format!("{} {} newest {}", decision.attempted(), words.join(" "), after.newest().is_some())
}

/// Entries to begin with, as JSON.
pub fn entries() -> Vec<Vec<u8>> {
    let by = Writer { epoch: Epoch { origin: [7; 16], count: 2 }, nonce: 9 };
    let owner = Owner { origin: "/jobs/j.toml".to_owned(), key_groups: 128, since_ms: 5 };
    let checkpoint = |id| StoredCheckpoint {
        id: CheckpointId(id),
        attempt: Attempt(1),
        kind: if id == 3 { ManifestKind::Savepoint } else { ManifestKind::Checkpoint },
        manifest: format!("{id}-1"),
    };
    let decisions = [
        Decision::Claimed(owner.clone()),
        Decision::Begun { attempt: Attempt(1), from: None, void: Vec::new() },
        Decision::Completed { checkpoint: checkpoint(3), forgets: Vec::new() },
        Decision::Completed { checkpoint: checkpoint(4), forgets: vec![CheckpointId(3)] },
        Decision::Led { attempt: Attempt(1) },
        Decision::Begun { attempt: Attempt(2), from: Some(CheckpointId(3)), void: vec![CheckpointId(4)] },
        Decision::StartedOver(owner),
    ];
    let (mut state, mut entries) = (JobState::default(), Vec::new());
    for (number, decision) in (1..).zip(decisions) {
        state = state.after(number, by, &decision);
        entries.push(Entry { format: LOG_FORMAT, number, by, decision, state: state.clone() });
    }
    entries.iter().filter_map(|entry| serde_json::to_vec(entry).ok()).collect()
}
