//! Sinks before their tasks run: leftovers of earlier executions are removed, and output is taken back and committed as the checkpoint
//! says.
//!
//! In two steps, and the first is over on every worker before the second begins on any (it belongs to `Restore`): a task of an earlier
//! execution that stood still may commit at any time. Once nothing is left to commit but what the checkpoint holds, whatever it
//! has made visible is there to be taken back.

use std::collections::BTreeMap;

use serde_json::Value;
use weir_connectors::{ConnectorError, Sink, SinkContext};

use super::failure::{OfConnector, Trouble};
use super::prepare::PreparedJob;

/// Sinks by vertex and subtask.
pub(super) type Sinks = BTreeMap<(usize, u32), Box<dyn Sink>>;

/// The first step: the sinks of the subtasks that run here, with earlier leftovers removed.
pub(super) fn recover(job: &PreparedJob) -> Result<Sinks, Trouble> {
    let mut sinks = Sinks::new();
    for (_, chain, index) in job.subtasks() {
        let vertices = &job.topology.chains()[chain].vertices;
        for (&vertex, factory) in vertices.iter().filter_map(|vertex| job.sinks.get_key_value(vertex)) {
            let described = &job.job.vertices[vertex];
            let failed = |error| failed(&described.uid, error);
            let attempt = job.message.execution.attempt;
            let context = SinkContext { uid: described.uid.clone(), index, parallelism: described.parallelism, attempt };
            let mut sink = factory.create(&context).map_err(failed)?;
            sink.recover(&held(job, &described.uid)).map_err(failed)?;
            sinks.insert((vertex, index), sink);
        }
    }
    Ok(sinks)
}

/// The second: the first subtask of each sink takes back, and commits, what the checkpoint says for all.
pub(super) fn settle(job: &PreparedJob, sinks: &mut Sinks) -> Result<(), Trouble> {
    for (&(vertex, _), sink) in sinks.iter_mut().filter(|((_, index), _)| *index == 0) {
        let uid = &job.job.vertices[vertex].uid;
        let failed = |error| failed(uid, error);
        if let Some(checkpoint) = job.message.retract_after {
            let count = sink.retract(checkpoint).map_err(failed)?;
            if count > 0 {
                tracing::warn!(sink = uid, count, "output was taken back, since its rows are written again");
            }
        }
        held(job, uid).iter().try_for_each(|committable| sink.commit(committable)).map_err(failed)?;
    }
    Ok(())
}

/// All that the checkpoint holds for a sink, of all its subtasks, oldest first.
fn held(job: &PreparedJob, uid: &str) -> Vec<Value> {
    let subtasks = job.state(uid).into_iter().flat_map(|state| &state.subtasks);
    let mut held: Vec<_> = subtasks.flat_map(|subtask| &subtask.committables).collect();
    held.sort_by_key(|committable| committable.checkpoint);
    held.iter().map(|committable| committable.value.clone()).collect()
}

fn failed(uid: &str, error: ConnectorError) -> Trouble {
    OfConnector(&format!("sink {uid}"), error).into()
}
