//! Workers come, say what happens, and go.

use std::sync::Arc;

use weir_model::Digest;
use weir_model::limits::PARALLELISM_MAX;
use weir_protocol::api::EventLevel;
use weir_protocol::{Command, Execution, Register, Report, Running, WorkerId};

use super::chronicle::Entry;
use super::{Cluster, Inner, Job, State, kinds};
use crate::Input;
use crate::registry::{Candidate, Change, LinkId, Now};
use crate::takeover::Verdict;

/// A connection to a worker, as the cluster sees it.
pub(crate) trait WorkerLink: Send + Sync {
    /// Tells the worker something. Returns at once, and may lose it: then the connection is closed.
    fn tell(&self, command: Command);

    /// Closes the connection after what was told has been sent, as far as that is possible at once.
    fn close(&self, reason: &str);
}

/// Who is at the other end of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Hello {
    /// The name in its certificate.
    pub(crate) name: WorkerId,
    /// Number of its process.
    pub(crate) incarnation: u64,
    /// Where it connects from.
    pub(crate) from: String,
}

/// What is done when the state is not locked any more, as it may take its time.
enum After {
    /// A job's master starts.
    Start(Arc<Job>, Verdict),
    /// Jobs that wait for slots learn that a worker does not join: the kind of the event, and why.
    Refused(Vec<Arc<Job>>, &'static str, String),
    /// A job learns that a worker said what it may not.
    NotHeard(Arc<Job>, String),
    /// A job learns that it will stand still on a day that is near.
    Expires(Arc<Job>, String),
}

impl Cluster {
    /// A connection is there. It counts when its worker registers.
    pub(crate) fn attach(&self, link: Arc<dyn WorkerLink>) -> LinkId {
        let mut state = self.inner.state.lock();
        state.next_link += 1;
        let number = state.next_link;
        state.links.insert(number, link);
        number
    }

    /// A worker registers. May write to the disk. False where it may not join: it was told why.
    pub(crate) fn register(&self, link: LinkId, hello: Hello, mut register: Register) -> bool {
        let now = self.inner.now();
        {
            let mut state = self.inner.state.lock();
            if let Err(reason) = state.gate.check_register(&hello.name, &mut register) {
                let after = state.refuse(&hello.name, link, &reason).into_iter().collect();
                drop(state);
                self.finish(after);
                return false;
            }
            if let Some(after) = state.stays_elsewhere(now, link, &hello, &register) {
                drop(state);
                self.finish(after);
                return false;
            }
        }
        let candidate = Candidate {
            name: hello.name,
            incarnation: hello.incarnation,
            from: hello.from,
            version: register.version,
            slots: register.slots.min(PARALLELISM_MAX),
            address: register.data_address,
            clock_ms: register.clock_ms,
        };
        let name = candidate.name.clone();
        let (joined, after) = {
            let mut state = self.inner.state.lock();
            let changes = state.registry.register(now, link, candidate);
            let joined = changes.iter().any(|change| matches!(change, Change::Joined { .. }));
            (joined, state.apply(&name, changes, &register.running))
        };
        self.finish(after);
        joined
    }

    /// A connection is closed. May write to the disk.
    pub(crate) fn detach(&self, link: LinkId, reason: &str) {
        let after = {
            let mut state = self.inner.state.lock();
            state.links.remove(&link);
            let changes = state.registry.closed(self.inner.now(), link, reason);
            state.apply("", changes, &[])
        };
        self.finish(after);
    }

    /// A worker's process seems to have ended. Gives the address that only it would answer at.
    pub(crate) fn suspect(&self, worker: &str, incarnation: u64) -> Option<String> {
        self.inner.state.lock().registry.suspect(self.inner.now(), worker, incarnation)
    }

    /// A worker's process, which seemed to have ended, certainly has. May write to the disk.
    pub(crate) fn ended(&self, worker: &str, incarnation: u64) {
        let after = {
            let mut state = self.inner.state.lock();
            let changes = state.registry.ended(self.inner.now(), worker, incarnation);
            state.apply("", changes, &[])
        };
        self.finish(after);
    }

    /// Time has passed. May write to the disk.
    pub(crate) fn tick(&self) {
        let now = self.inner.now();
        let after = {
            let mut state = self.inner.state.lock();
            state.elsewhere.tick(now);
            let changes = state.registry.tick(now);
            let mut after = state.apply("", changes, &[]);
            after.extend(state.late_takeovers(now));
            after.extend(state.refused_reports());
            after.extend(state.expiring(now, (self.inner.options.certificate_until_ms)()));
            after
        };
        self.finish(after);
    }

    /// A worker says something. Never waits. What comes on a connection that does not count is dropped, and so is what the gate
    /// does not let through.
    pub(crate) fn report(&self, link: LinkId, mut report: Report) {
        let mut state = self.inner.state.lock();
        let state = &mut *state;
        let Some(worker) = state.registry.heard(self.inner.now(), link) else {
            tracing::debug!(link, ?report, "a report on a connection that does not count");
            return;
        };
        if let Report::Heartbeat { progress } = report {
            for (execution, mut progress) in progress {
                if let Err(objection) = state.gate.check_progress(&worker, &execution, &mut progress) {
                    state.gate.refuse(&worker, &execution, objection);
                } else if let Some(job) = state.jobs.get(&execution.job) {
                    let report = Box::new(Report::Heartbeat { progress: vec![(execution, progress)] });
                    job.tell_heartbeat(Input::Report { worker: worker.clone(), report });
                }
            }
            return;
        }
        if let Report::Certificate { until_ms } = report {
            state.registry.certificate(&worker, until_ms);
            return;
        }
        if let Err(objection) = state.gate.check(&worker, &mut report) {
            let execution = report.execution().cloned();
            if let Some(execution) = execution {
                state.gate.refuse(&worker, &execution, objection);
            }
            return;
        }
        match report.execution().map(|execution| state.jobs.get(&execution.job)) {
            Some(Some(job)) => job.tell(Input::Report { worker, report: Box::new(report) }),
            Some(None) => tracing::debug!(%worker, ?report, "a report about a job that is not known"),
            None => tracing::warn!(%worker, ?report, "a report that belongs to no job"),
        }
    }

    /// The bytes of a component, for a worker that runs something which needs them.
    pub(crate) fn component(&self, link: LinkId, digest: Digest) -> Result<Vec<u8>, String> {
        let may = {
            let mut state = self.inner.state.lock();
            let worker = state.registry.heard(self.inner.now(), link);
            worker.is_some_and(|worker| state.gate.needs(&worker, digest))
        };
        if !may {
            return Err("it belongs to no execution that runs there".to_owned());
        }
        self.inner.components.bytes(digest).map_err(|error| match &error.hint {
            Some(hint) => format!("{error}; {hint}"),
            None => error.to_string(),
        })
    }

    fn finish(&self, after: Vec<After>) {
        for after in after {
            match after {
                After::Start(job, verdict) => self.start_master(&job, Some(verdict)),
                After::Refused(jobs, kind, message) => self.inner.tell_refused(&jobs, kind, &message),
                After::NotHeard(job, message) => {
                    self.inner.note(&job, Entry::event(EventLevel::Error, kinds::REPORT_REFUSED, message));
                }
                After::Expires(job, _) if job.book.lock().record.state.is_over() => {}
                After::Expires(job, message) => {
                    self.inner.note(&job, Entry::event(EventLevel::Warning, kinds::CERTIFICATE_EXPIRES, message));
                }
            }
        }
    }
}

impl Inner {
    fn tell_refused(&self, jobs: &[Arc<Job>], kind: &'static str, message: &str) {
        for job in jobs {
            self.note(job, Entry::event(EventLevel::Warning, kind, message.to_owned()));
        }
    }
}

impl State {
    /// Carries out what the registry says. `running` is what the worker `name` says it runs.
    fn apply(&mut self, name: &str, changes: Vec<Change>, running: &[Running]) -> Vec<After> {
        let mut after = Vec::new();
        for change in changes {
            match change {
                Change::Lost { worker, link, reason } => self.lose(&worker, link, &reason),
                Change::Joined { worker, link } => after.extend(self.welcome(&worker, link, running)),
                Change::Refused { link, reason } => after.extend(self.refuse(name, link, &reason)),
            }
        }
        after
    }

    fn lose(&mut self, worker: &Arc<str>, link: LinkId, reason: &str) {
        if self.closing {
            tracing::debug!(%worker, reason, "worker left behind");
        } else {
            tracing::warn!(%worker, reason, "worker lost");
        }
        if let Some(link) = self.links.remove(&link) {
            link.close(reason);
        }
        self.schedule.lose(worker);
        for (name, job) in &self.jobs {
            match self.takeovers.get_mut(name) {
                Some(takeover) => takeover.lost(worker),
                None => job.tell(Input::WorkerLost { worker: worker.clone(), reason: reason.to_owned() }),
            }
        }
        self.slots_changed(None);
    }

    fn refuse(&mut self, name: &str, link: LinkId, reason: &str) -> Option<After> {
        if let Some(link) = self.links.remove(&link) {
            link.tell(Command::Refused { reason: reason.to_owned() });
        }
        if self.refused.insert(name.into(), reason.to_owned()).as_deref() == Some(reason) {
            return None;
        }
        tracing::warn!(worker = name, reason, "worker refused");
        let jobs = self.schedule.waiting().filter_map(|job| self.jobs.get(job).cloned()).collect();
        Some(After::Refused(jobs, kinds::WORKER_REFUSED, format!("a worker may not join: {reason}")))
    }

    /// A worker that runs what another coordinator began is told so, and left alone; `None` where it may join.
    fn stays_elsewhere(&mut self, now: Now, link: LinkId, hello: &Hello, register: &Register) -> Option<Vec<After>> {
        let (reason, is_news) = self.elsewhere.objection(now, hello, register)?;
        if let Some(link) = self.links.remove(&link) {
            link.tell(Command::Refused { reason: reason.clone() });
        }
        if !is_news {
            return Some(Vec::new());
        }
        tracing::error!(worker = &*hello.name, reason, "a worker follows another coordinator");
        let jobs = self.schedule.waiting().filter_map(|job| self.jobs.get(job).cloned()).collect();
        Some(vec![After::Refused(jobs, kinds::WORKER_LED_ELSEWHERE, format!("a worker does not join: {reason}"))])
    }

    /// A worker joins: first it learns what may go on, then its slots are offered, so nothing is told it before.
    fn welcome(&mut self, worker: &Arc<str>, link: LinkId, running: &[Running]) -> Vec<After> {
        self.refused.remove(worker);
        let slots = self.registry.member(worker).map_or(0, |member| member.candidate.slots);
        tracing::info!(%worker, slots, running = running.len(), "worker joined");
        let verdict = |(name, takeover): (&String, &mut crate::takeover::Takeover)| {
            Some((name.clone(), takeover.registered(worker, running)?))
        };
        let verdicts: Vec<(String, Verdict)> = self.takeovers.iter_mut().filter_map(verdict).collect();
        let given_up = |job: &str| verdicts.iter().any(|(name, verdict)| name == job && matches!(verdict, Verdict::Anew(_)));
        let kept = |running: &&Running| {
            let job = &running.execution.job;
            !given_up(job) && self.takeovers.get(job).is_some_and(|takeover| takeover.keeps(worker, running))
        };
        let keep: Vec<Execution> = running.iter().filter(kept).map(|running| running.execution.clone()).collect();
        if let Some(link) = self.links.get(&link) {
            link.tell(Command::Welcome { keep, succeeds: self.elsewhere.succeeds().to_vec() });
        }
        self.schedule.offer(worker, slots);
        let after = verdicts.into_iter().filter_map(|(job, verdict)| self.decide(&job, verdict)).collect();
        self.slots_changed(None);
        after
    }

    /// Jobs that learn what workers were not heard with.
    fn refused_reports(&mut self) -> Vec<After> {
        let news = self.gate.take_news();
        let told = |(job, message): (String, String)| Some(After::NotHeard(self.jobs.get(&job)?.clone(), message));
        news.into_iter().filter_map(told).collect()
    }

    /// Jobs that learn whose certificate ends soon: the coordinator's, which all need, or a worker's that they run on.
    fn expiring(&mut self, now: Now, own_until_ms: u64) -> Vec<After> {
        let workers = self.registry.members().filter(|(_, member)| member.link.is_some());
        let workers = workers.map(|(name, member)| (format!("worker {name}"), member.certificate_until_ms));
        let nodes: Vec<(String, u64)> = std::iter::once(("the coordinator".to_owned(), own_until_ms)).chain(workers).collect();
        let due = self.expiry.due(now.wall_ms, nodes.iter().map(|(node, until_ms)| (node.as_str(), *until_ms)));
        let mut after = Vec::new();
        for (node, message) in due {
            tracing::warn!("{message}");
            let affected = match node.strip_prefix("worker ") {
                Some(worker) => self.schedule.jobs_on(worker),
                None => self.jobs.keys().cloned().collect(),
            };
            let jobs = affected.iter().filter_map(|job| self.jobs.get(job));
            after.extend(jobs.map(|job| After::Expires(job.clone(), message.clone())));
        }
        after
    }

    fn late_takeovers(&mut self, now: Now) -> Vec<After> {
        let late = |(name, takeover): (&String, &crate::takeover::Takeover)| Some((name.clone(), takeover.tick(now.steady_ms)?));
        let verdicts: Vec<(String, Verdict)> = self.takeovers.iter().filter_map(late).collect();
        verdicts.into_iter().filter_map(|(job, verdict)| self.decide(&job, verdict)).collect()
    }

    /// The wait for an execution's workers is over.
    fn decide(&mut self, name: &str, verdict: Verdict) -> Option<After> {
        let takeover = self.takeovers.remove(name)?;
        match verdict {
            // What was held on a worker that was lost in between is held again.
            Verdict::Adopt(_) => self.schedule.hold(name, takeover.slots()),
            // Its slots stay its own until it asks for some: then others learn what is left.
            Verdict::Anew(_) => {
                for worker in takeover.back() {
                    let execution = takeover.execution().clone();
                    self.send(worker, Command::Cancel { execution, finish: false });
                }
            }
        }
        Some(After::Start(self.jobs.get(name)?.clone(), verdict))
    }
}
