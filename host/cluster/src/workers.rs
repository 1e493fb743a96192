//! Workers come, say what happens, and go.

use std::sync::Arc;

use weir_master::{Adopted, Input as MasterInput};
use weir_model::limits::PARALLELISM_MAX;
use weir_protocol::api::EventLevel;
use weir_protocol::{Command, Execution, Register, Report, Running};

use crate::chronicle::Entry;
use crate::job::Edit;
use crate::kinds;
use crate::registry::{Candidate, LinkId, MemberChange, Now};
use crate::state::State;
use crate::takeover::{Takeover, Verdict};
use crate::words::{Hello, Output};

impl State {
    /// A worker registers.
    pub(crate) fn register(&mut self, now: Now, link: LinkId, hello: Hello, mut register: Register, out: &mut Vec<Output>) {
        if let Err(reason) = self.gate.check_register(&hello.name, &mut register) {
            self.refuse(now, &hello.name, link, &reason, out);
            return;
        }
        if let Some((reason, is_news)) = self.elsewhere.objection(now, &hello, &register) {
            self.stays_elsewhere(now, link, &reason, is_news, out);
            return;
        }
        let candidate = Candidate {
            name: hello.name.clone(),
            incarnation: hello.incarnation,
            from: hello.from,
            version: register.version,
            slots: register.slots.min(PARALLELISM_MAX),
            address: register.data_address,
            clock_ms: register.clock_ms,
        };
        let changes = self.registry.register(now, link, candidate);
        self.apply(now, &hello.name, changes, &register.running, out);
    }

    /// A worker says something. What comes on a connection that does not count is dropped, and so is what the gate does not let
    /// through.
    pub(crate) fn report(&mut self, now: Now, link: LinkId, mut report: Report, out: &mut Vec<Output>) {
        let Some(worker) = self.registry.heard(now, link) else { return };
        if let Report::Heartbeat { progress } = report {
            for (execution, mut progress) in progress {
                if let Err(objection) = self.gate.check_progress(&worker, &execution, &mut progress) {
                    self.gate.refuse(&worker, &execution, objection);
                } else if self.jobs.get_mut(&execution.job).is_some_and(crate::job::Job::takes_heartbeat) {
                    let job = execution.job.clone();
                    let report = Box::new(Report::Heartbeat { progress: vec![(execution, progress)] });
                    self.inform(&job, MasterInput::Report { worker: worker.clone(), report }, out);
                }
            }
            return;
        }
        if let Report::Certificate { until_ms } = report {
            self.registry.certificate(&worker, until_ms);
            return;
        }
        if let Report::Stuck { executions } = report {
            self.registry.stuck(&worker, executions);
            return;
        }
        let execution = report.execution().cloned();
        if let Err(objection) = self.gate.check(&worker, &mut report) {
            if let Some(execution) = execution {
                self.gate.refuse(&worker, &execution, objection);
            }
            return;
        }
        let Some(execution) = execution else {
            out.push(Output::log(EventLevel::Warning, format!("worker {worker} says what belongs to no job: {report:?}")));
            return;
        };
        let report = Box::new(report);
        if !self.inform(&execution.job, MasterInput::Report { worker, report }, out) {
            let changes = self.registry.closed(now, link, "it says more than is kept while the job waits for its other workers");
            self.apply(now, "", changes, &[], out);
        }
    }

    /// Carries out what the registry says. `running` is what the worker `name` says it runs.
    pub(crate) fn apply(&mut self, now: Now, name: &str, changes: Vec<MemberChange>, running: &[Running], out: &mut Vec<Output>) {
        for change in changes {
            match change {
                MemberChange::Lost { worker, link, reason } => self.lose(&worker, link, &reason, out),
                MemberChange::Joined { worker, link } => self.welcome(now, &worker, link, running, out),
                MemberChange::Refused { link, reason } => self.refuse(now, name, link, &reason, out),
            }
        }
    }

    fn lose(&mut self, worker: &Arc<str>, link: LinkId, reason: &str, out: &mut Vec<Output>) {
        let level = if self.closing { EventLevel::Info } else { EventLevel::Warning };
        out.push(Output::log(level, format!("worker {worker} is lost: {reason}")));
        out.push(Output::Close { link, reason: reason.to_owned() });
        self.schedule.lose(worker);
        // It may come back in time: until then its slots are held, as they were before it came.
        for (name, takeover) in &self.takeovers {
            self.schedule.hold(name, takeover.slots());
        }
        for name in self.jobs.keys().cloned().collect::<Vec<_>>() {
            match self.takeovers.get_mut(&name) {
                Some(takeover) => takeover.lost(worker),
                None => {
                    self.inform(&name, MasterInput::WorkerLost { worker: worker.clone(), reason: reason.to_owned() }, out);
                }
            }
        }
        self.slots_changed(None, out);
    }

    fn refuse(&mut self, now: Now, name: &str, link: LinkId, reason: &str, out: &mut Vec<Output>) {
        out.push(Output::Tell { link, command: Command::Refused { reason: reason.to_owned() } });
        if self.refused.insert(name.into(), reason.to_owned()).as_deref() == Some(reason) {
            return;
        }
        out.push(Output::log(EventLevel::Warning, format!("worker {name} is refused: {reason}")));
        self.tell_waiting(now, kinds::WORKER_REFUSED, &format!("a worker may not join: {reason}"), out);
    }

    /// A worker that runs what another coordinator began is told so, and left alone.
    fn stays_elsewhere(&mut self, now: Now, link: LinkId, reason: &str, is_news: bool, out: &mut Vec<Output>) {
        out.push(Output::Tell { link, command: Command::Refused { reason: reason.to_owned() } });
        if is_news {
            out.push(Output::log(EventLevel::Error, format!("a worker follows another coordinator: {reason}")));
            self.tell_waiting(now, kinds::WORKER_LED_ELSEWHERE, &format!("a worker does not join: {reason}"), out);
        }
    }

    /// Jobs that wait for slots learn that a worker does not join.
    fn tell_waiting(&mut self, now: Now, kind: &'static str, message: &str, out: &mut Vec<Output>) {
        for name in self.schedule.waiting().map(str::to_owned).collect::<Vec<_>>() {
            let entry = Entry::event(EventLevel::Warning, kind, message.to_owned());
            self.note(now, &name, entry, Edit::Nothing, out);
        }
    }

    /// A worker joins: first it learns what may go on, then its slots are offered, so nothing is told it before.
    fn welcome(&mut self, now: Now, worker: &Arc<str>, link: LinkId, running: &[Running], out: &mut Vec<Output>) {
        self.refused.remove(worker);
        let slots = self.registry.member(worker).map_or(0, |member| member.candidate.slots);
        let message = format!("worker {worker} joined with {slots} slots, and runs {} executions", running.len());
        out.push(Output::log(EventLevel::Info, message));
        let verdict = |(name, takeover): (&String, &mut Takeover)| Some((name.clone(), takeover.registered(worker, running)?));
        let verdicts: Vec<(String, Verdict)> = self.takeovers.iter_mut().filter_map(verdict).collect();
        let given_up = |job: &str| verdicts.iter().any(|(name, verdict)| name == job && matches!(verdict, Verdict::Anew(_)));
        let kept = |running: &&Running| {
            let job = &running.execution.job;
            !given_up(job) && self.takeovers.get(job).is_some_and(|takeover| takeover.keeps(worker, running))
        };
        let keep: Vec<Execution> = running.iter().filter(kept).map(|running| running.execution.clone()).collect();
        out.push(Output::Tell { link, command: Command::Welcome { keep, succeeds: self.elsewhere.succeeds().to_vec() } });
        self.schedule.offer(worker, slots);
        for (job, verdict) in verdicts {
            self.decide(now, &job, verdict, out);
        }
        self.slots_changed(None, out);
    }

    /// Jobs learn what workers were not heard with.
    pub(crate) fn refused_reports(&mut self, now: Now, out: &mut Vec<Output>) {
        for (name, message) in self.gate.take_news() {
            out.push(Output::log(EventLevel::Error, format!("job {name}: {message}")));
            let entry = Entry::event(EventLevel::Error, kinds::REPORT_REFUSED, message);
            self.note(now, &name, entry, Edit::Nothing, out);
        }
    }

    /// Jobs learn whose certificate ends soon: the coordinator's, which all need, or a worker's that they run on.
    pub(crate) fn expiring(&mut self, now: Now, out: &mut Vec<Output>) {
        let workers = self.registry.members().filter(|(_, member)| member.link.is_some());
        let workers = workers.map(|(name, member)| (format!("worker {name}"), member.certificate_until_ms));
        let own = ("the coordinator".to_owned(), self.settings.certificate_until_ms);
        let nodes: Vec<(String, u64)> = std::iter::once(own).chain(workers).collect();
        let due = self.expiry.due(now.wall_ms, nodes.iter().map(|(node, until_ms)| (node.as_str(), *until_ms)));
        for (node, message) in due {
            out.push(Output::log(EventLevel::Warning, message.clone()));
            let affected = match node.strip_prefix("worker ") {
                Some(worker) => self.schedule.jobs_on(worker),
                None => self.jobs.keys().cloned().collect(),
            };
            let is_over = |job: &&String| self.jobs.get(*job).is_some_and(|job| job.book.record.state.is_over());
            for name in affected.iter().filter(|job| !is_over(job)).cloned().collect::<Vec<_>>() {
                let entry = Entry::event(EventLevel::Warning, kinds::CERTIFICATE_EXPIRES, message.clone());
                self.note(now, &name, entry, Edit::Nothing, out);
            }
        }
    }

    pub(crate) fn late_takeovers(&mut self, now: Now, out: &mut Vec<Output>) {
        let late = |(name, takeover): (&String, &Takeover)| Some((name.clone(), takeover.tick(now.steady_ms)?));
        let verdicts: Vec<(String, Verdict)> = self.takeovers.iter().filter_map(late).collect();
        for (job, verdict) in verdicts {
            self.decide(now, &job, verdict, out);
        }
    }

    /// The wait for an execution's workers is over.
    fn decide(&mut self, now: Now, name: &str, verdict: Verdict, out: &mut Vec<Output>) {
        let Some(takeover) = self.takeovers.remove(name) else { return };
        match verdict {
            Verdict::Adopt(adopted) => {
                // What was held on a worker that was lost in between is held again.
                self.schedule.hold(name, takeover.slots());
                self.start(now, name, Some(*adopted), out);
            }
            Verdict::Anew(reason) => {
                // Its slots stay its own until it asks for some: then others learn what is left.
                for worker in takeover.back() {
                    let execution = takeover.execution().clone();
                    self.send(worker, Command::Cancel { execution, finish: false }, out);
                }
                let message = format!("the execution cannot go on under the new coordinator, a new attempt begins: {reason}");
                let entry = Entry::event(EventLevel::Warning, kinds::NOT_TAKEN_OVER, message);
                self.note(now, name, entry, Edit::Nothing, out);
                self.start(now, name, None::<Adopted>, out);
            }
        }
    }
}
