//! What a worker tells its coordinator.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use weir_model::{CheckpointId, Digest, Epoch, TaskId, Timestamp};
use weir_storage::{Committable, InstanceState, Segment, StoredFile};

use crate::{Execution, WorkerProgress};

/// A worker makes itself known. Said first on every connection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Register {
    /// Version of weir, for messages.
    pub version: String,
    /// Slots it offers.
    pub slots: u32,
    /// `host:port` at which other workers reach it.
    pub data_address: String,
    /// Its wall clock, in milliseconds since the Unix epoch.
    pub clock_ms: u64,
    /// What it runs, where it was connected before.
    pub running: Vec<Running>,
    /// The coordinator that leads what it runs; none where it runs nothing.
    pub led_by: Option<Epoch>,
}

/// An execution that a worker runs while it has no coordinator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Running {
    /// The execution.
    pub execution: Execution,
    /// Its tasks here.
    pub tasks: Vec<TaskId>,
    /// Whether they were started.
    pub started: bool,
    /// Those that have all their instances of the checkpoint.
    #[serde(default)]
    pub restored: Vec<TaskId>,
    /// Those whose inputs have all ended.
    pub finished: Vec<TaskId>,
    /// Up to where the sinks of each task have committed.
    pub committed: Vec<(TaskId, CheckpointId)>,
    /// The greatest checkpoint number it was told of.
    pub last_checkpoint: CheckpointId,
    /// Why it has failed, if it has.
    pub failure: Option<Failure>,
}

/// What can be done about a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FailureKind {
    /// A restart may help.
    Transient,
    /// It will be the same until a person has changed something.
    Permanent,
    /// The checkpoint that was restored is damaged; an older one may do.
    Damaged,
    /// An operator does not accept its configuration; `uid` says which.
    Configuration,
    /// The job file, or what it names, cannot be used.
    JobFile,
    /// The connection to another worker is lost.
    PeerLost,
}

/// Why an execution cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// What can be done.
    pub kind: FailureKind,
    /// The operator, where it is known.
    pub uid: Option<String>,
    /// What went wrong, with a hint.
    pub reason: String,
}

/// State of a source at a barrier.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SourceAcknowledgement {
    /// Position by split.
    pub splits: BTreeMap<String, Value>,
    /// Greatest event time seen.
    pub event_time_max: Timestamp,
}

/// One stored instance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InstanceAcknowledgement {
    /// Its operator.
    pub uid: String,
    /// Its name in a manifest.
    pub name: String,
    /// Its state.
    pub state: InstanceState,
}

/// What a sink has prepared and not committed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SinkAcknowledgement {
    /// The sink.
    pub uid: String,
    /// What to commit, oldest first.
    pub committables: Vec<Committable>,
}

pub use weir_storage::InFlightState;

/// A task's part of a checkpoint is durable.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Acknowledgement {
    /// The task.
    pub task: TaskId,
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// All its inputs had ended.
    pub finished: bool,
    /// The last watermark of each of its channels.
    pub watermarks: Vec<Timestamp>,
    /// Its source, if it starts with one.
    pub source: Option<SourceAcknowledgement>,
    /// Its instances.
    pub instances: Vec<InstanceAcknowledgement>,
    /// Its sinks.
    pub sinks: Vec<SinkAcknowledgement>,
    /// What was on its way to it.
    pub in_flight: Vec<InFlightState>,
    /// The file that holds it; none where nothing was to be written.
    pub file: Option<StoredFile>,
    /// Bytes of instances captured, before compression.
    pub captured_bytes: u64,
    /// Bytes of the file that merged what was stored already.
    pub merged_bytes: u64,
    /// Bytes of the file that were in flight.
    pub in_flight_bytes: u64,
}

/// What a source that had ended has to read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Looked {
    /// The source.
    pub uid: String,
    /// Whether there is more.
    pub more: bool,
    /// What there is more, or else what was looked at.
    pub what: String,
}

/// What a worker tells its coordinator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Report {
    /// It makes itself known.
    Register(Register),
    /// It is alive. Said every [`weir_model::limits::HEARTBEAT_INTERVAL_MS`].
    Heartbeat {
        /// How far each execution is.
        progress: Vec<(Execution, WorkerProgress)>,
    },
    /// Until when its certificate counts. Said after it has registered, and again when it has got another one.
    Certificate {
        /// In milliseconds since the Unix epoch.
        until_ms: u64,
    },
    /// Executions that were told to end and have not, although nobody waits for them any more. Said when their number has changed.
    Stuck {
        /// How many.
        executions: u32,
    },
    /// It needs a component.
    Need {
        /// Which.
        digest: Digest,
    },
    /// Step 1 is done.
    Prepared {
        /// The execution.
        execution: Execution,
    },
    /// Sources have looked whether there is more to read.
    Looked {
        /// The execution.
        execution: Execution,
        /// By source, those of which subtasks run here.
        sources: Vec<Looked>,
    },
    /// Step 2 is done.
    Opened {
        /// The execution.
        execution: Execution,
        /// Where the new templates are: by uid. Empty where they were not to be stored.
        templates: Vec<(String, Segment)>,
    },
    /// Step 3 is done.
    Restored {
        /// The execution.
        execution: Execution,
    },
    /// Step 4 is done.
    Built {
        /// The execution.
        execution: Execution,
    },
    /// A task's snapshot is durable.
    Acknowledged {
        /// The execution.
        execution: Execution,
        /// Everything about it.
        acknowledgement: Box<Acknowledgement>,
    },
    /// A task's snapshot could not be made durable.
    PersistFailed {
        /// The execution.
        execution: Execution,
        /// The task.
        task: TaskId,
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// What went wrong.
        reason: String,
    },
    /// A task does not take part in a checkpoint.
    Declined {
        /// The execution.
        execution: Execution,
        /// The task.
        task: TaskId,
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// The newer checkpoint that took its place, if that is why.
        subsumed_by: Option<CheckpointId>,
        /// Why.
        reason: String,
    },
    /// A running task has all its instances of the checkpoint that the execution goes on from. Said once by each task, also where there
    /// were none.
    TaskRestored {
        /// The execution.
        execution: Execution,
        /// The task.
        task: TaskId,
    },
    /// All inputs of a task have ended.
    Finished {
        /// The execution.
        execution: Execution,
        /// The task.
        task: TaskId,
    },
    /// The sinks of a task have committed up to a checkpoint.
    Committed {
        /// The execution.
        execution: Execution,
        /// The task.
        task: TaskId,
        /// The checkpoint.
        checkpoint: CheckpointId,
    },
    /// The execution cannot go on here. It is not cancelled yet.
    Failed {
        /// The execution.
        execution: Execution,
        /// Why.
        failure: Failure,
    },
    /// The execution is over here: no thread of it runs any more, or what does waits for something that does not answer and is given up.
    Ended {
        /// The execution.
        execution: Execution,
        /// Its last counts.
        progress: Box<WorkerProgress>,
    },
}

impl Report {
    /// The execution it belongs to.
    pub fn execution(&self) -> Option<&Execution> {
        match self {
            Report::Register(_)
            | Report::Heartbeat { .. }
            | Report::Certificate { .. }
            | Report::Stuck { .. }
            | Report::Need { .. } => None,
            Report::Prepared { execution }
            | Report::Looked { execution, .. }
            | Report::Opened { execution, .. }
            | Report::Restored { execution }
            | Report::Built { execution }
            | Report::Acknowledged { execution, .. }
            | Report::PersistFailed { execution, .. }
            | Report::Declined { execution, .. }
            | Report::TaskRestored { execution, .. }
            | Report::Finished { execution, .. }
            | Report::Committed { execution, .. }
            | Report::Failed { execution, .. }
            | Report::Ended { execution, .. } => Some(execution),
        }
    }
}
