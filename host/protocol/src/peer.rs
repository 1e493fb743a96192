//! What workers tell each other beside the data: on a connection of its own, which full data never blocks.

use serde::{Deserialize, Serialize};
use weir_model::CheckpointId;

use crate::Execution;

/// What a worker tells another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PeerMessage {
    /// An unaligned barrier has been put into a channel; its marker may still be behind rows.
    Announce {
        /// The execution.
        execution: Execution,
        /// Number of the channel.
        channel: u32,
        /// The checkpoint.
        checkpoint: CheckpointId,
    },
}
