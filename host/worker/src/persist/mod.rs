//! Making snapshots durable, off the data path.
//!
//! A few threads take the pieces of snapshots that tasks hand over, encode and write them, one file per task and
//! checkpoint, and acknowledge. All pieces of one task go to one thread, in order. Manifests, templates and deletion are
//! the first thread's. A persister serves one attempt.

mod chains;
mod snapshot;
mod thread;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use weir_model::{Attempt, CheckpointId, OperatorUid, TaskId};
use weir_sandbox::Template;
use weir_storage::{JobStorage, Manifest, Segment};
use weir_task::{Outlet, Report, SnapshotPart};

use crate::events::{Event, Message};
pub(crate) use chains::StoredInstance;
pub(crate) use snapshot::{Acknowledgement, InstanceKey};

/// Captured bytes that may wait before captures that can wait are put off.
const CONGESTED_BYTES: usize = 128 << 20;

/// A third of a task's share of a contended core: enough for the compression of what tasks can dirty meanwhile.
const PERSISTER_NICE: i32 = 5;

/// What a persister thread is asked to do.
pub(crate) enum Item {
    /// A piece of a snapshot.
    Part(TaskId, SnapshotPart),
    /// A task's sinks have committed.
    Committed(TaskId, CheckpointId),
    /// A checkpoint is complete.
    Completed(CheckpointId),
    /// Store what an operator's images are relative to.
    Template(OperatorUid, Template),
    /// Complete a checkpoint: add where templates are, write the manifest.
    Manifest(Box<Manifest>),
    /// Delete checkpoints beyond those retained.
    Retain(usize),
    /// Delete files of a dead checkpoint.
    Remove(Vec<String>),
}

/// Where the templates of the job's operators are stored.
pub(crate) type Templates = Arc<Mutex<BTreeMap<OperatorUid, Segment>>>;

/// What all threads of a persister share.
struct Shared {
    storage: JobStorage,
    attempt: Attempt,
    events: Sender<Message>,
    waiting_bytes: AtomicUsize,
    cancelled: AtomicBool,
    templates: Templates,
    /// Number under which templates are stored; below every checkpoint of the attempt.
    template_id: CheckpointId,
}

impl Shared {
    fn tell(&self, event: Event) {
        // Nobody listens any more once the job is over.
        let _ = self.events.send(Message { attempt: Some(self.attempt), event });
    }
}

/// The threads.
pub(crate) struct Persister {
    shared: Arc<Shared>,
    queues: Vec<Sender<Item>>,
    threads: Vec<JoinHandle<()>>,
}

/// What a persister starts from.
pub(crate) struct Start {
    pub(crate) storage: JobStorage,
    pub(crate) attempt: Attempt,
    pub(crate) events: Sender<Message>,
    /// First checkpoint number of the attempt.
    pub(crate) first_id: CheckpointId,
    /// What the checkpoint that was restored holds, by task.
    pub(crate) restored: BTreeMap<TaskId, Vec<(InstanceKey, StoredInstance)>>,
    /// Where templates are stored already.
    pub(crate) templates: Templates,
}

impl Persister {
    /// Starts the threads.
    pub(crate) fn start(start: Start) -> Persister {
        let count = std::thread::available_parallelism().map_or(2, |cores| cores.get().clamp(1, 4));
        let shared = Arc::new(Shared {
            storage: start.storage,
            attempt: start.attempt,
            events: start.events,
            waiting_bytes: AtomicUsize::new(0),
            cancelled: AtomicBool::new(false),
            templates: start.templates,
            template_id: start.first_id,
        });
        let mut restored: Vec<BTreeMap<TaskId, Vec<(InstanceKey, StoredInstance)>>> = vec![BTreeMap::new(); count];
        for (task, instances) in start.restored {
            restored[queue_of(task, count)].insert(task, instances);
        }
        let mut queues = Vec::new();
        let mut threads = Vec::new();
        for (index, restored) in restored.into_iter().enumerate() {
            #[allow(
                clippy::disallowed_methods,
                reason = "tasks must not wait; what may wait here is one snapshot of each, see is_congested"
            )]
            let (sender, receiver) = channel();
            let shared = shared.clone();
            let work = move || {
                step_back();
                thread::Thread::new(shared, restored).run(&receiver);
            };
            let thread =
                std::thread::Builder::new().name(format!("persist-{index}")).spawn(work).expect("the system starts a thread");
            queues.push(sender);
            threads.push(thread);
        }
        Persister { shared, queues, threads }
    }

    /// The way of a task to here and to the events.
    pub(crate) fn outlet(&self) -> Box<dyn Outlet> {
        Box::new(TaskOutlet { shared: self.shared.clone(), queues: self.queues.clone() })
    }

    /// Asks for something that is the first thread's.
    pub(crate) fn ask(&self, item: Item) {
        // A send fails only if the thread is gone, and then its panic is reported when it is joined.
        let _ = self.queues[0].send(item);
    }

    /// A checkpoint is complete. Must be said before tasks are told.
    pub(crate) fn completed(&self, checkpoint: CheckpointId) {
        self.queues.iter().for_each(|queue| {
            let _ = queue.send(Item::Completed(checkpoint));
        });
    }

    /// Gives up what is not written yet and ends the threads. Tasks must be gone.
    pub(crate) fn cancel(self) {
        self.shared.cancelled.store(true, Ordering::Relaxed);
        self.join();
    }

    /// Writes and deletes what was asked for and ends the threads. Tasks must be gone.
    pub(crate) fn join(self) {
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
        if let Report::Committed(checkpoint) = report {
            self.send(task, Item::Committed(task, checkpoint));
        }
        self.shared.tell(Event::Report(task, report));
    }

    fn is_congested(&self) -> bool {
        self.shared.waiting_bytes.load(Ordering::Relaxed) > CONGESTED_BYTES
    }
}
