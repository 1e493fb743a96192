//! The nodes of a chain: an operator or a sink each, with where its rows go.

use std::sync::Arc;
use std::time::Duration;

use weir_connectors::{ConnectorError, Sink};
use weir_model::{BatchRef, CheckpointId, OperatorUid};

use crate::operator::Operator;
use crate::pace::Pace;
use crate::report::SinkPrepare;
use crate::stats::VertexStats;

/// Where rows go next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// To a later node of the same chain.
    Node {
        /// Index of the node.
        node: usize,
        /// Which of its inputs.
        input: u32,
    },
    /// Out of the task.
    Router(usize),
}

/// What becomes of rows that an operator rejects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnReject {
    /// The job fails over.
    Fail,
    /// The row goes to the dead-letter output.
    DeadLetter,
}

pub(crate) enum NodeKind {
    Operator(Box<Operator>),
    Sink(SinkNode),
}

/// A sink, and how fast it is.
pub(crate) struct SinkNode {
    sink: Box<dyn Sink>,
    pace: Pace,
}

/// One operator or sink of a chain.
pub(crate) struct Node {
    pub(crate) uid: OperatorUid,
    pub(crate) component: String,
    pub(crate) kind: NodeKind,
    pub(crate) on_reject: OnReject,
    /// Targets of each output port that has a name.
    pub(crate) outputs: Vec<Vec<Target>>,
    /// The port that late rows come out of.
    pub(crate) late_port: Option<u32>,
    pub(crate) dead_letters: Vec<Target>,
    pub(crate) stats: Arc<VertexStats>,
}

impl Node {
    /// All targets, dead letters' included, each once: two outputs may go to two inputs of one node.
    pub(crate) fn targets(&self) -> Vec<Target> {
        let mut targets: Vec<Target> = Vec::new();
        for &target in self.outputs.iter().flatten().chain(&self.dead_letters) {
            let is_same = |known: &Target| match (*known, target) {
                (Target::Node { node: known, .. }, Target::Node { node, .. }) => known == node,
                (known, target) => known == target,
            };
            if !targets.iter().any(is_same) {
                targets.push(target);
            }
        }
        targets
    }
}

impl SinkNode {
    pub(crate) fn new(sink: Box<dyn Sink>) -> SinkNode {
        SinkNode { sink, pace: Pace::default() }
    }

    /// Writes some of the rows from `first` on. Gives how many.
    pub(crate) fn write(&mut self, rows: BatchRef<'_>, first: usize) -> Result<usize, ConnectorError> {
        let part = self.pace.take(rows, first, usize::MAX);
        let count = part.len();
        self.sink.write(part)?;
        Ok(count)
    }

    /// Writing so many rows took so long.
    pub(crate) fn learn(&mut self, rows: usize, took: Duration) {
        self.pace.learn(rows, took);
    }

    /// What is to be made durable for a checkpoint, off the data path.
    pub(crate) fn prepare(&mut self, checkpoint: CheckpointId) -> Result<SinkPrepare, ConnectorError> {
        self.sink.prepare(checkpoint)
    }
}
