//! The master of one job: executions, one after the other, each from the last checkpoint.
//!
//! `deploy.rs` brings an execution into being, step by step on all its workers; `drive.rs` runs it: feeds the checkpoint machine
//! with what workers report, and does what it says; `restore.rs` chooses the checkpoint to start from; `keeper.rs`
//! makes checkpoints count; `more.rs` asks whether a job that had finished has more to do; `wishes.rs` says what becomes of what
//! people want where no task runs. What is here decides what follows the end of an execution.

mod deploy;
mod drive;
mod keeper;
mod more;
mod restore;
mod wishes;

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use weir_checkpoint::restart::{Decision, Restarts, Strategy};
use weir_master::oddities;
use weir_model::CheckpointId;
use weir_plan::{Job, RestartSettings};
use weir_protocol::panics::{bug, caught};
use weir_protocol::{Command, Execution, JobSpec};
use weir_storage::{ErrorKind, JobInfo, JobStorage};

use crate::{JobError, MasterJob, Notice, Outcome, Progress, Surroundings, Told};
pub(crate) use keeper::Written;

/// The master of one job.
pub struct Master {
    settings: MasterJob,
    surroundings: Arc<dyn Surroundings>,
    told: Sender<Told>,
    inbox: Receiver<Told>,
    /// The parallelism that was asked for last, if any was.
    parallelism: Option<u32>,
    /// The parallelism that somebody wants the job to go on with, until it has it or that is refused.
    rescale: Option<u32>,
    /// The execution that was begun last, and its workers.
    begun: Option<(Execution, Vec<String>)>,
}

/// How an execution came to an end, or did not begin.
enum Ended {
    /// All input is processed and committed.
    Finished,
    /// It was asked to stop, and has, with a last checkpoint.
    Stopped,
    /// It was asked to stop before its tasks ran.
    StoppedBefore,
    Cancelled,
    /// The process ends.
    Left,
    /// It goes on with another parallelism.
    Rescaled(u32),
    AlreadyFinished {
        checkpoint: CheckpointId,
        at_ms: u64,
        looked_at: Vec<(String, String)>,
    },
    /// It failed and can be restarted.
    Failed(String),
    /// It failed, and would fail again.
    FailedForGood(String),
    /// It could not begin; the checkpoint is damaged.
    Damaged {
        checkpoint: u64,
        reason: String,
    },
    /// It may not begin.
    Refused(JobError),
}

impl Ended {
    /// It has done what it was to do.
    fn is_well(&self) -> bool {
        matches!(self, Ended::Finished | Ended::Stopped | Ended::Rescaled(_) | Ended::AlreadyFinished { .. })
    }

    /// What people see while its tasks end; nothing where that is not to be told from what was before or comes next.
    fn notice(&self) -> Option<Notice> {
        let (restarts, reason) = match self {
            Ended::Failed(reason) | Ended::Damaged { reason, .. } => (true, Some(reason.clone())),
            Ended::FailedForGood(reason) => (false, Some(reason.clone())),
            Ended::Refused(error) => (false, Some(error.to_string())),
            Ended::Cancelled => (false, None),
            Ended::Finished
            | Ended::Stopped
            | Ended::StoppedBefore
            | Ended::Left
            | Ended::Rescaled(_)
            | Ended::AlreadyFinished { .. } => return None,
        };
        Some(Notice::Ending { restarts, reason })
    }
}

impl From<JobError> for Ended {
    fn from(error: JobError) -> Ended {
        match error {
            JobError::Storage(error) if error.kind() == ErrorKind::Retry => Ended::Failed(error.to_string()),
            error => Ended::Refused(error),
        }
    }
}

impl From<weir_storage::StorageError> for Ended {
    fn from(error: weir_storage::StorageError) -> Ended {
        JobError::from(error).into()
    }
}

/// What follows the end of an execution.
enum Next {
    /// The job is over.
    Over(Result<Outcome, JobError>),
    /// Another execution begins at once.
    Again,
    /// Another one begins, if the restart strategy says so.
    Restart(String),
}

/// What the executions of a job leave to the next one.
#[derive(Default)]
struct History {
    /// Checkpoints found damaged.
    damaged: Vec<u64>,
    /// Counts of the last execution; none before the first.
    last: Option<Box<Progress>>,
    /// Somebody has asked the job to stop.
    stopping: bool,
    /// What was told of rows that did not go the normal way.
    odd: oddities::Watch,
}

impl Master {
    /// A master, and the way to tell it something.
    pub fn new(settings: MasterJob, surroundings: Arc<dyn Surroundings>) -> (Master, Sender<Told>) {
        #[allow(clippy::disallowed_methods, reason = "workers say a few words per task and checkpoint, and must never wait")]
        let (told, inbox) = channel();
        (Master { settings, surroundings, told: told.clone(), inbox, parallelism: None, rescale: None, begun: None }, told)
    }

    /// Runs the job to its end, on the caller's thread.
    ///
    /// # Errors
    /// If the job may not start, or has failed for good. A panic of the master itself is such a failure.
    pub fn run(mut self) -> Result<Outcome, JobError> {
        caught(|| self.run_executions()).unwrap_or_else(|panic| {
            self.cancel_begun();
            Err(JobError::Failed {
                reason: bug("its master", &panic),
                why_not_restarted: "submitted again, the job goes on from its last checkpoint".to_owned(),
            })
        })
    }

    fn run_executions(&mut self) -> Result<Outcome, JobError> {
        let job = self.load(self.parallelism)?;
        let url = self.storage_url(&job);
        let mut restarts = Restarts::new(strategy(&job.restart));
        let clock = Instant::now();
        let outcome = loop {
            let opened = self.surroundings.storage(&url, &job.name).map_err(JobError::from);
            let ran = opened.and_then(|storage| self.run_in(&job, &storage, &mut restarts, clock));
            match ran {
                // The storage is down before the first execution: nothing was begun, and nothing is lost by trying again.
                Err(JobError::Storage(error)) if self.settings.patient && error.kind() == ErrorKind::Retry => {
                    match self.after_failure(&job, error.to_string(), &mut restarts, clock) {
                        Ok(None) => {}
                        Ok(Some(outcome)) => break Ok(outcome),
                        Err(error) => break Err(error),
                    }
                }
                ran => break ran,
            }
        };
        self.surroundings.release(&job.name);
        outcome
    }

    fn run_in(&mut self, job: &Job, storage: &JobStorage, restarts: &mut Restarts, clock: Instant) -> Result<Outcome, JobError> {
        let _lock = storage.lock()?;
        let mut history = History::default();
        let mut adopted = self.settings.adopted.take();
        if adopted.is_none()
            && let Some(outcome) = self.claim(job, storage, restarts, clock)?
        {
            return Ok(outcome);
        }
        loop {
            if adopted.is_none() {
                self.rescale_before(job, storage);
            }
            let executed = caught(|| match adopted.take() {
                Some(adopted) => self.take_over(&adopted, storage, &mut history),
                None => self.execute(storage, &mut history).unwrap_or_else(|ended| ended),
            });
            // All that an execution was known by is gone with it; the next one begins with what is stored.
            let ended = executed.unwrap_or_else(|panic| {
                self.cancel_begun();
                Ended::Failed(bug("its master", &panic))
            });
            match self.next(job, storage, ended, &mut history) {
                Next::Over(end) => return end,
                Next::Again => {}
                Next::Restart(reason) => {
                    if let Some(outcome) = self.after_failure(job, reason, restarts, clock)? {
                        return Ok(outcome);
                    }
                }
            }
        }
    }

    fn next(&mut self, job: &Job, storage: &JobStorage, ended: Ended, history: &mut History) -> Next {
        let for_good =
            |reason: String, why: &str| Next::Over(Err(JobError::Failed { reason, why_not_restarted: why.to_owned() }));
        let begun = history.last.is_some() || self.settings.patient;
        match ended {
            Ended::Finished => {
                let Some(progress) = history.last.take() else { unreachable!("an execution that finished has counts") };
                Next::Over(Ok(Outcome::Finished(progress)))
            }
            Ended::Stopped => {
                let Some(progress) = history.last.take() else { unreachable!("an execution that stopped has counts") };
                Next::Over(Ok(Outcome::Stopped(progress)))
            }
            Ended::StoppedBefore => Next::Over(Ok(Outcome::StoppedBetween { progress: history.last.take(), failure: None })),
            Ended::Cancelled => Next::Over(Ok(Outcome::Cancelled)),
            Ended::Left => Next::Over(Ok(Outcome::Left)),
            // After a failure: all had been processed, and only the last commit was missing.
            Ended::AlreadyFinished { checkpoint, at_ms, looked_at } => {
                let before = history.last.take();
                Next::Over(Ok(before.map_or(Outcome::AlreadyFinished { checkpoint, at_ms, looked_at }, Outcome::Finished)))
            }
            Ended::Refused(error) => Next::Over(Err(error)),
            Ended::Rescaled(parallelism) => {
                self.rescale = Some(parallelism);
                Next::Again
            }
            Ended::Damaged { checkpoint, reason } => {
                self.notice(job, &Notice::FellBack { checkpoint: CheckpointId(checkpoint), reason });
                history.damaged.push(checkpoint);
                Next::Again
            }
            // What cannot even begin needs a person, not another try.
            Ended::Failed(reason) | Ended::FailedForGood(reason) if !begun => {
                for_good(reason, "it had not begun to run, so it was not restarted")
            }
            Ended::FailedForGood(reason) => {
                let from = goes_on_from(storage);
                for_good(
                    reason,
                    &format!(
                        "it would meet the same again, so it was not restarted; once that is mended, the same job goes on from {from}"
                    ),
                )
            }
            // Nobody wants it to run any more. What it did since its last checkpoint is done again when it is started again.
            Ended::Failed(reason) if history.stopping && self.settings.patient => {
                Next::Over(Ok(Outcome::StoppedBetween { progress: history.last.take(), failure: Some(reason) }))
            }
            Ended::Failed(reason) if history.stopping => {
                let from = goes_on_from(storage);
                for_good(reason, &format!("it had been asked to stop, so it was not restarted; the same job goes on from {from}"))
            }
            Ended::Failed(reason) => Next::Restart(reason),
        }
    }

    /// Ends the tasks of the last execution, whose master is not there any more to do it.
    fn cancel_begun(&mut self) {
        if let Some((execution, workers)) = self.begun.take() {
            let cancel = || Command::Cancel { execution: execution.clone(), finish: false };
            workers.iter().for_each(|worker| self.surroundings.send(worker, cancel()));
        }
    }

    /// Waits as the restart strategy says. Gives how the job ends, if somebody wants it to meanwhile.
    fn after_failure(
        &mut self,
        job: &Job,
        reason: String,
        restarts: &mut Restarts,
        clock: Instant,
    ) -> Result<Option<Outcome>, JobError> {
        let now_ms = clock.elapsed().as_millis() as u64;
        match restarts.failed(now_ms, RandomState::new().build_hasher().finish()) {
            Decision::GiveUp(why_not_restarted) => Err(JobError::Failed { reason, why_not_restarted }),
            Decision::RestartAfter(ms) => {
                let delay = Duration::from_millis(ms);
                self.notice(job, &Notice::Restarting { reason, delay });
                Ok(self.wait(Some(delay)))
            }
        }
    }

    /// The job with a parallelism of its own, if one was asked for.
    fn load(&self, parallelism: Option<u32>) -> Result<Job, JobError> {
        self.spec(parallelism).load().map_err(JobError::JobFile)
    }

    fn spec(&self, parallelism: Option<u32>) -> JobSpec {
        let mut spec = self.settings.spec.clone();
        if let Some(parallelism) = parallelism {
            spec.overrides.retain(|(key, _)| key != "job.parallelism");
            spec.overrides.push(("job.parallelism".to_owned(), parallelism.to_string()));
        }
        spec
    }

    fn notice(&self, job: &Job, notice: &Notice) {
        self.surroundings.notice(&job.name, notice);
    }

    /// Where the checkpoints are. A relative folder starts at the job file's folder.
    fn storage_url(&self, job: &Job) -> String {
        let Some(url) = &job.checkpoint.storage else { return self.settings.default_storage.clone() };
        let job_dir = Path::new(&self.settings.spec.job_dir);
        match url.strip_prefix("file:") {
            Some(path) if !path.starts_with('/') => format!("file:{}", job_dir.join(path).to_string_lossy()),
            None if !url.contains("://") => job_dir.join(url).to_string_lossy().into_owned(),
            _ => url.clone(),
        }
    }

    /// Makes sure that the state, if there is any, is this job file's.
    fn claim(
        &mut self,
        job: &Job,
        storage: &JobStorage,
        restarts: &mut Restarts,
        clock: Instant,
    ) -> Result<Option<Outcome>, JobError> {
        if self.settings.fresh {
            // Whether operators accept their configuration shows here, before anything is forgotten.
            if let Some(outcome) = self.try_before_fresh(job, restarts, clock)? {
                return Ok(Some(outcome));
            }
            // First of all: whoever comes after a crash goes on forgetting, and has output taken back.
            storage.put_job_info(&self.info(job, true))?;
            storage.clear()?;
            return Ok(None);
        }
        match storage.job_info()? {
            Some(info) if info.origin != self.settings.spec.file => Err(JobError::Refused(format!(
                "cannot run job `{}` of {}: its state belongs to {}; run this one under another name (--set job.name=NAME). If it is the \
                 same job, moved, or that one is not needed any more: --fresh forgets that job's state",
                job.name, self.settings.spec.file, info.origin
            ))),
            // It was to start over, and has not begun to: what is left of its checkpoints counts no more.
            Some(info) if info.started_over => Ok(storage.clear().map(|()| None)?),
            Some(_) => Ok(None),
            None => Ok(storage.put_job_info(&self.info(job, false)).map(|()| None)?),
        }
    }

    fn info(&self, job: &Job, started_over: bool) -> JobInfo {
        let origin = self.settings.spec.file.clone();
        JobInfo { origin, created_at_ms: wall_ms(), key_groups: job.key_groups, started_over }
    }
}

/// Where the job would begin, for people. A storage that does not say is believed to have what it had.
fn goes_on_from(storage: &JobStorage) -> &'static str {
    match storage.checkpoints() {
        Ok(checkpoints) if checkpoints.is_empty() => "the beginning",
        _ => "the last checkpoint",
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

/// Wall-clock time in milliseconds since the Unix epoch.
fn wall_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64)
}

#[cfg(test)]
mod tests;
