//! What one thread runs: a chain of subtasks between an input and the edges that leave it.
//!
//! `source or gate -> operators and sinks -> routers`. The loop is in `task.rs`; what was read and is not done in `backlog.rs`; the
//! order in which rows, watermarks and the end pass through a chain in `chain.rs`; when instances are called and captured in
//! `operator.rs`. The rules of barriers are not here but in `weir_checkpoint::align`.

mod arrival;
mod backlog;
mod build;
mod chain;
mod clock;
mod dead_letter;
mod error;
mod gate;
mod head;
mod held_rows;
pub mod in_flight;
mod mailbox;
mod node;
mod odd_rows;
mod odd_stats;
mod operator;
mod pace;
mod report;
mod router;
mod signal;
mod snapshot;
mod source;
mod spec;
mod stats;
mod task;
mod worth;

pub use arrival::Arrival;
pub use clock::{Clock, SystemClock};
pub use error::TaskError;
pub use gate::{Announcer, Gate, Sender};
pub use mailbox::TaskHandle;
pub use node::{OnReject, Target};
pub use odd_stats::OddStats;
pub use operator::{AfterEnd, InstanceFactory, KeyedTemplate, OperatorInstance, RestoredInstance};
pub use pace::CallRows;
pub use report::{
    CapturedState, Control, InFlight, InFlightSource, Outlet, SinkPrepare, SnapshotPart, SourceState, TaskReport, TaskState,
};
pub use router::Router;
pub use signal::{Signal, Wake};
pub use spec::{GateChannel, HeadSpec, Instances, NodeSpec, NodeWork, RestoredInFlight, TaskSpec};
pub use stats::{Histogram, TaskStats, VertexStats};
pub use task::{Task, Turn};
