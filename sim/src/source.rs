//! A source whose splits have all their rows from the start, each there from a certain time on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use weir_connectors::{ConnectorError, Polled, Source};
use weir_model::{Batch, RowRef};

use crate::clock::SimClock;
use crate::scenario::Input;

/// What a poll costs.
const POLL_US: u64 = 30;

/// One subtask of a source: every `parallelism`-th split.
pub(crate) struct SimSource {
    pub(crate) input: Arc<Input>,
    pub(crate) clock: Arc<SimClock>,
    pub(crate) source: usize,
    /// Split and position of each.
    splits: Vec<(usize, u32)>,
    next: usize,
    chunk: usize,
    /// Added to restored positions, where the simulation is to be proven.
    skip: u32,
}

impl SimSource {
    pub(crate) fn new(
        input: Arc<Input>,
        clock: Arc<SimClock>,
        source: usize,
        (index, parallelism): (u32, u32),
        chunk: usize,
        skip: u32,
    ) -> SimSource {
        let count = input.sources[source].len();
        let splits = (0..count).filter(|split| *split as u32 % parallelism == index).map(|split| (split, 0)).collect();
        SimSource { input, clock, source, splits, next: 0, chunk, skip }
    }
}

impl Source for SimSource {
    fn restore(&mut self, splits: &BTreeMap<String, Value>) -> Result<(), ConnectorError> {
        for (split, position) in &mut self.splits {
            let Some(value) = splits.get(&format!("s{split}")) else { continue };
            let Some(rows) = value.as_u64() else {
                return Err(ConnectorError::Position { split: split.to_string(), reason: format!("{value} is no number") });
            };
            let skip = if rows > 0 { self.skip } else { 0 };
            *position = (rows as u32 + skip).min(self.input.sources[self.source][*split].rows);
        }
        Ok(())
    }

    fn poll(&mut self, rows: &mut Batch, rows_max: usize, bytes_target: usize) -> Result<Polled, ConnectorError> {
        self.clock.spend(POLL_US);
        let now_us = self.clock.now_us();
        let mut soonest = None;
        for offset in 0..self.splits.len() {
            let at = (self.next + offset) % self.splits.len();
            let (split, position) = &mut self.splits[at];
            let of = &self.input.sources[self.source][*split];
            while *position < of.rows && of.at_us(*position) <= now_us {
                if rows.len() >= rows_max.min(self.chunk) || rows.size_bytes() >= bytes_target {
                    break;
                }
                let id = Input::id(self.source, *split, *position);
                let (key, value, headers) = (self.input.key(&id), self.input.value(&id), self.input.headers(&id));
                let timestamp = (of.at_us(*position) / 1_000) as i64;
                rows.push_row(RowRef { timestamp, key: key.as_deref(), value: Some(&value), headers: &headers });
                *position += 1;
            }
            if *position < of.rows {
                let at_us = of.at_us(*position);
                soonest = Some(soonest.map_or(at_us, |soonest: u64| soonest.min(at_us)));
            }
            if !rows.is_empty() {
                self.next = at + 1;
                break;
            }
        }
        Ok(match soonest {
            _ if !rows.is_empty() => Polled::Rows,
            None => Polled::Ended,
            Some(at_us) => Polled::Idle { retry_in: Duration::from_micros((at_us - now_us.min(at_us)).clamp(1, 20_000)) },
        })
    }

    fn position(&mut self) -> BTreeMap<String, Value> {
        self.splits.iter().map(|(split, position)| (format!("s{split}"), Value::from(*position))).collect()
    }
}
