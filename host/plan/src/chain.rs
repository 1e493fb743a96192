//! Chains: which vertices one task runs.

use crate::job::{Chain, Edge, Exchange, Job};

impl Job {
    /// Keeps the ends of these edges in tasks of their own, also where they could be chained: what was in flight on them
    /// waits in the gate of the reader.
    #[must_use]
    pub fn with_edges_apart(mut self, edges: &[usize]) -> Job {
        self.apart.extend(edges);
        self
    }

    /// Whether rows take this edge by a call inside one task instead of through a channel: the exchange is forward, both
    /// ends have equal parallelism, no other edge leads into the reader, and the ends are not kept apart.
    pub fn edge_is_chained(&self, edge: usize) -> bool {
        let apart = self.apart.contains(&edge);
        let edge = &self.edges[edge];
        !apart
            && edge.exchange == Exchange::Forward
            && self.vertices[edge.from].parallelism == self.vertices[edge.to].parallelism
            && self.edges.iter().filter(|other| other.to == edge.to).count() == 1
    }

    /// The chains, writers before readers. Every vertex is in exactly one.
    pub fn chains(&self) -> Vec<Chain> {
        let mut chain_of: Vec<Option<usize>> = vec![None; self.vertices.len()];
        let mut chains: Vec<Chain> = Vec::new();
        for vertex in topological_order(self.vertices.len(), &self.edges) {
            let writer = (0..self.edges.len()).find(|edge| self.edges[*edge].to == vertex && self.edge_is_chained(*edge));
            // A writer comes before its readers, so it has its chain already.
            let chain = writer.and_then(|edge| chain_of[self.edges[edge].from]).unwrap_or_else(|| {
                chains.push(Chain { vertices: Vec::new(), parallelism: self.vertices[vertex].parallelism });
                chains.len() - 1
            });
            chains[chain].vertices.push(vertex);
            chain_of[vertex] = Some(chain);
        }
        chains
    }
}

/// Vertices so that writers come before readers, otherwise by index. Vertices on or behind a cycle are missing.
pub(crate) fn topological_order(vertices: usize, edges: &[Edge]) -> Vec<usize> {
    let mut inputs_left = vec![0; vertices];
    for edge in edges {
        inputs_left[edge.to] += 1;
    }
    let mut ready: std::collections::BTreeSet<usize> = (0..vertices).filter(|vertex| inputs_left[*vertex] == 0).collect();
    let mut order = Vec::with_capacity(vertices);
    while let Some(vertex) = ready.pop_first() {
        order.push(vertex);
        for edge in edges.iter().filter(|edge| edge.from == vertex) {
            inputs_left[edge.to] -= 1;
            if inputs_left[edge.to] == 0 {
                ready.insert(edge.to);
            }
        }
    }
    order
}
