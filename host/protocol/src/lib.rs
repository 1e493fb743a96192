//! What the processes of a cluster say to each other: messages between coordinator and workers, and between workers;
//! what people submit and are shown over the HTTP API.
//!
//! Owns shapes and their encoding, what follows from them alone (`manifest`), and how a panic becomes a message (`panics`). Never opens a connection, never decides anything. Every message of an execution carries
//! its job and attempt, so that whatever is older can be refused where it arrives.

pub mod access;
pub mod api;
mod codec;
mod command;
mod job;
mod lead;
pub mod manifest;
pub mod panics;
mod peer;
mod progress;
mod report;

pub use codec::{CodecError, Envelope, decode, encode};
pub use command::{Command, Commits, Placement, Prepare, WorkerAddress};
pub use job::{ComponentPin, JobSpec};
pub use lead::{Order, follows};
pub use peer::PeerMessage;
pub use progress::{Durations, TaskProgress, VertexCounts, WorkerProgress};
pub use report::{
    Acknowledgement, Failure, FailureKind, InFlightState, InstanceAcknowledgement, Looked, Register, Report, Running,
    SinkAcknowledgement, SourceAcknowledgement,
};

use serde::{Deserialize, Serialize};
use weir_model::Attempt;

/// A worker: the name in its certificate. One that runs inside `weir run` is called "local".
pub type WorkerId = std::sync::Arc<str>;

/// One execution of a job. What carries an older attempt than the current one is refused.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Execution {
    /// The job's name.
    pub job: String,
    /// Its attempt.
    pub attempt: Attempt,
}

impl std::fmt::Display for Execution {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "attempt {} of job {}", self.attempt, self.job)
    }
}
