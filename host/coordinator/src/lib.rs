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
mod notice;
mod options;
mod outcome;
mod progress;
mod registry;
mod schedule;
mod server;
mod surroundings;
mod takeover;

pub use cluster::kinds;
pub use error::ServeError;
pub use local::{LOCAL_WORKER, Local, Open, Tell, Watch};
pub use master::{Master, MasterJob};
pub use metadata::MetadataError;
pub use notice::Notice;
pub use options::{Inspect, ServeOptions, Server};
pub use outcome::{JobError, Outcome};
pub use progress::{CheckpointProgress, Pauses, Progress, VertexProgress};
pub use server::serve;
pub use surroundings::{Adopted, Begun, Shortage, Slots, Surroundings, Told, Wish};
