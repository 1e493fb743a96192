//! The JSON Schema that a component gives for its configuration: whether it can be used, what it finds wrong with a `config`
//! table, and what it says to people.
//!
//! Owns which parts of JSON Schema (2020-12) Weir goes by, and how much work a schema may cause: it comes from outside, and is
//! used in the coordinator.

mod check;
mod outline;
mod read;
mod words;

pub(crate) use check::{Complaint, Wrong, check};
pub use outline::SettingLine;
pub use read::ConfigSchema;
pub(crate) use words::joined;
