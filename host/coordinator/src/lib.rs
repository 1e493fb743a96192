//! The coordinator: the lives of jobs. Decides where tasks run, when checkpoints are taken, and what follows a failure.
//!
//! All that is decided, machines decide: one of the cluster (`weir_cluster`), one of each job (`weir_master`). This crate drives them: threads,
//! connections, the coordinator's disk, the jobs' storage. A master's thread (`master/`) knows the cluster only through [`Surroundings`].

mod cluster;
mod error;
#[cfg(test)]
mod faulty;
mod local;
mod master;
mod metadata;
mod options;
mod server;
mod surroundings;

pub use error::ServeError;
pub use local::{LOCAL_WORKER, Local, Open, Tell, Watch};
pub use master::{JobThread, Mailbox, SendFailure, carry_out};
pub use metadata::MetadataError;
pub use options::{Describe, OpenStorage, ServeOptions};
pub use server::{Server, serve};
pub use surroundings::Surroundings;
#[doc(hidden)]
pub use weir_cluster::fuzz;
pub use weir_cluster::kinds;
pub use weir_master::{
    Adopted, Begun, CheckpointProgress, Input, JobError, Limits, MasterJob, Notice, Outcome, Pauses, Progress, Shortage, Slots,
    VertexProgress, Wish,
};
