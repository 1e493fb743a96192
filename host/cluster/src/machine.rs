//! The machine: what comes in, and where it goes.

use std::sync::Arc;

use weir_master::{JobError, Shortage, Slots};
use weir_model::Epoch;
use weir_protocol::api::{ClusterStatus, JobDetail, JobStatus, Refusal, WorkerStatus};

use crate::record::StoredJob;
use crate::state::{Settings, State};
use crate::words::{Ask, Input, Output};
use crate::{LinkId, Now, refusals, views, words};

/// A cluster's coordinator without its process.
pub struct Machine {
    pub(crate) state: State,
}

impl Machine {
    /// A coordinator that takes everything up where the one before has left it: an execution that was begun may be taken over, jobs
    /// that were not over start.
    pub fn new(settings: Settings, now: Now, stored: Vec<StoredJob>, out: &mut Vec<Output>) -> Machine {
        out.push(words::started(settings.epoch, stored.len()));
        let mut state = State::new(settings, now);
        let mut start = Vec::new();
        for stored in stored {
            start.extend(state.resume(now, stored, out));
        }
        for name in start {
            state.start(now, &name, None, out);
        }
        state.invariants();
        Machine { state }
    }

    /// Something happens.
    pub fn handle(&mut self, now: Now, input: Input, out: &mut Vec<Output>) {
        let is_tick = matches!(input, Input::Tick { .. });
        match input {
            Input::Register { link, hello, register } => self.state.register(now, link, hello, *register, out),
            Input::Report { link, report } => self.state.report(now, link, *report, out),
            Input::Closed { link, reason } => {
                let changes = self.state.registry.closed(now, link, &reason);
                self.state.apply(now, "", changes, &[], out);
            }
            Input::Ended { worker, incarnation } => {
                let changes = self.state.registry.ended(now, &worker, incarnation);
                self.state.apply(now, "", changes, &[], out);
            }
            Input::Unheard { worker, reason } => {
                if let Some(link) = self.state.registry.link(&worker) {
                    let changes = self.state.registry.closed(now, link, &reason);
                    self.state.apply(now, "", changes, &[], out);
                }
            }
            Input::Asked { request, .. } if self.state.closing => {
                let answer = Err(refusals::coordinator_ends("do what is asked for"));
                out.push(Output::Answer { request, answer });
            }
            Input::Asked { request, by, ask: Ask::Name(ask) } => self.state.ask_name(now, request, by, ask, out),
            Input::Asked { request, by, ask: Ask::Job { name, ask } } => self.state.ask_job(now, (request, by), &name, ask, out),
            Input::Says { job, says } => self.state.hear(now, &job, says, out),
            Input::Written { change, result } => {
                if !self.state.name_written(now, change, &result, out) {
                    self.state.job_written(now, change, result, out);
                }
                self.state.name_next(now, out);
            }
            Input::Tick { certificate_until_ms } => {
                self.state.settings.certificate_until_ms = certificate_until_ms;
                self.state.elsewhere.tick(now);
                let changes = self.state.registry.tick(now);
                self.state.apply(now, "", changes, &[], out);
                self.state.late_takeovers(now, out);
                self.state.refused_reports(now, out);
                self.state.expiring(now, out);
            }
            Input::Leave => self.state.leave(out),
        }
        if is_tick || cfg!(debug_assertions) {
            self.state.invariants();
        }
    }

    /// Takes slots for a job, all or none. Those it held before are given back first. For a master that gets its answer at once.
    ///
    /// # Errors
    /// If there are not enough. Its master is told when there may be more.
    pub fn reserve(&mut self, job: &str, slots: u32, out: &mut Vec<Output>) -> Result<Slots, Shortage> {
        self.state.reserve(job, slots, out)
    }

    /// A job's master could not be started.
    pub fn not_started(&mut self, now: Now, job: &str, reason: String, out: &mut Vec<Output>) {
        let why_not_restarted = "submit it again when the machine has room".to_owned();
        let end = Err(JobError::Failed { reason, why_not_restarted });
        self.handle(now, Input::Says { job: job.to_owned(), says: weir_master::Output::Over(Box::new(end)) }, out);
    }
}

/// What others may look at, without changing anything.
impl Machine {
    /// Which coordinator this is, and which of its lives.
    pub fn epoch(&self) -> Epoch {
        self.state.elsewhere.epoch()
    }

    /// Whether a connection is that of a worker which has joined.
    pub fn is_joined(&self, link: LinkId) -> bool {
        self.state.registry.is_joined(link)
    }

    /// A worker's process seems to have ended. Gives the address that only it would answer at.
    pub fn suspect(&mut self, now: Now, worker: &str, incarnation: u64) -> Option<String> {
        self.state.registry.suspect(now, worker, incarnation)
    }

    /// Whether the worker of a connection runs something that needs a component. It was heard.
    pub fn may_fetch(&mut self, now: Now, link: LinkId, digest: weir_model::Digest) -> bool {
        self.state.registry.heard(now, link).is_some_and(|worker| self.state.gate.needs(&worker, digest))
    }

    /// Whether a job that is known, or that is being submitted, has a component of these bytes.
    pub fn needs(&self, digest: weir_model::Digest) -> bool {
        let known = self.state.jobs.values().map(|job| &job.book.record.spec);
        let mut specs = known.chain(self.state.names.submitted());
        specs.any(|spec| spec.components.values().any(|pin| pin.digest == digest))
    }

    /// The number of a job's last event, and whether more may come: none do where the process ends.
    ///
    /// # Errors
    /// If there is no such job.
    pub fn last_event(&self, name: &str) -> Result<(u64, bool), Refusal> {
        let job = self.state.find("show events of", name)?;
        Ok((job.book.record.last_event, !self.state.closing))
    }

    /// The cluster in one line.
    pub fn status(&self) -> ClusterStatus {
        views::cluster(&self.state.settings, self.state.started_at_ms, &self.workers(), &self.state.elsewhere)
    }

    /// Its workers, also those that were lost a short time ago.
    pub fn workers(&self) -> Vec<WorkerStatus> {
        let worker =
            |(name, member): (&Arc<str>, _)| views::worker(name, member, &self.state.schedule, self.state.gate.refused(name));
        self.state.registry.members().map(worker).collect()
    }

    /// All jobs.
    pub fn jobs(&self) -> Vec<JobStatus> {
        self.state.jobs.iter().map(|(name, job)| views::status(name, &job.book)).collect()
    }

    /// Everything about a job.
    ///
    /// # Errors
    /// If there is no such job.
    pub fn job(&self, name: &str) -> Result<JobDetail, Refusal> {
        Ok(views::detail(name, &self.state.find("show", name)?.book, &self.state.settings.default_storage))
    }
}
