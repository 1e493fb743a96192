//! An object store in memory that fails while it is told to.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use object_store::memory::InMemory;
use parking_lot::Mutex;
use weir_scripted_store::{Request, RequestKind, Script, ScriptedStore, Verdict, os_error};

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

/// The store.
pub(crate) type Store = ScriptedStore<Faults>;

/// What fails now.
#[derive(Debug)]
pub(crate) struct Faults {
    fault: Mutex<Fault>,
    /// Reads of these are not answered: name of a file, and where in it they begin.
    held: Mutex<Vec<(String, u64)>>,
}

pub(crate) fn store() -> Store {
    ScriptedStore::new(Arc::new(InMemory::new()), Faults { fault: Mutex::new(Fault::None), held: Mutex::default() })
}

impl Faults {
    pub(crate) fn set(&self, fault: Fault) {
        *self.fault.lock() = fault;
    }

    /// Reads that begin in these places, by name of the file, are not answered until this is said again without them.
    pub(crate) fn hold_reads(&self, places: Vec<(String, u64)>) {
        *self.held.lock() = places;
    }

    fn is_held(&self, request: Request<'_>) -> bool {
        let name = request.path.and_then(|path| path.filename());
        self.held.lock().iter().any(|(held, start)| Some(held.as_str()) == name && Some(*start) == request.start)
    }

    async fn hang(&self, request: Request<'_>) {
        let hangs = |fault| matches!(fault, Fault::Hang(folder) if request.is_within(folder));
        while hangs(*self.fault.lock()) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

#[async_trait]
impl Script for Faults {
    async fn admit(&self, request: Request<'_>) -> Verdict {
        if matches!(request.kind, RequestKind::Part | RequestKind::GiveUp) {
            return Verdict::CarryOut;
        }
        let writes = request.kind == RequestKind::Write;
        if writes {
            self.hang(request).await;
        }
        while request.kind == RequestKind::Read && self.is_held(request) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let fault = *self.fault.lock();
        match fault {
            Fault::Panic(folder) if request.is_within(folder) => {
                self.set(Fault::None);
                panic!("the store was told to panic");
            }
            Fault::Down(code) => Verdict::Fail(os_error(code)),
            Fault::Files(code) if writes && request.is_within("files") => Verdict::Fail(os_error(code)),
            Fault::Manifests(code) if writes && request.is_within("manifests") => Verdict::Fail(os_error(code)),
            _ => Verdict::CarryOut,
        }
    }
}
