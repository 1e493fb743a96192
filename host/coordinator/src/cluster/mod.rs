//! A cluster's coordinator without its network: jobs and their masters, workers and their slots, what is remembered of them.
//!
//! Owns every decision that is about more than one job, and the order in which things are written and said. It never decides
//! about one job's executions or checkpoints: its master does (`master/`).
//!
//! # What makes `kill -9` at any point safe
//!
//! The disk is written before anyone is told, and nobody acts on what was not written. Point by point:
//!
//! - **Submission**: the record is durable, then the master starts, then the person is answered. Killed before the write: the
//!   person has no answer and there is no job. After it: the next coordinator starts the job.
//! - **An execution begins**: the checkpoint storage gives the attempt's number, which fences all older ones; workers build its
//!   tasks; then [`Surroundings::record`](crate::Surroundings::record) makes placement and job durable; then workers are told
//!   `Start`. Killed before the write: workers return with an execution that nobody waits for, and end it. Between write and
//!   `Start`: they return with one that was not started, so a new attempt begins. `fresh` is cleared in the same write: before
//!   it, forgetting the checkpoints once more does no harm (nothing had run), after it there are checkpoints that count.
//! - **A manifest is written, sinks are not told**: workers return with what their sinks have committed; the master that takes
//!   the execution over commits what is missing. Without a takeover, restoring the manifest commits it.
//! - **A wish** (stop, cancel, rescale): durable, then told to the master, which keeps it whatever becomes of an execution. The
//!   next coordinator tells it again; it stays in the record until the job is over, or an execution has the new parallelism,
//!   or that was refused.
//! - **The end**: the master says how the job ended when everything is committed; slots are given back, then the record is
//!   written. Killed before the write: the job is started again, finds its final checkpoint and ends the same way. A
//!   cancelled job is over as soon as its wish is durable: the next coordinator does not take its execution over, and workers
//!   that return with it are told to end it.
//! - **Workers** are welcomed with the executions that may go on: those a takeover waits for, and no others. So whatever an
//!   older coordinator began and this one does not know ends when its worker connects.
//! - **Two coordinators**: the lock keeps a second one off the folder. One on another folder has another epoch: workers that run something
//!   stay with the coordinator that began it (`elsewhere`). One on a copy of the folder begins attempts of its own;
//!   whichever does so last owns a job's checkpoints, and the other's manifests, and so its commits, are refused.
//!
//! # Locks
//!
//! `State` is locked for short, in-memory work only. A job's book is locked while its record is written. Whoever has a book
//! may lock the state, never the other way round.

mod chronicle;
mod elsewhere;
mod expiry;
#[doc(hidden)]
pub mod fuzz;
mod gate;
mod job;
pub mod kinds;
mod masters;
mod refusals;
mod requests;
mod views;
mod workers;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use weir_model::limits::HEARTBEAT_TIMEOUT_MS;
use weir_model::{Digest, Epoch};
use weir_protocol::Command;
use weir_storage::{ComponentStore, JobStorage, StorageError};

use self::elsewhere::Elsewhere;
use self::expiry::Expiry;
use self::gate::{Gate, Part};
pub(crate) use self::job::Job;
pub(crate) use self::workers::{Hello, WorkerLink};
use crate::metadata::{DataLock, Desired, Metadata};
use crate::registry::{LinkId, Now, Registry};
use crate::schedule::Schedule;
use crate::takeover::Takeover;
use crate::{Inspect, Limits, ServeError, Wish};

/// How long a new coordinator waits for the workers of an execution. Longer than a connection takes to find out that its
/// other end has gone, and the worker then waits until it tries again.
const TAKEOVER_WAIT_MS: u64 = 4 * HEARTBEAT_TIMEOUT_MS;

/// Bytes of components that nothing needs are removed when they are this old.
const COMPONENT_KEPT: Duration = Duration::from_secs(24 * 3_600);

/// What time it is.
pub(crate) trait Clock: Send + Sync {
    fn now(&self) -> Now;
}

/// The machine's clocks.
#[derive(Debug)]
pub(crate) struct SystemClock(Instant);

impl Default for SystemClock {
    fn default() -> SystemClock {
        SystemClock(Instant::now())
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Now {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Now { steady_ms: self.0.elapsed().as_millis() as u64, wall_ms: wall.as_millis() as u64 }
    }
}

/// Opens the checkpoints of a job below a URL.
pub(crate) type OpenStorage = Arc<dyn Fn(&str, &str) -> Result<JobStorage, StorageError> + Send + Sync>;

/// What a cluster is made of.
pub(crate) struct ClusterOptions {
    pub(crate) data_dir: PathBuf,
    /// Its id, for people.
    pub(crate) cluster: String,
    /// Until when this node's certificate counts, in milliseconds since the Unix epoch: it may be exchanged.
    pub(crate) certificate_until_ms: Arc<dyn Fn() -> u64 + Send + Sync>,
    /// This program's version.
    pub(crate) version: String,
    pub(crate) default_storage: String,
    pub(crate) inspect: Inspect,
    pub(crate) storage: OpenStorage,
    pub(crate) clock: Arc<dyn Clock>,
    /// How long masters wait for what.
    pub(crate) limits: Limits,
}

/// A cluster's coordinator. Cheap to clone; all clones are the same one.
#[derive(Clone)]
pub(crate) struct Cluster {
    inner: Arc<Inner>,
}

struct Inner {
    options: ClusterOptions,
    metadata: Metadata,
    components: ComponentStore,
    state: Mutex<State>,
    /// Held while a job is submitted or removed, so that one name is never two jobs; and while a coordinator's place is taken.
    names: Mutex<()>,
    masters: Mutex<Vec<JoinHandle<()>>>,
    started_at_ms: u64,
    /// None once it has ended.
    lock: Mutex<Option<DataLock>>,
}

/// What is in memory only.
struct State {
    registry: Registry,
    schedule: Schedule,
    links: BTreeMap<LinkId, Arc<dyn WorkerLink>>,
    next_link: LinkId,
    jobs: BTreeMap<String, Arc<Job>>,
    /// Executions that may go on, and wait for their workers.
    takeovers: BTreeMap<String, Takeover>,
    /// What workers may say.
    gate: Gate,
    /// Who this coordinator is, and the workers that follow another.
    elsewhere: Elsewhere,
    /// Workers that may not join, and why; so that the same is not said again and again.
    refused: BTreeMap<Arc<str>, String>,
    /// Certificates that end soon.
    expiry: Expiry,
    closing: bool,
}

impl Cluster {
    /// Takes the data folder, and everything up where the coordinator before left it.
    pub(crate) fn open(options: ClusterOptions) -> Result<Cluster, ServeError> {
        let lock = DataLock::take(&options.data_dir)?;
        let metadata = Metadata::open(&options.data_dir)?;
        let epoch = metadata.next_epoch()?;
        tracing::info!(%epoch, "the coordinator starts");
        let now = options.clock.now();
        let state = State {
            registry: Registry::new(&options.version),
            schedule: Schedule::default(),
            links: BTreeMap::new(),
            next_link: 0,
            jobs: BTreeMap::new(),
            takeovers: BTreeMap::new(),
            gate: Gate::default(),
            elsewhere: Elsewhere::new(epoch, metadata.succeeds()?),
            refused: BTreeMap::new(),
            expiry: Expiry::default(),
            closing: false,
        };
        let inner = Inner {
            components: ComponentStore::open(&options.data_dir),
            options,
            metadata,
            state: Mutex::new(state),
            names: Mutex::new(()),
            masters: Mutex::new(Vec::new()),
            started_at_ms: now.wall_ms,
            lock: Mutex::new(Some(lock)),
        };
        let cluster = Cluster { inner: Arc::new(inner) };
        cluster.resume(now)?;
        let needed = |digest| cluster.inner.needs(digest);
        if let Err(error) = cluster.inner.components.sweep(COMPONENT_KEPT, &needed) {
            tracing::warn!(%error, "cannot remove components that nothing needs");
        }
        Ok(cluster)
    }

    /// Jobs that were not over go on: an execution that was begun may be taken over, the others start.
    fn resume(&self, now: Now) -> Result<(), ServeError> {
        let mut start = Vec::new();
        for stored in self.inner.metadata.jobs()? {
            let Some(name) = stored.name() else { continue };
            let (over, cancelled) = (stored.record.state.is_over(), stored.record.desired == Desired::Cancel);
            let job = Arc::new(Job::new(&name, stored.record));
            self.inner.state.lock().jobs.insert(name.clone(), job.clone());
            if over {
                continue;
            }
            if cancelled {
                self.inner.note_and(&job, chronicle::cancelled(), |record| record.rescale = None);
                job.has_nobody();
                continue;
            }
            let message = match stored.begun {
                None => "the coordinator was started again, and starts the job".to_owned(),
                Some(begun) => {
                    let part = Part::of(&begun.prepare);
                    let takeover = Takeover::new(begun, now.steady_ms.saturating_add(TAKEOVER_WAIT_MS));
                    let attempt = takeover.execution().attempt;
                    let workers = takeover.missing().join(", ");
                    let mut state = self.inner.state.lock();
                    state.schedule.hold(&name, takeover.slots());
                    part.into_iter().for_each(|part| state.gate.listen(part));
                    state.takeovers.insert(name, takeover);
                    format!("the coordinator was started again, and waits for the workers of attempt {attempt}: {workers}")
                }
            };
            self.inner.coordinator_restarted(&job, &message);
            start.push(job);
        }
        for job in start {
            let waits = self.inner.state.lock().takeovers.contains_key(job.name());
            if !waits {
                self.start_master(&job, None);
            }
        }
        Ok(())
    }

    /// Which coordinator this is, and which of its lives.
    pub(crate) fn epoch(&self) -> Epoch {
        self.inner.state.lock().elsewhere.epoch()
    }

    /// Ends all masters and leaves everything as it is for the next coordinator.
    pub(crate) fn leave(&self) {
        let jobs: Vec<Arc<Job>> = {
            let mut state = self.inner.state.lock();
            state.closing = true;
            state.jobs.values().cloned().collect()
        };
        for job in &jobs {
            job.tell(crate::Input::Leave);
            job.wake();
        }
        let masters = std::mem::take(&mut *self.inner.masters.lock());
        for master in masters {
            // A master's panic was noted with its job.
            let _ = master.join();
        }
        let links = std::mem::take(&mut self.inner.state.lock().links);
        for link in links.values() {
            link.close("the coordinator ends");
        }
        self.inner.metadata.close();
        self.inner.lock.lock().take();
    }
}

impl Inner {
    fn now(&self) -> Now {
        self.options.clock.now()
    }

    /// Whether a job that is known has a component of these bytes.
    fn needs(&self, digest: Digest) -> bool {
        let jobs: Vec<Arc<Job>> = self.state.lock().jobs.values().cloned().collect();
        jobs.iter().any(|job| job.book.lock().record.spec.components.values().any(|pin| pin.digest == digest))
    }
}

impl State {
    /// Tells a worker something, if it is there.
    fn send(&self, worker: &str, command: Command) {
        match self.registry.link(worker).and_then(|link| self.links.get(&link)) {
            Some(link) => link.tell(command),
            None => tracing::debug!(worker, ?command, "a worker that is lost was to be told something"),
        }
    }

    /// There may be slots where there were none.
    fn slots_changed(&self, but: Option<&str>) {
        for job in self.schedule.waiting().filter(|job| Some(*job) != but).filter_map(|job| self.jobs.get(job)) {
            job.tell(crate::Input::SlotsChanged);
        }
    }
}

/// The wishes that a record still holds, for a master that starts.
fn open_wishes(record: &crate::metadata::JobRecord) -> Vec<Wish> {
    match record.desired {
        Desired::Run => record.rescale.map(Wish::Rescale).into_iter().collect(),
        Desired::Stop => vec![Wish::Stop],
        Desired::Cancel => vec![Wish::Cancel],
    }
}

#[cfg(test)]
mod tests;
