//! Building the tasks of an execution that run here, with the state of a checkpoint in place.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use weir_checkpoint::align::Mode;
use weir_connectors::{ConnectorError, Sink, SinkContext, WatermarkGenerator};
use weir_model::{InstanceId, KeyGroupRange, OperatorUid, TaskId, WATERMARK_START, limits};
use weir_plan::{CheckpointMode, Exchange, MaxAhead, OnError, OperatorSpec, Port, SourceSpec, VertexKind};
use weir_protocol::manifest::{event_time_max, instances_of};
use weir_protocol::{Failure, FailureKind};
use weir_sandbox::{InstanceLimits, OperatorContext, SandboxError, Template};
use weir_storage::{InstanceState, ManifestKind, OperatorState, Segment, StorageError, StoredInstance, SubtaskState, again};
use weir_task::{
    AfterEnd, Clock, HeadSpec, InstanceFactory, Instances, NodeSpec, NodeWork, OnReject, SystemClock, Task, TaskHandle, TaskSpec,
    TaskStats, VertexStats,
};

use super::channels::{Channels, Ports, targets};
use super::host::{Metrics, OperatorHost};
use super::meters::{Meters, TaskMeter};
use super::persisters::{Persisters, failure};
use super::prepare::{PreparedJob, unusable};
use super::restore::Restored;
use super::runner::{before, damaged};
use super::tasks::on_lost;
use super::voice::{Voice, permanent, transient};
use crate::Network;
use crate::network::Outbound;
use crate::persist::{InstanceKey, Origin, Origins, RETRY_DELAY, TaskStart};
use crate::worker::Shared;

/// Number of the task in the name of a file that holds a template; counts down from here.
const TEMPLATE_TASK_MAX: u32 = u32::MAX;

/// Sinks by vertex and subtask.
type Sinks = BTreeMap<(usize, u32), Box<dyn Sink>>;

/// Tasks that are built and not started, with their counts.
pub(super) struct Built {
    pub(super) tasks: Vec<(Task, TaskHandle)>,
    pub(super) outbound: Vec<Outbound>,
    counts: Vec<TaskMeter>,
    metrics: Arc<Metrics>,
}

impl Built {
    /// The counts of the tasks.
    pub(super) fn meters(&self, network: Option<Arc<dyn Network>>) -> Meters {
        Meters { tasks: self.counts.clone(), metrics: self.metrics.clone(), network }
    }
}

pub(super) fn sandbox_failure(uid: &str, error: &SandboxError) -> Failure {
    match error {
        SandboxError::Open { reason, .. } => {
            Failure { kind: FailureKind::Configuration, uid: Some(uid.to_owned()), reason: reason.clone() }
        }
        SandboxError::Image(_) => damaged(format!("operator {uid}: {error}")),
        _ => transient(format!("operator {uid}: {error}")),
    }
}

pub(super) fn connector_failure(of: &str, error: &ConnectorError) -> Failure {
    let reason = format!("{of}: {error}");
    if error.is_permanent() { permanent(reason) } else { transient(reason) }
}

/// What an execution is built from.
pub(super) struct Deployer<'a> {
    pub(super) job: &'a PreparedJob,
    pub(super) shared: &'a Shared,
    pub(super) voice: &'a Arc<Voice>,
}

impl Deployer<'_> {
    pub(super) fn state(&self, uid: &str) -> Option<&OperatorState> {
        self.job.manifest.as_ref().and_then(|manifest| manifest.operators.get(uid))
    }

    /// Runs `open` of operators that have no template yet, and stores what came of it.
    pub(super) fn open(&self, uids: &[String], store: bool) -> Result<Vec<(String, Segment)>, Failure> {
        let mut stored = Vec::new();
        for (index, uid) in uids.iter().enumerate() {
            let Some((vertex, prepared)) =
                self.job.job.vertex(uid).and_then(|vertex| Some((vertex, self.job.components.get(&vertex)?)))
            else {
                return Err(transient(format!("operator {uid} was to be opened at a worker that does not run it")));
            };
            let VertexKind::Operator(spec) = &self.job.job.vertices[vertex].kind else {
                unreachable!("only operators have components")
            };
            let context = OperatorContext {
                job: self.job.job.name.clone(),
                operator: uid.clone(),
                component: prepared.name.clone(),
                config: spec.config.to_string(),
            };
            let host = self.host(uid, &Arc::default());
            let template = prepared.component.template(&context, &limits(spec), host);
            let template = template.map_err(|error| sandbox_failure(uid, &error))?;
            if store {
                let segment = self.store(&template, TEMPLATE_TASK_MAX - index as u32).map_err(|error| unusable(&error))?;
                stored.push((uid.clone(), segment));
            }
        }
        Ok(stored)
    }

    fn store(&self, template: &Template, number: u32) -> Result<Segment, StorageError> {
        let image = template.encode();
        let at = before(self.job.message.first_checkpoint);
        again(RETRY_DELAY, || {
            let mut writer = self.job.storage.writer(self.voice.execution().attempt, at, TaskId(number));
            let segment = writer.append(&image)?;
            writer.finish()?;
            Ok(segment)
        })
    }

    pub(super) fn host(&self, uid: &str, metrics: &Arc<Metrics>) -> Arc<OperatorHost> {
        let job = self.job.job.name.as_str().into();
        Arc::new(OperatorHost::new(job, uid.into(), metrics))
    }

    /// The tasks that run here, with chain and subtask.
    pub(super) fn subtasks(&self) -> impl Iterator<Item = (TaskId, usize, u32)> {
        self.job.tasks.iter().map(|&task| {
            let (chain, subtask) = self.job.topology.locate(task);
            (task, chain, subtask)
        })
    }

    /// Instances of the checkpoint that fall to a subtask, by the name they have from now on.
    pub(super) fn instances_of(&self, vertex: usize, subtask: u32) -> Vec<(InstanceId, &InstanceState)> {
        let state = self.state(&self.job.job.vertices[vertex].uid).filter(|_| self.job.components.contains_key(&vertex));
        state.map_or_else(Vec::new, |state| instances_of(&self.job.job, vertex, state, subtask))
    }

    /// Starts what makes snapshots durable.
    pub(super) fn persister(&self, restored: &Restored) -> Result<Persisters, Failure> {
        let job = &self.job.job;
        let mut tasks: BTreeMap<TaskId, TaskStart> = BTreeMap::new();
        for (task, chain, subtask) in self.subtasks() {
            let vertices = &self.job.topology.chains()[chain].vertices;
            let known = tasks.entry(task).or_default();
            for &vertex in vertices {
                let uid: OperatorUid = job.vertices[vertex].uid.as_str().into();
                for (id, instance) in self.instances_of(vertex, subtask) {
                    let key = InstanceKey { uid: uid.clone(), id };
                    known.instances.push((key, StoredInstance::restored(instance.chain.clone())));
                }
            }
            let channels = self.job.topology.channels().iter().filter(|channel| channel.to == task);
            known.origins = Origins {
                channels: channels.map(|channel| self.origin(channel)).collect(),
                restored: restored.in_flight[&task].iter().map(|(origin, _)| origin.clone()).collect(),
            };
        }
        Persisters::start(&self.job.storage, self.voice, tasks)
    }

    fn origin(&self, channel: &weir_plan::ChannelSpec) -> Origin {
        let edge = &self.job.job.edges[channel.edge];
        Origin {
            from: self.job.job.vertices[edge.from].uid.clone(),
            output: edge.port.number(),
            input: edge.input,
            sender: self.job.topology.locate(channel.from).1,
            exchange: edge.exchange,
        }
    }

    /// Builds the tasks. Sinks commit what the checkpoint holds for them before any task exists.
    pub(super) fn build(&self, mut restored: Restored, persister: &Persisters) -> Result<Built, Failure> {
        let mut sinks = self.sinks()?;
        let job = &self.job.job;
        let mut channels = Channels::new(job, &self.job.topology, &self.job.message.placement, &self.shared.options.name);
        if let Some(network) = self.shared.options.network.as_deref().filter(|_| !channels.inbound.is_empty()) {
            let inbound = std::mem::take(&mut channels.inbound);
            network.expect(self.voice.execution(), inbound, on_lost(self.voice)).map_err(transient)?;
        }
        let metrics = restored.metrics.clone();
        let mut built = Built { tasks: Vec::new(), outbound: channels.outbound, counts: Vec::new(), metrics };
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
        for (id, chain, subtask) in self.subtasks() {
            let Ports { signal, gate, sources, routers } = channels.ports.remove(&id).expect("a task that runs here has ports");
            let members = &self.job.topology.chains()[chain].vertices;
            let vertex_stats: Vec<Arc<VertexStats>> = members.iter().map(|_| Arc::default()).collect();
            let (head, first) = match &job.vertices[members[0]].kind {
                VertexKind::Source(spec) => (self.source(members[0], subtask, spec, &vertex_stats[0])?, 1),
                // It starts without watermarks: its channels may come from other tasks than at the checkpoint, and sources say
                // theirs again. Instances know what they were told.
                _ => {
                    let in_flight = restored.in_flight.remove(&id).unwrap_or_default();
                    let in_flight = in_flight.into_iter().map(|(_, restored)| restored).collect();
                    (HeadSpec::Gate { gate, channels: sources, restored: in_flight }, 0)
                }
            };
            let nodes = members[first..].iter().zip(&vertex_stats[first..]);
            let nodes = nodes.map(|(&vertex, stats)| self.node(vertex, subtask, &mut restored, &mut sinks, stats)).collect();
            let stats = Arc::new(TaskStats::default());
            let vertices = members.iter().map(|&vertex| job.vertices[vertex].uid.as_str().into()).zip(vertex_stats).collect();
            built.counts.push(TaskMeter { task: id, stats: stats.clone(), vertices });
            let spec = TaskSpec {
                id,
                name: self.job.topology.name(id),
                attempt: self.voice.execution().attempt,
                mode: match job.checkpoint.mode {
                    CheckpointMode::ExactlyOnce => Mode::ExactlyOnce,
                    CheckpointMode::AtLeastOnce => Mode::AtLeastOnce,
                },
                head,
                nodes,
                routers,
                signal,
                outlet: persister.outlet(),
                stats,
                clock: clock.clone(),
            };
            built.tasks.push(spec.build().map_err(|error| failure(&error))?);
        }
        Ok(built)
    }

    fn subtask_state(&self, vertex: usize, subtask: u32) -> Option<&SubtaskState> {
        let vertex = &self.job.job.vertices[vertex];
        let state = self.state(&vertex.uid).filter(|state| state.parallelism == vertex.parallelism)?;
        state.subtasks.get(subtask as usize)
    }

    fn source(&self, vertex: usize, subtask: u32, spec: &SourceSpec, stats: &Arc<VertexStats>) -> Result<HeadSpec, Failure> {
        let described = &self.job.job.vertices[vertex];
        let source = self.job.sources[&vertex]
            .create(subtask, described.parallelism)
            .map_err(|error| connector_failure(&described.uid, &error))?;
        let idle_after = spec.watermark.idle_after.map(|time| time.as_millis() as u64);
        let restore = self.state(&described.uid).map(|state| {
            // Positions of all subtasks: after a change of parallelism a split may have moved.
            let splits: BTreeMap<String, Value> = state.subtasks.iter().flat_map(|subtask| subtask.splits.clone()).collect();
            let own = self.subtask_state(vertex, subtask).and_then(|state| state.source_watermark);
            // Where splits have moved, no subtask may claim more event time than the one that had least.
            let least = state.subtasks.iter().filter_map(|subtask| subtask.source_watermark).min();
            (splits, own.or(least).unwrap_or(WATERMARK_START))
        });
        let max_ahead = match spec.watermark.max_ahead {
            MaxAhead::Of(ahead) => Some(ahead.as_millis() as u64),
            MaxAhead::Unset if self.job.sources[&vertex].is_live() => Some(limits::EVENT_TIME_AHEAD_MS_DEFAULT),
            MaxAhead::Unset | MaxAhead::Off => None,
        };
        let (event_time, no_time) = self.job.event_times.get(&vertex).cloned().unzip();
        let generator = WatermarkGenerator::new(spec.watermark.delay.as_millis() as u64, idle_after)
            .with_max_ahead(max_ahead)
            .with_no_time(no_time.unwrap_or_default());
        Ok(HeadSpec::Source {
            uid: described.uid.as_str().into(),
            source,
            event_time,
            generator,
            targets: targets(&self.job.job, &self.job.topology, vertex, Port::Output(0)),
            stats: stats.clone(),
            restore,
        })
    }

    /// The sinks of the subtasks that run here, with earlier leftovers removed. The first subtask of each takes back and
    /// commits what the checkpoint says for all.
    pub(super) fn sinks(&self) -> Result<Sinks, Failure> {
        let mut sinks = BTreeMap::new();
        for (_, chain, index) in self.subtasks() {
            let vertices = &self.job.topology.chains()[chain].vertices;
            for (&vertex, factory) in vertices.iter().filter_map(|vertex| self.job.sinks.get_key_value(vertex)) {
                sinks.insert((vertex, index), self.sink(vertex, index, &**factory)?);
            }
        }
        Ok(sinks)
    }

    fn sink(&self, vertex: usize, index: u32, factory: &dyn weir_connectors::SinkFactory) -> Result<Box<dyn Sink>, Failure> {
        let described = &self.job.job.vertices[vertex];
        let failed = |error| connector_failure(&format!("sink {}", described.uid), &error);
        let subtasks = self.state(&described.uid).into_iter().flat_map(|state| &state.subtasks);
        let mut held: Vec<_> = subtasks.flat_map(|subtask| &subtask.committables).collect();
        held.sort_by_key(|committable| committable.checkpoint);
        let keep: Vec<Value> = held.iter().map(|committable| committable.value.clone()).collect();
        let attempt = self.voice.execution().attempt;
        let context = SinkContext { uid: described.uid.clone(), index, parallelism: described.parallelism, attempt };
        let mut sink = factory.create(&context).map_err(failed)?;
        sink.recover(&keep).map_err(failed)?;
        if index == 0 {
            if let Some(checkpoint) = self.job.message.retract_after {
                let count = sink.retract(checkpoint).map_err(failed)?;
                if count > 0 {
                    tracing::warn!(sink = described.uid, count, "output was taken back, since its rows are written again");
                }
            }
            keep.iter().try_for_each(|committable| sink.commit(committable)).map_err(failed)?;
        }
        Ok(sink)
    }

    fn node(
        &self,
        vertex: usize,
        subtask: u32,
        restored: &mut Restored,
        sinks: &mut Sinks,
        stats: &Arc<VertexStats>,
    ) -> NodeSpec {
        let job = &self.job.job;
        let described = &job.vertices[vertex];
        let targets = |port| targets(job, &self.job.topology, vertex, port);
        let mut late_port = None;
        let (work, on_reject, outputs) = match &described.kind {
            VertexKind::Source(_) => unreachable!("a source is the head of its chain"),
            VertexKind::Sink(_) => {
                let sink = sinks.remove(&(vertex, subtask)).expect("every subtask of a sink was made");
                (NodeWork::Sink(sink), OnReject::Fail, Vec::new())
            }
            VertexKind::Operator(spec) => {
                let factory = match self.shared.options.native.get(&described.uid) {
                    Some(native) => native.clone(),
                    None => Arc::new(restored.templates[&vertex].clone()) as Arc<dyn InstanceFactory>,
                };
                let instances = restored.instances.remove(&(vertex, subtask)).unwrap_or_default();
                let after_end = self.after_end(vertex);
                let work = NodeWork::Operator {
                    factory,
                    instances: self.division(vertex, subtask),
                    restored: instances,
                    after_end,
                    call_rows: self.shared.call_rows.of(&job.name, &described.uid),
                };
                let on_reject = match spec.on_error {
                    OnError::Fail => OnReject::Fail,
                    OnError::DeadLetter => OnReject::DeadLetter,
                };
                late_port = spec.late_port();
                (work, on_reject, (0..spec.outputs.len() as u32).map(|port| targets(Port::Output(port))).collect())
            }
        };
        NodeSpec {
            uid: described.uid.as_str().into(),
            component: self.job.components.get(&vertex).map_or_else(String::new, |prepared| prepared.name.clone()),
            work,
            on_reject,
            outputs,
            late_port,
            dead_letters: targets(Port::DeadLetter),
            stats: stats.clone(),
        }
    }

    /// What instances of the checkpoint go on from, where they were told the end.
    fn after_end(&self, vertex: usize) -> AfterEnd {
        let Some(manifest) = &self.job.manifest else { return AfterEnd { event_time_max: WATERMARK_START, more: false } };
        AfterEnd {
            event_time_max: event_time_max(&self.job.job, manifest, vertex),
            // A job that had finished is only built if its sources have more.
            more: manifest.kind == ManifestKind::Final,
        }
    }

    fn division(&self, vertex: usize, subtask: u32) -> Instances {
        let job = &self.job.job;
        if !job.is_keyed(vertex) {
            return Instances::Single(subtask);
        }
        let groups = KeyGroupRange::of(subtask, job.key_groups, job.vertices[vertex].parallelism);
        // Rows of a broadcast input reach every instance, so all must be there to remember them.
        let eager = job.edges.iter().any(|edge| edge.to == vertex && edge.exchange == Exchange::Broadcast);
        Instances::Keyed { groups, eager }
    }
}

pub(super) fn limits(spec: &OperatorSpec) -> InstanceLimits {
    let weir_plan::LimitsSpec { memory_bytes, memory_total_bytes, call } = spec.limits;
    InstanceLimits { memory_bytes, memory_total_bytes, call_deadline: call }
}
