//! The manifest of a checkpoint from the acknowledgements of its tasks.

use std::collections::BTreeMap;

use weir_model::{Attempt, CheckpointId, InstanceId};
use weir_plan::VertexKind;
use weir_storage::{ComponentState, MANIFEST_FORMAT, Manifest, ManifestKind, OperatorState, SubtaskState};

use crate::persist::Acknowledgement;
use crate::prepare::PreparedJob;
use crate::topology::Topology;

/// What a manifest says besides the state.
pub(crate) struct Header {
    pub(crate) attempt: Attempt,
    pub(crate) checkpoint: CheckpointId,
    pub(crate) kind: ManifestKind,
    pub(crate) triggered_at_ms: u64,
    pub(crate) completed_at_ms: u64,
}

/// Name of an instance in a manifest.
pub(crate) fn instance_name(id: InstanceId) -> String {
    match id {
        InstanceId::KeyGroup(group) => format!("g{group}"),
        InstanceId::Subtask(index) => format!("s{index}"),
    }
}

/// The instance of that name.
pub(crate) fn instance_id(name: &str) -> Option<InstanceId> {
    match name.split_at_checked(1)? {
        ("g", group) => group.parse().ok().map(InstanceId::KeyGroup),
        ("s", index) => index.parse().ok().map(InstanceId::Subtask),
        _ => None,
    }
}

/// Puts a manifest together. Where templates are is added when it is written.
pub(crate) fn assemble(
    job: &PreparedJob,
    topology: &Topology,
    header: &Header,
    acknowledgements: &[Acknowledgement],
) -> Manifest {
    let mut operators: BTreeMap<String, OperatorState> = BTreeMap::new();
    for (index, vertex) in job.job.vertices.iter().enumerate() {
        let component = job.components.get(&index).map(|prepared| ComponentState {
            digest: prepared.component.digest().to_string(),
            name: Some(prepared.name.clone()),
            config: match &vertex.kind {
                VertexKind::Operator(spec) => spec.config.clone(),
                _ => serde_json::Value::Null,
            },
        });
        let subtasks = vec![SubtaskState::default(); vertex.parallelism as usize];
        let state = OperatorState { parallelism: vertex.parallelism, component, subtasks, ..OperatorState::default() };
        operators.insert(vertex.uid.clone(), state);
    }
    for acknowledgement in acknowledgements {
        let (chain, subtask) = topology.locate(acknowledgement.task);
        let vertices = &topology.chains[chain].vertices;
        for (position, &vertex) in vertices.iter().enumerate() {
            let operator = operators.get_mut(&job.job.vertices[vertex].uid).expect("every vertex was added above");
            let state = &mut operator.subtasks[subtask as usize];
            state.finished = acknowledgement.state.finished;
            if position == 0 {
                state.watermarks.clone_from(&acknowledgement.state.watermarks);
                if let Some(source) = &acknowledgement.state.source {
                    state.splits.clone_from(&source.splits);
                    state.source_watermark = Some(source.event_time_max);
                }
            }
        }
        for (key, instance) in &acknowledgement.instances {
            let operator = operators.get_mut(&*key.uid).expect("instances belong to vertices of the job");
            operator.instances.insert(instance_name(key.id), instance.clone());
        }
        for sink in &acknowledgement.sinks {
            let operator = operators.get_mut(&*sink.uid).expect("sinks are vertices of the job");
            operator.subtasks[subtask as usize].committables.clone_from(&sink.committables);
        }
    }
    let files: Vec<_> = acknowledgements.iter().filter_map(|acknowledgement| acknowledgement.file.clone()).collect();
    Manifest {
        format: MANIFEST_FORMAT,
        job: job.job.name.clone(),
        attempt: header.attempt,
        checkpoint: header.checkpoint.0,
        kind: header.kind,
        triggered_at_ms: header.triggered_at_ms,
        completed_at_ms: header.completed_at_ms,
        key_groups: job.job.key_groups,
        bytes_written: files.iter().map(|file| file.bytes).sum(),
        origin: Some(job.options.origin.clone()),
        operators,
        files,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instance_names_survive() {
        for id in [InstanceId::KeyGroup(0), InstanceId::KeyGroup(32_767), InstanceId::Subtask(3)] {
            assert_eq!(instance_id(&instance_name(id)), Some(id));
        }
        assert_eq!(instance_id(""), None);
        assert_eq!(instance_id("x1"), None);
        assert_eq!(instance_id("g70000"), None);
    }
}
