//! A worker's process: the real worker, and where it gets components and storages. What happens to it is in `world/workers.rs`.

use std::sync::{Arc, LazyLock};

use weir_model::{Digest, Epoch};
use weir_sandbox::{Sandbox, SandboxOptions};
use weir_storage::{JobStorage, StorageError};
use weir_worker::{ComponentSource, Storages};

use crate::disk::Disk;
use crate::ids::{ProcessId, Session};

/// No operator is a component here, so nothing is ever compiled; one engine does for all runs.
pub(crate) static SANDBOX: LazyLock<Sandbox> = LazyLock::new(|| match Sandbox::new(SandboxOptions::default()) {
    Ok(sandbox) => sandbox,
    Err(error) => panic!("no sandbox can be made: {error}"),
});

/// A worker process, and what is left of it while it is down.
pub(crate) struct Worker {
    pub(crate) alive: bool,
    /// Counts its processes.
    pub(crate) incarnation: u64,
    /// Its connection to the coordinator, as it sees it.
    pub(crate) session: Option<Session>,
    /// It tries to connect.
    pub(crate) connecting: bool,
    /// It stands still in whatever it does with storage or files until then.
    pub(crate) stuck_until_us: u64,
    /// The process that it has registered with last.
    pub(crate) joined: Option<ProcessId>,
    /// The coordinator that leads what it runs: the life of it that welcomed it last.
    pub(crate) led_by: Option<Epoch>,
    pub(crate) process: Option<weir_worker::Worker>,
}

impl Worker {
    pub(crate) fn new() -> Worker {
        Worker {
            alive: false,
            incarnation: 0,
            session: None,
            connecting: false,
            stuck_until_us: 0,
            joined: None,
            led_by: None,
            process: None,
        }
    }
}

/// There are none.
pub(crate) struct NoComponents;

impl ComponentSource for NoComponents {
    fn fetch(&self, _: Digest) -> Result<Vec<u8>, String> {
        Err("all operators are native here".to_owned())
    }
}

pub(crate) struct SimStorages(pub(crate) Disk);

impl Storages for SimStorages {
    fn open(&self, url: &str, job: &str) -> Result<JobStorage, StorageError> {
        JobStorage::with_store(Arc::new(self.0.clone()), url, job)
    }
}
