//! What a task says to its worker, and hears from it.

use std::collections::BTreeMap;

use serde_json::Value;
use weir_checkpoint::align::DeclineReason;
use weir_connectors::ConnectorError;
use weir_model::{Barrier, CheckpointId, InstanceId, OperatorUid, TaskId, Timestamp};
use weir_sandbox::Capture;

use crate::TaskError;

/// What a worker tells a task.
#[derive(Debug)]
pub enum Control {
    /// A checkpoint has begun. Goes to every task: sources act on it, the others when their inputs have ended.
    Trigger(Barrier),
    /// A checkpoint is dead.
    Abort(CheckpointId),
    /// A checkpoint is complete: its manifest is written. Carries what the task's sinks have to commit.
    Completed {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// Per sink, what to commit, oldest first.
        commit: Vec<(OperatorUid, Vec<Value>)>,
    },
    /// Stop now, without anything further.
    Cancel,
}

/// Makes what a sink wrote for a checkpoint durable, off the data path. Gives what to commit once the checkpoint is
/// complete.
pub type Prepare = Box<dyn FnOnce() -> Result<Option<Value>, ConnectorError> + Send>;

/// The small state of a task at a barrier.
#[derive(Debug, Default)]
pub struct TaskState {
    /// Last watermark of each input channel.
    pub watermarks: Vec<Timestamp>,
    /// All inputs had ended.
    pub finished: bool,
    /// Position of the source, if the task starts with one.
    pub source: Option<SourceState>,
}

/// State of a source subtask.
#[derive(Debug, Default)]
pub struct SourceState {
    /// Position by split.
    pub splits: BTreeMap<String, Value>,
    /// Greatest event time seen; [`weir_model::WATERMARK_START`] before any.
    pub event_time_max: Timestamp,
}

/// A piece of a task's snapshot. `Begin`, any number of `Instance`s, `End`; or `Abandon` instead of the rest.
pub enum SnapshotPart {
    /// The barrier was reached.
    Begin {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// State of the task itself.
        state: TaskState,
        /// What the task's sinks have yet to make durable.
        prepare: Vec<(OperatorUid, Prepare)>,
    },
    /// One instance as it was at the barrier.
    Instance {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// The operator.
        uid: OperatorUid,
        /// Which of its instances.
        instance: InstanceId,
        /// What changed since the last completed checkpoint; nothing if the instance was not called.
        capture: Option<Capture>,
        /// The last watermark it was told.
        watermark: Timestamp,
        /// It was told that all inputs have ended.
        finished: bool,
    },
    /// Nothing more belongs to the snapshot.
    End {
        /// The checkpoint.
        checkpoint: CheckpointId,
    },
    /// The checkpoint is dead; what was given for it counts for nothing.
    Abandon {
        /// The checkpoint.
        checkpoint: CheckpointId,
    },
}

/// What else a task reports.
#[derive(Debug)]
pub enum Report {
    /// It will not take part in a checkpoint.
    Declined {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// Why.
        reason: DeclineReason,
    },
    /// All inputs have ended and everything was emitted. The task stays for the last checkpoint.
    Finished,
    /// The sinks have committed everything up to a checkpoint.
    Committed(CheckpointId),
    /// The task is over.
    Failed(TaskError),
}

/// The way from a task to its worker. Calls return at once.
pub trait Outlet: Send {
    /// Hands over a piece of a snapshot, to be persisted.
    fn snapshot(&mut self, task: TaskId, part: SnapshotPart);
    /// Reports something.
    fn report(&mut self, task: TaskId, report: Report);
    /// Whether so much waits to be persisted that captures that can wait should.
    fn is_congested(&self) -> bool;
}
