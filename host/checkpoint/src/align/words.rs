//! What an aligner hears and says.

use std::fmt;

use weir_model::{Barrier, CheckpointId};

/// What a checkpoint promises about the rows in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// A channel whose marker was read is blocked until all markers are in.
    ExactlyOnce,
    /// No channel is ever blocked; rows behind a marker may be in the snapshot and come again after a restore.
    AtLeastOnce,
}

/// What a task tells its aligner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A marker was read from a channel that is neither blocked nor ended.
    Barrier {
        /// Index of the channel.
        channel: usize,
        /// The marker.
        barrier: Barrier,
    },
    /// The coordinator started a checkpoint. Told to every task, in the coordinator's order.
    Trigger(Barrier),
    /// The coordinator gave a checkpoint up.
    Abort(CheckpointId),
    /// The end of a channel was read; nothing follows on it.
    End {
        /// Index of the channel.
        channel: usize,
    },
    /// A marker waits in a channel; rows may be before it.
    Arrived {
        /// Index of the channel.
        channel: usize,
        /// The marker.
        barrier: Barrier,
    },
    /// An unaligned marker is on its way to a channel; rows may be before it that have not come yet either.
    Announced {
        /// Index of the channel.
        channel: usize,
        /// The marker.
        barrier: Barrier,
    },
    /// The end of a channel waits in it; rows may be before it.
    EndArrived {
        /// Index of the channel.
        channel: usize,
    },
    /// The coordinator has waited long enough: this checkpoint goes on unaligned.
    Unalign(CheckpointId),
}

/// What the task has to do, in the order given, before it reads on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Read nothing more from this channel.
    Block(usize),
    /// Read from this channel again.
    Unblock(usize),
    /// Push unsent output and this marker into every output channel that was not ended yet, then snapshot.
    ///
    /// It may come with the end of the last input channel, so before the task has told its operators of the end. The task
    /// may do that first or afterwards, as long as the marker goes out before its own end does.
    Snapshot(Barrier),
    /// Capture the rows of this channel that are before this marker, those that wait and those to come until the marker does. Only
    /// right after the snapshot that they belong to. The rows are processed as well.
    Capture {
        /// Index of the channel.
        channel: usize,
        /// The marker.
        barrier: Barrier,
    },
    /// All rows have come that belong to an unaligned checkpoint. Said once for each unaligned snapshot that is not declined or aborted
    /// first.
    CaptureDone(CheckpointId),
    /// The marker of this checkpoint was sent as an aligned one: say on every output channel that it does not wait.
    Announce(Barrier),
    /// Tell the coordinator that this task will not acknowledge the checkpoint.
    Decline {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// Why.
        reason: DeclineReason,
    },
    /// The checkpoint was aborted before this task had snapshotted it, and now never will be.
    Aborted(CheckpointId),
}

/// Why a task does not take part in a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeclineReason {
    /// A marker of a newer checkpoint came while this one was waiting for markers. Not counted as a failure.
    Subsumed {
        /// The newer one.
        by: CheckpointId,
    },
    /// The task could not do it (never said by the aligner).
    Failed(String),
}

impl fmt::Display for DeclineReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeclineReason::Subsumed { by } => write!(f, "overtaken by checkpoint {by}"),
            DeclineReason::Failed(reason) => f.write_str(reason),
        }
    }
}

impl From<String> for DeclineReason {
    fn from(reason: String) -> DeclineReason {
        DeclineReason::Failed(reason)
    }
}
