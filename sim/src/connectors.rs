//! The sources and sinks of simulated jobs, as workers find them.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde_json::{Map, Value};
use weir_connectors::{
    Committer, ConnectorError, Guarantee, SettingError, Sink, SinkContext, SinkFactory, Source, SourceFactory, TakeBack,
};
use weir_worker::Connectors;

use crate::clock::SimClock;
use crate::disk::Disk;
use crate::outside::{Outside, SimSink};
use crate::scenario::{Input, Mutation};
use crate::source::SimSource;

/// Makes both.
#[derive(Clone)]
pub(crate) struct SimConnectors {
    pub(crate) input: Arc<Input>,
    pub(crate) clock: Arc<SimClock>,
    pub(crate) outside: Arc<Outside>,
    pub(crate) disk: Disk,
    /// Rows that a source gives at once, at most.
    pub(crate) chunk: usize,
    /// What writing a row costs.
    pub(crate) row_us: u64,
    pub(crate) mutation: Option<Mutation>,
}

struct SimSourceFactory {
    of: SimConnectors,
    number: usize,
}

impl Connectors for SimConnectors {
    fn source(&self, _: &str, settings: &Map<String, Value>) -> Result<Box<dyn SourceFactory>, SettingError> {
        let number = usize::from(settings.get("of").and_then(Value::as_str) == Some("b"));
        Ok(Box::new(SimSourceFactory { of: self.clone(), number }))
    }

    fn sink(&self, _: &str, _: &Map<String, Value>) -> Result<Box<dyn SinkFactory>, SettingError> {
        Ok(Box::new(self.clone()))
    }
}

impl SourceFactory for SimSourceFactory {
    fn create(&self, index: u32, parallelism: u32) -> Result<Box<dyn Source>, ConnectorError> {
        let skip = u32::from(self.of.mutation == Some(Mutation::SkipRow));
        let place = (index, parallelism);
        Ok(Box::new(SimSource::new(self.of.input.clone(), self.of.clock.clone(), self.number, place, self.of.chunk, skip)))
    }

    fn is_replayable(&self) -> bool {
        true
    }

    fn describe(&self) -> String {
        format!("simulated source {}", self.number)
    }
}

impl SinkFactory for SimConnectors {
    fn create(&self, context: &SinkContext) -> Result<Box<dyn Sink>, ConnectorError> {
        Ok(Box::new(self.half(context)))
    }

    fn committer(&self, context: &SinkContext) -> Result<Box<dyn Committer>, ConnectorError> {
        Ok(Box::new(self.half(context)))
    }

    fn take_back(&self) -> TakeBack {
        TakeBack::Possible
    }

    fn guarantee(&self) -> Guarantee {
        Guarantee::ExactlyOnce
    }

    fn describe(&self) -> String {
        "simulated sink".to_owned()
    }
}

impl SimConnectors {
    /// Either half of a subtask.
    fn half(&self, context: &SinkContext) -> SimSink {
        SimSink {
            outside: self.outside.clone(),
            input: self.input.clone(),
            disk: self.disk.clone(),
            clock: self.clock.clone(),
            uid: context.uid.clone(),
            index: context.index,
            parallelism: context.parallelism,
            attempt: context.attempt,
            row_us: self.row_us,
            rows: Vec::new(),
            forgets: self.mutation == Some(Mutation::ForgetPrepared),
            unusable: Arc::new(AtomicBool::new(false)),
        }
    }
}
