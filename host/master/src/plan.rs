//! What a job file says to its master.

use std::path::Path;
use std::time::Duration;

use weir_checkpoint::restart::Strategy;
use weir_plan::{Diagnostics, RestartSettings};
use weir_protocol::JobSpec;
use weir_protocol::manifest::edges_apart;
use weir_storage::Manifest;

use crate::JobError;
use crate::deployed::Planned;
use crate::fits::Wanted;

/// The job, with a parallelism of its own if one was asked for.
pub(crate) fn planned(spec: &JobSpec, parallelism: Option<u32>) -> Result<Planned, Diagnostics> {
    let mut spec = spec.clone();
    if let Some(parallelism) = parallelism {
        spec.overrides.retain(|(key, _)| key != "job.parallelism");
        spec.overrides.push(("job.parallelism".to_owned(), parallelism.to_string()));
    }
    let job = spec.load()?;
    Ok(Planned { spec, job })
}

/// The job as it goes on from a checkpoint, and its edges whose ends are in tasks of their own because something is in flight on
/// them.
///
/// # Errors
/// If it may not go on from there.
pub(crate) fn gone_on_from(
    mut plan: Planned,
    allow_dropped_state: bool,
    from: Option<&Manifest>,
) -> Result<(Planned, Vec<usize>), JobError> {
    let Some(manifest) = from else { return Ok((plan, Vec::new())) };
    Wanted { spec: &plan.spec, job: &plan.job, allow_dropped_state }.check_fits(manifest)?;
    let apart = edges_apart(&plan.job, manifest);
    plan.job = plan.job.with_edges_apart(&apart);
    Ok((plan, apart))
}

/// Where the checkpoints are. A relative folder starts at the job file's folder.
pub(crate) fn storage_of(plan: &Planned, default_storage: &str) -> String {
    let Some(url) = &plan.job.checkpoint.storage else { return default_storage.to_owned() };
    let job_dir = Path::new(&plan.spec.job_dir);
    match url.strip_prefix("file:") {
        Some(path) if !path.starts_with('/') => format!("file:{}", job_dir.join(path).to_string_lossy()),
        None if !url.contains("://") => job_dir.join(url).to_string_lossy().into_owned(),
        _ => url.clone(),
    }
}

/// How it is restarted.
pub(crate) fn strategy(settings: &RestartSettings) -> Strategy {
    let ms = |duration: &Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
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
