//! Runs jobs in this process: turns a checked job into tasks, drives its checkpoints, makes snapshots durable, restores
//! and restarts.
//!
//! The decisions are elsewhere (`weir_checkpoint`); here they are carried out. `prepare.rs` checks everything that can be
//! checked before a row is read; `restore.rs` chooses the checkpoint to start from; `deploy.rs` builds the tasks;
//! `attempt.rs` drives one execution; `run.rs` restarts it.

mod attempt;
mod deploy;
mod error;
mod events;
mod host;
mod manifest;
mod options;
mod persist;
mod prepare;
mod progress;
mod restore;
mod run;
mod topology;

#[cfg(test)]
mod tests;

pub use error::JobError;
pub use events::{Notice, StopHandle};
pub use options::{Components, Options, ResolvedComponent};
pub use prepare::{PreparedJob, check_connectors, prepare};
pub use progress::{CheckpointProgress, Pauses, Progress, VertexProgress};
pub use run::{Outcome, RunningJob};
