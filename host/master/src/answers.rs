//! What answers of the storage mean, before anything is done about them.

use weir_protocol::panics::bug;

use crate::deployed::Planned;
use crate::fits::Wanted;
use crate::{JobError, StoreFailure, StoreFailureKind, Stored};

/// Why a job cannot have another parallelism.
pub(crate) enum Unfit {
    /// Its state cannot be divided that way.
    Refused(String),
    /// The storage does not say.
    Unknown(String),
}

/// Whether a job may go on from the newest checkpoint.
pub(crate) fn fit(wanted: &Planned, allow_dropped_state: bool, answer: Result<Stored, StoreFailure>) -> Result<(), Unfit> {
    match answer {
        Ok(Stored::Newest(None)) => Ok(()),
        Ok(Stored::Newest(Some(manifest))) => {
            let wanted = Wanted { spec: &wanted.spec, job: &wanted.job, allow_dropped_state };
            wanted.check_fits(&manifest).map_err(|error| Unfit::Refused(error.to_string()))
        }
        Ok(other) => Err(Unfit::Refused(unexpected(&other).to_string())),
        Err(failure) if may_help(&failure) => Err(Unfit::Unknown(failure.reason)),
        Err(failure) => Err(Unfit::Refused(failure.reason)),
    }
}

/// Whether the same may be had later.
pub(crate) fn may_help(failure: &StoreFailure) -> bool {
    matches!(failure.kind, StoreFailureKind::Transient | StoreFailureKind::TimedOut | StoreFailureKind::Broken)
}

/// Something else was asked.
pub(crate) fn unexpected(stored: &Stored) -> JobError {
    let reason = format!("with another answer than was asked for: {stored:?}");
    JobError::Storage(StoreFailure { kind: StoreFailureKind::Broken, reason: bug("what keeps the storage", &reason) })
}
