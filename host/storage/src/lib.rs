//! Checkpoints on an object store: files, manifests, reachability, deletion. And the components of one machine
//! ([`ComponentStore`]).
//!
//! Floor 2. Owns the layout of a job's folder, the form of manifests, checksums, what may be deleted when, and which attempt
//! may write. Never looks into a payload, never decides when a checkpoint is taken or retained, and assumes nothing of a local
//! file beyond the choice of the object store (`local`).
//!
//! The rules that everything here serves:
//!
//! - **Only a manifest makes files count.** Files are durable before their manifest is written; a manifest is gone, durably,
//!   before any of its files is deleted. So every manifest that is listed can be restored, whenever the process or the power
//!   fails.
//! - **No name is used twice.** Every name carries the attempt that wrote it, so a task that was given up on can do no harm.
//! - **One attempt at a time.** An attempt that begins first makes itself known, then records which checkpoints it found. An
//!   older attempt looks for a newer one after it has written a manifest: either the newer one has found that manifest, or the
//!   older one learns that it may not commit.
//! - **A checkpoint costs what it wrote**, not what the job has ever written: the folder of files is listed only at start.
//!
//! ```no_run
//! # use weir_storage::*; use weir_model::TaskId;
//! # fn manifest(_: Segment, _: StoredFile) -> Manifest { unimplemented!() }
//! let storage = JobStorage::open("/var/lib/weir", "pageviews")?;
//! let _lock = storage.lock()?;                       // no other process works on it
//! let attempt = storage.new_attempt()?;              // older attempts are refused from here on
//! storage.sweep(attempt)?;                           // what crashes left behind
//! let checkpoint = storage.next_checkpoint_id()?;
//! let mut writer = storage.writer(attempt, checkpoint, TaskId(0));
//! let segment = writer.append(b"state")?;
//! let file = writer.finish()?;                       // durable
//! storage.put_manifest(&manifest(segment, file))?;   // complete: now commit
//! storage.retain(attempt, 3)?;
//! # Ok::<(), StorageError>(())
//! ```

mod again;
mod backend;
mod chains;
mod checkpoints;
mod components;
mod config_digests;
mod document;
mod durable;
mod error;
#[doc(hidden)]
pub mod fuzz;
mod job;
mod layout;
mod local;
mod lock;
mod log;
mod manifest;
mod retention;
mod whole_file;
mod writer;

#[cfg(test)]
mod tests;

pub use again::again;
pub use chains::{Plan, StoredInstance};
pub use components::{Bundled, ComponentError, ComponentErrorKind, ComponentStore, Pushed, StoredComponent, digest_of};
pub use config_digests::ConfigDigests;
pub use durable::Durable;
pub use error::{ErrorKind, StorageError};
pub use job::JobStorage;
pub use layout::is_file_of;
pub use local::folder_of as local_folder;
pub use lock::JobLock;
pub use log::{Begun, Deleted, JobLog, JobState, Led, Owner, Skipped, StoredCheckpoint, Writer};
pub use manifest::{
    Committable, ComponentState, InFlightState, InstanceState, JobInfo, MANIFEST_FORMAT, MANIFEST_FORMAT_MIN, Manifest,
    ManifestKind, OperatorState, Segment, StoredFile, SubtaskState, instance_id, instance_name,
};
pub use retention::Removed;
pub use whole_file::write_whole;
pub use writer::SnapshotWriter;
