//! Bringing an execution into being. Each step is finished on every worker before the next begins anywhere, so what is
//! damaged or missing shows before anything is done that cannot be taken back.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use weir_master::fits::Wanted;
use weir_model::{Attempt, CheckpointId};
use weir_plan::{Job, Topology, VertexKind};
use weir_protocol::manifest::edges_apart;
use weir_protocol::{
    Command, Execution as ExecutionId, Failure, FailureKind, JobSpec, Looked, Placement, Prepare, Report, WorkerProgress,
};
use weir_storage::{ConfigDigests, JobStorage, Manifest, ManifestKind, Segment, StorageError, again};

use super::drive::Driver;
use super::keeper::{Keeper, RETRY_DELAY};
use super::restore::choose;
use super::{Ended, History, Master};
use crate::{Adopted, Begun, JobError, Notice, Slots, Told, Wish};

/// Longest wait for the threads of an execution to end. It is a courtesy: threads that end by themselves give their memory back
/// before the next execution needs it, and their last counts are shown.
///
/// Nothing depends on it, so it may be shorter than a guest call or a write takes. A worker that is lost and runs on is not waited
/// for at all, and a task that stands still here can do no more than one there:
/// - its attempt is over: what it reports is dropped by its number, and its channels are closed to the new one;
/// - files of its checkpoints have its attempt in their names, and only this master writes manifests, which it does not for it;
/// - its sinks' pending files do too. Those that the next execution does not commit are removed when it begins, later ones by
///   the one after it; without a manifest nobody commits them;
/// - a commit that it still carries out is of a checkpoint that is complete: the next execution makes the same one, or goes back
///   further and removes the pending file, which leaves nothing to commit.
const END_PATIENCE: Duration = Duration::from_secs(3);

/// The same for attempt 0, which only opens operators: its number is used again, so nothing of it may be there by then. A guest
/// call may run until its deadline.
const TRIAL_END_PATIENCE: Duration = Duration::from_secs(15);

/// Threads that take longer than this to end are told of.
const SLOW_END: Duration = Duration::from_secs(1);

/// A step that some worker has not finished after this long is told of; again after twice as long, and so on. Long ones are in
/// order (a large component is compiled once), but nobody should have to guess what a job does that does not begin.
const SLOW_STEP: Duration = Duration::from_millis(if cfg!(test) { 200 } else { 10_000 });

/// An execution that is being built, or runs.
pub(super) struct Deployed {
    pub(super) id: ExecutionId,
    pub(super) spec: JobSpec,
    pub(super) job: Job,
    pub(super) topology: Topology,
    pub(super) placement: Placement,
    pub(super) templates: BTreeMap<String, Segment>,
    /// What sources have said of more to read.
    pub(super) looked: Vec<Looked>,
    /// Workers that are not lost.
    pub(super) alive: BTreeSet<String>,
    pub(super) first_checkpoint: CheckpointId,
}

/// An answer that a step waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    Prepared,
    Looked,
    Opened,
    Restored,
    Built,
}

impl Answer {
    fn of(report: &Report) -> Option<Answer> {
        match report {
            Report::Prepared { .. } => Some(Answer::Prepared),
            Report::Looked { .. } => Some(Answer::Looked),
            Report::Opened { .. } => Some(Answer::Opened),
            Report::Restored { .. } => Some(Answer::Restored),
            Report::Built { .. } => Some(Answer::Built),
            _ => None,
        }
    }

    /// What a worker that has not given it is doing, and what makes that long.
    fn step(self) -> &'static str {
        match self {
            Answer::Prepared => {
                "has not taken the job in: large components are compiled, or their bytes or the checkpoint storage do not come"
            }
            Answer::Looked => "has not found out whether sources have more: files or folders that do not answer",
            Answer::Opened => {
                "has not opened the operators: one of them takes long in `open`, or the checkpoint storage does not answer"
            }
            Answer::Restored => "has not restored the state: there is much of it, or the checkpoint storage does not answer",
            Answer::Built => "has not built the tasks: sinks commit what the checkpoint holds, or files do not answer",
        }
    }
}

impl Deployed {
    fn workers(&self) -> Vec<String> {
        self.placement.workers.iter().map(|worker| worker.worker.clone()).collect()
    }

    /// Operators that run a component, by uid.
    fn operators(&self) -> impl Iterator<Item = (&str, &weir_plan::OperatorSpec)> {
        self.job.vertices.iter().filter_map(|vertex| match &vertex.kind {
            VertexKind::Operator(operator) if self.spec.components.contains_key(&operator.component.to_string()) => {
                Some((vertex.uid.as_str(), operator))
            }
            _ => None,
        })
    }
}

impl Master {
    /// One execution, from choosing its checkpoint to its end.
    pub(super) fn execute(&mut self, storage: &JobStorage, history: &mut History) -> Result<Ended, Ended> {
        let spec = self.spec(self.parallelism);
        let job = spec.load().map_err(JobError::JobFile)?;
        let slots = self.reserve(&job)?;
        let attempt = storage.new_attempt()?;
        // No task and no persister of an older attempt counts any more.
        storage.sweep(attempt)?;
        let mut unusable = Vec::new();
        let chosen = choose(storage, &history.damaged, &mut unusable);
        let unreadable: Vec<u64> = unusable.iter().map(|found| found.checkpoint.0).collect();
        for found in unusable {
            self.notice(&job, &Notice::FellBack { checkpoint: found.checkpoint, reason: found.reason });
        }
        let manifest = chosen?;
        let mut job = job;
        let mut apart = Vec::new();
        if let Some(manifest) = &manifest {
            let wanted = Wanted { spec: &spec, job: &job, allow_dropped_state: self.settings.allow_dropped_state };
            wanted.check_fits(manifest)?;
            apart = edges_apart(&job, manifest);
            job = job.with_edges_apart(&apart);
        }
        let first_checkpoint = storage.next_checkpoint_id()?;
        let fell_back = !history.damaged.is_empty() || !unreadable.is_empty();
        // Remembered in the storage: a crash before the output was taken back must not lose it.
        let started_over = storage.job_info()?.is_some_and(|info| info.started_over);
        let retract_after = match &manifest {
            Some(manifest) if fell_back => Some(manifest.id()),
            None if started_over => Some(CheckpointId(0)),
            _ => None,
        };
        let mut deployed = deployed(spec, job, attempt, &slots, first_checkpoint);
        self.begun = Some((deployed.id.clone(), deployed.workers()));
        let prepare = Prepare {
            execution: deployed.id.clone(),
            spec: deployed.spec.clone(),
            placement: deployed.placement.clone(),
            storage: self.storage_url(&deployed.job),
            restore: manifest.as_ref().map(Manifest::id),
            first_checkpoint,
            edges_apart: apart,
            retract_after,
        };
        let built = self.build(&mut deployed, prepare, manifest.as_ref());
        let started = built.and_then(|()| {
            if started_over {
                storage.put_job_info(&self.info(&deployed.job, false))?;
            }
            // From here on output follows the older checkpoint, so nobody may go back to these. Not earlier: whoever comes after a
            // crash must still see that output has to be taken back.
            for id in history.damaged.iter().chain(&unreadable) {
                storage.remove_manifest(CheckpointId(*id))?;
            }
            history.damaged.clear();
            Keeper::start(storage.clone(), attempt, self.told.clone())
                .map_err(|error| Ended::Failed(format!("cannot start a thread for manifests: {error}")))
        });
        let keeper = match started {
            Ok(keeper) => keeper,
            Err(ended) => {
                self.end(&mut deployed, Some(&ended));
                return Ok(damaged_checkpoint(ended, manifest.as_ref()));
            }
        };
        self.tell_all(&deployed, |execution| Command::Start { execution });
        self.notice(&deployed.job, &Notice::Started { attempt, from: manifest.as_ref().map(Manifest::id) });
        Ok(self.drive(Driver::new(deployed, keeper, storage.clone()), history))
    }

    /// Goes on with an execution whose tasks all run.
    pub(super) fn take_over(&mut self, adopted: &Adopted, storage: &JobStorage, history: &mut History) -> Ended {
        let Adopted { begun: Begun { prepare, templates }, .. } = adopted;
        let job = match prepare.spec.load() {
            Ok(job) => job.with_edges_apart(&prepare.edges_apart),
            Err(problems) => return Ended::Refused(JobError::JobFile(problems)),
        };
        let mut deployed = Deployed {
            id: prepare.execution.clone(),
            spec: prepare.spec.clone(),
            topology: Topology::new(&job),
            placement: prepare.placement.clone(),
            templates: templates.iter().cloned().collect(),
            looked: Vec::new(),
            alive: prepare.placement.workers.iter().map(|worker| worker.worker.clone()).collect(),
            first_checkpoint: prepare.first_checkpoint,
            job,
        };
        let found = again(RETRY_DELAY, || storage.next_checkpoint_id().and_then(|next| Ok((next, newest(storage)?))));
        let keeper = Keeper::start(storage.clone(), deployed.id.attempt, self.told.clone());
        let ((next, newest), keeper) = match (found, keeper) {
            (Ok(found), Ok(keeper)) => (found, keeper),
            // Whether its last checkpoint is complete is not known, so it can neither be announced nor given up. A new attempt
            // settles it.
            (Err(error), _) => return self.give_up(&mut deployed, format!("cannot be taken over: {error}")),
            (_, Err(error)) => return self.give_up(&mut deployed, format!("cannot start a thread for manifests: {error}")),
        };
        deployed.first_checkpoint = next.max(CheckpointId(adopted.last_checkpoint().0 + 1));
        self.begun = Some((deployed.id.clone(), deployed.workers()));
        self.notice(&deployed.job, &Notice::TakenOver { attempt: deployed.id.attempt });
        let mut driver = Driver::new(deployed, keeper, storage.clone());
        driver.adopt(adopted, newest, &*self.surroundings);
        self.drive(driver, history)
    }

    /// Ends an execution that cannot be gone on with.
    fn give_up(&mut self, deployed: &mut Deployed, reason: String) -> Ended {
        let ended = Ended::Failed(reason);
        self.end(deployed, Some(&ended));
        ended
    }

    /// Opens the operators of a job, to see whether they can be, and leaves nothing behind.
    pub(super) fn try_open(&mut self, job: &Job) -> Result<(), Ended> {
        let spec = self.spec(self.parallelism);
        let slots = self.reserve(job)?;
        let mut deployed = deployed(spec, job.clone(), Attempt(0), &slots, CheckpointId(0));
        let prepare = Prepare {
            execution: deployed.id.clone(),
            spec: deployed.spec.clone(),
            placement: deployed.placement.clone(),
            storage: self.storage_url(job),
            restore: None,
            first_checkpoint: CheckpointId(0),
            edges_apart: Vec::new(),
            retract_after: None,
        };
        self.notice_deploying(&deployed);
        let uids: Vec<String> = deployed.operators().map(|(uid, _)| uid.to_owned()).collect();
        let tried = self
            .step(&mut deployed, Answer::Prepared, |_| Command::Prepare(Box::new(prepare.clone())))
            .and_then(|()| if uids.is_empty() { Ok(()) } else { self.open(&mut deployed, uids, false) });
        self.end(&mut deployed, tried.as_ref().err());
        tried
    }

    /// All steps up to the last before the start.
    fn build(&mut self, deployed: &mut Deployed, prepare: Prepare, manifest: Option<&Manifest>) -> Result<(), Ended> {
        self.notice_deploying(deployed);
        self.step(deployed, Answer::Prepared, |_| Command::Prepare(Box::new(prepare.clone())))?;
        if let Some(manifest) = manifest.filter(|manifest| manifest.kind == ManifestKind::Final) {
            self.go_on_after_end(deployed, manifest)?;
        }
        deployed.templates = stored_templates(deployed, manifest);
        let missing: Vec<String> =
            deployed.operators().map(|(uid, _)| uid.to_owned()).filter(|uid| !deployed.templates.contains_key(uid)).collect();
        if !missing.is_empty() {
            self.open(deployed, missing, true)?;
        }
        let templates: Vec<_> = deployed.templates.clone().into_iter().collect();
        self.step(deployed, Answer::Restored, |execution| Command::Restore { execution, templates: templates.clone() })?;
        self.step(deployed, Answer::Built, |execution| Command::Build { execution })?;
        self.surroundings.record(&Begun { prepare, templates }).map_err(Ended::Failed)
    }

    fn notice_deploying(&self, deployed: &Deployed) {
        let notice = Notice::Deploying { attempt: deployed.id.attempt, workers: deployed.workers() };
        self.notice(&deployed.job, &notice);
    }

    /// Has operators opened at the worker that runs their first subtasks: all first subtasks share a slot.
    fn open(&mut self, deployed: &mut Deployed, uids: Vec<String>, store: bool) -> Result<(), Ended> {
        let worker = deployed.placement.worker_of(deployed.topology.task(0, 0)).worker.clone();
        self.surroundings.send(&worker, Command::Open { execution: deployed.id.clone(), uids, store });
        self.answers(deployed, Answer::Opened, BTreeSet::from([worker]))
    }

    pub(super) fn step(
        &mut self,
        deployed: &mut Deployed,
        answer: Answer,
        command: impl Fn(ExecutionId) -> Command,
    ) -> Result<(), Ended> {
        self.tell_all(deployed, command);
        self.answers(deployed, answer, deployed.workers().into_iter().collect())
    }

    pub(super) fn tell_all(&self, deployed: &Deployed, command: impl Fn(ExecutionId) -> Command) {
        for worker in &deployed.alive {
            self.surroundings.send(worker, command(deployed.id.clone()));
        }
    }

    /// Waits until these workers have answered.
    fn answers(&mut self, deployed: &mut Deployed, answer: Answer, mut missing: BTreeSet<String>) -> Result<(), Ended> {
        let began = Instant::now();
        let mut tell_after = SLOW_STEP;
        while !missing.is_empty() {
            let told = match self.inbox.recv_timeout(tell_after.saturating_sub(began.elapsed())) {
                Ok(told) => told,
                Err(_) => {
                    let (workers, step) = (missing.iter().cloned().collect(), answer.step());
                    self.notice(&deployed.job, &Notice::SlowStep { workers, step, waited: began.elapsed() });
                    tell_after *= 2;
                    continue;
                }
            };
            match told {
                Told::Report { worker, report } if report.execution() == Some(&deployed.id) => match *report {
                    Report::Failed { failure, .. } => return Err(failed(&deployed.job, &failure)),
                    report if Answer::of(&report) == Some(answer) => {
                        match report {
                            Report::Opened { templates, .. } => deployed.templates.extend(templates),
                            Report::Looked { sources, .. } => deployed.looked.extend(sources),
                            _ => {}
                        }
                        missing.remove(&*worker);
                    }
                    _ => {}
                },
                Told::WorkerLost { worker, reason } if deployed.alive.remove(&*worker) => {
                    self.notice(&deployed.job, &Notice::WorkerLost { worker: worker.to_string(), reason: reason.clone() });
                    return Err(Ended::Failed(format!("worker {worker} is lost: {reason}")));
                }
                Told::Wish(Wish::Stop) => return Err(Ended::StoppedBefore),
                Told::Wish(Wish::Cancel) => return Err(Ended::Cancelled),
                Told::Wish(Wish::Rescale(parallelism)) => self.rescale = Some(parallelism),
                Told::Leave => return Err(Ended::Left),
                Told::Report { .. } | Told::WorkerLost { .. } | Told::SlotsChanged | Told::Kept(_) => {}
            }
        }
        Ok(())
    }

    /// Ends an execution on all its workers, and waits until its threads are gone there, if not for ever. `why` it ends is none for
    /// a trial that went well. Gives their last counts.
    pub(super) fn end(&mut self, deployed: &mut Deployed, why: Option<&Ended>) -> Vec<(String, WorkerProgress)> {
        // What was handed over is still written where the job ends well.
        let finish = why.is_some_and(Ended::is_well);
        self.tell_all(deployed, |execution| Command::Cancel { execution, finish });
        let is_trial = deployed.id.attempt == Attempt(0);
        // Whoever tries says what follows from it.
        if let Some(notice) = why.filter(|_| !is_trial).and_then(Ended::notice) {
            self.notice(&deployed.job, &notice);
        }
        let patience = if is_trial { TRIAL_END_PATIENCE } else { END_PATIENCE };
        let began = Instant::now();
        let mut until = began + SLOW_END;
        let mut last = Vec::new();
        let mut missing = deployed.alive.clone();
        let mut put_back = Vec::new();
        while !missing.is_empty() {
            match self.inbox.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(Told::Report { worker, report }) if report.execution() == Some(&deployed.id) => {
                    if let Report::Ended { progress, .. } = *report
                        && missing.remove(&*worker)
                    {
                        last.push((worker.to_string(), *progress));
                    }
                }
                Ok(Told::WorkerLost { worker, .. }) => {
                    missing.remove(&*worker);
                    deployed.alive.remove(&*worker);
                }
                // Whatever else a person wants is wanted of what follows.
                Ok(told @ Told::Wish(_)) => put_back.push(told),
                Ok(Told::Leave) => {
                    put_back.push(Told::Leave);
                    break;
                }
                Ok(_) => {}
                Err(_) => {
                    let waited = began.elapsed();
                    let workers = missing.iter().cloned().collect();
                    self.notice(&deployed.job, &Notice::SlowEnd { workers, waited, patience });
                    if waited >= patience {
                        break;
                    }
                    until = began + patience;
                }
            }
        }
        put_back.into_iter().for_each(|told| {
            let _ = self.told.send(told);
        });
        last
    }
}

/// The newest checkpoint, if there is one. One that cannot be read is an error: it is complete all the same.
fn newest(storage: &JobStorage) -> Result<Option<Manifest>, StorageError> {
    storage.checkpoints()?.first().map(|id| storage.manifest(*id)).transpose()
}

fn deployed(spec: JobSpec, job: Job, attempt: Attempt, slots: &Slots, first_checkpoint: CheckpointId) -> Deployed {
    let topology = Topology::new(&job);
    let tasks = (0..topology.tasks() as u32).map(|task| {
        let (_, subtask) = topology.locate(weir_model::TaskId(task));
        slots.slots[subtask as usize]
    });
    let placement = Placement { workers: slots.workers.clone(), tasks: tasks.collect() };
    Deployed {
        id: ExecutionId { job: job.name.clone(), attempt },
        alive: placement.workers.iter().map(|worker| worker.worker.clone()).collect(),
        spec,
        job,
        topology,
        placement,
        templates: BTreeMap::new(),
        looked: Vec::new(),
        first_checkpoint,
    }
}

/// Templates that a checkpoint holds and that belong to the job's components.
fn stored_templates(deployed: &Deployed, manifest: Option<&Manifest>) -> BTreeMap<String, Segment> {
    let Some(manifest) = manifest else { return BTreeMap::new() };
    let stored = |(uid, operator): (&str, &weir_plan::OperatorSpec)| {
        let pin = &deployed.spec.components[&operator.component.to_string()];
        let state = manifest.operators.get(uid)?;
        let component = state.component.as_ref()?;
        let same = component.digest == pin.digest.to_string() && component.config_digests == ConfigDigests::of(&operator.config);
        Some((uid.to_owned(), state.template.clone().filter(|_| same)?))
    };
    deployed.operators().filter_map(stored).collect()
}

/// What a worker's failure means for the execution.
pub(super) fn failed(job: &Job, failure: &Failure) -> Ended {
    let reason = failure.reason.clone();
    match failure.kind {
        FailureKind::Transient | FailureKind::PeerLost => Ended::Failed(reason),
        FailureKind::Permanent => Ended::FailedForGood(reason),
        FailureKind::Damaged => Ended::Damaged { checkpoint: 0, reason },
        FailureKind::JobFile => Ended::Refused(JobError::Rejected(reason)),
        FailureKind::Configuration => {
            let uid = failure.uid.as_deref().unwrap_or_default();
            Ended::Refused(JobError::JobFile(job.diagnostic(uid, "config", &reason, None)))
        }
    }
}

/// Damage is that of the checkpoint that was being restored.
fn damaged_checkpoint(ended: Ended, manifest: Option<&Manifest>) -> Ended {
    match (ended, manifest) {
        (Ended::Damaged { reason, .. }, Some(manifest)) => Ended::Damaged { checkpoint: manifest.checkpoint, reason },
        (Ended::Damaged { reason, .. }, None) => Ended::Failed(reason),
        (ended, _) => ended,
    }
}
