//! The tasks of a job and the channels between them, numbered: every process of a job numbers them alike.

use weir_model::TaskId;

use crate::job::{Chain, Exchange, Job, Port, VertexKind};

/// One channel: from one task to one task over one edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelSpec {
    /// Index of the edge.
    pub edge: usize,
    /// The sending task.
    pub from: TaskId,
    /// The receiving task.
    pub to: TaskId,
}

/// Where rows go from an output of a vertex, as its task sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// To a later node of the same task.
    Node {
        /// Index of the node; a source at the head is none.
        node: usize,
        /// Which of its inputs.
        input: u32,
    },
    /// Out of the task, over the router of this number.
    Router(usize),
}

/// Chains and edges of a job, numbered as tasks and channels.
#[derive(Clone, Debug)]
pub struct Topology {
    chains: Vec<Chain>,
    /// First task of each chain; its other subtasks follow.
    first_task: Vec<u32>,
    /// Chain of each vertex, and its node there; none for a source at the head.
    place: Vec<(usize, Option<usize>)>,
    /// For each edge that leaves its task: its router there.
    router: Vec<Option<usize>>,
    channels: Vec<ChannelSpec>,
    names: Vec<String>,
}

impl Topology {
    /// The topology of a job.
    pub fn new(job: &Job) -> Topology {
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
        let name = |chain: &Chain| {
            let uids: Vec<&str> = chain.vertices.iter().map(|&vertex| job.vertices[vertex].uid.as_str()).collect();
            uids.join("+")
        };
        let names = chains.iter().map(name).collect();
        let mut topology = Topology { chains, first_task, place, router, channels: Vec::new(), names };
        topology.channels = topology.connect(job);
        topology
    }

    fn connect(&self, job: &Job) -> Vec<ChannelSpec> {
        let mut channels = Vec::new();
        for (index, edge) in job.edges.iter().enumerate().filter(|(index, _)| self.router[*index].is_some()) {
            let (from, to) = (self.place[edge.from].0, self.place[edge.to].0);
            debug_assert_eq!(self.chains[to].vertices[0], edge.to, "edge {index} leads to the head of its chain");
            for subtask in 0..self.chains[from].parallelism {
                let targets = match edge.exchange {
                    Exchange::Forward => subtask..subtask + 1,
                    _ => 0..self.chains[to].parallelism,
                };
                let channel = |target| ChannelSpec { edge: index, from: self.task(from, subtask), to: self.task(to, target) };
                channels.extend(targets.map(channel));
            }
        }
        channels
    }

    /// The chains, writers before readers.
    pub fn chains(&self) -> &[Chain] {
        &self.chains
    }

    /// All channels: by edge, then by sending, then by receiving subtask. A channel's number is its index. The channels of
    /// a gate and those of a router are in this order.
    pub fn channels(&self) -> &[ChannelSpec] {
        &self.channels
    }

    /// Number of tasks.
    pub fn tasks(&self) -> usize {
        self.chains.iter().map(|chain| chain.parallelism as usize).sum()
    }

    /// The task that runs a subtask of a chain.
    pub fn task(&self, chain: usize, subtask: u32) -> TaskId {
        TaskId(self.first_task[chain] + subtask)
    }

    /// Chain and subtask of a task.
    pub fn locate(&self, task: TaskId) -> (usize, u32) {
        let chain = self.first_task.partition_point(|first| *first <= task.0) - 1;
        (chain, task.0 - self.first_task[chain])
    }

    /// What people call a task: the uids of its chain and its index.
    pub fn name(&self, task: TaskId) -> String {
        if task.0 as usize >= self.tasks() {
            return format!("task {task}");
        }
        let (chain, subtask) = self.locate(task);
        format!("{}[{subtask}]", self.names[chain])
    }

    /// Chain of a vertex.
    pub fn chain_of(&self, vertex: usize) -> usize {
        self.place[vertex].0
    }

    /// Where the rows of a vertex's output go.
    pub fn destinations(&self, job: &Job, vertex: usize, port: Port) -> Vec<Destination> {
        let edges = job.edges.iter().enumerate().filter(|(_, edge)| edge.from == vertex && edge.port == port);
        let destination = |(index, edge): (usize, &crate::Edge)| match self.router[index] {
            Some(router) => Destination::Router(router),
            None => Destination::Node { node: self.place[edge.to].1.unwrap_or(0), input: edge.input },
        };
        edges.map(destination).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: &str = r#"
[job]
name = "j"
parallelism = 2

[[source]]
id = "s"
connector = "generator"

[[operator]]
id = "parse"
component = "parse@1.0.0"
input = "s"

[[operator]]
id = "count"
component = "count@1.0.0"
input = { from = "parse", exchange = "hash" }

[[sink]]
id = "out"
connector = "blackhole"
input = { from = "count", exchange = "rebalance" }
parallelism = 1
"#;

    #[test]
    fn tasks_and_channels_are_numbered_by_chain_and_edge() {
        let job = crate::load("job.toml", JOB, &[], &|_| None, &crate::plain).unwrap();
        let topology = Topology::new(&job);
        let names: Vec<String> = (0..topology.tasks() as u32).map(|task| topology.name(TaskId(task))).collect();
        assert_eq!(names, ["s+parse[0]", "s+parse[1]", "count[0]", "count[1]", "out[0]"]);
        let ends: Vec<(u32, u32)> = topology.channels().iter().map(|channel| (channel.from.0, channel.to.0)).collect();
        assert_eq!(ends, [(0, 2), (0, 3), (1, 2), (1, 3), (2, 4), (3, 4)]);
        assert_eq!(topology.destinations(&job, 0, Port::Output(0)), [Destination::Node { node: 0, input: 0 }]);
        assert_eq!(topology.destinations(&job, 1, Port::Output(0)), [Destination::Router(0)]);
        assert_eq!(topology.locate(TaskId(4)), (2, 0));
        assert_eq!(topology.name(TaskId(9)), "task 9");
    }
}
