//! An object store that fails on purpose.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};

use async_trait::async_trait;
use object_store::ObjectStore;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use weir_scripted_store::{Request, RequestKind, Script, ScriptedStore, Verdict, os_error};

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

/// Where each request passes.
#[derive(Debug)]
pub(crate) struct Gate {
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

/// A store that fails as told.
pub(crate) type FaultyStore = ScriptedStore<Gate>;

pub(crate) fn faulty(store: &Arc<dyn ObjectStore>, fault: Fault) -> FaultyStore {
    let gate = Gate { fault: Mutex::new(fault), requests: AtomicU64::new(0), pause: Mutex::new(None) };
    ScriptedStore::new(Arc::clone(store), gate)
}

impl Gate {
    pub(crate) fn set(&self, fault: Fault) {
        *self.fault.lock() = fault;
    }

    /// Stops before request `at` until the sender is dropped. The receiver is told when it is reached, or disconnects at
    /// [`Gate::end_pause`] if it never is.
    pub(crate) fn pause_at(&self, at: u64) -> (mpsc::Receiver<()>, oneshot::Sender<()>) {
        let (reached, told) = mpsc::sync_channel(1);
        let (sender, go_on) = oneshot::channel();
        *self.pause.lock() = Some(Pause { at, reached, go_on });
        (told, sender)
    }

    pub(crate) fn end_pause(&self) {
        self.pause.lock().take();
    }

    /// Requests so far.
    pub(crate) fn requests(&self) -> u64 {
        self.requests.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl Script for Gate {
    async fn admit(&self, request: Request<'_>) -> Verdict {
        let number = self.requests();
        let pause = self.pause.lock().take_if(|pause| pause.at == number);
        if let Some(pause) = pause {
            pause.reached.send(()).unwrap();
            let _dropped = pause.go_on.await;
        }
        let number = self.requests.fetch_add(1, Ordering::SeqCst);
        let writes = matches!(request.kind, RequestKind::Write | RequestKind::Part);
        let deletes = matches!(request.kind, RequestKind::Delete | RequestKind::GiveUp);
        match *self.fault.lock() {
            Fault::CrashBefore(at) if number >= at => Verdict::Fail(os_error(EIO)),
            Fault::CrashAfter(at) if number > at => Verdict::Fail(os_error(EIO)),
            Fault::WritesFail(code) if writes => Verdict::Fail(os_error(code)),
            Fault::DeletesFail(code) if deletes => Verdict::Fail(os_error(code)),
            Fault::Down(code) => Verdict::Fail(os_error(code)),
            Fault::CrashAfter(at) | Fault::LostAnswer(at) if number == at => Verdict::LoseAnswer(os_error(EIO)),
            _ => Verdict::CarryOut,
        }
    }
}
