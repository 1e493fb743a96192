//! How people and programs write times, time spans, numbers and fields of JSON: read by one set of rules, in the host and in
//! operators.
//!
//! Owns the rules. Never allocates for what it only looks at, never panics on any bytes, and has neither clock nor file
//! (`no_std`). What to do with a text that is none of these is the caller's choice.

#![no_std]

extern crate alloc;

pub mod json;
pub mod number;
#[cfg(feature = "schema")]
mod schema;
pub mod span;
pub mod text;
pub mod time;
