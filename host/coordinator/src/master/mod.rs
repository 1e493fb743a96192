//! The master of one job: executions, one after the other, each from the last checkpoint.

use std::sync::Arc;
use std::sync::mpsc::Receiver;

use weir_protocol::JobSpec;

use crate::{Adopted, JobError, Outcome, Surroundings, Told};

/// A job that is to run.
pub struct MasterJob {
    /// The job.
    pub spec: JobSpec,
    /// Where its checkpoints are, unless the job file says it.
    pub default_storage: String,
    /// Forget all checkpoints first.
    pub fresh: bool,
    /// Go on although the checkpoint has state of an operator that the job no longer has.
    pub allow_dropped_state: bool,
    /// An execution that runs already.
    pub adopted: Option<Adopted>,
}

/// The master of one job.
pub struct Master {
    job: MasterJob,
    surroundings: Arc<dyn Surroundings>,
    inbox: Receiver<Told>,
}

impl Master {
    /// A master that was told nothing yet.
    pub fn new(job: MasterJob, surroundings: Arc<dyn Surroundings>, inbox: Receiver<Told>) -> Master {
        Master { job, surroundings, inbox }
    }

    /// Runs the job to its end, on the caller's thread.
    ///
    /// # Errors
    /// If the job may not start, or has failed for good.
    pub fn run(self) -> Result<Outcome, JobError> {
        let _ = (self.job, self.surroundings, self.inbox);
        Ok(Outcome::Left)
    }
}
