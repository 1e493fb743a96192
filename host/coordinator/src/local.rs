//! One job and one worker in one process: no cluster, no metadata, as many slots as a job needs.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::Mutex;

use weir_model::Epoch;
use weir_protocol::{Command, WorkerAddress};
use weir_storage::{JobStorage, StorageError};

use crate::{Begun, Notice, Shortage, Slots, Surroundings};

/// Name of the worker.
pub const LOCAL_WORKER: &str = "local";

/// Takes what the worker is told.
pub type Tell = Box<dyn Fn(Command) + Send + Sync>;

/// Opens the place of a job's checkpoints: (URL, job).
pub type Open = Box<dyn Fn(&str, &str) -> Result<JobStorage, StorageError> + Send + Sync>;

/// Is told what people may want to see.
pub type Watch = Box<dyn FnMut(&Notice) + Send>;

/// What surrounds the master of a job that runs in this process alone.
pub struct Local {
    worker: Tell,
    open: Open,
    watch: Mutex<Watch>,
    epoch: Epoch,
}

impl Local {
    /// The worker is told things by `worker`, which must not block.
    pub fn new(worker: Tell, open: Open, watch: Watch) -> Local {
        // It has no metadata that another one could be started from.
        let random = || RandomState::new().build_hasher().finish();
        let origin = (u128::from(random()) << 64 | u128::from(random())).to_be_bytes();
        Local { worker, open, watch: Mutex::new(watch), epoch: Epoch { origin, count: 1 } }
    }
}

impl Surroundings for Local {
    fn reserve(&self, _: &str, slots: u32) -> Result<Slots, Shortage> {
        let worker = WorkerAddress { worker: LOCAL_WORKER.to_owned(), address: String::new() };
        Ok(Slots { workers: vec![worker], slots: vec![0; slots as usize] })
    }

    fn release(&self, _: &str) {}

    fn send(&self, _: &str, _: &str, command: Command) {
        (self.worker)(command);
    }

    fn epoch(&self) -> Epoch {
        self.epoch
    }

    fn storage(&self, url: &str, job: &str) -> Result<JobStorage, StorageError> {
        (self.open)(url, job)
    }

    /// Nobody takes over what ends with this process.
    fn record(&self, _: &str, _: Box<Begun>) -> Option<Result<(), String>> {
        Some(Ok(()))
    }

    fn notice(&self, _: &str, notice: Notice) {
        (self.watch.lock().expect("nobody panics while it watches"))(&notice);
    }
}
