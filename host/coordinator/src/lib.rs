//! The coordinator: the lives of jobs. Decides where tasks run, when checkpoints are taken, and what follows a failure.
//!
//! Each job has a master (`weir_master`), driven by a thread (`master/`) that knows the cluster only through [`Surroundings`]. The rest of the crate is what
//! surrounds masters in a cluster: workers and their slots, metadata, submissions.

mod cluster;
mod error;
#[cfg(test)]
mod faulty;
mod local;
mod master;
mod metadata;
mod options;
mod registry;
mod schedule;
mod server;
mod surroundings;
mod takeover;

#[doc(hidden)]
pub use cluster::fuzz;
pub use cluster::kinds;
pub use error::ServeError;
pub use local::{LOCAL_WORKER, Local, Open, Tell, Watch};
pub use master::{JobThread, carry_out};
pub use metadata::MetadataError;
pub use options::{Inspect, ServeOptions, Server};
pub use server::serve;
pub use surroundings::Surroundings;
pub use weir_master::{
    Adopted, Begun, CheckpointProgress, Input, JobError, Limits, MasterJob, Notice, Outcome, Pauses, Progress, Shortage, Slots,
    VertexProgress, Wish,
};
