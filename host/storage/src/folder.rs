//! The folder of one job on its store: where things of it lie. Knows nothing of what they say.

use object_store::path::Path;

use crate::backend::Backend;
use crate::{StorageError, layout};

/// The folder of one job.
pub(crate) struct JobFolder {
    pub(crate) backend: Backend,
    pub(crate) job: String,
    path: Path,
}

impl JobFolder {
    /// Nothing is made yet.
    ///
    /// # Errors
    /// `InvalidName`.
    pub(crate) fn new(backend: Backend, job: &str) -> Result<JobFolder, StorageError> {
        let path = layout::job_folder(job)?;
        Ok(JobFolder { backend, job: job.to_owned(), path })
    }

    /// How it is shown to people.
    pub(crate) fn place(&self) -> String {
        self.backend.place(&self.path)
    }

    /// A place in it.
    pub(crate) fn path(&self, name: &str) -> Path {
        self.path.clone().join(name)
    }

    pub(crate) fn file_path(&self, name: &str) -> Path {
        self.path(layout::FILES).join(name)
    }

    /// Makes the folders that a local store needs.
    pub(crate) fn make_folders(&self) -> Result<(), StorageError> {
        let Some(local) = &self.backend.local else { return Ok(()) };
        local.make_folder(&self.path)?;
        [layout::LOG, layout::MANIFESTS, layout::FILES].iter().try_for_each(|name| local.make_folder(&self.path(name)))
    }
}
