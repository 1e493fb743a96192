//! The coordinator: the lives of jobs. Decides where tasks run, when checkpoints are taken, and what follows a failure.
//!
//! Each job has a master (`master/`), which knows the cluster only through [`Surroundings`]. The rest of the crate is what
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

pub use cluster::kinds;
pub use error::ServeError;
pub use local::{LOCAL_WORKER, Local, Open, Tell, Watch};
pub use master::Master;
pub use metadata::MetadataError;
pub use options::{Inspect, ServeOptions, Server};
pub use server::serve;
pub use surroundings::{Surroundings, Told};
pub use weir_master::{
    Adopted, Begun, CheckpointProgress, JobError, MasterJob, Notice, Outcome, Pauses, Progress, Shortage, Slots, VertexProgress,
    Wish,
};
