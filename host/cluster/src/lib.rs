//! The decisions of a cluster's coordinator as a state machine: which workers there are and whom they follow, what they may say, who gets
//! which slots, what people may ask of which job, which execution goes on under a new coordinator.
//!
//! Owns every decision that is about more than one job, and the order in which things are written and said. Never decides about one job's
//! executions or checkpoints: its master does (`weir-master`). Never waits, reads a clock, starts a thread or touches a disk: it
//! is told what happens ([`Input`]) and says what is to be done ([`Output`]). The coordinator's process drives it, and so does the simulator,
//! which ends it between any two outputs.
//!
//! # What makes `kill -9` at any point safe
//!
//! The disk is written before anyone is told, and nobody acts on what was not written. Point by point:
//!
//! - **Submission**: the record is durable, then the master starts, then the person is answered. Killed before the write: the
//!   person has no answer and there is no job. After it: the next coordinator starts the job.
//! - **An execution begins**: the checkpoint storage gives the attempt's number, which fences all older ones; workers build its
//!   tasks; then placement and job are durable (`Record`); then workers are told
//!   `Start`. Killed before the write: workers return with an execution that nobody waits for, and end it. Between write and
//!   `Start`: they return with one that was not started, so a new attempt begins. `fresh` is cleared in the same write: before
//!   it, forgetting the checkpoints once more does no harm (nothing had run), after it there are checkpoints that count.
//! - **A manifest is written, sinks are not told**: workers return with what their sinks have committed; the master that takes
//!   the execution over commits what is missing. Without a takeover, restoring the manifest commits it.
//! - **A wish** (stop, cancel, rescale): durable, then told to the master, which keeps it whatever becomes of an execution. The
//!   next coordinator tells it again; it stays in the record until the job is over, or an execution has the new parallelism,
//!   or that was refused.
//! - **The end**: the master says how the job ended when everything is committed; slots are given back, then the record is
//!   written. Killed before the write: the job is started again, finds its final checkpoint and ends the same way. A
//!   cancelled job is over as soon as its wish is durable: the next coordinator does not take its execution over, and workers
//!   that return with it are told to end it.
//! - **Workers** are welcomed with the executions that may go on: those a takeover waits for, and no others. So whatever an
//!   older life of this coordinator began and this one does not know ends when its worker connects.
//! - **Two coordinators**: a lock keeps a second one off the folder. One on another folder has another epoch: workers that run something
//!   stay with the coordinator that began it (`elsewhere`). One on a copy of the folder begins attempts of its own;
//!   whichever does so last owns a job's checkpoints, and the other's manifests, and so its commits, are refused.

mod asks;
mod book;
mod changes;
mod chronicle;
mod counts;
mod elsewhere;
mod expiry;
#[doc(hidden)]
pub mod fuzz;
mod gate;
mod job;
pub mod kinds;
mod machine;
mod masters;
mod names;
mod queue;
mod record;
pub mod refusals;
mod registry;
mod resume;
mod schedule;
mod state;
mod takeover;
mod views;
mod words;
mod workers;

pub use machine::Machine;
pub use record::{BegunChange, Change, Counts, Intent, JobRecord, Metadata, StoredJob, WriteFailure};
pub use registry::{LinkId, Now};
pub use state::Settings;
pub use views::component;
pub use words::{Ask, ChangeId, Hello, Input, JobAsk, LogLine, NameAsk, Output, Receipt, RequestId};

#[cfg(test)]
mod tests;
