//! Reading what tasks need of a checkpoint before they run: templates, rows that were in flight. Images of instances are read while
//! they run (`fill.rs`).

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_channel::{Frame, wire};
use weir_model::{KeyGroupRange, TaskId};
use weir_plan::{Exchange, VertexKind};
use weir_protocol::manifest::edge_of;
use weir_sandbox::Template;
use weir_storage::{InFlightState, Segment};
use weir_task::in_flight::{self, Place, Share};
use weir_task::{InstanceFactory, KeyedTemplate, RestoredInFlight};

use super::failure::{OfOperator, Trouble};
use super::host::Metrics;
use super::open::operator_host;
use super::prepare::{PreparedJob, limits};
use crate::WorkerOptions;
use crate::persist::Origin;

/// Factories of instances, by vertex.
pub(super) type Factories = BTreeMap<usize, Arc<dyn InstanceFactory>>;

/// What of a checkpoint is in memory and whole.
pub(super) struct LoadedState {
    pub(super) factories: Factories,
    pub(super) metrics: Arc<Metrics>,
    pub(super) in_flight: BTreeMap<TaskId, Vec<(Origin, RestoredInFlight)>>,
}

/// Reads templates and what was in flight.
pub(super) fn restore(
    job: &PreparedJob,
    options: &WorkerOptions,
    stored: Vec<(String, Segment)>,
) -> Result<LoadedState, Trouble> {
    let metrics = Arc::default();
    let factories = factories(job, options, &stored.into_iter().collect(), &metrics)?;
    let mut in_flight = BTreeMap::new();
    for (task, chain, subtask) in job.subtasks() {
        let head = job.topology.chains()[chain].vertices[0];
        in_flight.insert(task, on_the_way(job, head, subtask)?);
    }
    Ok(LoadedState { factories, metrics, in_flight })
}

fn factories(
    job: &PreparedJob,
    options: &WorkerOptions,
    stored: &BTreeMap<String, Segment>,
    metrics: &Metrics,
) -> Result<Factories, Trouble> {
    let mut factories = Factories::new();
    for (vertex, described) in job.job.vertices.iter().enumerate() {
        let native = options.native.get(&described.uid).filter(|_| matches!(described.kind, VertexKind::Operator(_)));
        factories.extend(native.map(|native| (vertex, native.clone())));
    }
    for (&vertex, prepared) in &job.components {
        let uid = &job.job.vertices[vertex].uid;
        let Some(segment) = stored.get(uid) else {
            return Err(Trouble::transient(format!("operator {uid} is to be restored without a template")));
        };
        let image = job.storage.read(segment)?;
        // A template remembers the host that it was made for, and with it the counts of an execution.
        let host = operator_host(job, uid, metrics);
        let spec = job.operator(vertex);
        let template = Template::decode(&prepared.component, &spec.description, &image, &limits(spec), host);
        let template = template.map_err(|error| OfOperator(uid, error))?;
        let factory: Arc<dyn InstanceFactory> = match job.job.keeps_to_its_groups(vertex) {
            true => Arc::new(KeyedTemplate(template, job.job.key_groups)),
            false => Arc::new(template),
        };
        factories.insert(vertex, factory);
    }
    Ok(factories)
}

/// What was in flight to the head of a chain and falls to a subtask, with where it came from.
fn on_the_way(job: &PreparedJob, vertex: usize, subtask: u32) -> Result<Vec<(Origin, RestoredInFlight)>, Trouble> {
    let described = &job.job.vertices[vertex];
    let Some(state) = job.state(&described.uid) else { return Ok(Vec::new()) };
    let place = |subtask, parallelism| Place { subtask, parallelism, key_groups: job.job.key_groups };
    let now = place(subtask, described.parallelism);
    let mut found = Vec::new();
    for (old, then) in state.subtasks.iter().enumerate() {
        let then_place = place(old as u32, state.parallelism);
        for in_flight in &then.in_flight {
            // An edge that the job no longer has, or that divides rows by another rule: its rows were given up with --allow-dropped-state.
            let Some(edge) = edge_of(&job.job, vertex, in_flight) else { continue };
            let groups = in_flight.groups.map(|(start, end)| KeyGroupRange { start, end });
            let share = in_flight::share(edge.exchange, job.job.is_keyed(vertex), groups, then_place, now);
            if share == Share::None {
                continue;
            }
            let taken = in_flight::take(share, edge.exchange, then_place, in_flight.input, frames(job, in_flight)?);
            let taken = taken.map_err(|error| unreadable(in_flight, &error))?;
            if let Some(restored) = taken {
                found.push((origin_of(in_flight, edge.exchange), restored));
            }
        }
    }
    Ok(found)
}

fn frames(job: &PreparedJob, in_flight: &InFlightState) -> Result<Vec<Frame>, Trouble> {
    let bytes = job.storage.read(&in_flight.frames)?;
    wire::decode_all(&bytes).map_err(|error| unreadable(in_flight, &error))
}

fn unreadable(in_flight: &InFlightState, error: &dyn std::fmt::Display) -> Trouble {
    Trouble::damaged(format!("rows in flight in {}: {error}", in_flight.frames.file))
}

fn origin_of(in_flight: &InFlightState, exchange: Exchange) -> Origin {
    let InFlightState { from, output, input, sender, .. } = in_flight;
    Origin { from: from.clone(), output: *output, input: *input, sender: *sender, exchange }
}
