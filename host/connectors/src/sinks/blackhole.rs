//! Counts rows and drops them: for measuring what is before it.

use serde_json::{Map, Value};
use weir_model::{BatchRef, CheckpointId};

use crate::settings::Settings;
use crate::{ConnectorError, Guarantee, Prepared, SettingError, Sink, SinkContext, SinkFactory};

/// Makes sinks that drop.
pub(crate) struct BlackholeFactory;

impl BlackholeFactory {
    pub(crate) fn from_settings(map: &Map<String, Value>) -> Result<BlackholeFactory, SettingError> {
        Settings::new("a blackhole sink", map, &[])?;
        Ok(BlackholeFactory)
    }
}

impl SinkFactory for BlackholeFactory {
    fn create(&self, context: &SinkContext) -> Result<Box<dyn Sink>, ConnectorError> {
        Ok(Box::new(Blackhole { context: context.clone(), rows: 0, bytes: 0 }))
    }

    fn guarantee(&self) -> Guarantee {
        Guarantee::None
    }

    fn describe(&self) -> String {
        "counts rows and drops them".to_owned()
    }
}

struct Blackhole {
    context: SinkContext,
    rows: u64,
    bytes: u64,
}

impl Sink for Blackhole {
    fn write(&mut self, rows: BatchRef<'_>) -> Result<(), ConnectorError> {
        self.rows += rows.len() as u64;
        self.bytes += (rows.keys.bytes.len() + rows.values.bytes.len()) as u64;
        Ok(())
    }

    fn prepare(&mut self, _: CheckpointId) -> Result<Prepared, ConnectorError> {
        Ok(Box::new(|| Ok(None)))
    }

    fn commit(&mut self, _: &Value) -> Result<(), ConnectorError> {
        Ok(())
    }

    fn recover(&mut self, _: &[Value]) -> Result<(), ConnectorError> {
        Ok(())
    }
}

impl Drop for Blackhole {
    fn drop(&mut self) {
        let SinkContext { uid, index, .. } = &self.context;
        tracing::debug!(sink = uid, subtask = index, rows = self.rows, bytes = self.bytes, "blackhole closed");
    }
}
