//! An object store in memory that fails as a test says. For tests only.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};

use async_trait::async_trait;
use object_store::Error;
use object_store::memory::InMemory;
use parking_lot::Mutex;
use weir_scripted_store::{Request, RequestKind, Script, ScriptedStore, Verdict, os_error};

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

/// The store.
pub(crate) type FaultyStore = ScriptedStore<Faults>;

/// What fails now.
#[derive(Debug)]
pub(crate) struct Faults {
    state: Mutex<(Fault, u64)>,
    /// Those who wait for the end of a hang.
    waiting: Mutex<Vec<Waker>>,
    /// What is not there for those who read it: part of its name, and how often.
    damage: Mutex<(&'static str, u64)>,
}

pub(crate) fn faulty() -> FaultyStore {
    let faults = Faults { state: Mutex::new((Fault::None, 0)), waiting: Mutex::default(), damage: Mutex::default() };
    ScriptedStore::new(Arc::new(InMemory::new()), faults)
}

impl Faults {
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

    fn is_damaged(&self, request: Request<'_>) -> bool {
        let mut damage = self.damage.lock();
        let path = request.path.filter(|_| request.kind == RequestKind::Read);
        let is_hit = damage.1 > 0 && path.is_some_and(|path| path.as_ref().contains(damage.0));
        damage.1 -= u64::from(is_hit);
        is_hit
    }
}

#[async_trait]
impl Script for Faults {
    async fn admit(&self, request: Request<'_>) -> Verdict {
        if matches!(request.kind, RequestKind::Part | RequestKind::GiveUp) {
            return Verdict::CarryOut;
        }
        if self.is_damaged(request) {
            let path = request.path.map_or_else(String::new, ToString::to_string);
            return Verdict::Fail(Error::NotFound { path, source: "told to".into() });
        }
        self.hang().await;
        let mut state = self.state.lock();
        let number = state.1;
        state.1 += 1;
        let reads_manifests = request.kind == RequestKind::Read && request.is_within("manifests");
        match state.0 {
            Fault::ReadManifests if reads_manifests => Verdict::Fail(os_error(5)),
            Fault::CrashBefore(at) if number >= at => Verdict::Fail(os_error(5)),
            Fault::CrashAfter(at) if number > at => Verdict::Fail(os_error(5)),
            Fault::CrashAfter(at) if number == at => Verdict::LoseAnswer(os_error(5)),
            _ => Verdict::CarryOut,
        }
    }
}
