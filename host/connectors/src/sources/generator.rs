//! Rows made from their position: the same position always gives the same row, so a restored job sees the same input.
//!
//! Row for row the generator of the Flink benchmark (bench/flink, Gen.java). The global range `[0, 2^42)` is divided into
//! P equal contiguous splits; `local` is the index within a split, `i` the global one:
//! - key: `floor(mix64(i) * K / 2^64)`, uniform over `[0, K)`, 8 bytes little-endian. Like Gen.java it drops the lowest bit of
//!   the product's first factor: `((mix64(i) >> 1) * 2K) >> 64`. With `prefill`, the first `K / P` rows of each split name
//!   every key once;
//! - value: fixed pseudo-random bytes (`java.util.Random(42)`), the first 8 of which are `i`, little-endian;
//! - timestamp: `start + local * P * ts_numerator / ts_denominator` milliseconds.
//!
//! Where it is asked for, some rows have no key, an empty key, no value, or a header `row` with `i` in decimal: those whose `i` is a multiple of
//! a number.
//!
//! The clock is read only to hold a rate; rows do not depend on it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use weir_model::{Batch, RowRef, Timestamp, limits, push_header};

use crate::settings::{Settings, error};
use crate::{ConnectorError, EventTime, EventTimeFormat, More, Polled, SettingError, Source, SourceFactory};

/// Size of the global range.
const COUNT: u64 = 1 << 42;

/// Rows that are copied from the template at a time; with their indices patched while they are in the first-level cache.
const BLOCK_ROWS: usize = 64;

/// How long a source that is ahead of its rate waits at most before it is asked again.
const RATE_WAIT_MAX: Duration = Duration::from_millis(20);

/// All settings.
const KNOWN: &[&str] = &[
    "rows",
    "rows_per_second",
    "keys",
    "value_bytes",
    "ts_numerator",
    "ts_denominator",
    "start",
    "splits",
    "prefill",
    "no_key_every",
    "empty_key_every",
    "no_value_every",
    "headers_every",
];

/// What to generate.
#[derive(Clone, Debug)]
struct GeneratorSettings {
    rows: Option<u64>,
    rows_per_second: Option<u64>,
    keys: u64,
    value_bytes: usize,
    ts_numerator: u64,
    ts_denominator: u64,
    start: Timestamp,
    splits: Option<u64>,
    prefill: bool,
    odd: OddRows,
}

/// Which rows have something that others do not: every so many of them, by `i`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct OddRows {
    no_key: Option<u64>,
    empty_key: Option<u64>,
    no_value: Option<u64>,
    headers: Option<u64>,
}

/// Makes generators.
pub(crate) struct GeneratorFactory(GeneratorSettings);

impl GeneratorFactory {
    pub(crate) fn from_settings(map: &Map<String, Value>) -> Result<GeneratorFactory, SettingError> {
        let settings = Settings::new("a generator source", map, KNOWN)?;
        let every = |key| settings.number(key, 1, COUNT);
        let splits = settings.number("splits", 1, u64::from(limits::PARALLELISM_MAX))?;
        Ok(GeneratorFactory(GeneratorSettings {
            rows: settings.number("rows", 0, COUNT / 2)?,
            rows_per_second: settings.number("rows_per_second", 1, 1 << 40)?,
            keys: settings.number("keys", 1, 1 << 62)?.unwrap_or(10_000),
            value_bytes: settings.size("value_bytes", 8, limits::FRAME_BYTES_TARGET as u64)?.unwrap_or(64) as usize,
            ts_numerator: settings.number("ts_numerator", 0, 1 << 20)?.unwrap_or(6),
            ts_denominator: settings.number("ts_denominator", 1, 1 << 40)?.unwrap_or(100),
            start: start(&settings)?,
            splits,
            prefill: settings.bool("prefill", false)?,
            odd: OddRows {
                no_key: every("no_key_every")?,
                empty_key: every("empty_key_every")?,
                no_value: every("no_value_every")?,
                headers: every("headers_every")?,
            },
        }))
    }
}

/// `start`: time of the first row, as milliseconds or RFC 3339.
fn start(settings: &Settings<'_>) -> Result<Timestamp, SettingError> {
    let time = match settings.value("start") {
        None => return Ok(0),
        Some(Value::String(text)) => {
            let as_is = |format| EventTime::new(None, format).ok().and_then(|time| time.of(text.as_bytes()));
            as_is(EventTimeFormat::Rfc3339).or_else(|| as_is(EventTimeFormat::UnixMs))
        }
        Some(other) => other.as_i64(),
    };
    let expected = "expected a time such as \"2026-01-01T00:00:00Z\", or milliseconds since 1970";
    time.filter(|time| time.abs() < 1 << 55).ok_or_else(|| error("start", expected, None))
}

impl OddRows {
    /// Appends row `i`, without what it is not to have and with what it is to have.
    fn push(self, mut row: RowRef<'_>, i: u64, batch: &mut Batch) {
        let is_one = |every: Option<u64>| every.is_some_and(|every| i.is_multiple_of(every));
        let mut headers = Vec::new();
        if is_one(self.no_key) {
            row.key = None;
        } else if is_one(self.empty_key) {
            row.key = Some(b"");
        }
        if is_one(self.no_value) {
            row.value = None;
        }
        if is_one(self.headers) {
            push_header(&mut headers, b"row", i.to_string().as_bytes());
        }
        batch.push_row(RowRef { headers: &headers, ..row });
    }
}

impl SourceFactory for GeneratorFactory {
    fn create(&self, index: u32, parallelism: u32) -> Result<Box<dyn Source>, ConnectorError> {
        Ok(Box::new(Generator::new(self.0.clone(), index, parallelism)))
    }

    fn is_replayable(&self) -> bool {
        true
    }

    fn more(&self, splits: &BTreeMap<String, Value>) -> Result<More, ConnectorError> {
        let mut generator = Generator::new(self.0.clone(), 0, 1);
        generator.restore(splits)?;
        let left: u64 = generator.splits.iter().map(|split| split.end.saturating_sub(split.local)).sum();
        Ok(if left > 0 { More::Some(format!("{left} rows")) } else { More::Nothing(self.describe()) })
    }

    fn describe(&self) -> String {
        let GeneratorSettings { rows, rows_per_second, keys, value_bytes, .. } = &self.0;
        let rows = rows.map_or("rows without end".to_owned(), |rows| format!("{rows} rows"));
        let rate = rows_per_second.map_or(String::new(), |rate| format!(", {rate} a second"));
        format!("generates {rows}{rate}: {keys} keys, values of {value_bytes} bytes")
    }
}

/// One contiguous part of the range.
struct Split {
    number: u64,
    /// Index within the split of the next row.
    local: u64,
    /// Where it ends.
    end: u64,
}

struct Generator {
    settled: GeneratorSettings,
    index: u32,
    parallelism: u32,
    /// Splits of the whole source (P).
    splits_total: u64,
    /// Mine.
    splits: Vec<Split>,
    /// `BLOCK_ROWS` values without their indices.
    template: Vec<u8>,
    /// Rows before some of them are made odd.
    plain: Batch,
    /// Since when rows are counted against the rate, and how many there were.
    paced: Option<(Instant, u64)>,
}

impl Generator {
    fn new(settled: GeneratorSettings, index: u32, parallelism: u32) -> Generator {
        let splits_total = settled.splits.unwrap_or(u64::from(parallelism));
        let template = random_bytes(settled.value_bytes).repeat(BLOCK_ROWS);
        let mut generator = Generator {
            settled,
            index,
            parallelism,
            splits_total,
            splits: Vec::new(),
            template,
            plain: Batch::default(),
            paced: None,
        };
        generator.assign();
        generator
    }

    /// Takes the splits of this subtask, from their beginnings.
    fn assign(&mut self) {
        let (index, parallelism, total) = (u64::from(self.index), u64::from(self.parallelism), self.splits_total);
        let end = |number: u64| match self.settled.rows {
            Some(rows) => rows / total + u64::from(number < rows % total),
            None => COUNT / total,
        };
        let mine = (0..total).filter(|number| number % parallelism == index);
        self.splits = mine.map(|number| Split { number, local: 0, end: end(number) }).collect();
    }

    /// Subtasks that have a split, which share the rate. Those are the first ones.
    fn sharers(&self) -> u32 {
        self.parallelism.min(self.splits_total as u32)
    }

    /// How many rows the rate allows now.
    fn allowance(&self) -> u64 {
        let Some(rate) = self.settled.rows_per_second else { return u64::MAX };
        let Some((since, given)) = self.paced else { return 0 };
        // This subtask's share of all rows that are due, rounded so that the shares add up to the whole.
        let due = since.elapsed().as_nanos() * u128::from(rate) / 1_000_000_000;
        let sharers = self.sharers();
        let share = (due + u128::from(sharers - 1 - self.index)) / u128::from(sharers);
        u64::try_from(share).unwrap_or(u64::MAX).saturating_sub(given)
    }

    fn fill(&mut self, split: usize, rows: u64, batch: &mut Batch) {
        let Split { number, local, .. } = self.splits[split];
        let first = number * (COUNT / self.splits_total) + local;
        if self.settled.odd == OddRows::default() {
            self.fill_columns(number, local, rows, batch);
        } else {
            let mut plain = std::mem::take(&mut self.plain);
            plain.clear();
            self.fill_columns(number, local, rows, &mut plain);
            plain.rows().zip(first..).for_each(|(row, i)| self.settled.odd.push(row, i, batch));
            self.plain = plain;
        }
        self.splits[split].local += rows;
    }

    fn fill_columns(&self, split: u64, local: u64, rows: u64, batch: &mut Batch) {
        let first = split * (COUNT / self.splits_total) + local;
        self.fill_keys(split, local, first, rows, batch);
        self.fill_values(first, rows, batch);
        self.fill_timestamps(local, rows, batch);
    }

    fn fill_keys(&self, split: u64, local: u64, first: u64, rows: u64, batch: &mut Batch) {
        let keys = &mut batch.keys;
        let GeneratorSettings { keys: k, prefill, .. } = self.settled;
        let enumerated = if prefill { (k / self.splits_total).saturating_sub(local).min(rows) } else { 0 };
        keys.bytes.reserve(rows as usize * 8);
        keys.bytes.extend((local..local + enumerated).flat_map(|local| (local * self.splits_total + split).to_le_bytes()));
        let mut block = [0; BLOCK_ROWS * 8];
        let mut i = first + enumerated;
        while i < first + rows {
            let count = (first + rows - i).min(BLOCK_ROWS as u64) as usize;
            for (key, i) in block.as_chunks_mut::<8>().0[..count].iter_mut().zip(i..) {
                *key = key_of(i, k).to_le_bytes();
            }
            keys.bytes.extend_from_slice(&block[..count * 8]);
            i += count as u64;
        }
        extend_ends(&mut keys.ends, rows, 8);
    }

    fn fill_values(&self, first: u64, rows: u64, batch: &mut Batch) {
        let width = self.settled.value_bytes;
        let values = &mut batch.values;
        values.bytes.reserve(rows as usize * width);
        let mut done = 0;
        while done < rows {
            let count = (rows - done).min(BLOCK_ROWS as u64);
            let start = values.bytes.len();
            values.bytes.extend_from_slice(&self.template[..count as usize * width]);
            for (value, i) in values.bytes[start..].chunks_exact_mut(width).zip(first + done..) {
                value[..8].copy_from_slice(&i.to_le_bytes());
            }
            done += count;
        }
        extend_ends(&mut values.ends, rows, width as u32);
    }

    /// `local * P * numerator / denominator` without a division a row: quotient and remainder grow by fixed steps.
    fn fill_timestamps(&self, local: u64, rows: u64, batch: &mut Batch) {
        let GeneratorSettings { ts_numerator, ts_denominator: denominator, start, .. } = self.settled;
        let step = self.splits_total * ts_numerator;
        let at = u128::from(local) * u128::from(step);
        let mut quotient = start.wrapping_add((at / u128::from(denominator)) as i64);
        let mut remainder = (at % u128::from(denominator)) as u64;
        let (step_quotient, step_remainder) = ((step / denominator) as i64, step % denominator);
        batch.timestamps.extend((0..rows).map(|_| {
            let timestamp = quotient;
            quotient = quotient.wrapping_add(step_quotient);
            remainder += step_remainder;
            if remainder >= denominator {
                remainder -= denominator;
                quotient = quotient.wrapping_add(1);
            }
            timestamp
        }));
    }
}

impl Source for Generator {
    fn restore(&mut self, splits: &BTreeMap<String, Value>) -> Result<(), ConnectorError> {
        let Some((id, position)) = splits.first_key_value() else { return Ok(()) };
        let refuse = |id: &str, reason: String| ConnectorError::Position { split: id.to_owned(), reason };
        let total = position["splits"].as_u64().filter(|total| (1..=u64::from(limits::PARALLELISM_MAX)).contains(total));
        let Some(total) = total else { return Err(refuse(id, format!("{position} is not the position of a generator"))) };
        if let Some(wanted) = self.settled.splits.filter(|&wanted| wanted != total) {
            return Err(refuse(id, format!("the checkpoint has {total} splits, the job file says splits = {wanted}")));
        }
        self.splits_total = total;
        self.assign();
        for split in &mut self.splits {
            let id = split.number.to_string();
            let next = splits.get(&id).and_then(|position| position["next"].as_u64());
            split.local = next.ok_or_else(|| refuse(&id, "its position is not in the checkpoint".to_owned()))?;
        }
        Ok(())
    }

    fn poll(&mut self, batch: &mut Batch, rows_max: usize, bytes_target: usize) -> Result<Polled, ConnectorError> {
        // The split that is furthest behind, so that event time advances alike in all.
        let next =
            (0..self.splits.len()).filter(|&s| self.splits[s].local < self.splits[s].end).min_by_key(|&s| self.splits[s].local);
        let Some(next) = next else { return Ok(Polled::Ended) };
        if self.paced.is_none() {
            self.paced = Some((Instant::now(), 0));
        }
        let fitting = bytes_target.div_ceil(self.settled.value_bytes + 8).min(rows_max).max(1) as u64;
        let left = self.splits[next].end - self.splits[next].local;
        let rows = fitting.min(left).min(self.allowance());
        if rows == 0 {
            let rate = self.settled.rows_per_second.unwrap_or(1);
            let row = Duration::from_secs_f64(f64::from(self.sharers()) / rate as f64);
            return Ok(Polled::Idle { retry_in: row.clamp(Duration::from_millis(1), RATE_WAIT_MAX) });
        }
        self.fill(next, rows, batch);
        if let Some((_, given)) = &mut self.paced {
            *given += rows;
        }
        Ok(Polled::Rows)
    }

    fn position(&mut self) -> BTreeMap<String, Value> {
        let total = self.splits_total;
        self.splits.iter().map(|split| (split.number.to_string(), json!({"next": split.local, "splits": total}))).collect()
    }
}

/// Appends the ends of `rows` items of one width.
fn extend_ends(ends: &mut Vec<u32>, rows: u64, width: u32) {
    let base = ends.last().copied().unwrap_or(0);
    ends.extend((1..=rows as u32).map(|n| base + n * width));
}

fn mix64(z: u64) -> u64 {
    let z = z.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[inline]
fn key_of(i: u64, k: u64) -> u64 {
    ((u128::from(mix64(i) >> 1) * u128::from(k << 1)) >> 64) as u64
}

/// What `java.util.Random(42).nextBytes` gives.
fn random_bytes(count: usize) -> Vec<u8> {
    const MULTIPLIER: u64 = 0x5_DEEC_E66D;
    const MASK: u64 = (1 << 48) - 1;
    let mut state = (42 ^ MULTIPLIER) & MASK;
    let mut bytes = Vec::with_capacity(count + 4);
    while bytes.len() < count {
        state = state.wrapping_mul(MULTIPLIER).wrapping_add(0xB) & MASK;
        bytes.extend_from_slice(&((state >> 16) as u32).to_le_bytes());
    }
    bytes.truncate(count);
    bytes
}

#[cfg(test)]
mod tests;
