//! An object store for tests: a script decides of each request whether it is carried out, fails, or is carried out without an answer.
//! Owns how requests reach the script; what goes wrong, and when, is each test's own.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use async_trait::async_trait;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt, TryFutureExt, TryStreamExt};
use object_store::path::Path;
use object_store::*;

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// Reads an object or a part of it.
    Read,
    /// Writes an object, or begins to write one in parts.
    Write,
    /// Writes a part of an object, or completes it.
    Part,
    /// Gives up an object that was written in parts.
    GiveUp,
    /// Deletes an object.
    Delete,
    /// Lists objects.
    List,
}

/// A request.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// What it does.
    pub kind: RequestKind,
    /// With which object, or below which folder; none where that was said before (parts), or it is about all.
    pub path: Option<&'a Path>,
    /// Where what is read begins, where that is a part that begins and ends somewhere.
    pub start: Option<u64>,
}

impl Request<'_> {
    /// Whether it is about something in a folder of that name.
    pub fn is_within(&self, folder: &str) -> bool {
        self.path.is_some_and(|path| path.parts().any(|part| part.as_ref() == folder))
    }
}

/// What becomes of a request.
#[derive(Debug)]
pub enum Verdict {
    /// It is carried out.
    CarryOut,
    /// It is not, and fails.
    Fail(Error),
    /// It is carried out, and fails for whoever waits for the answer.
    LoseAnswer(Error),
}

/// What goes wrong, and when.
#[async_trait]
pub trait Script: fmt::Debug + Send + Sync + 'static {
    /// Decides about a request before it is carried out. It may take as long as it likes: then the store hangs.
    async fn admit(&self, request: Request<'_>) -> Verdict;
}

/// An error of the operating system, as a store tells of it.
pub fn os_error(code: i32) -> Error {
    Error::Generic { store: "scripted", source: Box::new(std::io::Error::from_raw_os_error(code)) }
}

/// A store that a script stands before. Clones are the same store; it can be used like its script.
#[derive(Debug)]
pub struct ScriptedStore<S> {
    store: Arc<dyn ObjectStore>,
    script: Arc<S>,
}

impl<S: Script> ScriptedStore<S> {
    /// Puts a script before a store.
    pub fn new(store: Arc<dyn ObjectStore>, script: S) -> ScriptedStore<S> {
        ScriptedStore { store, script: Arc::new(script) }
    }

    /// The store, past the script.
    pub fn inner(&self) -> &Arc<dyn ObjectStore> {
        &self.store
    }
}

impl<S> Clone for ScriptedStore<S> {
    fn clone(&self) -> ScriptedStore<S> {
        ScriptedStore { store: self.store.clone(), script: self.script.clone() }
    }
}

impl<S> Deref for ScriptedStore<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.script
    }
}

impl<S> fmt::Display for ScriptedStore<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "scripted {}", self.store)
    }
}

async fn pass<T>(script: &impl Script, request: Request<'_>, body: impl Future<Output = Result<T>>) -> Result<T> {
    match script.admit(request).await {
        Verdict::CarryOut => body.await,
        Verdict::Fail(error) => Err(error),
        Verdict::LoseAnswer(error) => body.await.and(Err(error)),
    }
}

#[async_trait]
impl<S: Script> ObjectStore for ScriptedStore<S> {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        let request = Request { kind: RequestKind::Write, path: Some(location), start: None };
        pass(&*self.script, request, self.store.put_opts(location, payload, opts)).await
    }

    async fn put_multipart_opts(&self, location: &Path, opts: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        let request = Request { kind: RequestKind::Write, path: Some(location), start: None };
        let upload = pass(&*self.script, request, self.store.put_multipart_opts(location, opts)).await?;
        Ok(Box::new(ScriptedUpload { upload, script: self.script.clone() }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let start = match &options.range {
            Some(GetRange::Bounded(range)) => Some(range.start),
            _ => None,
        };
        let request = Request { kind: RequestKind::Read, path: Some(location), start };
        pass(&*self.script, request, self.store.get_opts(location, options)).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let this = self.clone();
        let delete = move |location: Result<Path>| {
            let this = this.clone();
            async move {
                let location = location?;
                let request = Request { kind: RequestKind::Delete, path: Some(&location), start: None };
                pass(&*this.script, request, this.store.delete(&location)).await?;
                Ok(location)
            }
        };
        locations.then(delete).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (this, prefix) = (self.clone(), prefix.cloned());
        let listed = async move {
            let request = Request { kind: RequestKind::List, path: prefix.as_ref(), start: None };
            pass(&*this.script, request, this.store.list(prefix.as_ref()).try_collect::<Vec<_>>()).await
        };
        listed.map_ok(|metas| futures::stream::iter(metas.into_iter().map(Ok))).try_flatten_stream().boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let request = Request { kind: RequestKind::List, path: prefix, start: None };
        pass(&*self.script, request, self.store.list_with_delimiter(prefix)).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let request = Request { kind: RequestKind::Write, path: Some(to), start: None };
        pass(&*self.script, request, self.store.copy_opts(from, to, options)).await
    }
}

#[derive(Debug)]
struct ScriptedUpload<S> {
    upload: Box<dyn MultipartUpload>,
    script: Arc<S>,
}

#[async_trait]
impl<S: Script> MultipartUpload for ScriptedUpload<S> {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let (script, part) = (self.script.clone(), self.upload.put_part(data));
        async move { pass(&*script, Request { kind: RequestKind::Part, path: None, start: None }, part).await }.boxed()
    }

    async fn complete(&mut self) -> Result<PutResult> {
        pass(&*self.script, Request { kind: RequestKind::Part, path: None, start: None }, self.upload.complete()).await
    }

    async fn abort(&mut self) -> Result<()> {
        pass(&*self.script, Request { kind: RequestKind::GiveUp, path: None, start: None }, self.upload.abort()).await
    }
}
