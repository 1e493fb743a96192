//! One execution of a job on this worker.
//!
//! `life.rs` is the machine: which command leads to which step, and when the execution is over. `runner.rs` carries out what it says, with
//! the worker's executor. `steps.rs` has the steps, and each is in a file of its own: `prepare.rs` reads the job and takes its components in; `look.rs`
//! asks sources for more after the end; `open.rs` makes templates; `restore.rs` reads what tasks need of a checkpoint before they run; `sinks.rs` has output
//! taken back and committed; `build.rs` builds tasks, with the gates and routers of `channels.rs`. While tasks run, `fill.rs` brings them their instances of the checkpoint, `lanes.rs` has those who
//! store their snapshots and `committers.rs` those who commit; `voice.rs` is the way back to the coordinator, and remembers what was said; `failure.rs` alone says what can be done about an
//! error.
//!
//! runner -> life -> steps -> build -> fill -> restore, sinks, open, look -> prepare -> failure.

mod build;
mod channels;
mod committers;
mod failure;
mod fill;
mod host;
mod lanes;
mod life;
mod look;
mod meters;
mod open;
mod prepare;
mod restore;
mod runner;
mod sinks;
mod steps;
mod voice;

pub(crate) use failure::{Panic, Trouble};
pub(crate) use prepare::tasks_here;
pub use prepare::{ConnectorLine, check_connectors, describe_connectors};
pub(crate) use runner::Runner;
