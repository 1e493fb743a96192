//! The log of a job: what is decided about it, in the order in which it was decided.
//!
//! Owns who leads, which attempt is the newest, which checkpoints count and what is to be taken back, and deletes what counts no more.
//! Never looks into a checkpoint beyond its manifest, and never decides by itself when something is to be decided. Which rules make it one
//! history is in docs/decisions/0030-one-log-per-job.md, what stands in an entry in docs/formats.md.
//!
//! `decision`, `entry` and `state` are what is written; `pen` is how one of many writers puts an entry (pure); `shelf` carries its requests out;
//! `job_log` is what coordinators call; `references` knows which files a checkpoint needs;
//! `trash` deletes.

mod decision;
mod entry;
pub(crate) mod fuzz;
mod job_log;
mod pen;
mod references;
mod shelf;
mod state;
mod trash;

#[cfg(test)]
pub(crate) mod tests;

pub use decision::{Owner, StoredCheckpoint, Writer};
pub use job_log::{Begun, JobLog, Led, Skipped};
pub use state::JobState;
pub use trash::Deleted;
