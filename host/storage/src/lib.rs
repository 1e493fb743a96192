//! Checkpoints on an object store: files, manifests, reachability, deletion.

mod error;
mod manifest;

pub use error::{ErrorKind, StorageError};
pub use manifest::{
    Committable, ComponentState, InstanceState, JobInfo, MANIFEST_FORMAT, Manifest, ManifestKind, OperatorState, Segment,
    StoredFile, SubtaskState,
};
