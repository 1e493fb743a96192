//! The stored state of one job: opening it, reading it, writing files. What is decided about it is in its log.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use object_store::ObjectStore;
use weir_model::{Attempt, CheckpointId, TaskId};

use crate::backend::Backend;
use crate::folder::JobFolder;
use crate::log::JobState;
use crate::writer::SnapshotWriter;
use crate::{Segment, StorageError, document, layout};

/// The stored state of one job. Cheap to clone; all clones share one set of threads.
///
/// Every call blocks the caller's thread until the storage has answered. Never call one from async code.
#[derive(Clone)]
pub struct JobStorage {
    pub(crate) folder: Arc<JobFolder>,
    /// Numbers the files that this process writes.
    files_begun: Arc<AtomicU64>,
}

impl JobStorage {
    /// Opens the stored state of `job` below `url`: a plain path, or `file:` and a path. The folder is made if it does not
    /// exist; nothing of the job is written yet.
    ///
    /// # Errors
    /// `UnsupportedScheme` for any other URL, `InvalidName`, and what the disk says.
    pub fn open(url: &str, job: &str) -> Result<JobStorage, StorageError> {
        JobStorage::with_backend(Backend::open(url)?, job)
    }

    /// Uses an object store as it is; `label` is how it is shown to people. It must read what it wrote, at once, and know
    /// `PutMode::Create`.
    pub fn with_store(store: Arc<dyn ObjectStore>, label: &str, job: &str) -> Result<JobStorage, StorageError> {
        JobStorage::with_backend(Backend::new(store, label.to_owned(), None)?, job)
    }

    pub(crate) fn with_backend(backend: Backend, job: &str) -> Result<JobStorage, StorageError> {
        let folder = Arc::new(JobFolder::new(backend, job)?);
        Ok(JobStorage { folder, files_begun: Arc::default() })
    }

    /// The job's name.
    pub fn job(&self) -> &str {
        &self.folder.job
    }

    /// What is decided about the job, as things are now. For those who only read; two requests.
    ///
    /// # Errors
    /// `OldFolder`, `Damaged`, `UnknownFormat`, and what the storage says.
    pub fn state(&self) -> Result<JobState, StorageError> {
        self.folder.newest_state()
    }

    /// Begins a file for one task's part of a checkpoint. Nothing is visible before [`SnapshotWriter::finish`].
    pub fn writer(&self, attempt: Attempt, checkpoint: CheckpointId, task: TaskId) -> SnapshotWriter {
        let sequence = self.files_begun.fetch_add(1, Ordering::Relaxed);
        SnapshotWriter::new(self.folder.clone(), layout::file_name(attempt, checkpoint, task, sequence))
    }

    /// Reads a segment, and checks that it is what was written.
    ///
    /// # Errors
    /// `Missing`, `Damaged` (cut off or changed), `Unavailable`, `Refused`.
    pub fn read(&self, segment: &Segment) -> Result<Bytes, StorageError> {
        let folder = &self.folder;
        let path = folder.file_path(&segment.file);
        let damaged = |reason: String| StorageError::Damaged { path: folder.backend.place(&path), reason };
        let end = segment.offset.checked_add(segment.length).ok_or_else(|| damaged("its range is impossible".to_owned()))?;
        // Stores refuse empty ranges.
        let bytes = if segment.length == 0 { Bytes::new() } else { folder.backend.get_range(&path, segment.offset..end)? };
        let computed = document::checksum(&bytes);
        if computed == segment.checksum {
            return Ok(bytes);
        }
        Err(damaged(format!("the checksum of bytes {}..{end} is {computed}, it should be {}", segment.offset, segment.checksum)))
    }
}

impl std::fmt::Debug for JobStorage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "JobStorage({})", self.folder.place())
    }
}
