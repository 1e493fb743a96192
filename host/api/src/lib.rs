//! The HTTP API of a coordinator: JSON under `/api/v1/`, described by `/api/v1/openapi.json`, and `/metrics` for Prometheus.
//!
//! Floor 5. The only crate that knows HTTP. Owns routes, who may use them, and what a request may cost. Knows the cluster only
//! through [`ClusterApi`](weir_protocol::api::ClusterApi), whose calls it makes on blocking threads; decides nothing about
//! jobs.
//!
//! **Who may use it.** Who shows a token, as far as its role goes: each route names the role it takes (`routes.rs`). On a loopback
//! address also processes of the user that runs the coordinator, as admins, but no web page: requests that name another host, or
//! come from another origin, are refused. On any other address only over TLS with a token; the server refuses to start otherwise.
//!
//! **What a request may cost.** Connections, requests at work, uploads and followers of events are bounded, and so are the
//! size of a head and of a body, and the time each may take. Who has no token gets no further than the head, and takes no place
//! of those who have one.

mod access;
mod answer;
mod body;
mod calls;
mod doors;
mod error;
mod events;
mod limits;
mod metrics;
mod openapi;
mod options;
mod paced;
mod peer;
mod routes;
mod server;
mod site;
mod tls;
mod token;

#[cfg(test)]
mod tests;

pub use error::ApiError;
pub use options::{ApiOptions, TlsFiles};
pub use server::{Server, serve};
pub use token::Token;
