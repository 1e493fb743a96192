//! A job from its start to its end: executions, one after the other, each from the last checkpoint.

use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use weir_checkpoint::restart::{Decision, Restarts, Strategy};
use weir_model::{Attempt, CheckpointId};
use weir_plan::RestartSettings;
use weir_storage::{ErrorKind, JobInfo, JobStorage, Manifest, ManifestKind};

use crate::JobError;
use crate::attempt::{Ended, Execution, Launch, Over, wall_ms};
use crate::deploy::{DeployError, Deployer, Deployment, TemplateCache};
use crate::events::{Event, Message, Notice, StopHandle};
use crate::host::Metrics;
use crate::persist::{Item, Persister, Start, Templates};
use crate::prepare::PreparedJob;
use crate::progress::{Meters, Progress};
use crate::restore::{check_fits, choose};
use crate::topology::Topology;

/// How a job ended.
#[derive(Debug)]
pub enum Outcome {
    /// All input is processed and committed.
    Finished(Box<Progress>),
    /// It was asked to stop; the same job resumes from its last checkpoint. There is no progress where it stopped between
    /// two executions.
    Stopped(Option<Box<Progress>>),
    /// It had finished before; nothing was done.
    AlreadyFinished {
        /// Its final checkpoint.
        checkpoint: CheckpointId,
        /// When that was complete, in milliseconds since the Unix epoch.
        at_ms: u64,
    },
}

/// A job that is about to run.
pub struct RunningJob {
    job: PreparedJob,
    topology: Topology,
    events: Sender<Message>,
    inbox: Receiver<Message>,
    metrics: Arc<Metrics>,
    templates: TemplateCache,
}

/// How an execution came to an end, or did not begin.
enum Executed {
    Over(Over),
    AlreadyFinished {
        checkpoint: CheckpointId,
        at_ms: u64,
    },
    /// It could not begin; the checkpoint is damaged.
    Damaged {
        checkpoint: u64,
        reason: String,
    },
    /// It could not begin.
    Failed(String),
    /// It could not begin, and will not before a person has changed something.
    FailedForGood(String),
}

impl RunningJob {
    /// A job that was checked.
    pub fn new(job: PreparedJob) -> RunningJob {
        #[allow(clippy::disallowed_methods, reason = "tasks and persisters must not wait; they say a few words per checkpoint")]
        let (events, inbox) = channel();
        let topology = Topology::new(&job.job);
        RunningJob { job, topology, events, inbox, metrics: Arc::default(), templates: TemplateCache::default() }
    }

    /// A way to stop the job, for another thread or a signal.
    pub fn stop_handle(&self) -> StopHandle {
        StopHandle { events: self.events.clone() }
    }

    /// Where the job's checkpoints are.
    ///
    /// # Errors
    /// If the place cannot be used.
    pub fn storage(job: &PreparedJob) -> Result<JobStorage, JobError> {
        let options = &job.options;
        let root = match &job.job.checkpoint.storage {
            None => options.data_dir.join("jobs").to_string_lossy().into_owned(),
            Some(url) => absolute(url, &options.job_dir),
        };
        Ok(JobStorage::open(&root, &job.job.name)?)
    }

    /// Runs the job to its end. `watch` is told what people may want to see.
    ///
    /// # Errors
    /// If the job may not start, or has failed for good.
    pub fn run(self, watch: &mut dyn FnMut(Notice)) -> Result<Outcome, JobError> {
        let storage = RunningJob::storage(&self.job)?;
        self.run_in(&storage, watch)
    }

    pub(crate) fn run_in(mut self, storage: &JobStorage, watch: &mut dyn FnMut(Notice)) -> Result<Outcome, JobError> {
        let _lock = storage.lock()?;
        if self.job.options.fresh {
            // Whether operators accept their configuration shows here, before anything is forgotten.
            self.open_operators(storage)?;
        }
        self.claim(storage)?;
        let clock = Instant::now();
        let mut restarts = Restarts::new(strategy(&self.job.job.restart));
        let mut damaged = Vec::new();
        // Counts of the last execution; none before the first.
        let mut last: Option<Box<Progress>> = None;
        loop {
            let executed = match self.execute(storage, &damaged, watch) {
                // The storage was there when the job began: it will be there again.
                Err(JobError::Storage(error)) if last.is_some() && error.kind() == ErrorKind::Retry => {
                    Executed::Failed(error.to_string())
                }
                executed => executed?,
            };
            let reason = match executed {
                Executed::Over(Over { ended: Ended::Finished, progress, .. }) => return Ok(Outcome::Finished(progress)),
                Executed::Over(Over { ended: Ended::Stopped, progress, .. }) => return Ok(Outcome::Stopped(Some(progress))),
                Executed::Over(Over { ended: Ended::Failed(reason), stopping: true, .. }) => {
                    let why =
                        "it had been asked to stop, so it was not restarted; the same command goes on from the last checkpoint";
                    return Err(JobError::Failed { reason, why_not_restarted: why.to_owned() });
                }
                Executed::Over(Over { ended: Ended::Failed(reason), progress, .. }) => {
                    last = Some(progress);
                    reason
                }
                Executed::AlreadyFinished { checkpoint, at_ms } => {
                    // After a failure: all had been processed, and only the last commit was missing.
                    return Ok(last.map_or(Outcome::AlreadyFinished { checkpoint, at_ms }, Outcome::Finished));
                }
                Executed::Damaged { checkpoint, reason } => {
                    watch(Notice::FellBack { checkpoint: CheckpointId(checkpoint), reason });
                    damaged.push(checkpoint);
                    continue;
                }
                // What cannot even begin needs a person, not another try.
                Executed::Failed(reason) | Executed::FailedForGood(reason) if last.is_none() => {
                    return Err(JobError::Failed {
                        reason,
                        why_not_restarted: "it had not begun to run, so it was not restarted".to_owned(),
                    });
                }
                Executed::Over(Over { ended: Ended::FailedForGood(reason), .. }) | Executed::FailedForGood(reason) => {
                    let why_not_restarted = "it would meet the same again, so it was not restarted; once that is mended, the same command goes on \
                                             from the last checkpoint";
                    return Err(JobError::Failed { reason, why_not_restarted: why_not_restarted.to_owned() });
                }
                Executed::Failed(reason) => reason,
            };
            let now_ms = clock.elapsed().as_millis() as u64;
            match restarts.failed(now_ms, RandomState::new().build_hasher().finish()) {
                Decision::GiveUp(why_not_restarted) => return Err(JobError::Failed { reason, why_not_restarted }),
                Decision::RestartAfter(ms) => {
                    let delay = Duration::from_millis(ms);
                    watch(Notice::Restarting { reason, delay });
                    if self.stopped_within(delay) {
                        return Ok(Outcome::Stopped(None));
                    }
                }
            }
        }
    }

    /// Makes sure that the state, if there is any, is this job file's.
    fn claim(&self, storage: &JobStorage) -> Result<(), JobError> {
        let options = &self.job.options;
        if options.fresh {
            storage.clear()?;
            return Ok(storage.put_job_info(&self.info(true))?);
        }
        match storage.job_info()? {
            Some(info) if info.origin != options.origin => Err(JobError::Refused(format!(
                "cannot run job `{}` of {}: its state belongs to {}; give one of the jobs another name, use another --data-dir, \
                 or start over with --fresh",
                self.job.job.name, options.origin, info.origin
            ))),
            Some(_) => Ok(()),
            None => Ok(storage.put_job_info(&self.info(false))?),
        }
    }

    fn info(&self, started_over: bool) -> JobInfo {
        let origin = self.job.options.origin.clone();
        JobInfo { origin, created_at_ms: wall_ms(), key_groups: self.job.job.key_groups, started_over }
    }

    /// Makes the templates of a job without state.
    fn open_operators(&mut self, storage: &JobStorage) -> Result<(), JobError> {
        let deployer = Deployer {
            job: &self.job,
            topology: &self.topology,
            storage,
            manifest: None,
            attempt: Attempt(0),
            metrics: &self.metrics,
            retract_after: None,
        };
        match deployer.templates(&mut self.templates) {
            Ok(_) => Ok(()),
            Err(DeployError::Configuration { uid, reason }) => Err(configuration(&self.job, &uid, &reason)),
            Err(DeployError::Damaged(reason) | DeployError::Failed(reason) | DeployError::ForGood(reason)) => {
                let why_not_restarted = "nothing of the job was forgotten or started".to_owned();
                Err(JobError::Failed { reason, why_not_restarted })
            }
        }
    }

    fn execute(&mut self, storage: &JobStorage, damaged: &[u64], watch: &mut dyn FnMut(Notice)) -> Result<Executed, JobError> {
        let attempt = storage.new_attempt()?;
        // No task and no persister of an older attempt runs any more.
        storage.sweep(attempt)?;
        let mut unusable = Vec::new();
        let chosen = choose(storage, damaged, &mut unusable);
        let unreadable: Vec<u64> = unusable.iter().map(|found| found.manifest).collect();
        for found in unusable {
            watch(Notice::FellBack { checkpoint: CheckpointId(found.manifest), reason: found.reason });
        }
        let manifest = chosen?;
        if let Some(manifest) = &manifest {
            check_fits(&self.job, manifest)?;
        }
        let next_id = storage.next_checkpoint_id()?;
        let fell_back = !damaged.is_empty() || !unreadable.is_empty();
        // Remembered in the storage: a crash before the output was taken back must not lose it.
        let started_over = storage.job_info()?.is_some_and(|info| info.started_over);
        let retract_after = match &manifest {
            Some(manifest) if fell_back => Some(manifest.id()),
            None if started_over => Some(CheckpointId(0)),
            _ => None,
        };
        let deployer = Deployer {
            job: &self.job,
            topology: &self.topology,
            storage,
            manifest: manifest.as_ref(),
            attempt,
            metrics: &self.metrics,
            retract_after,
        };
        if let Some(manifest) = manifest.as_ref().filter(|manifest| manifest.kind == ManifestKind::Final) {
            return Ok(match deployer.commit_only() {
                Ok(()) => Executed::AlreadyFinished { checkpoint: manifest.id(), at_ms: manifest.completed_at_ms },
                Err(error) => failed(error, Some(manifest)),
            });
        }
        let new_templates = match deployer.templates(&mut self.templates) {
            Ok(new) => new,
            Err(DeployError::Configuration { uid, reason }) => return Err(configuration(&self.job, &uid, &reason)),
            Err(error) => return Ok(failed(error, manifest.as_ref())),
        };
        let images = match deployer.images(&self.templates) {
            Ok(images) => images,
            Err(error) => return Ok(failed(error, manifest.as_ref())),
        };
        let persister = Persister::start(Start {
            storage: storage.clone(),
            attempt,
            events: self.events.clone(),
            first_id: next_id,
            restored: deployer.stored_instances(),
            templates: stored_templates(manifest.as_ref()),
        });
        let deployment = match deployer.build(&self.templates, images, &persister) {
            Ok(deployment) => deployment,
            Err(error) => {
                persister.cancel();
                return Ok(failed(error, manifest.as_ref()));
            }
        };
        if started_over {
            storage.put_job_info(&self.info(false))?;
        }
        // From here on output follows the older checkpoint, so nobody may go back to these. Not earlier: whoever comes after a
        // crash must still see that output has to be taken back.
        for id in damaged.iter().chain(&unreadable) {
            storage.remove_manifest(CheckpointId(*id))?;
        }
        new_templates.into_iter().for_each(|(uid, template)| persister.ask(Item::Template(uid, template)));
        watch(Notice::Started { attempt, from: manifest.as_ref().map(Manifest::id) });
        let Deployment { vertex_stats, task_stats, .. } = &deployment;
        let meters = Meters::new(attempt, &self.job.job, vertex_stats, task_stats.clone(), self.metrics.clone());
        let launch = Launch { job: &self.job, topology: &self.topology, attempt, persister, deployment, next_id, meters };
        Ok(Executed::Over(Execution::launch(launch).drive(&self.inbox, watch)))
    }

    /// Waits before a restart. Returns whether somebody asked the job to stop meanwhile.
    fn stopped_within(&self, delay: Duration) -> bool {
        let until = Instant::now() + delay;
        loop {
            match self.inbox.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(Message { event: Event::Stop, .. }) => return true,
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return false,
            }
        }
    }
}

fn failed(error: DeployError, manifest: Option<&Manifest>) -> Executed {
    match (error, manifest) {
        (DeployError::Damaged(reason), Some(manifest)) => Executed::Damaged { checkpoint: manifest.checkpoint, reason },
        (DeployError::Damaged(reason) | DeployError::Failed(reason), _) => Executed::Failed(reason),
        (DeployError::ForGood(reason), _) => Executed::FailedForGood(reason),
        (DeployError::Configuration { uid, reason }, _) => {
            Executed::FailedForGood(format!("operator {uid} refused to open: {reason}"))
        }
    }
}

/// An operator's complaint about its configuration, where the job file has it.
fn configuration(job: &PreparedJob, uid: &str, reason: &str) -> JobError {
    JobError::JobFile(job.job.diagnostic(uid, "config", reason, None))
}

fn stored_templates(manifest: Option<&Manifest>) -> Templates {
    let stored: BTreeMap<_, _> = manifest
        .into_iter()
        .flat_map(|manifest| &manifest.operators)
        .filter_map(|(uid, operator)| Some((uid.as_str().into(), operator.template.clone()?)))
        .collect();
    Arc::new(Mutex::new(stored))
}

/// A relative folder in a storage URL starts at the job file's folder.
fn absolute(url: &str, job_dir: &std::path::Path) -> String {
    match url.strip_prefix("file:") {
        Some(path) if !path.starts_with('/') => format!("file:{}", job_dir.join(path).to_string_lossy()),
        None if !url.contains("://") => job_dir.join(url).to_string_lossy().into_owned(),
        _ => url.to_owned(),
    }
}

fn strategy(settings: &RestartSettings) -> Strategy {
    let ms = |duration: &Duration| duration.as_millis() as u64;
    match settings {
        RestartSettings::None => Strategy::None,
        RestartSettings::Fixed { delay, attempts } => Strategy::Fixed { delay_ms: ms(delay), attempts: *attempts },
        RestartSettings::FailureRate { failures, per, delay } => {
            Strategy::FailureRate { failures: *failures, per_ms: ms(per), delay_ms: ms(delay) }
        }
        RestartSettings::Exponential { initial, max, multiplier, reset_after, jitter } => Strategy::Exponential {
            initial_ms: ms(initial),
            max_ms: ms(max),
            multiplier: *multiplier,
            reset_after_ms: ms(reset_after),
            jitter: *jitter,
        },
    }
}
