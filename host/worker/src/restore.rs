//! Which checkpoint an execution goes on from, and whether the job may have its state.

use weir_model::InstanceId;
use weir_plan::VertexKind;
use weir_storage::{ErrorKind, JobStorage, Manifest, OperatorState};

use crate::JobError;
use crate::manifest::instance_id;
use crate::prepare::PreparedJob;

/// A checkpoint that could not be used.
pub(crate) struct Unusable {
    pub(crate) manifest: u64,
    pub(crate) reason: String,
}

/// Reads manifests from the newest on, until one is whole. What `skip` names was found damaged before.
///
/// # Errors
/// Where there are checkpoints but none is whole, or the storage cannot be read.
pub(crate) fn choose(storage: &JobStorage, skip: &[u64], unusable: &mut Vec<Unusable>) -> Result<Option<Manifest>, JobError> {
    let checkpoints = storage.checkpoints()?;
    for id in checkpoints.iter().filter(|id| !skip.contains(&id.0)) {
        let checked = storage.manifest(*id).and_then(|manifest| storage.check(&manifest).map(|()| manifest));
        match checked {
            Ok(manifest) => return Ok(Some(manifest)),
            Err(error) if error.kind() == ErrorKind::Damaged => {
                unusable.push(Unusable { manifest: id.0, reason: error.to_string() });
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

/// Checks that the job may go on from a checkpoint: state belongs to an operator's uid, images to a component's digest and
/// configuration.
///
/// # Errors
/// What does not fit, and what to do.
pub(crate) fn check_fits(job: &PreparedJob, manifest: &Manifest) -> Result<(), JobError> {
    let at = format!("checkpoint {}", manifest.checkpoint);
    if manifest.key_groups != job.job.key_groups {
        return Err(JobError::Refused(format!(
            "cannot resume from {at}: it was taken with {} key groups, the job file says {}; the number is fixed once a job has state: \
             set key_groups = {0} again, or start over with --fresh",
            manifest.key_groups, job.job.key_groups
        )));
    }
    for (uid, state) in &manifest.operators {
        match job.job.vertex(uid) {
            Some(vertex) => check_operator(job, vertex, state, &at)?,
            None if has_state(state) && !job.options.allow_dropped_state => {
                return Err(JobError::Refused(format!(
                    "cannot resume from {at}: it has state of `{uid}`, which the job file no longer names; \
                     give the operator its id back, drop the state with --allow-dropped-state, or start over with --fresh"
                )));
            }
            None => {}
        }
    }
    Ok(())
}

/// Whether anything would be lost with an operator.
fn has_state(state: &OperatorState) -> bool {
    state.instances.values().any(|instance| !instance.chain.is_empty())
        || state.subtasks.iter().any(|subtask| !subtask.splits.is_empty() || !subtask.committables.is_empty())
}

fn check_operator(job: &PreparedJob, vertex: usize, state: &OperatorState, at: &str) -> Result<(), JobError> {
    let images = state.instances.values().any(|instance| !instance.chain.is_empty());
    let uid = &job.job.vertices[vertex].uid;
    let kind = &job.job.vertices[vertex].kind;
    let positions = state.subtasks.iter().any(|subtask| !subtask.splits.is_empty());
    let committables = state.subtasks.iter().any(|subtask| !subtask.committables.is_empty());
    let was = match kind {
        VertexKind::Operator(_) | VertexKind::Sink(_) if positions => Some("a source"),
        VertexKind::Source(_) | VertexKind::Sink(_) if images => Some("an operator"),
        VertexKind::Source(_) | VertexKind::Operator(_) if committables => Some("a sink"),
        _ => None,
    };
    if let Some(was) = was {
        let is = match kind {
            VertexKind::Source(_) => "a source",
            VertexKind::Operator(_) => "an operator",
            VertexKind::Sink(_) => "a sink",
        };
        return Err(JobError::Refused(format!(
            "cannot resume from {at}: `{uid}` was {was} and now is {is}, so its state would be lost; give the new one another id"
        )));
    }
    let VertexKind::Operator(spec) = kind else { return Ok(()) };
    let (Some(prepared), Some(component)) = (job.components.get(&vertex), &state.component) else { return Ok(()) };
    if !images {
        return Ok(());
    }
    let digest = prepared.component.digest().to_string();
    if component.digest != digest {
        return Err(JobError::Refused(format!(
            "cannot resume from {at}: the state of operator `{uid}` is a memory image of {} (sha256 {}), but the job file names {} (sha256 {}); \
             an image fits only the code that wrote it: name the earlier version again, or start over with --fresh",
            component.name.as_deref().unwrap_or("another component"),
            short(&component.digest),
            prepared.name,
            short(&digest),
        )));
    }
    if component.config != spec.config {
        return Err(JobError::Refused(format!(
            "cannot resume from {at}: the configuration of operator `{uid}` has changed from {} to {}; its memory image was made with the earlier one: \
             put that back, or start over with --fresh",
            component.config, spec.config
        )));
    }
    let keyed = job.job.is_keyed(vertex);
    let fits = |id: InstanceId| match id {
        InstanceId::KeyGroup(_) => keyed,
        InstanceId::Subtask(_) => !keyed && state.parallelism == job.job.vertices[vertex].parallelism,
    };
    for name in state.instances.iter().filter(|(_, instance)| !instance.chain.is_empty()).map(|(name, _)| name) {
        match instance_id(name) {
            Some(id) if fits(id) => {}
            Some(_) if keyed || state.parallelism == job.job.vertices[vertex].parallelism => {
                return Err(JobError::Refused(format!(
                    "cannot resume from {at}: operator `{uid}` was {} and now is {}; give its input the earlier exchange, or start over with --fresh",
                    if keyed { "not keyed" } else { "keyed" },
                    if keyed { "keyed" } else { "not" }
                )));
            }
            Some(_) => {
                return Err(JobError::Refused(format!(
                    "cannot resume from {at}: operator `{uid}` had parallelism {} and now has {}; without a hash exchange its state cannot be \
                     divided: set parallelism = {} for it, or start over with --fresh",
                    state.parallelism, job.job.vertices[vertex].parallelism, state.parallelism
                )));
            }
            None => {
                return Err(JobError::Damaged(format!(
                    "{at} names an instance `{name}` of operator `{uid}` that this version does not know"
                )));
            }
        }
    }
    Ok(())
}

fn short(digest: &str) -> &str {
    digest.get(..12).unwrap_or(digest)
}
