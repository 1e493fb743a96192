//! Which checkpoint an execution goes on from.

use weir_master::Unusable;
use weir_storage::{ErrorKind, JobStorage, Manifest};

use crate::JobError;

/// Reads manifests from the newest on, until one is whole. What `skip` names was found damaged before.
///
/// # Errors
/// Where there are checkpoints but none is whole, or the storage cannot be read.
pub(super) fn choose(storage: &JobStorage, skip: &[u64], unusable: &mut Vec<Unusable>) -> Result<Option<Manifest>, JobError> {
    let checkpoints = storage.checkpoints()?;
    for id in checkpoints.iter().filter(|id| !skip.contains(&id.0)) {
        let checked = storage.manifest(*id).and_then(|manifest| storage.check(&manifest).map(|()| manifest));
        match checked {
            Ok(manifest) => return Ok(Some(manifest)),
            Err(error) if error.kind() == ErrorKind::Damaged => {
                unusable.push(Unusable { checkpoint: *id, reason: error.to_string() });
            }
            Err(error) => return Err(error.into()),
        }
    }
    if checkpoints.is_empty() {
        return Ok(None);
    }
    Err(JobError::Damaged(format!(
        "cannot resume: none of the {} retained checkpoints is whole; restore the storage from a backup, or start over with --fresh",
        checkpoints.len()
    )))
}
