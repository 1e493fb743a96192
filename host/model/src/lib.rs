//! Words and shapes that every crate of the host shares: identifiers, columnar batches, key groups, limits.
//!
//! Floor 0: pure data. No I/O, clock, randomness or thread.

mod barrier;
mod batch;
mod blobs;
mod columns;
mod component_name;
mod description;
mod epoch;
mod error_number;
mod extras;
mod headers;
mod ids;
mod key_group;
mod keyed;
pub mod limits;
mod nearest;
mod oddities;
mod partitioner;
mod quantile;

pub use barrier::{Barrier, BarrierKind};
pub use batch::{Batch, BatchRef};
pub use blobs::{Blobs, BlobsRef};
pub use columns::Columns;
pub use component_name::{is_component_name, is_component_version};
pub use description::{Description, InputPort, OutputPort, Scratch, StateKind};
pub use epoch::Epoch;
pub use error_number::ErrorNumber;
pub use extras::{Extras, ExtrasRef, RowRef};
pub use headers::{are_headers, headers_of, push_header};
pub use ids::{Attempt, CheckpointId, Digest, InstanceId, OperatorUid, ParseDigestError, SubtaskId, TaskId};
pub use key_group::{KeyGroup, KeyGroupRange, key_group_of, key_hash, subtask_of};
pub use keyed::{KeyedBatch, KeyedBatchError, Section};
pub use nearest::nearest;
pub use oddities::{Odd, OddExample, OddKind, Oddities, excerpt};
pub use partitioner::Partitioner;
pub use quantile::quantile;

/// Event time: milliseconds since the Unix epoch, UTC.
pub type Timestamp = i64;

/// The watermark that ends event time: no later row can follow.
pub const WATERMARK_END: Timestamp = i64::MAX;

/// The watermark before any row was seen.
pub const WATERMARK_START: Timestamp = i64::MIN;
