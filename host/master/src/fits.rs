//! Whether a job may go on from a checkpoint. Pure: reads nothing but the manifest.

use weir_model::InstanceId;
use weir_plan::{Exchange, Job, VertexKind};
use weir_protocol::JobSpec;
use weir_protocol::manifest::{edge_between, is_divided_alike};
use weir_storage::{ConfigDigests, InFlightState, Manifest, OperatorState, StatePart, instance_id};

use crate::JobError;

/// A job that is to go on from a checkpoint.
#[derive(Clone, Copy)]
pub struct Wanted<'a> {
    /// It, as it was submitted.
    pub spec: &'a JobSpec,
    /// The same, read.
    pub job: &'a Job,
    /// State of operators that the job no longer has may be lost.
    pub allow_dropped_state: bool,
}

impl Wanted<'_> {
    /// Checks that the job may go on from a checkpoint: state belongs to an operator's uid, images to a component's digest
    /// and configuration.
    ///
    /// # Errors
    /// What does not fit, and what to do.
    pub fn check_fits(self, manifest: &Manifest) -> Result<(), JobError> {
        let at = format!("checkpoint {}", manifest.checkpoint);
        if manifest.key_groups != self.job.key_groups {
            return Err(JobError::Refused(format!(
                "cannot resume from {at}: it was taken with {} key groups, the job file says {}; the number is fixed once a job has state: \
                 set key_groups = {0} again, or start over with --fresh",
                manifest.key_groups, self.job.key_groups
            )));
        }
        for (uid, state) in &manifest.operators {
            match self.job.vertex(uid) {
                Some(vertex) => self.check_operator(vertex, state, &at)?,
                None if has_state(state) && !self.allow_dropped_state => {
                    return Err(JobError::Refused(format!(
                        "cannot resume from {at}: it has state of `{uid}`, which the job file no longer names; \
                         give it its id back, drop the state with --allow-dropped-state, or start over with --fresh"
                    )));
                }
                None => {}
            }
        }
        Ok(())
    }

    fn check_operator(self, vertex: usize, state: &OperatorState, at: &str) -> Result<(), JobError> {
        let uid = &self.job.vertices[vertex].uid;
        let kind = &self.job.vertices[vertex].kind;
        let images = state.instances.values().any(|instance| !instance.is_empty());
        check_kind(uid, kind, state, images, at)?;
        self.check_in_flight(vertex, state, at)?;
        if state.instances.values().any(|instance| instance.parts.keys().any(|part| *part != StatePart::Memory)) {
            return Err(JobError::Refused(format!(
                "cannot resume from {at}: operator `{uid}` has state besides its memory, which this version of weir does not restore; use the \
                 version that took it, or a newer one"
            )));
        }
        let VertexKind::Operator(spec) = kind else { return Ok(()) };
        let (Some(pin), Some(component)) = (self.spec.components.get(&spec.component.to_string()), &state.component) else {
            return Ok(());
        };
        if !images {
            return Ok(());
        }
        let digest = pin.digest.to_string();
        if component.digest != digest {
            return Err(JobError::Refused(format!(
                "cannot resume from {at}: the state of operator `{uid}` is a memory image of {} (sha256 {}), but the job file names {} (sha256 {}); \
                 an image fits only the code that wrote it: name the earlier version again, or start over with --fresh",
                component.name.as_deref().unwrap_or("another component"),
                short(&component.digest),
                pin.name,
                short(&digest),
            )));
        }
        let changed = component.config_digests.changed(&ConfigDigests::of(&spec.config));
        if !changed.is_empty() {
            return Err(JobError::Refused(format!(
                "cannot resume from {at}: the configuration of operator `{uid}` has changed: {}; its memory image was made with the earlier one: \
                 put that back, or start over with --fresh",
                changed.join(", ")
            )));
        }
        self.check_division(vertex, state, at)
    }

    /// Rows that were in flight have a way in, and are divided as they were: by any other rule, some would be processed more than
    /// once or never.
    fn check_in_flight(self, vertex: usize, state: &OperatorState, at: &str) -> Result<(), JobError> {
        let was_keyed = state.instances.keys().any(|name| matches!(instance_id(name), Some(InstanceId::KeyGroup(_))));
        for one in state.subtasks.iter().flat_map(|subtask| &subtask.in_flight) {
            if let Some(problem) = self.problem_of(vertex, one, was_keyed).filter(|_| !self.allow_dropped_state) {
                let (rows, from, uid) = (one.rows, &one.from, &self.job.vertices[vertex].uid);
                return Err(JobError::Refused(format!(
                    "cannot resume from {at}: {rows} rows were on their way from `{from}` to `{uid}`{problem}, drop the rows with \
                     --allow-dropped-state, or start over with --fresh"
                )));
            }
        }
        Ok(())
    }

    /// Why rows in flight cannot go on as they are, and what to do.
    fn problem_of(self, vertex: usize, one: &InFlightState, was_keyed: bool) -> Option<String> {
        let Some(edge) = edge_between(self.job, vertex, one) else {
            return Some(", and the job file no longer has that edge; put it back".to_owned());
        };
        let now = edge.exchange.to_string();
        let drained = "let the job run with unaligned_after = \"never\" and stop it, which leaves none on their way";
        if !is_divided_alike(edge, one) {
            let then = &one.exchange;
            return Some(format!(
                " by exchange \"{then}\", and the job file now says \"{now}\"; put \"{then}\" back, and before you change it {drained}"
            ));
        }
        (edge.exchange == Exchange::Broadcast && was_keyed != self.job.is_keyed(vertex)).then(|| {
            format!(
                " by exchange \"broadcast\", to {}, and with the inputs of the job file it would be the other way round; put them back, \
                 and before you change them {drained}",
                if was_keyed { "each key group of it" } else { "each subtask of it as a whole" }
            )
        })
    }

    /// Instances can be divided over the subtasks that there are now.
    fn check_division(self, vertex: usize, state: &OperatorState, at: &str) -> Result<(), JobError> {
        let uid = &self.job.vertices[vertex].uid;
        let parallelism = self.job.vertices[vertex].parallelism;
        let keyed = self.job.is_keyed(vertex);
        let same = state.parallelism == parallelism || self.job.is_broadcast_only(vertex);
        let fits = |id: InstanceId| match id {
            InstanceId::KeyGroup(_) => keyed,
            InstanceId::Subtask(_) => !keyed && same,
        };
        for name in state.instances.iter().filter(|(_, instance)| !instance.is_empty()).map(|(name, _)| name) {
            match instance_id(name) {
                Some(id) if fits(id) => {}
                Some(_) if keyed || same => {
                    return Err(JobError::Refused(format!(
                        "cannot resume from {at}: operator `{uid}` was {} and now is {}; give its input the earlier exchange, or start over with --fresh",
                        if keyed { "not keyed" } else { "keyed" },
                        if keyed { "keyed" } else { "not" }
                    )));
                }
                Some(_) => {
                    return Err(JobError::Refused(format!(
                        "cannot resume from {at}: operator `{uid}` had parallelism {} and now has {parallelism}; without a hash exchange its state \
                         cannot be divided: set parallelism = {} for it, or start over with --fresh",
                        state.parallelism, state.parallelism
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
}

/// Whether anything would be lost with an operator.
fn has_state(state: &OperatorState) -> bool {
    let of_subtask = |subtask: &weir_storage::SubtaskState| {
        !subtask.splits.is_empty() || !subtask.committables.is_empty() || !subtask.in_flight.is_empty()
    };
    state.instances.values().any(|instance| !instance.is_empty()) || state.subtasks.iter().any(of_subtask)
}

fn check_kind(uid: &str, kind: &VertexKind, state: &OperatorState, images: bool, at: &str) -> Result<(), JobError> {
    let positions = state.subtasks.iter().any(|subtask| !subtask.splits.is_empty());
    let committables = state.subtasks.iter().any(|subtask| !subtask.committables.is_empty());
    let was = match kind {
        VertexKind::Operator(_) | VertexKind::Sink(_) if positions => "a source",
        VertexKind::Source(_) | VertexKind::Sink(_) if images => "an operator",
        VertexKind::Source(_) | VertexKind::Operator(_) if committables => "a sink",
        _ => return Ok(()),
    };
    let is = match kind {
        VertexKind::Source(_) => "a source",
        VertexKind::Operator(_) => "an operator",
        VertexKind::Sink(_) => "a sink",
    };
    Err(JobError::Refused(format!(
        "cannot resume from {at}: `{uid}` was {was} and now is {is}, so its state would be lost; give the new one another id"
    )))
}

fn short(digest: &str) -> &str {
    digest.get(..12).unwrap_or(digest)
}
