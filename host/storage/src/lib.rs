//! Checkpoints on an object store: files, manifests, reachability, deletion. And the components of one machine
//! ([`ComponentStore`]).
//!
//! Floor 2. Owns the layout of a job's folder, the form of manifests, checksums, what may be deleted when, and which attempt
//! may write. Never looks into a payload, never decides when a checkpoint is taken or retained, and assumes nothing of a local
//! file beyond the choice of the object store (`local`).
//!
//! The rules that everything here serves:
//!
//! - **Only the log decides.** Files are durable before their manifest is written, the manifest before the entry that makes it count, and
//!   that entry before anybody acts on it. What is forgotten or void is so in the log before any of its files is deleted. So every checkpoint
//!   that the log names can be restored, whenever the process or the power fails.
//! - **No name is used twice.** Names carry the attempt or the writer, so a task or a coordinator that was given up on can do no harm.
//! - **One writer at a time leads.** Numbers of entries are given once; whoever leads later takes the number that whoever led before
//!   would need next. See [`JobLog`].
//! - **A checkpoint costs what it wrote** and two requests, not what the job has ever written: folders are listed only when an attempt begins.
//!
//! ```no_run
//! # use std::sync::Arc;
//! # use weir_storage::*; use weir_model::TaskId;
//! # fn manifest(_: Segment, _: StoredFile) -> Manifest { unimplemented!() }
//! # fn example(writer: Writer, owner: Owner) -> Result<(), StorageError> {
//! let storage = JobStorage::open("/var/lib/weir", "pageviews")?;
//! let _lock = storage.lock()?;                             // no other process of this machine works on it
//! let mut log = JobLog::new(storage.clone(), writer);
//! log.claim(&owner)?;                                      // whose state is it?
//! let begun = log.begin(&[])?;                             // older attempts complete nothing from here on
//! let mut file = storage.writer(begun.attempt, begun.first_checkpoint, TaskId(0));
//! let segment = file.append(b"state")?;
//! let file = file.finish()?;                               // durable
//! let durable = log.complete(&Arc::new(manifest(segment, file)), 3)?; // complete: now commit
//! log.delete_trash();
//! # Ok(()) }
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
mod folder;
#[doc(hidden)]
pub mod fuzz;
mod job;
mod layout;
mod local;
mod lock;
mod log;
mod manifest;
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
    Committable, ComponentState, InFlightState, InstanceState, MANIFEST_FORMAT, Manifest, ManifestKind, OperatorState, Segment,
    StatePart, StoredFile, SubtaskState, instance_id, instance_name,
};
pub use whole_file::write_whole;
pub use writer::SnapshotWriter;
