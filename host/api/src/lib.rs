//! The HTTP API of a coordinator.
