//! What a checked job file says: settings, vertices, edges. Built by [`crate::load`] only; afterwards it never changes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};
use weir_model::Description;

use crate::diagnostics::Diagnostics;
use crate::tree::Document;

/// A checked job: every reference resolves, every setting Weir itself knows has been read.
#[derive(Clone, Debug)]
pub struct Job {
    /// Name; also the name of the job's folder in the data directory and in the checkpoint storage.
    pub name: String,
    /// Subtasks of a vertex that does not say otherwise. Default 1.
    pub parallelism: u32,
    /// Key groups of every keyed operator; bounds their parallelism. Default [`weir_model::limits::KEY_GROUPS_DEFAULT`].
    pub key_groups: u16,
    /// What happens to a row that an operator cannot process, where the operator does not say otherwise.
    pub on_error: OnError,
    /// `[job.checkpoint]`.
    pub checkpoint: CheckpointSettings,
    /// `[job.restart]`.
    pub restart: RestartSettings,
    /// Sources, operators, sinks, in the order of the job file. Edges name them by index.
    pub vertices: Vec<Vertex>,
    /// Edges, ordered by the reading vertex, then by its input index, then as written.
    pub edges: Vec<Edge>,
    /// Edges that are not chained although they could be.
    pub(crate) apart: BTreeSet<usize>,
    pub(crate) document: Document,
    pub(crate) warnings: Diagnostics,
}

/// What happens to a row that an operator rejects. A trap fails the job either way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnError {
    /// The job fails (and its restart strategy decides).
    Fail,
    /// The row goes to the dead-letter output and the stream goes on. The default.
    DeadLetter,
}

/// `[job.checkpoint]`.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckpointSettings {
    /// Time from one trigger to the next. None: off (a last checkpoint at end and stop is still taken). Default 10 s.
    pub interval: Option<Duration>,
    /// Default exactly-once.
    pub mode: CheckpointMode,
    /// How long alignment may take before a barrier overtakes. None: for ever ("never"). Default 1 s.
    pub unaligned_after: Option<Duration>,
    /// A checkpoint that takes longer is aborted. Default 10 min.
    pub timeout: Duration,
    /// Time between the end of one checkpoint and the trigger of the next, at least. Default 0.
    pub min_pause: Duration,
    /// Checkpoints in a row that may fail before the job fails. Default 3.
    pub tolerable_failures: u32,
    /// Completed checkpoints kept, at least 1. Default 3.
    pub retained: u32,
    /// Where checkpoints go: a URL or a path as written. None: in the data directory.
    pub storage: Option<String>,
}

/// What a checkpoint promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckpointMode {
    /// Every row counts once.
    ExactlyOnce,
    /// Rows may count twice after a restart; no channel ever waits for another.
    AtLeastOnce,
}

/// `[job.restart]`: what happens when a job fails.
#[derive(Clone, Debug, PartialEq)]
pub enum RestartSettings {
    /// The job stays failed.
    None,
    /// Restart after a fixed time.
    Fixed {
        /// Time before each restart. Default 1 s.
        delay: Duration,
        /// Restarts before giving up. None: no bound. Default none.
        attempts: Option<u32>,
    },
    /// Restart unless failures come too often.
    FailureRate {
        /// Failures within `per` that are tolerated. Default 3.
        failures: u32,
        /// The span they are counted in. Default 10 min.
        per: Duration,
        /// Time before each restart. Default 1 s.
        delay: Duration,
    },
    /// Restart after a time that grows with each failure. The default.
    Exponential {
        /// The first time. Default 200 ms.
        initial: Duration,
        /// The longest time. Default 30 s.
        max: Duration,
        /// Growth, at least 1. Default 2.
        multiplier: f64,
        /// A job that ran this long starts over with `initial`. Default 10 min.
        reset_after: Duration,
        /// Part of the time that is random, 0 to 1. Default 0.1.
        jitter: f64,
    },
}

/// A source, operator or sink.
#[derive(Clone, Debug)]
pub struct Vertex {
    /// `id`: stable; state belongs to it.
    pub uid: String,
    /// Number of subtasks.
    pub parallelism: u32,
    /// What it is.
    pub kind: VertexKind,
}

/// What a vertex is.
#[derive(Clone, Debug)]
pub enum VertexKind {
    /// Reads rows from outside.
    Source(SourceSpec),
    /// Runs a component.
    Operator(OperatorSpec),
    /// Writes rows to outside.
    Sink(SinkSpec),
}

/// `[[source]]`.
#[derive(Clone, Debug)]
pub struct SourceSpec {
    /// Name of the connector; known to the connectors crate only.
    pub connector: String,
    /// All keys but the common ones, as written. The connector checks them.
    pub settings: Map<String, Value>,
    /// Where a row's event time comes from. None: the connector's own idea of it.
    pub event_time: Option<EventTimeSpec>,
    /// How far event time has got.
    pub watermark: WatermarkSpec,
}

/// `event_time` of a source, as written: the connectors crate owns its formats and checks it.
#[derive(Clone, Debug, PartialEq)]
pub struct EventTimeSpec {
    /// The table (`field`, `format`).
    pub settings: Map<String, Value>,
}

/// `watermark` of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatermarkSpec {
    /// How much older than the newest row a row may be and still be on time. Default 0.
    pub delay: Duration,
    /// A source without rows for this long no longer holds others back. None: never. Default none.
    pub idle_after: Option<Duration>,
    /// How far beyond the time of day a row's time may be and still move event time.
    pub max_ahead: MaxAhead,
}

/// `watermark.max_ahead` of a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MaxAhead {
    /// Not given: the connectors crate decides, by whether rows come as they happen.
    #[default]
    Unset,
    /// `"off"`: any row moves event time.
    Off,
    /// This far.
    Of(Duration),
}

/// Name of the output for rows that came too late, by convention.
const LATE: &str = "late";

/// `[[operator]]`.
#[derive(Clone, Debug)]
pub struct OperatorSpec {
    /// The component that runs.
    pub component: ComponentRef,
    /// Its configuration, any JSON value; `{}` where not given. It fits the component's schema; the component may find more when it
    /// opens.
    pub config: Value,
    /// Bounds of each instance.
    pub limits: LimitsSpec,
    /// What happens to a row it cannot process.
    pub on_error: OnError,
    /// What its component says of itself: its inputs and outputs, by number.
    pub description: Arc<Description>,
}

impl OperatorSpec {
    /// The output for rows that came too late: the one that its component calls `late`.
    pub fn late_port(&self) -> Option<u32> {
        self.description.output(LATE)
    }
}

/// Which component an operator runs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ComponentRef {
    /// `name@version` in the component store.
    Named {
        /// Name.
        name: String,
        /// Version.
        version: String,
    },
    /// A file; a relative path counts from the job file's folder.
    Path(String),
}

impl std::fmt::Display for ComponentRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ComponentRef::Named { name, version } => write!(f, "{name}@{version}"),
            ComponentRef::Path(path) => f.write_str(path),
        }
    }
}

/// `limits` of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitsSpec {
    /// Linear memory of one instance. Default [`weir_model::limits::INSTANCE_MEMORY_BYTES_DEFAULT`].
    pub memory_bytes: u64,
    /// Memory that all instances on one worker hold together. Default: none but the worker's.
    pub memory_total_bytes: Option<u64>,
    /// Longest guest call. Default [`weir_model::limits::CALL_DEADLINE_MS_DEFAULT`].
    pub call: Duration,
}

/// `[[sink]]`.
#[derive(Clone, Debug)]
pub struct SinkSpec {
    /// Name of the connector; known to the connectors crate only.
    pub connector: String,
    /// All keys but the common ones, as written. The connector checks them.
    pub settings: Map<String, Value>,
}

/// From one output of a vertex to one input of another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edge {
    /// Index of the writing vertex.
    pub from: usize,
    /// Which of its outputs.
    pub port: Port,
    /// Index of the reading vertex.
    pub to: usize,
    /// Which of its inputs, in the order of the component's description; edges of one input are a union.
    pub input: u32,
    /// How rows find their subtask.
    pub exchange: Exchange,
}

/// An output of a vertex.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Port {
    /// A named output; 0 is the main one.
    Output(u32),
    /// Rows the vertex could not process.
    DeadLetter,
}

impl Port {
    /// The number of a named output; none for dead letters.
    pub fn number(self) -> Option<u32> {
        match self {
            Port::Output(number) => Some(number),
            Port::DeadLetter => None,
        }
    }
}

/// How the rows of an edge find their subtask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Exchange {
    /// Subtask i to subtask i; needs equal parallelism.
    Forward,
    /// Evenly over all subtasks.
    Rebalance,
    /// By the key's group. Makes the reading operator keyed.
    Hash,
    /// Every row to every subtask.
    Broadcast,
}

impl std::fmt::Display for Exchange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Exchange::Forward => "forward",
            Exchange::Rebalance => "rebalance",
            Exchange::Hash => "hash",
            Exchange::Broadcast => "broadcast",
        })
    }
}

/// Vertices that one task runs: each but the first gets its rows by a call, not through a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// Indices of vertices, writers before readers.
    pub vertices: Vec<usize>,
    /// Tasks that run this chain, one per subtask index.
    pub parallelism: u32,
}

impl Job {
    /// Index of the vertex of that name.
    pub fn vertex(&self, uid: &str) -> Option<usize> {
        self.vertices.iter().position(|vertex| vertex.uid == uid)
    }

    /// Slots that the job takes: the parallelism of its widest vertex.
    pub fn slots(&self) -> u32 {
        self.vertices.iter().map(|vertex| vertex.parallelism).max().unwrap_or(0)
    }

    /// Whether the vertex is an operator that runs one instance per key group: it has an input with a hash exchange.
    pub fn is_keyed(&self, vertex: usize) -> bool {
        matches!(self.vertices[vertex].kind, VertexKind::Operator(_))
            && self.edges.iter().any(|edge| edge.to == vertex && edge.exchange == Exchange::Hash)
    }

    /// Whether all rows of an input of an operator are of the key group of the instance that gets them: all its edges are hash
    /// edges.
    pub fn is_keyed_input(&self, vertex: usize, input: u32) -> bool {
        let mut edges = self.edges.iter().filter(|edge| edge.to == vertex && edge.input == input).peekable();
        edges.peek().is_some() && edges.all(|edge| edge.exchange == Exchange::Hash)
    }

    /// Whether an instance of the operator is given no keys but those of its key group: all edges into it are hash edges.
    pub fn keeps_to_its_groups(&self, vertex: usize) -> bool {
        let mut edges = self.edges.iter().filter(|edge| edge.to == vertex).peekable();
        edges.peek().is_some() && edges.all(|edge| edge.exchange == Exchange::Hash)
    }

    /// Whether every row of every input reaches every subtask of the vertex, so that all have the same state.
    pub fn is_broadcast_only(&self, vertex: usize) -> bool {
        let mut inputs = self.edges.iter().filter(|edge| edge.to == vertex).peekable();
        inputs.peek().is_some() && inputs.all(|edge| edge.exchange == Exchange::Broadcast)
    }

    /// What is odd about the job but does not keep it from running.
    pub fn warnings(&self) -> &Diagnostics {
        &self.warnings
    }

    /// An error about one setting, placed where the job file (or a flag) sets it.
    ///
    /// `vertex` is a uid, or "" for the `[job]` table. `key` is dotted ("path", "config.size"); where it is not set, the
    /// nearest table around it is pointed at.
    pub fn diagnostic(&self, vertex: &str, key: &str, message: &str, hint: Option<&str>) -> Diagnostics {
        self.document.diagnostic(vertex, key, message, hint)
    }
}
