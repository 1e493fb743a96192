//! Components, from the coordinator and from the disk.
//!
//! `<cache folder>/<digest>.wasm`: bytes that were fetched before. They are used only if they still have their digest. An
//! execution has read its components before it runs, so no file is in use for longer than that, and any may be deleted: the
//! time of a file says when it was used last, and those used longest ago go when all together are too large.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::{Condvar, Mutex};
use weir_model::Digest;
use weir_model::limits::{COMPONENT_BYTES_MAX, FETCHED_COMPONENTS_BYTES_MAX};
use weir_protocol::Report;
use weir_storage::{digest_of, write_whole};

use super::outbox::Outbox;
use crate::{ComponentSource, Reports};

/// How long a component may not make any progress before whoever waits for it gives up.
const PATIENCE: Duration = Duration::from_secs(30);

/// Gets components from the coordinator; each only once.
pub(super) struct FetchedComponents {
    folder: PathBuf,
    outbox: Arc<Outbox>,
    patience: Duration,
    kept_bytes_max: u64,
    wanted: Mutex<BTreeMap<Digest, Fetch>>,
    changed: Condvar,
}

/// A component that somebody waits for.
struct Fetch {
    waiting: usize,
    bytes: Vec<u8>,
    touched: Instant,
    end: Option<Result<Arc<Vec<u8>>, String>>,
}

impl Fetch {
    fn new() -> Fetch {
        Fetch { waiting: 0, bytes: Vec::new(), touched: Instant::now(), end: None }
    }
}

impl FetchedComponents {
    /// Uses a folder, which is made if it does not exist.
    pub(super) fn new(folder: &Path, outbox: Arc<Outbox>) -> io::Result<FetchedComponents> {
        std::fs::create_dir_all(folder)
            .map_err(|error| io::Error::new(error.kind(), format!("cannot make {}: {error}", folder.display())))?;
        Ok(FetchedComponents {
            folder: folder.to_owned(),
            outbox,
            patience: PATIENCE,
            kept_bytes_max: FETCHED_COMPONENTS_BYTES_MAX,
            wanted: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    #[cfg(test)]
    pub(super) fn with_patience(mut self, patience: Duration) -> FetchedComponents {
        self.patience = patience;
        self
    }

    #[cfg(test)]
    pub(super) fn keeping(mut self, bytes_max: u64) -> FetchedComponents {
        self.kept_bytes_max = bytes_max;
        self
    }

    fn path(&self, digest: Digest) -> PathBuf {
        self.folder.join(format!("{digest}.wasm"))
    }

    fn cached(&self, digest: Digest) -> Option<Vec<u8>> {
        let bytes = fs::read(self.path(digest)).ok()?;
        if digest_of(&bytes) == digest {
            if let Err(error) = File::open(self.path(digest)).and_then(|file| file.set_modified(SystemTime::now())) {
                tracing::debug!(%digest, %error, "it is not known of a cached component that it was used now");
            }
            return Some(bytes);
        }
        tracing::warn!(path = %self.path(digest).display(), "a cached component is damaged; it is fetched again");
        None
    }

    /// Keeps a component that was fetched, and deletes what has no room beside it. Either may fail: then something is fetched
    /// again some day, or stays for longer.
    fn keep(&self, digest: Digest, bytes: &[u8]) {
        if let Err(error) = write_whole(&self.path(digest), bytes) {
            tracing::warn!(%digest, %error, "cannot keep a component in the cache");
        }
        if let Err(error) = self.sweep() {
            tracing::warn!(folder = %self.folder.display(), %error, "cannot delete components that were used long ago");
        }
    }

    /// Deletes files, from the one used longest ago, until the others are within the bound. Also files that a process which was
    /// killed has left unfinished: they look as if they had not been used since.
    fn sweep(&self) -> io::Result<()> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            // One that is gone by now, or cannot be looked at, is left alone.
            let Ok(entry) = entry else { continue };
            let Ok(metadata) = entry.metadata() else { continue };
            if let Ok(modified) = metadata.modified()
                && metadata.is_file()
            {
                files.push((modified, metadata.len(), entry.path()));
            }
        }
        let mut total: u64 = files.iter().map(|(_, bytes, _)| bytes).sum();
        files.sort();
        for (_, bytes, path) in files {
            if total <= self.kept_bytes_max {
                break;
            }
            match fs::remove_file(&path) {
                Ok(()) => {
                    tracing::info!(path = %path.display(), bytes, "a component that was used long ago is not kept any longer");
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    tracing::warn!(path = %path.display(), %error, "cannot delete a component that was used long ago");
                    continue;
                }
            }
            total -= bytes;
        }
        Ok(())
    }

    /// There is a new connection: what is still missing is asked for again, from its start.
    pub(super) fn connected(&self) {
        for (digest, fetch) in self.wanted.lock().iter_mut().filter(|(_, fetch)| fetch.end.is_none()) {
            fetch.bytes.clear();
            fetch.touched = Instant::now();
            self.outbox.report(Report::Need { digest: *digest });
        }
    }

    /// A part has come.
    pub(super) fn part(&self, digest: Digest, offset: u64, total: u64, part: &[u8]) {
        let mut wanted = self.wanted.lock();
        let Some(fetch) = wanted.get_mut(&digest).filter(|fetch| fetch.end.is_none()) else { return };
        let after = fetch.bytes.len() + part.len();
        if offset != fetch.bytes.len() as u64 || after as u64 > total || total > COMPONENT_BYTES_MAX as u64 {
            let got = fetch.bytes.len();
            let reason = format!("its parts do not fit together: {} bytes at {offset} of {total} after {got}", part.len());
            self.finish(fetch, digest, Err(reason));
            return;
        }
        fetch.bytes.extend_from_slice(part);
        fetch.touched = Instant::now();
        if after as u64 == total {
            let bytes = std::mem::take(&mut fetch.bytes);
            let end = match digest_of(&bytes) {
                found if found == digest => Ok(Arc::new(bytes)),
                found => Err(format!("what came has digest {found}")),
            };
            self.finish(fetch, digest, end);
        }
    }

    /// The coordinator does not have it.
    pub(super) fn missing(&self, digest: Digest, reason: &str) {
        if let Some(fetch) = self.wanted.lock().get_mut(&digest).filter(|fetch| fetch.end.is_none()) {
            self.finish(fetch, digest, Err(reason.to_owned()));
        }
    }

    fn finish(&self, fetch: &mut Fetch, digest: Digest, end: Result<Arc<Vec<u8>>, String>) {
        let failed = |reason| format!("cannot get component {digest} from the coordinator: {reason}");
        fetch.end = Some(end.map_err(failed));
        self.changed.notify_all();
    }

    /// Waits for the end of a fetch that this thread takes part in.
    fn wait(&self, digest: Digest) -> Result<Arc<Vec<u8>>, String> {
        let mut wanted = self.wanted.lock();
        loop {
            let Some(fetch) = wanted.get(&digest) else { unreachable!("it stays while somebody waits") };
            if let Some(end) = &fetch.end {
                return end.clone();
            }
            let deadline = fetch.touched + self.patience;
            if Instant::now() >= deadline {
                let seconds = self.patience.as_secs_f32();
                return Err(format!("cannot get component {digest}: nothing of it came from the coordinator for {seconds} s"));
            }
            self.changed.wait_until(&mut wanted, deadline);
        }
    }
}

impl ComponentSource for FetchedComponents {
    fn fetch(&self, digest: Digest) -> Result<Vec<u8>, String> {
        if let Some(bytes) = self.cached(digest) {
            return Ok(bytes);
        }
        {
            let mut wanted = self.wanted.lock();
            let is_first = !wanted.contains_key(&digest);
            wanted.entry(digest).or_insert_with(Fetch::new).waiting += 1;
            if is_first {
                self.outbox.report(Report::Need { digest });
            }
        }
        let end = self.wait(digest);
        let is_last = {
            let mut wanted = self.wanted.lock();
            let is_last = wanted.get_mut(&digest).is_none_or(|fetch| {
                fetch.waiting -= 1;
                fetch.waiting == 0
            });
            if is_last {
                wanted.remove(&digest);
            }
            is_last
        };
        let bytes = end?;
        if is_last {
            self.keep(digest, &bytes);
        }
        Ok(Arc::unwrap_or_clone(bytes))
    }
}
