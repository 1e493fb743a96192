//! The tasks of a job and the channels between them: which vertex runs where, and which edge becomes what.

use std::sync::Arc;

use weir_channel::Limits;
use weir_model::TaskId;
use weir_plan::{Chain, Exchange, Job, Port, VertexKind};
use weir_task::{Gate, Router, Signal, Target};

/// Chains and edges of a job, numbered as tasks.
pub(crate) struct Topology {
    pub(crate) chains: Vec<Chain>,
    /// First task of each chain; its other subtasks follow.
    first_task: Vec<u32>,
    /// Chain of each vertex, and its node there; none for a source at the head.
    place: Vec<(usize, Option<usize>)>,
    /// For each edge that leaves its task: its router there.
    router: Vec<Option<usize>>,
}

/// The channels of one task.
pub(crate) struct Ports {
    pub(crate) signal: Arc<Signal>,
    pub(crate) gate: Gate,
    /// Input that each channel of the gate belongs to.
    pub(crate) inputs: Vec<u32>,
    pub(crate) routers: Vec<Router>,
}

impl Topology {
    pub(crate) fn new(job: &Job) -> Topology {
        let chains = job.chains();
        let mut place = vec![(0, None); job.vertices.len()];
        let mut first_task = Vec::new();
        let mut tasks = 0;
        for (index, chain) in chains.iter().enumerate() {
            first_task.push(tasks);
            tasks += chain.parallelism;
            let has_source = matches!(job.vertices[chain.vertices[0]].kind, VertexKind::Source(_));
            for (position, &vertex) in chain.vertices.iter().enumerate() {
                place[vertex] = (index, position.checked_sub(usize::from(has_source)));
            }
        }
        let mut routers = vec![0; chains.len()];
        let router = (0..job.edges.len()).map(|edge| {
            let next = &mut routers[place[job.edges[edge].from].0];
            let router = (!job.edge_is_chained(edge)).then_some(*next);
            *next += usize::from(router.is_some());
            router
        });
        let router = router.collect();
        Topology { chains, first_task, place, router }
    }

    /// Number of tasks.
    pub(crate) fn tasks(&self) -> usize {
        self.chains.iter().map(|chain| chain.parallelism as usize).sum()
    }

    pub(crate) fn task(&self, chain: usize, subtask: u32) -> TaskId {
        TaskId(self.first_task[chain] + subtask)
    }

    /// Chain and subtask of a task.
    pub(crate) fn locate(&self, task: TaskId) -> (usize, u32) {
        let chain = self.first_task.partition_point(|first| *first <= task.0) - 1;
        (chain, task.0 - self.first_task[chain])
    }

    /// Where the rows of a vertex's output go within its task.
    pub(crate) fn targets(&self, job: &Job, vertex: usize, port: Port) -> Vec<Target> {
        let edges = job.edges.iter().enumerate().filter(|(_, edge)| edge.from == vertex && edge.port == port);
        let target = |(index, edge): (usize, &weir_plan::Edge)| match self.router[index] {
            Some(router) => Target::Router(router),
            None => Target::Node { node: self.place[edge.to].1.expect("an edge leads to no source"), input: edge.input },
        };
        edges.map(target).collect()
    }

    /// Makes all channels. By task.
    pub(crate) fn connect(&self, job: &Job) -> Vec<Ports> {
        let ports = || {
            let signal = Arc::new(Signal::default());
            Ports { gate: Gate::new(signal.clone()), signal, inputs: Vec::new(), routers: Vec::new() }
        };
        let mut tasks: Vec<Ports> = std::iter::repeat_with(ports).take(self.tasks()).collect();
        for (index, edge) in job.edges.iter().enumerate().filter(|(index, _)| self.router[*index].is_some()) {
            let (from, to) = (self.place[edge.from].0, self.place[edge.to].0);
            debug_assert_eq!(self.chains[to].vertices[0], edge.to, "edge {index} leads to the head of its chain");
            for subtask in 0..self.chains[from].parallelism {
                let sender = self.task(from, subtask).0 as usize;
                let signal = tasks[sender].signal.clone();
                let targets = match edge.exchange {
                    Exchange::Forward => subtask..subtask + 1,
                    _ => 0..self.chains[to].parallelism,
                };
                let senders: Vec<_> = targets
                    .map(|target| {
                        let receiver = &mut tasks[self.task(to, target).0 as usize];
                        receiver.inputs.push(edge.input);
                        receiver.gate.connect(signal.clone(), Limits::default())
                    })
                    .collect();
                let router = match edge.exchange {
                    Exchange::Forward => Router::forward(senders.into_iter().next().expect("a forward edge has one channel")),
                    Exchange::Rebalance => Router::rebalance(senders, subtask as usize),
                    Exchange::Hash => Router::hash(senders, job.key_groups),
                    Exchange::Broadcast => Router::broadcast(senders),
                };
                tasks[sender].routers.push(router);
            }
        }
        tasks
    }
}
