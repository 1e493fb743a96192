//! A task's snapshot while it is being written, and what is said of it when it is durable.

use serde_json::Value;
use weir_model::{CheckpointId, InstanceId, OperatorUid, TaskId};
use weir_storage::{Committable, InstanceState, SnapshotWriter, StoredFile};
use weir_task::TaskState;

/// Names an instance within a job.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct InstanceKey {
    pub(crate) uid: OperatorUid,
    pub(crate) id: InstanceId,
}

/// What a sink has prepared and not committed.
#[derive(Clone, Debug)]
pub(crate) struct SinkState {
    pub(crate) uid: OperatorUid,
    pub(crate) committables: Vec<Committable>,
}

/// A task's part of a checkpoint is durable.
#[derive(Debug)]
pub(crate) struct Acknowledgement {
    pub(crate) task: TaskId,
    pub(crate) checkpoint: CheckpointId,
    pub(crate) state: TaskState,
    pub(crate) instances: Vec<(InstanceKey, InstanceState)>,
    pub(crate) sinks: Vec<SinkState>,
    pub(crate) file: Option<StoredFile>,
    /// Pages and bytes captured, before compression.
    pub(crate) captured_bytes: u64,
    /// Bytes of the file that merged what was stored already.
    pub(crate) merged_bytes: u64,
}

/// A snapshot that is being written.
pub(crate) struct Open {
    pub(crate) state: TaskState,
    /// Made when the first bytes come: many snapshots have none.
    pub(crate) writer: Option<SnapshotWriter>,
    pub(crate) instances: Vec<(InstanceKey, InstanceState)>,
    pub(crate) captured_bytes: u64,
    pub(crate) merged_bytes: u64,
    /// Why it cannot be completed.
    pub(crate) failure: Option<String>,
}

impl Open {
    pub(crate) fn new(state: TaskState) -> Open {
        Open { state, writer: None, instances: Vec::new(), captured_bytes: 0, merged_bytes: 0, failure: None }
    }
}

/// Committables of a sink, by the checkpoint they were prepared for.
#[derive(Debug, Default)]
pub(crate) struct Prepared {
    committables: Vec<(CheckpointId, Value)>,
}

impl Prepared {
    pub(crate) fn add(&mut self, checkpoint: CheckpointId, value: Value) {
        self.committables.push((checkpoint, value));
    }

    /// All that a checkpoint has to carry: also what was prepared for earlier ones that died or whose commit is not
    /// confirmed.
    pub(crate) fn up_to(&self, checkpoint: CheckpointId) -> Vec<Committable> {
        let held = self.committables.iter().filter(|(id, _)| *id <= checkpoint);
        held.map(|(id, value)| Committable { checkpoint: id.0, value: value.clone() }).collect()
    }

    pub(crate) fn committed(&mut self, checkpoint: CheckpointId) {
        self.committables.retain(|(id, _)| *id > checkpoint);
    }
}
