//! What one thread runs: a chain of subtasks between an input and the edges that leave it.
//!
//! `source or gate -> operators and sinks -> routers`. The loop is in `task.rs`; the order in which rows, watermarks and
//! the end pass through a chain in `chain.rs`; when instances are called and captured in `operator.rs`. The rules of
//! barriers are not here but in `weir_checkpoint::align`.

mod build;
mod chain;
mod clock;
mod dead_letter;
mod error;
mod gate;
pub mod in_flight;
mod odd_rows;
mod odd_stats;
mod operator;
mod pace;
mod report;
mod router;
mod signal;
mod snapshot;
mod source;
mod stats;
mod task;
mod work;
mod worth;

pub use build::{GateChannel, HeadSpec, Instances, NodeSpec, NodeWork, RestoredInFlight, TaskHandle, TaskSpec};
pub use chain::{OnReject, Target};
pub use clock::{Clock, SystemClock};
pub use error::TaskError;
pub use gate::{Announcer, Gate, Sender};
pub use odd_stats::OddStats;
pub use operator::{AfterEnd, Instance, InstanceFactory, RestoredInstance};
pub use pace::CallRows;
pub use report::{
    CapturedState, Control, InFlight, InFlightSource, Outlet, Prepare, Report, SnapshotPart, SourceState, TaskState,
};
pub use router::Router;
pub use signal::{Signal, Wake};
pub use stats::{Histogram, TaskStats, VertexStats};
pub use task::{Task, Turn};
