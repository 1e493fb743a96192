//! Whole endpoints against each other.

mod certificates;
mod flow;
mod garbage;
mod knock;
mod liveness;
mod net;
mod refusals;
mod restart;
mod rig;
mod roles;
mod simulated;
mod throughput;
