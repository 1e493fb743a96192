//! The masters' threads, and what surrounds a master in a cluster: the machine.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use weir_cluster::Input;
use weir_master::{Begun, Input as MasterInput, MasterJob, Notice, Output as Says};
use weir_model::Epoch;
use weir_protocol::{Command, WorkerId};
use weir_storage::{JobStorage, StorageError};

use super::Inner;
use crate::{JobThread, Mailbox, SendFailure, Shortage, Slots, Surroundings};

/// The masters that run.
#[derive(Default)]
pub(super) struct Masters {
    inboxes: BTreeMap<String, Mailbox>,
    threads: Vec<JoinHandle<()>>,
}

impl Masters {
    /// Starts the master of a job.
    pub(super) fn start(&mut self, inner: &Arc<Inner>, job: &str, master: MasterJob) -> io::Result<()> {
        let (thread, inbox) = JobThread::with_limits(master, Arc::new(ClusterSurroundings(inner.clone())), inner.limits);
        let (inner, name) = (inner.clone(), job.to_owned());
        let run = move || {
            // A master that panics takes no other job along: it says so as a failure.
            let end = Box::new(thread.run());
            inner.told(Input::Says { job: name, says: Says::Over(end) });
        };
        let thread = std::thread::Builder::new().name(format!("job-{job}")).spawn(run)?;
        self.threads.retain(|master| !master.is_finished());
        self.threads.push(thread);
        self.inboxes.insert(job.to_owned(), inbox);
        Ok(())
    }

    /// Tells the master of a job something; nobody where it has ended. Gives the worker that says more than is kept, if this was
    /// one word too much.
    pub(super) fn inform(&mut self, job: &str, input: MasterInput) -> Option<WorkerId> {
        let mailbox = self.inboxes.get(job)?;
        let from = match &input {
            MasterInput::Report { worker, .. } => Some(worker.clone()),
            _ => None,
        };
        match mailbox.send(input) {
            Ok(()) => None,
            Err(SendFailure::Full) => from,
            Err(SendFailure::Gone) => {
                self.inboxes.remove(job);
                None
            }
        }
    }

    /// All threads, to be waited for.
    pub(super) fn take_threads(&mut self) -> Vec<JoinHandle<()>> {
        std::mem::take(&mut self.threads)
    }
}

/// What surrounds a master: the cluster.
struct ClusterSurroundings(Arc<Inner>);

impl ClusterSurroundings {
    fn says(&self, job: &str, says: Says) {
        self.0.told(Input::Says { job: job.to_owned(), says });
    }
}

impl Surroundings for ClusterSurroundings {
    fn reserve(&self, job: &str, slots: u32) -> Result<Slots, Shortage> {
        let mut desk = self.0.desk.lock();
        let mut out = Vec::new();
        let answer = desk.machine.reserve(job, slots, &mut out);
        self.0.carry_out(&mut desk, out);
        answer
    }

    fn release(&self, job: &str) {
        self.says(job, Says::Release);
    }

    fn send(&self, job: &str, worker: &str, command: Command) {
        self.says(job, Says::Send { worker: worker.into(), command });
    }

    fn epoch(&self) -> Epoch {
        self.0.epoch
    }

    fn storage(&self, url: &str, job: &str) -> Result<JobStorage, StorageError> {
        (self.0.storage)(url, job)
    }

    /// Its master is told when the disk has taken it.
    fn record(&self, job: &str, begun: Box<Begun>) -> Option<Result<(), String>> {
        self.says(job, Says::Record(begun));
        None
    }

    fn notice(&self, job: &str, notice: Notice) {
        self.says(job, Says::Notice(notice));
    }
}
