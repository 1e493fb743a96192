//! The channels of an execution that end here: gates, routers, and the ends that lead to other workers.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_channel::Limits;
use weir_model::{KeyGroupRange, TaskId};
use weir_plan::{ChannelSpec, Destination, Exchange, Job, Port, Topology};
use weir_protocol::Placement;
use weir_task::{Gate, GateChannel, Router, Sender, Target, Wake};

use crate::executor::Seat;
use crate::network::{Inbound, Outbound, RoomWake};

/// The channels of one task.
pub(super) struct Ports {
    pub(super) wake: Arc<dyn Wake>,
    pub(super) gate: Gate,
    /// What each channel of the gate brings.
    pub(super) sources: Vec<GateChannel>,
    pub(super) routers: Vec<Router>,
}

/// All channels with an end on a worker.
pub(super) struct Channels {
    pub(super) ports: BTreeMap<TaskId, Ports>,
    pub(super) inbound: Vec<Inbound>,
    pub(super) outbound: Vec<Outbound>,
}

impl Channels {
    /// Makes the channels of the tasks that a worker runs, which have these seats.
    pub(super) fn new(
        job: &Job,
        topology: &Topology,
        placement: &Placement,
        seats: &BTreeMap<TaskId, Box<dyn Seat>>,
    ) -> Channels {
        let mut channels = Channels { ports: BTreeMap::new(), inbound: Vec::new(), outbound: Vec::new() };
        for (&task, seat) in seats {
            let wake = seat.wake();
            let gate = Gate::new(wake.clone());
            let ports = Ports { wake, gate, sources: Vec::new(), routers: Vec::new() };
            channels.ports.insert(task, ports);
        }
        // Channels are ordered by edge and sending task, so those of one router follow each other.
        let mut rest = topology.channels();
        let mut first = 0;
        while let Some(head) = rest.first() {
            let count = rest.iter().take_while(|channel| (channel.edge, channel.from) == (head.edge, head.from)).count();
            let senders: Vec<Sender> =
                (first..first + count).filter_map(|number| channels.connect(number, job, topology, placement)).collect();
            if let Some(ports) = channels.ports.get_mut(&head.from) {
                let subtask = topology.locate(head.from).1;
                ports.routers.push(router(job, job.edges[head.edge].exchange, senders, subtask));
            }
            rest = &rest[count..];
            first += count;
        }
        channels
    }

    /// Makes what of a channel is here. Gives the sender if the sending task is.
    fn connect(&mut self, number: usize, job: &Job, topology: &Topology, placement: &Placement) -> Option<Sender> {
        let channel = topology.channels()[number];
        let from = self.ports.get(&channel.from).map(|ports| ports.wake.clone());
        if let Some(to) = self.ports.get_mut(&channel.to) {
            let gate_channel = to.sources.len();
            to.sources.push(source(job, topology, channel));
            if let Some(wake) = from {
                return Some(to.gate.connect(wake, Limits::default()));
            }
            let room = Arc::new(RoomWake::default());
            let sender = to.gate.connect(room.clone(), Limits::default());
            let announcer = to.gate.announcer();
            let from = placement.worker_of(channel.from).clone();
            self.inbound.push(Inbound { channel: number as u32, from, sender, announcer, gate_channel, room });
            return None;
        }
        let wake = from?;
        let ready = Arc::new(RoomWake::default());
        let mut gate = Gate::new(ready.clone());
        let sender = gate.connect(wake, Limits::default());
        let to = placement.worker_of(channel.to).clone();
        self.outbound.push(Outbound { channel: number as u32, to, gate, ready });
        Some(sender)
    }
}

fn source(job: &Job, topology: &Topology, channel: ChannelSpec) -> GateChannel {
    let edge = &job.edges[channel.edge];
    let (_, subtask) = topology.locate(channel.to);
    let groups = || KeyGroupRange::of(subtask, job.key_groups, job.vertices[edge.to].parallelism);
    GateChannel { input: edge.input, groups: (edge.exchange == Exchange::Hash).then(groups), from: topology.name(channel.from) }
}

fn router(job: &Job, exchange: Exchange, senders: Vec<Sender>, subtask: u32) -> Router {
    match exchange {
        Exchange::Forward => Router::forward(senders.into_iter().next().expect("a forward edge has one channel")),
        Exchange::Rebalance => Router::rebalance(senders, subtask as usize),
        Exchange::Hash => Router::hash(senders, job.key_groups),
        Exchange::Broadcast => Router::broadcast(senders),
    }
}

/// Where the rows of a vertex's output go within its task.
pub(super) fn targets(job: &Job, topology: &Topology, vertex: usize, port: Port) -> Vec<Target> {
    let target = |destination| match destination {
        Destination::Router(router) => Target::Router(router),
        Destination::Node { node, input } => Target::Node { node, input },
    };
    topology.destinations(job, vertex, port).into_iter().map(target).collect()
}
