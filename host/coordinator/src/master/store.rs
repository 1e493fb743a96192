//! What a master's requests mean on a job's storage. No thread, no waiting, no second try: whoever calls has those.

use weir_master::{BegunAttempt, Claimed, Led, Store, StoreFailure, StoreFailureKind, Stored, Unusable};
use weir_model::{Attempt, CheckpointId};
use weir_storage::{Durable, JobInfo, JobStorage};

/// Carries a request out. Gives nothing where it is not answered.
///
/// # Errors
/// What became of it otherwise; `Transient`: it may have taken effect.
pub fn carry_out(storage: &JobStorage, what: &Store) -> Result<Option<Stored>, StoreFailure> {
    Ok(Some(match what {
        Store::Claim { origin, key_groups, fresh, wall_ms } => {
            let info = JobInfo {
                origin: origin.clone(),
                created_at_ms: *wall_ms,
                key_groups: *key_groups,
                started_over: *fresh,
                gone_back_to: fresh.then_some(CheckpointId(0)),
                void: Vec::new(),
            };
            Stored::Claimed(claim(storage, info)?)
        }
        Store::Begin { void } => Stored::Begun(Box::new(begin(storage, void)?)),
        Store::Lead { .. } => {
            let next_checkpoint = storage.next_checkpoint_id()?;
            let newest = storage.newest()?;
            // Last: what a newer attempt has completed is not taken for the one's that is led.
            Stored::Led(Box::new(Led { newest_attempt: storage.newest_attempt()?, newest, next_checkpoint }))
        }
        Store::Newest => {
            let void = storage.job_info()?.map(|info| info.void).unwrap_or_default();
            Stored::Newest(choose(storage, &void)?.0)
        }
        Store::Complete(manifest) => Stored::Completed(storage.complete(manifest)?),
        Store::Retain { attempt, checkpoints } => {
            storage.retain(*attempt, *checkpoints)?;
            return Ok(None);
        }
        Store::Remove(names) => {
            storage.remove_files(names)?;
            return Ok(None);
        }
    }))
}

/// Makes sure that the state, if there is any, is this job file's.
fn claim(storage: &JobStorage, wanted: JobInfo) -> Result<Claimed, StoreFailure> {
    let info = match storage.job_info()? {
        // First of all: whoever comes after a crash goes on forgetting, and has output taken back.
        _ if wanted.started_over => {
            storage.put_job_info(&wanted)?;
            wanted
        }
        Some(info) if info.origin != wanted.origin => return Ok(Claimed::Others { origin: info.origin }),
        Some(info) => info,
        None => {
            storage.put_job_info(&wanted)?;
            wanted
        }
    };
    if info.started_over {
        // It has not begun since: what is left of its checkpoints counts no more.
        storage.clear()?;
        storage.put_job_info(&JobInfo { started_over: false, gone_back_to: Some(CheckpointId(0)), void: Vec::new(), ..info })?;
    }
    Ok(Claimed::Ours)
}

/// Begins an attempt. Going back to an older checkpoint is durable, with that newer ones are void, before the attempt is known to
/// anyone: nothing is taken back that a later attempt would take for committed.
fn begin(storage: &JobStorage, void: &[CheckpointId]) -> Result<BegunAttempt, StoreFailure> {
    let attempt = storage.new_attempt()?;
    // No task and no persister of an older attempt counts any more.
    storage.sweep(attempt)?;
    let mut info = storage.job_info()?.ok_or_else(|| lost_info(attempt))?;
    let before = info.void.len();
    for checkpoint in void {
        if !info.void.contains(checkpoint) {
            info.void.push(*checkpoint);
        }
    }
    let (from, skipped) = choose(storage, &info.void)?;
    info.void.extend(skipped.iter().map(|unusable| unusable.checkpoint));
    let from_id = from.as_ref().map_or(CheckpointId(0), |manifest| manifest.id());
    if info.void.len() > before {
        info.gone_back_to = Some(from_id);
        storage.put_job_info(&info)?;
    }
    for checkpoint in &info.void {
        storage.remove_manifest(*checkpoint)?;
    }
    let first_checkpoint = storage.next_checkpoint_id()?;
    // A checkpoint that was completed since then holds what was written again.
    let retract_after = info.gone_back_to.filter(|to| *to == from_id);
    Ok(BegunAttempt { attempt, from, skipped, first_checkpoint, retract_after })
}

/// The newest checkpoint that is whole and not void, and newer ones that are damaged.
fn choose(storage: &JobStorage, void: &[CheckpointId]) -> Result<(Option<Durable>, Vec<Unusable>), StoreFailure> {
    let (newest, damaged) = storage.newest_whole(void)?;
    if newest.is_none() && (!damaged.is_empty() || storage.checkpoints()?.iter().any(|id| void.contains(id))) {
        let count = storage.checkpoints()?.len();
        let reason = format!(
            "cannot resume: none of the {count} retained checkpoints is whole; restore the storage from a backup, or start over with --fresh"
        );
        return Err(StoreFailure { kind: StoreFailureKind::Damaged, reason });
    }
    let unusable =
        |(checkpoint, error): (CheckpointId, weir_storage::StorageError)| Unusable { checkpoint, reason: error.to_string() };
    Ok((newest, damaged.into_iter().map(unusable).collect()))
}

fn lost_info(attempt: Attempt) -> StoreFailure {
    let reason = format!("cannot begin attempt {attempt}: whose state this is was deleted from outside; submit the job again");
    StoreFailure { kind: StoreFailureKind::Permanent, reason }
}
