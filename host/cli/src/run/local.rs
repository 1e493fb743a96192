//! A coordinator's master and a worker in this process, joined by function calls where a cluster has a network.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use weir_coordinator::{Input, JobError, JobThread, LOCAL_WORKER, Local, Mailbox, MasterJob, Notice, Outcome, SendFailure, Wish};
use weir_model::{Digest, limits};
use weir_protocol::Report;
use weir_protocol::panics::{bug, caught};
use weir_sandbox::Sandbox;
use weir_worker::executor::Threads;
use weir_worker::{
    BuiltinConnectors, CONGESTED_BYTES_DEFAULT, ComponentSource, Reports, Storages, UrlStorages, Worker, WorkerOptions,
};

use crate::Native;

/// What a job in this process needs of it.
pub(super) struct Process {
    pub(super) sandbox: Sandbox,
    pub(super) components: BTreeMap<Digest, Vec<u8>>,
    pub(super) native: Native,
}

/// A job that is about to run in this process.
pub(super) struct LocalJob {
    master: JobThread,
    worker: Worker,
    told: Mailbox,
    heartbeat: Heartbeat,
}

/// Asks a running job to stop with a last checkpoint.
#[derive(Clone, Debug)]
pub(crate) struct StopHandle(Mailbox);

impl StopHandle {
    /// Asks. Without effect where the job is over.
    pub(crate) fn stop(&self) {
        let _ = self.0.send(Input::Wish(Wish::Stop));
    }
}

struct ToMaster(Mailbox);

impl Reports for ToMaster {
    fn report(&self, report: Report) {
        // Nobody listens any more once the job is over.
        if self.0.send(Input::Report { worker: LOCAL_WORKER.into(), report: Box::new(report) }) == Err(SendFailure::Full) {
            let reason = "the job's master has not heard what was said before".to_owned();
            let _ = self.0.send(Input::WorkerLost { worker: LOCAL_WORKER.into(), reason });
        }
    }
}

struct HeldJob(BTreeMap<Digest, Vec<u8>>);

impl ComponentSource for HeldJob {
    fn fetch(&self, digest: Digest) -> Result<Vec<u8>, String> {
        self.0
            .get(&digest)
            .cloned()
            .ok_or_else(|| format!("component {digest} was not read with the job file; this is a bug in weir"))
    }
}

impl Process {
    /// Puts master and worker together.
    pub(super) fn start(self, settings: MasterJob, watch: Box<dyn FnMut(&Notice) + Send>) -> std::io::Result<LocalJob> {
        // The worker needs the way to the master, and the master the worker: it is handed in once there is one.
        let worker: Arc<std::sync::OnceLock<Worker>> = Arc::default();
        let commanded = worker.clone();
        let tell = Box::new(move |command| {
            if let Some(worker) = commanded.get() {
                worker.command(command);
            }
        });
        let local = Local::new(tell, Box::new(|url, job| UrlStorages.open(url, job)), watch);
        let (master, told) = JobThread::new(settings, Arc::new(local));
        let options = WorkerOptions {
            name: LOCAL_WORKER.into(),
            sandbox: self.sandbox,
            components: Arc::new(HeldJob(self.components)),
            connectors: Arc::new(BuiltinConnectors),
            storages: Arc::new(UrlStorages),
            native: self.native,
            network: None,
            reports: Arc::new(ToMaster(told.clone())),
            executor: Arc::new(Threads::default()),
            congested_bytes: CONGESTED_BYTES_DEFAULT,
        };
        let worker = worker.get_or_init(|| Worker::new(options)).clone();
        let heartbeat = Heartbeat::start(worker.clone(), told.clone())?;
        Ok(LocalJob { master, worker, told, heartbeat })
    }
}

impl LocalJob {
    /// A way to stop the job, for another thread or a signal.
    pub(super) fn stop_handle(&self) -> StopHandle {
        StopHandle(self.told.clone())
    }

    /// Runs the job to its end.
    pub(super) fn run(self) -> Result<Outcome, JobError> {
        let outcome = self.master.run();
        self.heartbeat.stop();
        self.worker.shutdown();
        outcome
    }
}

/// The thread that says how far the worker is.
struct Heartbeat {
    over: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Heartbeat {
    fn start(worker: Worker, told: Mailbox) -> std::io::Result<Heartbeat> {
        let over = Arc::new(AtomicBool::new(false));
        let ended = over.clone();
        let beat = move || {
            while !ended.load(Ordering::Acquire) {
                std::thread::park_timeout(Duration::from_millis(limits::HEARTBEAT_INTERVAL_MS));
                let beat = || {
                    worker.tick();
                    worker.progress()
                };
                let progress = match caught(beat) {
                    Ok(progress) => progress,
                    Err(panic) => {
                        tracing::error!("{}", bug("what reads the job's counts", &panic));
                        continue;
                    }
                };
                let report = Box::new(Report::Heartbeat { progress });
                let _ = told.send(Input::Report { worker: LOCAL_WORKER.into(), report });
            }
        };
        let thread = std::thread::Builder::new().name("heartbeat".to_owned()).spawn(beat)?;
        Ok(Heartbeat { over, thread })
    }

    fn stop(self) {
        self.over.store(true, Ordering::Release);
        self.thread.thread().unpark();
        let _ = self.thread.join();
    }
}
