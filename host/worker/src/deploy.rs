//! Building the tasks of an execution, with the state of a checkpoint in place.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use weir_checkpoint::align::Mode;
use weir_connectors::{ConnectorError, Sink, SinkContext, WatermarkGenerator};
use weir_model::{Attempt, CheckpointId, InstanceId, KeyGroupRange, OperatorUid, TaskId, WATERMARK_START};
use weir_plan::{CheckpointMode, Exchange, OnError, OperatorSpec, Port, SourceSpec, VertexKind};
use weir_sandbox::{InstanceLimits, OperatorContext, SandboxError, Template};
use weir_storage::{ErrorKind, JobStorage, Manifest, OperatorState, Segment, StorageError, SubtaskState};
use weir_task::{
    HeadSpec, InstanceFactory, Instances, NodeSpec, NodeWork, OnReject, RestoredInstance, SystemClock, Task, TaskError,
    TaskHandle, TaskSpec, TaskStats, VertexStats,
};

use crate::host::{Metrics, OperatorHost};
use crate::manifest::instance_id;
use crate::persist::{InstanceKey, Persister, StoredInstance};
use crate::prepare::PreparedJob;
use crate::topology::{Ports, Topology};

/// Why tasks could not be built.
#[derive(Debug)]
pub(crate) enum DeployError {
    /// The checkpoint is damaged: an older one may do.
    Damaged(String),
    /// Something outside does not work now.
    Failed(String),
    /// It will not work before a person has changed something.
    ForGood(String),
    /// An operator does not accept its configuration.
    Configuration {
        /// The operator.
        uid: String,
        /// What it says.
        reason: String,
    },
}

impl DeployError {
    fn storage(error: &StorageError) -> DeployError {
        match error.kind() {
            ErrorKind::Damaged => DeployError::Damaged(error.to_string()),
            _ => DeployError::Failed(error.to_string()),
        }
    }

    fn sandbox(uid: &str, error: &SandboxError) -> DeployError {
        if let SandboxError::Open { reason, .. } = error {
            return DeployError::Configuration { uid: uid.to_owned(), reason: reason.clone() };
        }
        let reason = format!("operator {uid}: {error}");
        if matches!(error, SandboxError::Image(_)) { DeployError::Damaged(reason) } else { DeployError::Failed(reason) }
    }

    fn connector(of: &str, error: &ConnectorError) -> DeployError {
        let reason = format!("{of}: {error}");
        if error.is_permanent() { DeployError::ForGood(reason) } else { DeployError::Failed(reason) }
    }
}

impl From<TaskError> for DeployError {
    fn from(error: TaskError) -> DeployError {
        let reason = error.to_string();
        if error.is_permanent() { DeployError::ForGood(reason) } else { DeployError::Failed(reason) }
    }
}

/// Templates of the job's operators, kept from execution to execution.
#[derive(Default)]
pub(crate) struct TemplateCache {
    templates: BTreeMap<String, (Template, Option<Segment>)>,
}

/// Sinks by vertex and subtask.
type Sinks = BTreeMap<(usize, u32), Box<dyn Sink>>;

/// Restored instances, by vertex and subtask.
pub(crate) type Images = BTreeMap<(usize, u32), Vec<RestoredInstance>>;

/// Tasks that are built and not started, with their counts.
pub(crate) struct Deployment {
    pub(crate) tasks: Vec<(Task, TaskHandle)>,
    /// By vertex and subtask.
    pub(crate) vertex_stats: Vec<Vec<Arc<VertexStats>>>,
    pub(crate) task_stats: Vec<Arc<TaskStats>>,
}

/// What an execution is built from.
pub(crate) struct Deployer<'a> {
    pub(crate) job: &'a PreparedJob,
    pub(crate) topology: &'a Topology,
    pub(crate) storage: &'a JobStorage,
    pub(crate) manifest: Option<&'a Manifest>,
    pub(crate) attempt: Attempt,
    pub(crate) metrics: &'a Arc<Metrics>,
    /// Set where rows after this checkpoint will be written again although sinks have made them visible.
    pub(crate) retract_after: Option<CheckpointId>,
}

impl Deployer<'_> {
    fn state(&self, uid: &str) -> Option<&OperatorState> {
        self.manifest.and_then(|manifest| manifest.operators.get(uid))
    }

    /// Templates of all operators: those of the checkpoint, those of an earlier execution, or new ones. Running `open` of a
    /// new one happens here. Gives those that are not stored yet.
    pub(crate) fn templates(&self, cache: &mut TemplateCache) -> Result<Vec<(OperatorUid, Template)>, DeployError> {
        let mut new = Vec::new();
        for (&index, prepared) in &self.job.components {
            let vertex = &self.job.job.vertices[index];
            let VertexKind::Operator(spec) = &vertex.kind else { unreachable!("only operators have components") };
            let digest = prepared.component.digest().to_string();
            let stored = self
                .state(&vertex.uid)
                .filter(|state| {
                    state
                        .component
                        .as_ref()
                        .is_some_and(|component| component.digest == digest && component.config == spec.config)
                })
                .and_then(|state| state.template.clone());
            if cache
                .templates
                .get(&vertex.uid)
                .is_some_and(|(_, held)| *held == stored && (stored.is_some() || self.manifest.is_none()))
            {
                if stored.is_none() {
                    new.push((vertex.uid.as_str().into(), cache.templates[&vertex.uid].0.clone()));
                }
                continue;
            }
            let limits = InstanceLimits { memory_bytes: spec.limits.memory_bytes, call_deadline: spec.limits.call };
            let host = OperatorHost {
                job: self.job.job.name.as_str().into(),
                uid: vertex.uid.as_str().into(),
                metrics: self.metrics.clone(),
            };
            let host = Arc::new(host);
            let template = match &stored {
                Some(segment) => {
                    let image = self.storage.read(segment).map_err(|error| DeployError::storage(&error))?;
                    prepared.component.restore_template(&image, &limits, host)
                }
                None => prepared.component.template(&self.context(&vertex.uid, &prepared.name, spec), &limits, host),
            };
            let template = template.map_err(|error| DeployError::sandbox(&vertex.uid, &error))?;
            if stored.is_none() {
                new.push((vertex.uid.as_str().into(), template.clone()));
            }
            cache.templates.insert(vertex.uid.clone(), (template, stored));
        }
        Ok(new)
    }

    fn context(&self, uid: &str, component: &str, spec: &OperatorSpec) -> OperatorContext {
        OperatorContext {
            job: self.job.job.name.clone(),
            operator: uid.to_owned(),
            component: component.to_owned(),
            config: spec.config.to_string(),
        }
    }

    /// The chains of stored images by task, which new captures follow.
    pub(crate) fn stored_instances(&self) -> BTreeMap<TaskId, Vec<(InstanceKey, StoredInstance)>> {
        let mut by_task: BTreeMap<TaskId, Vec<(InstanceKey, StoredInstance)>> = BTreeMap::new();
        for (chain, subtask) in self.subtasks() {
            for &vertex in &self.topology.chains[chain].vertices {
                let uid: OperatorUid = self.job.job.vertices[vertex].uid.as_str().into();
                for (id, instance) in self.instances_of(vertex, subtask) {
                    let key = InstanceKey { uid: uid.clone(), id };
                    by_task
                        .entry(self.topology.task(chain, subtask))
                        .or_default()
                        .push((key, StoredInstance::restored(instance.chain.clone())));
                }
            }
        }
        by_task
    }

    fn subtasks(&self) -> impl Iterator<Item = (usize, u32)> {
        self.topology
            .chains
            .iter()
            .enumerate()
            .flat_map(|(index, chain)| (0..chain.parallelism).map(move |subtask| (index, subtask)))
    }

    /// Instances of the checkpoint that fall to a subtask.
    fn instances_of(&self, vertex: usize, subtask: u32) -> Vec<(InstanceId, &weir_storage::InstanceState)> {
        let vertex_spec = &self.job.job.vertices[vertex];
        let Some(state) = self.state(&vertex_spec.uid).filter(|_| self.job.components.contains_key(&vertex)) else {
            return Vec::new();
        };
        let groups = KeyGroupRange::of(subtask, self.job.job.key_groups, vertex_spec.parallelism);
        let keyed = self.job.job.is_keyed(vertex);
        let owned = |id: InstanceId| match id {
            InstanceId::KeyGroup(group) => keyed && groups.contains(group),
            InstanceId::Subtask(index) => !keyed && index == subtask && state.parallelism == vertex_spec.parallelism,
        };
        let instances = state.instances.iter().filter_map(|(name, instance)| Some((instance_id(name)?, instance)));
        instances.filter(|(id, _)| owned(*id)).collect()
    }

    /// Reads all images of the checkpoint and restores their instances. Whatever of the checkpoint is damaged shows here,
    /// before anything is committed that an older checkpoint would write again.
    pub(crate) fn images(&self, cache: &TemplateCache) -> Result<Images, DeployError> {
        let mut images = Images::new();
        for (chain, subtask) in self.subtasks() {
            for &vertex in &self.topology.chains[chain].vertices {
                if let Some((template, _)) = cache.templates.get(&self.job.job.vertices[vertex].uid) {
                    images.insert((vertex, subtask), self.restored(vertex, subtask, template)?);
                }
            }
        }
        Ok(images)
    }

    /// Builds all tasks. Sinks commit what the checkpoint holds for them before any task exists.
    pub(crate) fn build(
        &self,
        cache: &TemplateCache,
        mut images: Images,
        persister: &Persister,
    ) -> Result<Deployment, DeployError> {
        let mut sinks = self.sinks()?;
        let vertices = &self.job.job.vertices;
        let vertex_stats: Vec<Vec<Arc<VertexStats>>> =
            vertices.iter().map(|vertex| (0..vertex.parallelism).map(|_| Arc::default()).collect()).collect();
        let mut ports: Vec<Option<Ports>> = self.topology.connect(&self.job.job).into_iter().map(Some).collect();
        let clock = Arc::new(SystemClock::default());
        let mut deployment = Deployment { tasks: Vec::new(), vertex_stats, task_stats: Vec::new() };
        for (chain, subtask) in self.subtasks() {
            let id = self.topology.task(chain, subtask);
            let Ports { signal, gate, inputs, routers } = ports[id.0 as usize].take().expect("every task is built once");
            let members = &self.topology.chains[chain].vertices;
            let head_stats = &deployment.vertex_stats;
            let (head, rest) = match &vertices[members[0]].kind {
                VertexKind::Source(spec) => {
                    (self.source(members[0], subtask, spec, &head_stats[members[0]][subtask as usize])?, &members[1..])
                }
                _ => {
                    // It starts without watermarks: its channels may come from other tasks than at the checkpoint, and sources say
                    // theirs again. Instances know what they were told.
                    (HeadSpec::Gate { gate, inputs, restored: Vec::new() }, &members[..])
                }
            };
            let mut nodes = Vec::new();
            for &vertex in rest {
                let restored = images.remove(&(vertex, subtask)).unwrap_or_default();
                let stats = &deployment.vertex_stats[vertex][subtask as usize];
                nodes.push(self.node(vertex, subtask, cache, restored, &mut sinks, stats));
            }
            let names: Vec<&str> = members.iter().map(|&vertex| vertices[vertex].uid.as_str()).collect();
            let stats = Arc::new(TaskStats::default());
            deployment.task_stats.push(stats.clone());
            let mode = match self.job.job.checkpoint.mode {
                CheckpointMode::ExactlyOnce => Mode::ExactlyOnce,
                CheckpointMode::AtLeastOnce => Mode::AtLeastOnce,
            };
            let name = format!("{}[{subtask}]", names.join("+"));
            let spec = TaskSpec {
                id,
                name,
                attempt: self.attempt,
                mode,
                head,
                nodes,
                routers,
                signal,
                outlet: persister.outlet(),
                stats,
                clock: clock.clone(),
            };
            deployment.tasks.push(spec.build()?);
        }
        Ok(deployment)
    }

    /// Commits what a checkpoint holds, where nothing is to be run: the job had finished.
    pub(crate) fn commit_only(&self) -> Result<(), DeployError> {
        self.sinks().map(drop)
    }

    fn subtask_state(&self, vertex: usize, subtask: u32) -> Option<&SubtaskState> {
        let vertex = &self.job.job.vertices[vertex];
        let state = self.state(&vertex.uid).filter(|state| state.parallelism == vertex.parallelism)?;
        state.subtasks.get(subtask as usize)
    }

    fn source(&self, vertex: usize, subtask: u32, spec: &SourceSpec, stats: &Arc<VertexStats>) -> Result<HeadSpec, DeployError> {
        let described = &self.job.job.vertices[vertex];
        let source = self.job.sources[&vertex]
            .create(subtask, described.parallelism)
            .map_err(|error| DeployError::connector(&described.uid, &error))?;
        let idle_after = spec.watermark.idle_after.map(|time| time.as_millis() as u64);
        let restore = self.state(&described.uid).map(|state| {
            // Positions of all subtasks: after a change of parallelism a split may have moved.
            let splits: BTreeMap<String, Value> = state.subtasks.iter().flat_map(|subtask| subtask.splits.clone()).collect();
            let own = self.subtask_state(vertex, subtask).and_then(|state| state.source_watermark);
            // Where splits have moved, no subtask may claim more event time than the one that had least.
            let least = state.subtasks.iter().filter_map(|subtask| subtask.source_watermark).min();
            (splits, own.or(least).unwrap_or(WATERMARK_START))
        });
        Ok(HeadSpec::Source {
            uid: described.uid.as_str().into(),
            source,
            event_time: self.job.event_times.get(&vertex).cloned(),
            generator: WatermarkGenerator::new(spec.watermark.delay.as_millis() as u64, idle_after),
            targets: self.topology.targets(&self.job.job, vertex, Port::Output(0)),
            stats: stats.clone(),
            restore,
        })
    }

    /// All sinks, with earlier leftovers removed and everything of the checkpoint committed.
    fn sinks(&self) -> Result<Sinks, DeployError> {
        let mut sinks = BTreeMap::new();
        for (&vertex, factory) in &self.job.sinks {
            let described = &self.job.job.vertices[vertex];
            let failed = |error| DeployError::connector(&format!("sink {}", described.uid), &error);
            let mut held: Vec<_> = self
                .state(&described.uid)
                .into_iter()
                .flat_map(|state| &state.subtasks)
                .flat_map(|subtask| &subtask.committables)
                .collect();
            held.sort_by_key(|committable| committable.checkpoint);
            let keep: Vec<Value> = held.iter().map(|committable| committable.value.clone()).collect();
            for index in 0..described.parallelism {
                let context =
                    SinkContext { uid: described.uid.clone(), index, parallelism: described.parallelism, attempt: self.attempt };
                let mut sink = factory.create(&context).map_err(failed)?;
                sink.recover(&keep).map_err(failed)?;
                if let Some(checkpoint) = self.retract_after.filter(|_| index == 0) {
                    let count = sink.retract(checkpoint).map_err(failed)?;
                    if count > 0 {
                        tracing::warn!(sink = described.uid, count, "output was taken back, since its rows are written again");
                    }
                }
                if index == 0 {
                    keep.iter().try_for_each(|committable| sink.commit(committable)).map_err(failed)?;
                }
                sinks.insert((vertex, index), sink);
            }
        }
        Ok(sinks)
    }

    fn node(
        &self,
        vertex: usize,
        subtask: u32,
        cache: &TemplateCache,
        restored: Vec<RestoredInstance>,
        sinks: &mut Sinks,
        stats: &Arc<VertexStats>,
    ) -> NodeSpec {
        let job = &self.job.job;
        let described = &job.vertices[vertex];
        let targets = |port| self.topology.targets(job, vertex, port);
        let (work, on_reject, outputs) = match &described.kind {
            VertexKind::Source(_) => unreachable!("a source is the head of its chain"),
            VertexKind::Sink(_) => {
                let sink = sinks.remove(&(vertex, subtask)).expect("every subtask of a sink was made");
                (NodeWork::Sink(sink), OnReject::Fail, Vec::new())
            }
            VertexKind::Operator(spec) => {
                let factory = match self.job.options.native.get(&described.uid) {
                    Some(native) => native.clone(),
                    None => Arc::new(cache.templates[&described.uid].0.clone()) as Arc<dyn InstanceFactory>,
                };
                let work = NodeWork::Operator { factory, instances: self.instances(vertex, subtask), restored };
                let on_reject = match spec.on_error {
                    OnError::Fail => OnReject::Fail,
                    OnError::DeadLetter => OnReject::DeadLetter,
                };
                (work, on_reject, (0..spec.outputs.len() as u32).map(|port| targets(Port::Output(port))).collect())
            }
        };
        NodeSpec {
            uid: described.uid.as_str().into(),
            component: self.job.components.get(&vertex).map_or_else(String::new, |prepared| prepared.name.clone()),
            work,
            on_reject,
            outputs,
            dead_letters: targets(Port::DeadLetter),
            stats: stats.clone(),
        }
    }

    fn instances(&self, vertex: usize, subtask: u32) -> Instances {
        let job = &self.job.job;
        if !job.is_keyed(vertex) {
            return Instances::Single(subtask);
        }
        let groups = KeyGroupRange::of(subtask, job.key_groups, job.vertices[vertex].parallelism);
        // Rows of a broadcast input reach every instance, so all must be there to remember them.
        let eager = job.edges.iter().any(|edge| edge.to == vertex && edge.exchange == Exchange::Broadcast);
        Instances::Keyed { groups, eager }
    }

    fn restored(&self, vertex: usize, subtask: u32, template: &Template) -> Result<Vec<RestoredInstance>, DeployError> {
        let uid = &self.job.job.vertices[vertex].uid;
        let mut restored = Vec::new();
        for (id, state) in self.instances_of(vertex, subtask) {
            let read = |segment| self.storage.read(segment).map_err(|error| DeployError::storage(&error));
            let images = state.chain.iter().map(read).collect::<Result<Vec<_>, DeployError>>()?;
            let images: Vec<&[u8]> = images.iter().map(|image| &image[..]).collect();
            // One without images is as its template: it was never called, or keeps no state.
            let instance = if images.is_empty() { template.instantiate() } else { template.restore(&images) };
            let instance = instance.map_err(|error| DeployError::sandbox(uid, &error))?;
            restored.push(RestoredInstance {
                id,
                instance: Box::new(instance),
                watermark: state.watermark,
                finished: state.finished,
            });
        }
        Ok(restored)
    }
}
