//! An object store that fails on purpose.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};

use async_trait::async_trait;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt, TryFutureExt, TryStreamExt};
use object_store::path::Path;
use object_store::*;
use parking_lot::Mutex;
use tokio::sync::oneshot;

/// What to do with one request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fault {
    /// All goes well.
    None,
    /// The process dies before request number n is carried out (counted from 0), and so does all that follows.
    CrashBefore(u64),
    /// Request n is carried out, but its answer is lost, and all that follows fails.
    CrashAfter(u64),
    /// The answer to request n is lost; everything else goes well.
    LostAnswer(u64),
    /// Every write fails with this error of the operating system.
    WritesFail(i32),
    /// Every deletion fails with this error of the operating system.
    DeletesFail(i32),
    /// Every request fails with this error of the operating system.
    Down(i32),
}

pub(crate) const ENOSPC: i32 = 28;
pub(crate) const EIO: i32 = 5;
pub(crate) const ESTALE: i32 = 116;
pub(crate) const EACCES: i32 = 13;
pub(crate) const EROFS: i32 = 30;
pub(crate) const EDQUOT: i32 = 122;

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Read,
    Write,
    Delete,
}

#[derive(Debug)]
struct Gate {
    fault: Mutex<Fault>,
    requests: AtomicU64,
    pause: Mutex<Option<Pause>>,
}

/// Where to stop and wait, told from outside.
#[derive(Debug)]
struct Pause {
    at: u64,
    reached: mpsc::SyncSender<()>,
    go_on: oneshot::Receiver<()>,
}

impl Gate {
    /// `Break` fails at once; `Continue(true)` carries out the request and loses its answer.
    fn admit(&self, kind: Kind) -> ControlFlow<Error, bool> {
        let number = self.requests.fetch_add(1, Ordering::SeqCst);
        match *self.fault.lock() {
            Fault::CrashBefore(at) if number >= at => ControlFlow::Break(failure(EIO)),
            Fault::CrashAfter(at) if number > at => ControlFlow::Break(failure(EIO)),
            Fault::WritesFail(code) if kind == Kind::Write => ControlFlow::Break(failure(code)),
            Fault::DeletesFail(code) if kind == Kind::Delete => ControlFlow::Break(failure(code)),
            Fault::Down(code) => ControlFlow::Break(failure(code)),
            Fault::CrashAfter(at) | Fault::LostAnswer(at) => ControlFlow::Continue(number == at),
            _ => ControlFlow::Continue(false),
        }
    }

    async fn pass<T>(&self, kind: Kind, request: impl Future<Output = Result<T>>) -> Result<T> {
        let number = self.requests.load(Ordering::SeqCst);
        let pause = self.pause.lock().take_if(|pause| pause.at == number);
        if let Some(pause) = pause {
            pause.reached.send(()).unwrap();
            let _dropped = pause.go_on.await;
        }
        match self.admit(kind) {
            ControlFlow::Break(error) => Err(error),
            ControlFlow::Continue(false) => request.await,
            ControlFlow::Continue(true) => request.await.and(Err(failure(EIO))),
        }
    }
}

fn failure(code: i32) -> Error {
    Error::Generic { store: "faulty", source: Box::new(std::io::Error::from_raw_os_error(code)) }
}

#[derive(Clone, Debug)]
pub(crate) struct FaultyStore {
    store: Arc<dyn ObjectStore>,
    gate: Arc<Gate>,
}

impl FaultyStore {
    pub(crate) fn new(store: &Arc<dyn ObjectStore>, fault: Fault) -> FaultyStore {
        let gate = Gate { fault: Mutex::new(fault), requests: AtomicU64::new(0), pause: Mutex::new(None) };
        FaultyStore { store: Arc::clone(store), gate: Arc::new(gate) }
    }

    pub(crate) fn set(&self, fault: Fault) {
        *self.gate.fault.lock() = fault;
    }

    /// Stops before request `at` until the sender is dropped. The receiver is told when it is reached, or disconnects at
    /// [`FaultyStore::end_pause`] if it never is.
    pub(crate) fn pause_at(&self, at: u64) -> (mpsc::Receiver<()>, oneshot::Sender<()>) {
        let (reached, told) = mpsc::sync_channel(1);
        let (sender, go_on) = oneshot::channel();
        *self.gate.pause.lock() = Some(Pause { at, reached, go_on });
        (told, sender)
    }

    pub(crate) fn end_pause(&self) {
        self.gate.pause.lock().take();
    }

    /// Requests so far.
    pub(crate) fn requests(&self) -> u64 {
        self.gate.requests.load(Ordering::SeqCst)
    }
}

impl fmt::Display for FaultyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "faulty {}", self.store)
    }
}

#[async_trait]
impl ObjectStore for FaultyStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        self.gate.pass(Kind::Write, self.store.put_opts(location, payload, opts)).await
    }

    async fn put_multipart_opts(&self, location: &Path, opts: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        let upload = self.gate.pass(Kind::Write, self.store.put_multipart_opts(location, opts)).await?;
        Ok(Box::new(FaultyUpload { upload, gate: Arc::clone(&self.gate) }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.gate.pass(Kind::Read, self.store.get_opts(location, options)).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let this = self.clone();
        let delete = move |location: Result<Path>| {
            let this = this.clone();
            async move {
                let location = location?;
                this.gate.pass(Kind::Delete, this.store.delete(&location)).await?;
                Ok(location)
            }
        };
        locations.then(delete).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (this, prefix) = (self.clone(), prefix.cloned());
        let listed = async move {
            let list = this.store.list(prefix.as_ref()).try_collect::<Vec<_>>();
            this.gate.pass(Kind::Read, list).await
        };
        listed.map_ok(|metas| futures::stream::iter(metas.into_iter().map(Ok))).try_flatten_stream().boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.gate.pass(Kind::Read, self.store.list_with_delimiter(prefix)).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.gate.pass(Kind::Write, self.store.copy_opts(from, to, options)).await
    }
}

#[derive(Debug)]
struct FaultyUpload {
    upload: Box<dyn MultipartUpload>,
    gate: Arc<Gate>,
}

#[async_trait]
impl MultipartUpload for FaultyUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let (gate, part) = (Arc::clone(&self.gate), self.upload.put_part(data));
        async move { gate.pass(Kind::Write, part).await }.boxed()
    }

    async fn complete(&mut self) -> Result<PutResult> {
        self.gate.pass(Kind::Write, self.upload.complete()).await
    }

    async fn abort(&mut self) -> Result<()> {
        self.gate.pass(Kind::Delete, self.upload.abort()).await
    }
}
