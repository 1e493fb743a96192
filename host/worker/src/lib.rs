//! A worker: builds the tasks that it is told to, runs them, makes their snapshots durable and says what happens.
//!
//! It decides nothing about a job. What it is told and what it says is `weir_protocol`; each execution of a job has a thread
//! that carries commands out, one after the other (`execution/`).

pub mod agent;
mod beneath;
mod execution;
#[doc(hidden)]
pub mod fuzz;
mod network;
mod options;
pub mod persist;
mod worker;

#[cfg(test)]
mod tests;

pub use beneath::Beneath;
pub use execution::{ConnectorLine, check_connectors, describe_connectors};
pub use network::{Inbound, Network, OnLost, Outbound, PeerLost, QuicNetwork, RoomWake};
pub use options::{BuiltinConnectors, ComponentSource, Connectors, Reports, Storages, UrlStorages, WorkerOptions};
pub use worker::Worker;
