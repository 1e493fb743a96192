//! Keeping two processes from working on one job.

use std::fs::File;

use crate::{JobStorage, StorageError, layout};

/// Held by the process that works on a job; given back when dropped or when the process ends, however it ends.
///
/// In a folder this is an advisory lock of the operating system on `<root>/<job>/lock`. Other stores have none: there the
/// newest attempt wins and the older one is refused when it writes its next checkpoint.
#[derive(Debug)]
pub struct JobLock {
    _file: Option<File>,
}

impl JobStorage {
    /// Takes the job for this process.
    ///
    /// # Errors
    /// `Locked`, with the number of the process that has it, if known.
    pub fn lock(&self) -> Result<JobLock, StorageError> {
        let folder = &self.folder;
        let Some(local) = &folder.backend.local else { return Ok(JobLock { _file: None }) };
        folder.make_folders()?;
        let path = folder.path(layout::LOCK);
        match local.lock(&path)? {
            Ok(file) => Ok(JobLock { _file: Some(file) }),
            Err(holder) => Err(StorageError::Locked { job: folder.job.clone(), holder, path: folder.backend.place(&path) }),
        }
    }
}
