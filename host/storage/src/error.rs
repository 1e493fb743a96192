//! What can go wrong with stored state, and what the caller can do about it.

use weir_model::{Attempt, CheckpointId};

/// What a caller can do about a [`StorageError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The storage is down, slow or full. The same call may work later; nothing that was stored is lost.
    Retry,
    /// Something that was stored is missing or damaged. An older checkpoint may be whole.
    Damaged,
    /// Another coordinator leads the job. This one must stop; it must not commit anything.
    Fenced,
    /// A person has to change something: a setting, a permission, another process, the version of Weir.
    Configuration,
    /// The caller broke a rule of this crate.
    Bug,
}

/// An operation on stored state failed.
///
/// `path` in a variant is the whole place: root, job, folder, name.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StorageError {
    /// The storage lies behind a scheme that this build has no client for.
    #[error(
        "cannot open storage `{url}`: storage of scheme `{scheme}` is not built into this version of weir; \
         use a folder, such as `file:///var/lib/weir` or a plain path"
    )]
    UnsupportedScheme {
        /// The scheme, such as `s3`.
        scheme: String,
        /// What was asked for.
        url: String,
    },
    /// A storage URL, job name or file name that cannot be used.
    #[error("cannot use {what} `{value}`: {reason}")]
    InvalidName {
        /// What kind of name.
        what: &'static str,
        /// Its value.
        value: String,
        /// Why not, and what would do.
        reason: String,
    },
    /// A file that must be there is not.
    #[error(
        "cannot {action} `{path}`: it does not exist; it was deleted from outside, or the storage is not the one the job used before"
    )]
    Missing {
        /// What was attempted.
        action: &'static str,
        /// Where.
        path: String,
    },
    /// A file is there but is not what was written.
    #[error("`{path}` is damaged: {reason}; an older checkpoint may be whole")]
    Damaged {
        /// Where.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
    /// An entry of a job's log, the newest, is not what was written. What it decided may have been acted on, so no older one is tried.
    #[error(
        "`{path}`, an entry of the log of job `{job}`, is damaged: {reason}; restore it from a backup, or give the job another \
         `storage` or name to start from the beginning"
    )]
    DamagedEntry {
        /// The job.
        job: String,
        /// Where.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A file was written in a format that this build does not know.
    #[error(
        "cannot read `{path}`: its format is {found}, this version of weir reads format {supported}; use the version of weir that wrote it, or a newer one"
    )]
    UnknownFormat {
        /// Where.
        path: String,
        /// The format number found.
        found: u64,
        /// The format number this build reads.
        supported: u32,
    },
    /// The storage did not do it now.
    #[error("cannot {action} `{path}`: {reason}; the storage is not available, trying again may help")]
    Unavailable {
        /// What was attempted.
        action: &'static str,
        /// Where.
        path: String,
        /// The storage's own words.
        reason: String,
    },
    /// No room.
    #[error("cannot {action} `{path}`: {reason}; the storage is full, free some space (fewer retained checkpoints need less)")]
    Full {
        /// What was attempted.
        action: &'static str,
        /// Where.
        path: String,
        /// The storage's own words.
        reason: String,
    },
    /// Not allowed.
    #[error("cannot {action} `{path}`: {reason}; give this process the permission, or choose another storage")]
    Refused {
        /// What was attempted.
        action: &'static str,
        /// Where.
        path: String,
        /// The storage's own words.
        reason: String,
    },
    /// Another coordinator leads the job.
    #[error("cannot {attempted} of job `{job}`: coordinator {leader} has taken over, with attempt {newest}; this one must stop")]
    Deposed {
        /// The job.
        job: String,
        /// What was attempted.
        attempted: String,
        /// The newest attempt.
        newest: Attempt,
        /// The coordinator that leads.
        leader: String,
    },
    /// There are checkpoints, and none of them can be gone on from.
    #[error(
        "cannot resume job `{job}`: none of its {checkpoints} retained checkpoints is whole; restore the storage from a backup, or start \
         over with --fresh"
    )]
    NoneWhole {
        /// The job.
        job: String,
        /// How many there are.
        checkpoints: usize,
    },
    /// The folder was written before there were logs.
    #[error(
        "cannot use `{path}`: the state of job `{job}` there was written by an earlier version of weir (0.1), which this one does not read; \
         give the job another `storage` and it starts from the beginning, or go on with the version that wrote it"
    )]
    OldFolder {
        /// The job.
        job: String,
        /// Its folder.
        path: String,
    },
    /// The number of this checkpoint is taken.
    #[error("cannot write checkpoint {checkpoint}: `{path}` is there already; numbers of checkpoints are never used twice")]
    Exists {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// The manifest that is there.
        path: String,
    },
    /// A manifest names a file that is not there any more, so it could not be restored.
    #[error(
        "cannot write checkpoint {checkpoint}: it needs file `{file}`, which is not in the storage; the next checkpoint must write that state again"
    )]
    Dangling {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// The file that it names.
        file: String,
    },
    /// Another process works on the job.
    #[error(
        "job `{job}` is in use by {holder} (lock file `{path}`); stop that one first, or give this job another name or storage"
    )]
    Locked {
        /// The job.
        job: String,
        /// The process, as far as known.
        holder: String,
        /// The lock file.
        path: String,
    },
    /// The caller broke a rule.
    #[error("{0}; this is a bug in weir, please report it")]
    Misuse(String),
}

impl StorageError {
    /// What the caller can do.
    pub fn kind(&self) -> ErrorKind {
        match self {
            StorageError::Unavailable { .. } | StorageError::Full { .. } => ErrorKind::Retry,
            StorageError::Missing { .. }
            | StorageError::Damaged { .. }
            | StorageError::DamagedEntry { .. }
            | StorageError::Dangling { .. }
            | StorageError::NoneWhole { .. } => ErrorKind::Damaged,
            StorageError::Deposed { .. } => ErrorKind::Fenced,
            StorageError::UnsupportedScheme { .. }
            | StorageError::InvalidName { .. }
            | StorageError::UnknownFormat { .. }
            | StorageError::Refused { .. }
            | StorageError::OldFolder { .. }
            | StorageError::Locked { .. } => ErrorKind::Configuration,
            StorageError::Exists { .. } | StorageError::Misuse(_) => ErrorKind::Bug,
        }
    }

    /// Translates an object store's error about `path`.
    pub(crate) fn of(action: &'static str, path: String, error: &object_store::Error) -> StorageError {
        use object_store::Error;
        let reason = innermost(error);
        match error {
            Error::NotFound { .. } => StorageError::Missing { action, path },
            Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => StorageError::Refused { action, path, reason },
            Error::InvalidPath { .. } | Error::NotSupported { .. } | Error::NotImplemented { .. } => {
                StorageError::Misuse(format!("cannot {action} `{path}`: {reason}"))
            }
            _ => match io_error(error) {
                Some(io) => StorageError::of_io(action, path, io),
                None => StorageError::Unavailable { action, path, reason },
            },
        }
    }

    /// Translates an operating system's error about `path`.
    pub(crate) fn of_io(action: &'static str, path: String, error: &std::io::Error) -> StorageError {
        use std::io::ErrorKind as Io;
        let reason = error.to_string();
        match error.kind() {
            Io::NotFound => StorageError::Missing { action, path },
            Io::StorageFull | Io::QuotaExceeded | Io::FileTooLarge => StorageError::Full { action, path, reason },
            Io::PermissionDenied | Io::ReadOnlyFilesystem | Io::NotADirectory | Io::IsADirectory => {
                StorageError::Refused { action, path, reason }
            }
            _ => StorageError::Unavailable { action, path, reason },
        }
    }
}

/// The operating system's error that an object store wrapped, if there is one.
fn io_error<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a std::io::Error> {
    std::iter::successors(Some(error), |e| e.source()).find_map(|e| e.downcast_ref::<std::io::Error>())
}

/// The text of the first cause; object_store's own texts repeat it at each level.
fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    std::iter::successors(Some(error), |e| e.source()).last().unwrap_or(error).to_string()
}
