//! What travels on a channel, and how much of it may wait there.
//!
//! A channel joins one upstream subtask to one downstream subtask. Data, watermarks, idleness, barriers and the end are
//! all in it, in order, always. Floor 1: pure; the queues with their locks are in `task`.

mod budget;
mod frame;
mod watermarks;
pub mod wire;

pub use budget::{Budget, Limits};
pub use frame::Frame;
pub use watermarks::Watermarks;
