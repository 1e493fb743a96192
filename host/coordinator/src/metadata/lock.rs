//! Keeping two coordinators from working on one data folder.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::path::Path;

use crate::ServeError;

/// Held by the coordinator that works on a data folder; given back when dropped, or when its process ends, however it ends.
///
/// It protects one folder on one machine. A coordinator on a copy of the folder is not kept out by it, but fenced: whichever
/// begins an attempt of a job last owns the job's checkpoints, and the other one's manifests are refused.
#[derive(Debug)]
pub(crate) struct DataLock {
    _file: File,
}

impl DataLock {
    /// Takes the folder, which is made if it does not exist.
    pub(crate) fn take(data_dir: &Path) -> Result<DataLock, ServeError> {
        let path = data_dir.join("coordinator.lock");
        let open = || {
            std::fs::create_dir_all(data_dir)?;
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path)
        };
        let failed = |error: std::io::Error| {
            ServeError::Metadata(super::MetadataError::Database {
                action: "lock",
                folder: data_dir.to_owned(),
                reason: error.to_string(),
            })
        };
        let mut file = open().map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::Error(error)) => return Err(failed(error)),
            Err(TryLockError::WouldBlock) => {
                let mut text = String::new();
                let _ = file.read_to_string(&mut text);
                return Err(ServeError::Locked { folder: data_dir.to_owned(), holder: text.trim().parse().ok() });
            }
        }
        // Only for the message above: the lock itself holds without it.
        let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
        Ok(DataLock { _file: file })
    }
}
