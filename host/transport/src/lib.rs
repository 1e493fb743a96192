//! Connections between the processes of a cluster: who may talk, and what travels between them.
//!
//! Owns the cluster's certificates ([`pki`]), the QUIC endpoint ([`Endpoint`]), and two kinds of connections: [`Control`],
//! messages in order, and [`Data`], one stream per channel with frames of rows. A pair of processes has one of each, so
//! that blocked data never holds up control. [`liveness`] is a third, over TCP, that carries nothing and tells at once when a
//! process is gone.
//!
//! Never knows what a message says, nor what a job is. Whatever a peer can make this side hold is bounded in
//! `weir_model::limits`. A program without a certificate of the cluster gets no answer at all.
//!
//! All async functions run on the tokio runtime an [`Endpoint`] was given.

mod control;
mod credentials;
mod crypto;
mod data;
mod endpoint;
mod error;
mod hello;
mod identity;
mod ids;
mod link;
pub mod liveness;
mod metrics;
mod node_places;
pub mod pki;
mod quic;
mod settings;
mod socket;
pub mod strangers;
#[cfg(test)]
mod tests;

pub use control::{Control, ControlReceiver, ControlSender, TrySend};
pub use data::{ChannelHeader, ChannelReader, ChannelWriter, Data};
pub use endpoint::{Endpoint, Incoming};
pub use error::{CloseCause, TransportError};
pub use identity::Identity;
pub use ids::{ClusterId, Expected, Incarnation, InvalidName, NodeId, Peer, Role};
pub use metrics::{ConnectionMetrics, EndpointMetrics};
pub use settings::{Congestion, Settings};

#[doc(hidden)]
pub mod fuzz;
