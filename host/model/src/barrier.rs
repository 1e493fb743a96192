//! Barriers: what separates the rows of a checkpoint from those after it.

use crate::{Attempt, CheckpointId};

/// What a barrier asks for besides a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BarrierKind {
    /// Snapshot and go on.
    Checkpoint,
    /// Snapshot and stop: sources give no row after it.
    Stop,
}

/// The marker that separates what belongs to a checkpoint from what follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Barrier {
    /// Execution it belongs to; older ones are refused.
    pub attempt: Attempt,
    /// Checkpoint it belongs to.
    pub checkpoint: CheckpointId,
    /// What else it asks for.
    pub kind: BarrierKind,
    /// It overtakes rows: what waits before it in a channel is captured, not waited for. Either from its start, or since
    /// the alignment took too long.
    pub unaligned: bool,
}
