//! Making snapshots durable, off the data path.
//!
//! A few threads take the pieces of snapshots that tasks hand over, encode and write them, one file per task and
//! checkpoint, and acknowledge. All pieces of one task go to one thread, in order. A persister serves one execution.

mod snapshot;
mod thread;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use weir_model::{CheckpointId, TaskId};
use weir_protocol::Failure;
use weir_protocol::panics::{bug, caught};
use weir_storage::{JobStorage, StoredInstance};
use weir_task::{Outlet, Report, SnapshotPart, TaskError};

use super::voice::{Voice, permanent, transient};
pub(super) use snapshot::{InstanceKey, Origin, Origins};
pub(super) use thread::RETRY_DELAY;

/// Captured bytes that may wait before captures that can wait are put off.
const CONGESTED_BYTES: usize = 128 << 20;

/// A third of a task's share of a contended core: enough for the compression of what tasks can dirty meanwhile.
const PERSISTER_NICE: i32 = 5;

/// What a persister thread is asked to do.
enum Item {
    /// A piece of a snapshot.
    Part(TaskId, SnapshotPart),
    /// A task's sinks have committed.
    Committed(TaskId, CheckpointId),
    /// A checkpoint is complete.
    Completed(CheckpointId),
}

/// What all threads of a persister share.
struct Shared {
    storage: JobStorage,
    voice: Arc<Voice>,
    waiting_bytes: AtomicUsize,
    cancelled: AtomicBool,
}

/// The threads.
pub(super) struct Persister {
    shared: Arc<Shared>,
    queues: Vec<Sender<Item>>,
    threads: Vec<JoinHandle<()>>,
}

/// What a persister knows of a task at its start.
#[derive(Default)]
pub(super) struct OfTask {
    /// What the checkpoint that was restored holds of its instances.
    pub(super) instances: Vec<(InstanceKey, StoredInstance)>,
    /// Where rows come from that are on their way to it.
    pub(super) origins: Origins,
}

impl Persister {
    /// Starts the threads.
    pub(super) fn start(storage: JobStorage, voice: Arc<Voice>, tasks: BTreeMap<TaskId, OfTask>) -> Result<Persister, Failure> {
        let count = std::thread::available_parallelism().map_or(2, |cores| cores.get().clamp(1, 4));
        let waiting_bytes = AtomicUsize::new(0);
        let shared = Arc::new(Shared { storage, voice, waiting_bytes, cancelled: AtomicBool::new(false) });
        let mut of_thread: Vec<BTreeMap<TaskId, OfTask>> = std::iter::repeat_with(BTreeMap::new).take(count).collect();
        for (task, known) in tasks {
            of_thread[queue_of(task, count)].insert(task, known);
        }
        let mut queues = Vec::new();
        let mut threads = Vec::new();
        for (index, known) in of_thread.into_iter().enumerate() {
            #[allow(
                clippy::disallowed_methods,
                reason = "tasks must not wait; what may wait here is one snapshot of each, see is_congested"
            )]
            let (sender, receiver) = channel();
            let shared = shared.clone();
            let work = move || {
                step_back();
                let voice = shared.voice.clone();
                // Checkpoints would wait for it until they time out, one after the other.
                if let Err(panic) = caught(|| thread::Thread::new(shared, known).run(&receiver)) {
                    voice.failed(transient(bug("a thread that stores snapshots", &panic)));
                }
            };
            let thread = std::thread::Builder::new().name(format!("persist-{index}")).spawn(work);
            threads.push(thread.map_err(|error| transient(format!("cannot start a thread that stores snapshots: {error}")))?);
            queues.push(sender);
        }
        Ok(Persister { shared, queues, threads })
    }

    /// The way of a task to here and to the events.
    pub(super) fn outlet(&self) -> Box<dyn Outlet> {
        Box::new(TaskOutlet { shared: self.shared.clone(), queues: self.queues.clone() })
    }

    /// A checkpoint is complete. Must be said before tasks are told.
    pub(super) fn completed(&self, checkpoint: CheckpointId) {
        self.queues.iter().for_each(|queue| {
            let _ = queue.send(Item::Completed(checkpoint));
        });
    }

    /// Gives up what is not written yet and ends the threads. Tasks must be gone.
    pub(super) fn cancel(self) {
        self.shared.cancelled.store(true, Ordering::Relaxed);
        self.join();
    }

    /// Writes and deletes what was asked for and ends the threads. Tasks must be gone.
    pub(super) fn join(self) {
        drop(self.queues);
        for thread in self.threads {
            if thread.join().is_err() {
                tracing::error!("a persister thread panicked; this is a bug in weir");
            }
        }
    }
}

/// Lets tasks go first where there are not enough cores: nothing waits for a persister but the end of a checkpoint.
fn step_back() {
    // On Linux a nice value belongs to the calling thread. Without it everything works, with longer pauses.
    if let Err(error) = rustix::process::setpriority_process(None, PERSISTER_NICE) {
        tracing::debug!(%error, "persisters run at the priority of tasks");
    }
}

fn queue_of(task: TaskId, queues: usize) -> usize {
    task.0 as usize % queues
}

struct TaskOutlet {
    shared: Arc<Shared>,
    queues: Vec<Sender<Item>>,
}

impl TaskOutlet {
    fn send(&self, task: TaskId, item: Item) {
        let _ = self.queues[queue_of(task, self.queues.len())].send(item);
    }
}

impl Outlet for TaskOutlet {
    fn snapshot(&mut self, task: TaskId, part: SnapshotPart) {
        if let SnapshotPart::Instance { capture: Some(capture), .. } = &part {
            self.shared.waiting_bytes.fetch_add(capture.raw_bytes(), Ordering::Relaxed);
        }
        self.send(task, Item::Part(task, part));
    }

    fn report(&mut self, task: TaskId, report: Report) {
        let voice = &self.shared.voice;
        match report {
            Report::Committed(checkpoint) => {
                self.send(task, Item::Committed(task, checkpoint));
                voice.committed(task, checkpoint);
            }
            Report::Declined { checkpoint, reason } => voice.declined(task, checkpoint, &reason),
            Report::Finished => voice.finished(task),
            Report::Failed(error) => voice.failed(failure(&error)),
        }
    }

    fn is_congested(&self) -> bool {
        self.shared.waiting_bytes.load(Ordering::Relaxed) > CONGESTED_BYTES
    }
}

/// What can be done about a task's failure.
pub(super) fn failure(error: &TaskError) -> Failure {
    if error.is_permanent() { permanent(error.to_string()) } else { transient(error.to_string()) }
}
