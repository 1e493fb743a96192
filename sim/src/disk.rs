//! The object store that all processes share: in memory, with requests that fail before or after they were carried out.
//!
//! An object is there whole or not at all, and is durable once its write has answered: what a process had only buffered is
//! lost with the process, since its writers are.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use async_trait::async_trait;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt, TryFutureExt, TryStreamExt};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, ObjectStoreExt,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use parking_lot::Mutex;

use crate::random::Random;

#[derive(Debug)]
struct State {
    random: Random,
    /// Of a hundred requests, those that fail.
    fail_percent: u64,
    failed: u64,
    /// So many reads of what tasks have stored find nothing.
    damaged_reads: u64,
    was_damaged: bool,
    /// Files of tasks that were deleted since anybody looked.
    deleted: Vec<String>,
}

/// The store. Clones are the same store.
#[derive(Clone, Debug)]
pub(crate) struct Disk {
    store: Arc<InMemory>,
    state: Arc<Mutex<State>>,
}

impl Disk {
    pub(crate) fn new(random: Random) -> Disk {
        let state = State { random, fail_percent: 0, failed: 0, damaged_reads: 0, was_damaged: false, deleted: Vec::new() };
        Disk { store: Arc::new(InMemory::new()), state: Arc::new(Mutex::new(state)) }
    }

    /// Of a hundred requests, this many fail from now on.
    pub(crate) fn set_failing(&self, percent: u64) {
        self.state.lock().fail_percent = percent;
    }

    /// So many reads of what tasks have stored find nothing, and later ones find it again.
    pub(crate) fn damage_reads(&self, count: u64) {
        self.state.lock().damaged_reads += count;
    }

    /// Loses what a task has stored, for good.
    pub(crate) fn lose(&self, file: &str) {
        let location = Path::from(format!("sim/files/{file}"));
        // It may be gone already: nobody needs it then.
        let _ = self.store.delete(&location).now_or_never();
    }

    /// Bytes of a task's file are others than were stored: the file is there, and as long as it was. A byte in each `stride`.
    pub(crate) fn rot(&self, file: &str, stride: usize) {
        let location = Path::from(format!("sim/files/{file}"));
        let Some(Ok(found)) = self.store.get(&location).now_or_never() else { return };
        let Some(Ok(bytes)) = found.bytes().now_or_never() else { return };
        let mut bytes = bytes.to_vec();
        bytes.iter_mut().step_by(stride).for_each(|byte| *byte ^= 0x55);
        let _ = self.store.put(&location, bytes.into()).now_or_never();
    }

    /// Whether any read has found nothing where something is.
    pub(crate) fn was_damaged(&self) -> bool {
        self.state.lock().was_damaged
    }

    fn is_damaged(&self, location: &Path) -> bool {
        let mut state = self.state.lock();
        if state.damaged_reads == 0 || !location.as_ref().contains("/files/") {
            return false;
        }
        state.damaged_reads -= 1;
        state.was_damaged = true;
        true
    }

    /// Files of tasks that somebody wanted to be deleted since this was asked last.
    pub(crate) fn take_deleted(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().deleted)
    }

    /// The store itself, where nothing goes wrong.
    pub(crate) fn store(&self) -> Arc<dyn ObjectStore> {
        self.store.clone()
    }

    /// Requests that have failed so far.
    pub(crate) fn failed(&self) -> u64 {
        self.state.lock().failed
    }

    /// Whether something outside of the store, on the same disk, fails as well.
    pub(crate) fn fails(&self) -> bool {
        !matches!(self.admit(), ControlFlow::Continue(false))
    }

    /// `Break`: fails at once. `Continue(true)`: is carried out, and its answer is lost.
    fn admit(&self) -> ControlFlow<Error, bool> {
        let mut state = self.state.lock();
        let percent = state.fail_percent;
        if percent == 0 || !state.random.percent(percent) {
            return ControlFlow::Continue(false);
        }
        state.failed += 1;
        if state.random.percent(40) { ControlFlow::Continue(true) } else { ControlFlow::Break(failure()) }
    }

    async fn pass<T>(&self, request: impl Future<Output = Result<T>>) -> Result<T> {
        match self.admit() {
            ControlFlow::Break(error) => Err(error),
            ControlFlow::Continue(false) => request.await,
            ControlFlow::Continue(true) => request.await.and(Err(failure())),
        }
    }
}

fn failure() -> Error {
    Error::Generic { store: "simulated", source: Box::new(std::io::Error::from_raw_os_error(5)) }
}

impl fmt::Display for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("simulated disk")
    }
}

#[async_trait]
impl ObjectStore for Disk {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        self.pass(self.store.put_opts(location, payload, opts)).await
    }

    async fn put_multipart_opts(&self, location: &Path, opts: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.pass(self.store.put_multipart_opts(location, opts)).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        if self.is_damaged(location) {
            let source = Box::new(std::io::Error::from(std::io::ErrorKind::NotFound));
            return Err(Error::NotFound { path: location.to_string(), source });
        }
        self.pass(self.store.get_opts(location, options)).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let this = self.clone();
        let delete = move |location: Result<Path>| {
            let this = this.clone();
            async move {
                let location = location?;
                if let Some(file) = location.as_ref().strip_prefix("sim/files/") {
                    this.state.lock().deleted.push(file.to_owned());
                }
                this.pass(this.store.delete(&location)).await?;
                Ok(location)
            }
        };
        locations.then(delete).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (this, prefix) = (self.clone(), prefix.cloned());
        let listed = async move {
            let list = this.store.list(prefix.as_ref()).try_collect::<Vec<_>>();
            this.pass(list).await
        };
        listed.map_ok(|metas| futures::stream::iter(metas.into_iter().map(Ok))).try_flatten_stream().boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.pass(self.store.list_with_delimiter(prefix)).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.pass(self.store.copy_opts(from, to, options)).await
    }
}
