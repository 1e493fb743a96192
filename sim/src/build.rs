//! Building the tasks of an execution on a worker, with the state of a checkpoint in place: what `weir_worker` does with
//! components, here with native operators.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde_json::Value;
use weir_channel::{Limits, wire};
use weir_checkpoint::align::Mode as AlignMode;
use weir_connectors::{Sink, WatermarkGenerator};
use weir_model::{Attempt, InstanceId, KeyGroupRange, TaskId, WATERMARK_START};
use weir_plan::{Destination, Exchange, Job, Port, Topology, VertexKind};
use weir_protocol::{Failure, manifest};
use weir_storage::{InFlightState, InstanceState, Manifest, OperatorState, Segment, StoredInstance};
use weir_task::in_flight::{self, Place, Share};
use weir_task::{
    Gate, GateChannel, HeadSpec, Instances, NodeSpec, NodeWork, OnReject, RestoredInFlight, RestoredInstance, Router, Sender,
    Signal, Target as Row, Task as RunningTask, TaskSpec,
};

use crate::operators::{Factory, Kind};
use crate::oracle::is_exactly_once;
use crate::outside::SimSink;
use crate::persister::{Origin, Persister};
use crate::scenario::{Mode, Mutation};
use crate::source::SimSource;
use crate::wire::Wire;
use crate::worker::{Execution, SimTask, SimWake, Target, again, name_of, number_of, transient};
use crate::world::World;

/// A job as it runs in one attempt.
pub(crate) struct Planned {
    pub(crate) job: Job,
    pub(crate) topology: Topology,
}

/// What of a checkpoint was read.
#[derive(Default)]
pub(crate) struct Restored {
    instances: BTreeMap<(usize, u32), Vec<RestoredInstance>>,
    in_flight: BTreeMap<TaskId, Vec<(Origin, RestoredInFlight)>>,
}

type Sinks = BTreeMap<(usize, u32), Box<dyn Sink>>;

fn state<'a>(manifest: Option<&'a Manifest>, uid: &str) -> Option<&'a OperatorState> {
    manifest?.operators.get(uid)
}

/// Instances of the checkpoint that fall to a subtask.
fn instances_of<'a>(
    job: &Job,
    manifest: Option<&'a Manifest>,
    vertex: usize,
    subtask: u32,
) -> Vec<(InstanceId, &'a InstanceState)> {
    let state = state(manifest, &job.vertices[vertex].uid);
    state.map_or_else(Vec::new, |state| manifest::instances_of(job, vertex, state, subtask))
}

/// The tasks of an execution on a worker: number, chain, subtask.
fn subtasks(of: &Execution, worker: usize) -> Vec<(TaskId, usize, u32)> {
    let tasks = of.prepare.placement.tasks_of(&name_of(worker)).into_iter();
    tasks
        .map(|task| {
            let (chain, subtask) = of.planned.topology.locate(task);
            (task, chain, subtask)
        })
        .collect()
}

impl World {
    fn factory(&self, uid: &str) -> Factory {
        let kind = match uid {
            "map" => Kind::Map(self.scenario.fan),
            "all" => Kind::All,
            _ => Kind::Count,
        };
        let (clock, outside) = (self.clock.clone(), self.outside.clone());
        let may_repeat = !is_exactly_once(&self.scenario);
        Factory { uid: uid.to_owned(), kind, row_us: self.scenario.operator_us, may_repeat, clock, outside }
    }

    /// Reads images and what was in flight.
    pub(crate) fn restore(&mut self, worker: usize, attempt: Attempt) -> Result<(), Failure> {
        let Some(storage) = self.workers[worker].storage.clone() else { return Err(transient("no storage")) };
        let Some(of) = self.workers[worker].executions.get(&attempt) else { return Err(transient("not prepared")) };
        let (planned, manifest) = (of.planned.clone(), of.manifest.clone());
        let read = |segment: &Segment| again(|| storage.read(segment)).map_err(|error| transient(error.to_string()));
        let mut restored = Restored::default();
        for (task, chain, subtask) in subtasks(of, worker) {
            let vertices = &planned.topology.chains()[chain].vertices;
            for &vertex in vertices {
                let described = &planned.job.vertices[vertex];
                if !matches!(described.kind, VertexKind::Operator(_)) {
                    continue;
                }
                let factory = self.factory(&described.uid);
                let mut instances = Vec::new();
                for (id, state) in instances_of(&planned.job, manifest.as_deref(), vertex, subtask) {
                    let images =
                        state.chain.iter().map(|segment| Ok(read(segment)?.to_vec())).collect::<Result<Vec<_>, Failure>>()?;
                    let instance = factory.of_images(&images);
                    instances.push(RestoredInstance { id, instance, watermark: state.watermark, finished: state.finished });
                }
                restored.instances.insert((vertex, subtask), instances);
            }
            let found = self.in_flight_of(&planned.job, manifest.as_deref(), vertices[0], subtask, &|of| {
                let bytes = read(&of.frames)?;
                wire::decode_all(&bytes).map_err(|error| transient(error.to_string()))
            })?;
            restored.in_flight.insert(task, found);
        }
        if let Some(of) = self.workers[worker].executions.get_mut(&attempt) {
            of.restored = restored;
        }
        Ok(())
    }

    /// What was in flight to the head of a chain and falls to a subtask, with where it came from.
    fn in_flight_of(
        &self,
        job: &Job,
        manifest: Option<&Manifest>,
        vertex: usize,
        subtask: u32,
        frames: &dyn Fn(&InFlightState) -> Result<Vec<weir_channel::Frame>, Failure>,
    ) -> Result<Vec<(Origin, RestoredInFlight)>, Failure> {
        let described = &job.vertices[vertex];
        let Some(state) = state(manifest, &described.uid) else { return Ok(Vec::new()) };
        let place = |subtask, parallelism| Place { subtask, parallelism, key_groups: job.key_groups };
        let now = place(subtask, described.parallelism);
        let mut found = Vec::new();
        for (old, then) in state.subtasks.iter().enumerate() {
            for of in &then.in_flight {
                let Some(edge) = manifest::edge_of(job, vertex, of) else {
                    self.outside.complain(format!("rows in flight from {} to {} have no edge", of.from, described.uid));
                    continue;
                };
                let groups = of.groups.map(|(start, end)| KeyGroupRange { start, end });
                let groups = groups.filter(|_| self.mutation != Some(Mutation::ForgetReach));
                let then_place = place(old as u32, state.parallelism);
                let share = in_flight::share(edge.exchange, job.is_keyed(vertex), groups, then_place, now);
                if share == Share::None {
                    continue;
                }
                let taken = in_flight::take(share, edge.exchange, then_place, of.input, frames(of)?);
                if let Err(error) = &taken {
                    self.outside.complain(format!("rows in flight from {} to {}: {error}", of.from, described.uid));
                }
                if let Ok(Some(restored)) = taken {
                    let InFlightState { from, output, input, sender, .. } = of.clone();
                    found.push((Origin { from, output, input, sender, exchange: edge.exchange }, restored));
                }
            }
        }
        Ok(found)
    }

    /// The sinks of a worker. The first subtask of each commits what the checkpoint holds.
    pub(crate) fn make_sinks(&mut self, worker: usize, attempt: Attempt) -> Result<Sinks, Failure> {
        let Some(of) = self.workers[worker].executions.get(&attempt) else { return Err(transient("not prepared")) };
        let (planned, manifest) = (of.planned.clone(), of.manifest.clone());
        let mut sinks: Sinks = BTreeMap::new();
        for (_, chain, index) in subtasks(of, worker) {
            for &vertex in &planned.topology.chains()[chain].vertices {
                let described = &planned.job.vertices[vertex];
                if !matches!(described.kind, VertexKind::Sink(_)) {
                    continue;
                }
                let subtasks = state(manifest.as_deref(), &described.uid).into_iter().flat_map(|state| &state.subtasks);
                let mut held: Vec<_> = subtasks.flat_map(|subtask| &subtask.committables).collect();
                held.sort_by_key(|committable| committable.checkpoint);
                let keep: Vec<Value> = held.iter().map(|committable| committable.value.clone()).collect();
                let mut sink = SimSink {
                    outside: self.outside.clone(),
                    input: self.input.clone(),
                    disk: self.disk.clone(),
                    clock: self.clock.clone(),
                    uid: described.uid.clone(),
                    index,
                    attempt,
                    row_us: self.scenario.sink_us,
                    rows: Vec::new(),
                    unusable: Arc::new(AtomicBool::new(false)),
                };
                let failed = |error: weir_connectors::ConnectorError| transient(error.to_string());
                sink.recover(&keep).map_err(failed)?;
                if index == 0 {
                    keep.iter().try_for_each(|committable| sink.commit(committable)).map_err(failed)?;
                }
                sinks.insert((vertex, index), Box::new(sink));
            }
        }
        Ok(sinks)
    }

    pub(crate) fn build(&mut self, worker: usize, attempt: Attempt) -> Result<(), Failure> {
        let mut sinks = self.make_sinks(worker, attempt)?;
        let Some(of) = self.workers[worker].executions.get_mut(&attempt) else { return Err(transient("not prepared")) };
        let planned = of.planned.clone();
        let manifest = of.manifest.clone();
        let mut restored = std::mem::take(&mut of.restored);
        let here = subtasks(of, worker);
        let placement = of.prepare.placement.clone();
        let worker_of = |task| number_of(&placement.worker_of(task).worker);
        let mut ports = self.channels(worker, attempt, &planned, &worker_of);
        let mut tasks = BTreeMap::new();
        let mut persisters = BTreeMap::new();
        for (id, chain, subtask) in here {
            let Some(Ports { gate, channels, routers, origins }) = ports.remove(&id) else { continue };
            let members = &planned.topology.chains()[chain].vertices;
            let in_flight = restored.in_flight.remove(&id).unwrap_or_default();
            let mut persister = Persister::default();
            persister.channels = origins;
            persister.restored = in_flight.iter().map(|(origin, _)| origin.clone()).collect();
            for &vertex in members {
                for (instance, state) in instances_of(&planned.job, manifest.as_deref(), vertex, subtask) {
                    let key = (planned.job.vertices[vertex].uid.as_str().into(), instance);
                    persister.stored.insert(key, StoredInstance::restored(state.chain.clone()));
                }
            }
            let is_source = matches!(planned.job.vertices[members[0]].kind, VertexKind::Source(_));
            let head = if is_source {
                self.source(&planned, manifest.as_deref(), members[0], subtask)
            } else {
                HeadSpec::Gate { gate, channels, restored: in_flight.into_iter().map(|(_, restored)| restored).collect() }
            };
            let nodes = members[usize::from(is_source)..].iter();
            let nodes = nodes.map(|&vertex| self.node(&planned, vertex, subtask, &mut restored, &mut sinks)).collect();
            let mode = match self.scenario.mode {
                Mode::ExactlyOnce(_) if self.mutation != Some(Mutation::SkipBlocking) => AlignMode::ExactlyOnce,
                _ => AlignMode::AtLeastOnce,
            };
            let spec = TaskSpec {
                id,
                name: planned.topology.name(id),
                attempt,
                mode,
                head,
                nodes,
                routers,
                wake: Arc::new(Signal::default()),
                outlet: Box::new(self.mouth.clone()),
                stats: Arc::default(),
                clock: self.clock.clone(),
            };
            let (task, handle) = RunningTask::build(spec).map_err(|error| transient(error.to_string()))?;
            tasks.insert(id, SimTask::new(task, handle));
            persisters.insert(id, persister);
        }
        if let Some(of) = self.workers[worker].executions.get_mut(&attempt) {
            (of.tasks, of.persisters) = (tasks, persisters);
        }
        Ok(())
    }

    fn wake_of(&self, target: Target) -> Arc<SimWake> {
        Arc::new(SimWake { target, woken: self.woken.clone() })
    }

    /// Gates, routers, and the ends of channels to other workers.
    fn channels(
        &mut self,
        worker: usize,
        attempt: Attempt,
        planned: &Planned,
        worker_of: &dyn Fn(TaskId) -> usize,
    ) -> BTreeMap<TaskId, Ports> {
        let Planned { job, topology } = planned;
        let mut ports = BTreeMap::new();
        for task in (0..topology.tasks() as u32).map(TaskId).filter(|task| worker_of(*task) == worker) {
            let gate = Gate::new(self.wake_of(Target::Task(worker, attempt, task)));
            ports.insert(task, Ports { gate, channels: Vec::new(), routers: Vec::new(), origins: Vec::new() });
        }
        let mut first = 0;
        while let Some(head) = topology.channels().get(first) {
            let edge = &job.edges[head.edge];
            let same = |number: &usize| {
                let channel = &topology.channels()[*number];
                (channel.edge, channel.from) == (head.edge, head.from)
            };
            let numbers: Vec<usize> = (first..topology.channels().len()).take_while(same).collect();
            first += numbers.len();
            let mut senders: Vec<Sender> = Vec::new();
            for number in numbers {
                let channel = topology.channels()[number];
                let (from, to) = (worker_of(channel.from), worker_of(channel.to));
                let key = (attempt, number);
                if to == worker {
                    let waker: Arc<dyn weir_task::Wake> = match from == worker {
                        true => self.wake_of(Target::Task(worker, attempt, channel.from)),
                        false => self.wake_of(Target::Reader(attempt, number)),
                    };
                    let Some(receiver) = ports.get_mut(&channel.to) else { continue };
                    let gate_channel = receiver.channels.len();
                    let subtask = topology.locate(channel.to).1;
                    let owned = || KeyGroupRange::of(subtask, job.key_groups, job.vertices[edge.to].parallelism);
                    receiver.channels.push(GateChannel {
                        input: edge.input,
                        groups: (edge.exchange == Exchange::Hash).then(owned),
                        from: topology.name(channel.from),
                    });
                    receiver.origins.push(Origin {
                        from: job.vertices[edge.from].uid.clone(),
                        output: edge.port.number(),
                        input: edge.input,
                        sender: topology.locate(channel.from).1,
                        exchange: edge.exchange,
                    });
                    let sender = receiver.gate.connect(waker, Limits::default());
                    let announcer = receiver.gate.announcer();
                    if from == worker {
                        senders.push(sender);
                    } else {
                        let wire = self.wires.entry(key).or_insert_with(|| Wire::new(from, to));
                        (wire.sender, wire.announcer, wire.gate_channel) = (Some(sender), Some(announcer), gate_channel);
                    }
                } else if from == worker {
                    let mut gate = Gate::new(self.wake_of(Target::Writer(attempt, number)));
                    gate.set_clock(self.clock.clone());
                    senders.push(gate.connect(self.wake_of(Target::Task(worker, attempt, channel.from)), Limits::default()));
                    self.wires.entry(key).or_insert_with(|| Wire::new(from, to)).gate = Some(gate);
                }
            }
            let subtask = topology.locate(head.from).1 as usize;
            if let Some(sending) = ports.get_mut(&head.from) {
                sending.routers.push(match edge.exchange {
                    Exchange::Forward => match senders.pop() {
                        Some(sender) => Router::forward(sender),
                        None => continue,
                    },
                    Exchange::Rebalance => Router::rebalance(senders, subtask),
                    Exchange::Hash => Router::hash(senders, job.key_groups),
                    Exchange::Broadcast => Router::broadcast(senders),
                });
            }
        }
        ports
    }

    fn source(&self, planned: &Planned, manifest: Option<&Manifest>, vertex: usize, subtask: u32) -> HeadSpec {
        let described = &planned.job.vertices[vertex];
        let VertexKind::Source(spec) = &described.kind else { unreachable!("only sources are asked for") };
        let number = usize::from(described.uid == "b");
        let skip = u32::from(self.mutation == Some(Mutation::SkipRow));
        let source = SimSource::new(
            self.input.clone(),
            self.clock.clone(),
            number,
            (subtask, described.parallelism),
            self.scenario.chunk,
            skip,
        );
        let idle_after = spec.watermark.idle_after.map(|time| time.as_millis() as u64);
        let restore = state(manifest, &described.uid).map(|state| {
            let splits = state.subtasks.iter().flat_map(|subtask| subtask.splits.clone()).collect();
            let own = state.subtasks.get(subtask as usize).filter(|_| state.parallelism == described.parallelism);
            let own = own.and_then(|state| state.source_watermark);
            let least = state.subtasks.iter().filter_map(|subtask| subtask.source_watermark).min();
            (splits, own.or(least).unwrap_or(WATERMARK_START))
        });
        HeadSpec::Source {
            uid: described.uid.as_str().into(),
            source: Box::new(source),
            event_time: None,
            generator: WatermarkGenerator::new(spec.watermark.delay.as_millis() as u64, idle_after),
            targets: targets(planned, vertex, Port::Output(0)),
            stats: Arc::default(),
            restore,
        }
    }

    fn node(&self, planned: &Planned, vertex: usize, subtask: u32, restored: &mut Restored, sinks: &mut Sinks) -> NodeSpec {
        let job = &planned.job;
        let described = &job.vertices[vertex];
        let (work, outputs) = match sinks.remove(&(vertex, subtask)) {
            Some(sink) => (NodeWork::Sink(sink), Vec::new()),
            None => {
                let instances = if job.is_keyed(vertex) {
                    let groups = KeyGroupRange::of(subtask, job.key_groups, described.parallelism);
                    let eager = job.edges.iter().any(|edge| edge.to == vertex && edge.exchange == Exchange::Broadcast);
                    Instances::Keyed { groups, eager }
                } else {
                    Instances::Single(subtask)
                };
                let kept = restored.instances.remove(&(vertex, subtask)).unwrap_or_default();
                let work = NodeWork::Operator {
                    factory: Arc::new(self.factory(&described.uid)),
                    instances,
                    restored: kept,
                    after_end: weir_task::AfterEnd { event_time_max: WATERMARK_START, more: false },
                    call_rows: Arc::default(),
                };
                (work, vec![targets(planned, vertex, Port::Output(0))])
            }
        };
        NodeSpec {
            uid: described.uid.as_str().into(),
            component: described.uid.clone(),
            work,
            on_reject: OnReject::Fail,
            outputs,
            late_port: None,
            dead_letters: Vec::new(),
            stats: Arc::default(),
        }
    }
}

/// The channels of one task.
struct Ports {
    gate: Gate,
    channels: Vec<GateChannel>,
    routers: Vec<Router>,
    origins: Vec<Origin>,
}

fn targets(planned: &Planned, vertex: usize, port: Port) -> Vec<Row> {
    let target = |destination| match destination {
        Destination::Router(router) => Row::Router(router),
        Destination::Node { node, input } => Row::Node { node, input },
    };
    planned.topology.destinations(&planned.job, vertex, port).into_iter().map(target).collect()
}
