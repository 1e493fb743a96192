//! What a task says to its worker, and hears from it.

use std::collections::BTreeMap;

use serde_json::Value;
use weir_channel::Frame;
use weir_checkpoint::align::DeclineReason;
use weir_connectors::ConnectorError;
use weir_model::{Barrier, CheckpointId, InstanceId, KeyGroupRange, OperatorUid, TaskId, Timestamp};
use weir_sandbox::EncodedImage;

use crate::TaskError;

/// What a worker tells a task.
#[derive(Debug)]
pub enum Control {
    /// A checkpoint has begun. Goes to every task: sources act on it, the others when their inputs have ended.
    Trigger(Barrier),
    /// A checkpoint goes on unaligned: what waits before its markers is captured, not waited for.
    Unalign(CheckpointId),
    /// A checkpoint is dead.
    Abort(CheckpointId),
    /// A checkpoint is complete: its manifest is written. What sinks commit then is not the task's to do.
    Completed(CheckpointId),
    /// Stop now, without anything further.
    Cancel,
}

/// Makes what a sink wrote for a checkpoint durable, off the data path. Gives what to commit once the checkpoint is
/// complete.
pub type SinkPrepare = Box<dyn FnOnce() -> Result<Option<Value>, ConnectorError> + Send>;

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

/// State that was taken from an instance and is not encoded yet. Encoding may take long, so it is done off the data path.
pub trait CapturedState: Send {
    /// Bytes held, before compression.
    fn raw_bytes(&self) -> usize;
    /// Writes the state as bytes to store, into `image`. What it holds is given back meanwhile.
    fn encode(self: Box<Self>, image: &mut EncodedImage);
    /// Writes the state and the encoded ones that it follows, oldest first, as one that says the same.
    ///
    /// # Errors
    /// What is wrong with which of them.
    fn merge(self: Box<Self>, older: &[&[u8]], image: &mut EncodedImage) -> Result<(), String>;
}

impl CapturedState for weir_sandbox::Capture {
    fn raw_bytes(&self) -> usize {
        weir_sandbox::Capture::raw_bytes(self)
    }

    fn encode(self: Box<Self>, image: &mut EncodedImage) {
        self.encode_into(image);
    }

    fn merge(self: Box<Self>, older: &[&[u8]], image: &mut EncodedImage) -> Result<(), String> {
        self.merge_into(older, image).map_err(|error| error.to_string())
    }
}

/// Where captured in-flight data was on its way from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum InFlightSource {
    /// The channel of this index in the task's gate.
    Channel(usize),
    /// What a restore had put before the channels: its index in [`crate::HeadSpec::Gate`]'s list.
    Restored(usize),
}

/// Frames that were on their way to a task at a barrier: received after a restore before anything else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InFlight {
    /// Where they come from.
    pub source: InFlightSource,
    /// Of a keyed operator's instances, those that `Rows` frames still have to reach; `None`: all of them.
    pub groups: Option<KeyGroupRange>,
    /// Frames with rows (`Rows` or `Keyed`), in order.
    pub frames: Vec<Frame>,
}

/// A piece of a task's snapshot. `Begin`, any number of `Instance`s and `InFlight`s, `End`; or `Abandon` instead of the rest.
pub enum SnapshotPart {
    /// The barrier was reached.
    Begin {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// State of the task itself.
        state: TaskState,
        /// What the task's sinks have yet to make durable.
        prepare: Vec<(OperatorUid, SinkPrepare)>,
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
        capture: Option<Box<dyn CapturedState>>,
        /// The last watermark it was told.
        watermark: Timestamp,
        /// It was told that all inputs have ended.
        finished: bool,
    },
    /// Rows on their way at the barrier. The order of the pieces of one source is the order of its frames.
    InFlight {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// The rows.
        pieces: Vec<InFlight>,
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
pub enum TaskReport {
    /// It will not take part in a checkpoint.
    Declined {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// Why.
        reason: DeclineReason,
    },
    /// All its instances of the checkpoint are here. Said once, also where there were none.
    Restored,
    /// All inputs have ended and everything was emitted. The task stays for the last checkpoint.
    Finished,
    /// The task is over.
    Failed(TaskError),
}

/// The way from a task to its worker. Calls return at once.
pub trait Outlet: Send {
    /// Hands over a piece of a snapshot, to be persisted.
    fn snapshot(&mut self, task: TaskId, part: SnapshotPart);
    /// Reports something.
    fn report(&mut self, task: TaskId, report: TaskReport);
    /// Whether so much waits to be persisted that captures that can wait should.
    fn is_congested(&self) -> bool;
}
