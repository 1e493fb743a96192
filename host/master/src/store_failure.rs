//! Failures of a job's storage, classified once, where they come in, by what can be done about them.

use weir_storage::{ErrorKind, StorageError};

/// What can be done about a request that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreFailureKind {
    /// The same may work later. It may also have taken effect: nobody knows.
    Transient,
    /// A person has to change something first.
    Permanent,
    /// What was stored is missing or damaged.
    Damaged,
    /// A newer attempt of the job runs: this one must end and may not commit anything.
    Fenced,
    /// It was not answered in time. It may still take effect.
    TimedOut,
    /// What carries requests out has failed. It may have taken effect.
    Broken,
}

/// A request to the storage failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreFailure {
    /// What can be done.
    pub kind: StoreFailureKind,
    /// What went wrong, where, with a hint.
    pub reason: String,
}

impl From<&StorageError> for StoreFailure {
    /// The one place where errors of the storage are classified.
    fn from(error: &StorageError) -> StoreFailure {
        let kind = match error.kind() {
            ErrorKind::Retry => StoreFailureKind::Transient,
            // Whoever has the job may be about to let go of it: a process that ends, or a thread that waits for a mount.
            ErrorKind::Configuration if matches!(error, StorageError::Locked { .. }) => StoreFailureKind::Transient,
            ErrorKind::Damaged => StoreFailureKind::Damaged,
            ErrorKind::Fenced => StoreFailureKind::Fenced,
            ErrorKind::Configuration | ErrorKind::Bug => StoreFailureKind::Permanent,
        };
        StoreFailure { kind, reason: error.to_string() }
    }
}

impl From<StorageError> for StoreFailure {
    fn from(error: StorageError) -> StoreFailure {
        StoreFailure::from(&error)
    }
}

impl std::fmt::Display for StoreFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.reason)
    }
}
