//! What follows the end of an execution, or of an attempt to begin one: another, after a wait or at once, or the end of the job.
//!
//! Owns what people wish of the job and have not got, what its executions leave to the next one, and its restart strategy.

use weir_checkpoint::restart::{Decision, Restarts};
use weir_model::CheckpointId;

use crate::ended::Ended;
use crate::oddities::Watch;
use crate::{JobError, Now, Outcome, Progress};

/// What people want and do not have yet.
#[derive(Default)]
pub(crate) struct Wishes {
    /// To stop, said while no task ran.
    pub(crate) stop: bool,
    /// To stop, said while tasks ran.
    pub(crate) stop_running: bool,
    pub(crate) cancel: bool,
    pub(crate) leave: bool,
    /// The parallelism that the job is to go on with, until it has it or that is refused.
    pub(crate) rescale: Option<u32>,
}

/// What follows.
pub(crate) enum Next {
    Over(Result<Outcome, JobError>),
    /// What comes next begins at once.
    GoOn,
    /// It begins after a wait.
    Wait {
        reason: String,
        ms: u64,
    },
}

/// See the module's documentation.
pub(crate) struct Prospects {
    /// Also what fails before the job has run for the first time is tried again.
    patient: bool,
    restarts: Restarts,
    pub(crate) wishes: Wishes,
    /// Checkpoints found damaged of which the storage does not know that.
    pub(crate) void: Vec<CheckpointId>,
    /// Counts of the last execution; none before the first.
    pub(crate) last: Option<Box<Progress>>,
    /// What was told of rows that did not go the normal way.
    pub(crate) odd: Watch,
    /// There is a checkpoint to go on from, as far as is known.
    pub(crate) has_checkpoint: bool,
}

impl Prospects {
    pub(crate) fn new(patient: bool, restarts: Restarts) -> Prospects {
        Prospects {
            patient,
            restarts,
            wishes: Wishes::default(),
            void: Vec::new(),
            last: None,
            odd: Watch::default(),
            has_checkpoint: false,
        }
    }

    /// How the job ends that somebody wants to end while nothing of it runs. What is wanted most comes first.
    pub(crate) fn wished_end(&mut self) -> Option<Outcome> {
        if self.wishes.cancel {
            return Some(Outcome::Cancelled);
        }
        if self.wishes.leave {
            return Some(Outcome::Left);
        }
        let stop = self.wishes.stop || self.wishes.stop_running;
        stop.then(|| Outcome::StoppedBetween { progress: self.last.take(), failure: None })
    }

    /// After an execution.
    pub(crate) fn after(&mut self, ended: Ended, now: Now) -> Next {
        let begun = self.last.is_some() || self.patient;
        match ended {
            Ended::Finished => {
                let Some(progress) = self.last.take() else { unreachable!("an execution that finished has counts") };
                Next::Over(Ok(Outcome::Finished(progress)))
            }
            Ended::Stopped => {
                let Some(progress) = self.last.take() else { unreachable!("an execution that stopped has counts") };
                Next::Over(Ok(Outcome::Stopped(progress)))
            }
            Ended::StoppedBefore => Next::Over(Ok(Outcome::StoppedBetween { progress: self.last.take(), failure: None })),
            Ended::Cancelled => Next::Over(Ok(Outcome::Cancelled)),
            // After a failure: all had been processed, and only the last commit was missing.
            Ended::AlreadyFinished { checkpoint, at_ms, looked_at } => {
                let already = Outcome::AlreadyFinished { checkpoint, at_ms, looked_at };
                Next::Over(Ok(self.last.take().map_or(already, Outcome::Finished)))
            }
            Ended::Refused(error) => Next::Over(Err(error)),
            Ended::Rescaled(parallelism) => {
                // What was wished while it ended is newer.
                self.wishes.rescale.get_or_insert(parallelism);
                Next::GoOn
            }
            Ended::Damaged { checkpoint, reason } => {
                self.void.push(checkpoint);
                if self.wishes.stop_running { self.after_tasks_failed(reason, now) } else { Next::GoOn }
            }
            // What cannot even begin needs a person, not another try.
            Ended::Failed(reason) | Ended::FailedForGood(reason) if !begun => {
                for_good(reason, "it had not begun to run, so it was not restarted".to_owned())
            }
            Ended::FailedForGood(reason) => {
                let why = format!(
                    "it would meet the same again, so it was not restarted; once that is mended, the same job goes on from {}",
                    self.goes_on_from()
                );
                for_good(reason, why)
            }
            Ended::Failed(reason) => self.after_tasks_failed(reason, now),
        }
    }

    fn after_tasks_failed(&mut self, reason: String, now: Now) -> Next {
        let is_left = self.wishes.cancel || self.wishes.leave;
        match (self.wishes.stop_running, self.patient) {
            _ if is_left => Next::GoOn,
            // Nobody wants it to run any more. What it did since its last checkpoint is done again when it is started again.
            (true, true) => Next::Over(Ok(Outcome::StoppedBetween { progress: self.last.take(), failure: Some(reason) })),
            (true, false) => {
                let from = self.goes_on_from();
                for_good(reason, format!("it had been asked to stop, so it was not restarted; the same job goes on from {from}"))
            }
            (false, _) => self.after_failure(reason, now),
        }
    }

    /// After operators were opened in vain, to see whether they can be.
    pub(crate) fn after_trial(&mut self, ended: Ended, now: Now) -> Next {
        match ended {
            Ended::Failed(reason) | Ended::Damaged { reason, .. } if self.patient => self.after_failure(reason, now),
            // No checkpoint is read, so a worker that speaks of a damaged one has failed in its own way.
            Ended::Failed(reason) | Ended::FailedForGood(reason) | Ended::Damaged { reason, .. } => {
                for_good(reason, "nothing of the job was forgotten or started".to_owned())
            }
            ended => self.after(ended, now),
        }
    }

    /// As the restart strategy says, unless somebody wants the job to end.
    pub(crate) fn after_failure(&mut self, reason: String, now: Now) -> Next {
        if self.wishes.stop || self.wishes.stop_running || self.wishes.cancel || self.wishes.leave {
            return Next::GoOn;
        }
        match self.restarts.failed(now.steady_ms, now.random) {
            Decision::GiveUp(why_not_restarted) => for_good(reason, why_not_restarted),
            Decision::RestartAfter(ms) => Next::Wait { reason, ms },
        }
    }

    /// Where the job would begin, for people.
    fn goes_on_from(&self) -> &'static str {
        if self.has_checkpoint { "the last checkpoint" } else { "the beginning" }
    }
}

fn for_good(reason: String, why_not_restarted: String) -> Next {
    Next::Over(Err(JobError::Failed { reason, why_not_restarted }))
}
