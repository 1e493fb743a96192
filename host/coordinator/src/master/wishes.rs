//! What people want of a job while none of its tasks runs: between executions, while it waits for slots, before anything of it
//! was forgotten.
//!
//! A job that does not run stops at once, without a last checkpoint, and says so. Another parallelism is kept until the job
//! has it or it is refused, whatever fails meanwhile. While tasks run, `drive.rs` does what is wanted.

use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use weir_checkpoint::restart::Restarts;
use weir_master::fits::Wanted;
use weir_plan::Job;
use weir_storage::{ErrorKind, JobStorage};

use super::{Ended, Master, restore};
use crate::{JobError, Notice, Outcome, Shortage, Slots, Told, Wish};

impl Master {
    /// Waits until a time has passed, or there may be slots. Gives how the job ends, if somebody wants it to.
    pub(super) fn wait(&mut self, delay: Option<Duration>) -> Option<Outcome> {
        let until = delay.map(|delay| Instant::now() + delay);
        loop {
            let told = match until {
                Some(until) => match self.inbox.recv_timeout(until.saturating_duration_since(Instant::now())) {
                    Ok(told) => told,
                    Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return None,
                },
                None => match self.inbox.recv() {
                    Ok(told) => told,
                    Err(_) => unreachable!("the master holds a sender itself"),
                },
            };
            match told {
                Told::Wish(Wish::Stop) => return Some(Outcome::StoppedBetween { progress: None, failure: None }),
                Told::Wish(Wish::Cancel) => return Some(Outcome::Cancelled),
                Told::Wish(Wish::Rescale(parallelism)) => {
                    self.rescale = Some(parallelism);
                    // Without a time, slots are what is waited for: with another parallelism there may be enough.
                    until?;
                }
                Told::Leave => return Some(Outcome::Left),
                Told::SlotsChanged if until.is_none() => return None,
                Told::SlotsChanged | Told::Report { .. } | Told::WorkerLost { .. } | Told::Kept(_) => {}
            }
        }
    }

    /// Takes slots, and waits for them where there are not enough.
    pub(super) fn reserve(&mut self, job: &Job) -> Result<Slots, Ended> {
        let mut said: Option<Shortage> = None;
        loop {
            match self.surroundings.reserve(&job.name, job.slots()) {
                Ok(slots) => return Ok(slots),
                Err(shortage) => {
                    if said != Some(shortage) {
                        self.notice(job, &Notice::Waiting(shortage));
                        said = Some(shortage);
                    }
                    match self.wait(None) {
                        None => {
                            if let Some(parallelism) = self.rescale.take() {
                                return Err(Ended::Rescaled(parallelism));
                            }
                        }
                        Some(Outcome::Cancelled) => return Err(Ended::Cancelled),
                        Some(Outcome::Left) => return Err(Ended::Left),
                        Some(_) => return Err(Ended::StoppedBefore),
                    }
                }
            }
        }
    }

    /// Opens the operators of a job that is to start over. Gives how the job ends, if somebody wants it to meanwhile.
    ///
    /// # Errors
    /// If an operator cannot be opened: nothing was forgotten then.
    pub(super) fn try_before_fresh(
        &mut self,
        job: &Job,
        restarts: &mut Restarts,
        clock: Instant,
    ) -> Result<Option<Outcome>, JobError> {
        loop {
            let wanted = self.load(self.parallelism)?;
            match self.try_open(&wanted) {
                Ok(()) => return Ok(None),
                Err(Ended::Refused(error)) => return Err(error),
                Err(Ended::StoppedBefore) => return Ok(Some(Outcome::StoppedBetween { progress: None, failure: None })),
                Err(Ended::Cancelled) => return Ok(Some(Outcome::Cancelled)),
                Err(Ended::Left) => return Ok(Some(Outcome::Left)),
                Err(Ended::Rescaled(parallelism)) => match self.spec(Some(parallelism)).load() {
                    Ok(_) => self.rescaled(job, parallelism),
                    Err(problems) => self.rescale_refused(job, problems.to_string()),
                },
                Err(Ended::Failed(reason) | Ended::Damaged { reason, .. }) if self.settings.patient => {
                    if let Some(outcome) = self.after_failure(job, reason, restarts, clock)? {
                        return Ok(Some(outcome));
                    }
                }
                // No checkpoint is read, so a worker that speaks of a damaged one has failed in its own way.
                Err(Ended::Failed(reason) | Ended::FailedForGood(reason) | Ended::Damaged { reason, .. }) => {
                    let why_not_restarted = "nothing of the job was forgotten or started".to_owned();
                    return Err(JobError::Failed { reason, why_not_restarted });
                }
                Err(Ended::Finished | Ended::Stopped | Ended::AlreadyFinished { .. }) => {
                    unreachable!("operators that are only opened neither finish nor read a checkpoint")
                }
            }
        }
    }

    /// Gives the next execution the parallelism that is wanted, if the state can be divided that way. Where the storage cannot be
    /// asked, the wish stays.
    pub(super) fn rescale_before(&mut self, job: &Job, storage: &JobStorage) {
        let Some(parallelism) = self.rescale.take() else { return };
        match self.check_rescale(storage, parallelism) {
            Ok(_) => self.rescaled(job, parallelism),
            Err(JobError::Storage(error)) if error.kind() == ErrorKind::Retry => self.rescale = Some(parallelism),
            Err(error) => self.rescale_refused(job, error.to_string()),
        }
    }

    /// The job with another parallelism, if its state can be divided that way.
    pub(super) fn check_rescale(&self, storage: &JobStorage, parallelism: u32) -> Result<Job, JobError> {
        let spec = self.spec(Some(parallelism));
        let job = spec.load().map_err(JobError::JobFile)?;
        let newest = restore::choose(storage, &[], &mut Vec::new())?;
        let wanted = Wanted { spec: &spec, job: &job, allow_dropped_state: self.settings.allow_dropped_state };
        newest.map_or(Ok(()), |manifest| wanted.check_fits(&manifest))?;
        Ok(job)
    }

    fn rescaled(&mut self, job: &Job, parallelism: u32) {
        let from = self.load(self.parallelism).map_or(job.parallelism, |job| job.parallelism);
        self.parallelism = Some(parallelism);
        if from != parallelism {
            self.notice(job, &Notice::Rescaling { from, to: parallelism });
        }
    }

    pub(super) fn rescale_refused(&mut self, job: &Job, reason: String) {
        self.rescale = None;
        self.notice(job, &Notice::RescaleRefused { reason });
    }
}
