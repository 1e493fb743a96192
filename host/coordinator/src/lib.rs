//! The coordinator: the lives of jobs. Decides where tasks run, when checkpoints are taken, and what follows a failure.
//!
//! Each job has a master (`master/`), which knows the cluster only through [`Surroundings`]. The rest of the crate is what
//! surrounds masters in a cluster: workers and their slots, metadata, submissions.

mod master;
mod notice;
mod outcome;
mod progress;
mod surroundings;

pub use master::{Master, MasterJob};
pub use notice::Notice;
pub use outcome::{JobError, Outcome};
pub use progress::{CheckpointProgress, Pauses, Progress, VertexProgress};
pub use surroundings::{Adopted, Begun, Shortage, Slots, Surroundings, Told, Wish};
