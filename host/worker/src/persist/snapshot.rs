//! A task's snapshot while it is being written, and what is said of it when it is durable.

use serde_json::Value;
use weir_model::{CheckpointId, InstanceId, OperatorUid};
use weir_plan::Exchange;
use weir_storage::{Committable, InFlightState, InstanceState, SnapshotWriter, StoredInstance};
use weir_task::TaskState;

/// Names an instance within a job.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InstanceKey {
    /// Its operator.
    pub uid: OperatorUid,
    /// Which of its instances.
    pub id: InstanceId,
}

/// What a persister knows of a task at its start.
#[derive(Clone, Debug, Default)]
pub struct TaskStart {
    /// What the checkpoint that was restored holds of its instances.
    pub instances: Vec<(InstanceKey, StoredInstance)>,
    /// What that checkpoint holds that its sinks have yet to commit, by uid: later ones hold it too until they have.
    pub held: Vec<(OperatorUid, Vec<Committable>)>,
    /// Where rows come from that are on their way to it.
    pub origins: Origins,
}

/// Where rows that are on their way to a task come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Uid of the vertex that wrote them.
    pub from: String,
    /// The output they left by; none: dead letters.
    pub output: Option<u32>,
    /// The input they come in by.
    pub input: u32,
    /// Subtask that wrote them.
    pub sender: u32,
    /// How they found theirs.
    pub exchange: Exchange,
}

/// The origins of all that can be on its way to a task.
#[derive(Clone, Debug, Default)]
pub struct Origins {
    /// By channel of its gate.
    pub channels: Vec<Origin>,
    /// By entry of what a checkpoint had in flight.
    pub restored: Vec<Origin>,
}

/// A snapshot that is being written.
pub(super) struct Open {
    pub(super) state: TaskState,
    /// Made when the first bytes come: many snapshots have none.
    pub(super) writer: Option<SnapshotWriter>,
    pub(super) instances: Vec<(InstanceKey, InstanceState)>,
    pub(super) in_flight: Vec<InFlightState>,
    pub(super) in_flight_bytes: u64,
    pub(super) captured_bytes: u64,
    pub(super) merged_bytes: u64,
    /// Why it cannot be completed.
    pub(super) failure: Option<String>,
}

impl Open {
    pub(super) fn new(state: TaskState) -> Open {
        Open {
            state,
            writer: None,
            instances: Vec::new(),
            in_flight: Vec::new(),
            in_flight_bytes: 0,
            captured_bytes: 0,
            merged_bytes: 0,
            failure: None,
        }
    }
}

/// Committables of a sink, by the checkpoint they were prepared for.
#[derive(Debug, Default)]
pub(super) struct Held {
    committables: Vec<(CheckpointId, Value)>,
}

impl Held {
    pub(super) fn of(committables: Vec<Committable>) -> Held {
        let committables = committables.into_iter().map(|held| (CheckpointId(held.checkpoint), held.value));
        Held { committables: committables.collect() }
    }

    pub(super) fn add(&mut self, checkpoint: CheckpointId, value: Value) {
        self.committables.push((checkpoint, value));
    }

    /// All that a checkpoint has to carry: also what was prepared for earlier ones that died or whose commit is not
    /// confirmed.
    pub(super) fn up_to(&self, checkpoint: CheckpointId) -> Vec<Committable> {
        let held = self.committables.iter().filter(|(id, _)| *id <= checkpoint);
        held.map(|(id, value)| Committable { checkpoint: id.0, value: value.clone() }).collect()
    }

    pub(super) fn committed(&mut self, checkpoint: CheckpointId) {
        self.committables.retain(|(id, _)| *id > checkpoint);
    }
}
