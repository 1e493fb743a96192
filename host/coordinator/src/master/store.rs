//! What a master's requests mean on a job's log. No thread, no waiting, no second try: whoever calls has those.

use weir_master::{BegunAttempt, Claimed, Led, Store, StoreFailure, Stored, Unusable};
use weir_storage::{JobLog, Owner, Skipped};

/// Carries a request out. Gives nothing where it is not answered.
///
/// # Errors
/// What became of it otherwise; `Transient`: it may have taken effect.
pub fn carry_out(log: &mut JobLog, what: &Store) -> Result<Option<Stored>, StoreFailure> {
    Ok(Some(match what {
        Store::Claim { origin, key_groups, fresh, wall_ms } => {
            let owner = Owner { origin: origin.clone(), key_groups: *key_groups, since_ms: *wall_ms };
            Stored::Claimed(claim(log, &owner, *fresh)?)
        }
        Store::Begin { void } => {
            let begun = log.begin(void)?;
            Stored::Begun(Box::new(BegunAttempt {
                attempt: begun.attempt,
                from: begun.from,
                skipped: begun.skipped.into_iter().map(unusable).collect(),
                first_checkpoint: begun.first_checkpoint,
                retract_after: begun.retract_after,
            }))
        }
        Store::Lead { attempt } => {
            let led = log.lead(*attempt)?;
            let (newest_attempt, newest, next_checkpoint) = (led.newest_attempt, led.newest, led.next_checkpoint);
            Stored::Led(Box::new(Led { newest_attempt, newest, next_checkpoint }))
        }
        Store::Newest => Stored::Newest(log.newest_whole()?),
        Store::Complete { manifest, retained } => Stored::Completed(log.complete(manifest, *retained)?),
        Store::Tidy => {
            log.delete_trash();
            return Ok(None);
        }
        Store::Remove(names) => {
            log.discard(names.clone());
            return Ok(None);
        }
    }))
}

/// Makes sure that the state, if there is any, is this job file's.
fn claim(log: &mut JobLog, wanted: &Owner, fresh: bool) -> Result<Claimed, StoreFailure> {
    if fresh {
        log.start_over(wanted)?;
        return Ok(Claimed::Ours);
    }
    let owner = log.claim(wanted)?;
    Ok(if owner.origin == wanted.origin { Claimed::Ours } else { Claimed::Others { origin: owner.origin } })
}

fn unusable(skipped: Skipped) -> Unusable {
    Unusable { checkpoint: skipped.checkpoint, reason: skipped.reason }
}
