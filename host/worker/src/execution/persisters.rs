//! The threads that make an execution's snapshots durable, off the data path.
//!
//! A few threads drive one persister each; all pieces of one task go to one of them, in order.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::JoinHandle;

use weir_model::{CheckpointId, TaskId};
use weir_protocol::Failure;
use weir_protocol::panics::{bug, caught};
use weir_storage::JobStorage;
use weir_task::{Outlet, Report, Signal, SnapshotPart, TaskError};

use super::voice::{Voice, permanent, transient};
use crate::persist::{Item, Load, Outcome, Persister, Popped, Queue, RETRY_DELAY, TaskStart};

/// Captured bytes that may wait before captures that can wait are put off.
const CONGESTED_BYTES: usize = 128 << 20;

/// A third of a task's share of a contended core: enough for the compression of what tasks can dirty meanwhile.
const PERSISTER_NICE: i32 = 5;

/// The threads.
pub(crate) struct Persisters {
    voice: Arc<Voice>,
    load: Arc<Load>,
    queues: Vec<Arc<Queue>>,
    threads: Vec<JoinHandle<()>>,
}

impl Persisters {
    /// Starts the threads.
    pub(crate) fn start(
        storage: &JobStorage,
        voice: &Arc<Voice>,
        tasks: BTreeMap<TaskId, TaskStart>,
    ) -> Result<Persisters, Failure> {
        let count = std::thread::available_parallelism().map_or(2, |cores| cores.get().clamp(1, 4));
        let mut of_thread: Vec<BTreeMap<TaskId, TaskStart>> = std::iter::repeat_with(BTreeMap::new).take(count).collect();
        for (task, start) in tasks {
            of_thread[queue_of(task, count)].insert(task, start);
        }
        let load = Arc::new(Load::default());
        let mut started = Persisters { voice: voice.clone(), load: load.clone(), queues: Vec::new(), threads: Vec::new() };
        for (index, tasks) in of_thread.into_iter().enumerate() {
            let signal = Arc::new(Signal::default());
            let queue = Arc::new(Queue::new(signal.clone(), load.clone()));
            let persister = Persister::new(storage.clone(), voice.execution().attempt, RETRY_DELAY, tasks);
            let thread = PersisterThread { persister, queue: queue.clone(), signal, load: load.clone(), voice: voice.clone() };
            let thread = std::thread::Builder::new().name(format!("persist-{index}")).spawn(move || thread.run());
            let thread = thread.map_err(|error| {
                started.queues.iter().for_each(|queue| queue.discard());
                transient(format!("cannot start a thread that stores snapshots: {error}"))
            })?;
            started.threads.push(thread);
            started.queues.push(queue);
        }
        Ok(started)
    }

    /// The way of a task to here and to the events.
    pub(crate) fn outlet(&self) -> Box<dyn Outlet> {
        Box::new(TaskOutlet { voice: self.voice.clone(), load: self.load.clone(), queues: self.queues.clone() })
    }

    /// A checkpoint is complete. Must be said before tasks are told.
    pub(crate) fn completed(&self, checkpoint: CheckpointId) {
        self.queues.iter().for_each(|queue| queue.push(Item::Completed(checkpoint)));
    }

    /// Gives up what is not written yet and ends the threads. Tasks must be gone.
    pub(crate) fn cancel(self) {
        self.queues.iter().for_each(|queue| queue.discard());
        self.join();
    }

    /// Writes and deletes what was asked for and ends the threads. Tasks must be gone.
    pub(crate) fn join(self) {
        self.queues.iter().for_each(|queue| queue.close());
        for thread in self.threads {
            if thread.join().is_err() {
                tracing::error!("a persister thread panicked; this is a bug in weir");
            }
        }
    }
}

/// What one thread works with.
struct PersisterThread {
    persister: Persister,
    queue: Arc<Queue>,
    signal: Arc<Signal>,
    load: Arc<Load>,
    voice: Arc<Voice>,
}

impl PersisterThread {
    /// Works until nobody can ask any more.
    fn run(self) {
        step_back();
        let voice = self.voice.clone();
        // Checkpoints would wait for it until they time out, one after the other.
        if let Err(panic) = caught(|| self.work()) {
            voice.failed(transient(bug("a thread that stores snapshots", &panic)));
        }
    }

    fn work(mut self) {
        loop {
            match self.queue.pop() {
                Popped::Item(item, bytes) => {
                    let outcome = self.persister.handle(item);
                    self.load.done(bytes);
                    match outcome {
                        Some(Outcome::Acknowledged(acknowledgement)) => self.voice.acknowledged(acknowledgement),
                        Some(Outcome::Failed { task, checkpoint, reason }) => {
                            self.voice.persist_failed(task, checkpoint, reason);
                        }
                        None => {}
                    }
                }
                Popped::Nothing => self.signal.wait(None),
                Popped::Closed => return,
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
    voice: Arc<Voice>,
    load: Arc<Load>,
    queues: Vec<Arc<Queue>>,
}

impl TaskOutlet {
    fn send(&self, task: TaskId, item: Item) {
        self.queues[queue_of(task, self.queues.len())].push(item);
    }
}

impl Outlet for TaskOutlet {
    fn snapshot(&mut self, task: TaskId, part: SnapshotPart) {
        self.send(task, Item::Part(task, part));
    }

    fn report(&mut self, task: TaskId, report: Report) {
        match report {
            Report::Committed(checkpoint) => {
                self.send(task, Item::Committed(task, checkpoint));
                self.voice.committed(task, checkpoint);
            }
            Report::Declined { checkpoint, reason } => self.voice.declined(task, checkpoint, &reason),
            Report::Finished => self.voice.finished(task),
            Report::Failed(error) => self.voice.failed(failure(&error)),
        }
    }

    fn is_congested(&self) -> bool {
        self.load.bytes() > CONGESTED_BYTES
    }
}

/// What can be done about a task's failure.
pub(crate) fn failure(error: &TaskError) -> Failure {
    if error.is_permanent() { permanent(error.to_string()) } else { transient(error.to_string()) }
}
