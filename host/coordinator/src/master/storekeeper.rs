//! What a master asks its job's storage for, carried out: one request after the other, on a thread of its own.
//!
//! Owns the opened storage and the lock on the job. A storage that hangs holds up this thread and nobody else: whoever closes it
//! does not wait for it longer than it says, and leaves it behind. What it still does then is fenced by the next attempt.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use weir_master::{RequestId, Store, StoreFailure, StoreFailureKind, Stored};
use weir_protocol::panics::{bug, caught};
use weir_storage::{JobLock, JobLog, StorageError};

use super::store::carry_out;

/// A store that is down is asked this often.
const TRIES_MAX: u32 = 4;

/// First wait before a store that is down is asked again.
const RETRY_DELAY: Duration = Duration::from_millis(50);

/// Requests that wait. A master asks for a few things at a time and gives up what is late; more means that it asks for nothing else.
const QUEUE_MAX: usize = 1_024;

/// Opens the log of the job, for a writer that there was not yet.
pub(super) type Open = Box<dyn Fn() -> Result<JobLog, StorageError> + Send>;

/// Takes an answer.
pub(super) type Answer = Box<dyn Fn(RequestId, Result<Stored, StoreFailure>) + Send>;

struct Item {
    request: RequestId,
    what: Store,
    /// It need not be begun after this.
    deadline: Instant,
}

#[derive(Default)]
struct Queue {
    items: VecDeque<Item>,
    closed: bool,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    news: Condvar,
}

/// The thread.
pub(super) struct Storekeeper {
    shared: Arc<Shared>,
    /// Its other end is gone when the thread has ended.
    ended: Receiver<()>,
}

impl Storekeeper {
    /// Starts the thread. The place is opened at the first request.
    ///
    /// # Errors
    /// If there is no thread.
    pub(super) fn start(open: Open, answer: Answer) -> std::io::Result<Storekeeper> {
        let shared = Arc::<Shared>::default();
        #[allow(clippy::disallowed_methods, reason = "nothing is ever sent: its end is what is waited for")]
        let (alive, ended): (Sender<()>, _) = channel();
        let work = {
            let shared = shared.clone();
            move || {
                let _alive = alive;
                let mut place = Place { open, opened: None, lock: None, broken: None };
                while let Some(Item { request, what, .. }) = shared.next() {
                    let done = place.take_on(&what);
                    match done {
                        Ok(Some(stored)) => answer(request, Ok(stored)),
                        Ok(None) => {}
                        Err(failure) if is_answered(&what) => answer(request, Err(failure)),
                        Err(error) => tracing::warn!(%error, "files nobody needs could not be deleted; it is tried again later"),
                    }
                }
            }
        };
        std::thread::Builder::new().name("manifests".to_owned()).spawn(work)?;
        Ok(Storekeeper { shared, ended })
    }

    /// Asks for something.
    pub(super) fn ask(&self, request: RequestId, what: Store, deadline: Instant) {
        let mut queue = self.shared.queue.lock();
        let now = Instant::now();
        queue.items.retain(|item| item.deadline > now);
        if queue.items.len() < QUEUE_MAX {
            queue.items.push_back(Item { request, what, deadline });
        }
        self.shared.news.notify_one();
    }

    /// Nobody listens to answers any more. Waits so long at most for what is being done, and deletes what was to be deleted.
    pub(super) fn close(self, patience: Duration) {
        {
            let mut queue = self.shared.queue.lock();
            queue.closed = true;
            queue.items.retain(|item| !is_answered(&item.what));
        }
        self.shared.news.notify_one();
        if self.ended.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
            tracing::warn!("the checkpoint storage does not answer; the thread that waits for it is left behind");
        }
    }
}

impl Shared {
    /// The next request that is not late, in their order; none once it is closed and all are done.
    fn next(&self) -> Option<Item> {
        let mut queue = self.queue.lock();
        loop {
            match queue.items.pop_front() {
                Some(item) if item.deadline > Instant::now() => return Some(item),
                Some(_) => {}
                None if queue.closed => return None,
                None => self.news.wait(&mut queue),
            }
        }
    }
}

fn is_answered(what: &Store) -> bool {
    !matches!(what, Store::Tidy | Store::Remove(_))
}

/// The place of a job's checkpoints, once it could be opened and taken for this process.
struct Place {
    open: Open,
    opened: Option<JobLog>,
    lock: Option<JobLock>,
    /// A panic that nobody was told of yet.
    broken: Option<String>,
}

impl Place {
    /// Does what is asked. A panic is told to whoever is answered next: nobody else would hear of it.
    fn take_on(&mut self, what: &Store) -> Result<Option<Stored>, StoreFailure> {
        if let Some(reason) = self.broken.take_if(|_| is_answered(what)) {
            return Err(StoreFailure { kind: StoreFailureKind::Broken, reason });
        }
        caught(|| self.carry_out(what)).unwrap_or_else(|panic| {
            // What it knew may be half of something.
            self.opened = None;
            let reason = bug("the thread that writes manifests", &panic);
            if !is_answered(what) {
                self.broken = Some(reason.clone());
            }
            Err(StoreFailure { kind: StoreFailureKind::Broken, reason })
        })
    }

    /// Tries again as long as that may help, a few times, where tasks run meanwhile: a restart would cost more. Blocks so long.
    fn carry_out(&mut self, what: &Store) -> Result<Option<Stored>, StoreFailure> {
        let tries_max = if matches!(what, Store::Complete { .. } | Store::Lead { .. }) { TRIES_MAX } else { 1 };
        let mut tries = 1;
        loop {
            match self.carry_out_once(what) {
                Err(error) if error.kind == StoreFailureKind::Transient && tries < tries_max => {
                    tracing::warn!(%error, tries, "storage: trying again");
                    std::thread::sleep(RETRY_DELAY * tries);
                    tries += 1;
                }
                done => return done,
            }
        }
    }

    fn carry_out_once(&mut self, what: &Store) -> Result<Option<Stored>, StoreFailure> {
        let log = match &mut self.opened {
            Some(log) => log,
            none => {
                let log = (self.open)()?;
                if self.lock.is_none() {
                    self.lock = Some(log.storage().lock()?);
                }
                none.insert(log)
            }
        };
        carry_out(log, what)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::atomic::{AtomicU32, Ordering};

    use weir_model::{Attempt, Epoch};
    use weir_storage::{JobStorage, Writer};

    use super::*;

    #[test]
    fn a_storage_that_cannot_be_opened_at_first_does_not_end_what_runs() {
        let folder = tempfile::tempdir().unwrap();
        let url = folder.path().to_str().unwrap().to_owned();
        let opened = AtomicU32::new(0);
        let open: Open = Box::new(move || {
            if opened.fetch_add(1, Ordering::Relaxed) == 0 {
                let (path, reason) = (url.clone(), "a moment please".to_owned());
                return Err(StorageError::Unavailable { action: "open", path, reason });
            }
            let by = Writer { epoch: Epoch { origin: [1; 16], count: 1 }, nonce: 1 };
            JobStorage::open(&url, "j").map(|storage| JobLog::new(storage, by))
        });
        let mut place = Place { open, opened: None, lock: None, broken: None };
        let led = place.take_on(&Store::Lead { attempt: Attempt(1) });
        assert!(matches!(led, Ok(Some(Stored::Led(_)))), "{led:?}");
    }
}
