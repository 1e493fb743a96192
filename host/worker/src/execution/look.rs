//! Whether the sources of a job that had finished have more to read. Nothing is read here, and nothing changed.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use weir_connectors::{More, SourceFactory};
use weir_protocol::Looked;

use super::failure::{OfConnector, Trouble};
use super::prepare::PreparedJob;

/// Asks each source of which a subtask runs here.
///
/// # Errors
/// If a source cannot see its input.
pub(super) fn look(job: &PreparedJob) -> Result<Vec<Looked>, Trouble> {
    let heads: BTreeSet<usize> = job.subtasks().map(|(_, chain, _)| job.topology.chains()[chain].vertices[0]).collect();
    let sources = heads.iter().filter_map(|vertex| job.sources.get_key_value(vertex));
    sources.map(|(&vertex, source)| look_at(job, vertex, &**source)).collect()
}

fn look_at(job: &PreparedJob, vertex: usize, source: &dyn SourceFactory) -> Result<Looked, Trouble> {
    let uid = job.job.vertices[vertex].uid.clone();
    let subtasks = job.state(&uid).into_iter().flat_map(|state| &state.subtasks);
    let splits: BTreeMap<String, Value> = subtasks.flat_map(|subtask| subtask.splits.clone()).collect();
    let more = source.more(&splits).map_err(|error| Trouble::from(OfConnector(&format!("source {uid}"), error)))?;
    let (more, what) = match more {
        More::Some(what) => (true, what),
        More::Nothing(what) => (false, what),
    };
    Ok(Looked { uid, more, what })
}
