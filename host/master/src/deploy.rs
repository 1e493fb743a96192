//! Bringing an execution into being. Each step is finished on every worker before the next begins anywhere, so what is
//! damaged or missing shows before anything is done that cannot be taken back.

use std::collections::BTreeSet;
use std::time::Duration;

use weir_model::{CheckpointId, Timestamp, WATERMARK_START};
use weir_protocol::manifest::event_time_max;
use weir_protocol::{Command, Looked, Prepare, Report, WorkerId};
use weir_storage::{Durable, ManifestKind};

use crate::deployed::Deployed;
use crate::ended::Ended;
use crate::limits::Limits;
use crate::{Begun, Notice, Output};

/// A step of the way to tasks that run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Prepare,
    /// After a final checkpoint: whether sources have more.
    Look,
    /// They have not: sinks commit what that checkpoint holds, in case that was not done.
    Commit,
    Open,
    Restore,
    Build,
    /// Not a worker's: the execution is recorded.
    Record,
}

impl Step {
    /// The step whose end a worker says with this.
    fn is_done_by(self, report: &Report) -> bool {
        match self {
            Step::Prepare => matches!(report, Report::Prepared { .. }),
            Step::Look => matches!(report, Report::Looked { .. }),
            Step::Open => matches!(report, Report::Opened { .. }),
            Step::Restore => matches!(report, Report::Restored { .. }),
            Step::Commit | Step::Build => matches!(report, Report::Built { .. }),
            Step::Record => false,
        }
    }

    /// What a worker that has not finished it is doing, and what makes that long: follows "worker a".
    fn in_words(self) -> &'static str {
        match self {
            Step::Prepare => {
                "has not taken the job in: large components are compiled, or their bytes or the checkpoint storage do not come"
            }
            Step::Look => "has not found out whether sources have more: files or folders that do not answer",
            Step::Open => {
                "has not opened the operators: one of them takes long in `open`, or the checkpoint storage does not answer"
            }
            Step::Restore => "has not restored the state: there is much of it, or the checkpoint storage does not answer",
            Step::Commit | Step::Build => {
                "has not built the tasks: sinks commit what the checkpoint holds, or files do not answer"
            }
            Step::Record => "waits for the coordinator, whose disk does not take the record of the execution",
        }
    }
}

/// How building went.
pub(crate) enum Built {
    /// The tasks are told to start.
    Started,
    /// Operators were only to be opened, and were.
    Tried,
    /// It does not go on.
    Ended(Ended),
}

/// An execution that is being built.
pub(crate) struct Deploy {
    pub(crate) deployed: Deployed,
    prepare: Prepare,
    /// The checkpoint it goes on from.
    from: Option<Durable>,
    /// Operators are only opened, to see whether they can be.
    is_trial: bool,
    step: Step,
    /// Workers that have not finished the step.
    missing: BTreeSet<WorkerId>,
    /// What sources have said of more to read.
    looked: Vec<Looked>,
    step_since_ms: u64,
    tell_ms: u64,
    /// When the record is tried again, and how long after the time before.
    record_ms: Option<u64>,
    record_delay_ms: u64,
}

impl Deploy {
    /// Begins with the first step.
    pub(crate) fn begin(
        deployed: Deployed,
        prepare: Prepare,
        from: Option<Durable>,
        now_ms: u64,
        limits: &Limits,
        out: &mut Vec<Output>,
    ) -> Deploy {
        out.push(Output::Notice(Notice::Deploying { attempt: deployed.id.attempt, workers: deployed.workers() }));
        let is_trial = deployed.id.attempt.0 == 0;
        let mut deploy = Deploy {
            deployed,
            prepare,
            from,
            is_trial,
            step: Step::Prepare,
            missing: BTreeSet::new(),
            looked: Vec::new(),
            step_since_ms: now_ms,
            tell_ms: now_ms,
            record_ms: None,
            record_delay_ms: limits.record_retry_ms,
        };
        let prepare = deploy.prepare.clone();
        deploy.everywhere(Step::Prepare, now_ms, limits, |_| Command::Prepare(Box::new(prepare.clone())), out);
        deploy
    }

    /// The checkpoint that is being restored.
    pub(crate) fn from(&self) -> Option<CheckpointId> {
        self.from.as_ref().map(|manifest| manifest.id())
    }

    /// The first number that a checkpoint of the execution may have.
    pub(crate) fn first_checkpoint(&self) -> CheckpointId {
        self.prepare.first_checkpoint
    }

    /// A worker of this execution says something.
    pub(crate) fn report(
        &mut self,
        worker: &WorkerId,
        report: Report,
        now_ms: u64,
        limits: &Limits,
        out: &mut Vec<Output>,
    ) -> Option<Built> {
        if let Report::Failed { failure, .. } = &report {
            return Some(Built::Ended(Ended::of_failure(&self.deployed.job, failure, self.from())));
        }
        if !self.step.is_done_by(&report) || !self.missing.remove(worker) {
            return None;
        }
        match report {
            Report::Opened { templates, .. } => self.deployed.templates.extend(templates),
            Report::Looked { sources, .. } => self.looked.extend(sources),
            _ => {}
        }
        if self.missing.is_empty() { self.next(now_ms, limits, out) } else { None }
    }

    /// The step is finished everywhere.
    fn next(&mut self, now_ms: u64, limits: &Limits, out: &mut Vec<Output>) -> Option<Built> {
        match self.step {
            Step::Prepare if self.is_trial => {
                let uids: Vec<String> = self.deployed.operators().map(|(uid, _)| uid.to_owned()).collect();
                if uids.is_empty() {
                    return Some(Built::Tried);
                }
                self.open(uids, now_ms, limits, out);
            }
            Step::Open if self.is_trial => return Some(Built::Tried),
            Step::Prepare if self.from.as_ref().is_some_and(|manifest| manifest.kind == ManifestKind::Final) => {
                self.everywhere(Step::Look, now_ms, limits, |execution| Command::Look { execution }, out);
            }
            Step::Look if self.said(true).is_empty() => {
                self.everywhere(Step::Commit, now_ms, limits, |execution| Command::Commit { execution }, out);
            }
            Step::Prepare | Step::Look => {
                if self.step == Step::Look {
                    self.notice_more(out);
                }
                if let Some(manifest) = &self.from {
                    self.deployed.templates = self.deployed.stored_templates(manifest);
                }
                let known = &self.deployed.templates;
                let missing = self.deployed.operators().map(|(uid, _)| uid.to_owned()).filter(|uid| !known.contains_key(uid));
                let missing: Vec<String> = missing.collect();
                if missing.is_empty() {
                    self.restore(now_ms, limits, out);
                } else {
                    self.open(missing, now_ms, limits, out);
                }
            }
            Step::Commit => {
                let manifest = self.from.as_ref()?;
                let (checkpoint, at_ms) = (manifest.id(), manifest.completed_at_ms);
                return Some(Built::Ended(Ended::AlreadyFinished { checkpoint, at_ms, looked_at: self.said(false) }));
            }
            Step::Open => self.restore(now_ms, limits, out),
            Step::Restore => self.everywhere(Step::Build, now_ms, limits, |execution| Command::Build { execution }, out),
            Step::Build => {
                self.enter(Step::Record, now_ms, limits);
                self.record(out);
            }
            Step::Record => {
                self.deployed.tell_all(|execution| Command::Start { execution }, out);
                out.push(Output::Notice(Notice::Started { attempt: self.deployed.id.attempt, from: self.from() }));
                return Some(Built::Started);
            }
        }
        None
    }

    /// The disk has taken the record of the execution, or not.
    pub(crate) fn recorded(
        &mut self,
        answer: Result<(), String>,
        now_ms: u64,
        limits: &Limits,
        out: &mut Vec<Output>,
    ) -> Option<Built> {
        match answer {
            _ if self.step != Step::Record || self.record_ms.is_some() => None,
            Ok(()) => self.next(now_ms, limits, out),
            // Nothing is wrong with the execution: it is ready, and no restart would help the disk.
            Err(reason) => {
                if self.record_delay_ms == limits.record_retry_ms {
                    out.push(Output::Notice(Notice::NotRecorded { reason }));
                }
                self.record_ms = Some(now_ms.saturating_add(self.record_delay_ms));
                self.record_delay_ms = self.record_delay_ms.saturating_mul(2).min(limits.record_retry_ms_max);
                None
            }
        }
    }

    /// When [`Deploy::tick`] is due.
    pub(crate) fn deadline_ms(&self, limits: &Limits) -> Option<u64> {
        let ends_ms = self.step_since_ms.saturating_add(limits.step_ms_max);
        match (self.step, self.record_ms) {
            (Step::Record, record_ms) => Some(record_ms.unwrap_or(ends_ms)),
            _ => Some(self.tell_ms.min(ends_ms)),
        }
    }

    /// Time has passed.
    pub(crate) fn tick(&mut self, now_ms: u64, limits: &Limits, out: &mut Vec<Output>) -> Option<Built> {
        if self.record_ms.is_some_and(|record_ms| record_ms <= now_ms) {
            self.enter(Step::Record, now_ms, limits);
            self.record(out);
            return None;
        }
        if self.record_ms.is_some() {
            return None;
        }
        let waited_ms = now_ms.saturating_sub(self.step_since_ms);
        if waited_ms >= limits.step_ms_max {
            let who: Vec<&str> = self.missing.iter().map(|worker| &**worker).collect();
            let who = if who.is_empty() { "every worker".to_owned() } else { format!("worker {}", who.join(", ")) };
            let (step, waited_s) = (self.step.in_words(), waited_ms / 1_000);
            return Some(Built::Ended(Ended::Failed(format!(
                "{who} {step}; it was waited for for {waited_s} s, and is not any longer"
            ))));
        }
        if self.step != Step::Record && self.tell_ms <= now_ms {
            let workers = self.missing.iter().map(|worker| worker.to_string()).collect();
            let (step, waited) = (self.step.in_words(), Duration::from_millis(waited_ms));
            out.push(Output::Notice(Notice::SlowStep { workers, step, waited }));
            self.tell_ms = now_ms.saturating_add(waited_ms.max(1));
        }
        None
    }

    fn enter(&mut self, step: Step, now_ms: u64, limits: &Limits) {
        (self.step, self.step_since_ms, self.record_ms) = (step, now_ms, None);
        self.tell_ms = now_ms.saturating_add(limits.slow_step_ms);
    }

    fn everywhere(
        &mut self,
        step: Step,
        now_ms: u64,
        limits: &Limits,
        command: impl Fn(weir_protocol::Execution) -> Command,
        out: &mut Vec<Output>,
    ) {
        self.enter(step, now_ms, limits);
        self.missing = self.deployed.alive.clone();
        self.deployed.tell_all(command, out);
    }

    fn open(&mut self, uids: Vec<String>, now_ms: u64, limits: &Limits, out: &mut Vec<Output>) {
        self.enter(Step::Open, now_ms, limits);
        let worker = self.deployed.opener();
        let command = Command::Open { execution: self.deployed.id.clone(), uids, store: !self.is_trial };
        out.push(Output::Send { worker: worker.clone(), command });
        self.missing = BTreeSet::from([worker]);
    }

    fn restore(&mut self, now_ms: u64, limits: &Limits, out: &mut Vec<Output>) {
        let templates = self.templates();
        let command = |execution| Command::Restore { execution, templates: templates.clone() };
        self.everywhere(Step::Restore, now_ms, limits, command, out);
    }

    fn record(&self, out: &mut Vec<Output>) {
        out.push(Output::Record(Box::new(Begun { prepare: self.prepare.clone(), templates: self.templates() })));
    }

    fn templates(&self) -> Vec<(String, weir_storage::Segment)> {
        self.deployed.templates.clone().into_iter().collect()
    }

    /// Which sources have more, or have not, and what they say. Workers that each run subtasks of a source each say the same.
    fn said(&self, more: bool) -> Vec<(String, String)> {
        let of = self.looked.iter().filter(|one| one.more == more).map(|one| (one.uid.clone(), one.what.clone()));
        let said: BTreeSet<(String, String)> = of.collect();
        said.into_iter().collect()
    }

    fn notice_more(&self, out: &mut Vec<Output>) {
        let Some(manifest) = &self.from else { return };
        let vertices = 0..self.deployed.job.vertices.len();
        let greatest = vertices.map(|vertex| event_time_max(&self.deployed.job, manifest, vertex)).max();
        let event_time_max: Option<Timestamp> = greatest.filter(|&greatest| greatest > WATERMARK_START);
        out.push(Output::Notice(Notice::MoreInput { checkpoint: manifest.id(), found: self.said(true), event_time_max }));
    }
}
