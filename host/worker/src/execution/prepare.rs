//! Everything that can be checked before a row is read: connectors' settings, components, compilation.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value};
use weir_connectors::{EventTime, NoTimeRule, SettingError, SinkFactory, SourceFactory, event_time_settings};
use weir_model::{Attempt, InstanceId, TaskId};
use weir_plan::{Diagnostics, Job, OperatorSpec, Topology, VertexKind};
use weir_protocol::manifest::instances_of;
use weir_protocol::{JobSpec, Placement, Prepare};
use weir_sandbox::{Component, InstanceLimits};
use weir_storage::{InstanceState, JobStorage, Manifest, OperatorState, SubtaskState};

use super::failure::Trouble;
use crate::{BuiltinConnectors, Connectors, WorkerOptions};

/// An operator's component, taken in.
pub(super) struct PreparedComponent {
    pub(super) component: Component,
    pub(super) name: String,
}

/// An execution whose job is read and whose components are compiled.
pub(super) struct PreparedJob {
    pub(super) message: Prepare,
    pub(super) job: Job,
    pub(super) topology: Topology,
    /// The tasks that run here.
    pub(super) tasks: Vec<TaskId>,
    pub(super) storage: JobStorage,
    pub(super) manifest: Option<Manifest>,
    pub(super) sources: BTreeMap<usize, Box<dyn SourceFactory>>,
    pub(super) event_times: BTreeMap<usize, (EventTime, NoTimeRule)>,
    pub(super) sinks: BTreeMap<usize, Box<dyn SinkFactory>>,
    pub(super) components: BTreeMap<usize, PreparedComponent>,
}

impl PreparedJob {
    /// What the checkpoint holds of a vertex.
    pub(super) fn state(&self, uid: &str) -> Option<&OperatorState> {
        self.manifest.as_ref().and_then(|manifest| manifest.operators.get(uid))
    }

    /// What it holds of a subtask that is still the same one.
    pub(super) fn subtask_state(&self, vertex: usize, subtask: u32) -> Option<&SubtaskState> {
        let vertex = &self.job.vertices[vertex];
        let state = self.state(&vertex.uid).filter(|state| state.parallelism == vertex.parallelism)?;
        state.subtasks.get(subtask as usize)
    }

    /// The tasks that run here, with chain and subtask.
    pub(super) fn subtasks(&self) -> impl Iterator<Item = (TaskId, usize, u32)> {
        self.tasks.iter().map(|&task| {
            let (chain, subtask) = self.topology.locate(task);
            (task, chain, subtask)
        })
    }

    /// Instances of the checkpoint that fall to a subtask, by the name they have from now on.
    pub(super) fn instances_of(&self, vertex: usize, subtask: u32) -> Vec<(InstanceId, &InstanceState)> {
        let operator = &self.job.vertices[vertex];
        let state = self.state(&operator.uid).filter(|_| matches!(operator.kind, VertexKind::Operator(_)));
        state.map_or_else(Vec::new, |state| instances_of(&self.job, vertex, state, subtask))
    }

    /// What the job file says of an operator with a component.
    pub(super) fn operator(&self, vertex: usize) -> &OperatorSpec {
        match &self.job.vertices[vertex].kind {
            VertexKind::Operator(spec) => spec,
            VertexKind::Source(_) | VertexKind::Sink(_) => unreachable!("only operators have components"),
        }
    }
}

/// The limits of an operator's instances.
pub(super) fn limits(spec: &OperatorSpec) -> InstanceLimits {
    let weir_plan::LimitsSpec { memory_bytes, memory_total_bytes, call } = spec.limits;
    InstanceLimits { memory_bytes, memory_total_bytes, call_deadline: call }
}

/// A connector of a job: its uid and one line about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectorLine {
    /// The source or sink.
    pub uid: String,
    /// What it reads or writes.
    pub description: String,
    /// What it promises.
    pub promise: String,
}

/// What a job reads and writes, and what readers of its output may rely on.
///
/// # Errors
/// All that is wrong with connectors' settings, at their places in the job file.
pub fn describe_connectors(job: &Job, job_dir: &Path) -> Result<Vec<ConnectorLine>, Diagnostics> {
    let found = connectors(job, job_dir, &BuiltinConnectors)?;
    let sources = found.sources.iter().map(|(&vertex, source)| {
        let promise = if source.is_replayable() { "replayable" } else { "cannot replay: rows in flight at a crash are lost" };
        (vertex, source.describe(), promise.to_owned())
    });
    let sinks = found.sinks.iter().map(|(&vertex, sink)| (vertex, sink.describe(), sink.guarantee().to_string()));
    let line = |(vertex, description, promise): (usize, String, String)| {
        let uid = job.vertices[vertex].uid.clone();
        ConnectorLine { uid, description, promise }
    };
    Ok(sources.chain(sinks).map(line).collect())
}

/// Checks the connectors' settings of a job and nothing else.
///
/// # Errors
/// All that is wrong with them, at their places in the job file.
pub fn check_connectors(job: &Job, job_dir: &Path) -> Result<(), Diagnostics> {
    connectors(job, job_dir, &BuiltinConnectors).map(drop)
}

/// Reads a job, takes its components in and looks for its checkpoints. Nothing is started, and nothing outside the compile
/// cache is written.
pub(super) fn prepare(options: &WorkerOptions, message: Prepare) -> Result<PreparedJob, Trouble> {
    let JobSpec { job_dir, .. } = &message.spec;
    let job = message.spec.load()?.with_edges_apart(&message.edges_apart);
    let topology = Topology::new(&job);
    let Connected { sources, event_times, sinks } = connectors(&job, Path::new(job_dir), &*options.connectors)?;
    let tasks = tasks_here(&topology, &message.placement, &options.name)?;
    let components = components(options, &message.spec, &job, &topology, &tasks)?;
    let storage = options.storages.open(&message.storage, &job.name)?;
    let manifest = read_manifest(options, &message, &storage)?;
    Ok(PreparedJob { message, job, topology, tasks, storage, manifest, sources, event_times, sinks, components })
}

/// The tasks that a placement has on a worker. What cannot be placed so is refused: the coordinator's job is another one then.
pub(crate) fn tasks_here(topology: &Topology, placement: &Placement, worker: &str) -> Result<Vec<TaskId>, Trouble> {
    let (placed, tasks) = (placement.tasks.len(), topology.tasks());
    if placed != tasks {
        return Err(Trouble::permanent(format!(
            "the coordinator has placed {placed} tasks of a job that has {tasks}; this is a bug in weir"
        )));
    }
    Ok(placement.tasks_of(worker))
}

/// The checkpoint to go on from. A worker that does not see the storage that the coordinator sees must not be taken for one
/// that sees damage.
fn read_manifest(options: &WorkerOptions, message: &Prepare, storage: &JobStorage) -> Result<Option<Manifest>, Trouble> {
    let attempt = message.execution.attempt;
    if attempt == Attempt(0) {
        return Ok(None);
    }
    let state = storage.state()?;
    if state.attempt < attempt {
        // Somebody may mount it; the job waits for that.
        return Err(Trouble::transient(format!(
            "worker {} does not see in {} what the coordinator has written there: the place of checkpoints must be one that all machines \
             share, such as a network folder mounted at the same path everywhere",
            options.name, message.storage
        )));
    }
    let Some(id) = message.restore else { return Ok(None) };
    match state.checkpoint(id) {
        Some(checkpoint) => Ok(Some(storage.stored_manifest(checkpoint)?)),
        None => Err(Trouble::transient(format!("checkpoint {id} is void: attempt {} of the job has begun", state.attempt))),
    }
}

#[derive(Default)]
struct Connected {
    sources: BTreeMap<usize, Box<dyn SourceFactory>>,
    event_times: BTreeMap<usize, (EventTime, NoTimeRule)>,
    sinks: BTreeMap<usize, Box<dyn SinkFactory>>,
}

fn connectors(job: &Job, job_dir: &Path, factory: &dyn Connectors) -> Result<Connected, Diagnostics> {
    let mut problems = Diagnostics::default();
    let mut found = Connected::default();
    for (index, vertex) in job.vertices.iter().enumerate() {
        let mut note = |prefix: &str, error: SettingError| {
            let key = if prefix.is_empty() { error.key.clone() } else { format!("{prefix}.{}", error.key) };
            problems.extend(job.diagnostic(&vertex.uid, &key, &error.message, error.hint.as_deref()));
        };
        match &vertex.kind {
            VertexKind::Source(spec) => {
                match factory.source(&spec.connector, &with_absolute_path(&spec.settings, job_dir)) {
                    Ok(source) => drop(found.sources.insert(index, source)),
                    Err(error) => note("", error),
                }
                match spec.event_time.as_ref().map(|spec| event_time_settings(&spec.settings)) {
                    Some(Ok(event_time)) => drop(found.event_times.insert(index, event_time)),
                    Some(Err(error)) => note("event_time", error),
                    None => {}
                }
            }
            VertexKind::Sink(spec) => match factory.sink(&spec.connector, &with_absolute_path(&spec.settings, job_dir)) {
                Ok(sink) => drop(found.sinks.insert(index, sink)),
                Err(error) => note("", error),
            },
            VertexKind::Operator(_) => {}
        }
    }
    if problems.is_empty() { Ok(found) } else { Err(problems) }
}

/// Relative paths in a job file start at its folder.
fn with_absolute_path(settings: &Map<String, Value>, job_dir: &Path) -> Map<String, Value> {
    let mut settings = settings.clone();
    // "~" is the home folder, wherever the job file is.
    if let Some(Value::String(path)) =
        settings.get_mut("path").filter(|path| !path.as_str().is_some_and(|path| path.starts_with('~')))
    {
        *path = job_dir.join(&*path).to_string_lossy().into_owned();
    }
    settings
}

/// The components of the operators that run here, each taken in once.
fn components(
    options: &WorkerOptions,
    spec: &JobSpec,
    job: &Job,
    topology: &Topology,
    tasks: &[TaskId],
) -> Result<BTreeMap<usize, PreparedComponent>, Trouble> {
    let here: std::collections::BTreeSet<usize> = tasks.iter().map(|task| topology.locate(*task).0).collect();
    let vertices = here.iter().flat_map(|chain| &topology.chains()[*chain].vertices);
    let mut taken: BTreeMap<String, Component> = BTreeMap::new();
    let mut components = BTreeMap::new();
    for &index in vertices {
        let vertex = &job.vertices[index];
        let VertexKind::Operator(operator) = &vertex.kind else { continue };
        if options.native.contains_key(&vertex.uid) {
            continue;
        }
        let reference = operator.component.to_string();
        let Some(pin) = spec.components.get(&reference) else {
            return Err(Trouble::permanent(format!(
                "the job was submitted without the component {reference} of operator {}",
                vertex.uid
            )));
        };
        let component = match taken.get(&reference) {
            Some(component) => component.clone(),
            None => {
                let missing =
                    |reason| Trouble::transient(format!("{} of operator {} is missing: {reason}", pin.name, vertex.uid));
                let bytes = options.components.fetch(pin.digest).map_err(missing)?;
                let refused = |error| {
                    let message = format!("component {}: {error}", pin.name);
                    Trouble::component(&vertex.uid, &job.diagnostic(&vertex.uid, "component", &message, None))
                };
                options.sandbox.take_in(&bytes).map_err(refused)?
            }
        };
        taken.insert(reference, component.clone());
        components.insert(index, PreparedComponent { component, name: pin.name.clone() });
    }
    Ok(components)
}
