//! One object store, called synchronously, with errors that name the place.
//!
//! This is the only place that chooses an object store; `local` is the only one that knows of folders on a disk.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{MultipartUpload, ObjectStore, ObjectStoreExt, PutMode, PutPayload};
use tokio::runtime::{Builder, Handle, Runtime};

use crate::StorageError;
use crate::local::LocalRoot;

/// Requests of one call that are on their way at the same time.
const REQUESTS_MAX: usize = 16;

/// An object store and the threads that talk to it.
pub(crate) struct Backend {
    store: Arc<dyn ObjectStore>,
    /// Present when the store is a folder.
    pub(crate) local: Option<LocalRoot>,
    /// How the store's root is shown to people.
    label: String,
    runtime: Runtime,
}

impl Backend {
    /// Opens the storage behind a URL or path. A folder is made if it does not exist.
    pub(crate) fn open(url: &str) -> Result<Backend, StorageError> {
        let local = LocalRoot::open(url)?;
        let store = local.store()?;
        Backend::new(Arc::new(store), local.label(), Some(local))
    }

    /// Uses an object store as it is.
    pub(crate) fn new(store: Arc<dyn ObjectStore>, label: String, local: Option<LocalRoot>) -> Result<Backend, StorageError> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(REQUESTS_MAX)
            .thread_name("weir-storage")
            .enable_all()
            .build()
            .map_err(|error| StorageError::of_io("start threads for storage", label.clone(), &error))?;
        Ok(Backend { store, local, label, runtime })
    }

    /// How `path` is shown to people.
    pub(crate) fn place(&self, path: &Path) -> String {
        format!("{}/{path}", self.label)
    }

    /// Where the store's own tasks run.
    pub(crate) fn handle(&self) -> &Handle {
        self.runtime.handle()
    }

    /// Waits for `future` on the caller's thread.
    pub(crate) fn wait<F: Future>(&self, future: F) -> F::Output {
        self.runtime.block_on(future)
    }

    /// The error of `action` on `path`.
    pub(crate) fn error(&self, action: &'static str, path: &Path, error: &object_store::Error) -> StorageError {
        StorageError::of(action, self.place(path), error)
    }

    /// Writes an object, whether or not it exists. Durable and whole when it returns.
    pub(crate) fn put(&self, path: &Path, bytes: Vec<u8>) -> Result<(), StorageError> {
        let put = self.store.put(path, PutPayload::from(bytes));
        self.wait(put).map(|_| ()).map_err(|error| self.error("write", path, &error))
    }

    /// Writes an object unless it exists; says whether it did.
    pub(crate) fn put_new(&self, path: &Path, bytes: Vec<u8>) -> Result<bool, StorageError> {
        match self.wait(self.store.put_opts(path, PutPayload::from(bytes), PutMode::Create.into())) {
            Ok(_) => Ok(true),
            Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => Ok(false),
            Err(error) => Err(self.error("write", path, &error)),
        }
    }

    /// Begins to write an object in parts.
    pub(crate) fn upload(&self, path: &Path) -> Result<Box<dyn MultipartUpload>, StorageError> {
        self.wait(self.store.put_multipart(path)).map_err(|error| self.error("write", path, &error))
    }

    /// Reads a whole object.
    pub(crate) fn get(&self, path: &Path) -> Result<Bytes, StorageError> {
        let read = async { self.store.get(path).await?.bytes().await };
        self.wait(read).map_err(|error| self.error("read", path, &error))
    }

    /// Reads a range of an object. Says `Damaged` if the object is shorter.
    pub(crate) fn get_range(&self, path: &Path, range: Range<u64>) -> Result<Bytes, StorageError> {
        let damaged = |size: u64| StorageError::Damaged {
            path: self.place(path),
            reason: format!("it is cut off: {size} bytes, but bytes {}..{} are needed", range.start, range.end),
        };
        match self.wait(self.store.get_range(path, range.clone())) {
            Ok(bytes) if bytes.len() as u64 == range.end - range.start => Ok(bytes),
            Ok(bytes) => Err(damaged(range.start + bytes.len() as u64)),
            Err(error) => {
                // Stores differ in how they refuse a range beyond the end: ask for the size.
                let error = self.error("read", path, &error);
                match error {
                    StorageError::Missing { .. } => Err(error),
                    _ => match self.wait(self.store.head(path)) {
                        Ok(meta) if meta.size < range.end => Err(damaged(meta.size)),
                        _ => Err(error),
                    },
                }
            }
        }
    }

    /// Sizes of objects, in the order of `paths`; `None` for one that does not exist.
    pub(crate) fn sizes(&self, paths: Vec<Path>) -> Result<Vec<Option<u64>>, StorageError> {
        let heads = paths.into_iter().map(|path| async move {
            match self.store.head(&path).await {
                Ok(meta) => Ok(Some(meta.size)),
                Err(object_store::Error::NotFound { .. }) => Ok(None),
                Err(error) => Err(self.error("look at", &path, &error)),
            }
        });
        self.wait(futures::stream::iter(heads).buffered(REQUESTS_MAX).try_collect())
    }

    /// Names of the objects in a folder; none if the folder does not exist.
    pub(crate) fn list(&self, folder: &Path) -> Result<Vec<String>, StorageError> {
        let names = self.store.list(Some(folder)).try_filter_map(|meta| {
            let inside = meta.location.prefix_match(folder).map(|parts| parts.count());
            let name = meta.location.filename().map(str::to_owned);
            futures::future::ready(Ok(name.filter(|_| inside == Some(1))))
        });
        self.wait(names.try_collect()).map_err(|error| self.error("list", folder, &error))
    }

    /// The same for names that sort after that of `after`, which lies in the folder or would.
    pub(crate) fn list_after(&self, folder: &Path, after: &Path) -> Result<Vec<String>, StorageError> {
        let names = self.store.list_with_offset(Some(folder), after);
        let names = names.map_ok(|meta| meta.location.filename().map(str::to_owned));
        self.wait(names.try_filter_map(|name| futures::future::ready(Ok(name))).try_collect())
            .map_err(|error| self.error("list", folder, &error))
    }

    /// Deletes objects; one that does not exist counts as deleted. Gives the ones that could not be deleted.
    pub(crate) fn delete(&self, paths: Vec<Path>) -> Vec<(Path, StorageError)> {
        let deletes = paths.into_iter().map(|path| async move {
            match self.store.delete(&path).await {
                Ok(()) | Err(object_store::Error::NotFound { .. }) => None,
                Err(error) => Some((path.clone(), self.error("delete", &path, &error))),
            }
        });
        let failed = futures::stream::iter(deletes).buffer_unordered(REQUESTS_MAX).filter_map(futures::future::ready);
        self.wait(failed.collect())
    }
}
