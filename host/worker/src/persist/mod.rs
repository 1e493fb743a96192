//! Making snapshots durable: what a worker does with the pieces of snapshots that its tasks hand over.
//!
//! [`Persister`] is a machine: [`handle`](Persister::handle) takes one [`Item`] and gives what there is to say of it. It owns what is
//! known of the stored chains, the open snapshots and the committables of some tasks, and one file per task and checkpoint while
//! it is written. It has no thread and no queue, waits for nothing but the storage that it is given, and decides nothing: which
//! checkpoints are complete it is told. All items of one task go to one persister, in order; in production a few threads drive
//! persisters (`execution/lanes.rs`), in the simulator its scheduler.
//!
//! [`Queue`] is what such a driver takes items from. What waits in it is bounded by what an execution may hold: the parts of a
//! checkpoint that is given up leave it at once, so that a storage that hangs piles up one snapshot of each task and no more.

mod persister;
mod queue;
mod snapshot;

#[cfg(test)]
mod tests;

pub use persister::{Item, Outcome, Persister, RETRY_DELAY};
pub use queue::{Load, Popped, Queue};
pub use snapshot::{InstanceKey, Origin, Origins, TaskStart};
