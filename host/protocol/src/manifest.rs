//! The manifest of a checkpoint from the acknowledgements of its tasks, and what a job has to know of one to go on from it.

use std::collections::{BTreeMap, BTreeSet};

use weir_model::{Attempt, CheckpointId, InstanceId, KeyGroupRange, Timestamp, WATERMARK_START};
use weir_plan::{Edge, Job, Topology, VertexKind};
use weir_storage::{
    ComponentState, ConfigDigests, InFlightState, InstanceState, MANIFEST_FORMAT, Manifest, ManifestKind, OperatorState, Segment,
    SubtaskState, instance_id,
};

use crate::{Acknowledgement, JobSpec};

/// What a manifest says besides the state.
pub struct Header {
    /// The execution.
    pub attempt: Attempt,
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// Why it was taken.
    pub kind: ManifestKind,
    /// When it was triggered, in milliseconds since the Unix epoch.
    pub triggered_at_ms: u64,
    /// When its last task had stored its part.
    pub completed_at_ms: u64,
}

/// Puts a manifest together.
pub fn assemble(
    spec: &JobSpec,
    job: &Job,
    topology: &Topology,
    templates: &BTreeMap<String, Segment>,
    header: &Header,
    acknowledgements: &[Acknowledgement],
) -> Manifest {
    let mut operators: BTreeMap<String, OperatorState> = BTreeMap::new();
    for vertex in &job.vertices {
        let component = match &vertex.kind {
            VertexKind::Operator(operator) => spec.components.get(&operator.component.to_string()).map(|pin| (pin, operator)),
            VertexKind::Source(_) | VertexKind::Sink(_) => None,
        };
        let state = OperatorState {
            parallelism: vertex.parallelism,
            component: component.map(|(pin, operator)| ComponentState {
                digest: pin.digest.to_string(),
                name: Some(pin.name.clone()),
                config_digests: ConfigDigests::of(&operator.config),
            }),
            template: templates.get(&vertex.uid).cloned(),
            subtasks: vec![SubtaskState::default(); vertex.parallelism as usize],
            ..OperatorState::default()
        };
        operators.insert(vertex.uid.clone(), state);
    }
    // A task that there is not has no place in a checkpoint; whoever lets workers speak has refused it before.
    for acknowledgement in acknowledgements.iter().filter(|said| (said.task.0 as usize) < topology.tasks()) {
        add(&mut operators, job, topology, acknowledgement);
    }
    let files: Vec<_> = acknowledgements.iter().filter_map(|acknowledgement| acknowledgement.file.clone()).collect();
    Manifest {
        format: MANIFEST_FORMAT,
        job: job.name.clone(),
        attempt: header.attempt,
        checkpoint: header.checkpoint.0,
        kind: header.kind,
        triggered_at_ms: header.triggered_at_ms,
        completed_at_ms: header.completed_at_ms,
        key_groups: job.key_groups,
        bytes_written: files.iter().map(|file| file.bytes).sum(),
        origin: Some(spec.file.clone()),
        operators,
        files,
    }
}

fn add(operators: &mut BTreeMap<String, OperatorState>, job: &Job, topology: &Topology, acknowledgement: &Acknowledgement) {
    let (chain, subtask) = topology.locate(acknowledgement.task);
    for (position, &vertex) in topology.chains()[chain].vertices.iter().enumerate() {
        let Some(operator) = operators.get_mut(&job.vertices[vertex].uid) else { continue };
        let state = &mut operator.subtasks[subtask as usize];
        state.finished = acknowledgement.finished;
        if position == 0 {
            state.watermarks.clone_from(&acknowledgement.watermarks);
            state.in_flight.clone_from(&acknowledgement.in_flight);
            if let Some(source) = &acknowledgement.source {
                state.splits.clone_from(&source.splits);
                state.source_watermark = Some(source.event_time_max);
            }
        }
    }
    for instance in &acknowledgement.instances {
        if let Some(operator) = operators.get_mut(&instance.uid) {
            operator.instances.insert(instance.name.clone(), instance.state.clone());
        }
    }
    for sink in &acknowledgement.sinks {
        if let Some(state) = operators.get_mut(&sink.uid).and_then(|operator| operator.subtasks.get_mut(subtask as usize)) {
            state.committables.clone_from(&sink.committables);
        }
    }
}

/// The edge that rows in flight to a vertex came over; none where the job no longer has it, or it divides rows by another rule.
pub fn edge_of<'a>(job: &'a Job, vertex: usize, in_flight: &InFlightState) -> Option<&'a Edge> {
    edge_between(job, vertex, in_flight).filter(|edge| is_divided_alike(edge, in_flight))
}

/// The same, whatever its rule is.
pub fn edge_between<'a>(job: &'a Job, vertex: usize, in_flight: &InFlightState) -> Option<&'a Edge> {
    job.edges.iter().find(|edge| edge.to == vertex && is_between(job, edge, in_flight))
}

fn is_between(job: &Job, edge: &Edge, in_flight: &InFlightState) -> bool {
    edge.input == in_flight.input && edge.port.number() == in_flight.output && job.vertices[edge.from].uid == in_flight.from
}

/// Whether an edge divides rows in flight as it did when they were sent. Forward and rebalance do alike: what was in flight to one
/// subtask goes to one. So an edge that names no exchange, and has one or the other as parallelism wants it, can be rescaled.
pub fn is_divided_alike(edge: &Edge, in_flight: &InFlightState) -> bool {
    let to_one = |exchange: &str| matches!(exchange, "forward" | "rebalance");
    let now = edge.exchange.to_string();
    in_flight.exchange == now || (to_one(&in_flight.exchange) && to_one(&now))
}

/// Edges on which something was in flight although both ends would now be in one task.
pub fn edges_apart(job: &Job, manifest: &Manifest) -> Vec<usize> {
    let in_flight = |edge: &Edge| {
        let state = manifest.operators.get(&job.vertices[edge.to].uid);
        let mut all = state.into_iter().flat_map(|state| &state.subtasks).flat_map(|subtask| &subtask.in_flight);
        all.any(|one| is_between(job, edge, one) && is_divided_alike(edge, one))
    };
    (0..job.edges.len()).filter(|&edge| job.edge_is_chained(edge) && in_flight(&job.edges[edge])).collect()
}

/// The greatest event time that sources had read which a vertex gets rows of: how far event time had come for it when they
/// ended. `WATERMARK_START` where they had read none.
pub fn event_time_max(job: &Job, manifest: &Manifest, vertex: usize) -> Timestamp {
    let (mut seen, mut open, mut greatest) = (BTreeSet::from([vertex]), vec![vertex], WATERMARK_START);
    while let Some(vertex) = open.pop() {
        let subtasks = manifest.operators.get(&job.vertices[vertex].uid).into_iter().flat_map(|state| &state.subtasks);
        greatest = subtasks.filter_map(|subtask| subtask.source_watermark).fold(greatest, Timestamp::max);
        open.extend(job.edges.iter().filter(|edge| edge.to == vertex).map(|edge| edge.from).filter(|&from| seen.insert(from)));
    }
    greatest
}

/// Instances of an operator's stored state that fall to a subtask of a vertex, by the name they have from now on.
pub fn instances_of<'a>(
    job: &Job,
    vertex: usize,
    state: &'a OperatorState,
    subtask: u32,
) -> Vec<(InstanceId, &'a InstanceState)> {
    let parallelism = job.vertices[vertex].parallelism;
    let groups = KeyGroupRange::of(subtask, job.key_groups, parallelism);
    let keyed = job.is_keyed(vertex);
    // Subtasks that all get every row all have the same state.
    let copied = job.is_broadcast_only(vertex) && state.parallelism > 0;
    let from = if copied { subtask % state.parallelism } else { subtask };
    let owned = |id: InstanceId| match id {
        InstanceId::KeyGroup(group) => (keyed && groups.contains(group)).then_some(id),
        InstanceId::Subtask(index) => {
            let mine = !keyed && index == from && (copied || state.parallelism == parallelism);
            mine.then_some(InstanceId::Subtask(subtask))
        }
    };
    state.instances.iter().filter_map(|(name, instance)| Some((owned(instance_id(name)?)?, instance))).collect()
}
