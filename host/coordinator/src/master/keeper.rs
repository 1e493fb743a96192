//! The thread that writes manifests and deletes what no manifest needs, so that a slow storage never holds a master up.

use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use weir_model::{Attempt, CheckpointId};
use weir_protocol::panics::{bug, caught};
use weir_storage::{ErrorKind, JobStorage, Manifest, again};

use crate::surroundings::{Kept, Told};

/// First wait before a store that is down is asked again.
pub(super) const RETRY_DELAY: Duration = Duration::from_millis(50);

enum Item {
    Manifest(Box<Manifest>),
    Retain(usize),
    Remove(Vec<String>),
}

/// The thread.
pub(super) struct Keeper {
    queue: Sender<Item>,
    thread: JoinHandle<()>,
}

impl Keeper {
    /// Starts the thread for an attempt. What becomes of manifests is told to `told`.
    pub(super) fn start(storage: JobStorage, attempt: Attempt, told: Sender<Told>) -> std::io::Result<Keeper> {
        #[allow(clippy::disallowed_methods, reason = "a master must not wait; it asks for a few things per checkpoint")]
        let (queue, items) = channel::<Item>();
        let work = move || {
            let worked = caught(|| {
                while let Ok(item) = items.recv() {
                    carry_out(&storage, attempt, item, &told);
                }
            });
            if let Err(panic) = worked {
                let reason = bug("the thread that writes manifests", &panic);
                let _ = told.send(Told::Kept(Kept(Written::Broken { attempt, reason })));
            }
        };
        let thread = std::thread::Builder::new().name("manifests".to_owned()).spawn(work)?;
        Ok(Keeper { queue, thread })
    }

    /// Completes a checkpoint: writes its manifest.
    pub(super) fn write(&self, manifest: Manifest) {
        self.ask(Item::Manifest(Box::new(manifest)));
    }

    /// Deletes checkpoints beyond those retained.
    pub(super) fn retain(&self, keep: usize) {
        self.ask(Item::Retain(keep));
    }

    /// Deletes files of a dead checkpoint.
    pub(super) fn remove(&self, names: Vec<String>) {
        if !names.is_empty() {
            self.ask(Item::Remove(names));
        }
    }

    fn ask(&self, item: Item) {
        // A send fails only if the thread is gone, and then it has said so.
        let _ = self.queue.send(item);
    }

    /// Does what was asked for and ends the thread.
    pub(super) fn join(self) {
        drop(self.queue);
        let _ = self.thread.join();
    }
}

/// What became of a manifest.
#[derive(Debug)]
pub(crate) enum Written {
    /// It is durable.
    Durable(Box<Manifest>),
    /// It is not, or nobody knows.
    Failed { checkpoint: CheckpointId, reason: String },
    /// A newer attempt of the job runs elsewhere: this one must end.
    Fenced { reason: String },
    /// Nothing of this attempt is written any more.
    Broken { attempt: Attempt, reason: String },
}

fn carry_out(storage: &JobStorage, attempt: Attempt, item: Item, told: &Sender<Told>) {
    match item {
        Item::Manifest(manifest) => {
            // Nobody listens any more once the job is over.
            let _ = told.send(Told::Kept(Kept(write(storage, *manifest))));
        }
        Item::Retain(keep) => {
            if let Err(error) = storage.retain(attempt, keep) {
                tracing::warn!(%error, "old checkpoints could not be deleted; the next completion tries again");
            }
        }
        Item::Remove(names) => {
            if let Err(error) = storage.remove_files(&names) {
                tracing::warn!(%error, "files of a failed checkpoint could not be deleted; the next start does it");
            }
        }
    }
}

fn write(storage: &JobStorage, manifest: Manifest) -> Written {
    match again(RETRY_DELAY, || storage.put_manifest(&manifest)) {
        Ok(()) => Written::Durable(Box::new(manifest)),
        Err(error) if error.kind() == ErrorKind::Fenced => Written::Fenced { reason: error.to_string() },
        Err(error) => Written::Failed { checkpoint: manifest.id(), reason: error.to_string() },
    }
}
