//! Running `open` of operators: what comes of it is the template of all their instances.

use std::sync::Arc;

use weir_model::{CheckpointId, TaskId};
use weir_sandbox::{OperatorContext, Template};
use weir_storage::{Segment, StorageError, again};

use super::failure::{OfOperator, Trouble};
use super::host::{Metrics, OperatorHost};
use super::prepare::{PreparedJob, limits};
use crate::persist::RETRY_DELAY;

/// Number of the task in the name of a file that holds a template; counts down from here.
const TEMPLATE_TASK_MAX: u32 = u32::MAX;

/// Runs `open` of operators that have no template yet, and stores what came of it, if that is wanted.
pub(super) fn open(job: &PreparedJob, uids: &[String], store: bool) -> Result<Vec<(String, Segment)>, Trouble> {
    let mut stored = Vec::new();
    for (index, uid) in uids.iter().enumerate() {
        let Some((vertex, prepared)) = job.job.vertex(uid).and_then(|vertex| Some((vertex, job.components.get(&vertex)?))) else {
            return Err(Trouble::transient(format!("operator {uid} was to be opened at a worker that does not run it")));
        };
        let spec = job.operator(vertex);
        let context = OperatorContext {
            job: job.job.name.clone(),
            operator: uid.clone(),
            component: prepared.name.clone(),
            config: spec.config.to_string(),
        };
        let host = operator_host(job, uid, &Metrics::default());
        let template = Template::open(&prepared.component, &spec.description, &context, &limits(spec), host)
            .map_err(|error| OfOperator(uid, error))?;
        if store {
            let segment = write(job, &template, TEMPLATE_TASK_MAX - index as u32)?;
            stored.push((uid.clone(), segment));
        }
    }
    Ok(stored)
}

/// The ear of an operator of a job.
pub(super) fn operator_host(job: &PreparedJob, uid: &str, metrics: &Metrics) -> Arc<OperatorHost> {
    Arc::new(OperatorHost::new(job.job.name.as_str().into(), uid.into(), metrics))
}

fn write(job: &PreparedJob, template: &Template, number: u32) -> Result<Segment, StorageError> {
    let image = template.encode();
    again(RETRY_DELAY, || {
        let at = before(job.message.first_checkpoint);
        let mut writer = job.storage.writer(job.message.execution.attempt, at, TaskId(number));
        let segment = writer.append(&image)?;
        writer.finish()?;
        Ok(segment)
    })
}

/// The first number of a checkpoint: what is stored before it carries the one below.
fn before(first: CheckpointId) -> CheckpointId {
    CheckpointId(first.0.saturating_sub(1))
}
