//! What can be decided about a job, and by whom.

use serde::{Deserialize, Serialize};
use weir_model::{Attempt, CheckpointId, Epoch};

use crate::manifest::ManifestKind;

/// Who writes entries: one opening of the log by one coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Writer {
    /// Of the coordinator.
    pub epoch: Epoch,
    /// Random, and never the same for two openings, also of one process: what it writes has this in its name or content.
    #[serde(with = "hex_number")]
    pub nonce: u64,
}

/// What an entry decides.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub(crate) enum Decision {
    /// A job file gets a state of its own.
    Claimed(Owner),
    /// All checkpoints are void, and output is to be taken back from the beginning.
    StartedOver(Owner),
    /// Another coordinator goes on with what runs.
    Led {
        /// What runs.
        attempt: Attempt,
    },
    /// A new attempt begins. Checkpoints that are newer than where it goes on from are void.
    Begun {
        /// Its number.
        attempt: Attempt,
        /// What it goes on from; none: from the beginning.
        from: Option<CheckpointId>,
        /// Older ones that can't be gone on from either, because they are damaged.
        void: Vec<CheckpointId>,
    },
    /// A checkpoint is complete.
    Completed {
        /// Which.
        checkpoint: StoredCheckpoint,
        /// Those that nobody will go back to any more.
        forgets: Vec<CheckpointId>,
    },
}

impl Decision {
    /// Whether it makes its writer the leader.
    pub(crate) fn leads(&self) -> bool {
        !matches!(self, Decision::Completed { .. })
    }

    /// In words, for errors.
    pub(crate) fn attempted(&self) -> String {
        match self {
            Decision::Claimed(_) => "claim its state".to_owned(),
            Decision::StartedOver(_) => "start it over".to_owned(),
            Decision::Led { attempt } => format!("take over attempt {attempt}"),
            Decision::Begun { attempt, .. } => format!("begin attempt {attempt}"),
            Decision::Completed { checkpoint, .. } => format!("complete checkpoint {}", checkpoint.id),
        }
    }
}

/// Whose state it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Owner {
    /// Path of the job file.
    pub origin: String,
    /// Number of key groups, fixed for the job's life.
    pub key_groups: u16,
    /// When it was claimed or started over, in milliseconds since the Unix epoch.
    pub since_ms: u64,
}

/// A completed checkpoint, as the log names it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StoredCheckpoint {
    /// Its number.
    pub id: CheckpointId,
    /// The attempt that took it.
    pub attempt: Attempt,
    /// Why it was taken.
    pub kind: ManifestKind,
    /// Name of its manifest in the job's `manifests` folder.
    pub manifest: String,
}

/// A number as 16 hexadecimal digits: JSON libraries of other languages round great numbers.
mod hex_number {
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(number: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{number:016x}"))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        u64::from_str_radix(&text, 16).map_err(|_| D::Error::custom("a nonce is 16 hexadecimal digits"))
    }
}
