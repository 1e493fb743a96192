//! Counts rows and drops them: for measuring what is before it. With a rate it is as slow as a system that is too slow.

use std::time::{Duration, Instant};

use serde_json::{Map, Value};
use weir_model::{BatchRef, CheckpointId};

use crate::settings::Settings;
use crate::{
    Committer, ConnectorError, Guarantee, NothingToCommit, Prepared, SettingError, Sink, SinkContext, SinkFactory, TakeBack,
};

/// Makes sinks that drop.
pub(crate) struct BlackholeFactory {
    /// Rows that all subtasks together take in a second; none: as many as come.
    rows_per_second: Option<u64>,
}

impl BlackholeFactory {
    pub(crate) fn from_settings(map: &Map<String, Value>) -> Result<BlackholeFactory, SettingError> {
        let settings = Settings::new("a blackhole sink", map, &["rows_per_second"])?;
        Ok(BlackholeFactory { rows_per_second: settings.number("rows_per_second", 1, 1 << 40)? })
    }
}

impl SinkFactory for BlackholeFactory {
    fn create(&self, context: &SinkContext) -> Result<Box<dyn Sink>, ConnectorError> {
        let per_second = |rows: u64| Duration::from_secs(1).mul_f64(f64::from(context.parallelism) / rows as f64);
        let row = self.rows_per_second.map(per_second);
        Ok(Box::new(Blackhole { context: context.clone(), rows: 0, bytes: 0, row, free_at: Instant::now() }))
    }

    fn committer(&self, _: &SinkContext) -> Result<Box<dyn Committer>, ConnectorError> {
        Ok(Box::new(NothingToCommit))
    }

    fn take_back(&self) -> TakeBack {
        TakeBack::NotNeeded
    }

    fn guarantee(&self) -> Guarantee {
        Guarantee::None
    }

    fn describe(&self) -> String {
        match self.rows_per_second {
            Some(rows) => format!("counts rows and drops them, {rows} a second"),
            None => "counts rows and drops them".to_owned(),
        }
    }
}

struct Blackhole {
    context: SinkContext,
    rows: u64,
    bytes: u64,
    /// Time a row takes, where it is slow.
    row: Option<Duration>,
    /// When it is through with what it was given.
    free_at: Instant,
}

impl Blackhole {
    /// Takes the time that a system of this rate would.
    fn hold(&mut self, rows: usize) {
        let Some(row) = self.row else { return };
        let now = Instant::now();
        self.free_at = self.free_at.max(now) + row.mul_f64(rows as f64);
        std::thread::sleep(self.free_at - now);
    }
}

impl Sink for Blackhole {
    fn write(&mut self, rows: BatchRef<'_>) -> Result<(), ConnectorError> {
        self.hold(rows.len());
        self.rows += rows.len() as u64;
        let headers = rows.extras.map_or(0, |extras| extras.headers.bytes.len());
        self.bytes += (rows.keys.bytes.len() + rows.values.bytes.len() + headers) as u64;
        Ok(())
    }

    fn prepare(&mut self, _: CheckpointId) -> Result<Prepared, ConnectorError> {
        Ok(Box::new(|| Ok(None)))
    }
}

impl Drop for Blackhole {
    fn drop(&mut self) {
        let SinkContext { uid, index, .. } = &self.context;
        tracing::debug!(sink = uid, subtask = index, rows = self.rows, bytes = self.bytes, "blackhole closed");
    }
}
