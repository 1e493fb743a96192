//! How an execution comes to an end.

use weir_model::CheckpointId;
use weir_plan::Job;
use weir_protocol::{Failure, FailureKind};

use crate::{JobError, Notice, StoreFailure, StoreFailureKind};

/// How an execution came to an end, or did not begin.
#[derive(Debug)]
pub(crate) enum Ended {
    /// All input is processed and committed.
    Finished,
    /// It was asked to stop, and has, with a last checkpoint.
    Stopped,
    /// It was asked to stop before its tasks ran.
    StoppedBefore,
    Cancelled,
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
    /// It could not begin, or tasks that run could not go on from it; the checkpoint is damaged.
    Damaged {
        checkpoint: CheckpointId,
        reason: String,
    },
    /// It may not begin.
    Refused(JobError),
}

impl Ended {
    /// It has done what it was to do.
    pub(crate) fn is_well(&self) -> bool {
        matches!(self, Ended::Finished | Ended::Stopped | Ended::Rescaled(_) | Ended::AlreadyFinished { .. })
    }

    /// What people see while its tasks end; nothing where that is not to be told from what was before or comes next.
    pub(crate) fn notice(&self) -> Option<Notice> {
        let (restarts, reason) = match self {
            Ended::Failed(reason) | Ended::Damaged { reason, .. } => (true, Some(reason.clone())),
            Ended::FailedForGood(reason) => (false, Some(reason.clone())),
            Ended::Refused(error) => (false, Some(error.to_string())),
            Ended::Cancelled => (false, None),
            Ended::Finished | Ended::Stopped | Ended::StoppedBefore | Ended::Rescaled(_) | Ended::AlreadyFinished { .. } => {
                return None;
            }
        };
        Some(Notice::Ending { restarts, reason })
    }

    /// What a worker's failure means. `from`: the checkpoint that is being restored, to which damage is put down.
    pub(crate) fn of_failure(job: &Job, failure: &Failure, from: Option<CheckpointId>) -> Ended {
        let reason = failure.reason.clone();
        match (failure.kind, from) {
            (FailureKind::Damaged, Some(checkpoint)) => Ended::Damaged { checkpoint, reason },
            (FailureKind::Transient | FailureKind::PeerLost | FailureKind::Damaged, _) => Ended::Failed(reason),
            (FailureKind::Permanent, _) => Ended::FailedForGood(reason),
            (FailureKind::JobFile, _) => Ended::Refused(JobError::Rejected(reason)),
            (FailureKind::Configuration, _) => {
                let uid = failure.uid.as_deref().unwrap_or_default();
                Ended::Refused(JobError::JobFile(job.diagnostic(uid, "config", &reason, None)))
            }
        }
    }
}

/// No attempt could begin.
impl From<StoreFailure> for Ended {
    fn from(failure: StoreFailure) -> Ended {
        match failure.kind {
            StoreFailureKind::Transient | StoreFailureKind::TimedOut | StoreFailureKind::Broken => Ended::Failed(failure.reason),
            StoreFailureKind::Damaged => Ended::Refused(JobError::Damaged(failure.reason)),
            StoreFailureKind::Permanent | StoreFailureKind::Fenced => Ended::Refused(JobError::Storage(failure)),
        }
    }
}
