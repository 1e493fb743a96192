//! The checkpoint protocol as pure state machines: events in, actions out.
//!
//! - [`align`]: what one task does with the barriers in its input channels.
//! - [`machine`]: when checkpoints start, when they are complete, failed or given up, and what follows from that.
//! - [`restart`]: whether and when a failed job starts again.
//!
//! Floor 1: no I/O, clock, randomness or thread. Time is a number of milliseconds that the caller hands in, from any clock
//! that does not go back. Whoever holds a machine carries out its actions, all of them and in the order given.

pub mod align;
pub mod machine;
pub mod restart;

#[cfg(test)]
mod simulation;
