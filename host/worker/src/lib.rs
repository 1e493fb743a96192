//! A worker: builds the tasks that it is told to, runs them, makes their snapshots durable and says what happens.
//!
//! It decides nothing about a job. What it is told and what it says is `weir_protocol`; each execution of a job is a machine
//! (`execution/`) whose steps and tasks an [`executor`] runs.

pub mod agent;
mod beneath;
mod context;
mod execution;
pub mod executor;
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
pub use options::{
    BuiltinConnectors, CONGESTED_BYTES_DEFAULT, ComponentSource, Connectors, Reports, Storages, UrlStorages, WorkerOptions,
};
pub use worker::Worker;
