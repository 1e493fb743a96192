//! The life of one job, as a state machine: whose state it is, slots, the steps of an execution's beginning, checkpoints, what
//! follows a failure, what people wish.
//!
//! Owns every decision about one job's executions and checkpoints. Never waits, reads a clock, starts a thread or touches a disk:
//! it is told what happens ([`Input`]) and says what is to be done ([`Output`]). Whoever drives it (a thread of the coordinator,
//! the simulator) does that and brings the answers.

mod answers;
mod commits;
mod deploy;
mod deployed;
mod ended;
mod ending;
pub mod fits;
mod limits;
mod master;
pub mod meters;
mod notice;
pub mod oddities;
mod outcome;
mod phase;
mod plan;
mod progress;
mod prospects;
mod requests;
mod run;
mod store_failure;
mod words;

pub use limits::Limits;
pub use master::Master;

pub use notice::{Notice, Shortage};
pub use outcome::{JobError, Outcome};
pub use progress::{CheckpointProgress, Pauses, Progress, RestoreProgress, VertexProgress};
pub use store_failure::{StoreFailure, StoreFailureKind};
pub use words::*;

#[cfg(test)]
mod tests;
