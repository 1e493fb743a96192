//! A cluster's coordinator without its network: the machine ([`weir_cluster::Machine`]), and the hands that do what it says.
//!
//! Owns the links to workers, the masters' threads, the thread that writes to the disk, those who wait for an answer, and which tokens count.
//! Decides nothing else.
//! Nothing that the machine says is waited for here: links and inboxes take it at once, the disk's thread answers when it has written. So a
//! disk that hangs stops what has to be written, and nothing else.
//!
//! # Locks
//!
//! The desk is locked for short, in-memory work only, and while what the machine says is handed on, so that this happens in its order.

mod api;
mod masters;
mod scribe;
mod tokens;
mod trail;

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::{Condvar, Mutex};
use weir_cluster::{Input, LinkId, LogLine, Machine, Metadata, Now, Output, Receipt, RequestId, Settings};
use weir_master::Limits;
use weir_model::{Digest, Epoch};
use weir_protocol::api::{EventLevel, Refusal};
use weir_protocol::{Command, Register, Report};
use weir_storage::ComponentStore;

pub(crate) use weir_cluster::Hello;

use self::masters::Masters;
use self::scribe::Scribe;
use self::tokens::Tokens;
use self::trail::Trail;
use crate::metadata::{DataLock, Database};
use crate::{Describe, OpenStorage, ServeError};

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

/// A connection to a worker, as the cluster sees it.
pub(crate) trait WorkerLink: Send + Sync {
    /// Tells the worker something. Returns at once, and may lose it: then the connection is closed.
    fn tell(&self, command: Command);

    /// Closes the connection after what was told has been sent, as far as that is possible at once.
    fn close(&self, reason: &str);
}

/// Until when this node's certificate counts.
pub(crate) type CertificateUntil = Arc<dyn Fn() -> u64 + Send + Sync>;

/// Puts something between the coordinator and its metadata.
pub(crate) type Through = Box<dyn FnOnce(Arc<Database>) -> Arc<dyn Metadata> + Send>;

/// What a cluster is made of.
pub(crate) struct ClusterOptions {
    pub(crate) data_dir: PathBuf,
    /// Its id, for people.
    pub(crate) cluster: String,
    /// Until when this node's certificate counts, in milliseconds since the Unix epoch: it may be exchanged.
    pub(crate) certificate_until_ms: CertificateUntil,
    /// This program's version.
    pub(crate) version: String,
    pub(crate) default_storage: String,
    pub(crate) describe: Describe,
    /// SHA-256 of the token in the token file, if there is one.
    pub(crate) token: Option<Digest>,
    pub(crate) storage: OpenStorage,
    pub(crate) clock: Arc<dyn Clock>,
    /// How long the masters of jobs wait for what.
    pub(crate) limits: Limits,
}

/// A cluster's coordinator. Cheap to clone; all clones are the same one.
#[derive(Clone)]
pub(crate) struct Cluster {
    inner: Arc<Inner>,
}

struct Inner {
    describe: Describe,
    storage: OpenStorage,
    certificate_until_ms: CertificateUntil,
    clock: Arc<dyn Clock>,
    limits: Limits,
    epoch: Epoch,
    database: Arc<Database>,
    metadata: Arc<dyn Metadata>,
    components: ComponentStore,
    trail: Trail,
    tokens: Tokens,
    desk: Mutex<Desk>,
    /// Something about a job has changed.
    news: Condvar,
    /// None once it has ended.
    lock: Mutex<Option<DataLock>>,
}

/// The machine, and everything it has something to say to.
struct Desk {
    machine: Machine,
    links: BTreeMap<LinkId, Arc<dyn WorkerLink>>,
    next_link: LinkId,
    masters: Masters,
    scribe: Scribe,
    /// Who waits for an answer.
    askers: BTreeMap<RequestId, Asker>,
    next_request: u64,
}

/// Where an answer goes.
type Asker = std::sync::mpsc::SyncSender<Result<Receipt, Refusal>>;

impl Cluster {
    /// Takes the data folder, and everything up where the coordinator before left it.
    pub(crate) fn open(options: ClusterOptions) -> Result<Cluster, ServeError> {
        Cluster::open_through(options, Box::new(|database| database))
    }

    /// The same, with something between it and its metadata.
    pub(crate) fn open_through(options: ClusterOptions, through: Through) -> Result<Cluster, ServeError> {
        let lock = DataLock::take(&options.data_dir)?;
        let database = Arc::new(Database::open(&options.data_dir)?);
        let epoch = database.next_epoch()?;
        let settings = Settings {
            cluster: options.cluster,
            certificate_until_ms: (options.certificate_until_ms)(),
            version: options.version,
            default_storage: options.default_storage,
            epoch,
            succeeds: database.succeeds()?,
        };
        let now = options.clock.now();
        let mut out = Vec::new();
        let machine = Machine::new(settings, now, database.stored()?, &mut out);
        let metadata = through(database.clone());
        let (scribe, changes) = Scribe::new();
        let desk = Desk {
            machine,
            links: BTreeMap::new(),
            next_link: 0,
            masters: Masters::default(),
            scribe,
            askers: BTreeMap::new(),
            next_request: 0,
        };
        let inner = Arc::new(Inner {
            components: ComponentStore::open(&options.data_dir),
            describe: options.describe,
            storage: options.storage,
            certificate_until_ms: options.certificate_until_ms,
            clock: options.clock,
            limits: options.limits,
            epoch,
            trail: Trail::new(database.last_cluster_event()?),
            tokens: Tokens::new(database.tokens()?),
            database,
            metadata: metadata.clone(),
            desk: Mutex::new(desk),
            news: Condvar::new(),
            lock: Mutex::new(Some(lock)),
        });
        inner.adopt_token(options.token)?;
        scribe::start(&inner, metadata, changes).map_err(ServeError::Process)?;
        inner.carry_out(&mut inner.desk.lock(), out);
        let needed = |digest| inner.desk.lock().machine.needs(digest);
        if let Err(error) = inner.components.sweep(COMPONENT_KEPT, &needed) {
            tracing::warn!(%error, "cannot remove components that nothing needs");
        }
        Ok(Cluster { inner })
    }

    /// Which coordinator this is, and which of its lives.
    pub(crate) fn epoch(&self) -> Epoch {
        self.inner.epoch
    }

    /// A connection is there. It counts when its worker registers.
    pub(crate) fn attach(&self, link: Arc<dyn WorkerLink>) -> LinkId {
        let mut desk = self.inner.desk.lock();
        desk.next_link += 1;
        let number = desk.next_link;
        desk.links.insert(number, link);
        number
    }

    /// A worker registers. False where it may not join: it was told why.
    pub(crate) fn register(&self, link: LinkId, hello: Hello, register: Register) -> bool {
        let mut desk = self.inner.desk.lock();
        self.inner.handle(&mut desk, Input::Register { link, hello, register: Box::new(register) });
        desk.machine.is_joined(link)
    }

    /// A connection is closed.
    pub(crate) fn detach(&self, link: LinkId, reason: &str) {
        let mut desk = self.inner.desk.lock();
        desk.links.remove(&link);
        self.inner.handle(&mut desk, Input::Closed { link, reason: reason.to_owned() });
    }

    /// A worker's process seems to have ended. Gives the address that only it would answer at.
    pub(crate) fn suspect(&self, worker: &str, incarnation: u64) -> Option<String> {
        self.inner.desk.lock().machine.suspect(self.inner.clock.now(), worker, incarnation)
    }

    /// A worker's process, which seemed to have ended, certainly has.
    pub(crate) fn ended(&self, worker: &str, incarnation: u64) {
        self.inner.told(Input::Ended { worker: worker.into(), incarnation });
    }

    /// Time has passed.
    pub(crate) fn tick(&self) {
        let certificate_until_ms = (self.inner.certificate_until_ms)();
        self.inner.told(Input::Tick { certificate_until_ms });
    }

    /// A worker says something.
    pub(crate) fn report(&self, link: LinkId, report: Report) {
        self.inner.told(Input::Report { link, report: Box::new(report) });
    }

    /// The bytes of a component, for a worker that runs something which needs them.
    pub(crate) fn component(&self, link: LinkId, digest: Digest) -> Result<Vec<u8>, String> {
        if !self.inner.desk.lock().machine.may_fetch(self.inner.clock.now(), link, digest) {
            return Err("it belongs to no execution that runs there".to_owned());
        }
        self.inner.components.bytes(digest).map_err(|error| match &error.hint {
            Some(hint) => format!("{error}; {hint}"),
            None => error.to_string(),
        })
    }

    /// Ends all masters and leaves everything as it is for the next coordinator.
    pub(crate) fn leave(&self) {
        self.inner.told(Input::Leave);
        let threads = self.inner.desk.lock().masters.take_threads();
        for master in threads {
            // A master's panic was noted with its job.
            let _ = master.join();
        }
        let (links, scribe) = {
            let mut desk = self.inner.desk.lock();
            desk.askers.clear();
            (std::mem::take(&mut desk.links), desk.scribe.close())
        };
        links.values().for_each(|link| link.close("the coordinator ends"));
        if scribe.ends() {
            self.inner.database.close();
        } else {
            tracing::error!("the coordinator's disk does not answer; what it was to write may be lost");
        }
        self.inner.lock.lock().take();
    }
}

impl Inner {
    /// Tells the machine something, and does what it says.
    fn told(self: &Arc<Inner>, input: Input) {
        self.handle(&mut self.desk.lock(), input);
    }

    fn handle(self: &Arc<Inner>, desk: &mut Desk, input: Input) {
        let mut out = Vec::new();
        desk.machine.handle(self.clock.now(), input, &mut out);
        self.carry_out(desk, out);
    }

    fn carry_out(self: &Arc<Inner>, desk: &mut Desk, out: Vec<Output>) {
        let mut out = VecDeque::from(out);
        while let Some(output) = out.pop_front() {
            match output {
                Output::Tell { link, command } => match desk.links.get(&link) {
                    Some(link) => link.tell(command),
                    None => tracing::debug!(link, ?command, "a worker that is lost was to be told something"),
                },
                Output::Close { link, reason } => desk.links.remove(&link).iter().for_each(|link| link.close(&reason)),
                Output::Write { id, change } => desk.scribe.write(id, change),
                Output::Start { job, master } => {
                    if let Err(error) = desk.masters.start(self, &job, *master) {
                        let reason = format!("a thread for its master cannot be started: {error}");
                        let mut more = Vec::new();
                        desk.machine.not_started(self.clock.now(), &job, reason, &mut more);
                        out.extend(more);
                    }
                }
                Output::Inform { job, input } => {
                    if let Some(worker) = desk.masters.inform(&job, *input) {
                        let reason = format!("the master of job {job} has not heard what was said before");
                        let mut more = Vec::new();
                        desk.machine.handle(self.clock.now(), Input::Unheard { worker, reason }, &mut more);
                        out.extend(more);
                    }
                }
                Output::Answer { request, answer } => {
                    if let Some(asker) = desk.askers.remove(&request) {
                        // Whoever has asked may have given up.
                        let _ = asker.try_send(answer);
                    }
                }
                Output::News => {
                    self.news.notify_all();
                }
                Output::Log(LogLine { level, message }) => match level {
                    EventLevel::Info => tracing::info!("{message}"),
                    EventLevel::Warning => tracing::warn!("{message}"),
                    EventLevel::Error => tracing::error!("{message}"),
                },
            }
        }
    }
}

#[cfg(test)]
mod tests;
