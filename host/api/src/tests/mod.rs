//! The server over real sockets, with a cluster that only keeps what it is told.

mod abuse;
mod access;
mod description;
mod requests;
mod roles;
mod world;
