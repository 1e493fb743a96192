//! A random job: tasks, channels, and where each row goes.

use super::random::{Random, mix};

/// A channel from one task to another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edge {
    pub(super) from: usize,
    pub(super) to: usize,
    /// Its index among the inputs of `to`.
    pub(super) input: usize,
}

pub(super) struct Graph {
    pub(super) edges: Vec<Edge>,
    /// For each task, the edges that leave it.
    pub(super) outputs: Vec<Vec<usize>>,
    /// For each task, the edges that enter it, by index of the input.
    pub(super) inputs: Vec<Vec<usize>>,
    /// For each task, the rows it makes: those of sources, 0 for others.
    pub(super) rows: Vec<u64>,
}

impl Graph {
    pub(super) fn random(random: &mut Random) -> Graph {
        let sources = 1 + random.below(3) as usize;
        let tasks = sources + random.below(6) as usize;
        let mut graph = Graph { edges: vec![], outputs: vec![vec![]; tasks], inputs: vec![vec![]; tasks], rows: vec![0; tasks] };
        for task in 0..tasks {
            if task < sources {
                graph.rows[task] = random.below(40);
                continue;
            }
            for input in 0..1 + random.below(3) as usize {
                let from = random.below(task as u64) as usize;
                graph.outputs[from].push(graph.edges.len());
                graph.inputs[task].push(graph.edges.len());
                graph.edges.push(Edge { from, to: task, input });
            }
        }
        graph
    }

    pub(super) fn tasks(&self) -> usize {
        self.rows.len()
    }

    /// The edges on which `task` passes a row on, each as a row of its own: to one of the outputs, or to all.
    pub(super) fn route(&self, task: usize, row: u64) -> Vec<(usize, u64)> {
        let outputs = &self.outputs[task];
        if outputs.is_empty() {
            return vec![];
        }
        let chosen = if task.is_multiple_of(2) { outputs.clone() } else { vec![outputs[(row % outputs.len() as u64) as usize]] };
        chosen.into_iter().map(|edge| (edge, mix(row ^ mix(edge as u64 + 1)))).collect()
    }

    /// The row that a source makes at a position.
    pub(super) fn row(source: usize, position: u64) -> u64 {
        mix(mix(source as u64 + 1_000) ^ position)
    }

    /// For each task, every row it processes in a run without checkpoints or failures.
    pub(super) fn expected(&self) -> Vec<Vec<u64>> {
        let mut rows: Vec<Vec<u64>> = vec![vec![]; self.tasks()];
        for task in 0..self.tasks() {
            // Edges lead from lower tasks to higher ones, so what enters this one is complete.
            let made = (0..self.rows[task]).map(|position| Graph::row(task, position));
            rows[task].extend(made);
            for row in rows[task].clone() {
                for (edge, row) in self.route(task, row) {
                    rows[self.edges[edge].to].push(row);
                }
            }
        }
        rows
    }
}
