//! An object store in memory that fails as a test says. For tests only.

use std::fmt;
use std::future::poll_fn;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::task::{Poll, Waker};

use async_trait::async_trait;
use futures::stream::BoxStream;
use futures::{StreamExt, TryFutureExt, TryStreamExt};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::*;
use parking_lot::Mutex;

/// What fails.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fault {
    None,
    /// Reading what is in the folder `manifests`; it can be listed.
    ReadManifests,
    /// The process dies: this request and all that follow are not carried out. Counted from 0 since the fault was set.
    CrashBefore(u64),
    /// This one is carried out, but nobody hears of it, and nothing that follows is.
    CrashAfter(u64),
    /// No request is answered until the fault is another one; then they all are.
    Hang,
}

/// The store. Clones are the same store.
#[derive(Clone, Debug)]
pub(crate) struct FaultyStore {
    inner: Arc<InMemory>,
    state: Arc<Mutex<(Fault, u64)>>,
    /// Those who wait for the end of a hang.
    waiting: Arc<Mutex<Vec<Waker>>>,
    /// What is not there for those who read it: part of its name, and how often.
    damage: Arc<Mutex<(&'static str, u64)>>,
}

impl FaultyStore {
    pub(crate) fn new() -> FaultyStore {
        FaultyStore {
            inner: Arc::new(InMemory::new()),
            state: Arc::new(Mutex::new((Fault::None, 0))),
            waiting: Arc::default(),
            damage: Arc::default(),
        }
    }

    pub(crate) fn set(&self, fault: Fault) {
        *self.state.lock() = (fault, 0);
        self.waiting.lock().drain(..).for_each(Waker::wake);
    }

    /// Requests since the fault was set.
    pub(crate) fn requests(&self) -> u64 {
        self.state.lock().1
    }

    /// Requests that wait for the end of a hang.
    pub(crate) fn hanging(&self) -> usize {
        self.waiting.lock().len()
    }

    async fn hang(&self) {
        poll_fn(|context| {
            let mut waiting = self.waiting.lock();
            if self.state.lock().0 != Fault::Hang {
                return Poll::Ready(());
            }
            waiting.push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// What has this in its name is not there for the next so many readers.
    pub(crate) fn damage(&self, part: &'static str, times: u64) {
        *self.damage.lock() = (part, times);
    }

    fn is_damaged(&self, path: &Path) -> bool {
        let mut damage = self.damage.lock();
        let is_hit = damage.1 > 0 && path.as_ref().contains(damage.0);
        damage.1 -= u64::from(is_hit);
        is_hit
    }

    /// `Break` fails at once; `Continue(true)` carries the request out and loses its answer.
    fn admit(&self, reads: Option<&Path>) -> ControlFlow<Error, bool> {
        let mut state = self.state.lock();
        let number = state.1;
        state.1 += 1;
        let of_manifests = || reads.is_some_and(|path| path.parts().any(|part| part.as_ref() == "manifests"));
        match state.0 {
            Fault::ReadManifests if of_manifests() => ControlFlow::Break(failure()),
            Fault::CrashBefore(at) if number >= at => ControlFlow::Break(failure()),
            Fault::CrashAfter(at) if number > at => ControlFlow::Break(failure()),
            Fault::CrashAfter(at) => ControlFlow::Continue(number == at),
            _ => ControlFlow::Continue(false),
        }
    }

    async fn pass<T>(&self, reads: Option<&Path>, request: impl Future<Output = Result<T>>) -> Result<T> {
        self.hang().await;
        match self.admit(reads) {
            ControlFlow::Break(error) => Err(error),
            ControlFlow::Continue(false) => request.await,
            ControlFlow::Continue(true) => request.await.and(Err(failure())),
        }
    }
}

fn failure() -> Error {
    Error::Generic { store: "test", source: Box::new(std::io::Error::from_raw_os_error(5)) }
}

impl fmt::Display for FaultyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("test store")
    }
}

#[async_trait]
impl ObjectStore for FaultyStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        self.pass(None, self.inner.put_opts(location, payload, opts)).await
    }

    async fn put_multipart_opts(&self, location: &Path, opts: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.pass(None, self.inner.put_multipart_opts(location, opts)).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        if self.is_damaged(location) {
            return Err(Error::NotFound { path: location.to_string(), source: "told to".into() });
        }
        self.pass(Some(location), self.inner.get_opts(location, options)).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let this = self.clone();
        let delete = move |location: Result<Path>| {
            let this = this.clone();
            async move {
                let location = location?;
                this.pass(None, this.inner.delete(&location)).await?;
                Ok(location)
            }
        };
        locations.then(delete).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (this, prefix) = (self.clone(), prefix.cloned());
        let listed = async move {
            let list = this.inner.list(prefix.as_ref()).try_collect::<Vec<_>>();
            this.pass(None, list).await
        };
        listed.map_ok(|metas| futures::stream::iter(metas.into_iter().map(Ok))).try_flatten_stream().boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.pass(None, self.inner.list_with_delimiter(prefix)).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.pass(None, self.inner.copy_opts(from, to, options)).await
    }
}
