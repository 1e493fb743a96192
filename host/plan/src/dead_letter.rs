//! Rejected rows are never dropped: where no sink of a job reads them, they go to a folder.

use serde_json::{Map, Value};

use crate::job::{Edge, Exchange, Job, OnError, Port, SinkSpec, Vertex, VertexKind};

/// Uid of the sink for dead letters that the job file has no sink for.
const UID: &str = "dead_letter";

impl Job {
    /// Where rejected rows of the job go, in the words of its sinks that read them: paths as they are set, or what else there is
    /// to say. Nothing where no operator rejects rows.
    pub fn dead_letters(&self) -> Vec<String> {
        let mut readers: Vec<usize> =
            self.edges.iter().filter(|edge| edge.port == Port::DeadLetter).map(|edge| edge.to).collect();
        readers.sort_unstable();
        readers.dedup();
        let place = |vertex: &Vertex| match &vertex.kind {
            VertexKind::Sink(spec) => match spec.settings.get("path").and_then(Value::as_str) {
                Some(path) => path.to_owned(),
                None => format!("{} (sink {})", spec.connector, vertex.uid),
            },
            VertexKind::Operator(_) | VertexKind::Source(_) => format!("operator {}", vertex.uid),
        };
        readers.into_iter().map(|reader| place(&self.vertices[reader])).collect()
    }

    /// Adds a sink for dead letters that writes below `folder`, where the job has operators that may reject rows and no sink
    /// that reads them.
    #[must_use]
    pub fn with_dead_letter_sink(mut self, folder: &str) -> Job {
        if self.edges.iter().any(|edge| edge.port == Port::DeadLetter) {
            return self;
        }
        let rejects =
            |vertex: &Vertex| matches!(&vertex.kind, VertexKind::Operator(spec) if spec.on_error == OnError::DeadLetter);
        let writers: Vec<usize> = (0..self.vertices.len()).filter(|&vertex| rejects(&self.vertices[vertex])).collect();
        if writers.is_empty() {
            return self;
        }
        let text = |value: &str| Value::String(value.to_owned());
        let settings = Map::from_iter([("path".to_owned(), text(folder)), ("format".to_owned(), text("json"))]);
        let to = self.vertices.len();
        let sink = SinkSpec { connector: "file".to_owned(), settings };
        self.vertices.push(Vertex { uid: UID.to_owned(), parallelism: 1, kind: VertexKind::Sink(sink) });
        for from in writers {
            let exchange = if self.vertices[from].parallelism == 1 { Exchange::Forward } else { Exchange::Rebalance };
            self.edges.push(Edge { from, port: Port::DeadLetter, to, input: 0, exchange });
        }
        self
    }
}
