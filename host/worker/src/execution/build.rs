//! Building the tasks of an execution that run here, with the state of a checkpoint in place.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use weir_checkpoint::align::Mode;
use weir_connectors::WatermarkGenerator;
use weir_model::{KeyGroupRange, OperatorUid, TaskId, WATERMARK_START, limits};
use weir_plan::{CheckpointMode, Exchange, MaxAhead, OnError, Port, SourceSpec, VertexKind};
use weir_protocol::manifest::event_time_max;
use weir_storage::{Committable, ManifestKind, StoredInstance};
use weir_task::{
    AfterEnd, HeadSpec, Instances, NodeSpec, NodeWork, OnReject, Task, TaskHandle, TaskSpec, TaskStats, VertexStats,
};

use super::channels::{Channels, Ports, targets};
use super::committers::{CommitLanes, RestoredCommits};
use super::failure::{OfConnector, Trouble};
use super::fill::{Fill, InstancesBySubtask};
use super::lanes::{PersistLanes, SeatedLane};
use super::meters::{Meters, TaskMeter};
use super::prepare::PreparedJob;
use super::restore::LoadedState;
use super::sinks::{self, HeldByTask, Sinks};
use super::voice::{Voice, on_lost};
use crate::context::WorkerContext;
use crate::executor::{Place, PlaceRole, Seat};
use crate::network::Outbound;
use crate::persist::{InstanceKey, Origin, Origins, TaskStart};

/// A task that is built and not started.
pub(super) struct BuiltTask {
    pub(super) task: Task,
    pub(super) handle: TaskHandle,
    pub(super) seat: Box<dyn Seat>,
}

/// Everything of an execution that runs here, before it does.
pub(super) struct Built {
    pub(super) tasks: Vec<BuiltTask>,
    pub(super) persist: PersistLanes,
    pub(super) commit: CommitLanes,
    pub(super) fill: Arc<Fill>,
    pub(super) lanes: Vec<SeatedLane>,
    pub(super) outbound: Vec<Outbound>,
    pub(super) meters: Meters,
}

/// What tasks are built from. What was restored is taken out piece by piece.
struct Builder<'a> {
    job: &'a PreparedJob,
    context: &'a WorkerContext,
    voice: &'a Arc<Voice>,
    loaded: LoadedState,
    instances: InstancesBySubtask,
}

/// Builds the tasks. The sinks have taken back what is to be taken back.
pub(super) fn build(
    job: &PreparedJob,
    context: &WorkerContext,
    voice: &Arc<Voice>,
    loaded: LoadedState,
    sinks: Sinks,
) -> Result<Built, Trouble> {
    let held = sinks::to_commit(job);
    let (persist, mut lanes) = PersistLanes::new(&job.storage, voice, &context.options, starts(job, &loaded, &held));
    let (commit, committing) =
        CommitLanes::new(voice, &context.options, &persist, sinks::by_task(job, sinks), restored(job, held).as_ref());
    lanes.extend(committing);
    let metrics = loaded.metrics.clone();
    let seats: BTreeMap<TaskId, Box<dyn Seat>> = job.tasks.iter().map(|&id| (id, seat(job, context, voice, id))).collect();
    let (fill, instances) = Fill::new(job, &loaded.factories, &seats);
    lanes.extend(fill.lanes(voice, &context.options));
    let mut builder = Builder { job, context, voice, loaded, instances };
    let mut channels = Channels::new(&job.job, &job.topology, &job.message.placement, &seats);
    if let Some(network) = context.options.network.as_deref().filter(|_| !channels.inbound.is_empty()) {
        let inbound = std::mem::take(&mut channels.inbound);
        network.expect(voice.execution(), inbound, on_lost(voice)).map_err(Trouble::transient)?;
    }
    let (mut tasks, mut counts) = (Vec::new(), Vec::new());
    for (id, seat) in seats {
        let ports = channels.ports.remove(&id).expect("a task that runs here has ports");
        let (spec, meter) = builder.task(id, ports, &persist)?;
        counts.push(meter);
        let (task, handle) = Task::build(spec).map_err(|error| Trouble::from(&error))?;
        tasks.push(BuiltTask { task, handle, seat });
    }
    let meters = Meters { tasks: counts, metrics, network: context.options.network.clone(), fill: fill.bytes().clone() };
    Ok(Built { tasks, persist, commit, fill, lanes, outbound: channels.outbound, meters })
}

/// What those who store the snapshots of tasks know of them at the start.
fn starts(job: &PreparedJob, loaded: &LoadedState, held: &HeldByTask) -> BTreeMap<TaskId, TaskStart> {
    let mut starts: BTreeMap<TaskId, TaskStart> = BTreeMap::new();
    for (task, chain, subtask) in job.subtasks() {
        let start = starts.entry(task).or_default();
        for &vertex in &job.topology.chains()[chain].vertices {
            let uid: OperatorUid = job.job.vertices[vertex].uid.as_str().into();
            for (id, instance) in job.instances_of(vertex, subtask) {
                let key = InstanceKey { uid: uid.clone(), id };
                start.instances.push((key, StoredInstance::restored(instance.memory().to_vec())));
            }
        }
        let channels = job.topology.channels().iter().filter(|channel| channel.to == task);
        start.origins = Origins {
            channels: channels.map(|channel| origin(job, channel)).collect(),
            restored: loaded.in_flight[&task].iter().map(|(origin, _)| origin.clone()).collect(),
        };
        start.held = held.get(&task).cloned().unwrap_or_default();
    }
    starts
}

/// What sinks commit of the checkpoint once it is known to be whole.
fn restored(job: &PreparedJob, held: HeldByTask) -> Option<RestoredCommits> {
    let of_sink = |(uid, held): (OperatorUid, Vec<Committable>)| {
        (uid.to_string(), held.into_iter().map(|held| held.value).collect::<Vec<_>>())
    };
    let of_task = |(task, held): (TaskId, Vec<_>)| (task, held.into_iter().map(of_sink).collect());
    let commits = held.into_iter().map(of_task).collect();
    job.message.restore.map(|checkpoint| RestoredCommits { checkpoint, commits })
}

fn origin(job: &PreparedJob, channel: &weir_plan::ChannelSpec) -> Origin {
    let edge = &job.job.edges[channel.edge];
    Origin {
        from: job.job.vertices[edge.from].uid.clone(),
        output: edge.port.number(),
        input: edge.input,
        sender: job.topology.locate(channel.from).1,
        exchange: edge.exchange,
    }
}

fn seat(job: &PreparedJob, context: &WorkerContext, voice: &Voice, task: TaskId) -> Box<dyn Seat> {
    let name = job.topology.name(task);
    context.options.executor.seat(&Place { execution: voice.execution().clone(), role: PlaceRole::Task(task), name })
}

impl Builder<'_> {
    fn task(&mut self, id: TaskId, ports: Ports, persist: &PersistLanes) -> Result<(TaskSpec, TaskMeter), Trouble> {
        let Ports { wake, gate, sources, routers } = ports;
        let job = &self.job.job;
        let (chain, subtask) = self.job.topology.locate(id);
        let members = &self.job.topology.chains()[chain].vertices;
        let vertex_stats: Vec<Arc<VertexStats>> = members.iter().map(|_| Arc::default()).collect();
        let (head, first) = match &job.vertices[members[0]].kind {
            VertexKind::Source(spec) => (self.source(members[0], subtask, spec, &vertex_stats[0])?, 1),
            // It starts without watermarks: its channels may come from other tasks than at the checkpoint, and sources say
            // theirs again. Instances know what they were told.
            _ => {
                let in_flight = self.loaded.in_flight.remove(&id).unwrap_or_default();
                let restored = in_flight.into_iter().map(|(_, restored)| restored).collect();
                (HeadSpec::Gate { gate, channels: sources, restored }, 0)
            }
        };
        let nodes = members[first..].iter().zip(&vertex_stats[first..]);
        let nodes = nodes.map(|(&vertex, stats)| self.node(vertex, subtask, stats)).collect::<Result<_, _>>()?;
        let stats = Arc::new(TaskStats::default());
        let vertices = members.iter().map(|&vertex| job.vertices[vertex].uid.as_str().into()).zip(vertex_stats).collect();
        let meter = TaskMeter { task: id, stats: stats.clone(), vertices };
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
            wake,
            outlet: persist.outlet(),
            stats,
            clock: self.context.options.executor.clock(),
        };
        Ok((spec, meter))
    }

    fn source(&self, vertex: usize, subtask: u32, spec: &SourceSpec, stats: &Arc<VertexStats>) -> Result<HeadSpec, Trouble> {
        let described = &self.job.job.vertices[vertex];
        let source = self.job.sources[&vertex]
            .create(subtask, described.parallelism)
            .map_err(|error| OfConnector(&described.uid, error))?;
        let idle_after = spec.watermark.idle_after.map(|time| time.as_millis() as u64);
        let restore = self.job.state(&described.uid).map(|state| {
            // Positions of all subtasks: after a change of parallelism a split may have moved.
            let splits: BTreeMap<String, Value> = state.subtasks.iter().flat_map(|subtask| subtask.splits.clone()).collect();
            let own = self.job.subtask_state(vertex, subtask).and_then(|state| state.source_watermark);
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

    fn node(&mut self, vertex: usize, subtask: u32, stats: &Arc<VertexStats>) -> Result<NodeSpec, Trouble> {
        let job = &self.job.job;
        let described = &job.vertices[vertex];
        let targets = |port| targets(job, &self.job.topology, vertex, port);
        let mut late_port = None;
        let (work, on_reject, outputs) = match &described.kind {
            VertexKind::Source(_) => unreachable!("a source is the head of its chain"),
            VertexKind::Sink(_) => {
                let sink = self.job.sinks[&vertex].create(&sinks::context(self.job, vertex, subtask));
                let sink = sink.map_err(|error| OfConnector(&described.uid, error))?;
                (NodeWork::Sink(sink), OnReject::Fail, Vec::new())
            }
            VertexKind::Operator(spec) => {
                let work = NodeWork::Operator {
                    factory: self.loaded.factories[&vertex].clone(),
                    instances: self.division(vertex, subtask),
                    restored: self.instances.remove(&(vertex, subtask)).unwrap_or_default(),
                    after_end: self.after_end(vertex),
                    call_rows: self.context.call_rows.of(&job.name, &described.uid),
                };
                let on_reject = match spec.on_error {
                    OnError::Fail => OnReject::Fail,
                    OnError::DeadLetter => OnReject::DeadLetter,
                };
                late_port = spec.late_port();
                (work, on_reject, (0..spec.description.outputs.len() as u32).map(|port| targets(Port::Output(port))).collect())
            }
        };
        Ok(NodeSpec {
            uid: described.uid.as_str().into(),
            component: self.job.components.get(&vertex).map_or_else(String::new, |prepared| prepared.name.clone()),
            work,
            on_reject,
            outputs,
            late_port,
            dead_letters: targets(Port::DeadLetter),
            stats: stats.clone(),
        })
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
