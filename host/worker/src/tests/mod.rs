//! Whole jobs in this process: a real component, real tasks, persisters and restarts; the source, the sink and the object
//! store are made for the tests and fail when told to.
#![allow(clippy::unwrap_used)]

mod bare;
mod ends;
mod failures;
mod panics;
mod refusals;
mod restores;
mod sinks;
pub(crate) mod store;
mod unaligned;
mod world;
