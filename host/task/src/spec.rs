//! What a task is to be made of, in words of its worker: nothing here runs.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use weir_channel::Frame;
use weir_checkpoint::align::Mode;
use weir_connectors::{EventTime, Sink, Source, WatermarkGenerator};
use weir_model::{Attempt, KeyGroupRange, OperatorUid, TaskId, Timestamp};

use crate::clock::Clock;
use crate::gate::Gate;
use crate::node::{OnReject, Target};
use crate::operator::{AfterEnd, InstanceFactory, RestoredInstance};
use crate::pace::CallRows;
use crate::report::Outlet;
use crate::router::Router;
use crate::signal::Wake;
use crate::stats::{TaskStats, VertexStats};

/// What a task starts with.
pub enum HeadSpec {
    /// A source.
    Source {
        /// Its uid.
        uid: OperatorUid,
        /// The source.
        source: Box<dyn Source>,
        /// How event times are read from rows; without it the source sets them.
        event_time: Option<EventTime>,
        /// How watermarks follow from event times.
        generator: WatermarkGenerator,
        /// Where its rows go.
        targets: Vec<Target>,
        /// Its counts.
        stats: Arc<VertexStats>,
        /// Positions of all splits of the source, and the greatest event time, of a checkpoint.
        restore: Option<(BTreeMap<String, Value>, Timestamp)>,
    },
    /// Channels from other tasks.
    Gate {
        /// The channels.
        gate: Gate,
        /// What each channel brings.
        channels: Vec<GateChannel>,
        /// In-flight data of a checkpoint, worked off before anything from the gate, in this order.
        restored: Vec<RestoredInFlight>,
    },
}

/// What a channel of a gate brings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateChannel {
    /// Input of the first node that it belongs to.
    pub input: u32,
    /// Over a hash exchange all rows come divided by key group, and these are the groups that the task owns. Over any other
    /// none do.
    pub groups: Option<KeyGroupRange>,
    /// The task that sends, for messages.
    pub from: String,
}

/// In-flight data that comes back from a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoredInFlight {
    /// Input of the first node that it belongs to.
    pub input: u32,
    /// Of a keyed operator's instances, those that `Rows` frames have to reach; `None`: all of them.
    pub groups: Option<KeyGroupRange>,
    /// Frames with rows, in order.
    pub frames: Vec<Frame>,
}

/// How the instances of an operator are divided.
#[derive(Clone, Copy, Debug)]
pub enum Instances {
    /// One per owned key group, made when the first row comes, or at once.
    Keyed {
        /// The owned key groups.
        groups: KeyGroupRange,
        /// Make all at once (operators that also have a broadcast input).
        eager: bool,
    },
    /// One, for the subtask of this index.
    Single(u32),
}

/// An operator or a sink.
pub enum NodeWork {
    /// An operator.
    Operator {
        /// Makes its instances.
        factory: Arc<dyn InstanceFactory>,
        /// How they are divided.
        instances: Instances,
        /// Those that a checkpoint held.
        restored: Vec<RestoredInstance>,
        /// How those of them go on that were told the end.
        after_end: AfterEnd,
        /// What is known of its calls from executions before; this one adds to it.
        call_rows: Arc<CallRows>,
    },
    /// A sink.
    Sink(Box<dyn Sink>),
}

/// One node of a chain.
pub struct NodeSpec {
    /// Its uid.
    pub uid: OperatorUid,
    /// Name of its component, for dead letters.
    pub component: String,
    /// What it does.
    pub work: NodeWork,
    /// What becomes of rejected rows.
    pub on_reject: OnReject,
    /// Targets of each output port that has a name.
    pub outputs: Vec<Vec<Target>>,
    /// The port that late rows come out of, whether it has a name or not; none where that is not known.
    pub late_port: Option<u32>,
    /// Targets of dead letters.
    pub dead_letters: Vec<Target>,
    /// Its counts.
    pub stats: Arc<VertexStats>,
}

/// Everything a task is made of.
pub struct TaskSpec {
    /// Its number.
    pub id: TaskId,
    /// Its name, for its thread and messages.
    pub name: String,
    /// The execution it belongs to.
    pub attempt: Attempt,
    /// How barriers are aligned.
    pub mode: Mode,
    /// What it starts with.
    pub head: HeadSpec,
    /// Its nodes, each after those that feed it.
    pub nodes: Vec<NodeSpec>,
    /// The edges that leave it.
    pub routers: Vec<Router>,
    /// Wakes whoever runs it; its gate and senders know it.
    pub wake: Arc<dyn Wake>,
    /// The way to its worker.
    pub outlet: Box<dyn Outlet>,
    /// Its counts.
    pub stats: Arc<TaskStats>,
    /// The time it goes by.
    pub clock: Arc<dyn Clock>,
}
