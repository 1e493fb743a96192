//! Whether the sources of a job that had finished have more to read. Nothing is read here, and nothing changed.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use weir_connectors::More;
use weir_protocol::{Failure, Looked};

use super::deploy::{Deployer, connector_failure};

impl Deployer<'_> {
    /// Asks each source of which a subtask runs here.
    ///
    /// # Errors
    /// If a source cannot see its input.
    pub(super) fn look(&self) -> Result<Vec<Looked>, Failure> {
        let heads = self.subtasks().map(|(_, chain, _)| self.job.topology.chains()[chain].vertices[0]);
        let heads: BTreeSet<usize> = heads.collect();
        let sources = heads.iter().filter_map(|vertex| self.job.sources.get_key_value(vertex));
        sources.map(|(&vertex, source)| self.look_at(vertex, &**source)).collect()
    }

    fn look_at(&self, vertex: usize, source: &dyn weir_connectors::SourceFactory) -> Result<Looked, Failure> {
        let uid = self.job.job.vertices[vertex].uid.clone();
        let subtasks = self.state(&uid).into_iter().flat_map(|state| &state.subtasks);
        let splits: BTreeMap<String, Value> = subtasks.flat_map(|subtask| subtask.splits.clone()).collect();
        let more = source.more(&splits).map_err(|error| connector_failure(&format!("source {uid}"), &error))?;
        let (more, what) = match more {
            More::Some(what) => (true, what),
            More::Nothing(what) => (false, what),
        };
        Ok(Looked { uid, more, what })
    }
}
