//! One execution of a job on this worker: a thread that carries out what the coordinator says, step by step.
//!
//! `voice.rs` is the way back to the coordinator, and remembers what was said. `prepare.rs` reads the job and takes its components
//! in; `look.rs` asks sources for more after the end; `restore.rs` reads the state of a checkpoint; `deploy.rs` builds tasks; `channels.rs` makes gates and routers; `persisters.rs`
//! has the threads that make snapshots durable; `tasks.rs` starts and ends threads.

mod channels;
mod deploy;
mod host;
mod look;
mod meters;
mod persisters;
mod prepare;
mod restore;
mod runner;
mod tasks;
mod voice;

pub(crate) use prepare::tasks_here;
pub use prepare::{ConnectorLine, check_connectors, describe_connectors};
pub(crate) use runner::Runner;
pub(crate) use voice::transient;
