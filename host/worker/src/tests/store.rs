//! An object store in memory that fails while it is told to.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::*;
use parking_lot::Mutex;

/// What fails, with which error of the operating system.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fault {
    None,
    /// Writing to the folder `files`.
    Files(i32),
    /// Writing to the folder `manifests`.
    Manifests(i32),
    /// Everything.
    Down(i32),
    /// Writing to the folder is never answered, until the fault is another one.
    Hang(&'static str),
    /// The next access to the folder panics.
    Panic(&'static str),
}

pub(crate) const EIO: i32 = 5;
pub(crate) const ENOSPC: i32 = 28;

#[derive(Clone, Debug)]
pub(crate) struct Store {
    inner: Arc<InMemory>,
    fault: Arc<Mutex<Fault>>,
    /// Reads of these are not answered: name of a file, and where in it they begin.
    held: Arc<Mutex<Vec<(String, u64)>>>,
}

impl Store {
    pub(crate) fn new() -> Store {
        Store { inner: Arc::new(InMemory::new()), fault: Arc::new(Mutex::new(Fault::None)), held: Arc::default() }
    }

    pub(crate) fn set(&self, fault: Fault) {
        *self.fault.lock() = fault;
    }

    /// Reads that begin in these places, by name of the file, are not answered until this is said again without them.
    pub(crate) fn hold_reads(&self, places: Vec<(String, u64)>) {
        *self.held.lock() = places;
    }

    async fn hang(&self, location: &Path) {
        let hangs = |fault| matches!(fault, Fault::Hang(folder) if location.parts().any(|part| part.as_ref() == folder));
        while hangs(*self.fault.lock()) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// The store without faults.
    pub(crate) fn inner(&self) -> &InMemory {
        &self.inner
    }

    fn admit(&self, location: Option<&Path>, writes: bool) -> Result<()> {
        let panics = |folder| location.is_some_and(|path| path.parts().any(|part| part.as_ref() == folder));
        let fault = *self.fault.lock();
        if let Fault::Panic(folder) = fault
            && panics(folder)
        {
            self.set(Fault::None);
            panic!("the store was told to panic");
        }
        let within = |folder| writes && location.is_some_and(|path| path.parts().any(|part| part.as_ref() == folder));
        let code = match *self.fault.lock() {
            Fault::Down(code) => Some(code),
            Fault::Files(code) if within("files") => Some(code),
            Fault::Manifests(code) if within("manifests") => Some(code),
            _ => None,
        };
        let error = |code| Error::Generic { store: "test", source: Box::new(std::io::Error::from_raw_os_error(code)) };
        code.map_or(Ok(()), |code| Err(error(code)))
    }
}

impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("test store")
    }
}

#[async_trait]
impl ObjectStore for Store {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        self.hang(location).await;
        self.admit(Some(location), true)?;
        self.inner.put_opts(location, payload, opts).await
    }

    async fn put_multipart_opts(&self, location: &Path, opts: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.hang(location).await;
        self.admit(Some(location), true)?;
        self.inner.put_multipart_opts(location, opts).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let start = match &options.range {
            Some(GetRange::Bounded(range)) => Some(range.start),
            _ => None,
        };
        let is_held = |name: &str| self.held.lock().iter().any(|held| held.0 == name && Some(held.1) == start);
        while location.filename().is_some_and(is_held) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        self.admit(Some(location), false)?;
        self.inner.get_opts(location, options).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let this = self.clone();
        let admitted = locations.map(move |location| location.and_then(|path| this.admit(Some(&path), false).map(|()| path)));
        self.inner.delete_stream(admitted.boxed())
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        match self.admit(prefix, false) {
            Ok(()) => self.inner.list(prefix),
            Err(error) => futures::stream::iter([Err(error)]).boxed(),
        }
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.admit(prefix, false)?;
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.admit(Some(to), true)?;
        self.inner.copy_opts(from, to, options).await
    }
}
