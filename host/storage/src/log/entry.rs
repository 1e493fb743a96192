//! What an entry of a job's log says: what was decided, by whom, and what followed.

use serde::{Deserialize, Serialize};

use super::decision::{Decision, Writer};
use super::state::JobState;

/// The format number written to [`Entry::format`]. Raised when an older build would misread a newer entry.
pub(crate) const LOG_FORMAT: u32 = 1;

/// An entry: what was decided, and the state after it. Never changed once it is there.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Entry {
    /// [`LOG_FORMAT`].
    pub(crate) format: u32,
    /// Its own number, from 1.
    pub(crate) number: u64,
    /// Who wrote it.
    pub(crate) by: Writer,
    pub(crate) decision: Decision,
    /// The state after it.
    pub(crate) state: JobState,
}

/// Greatest number that an entry may hold, of entries, attempts and checkpoints: a job reaches none of it, and whoever goes on from
/// one must be able to count on.
const NUMBER_MAX: u64 = 1 << 48;

impl Entry {
    /// Whether its numbers can be true. Who writes to the storage may have made them up.
    pub(crate) fn can_be(&self) -> bool {
        let JobState { attempt, checkpoints, checkpoint_max, fences, .. } = &self.state;
        let of_checkpoints = checkpoints.iter().flat_map(|checkpoint| [checkpoint.id.0, checkpoint.attempt.0]);
        let all = [self.number, attempt.0, checkpoint_max.0].into_iter().chain(of_checkpoints).chain(fences.iter().copied());
        all.max() <= Some(NUMBER_MAX)
    }
}
