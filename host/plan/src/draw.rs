//! Drawings of a job's graph: text for people, dot for Graphviz.

use std::fmt::Write;

use crate::job::{CheckpointMode, Edge, Job, Port, VertexKind};
use crate::units::format_duration;

impl Job {
    /// The graph as text: chains with their vertices, and below each vertex where its rows go through a channel.
    pub fn to_text(&self) -> String {
        let chains = self.chains();
        let chain_of = |vertex: usize| chains.iter().position(|chain| chain.vertices.contains(&vertex)).unwrap_or_default() + 1;
        let tasks: u32 = chains.iter().map(|chain| chain.parallelism).sum();
        let mode = match self.checkpoint.mode {
            CheckpointMode::ExactlyOnce => "exactly-once",
            CheckpointMode::AtLeastOnce => "at-least-once",
        };
        let checkpoints = match self.checkpoint.interval {
            Some(interval) => format!("checkpoint every {}", format_duration(interval)),
            None => "checkpoints off".to_owned(),
        };
        let mut text = format!(
            "job {}: {}, {}, {checkpoints}, {mode}",
            self.name,
            count(chains.len(), "chain"),
            count(tasks as usize, "task")
        );
        if (0..self.vertices.len()).any(|vertex| self.is_keyed(vertex)) {
            let _ = write!(text, ", {} key groups", self.key_groups);
        }
        text.push('\n');
        for (number, chain) in chains.iter().enumerate() {
            let _ = write!(text, "\nchain {}, {}\n", number + 1, count(chain.parallelism as usize, "task"));
            for vertex in &chain.vertices {
                let _ = writeln!(text, "  {}", self.vertex_text(*vertex));
                for (index, edge) in self.edges.iter().enumerate().filter(|(_, edge)| edge.from == *vertex) {
                    let port = self.port_name(edge);
                    let to = &self.vertices[edge.to].uid;
                    let how = if self.edge_is_chained(index) {
                        "chained".to_owned()
                    } else {
                        format!("{} to chain {}", edge.exchange, chain_of(edge.to))
                    };
                    let input = self.input_name(edge).map_or_else(String::new, |name| format!(" as {name}"));
                    let _ = writeln!(text, "    {port} -> {to}{input} ({how})");
                }
            }
        }
        text
    }

    /// The graph in Graphviz' dot language, one cluster per chain.
    pub fn to_dot(&self) -> String {
        let mut text = format!("digraph {} {{\n  rankdir = LR\n  node [shape = box]\n", quoted(&self.name));
        for (number, chain) in self.chains().iter().enumerate() {
            let label = format!("chain {}, {}", number + 1, count(chain.parallelism as usize, "task"));
            let _ = write!(text, "  subgraph cluster_{} {{\n    label = {}\n", number + 1, quoted(&label));
            for vertex in &chain.vertices {
                let (uid, label) = (quoted(&self.vertices[*vertex].uid), quoted(&self.vertex_text(*vertex)));
                let _ = writeln!(text, "    {uid} [label = {label}]");
            }
            text.push_str("  }\n");
        }
        for (index, edge) in self.edges.iter().enumerate() {
            let (from, to) = (quoted(&self.vertices[edge.from].uid), quoted(&self.vertices[edge.to].uid));
            let style = if edge.port == Port::DeadLetter { "dashed" } else { "solid" };
            let how = if self.edge_is_chained(index) { "chained".to_owned() } else { edge.exchange.to_string() };
            let label = quoted(&format!("{}: {how}", self.port_name(edge)));
            let _ = writeln!(text, "  {from} -> {to} [label = {label}, style = {style}]");
        }
        text.push_str("}\n");
        text
    }

    /// The name of the output an edge comes from.
    pub fn port_name(&self, edge: &Edge) -> &str {
        match (edge.port, &self.vertices[edge.from].kind) {
            (Port::DeadLetter, _) => "dead_letter",
            (Port::Output(port), VertexKind::Operator(spec)) => {
                spec.description.outputs.get(port as usize).map_or("?", |output| &output.name)
            }
            (Port::Output(_), _) => "main",
        }
    }

    /// The name of the input an edge leads to, where its reader has several.
    pub fn input_name(&self, edge: &Edge) -> Option<&str> {
        match &self.vertices[edge.to].kind {
            VertexKind::Operator(spec) if spec.description.inputs.len() > 1 => {
                spec.description.inputs.get(edge.input as usize).map(|input| input.name.as_str())
            }
            _ => None,
        }
    }

    fn vertex_text(&self, vertex: usize) -> String {
        let uid = &self.vertices[vertex].uid;
        match &self.vertices[vertex].kind {
            VertexKind::Source(spec) => format!("source {uid}: {}", spec.connector),
            VertexKind::Operator(spec) if self.is_keyed(vertex) => format!("operator {uid}: {}, keyed", spec.component),
            VertexKind::Operator(spec) => format!("operator {uid}: {}", spec.component),
            VertexKind::Sink(spec) => format!("sink {uid}: {}", spec.connector),
        }
    }
}

fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', " "))
}
