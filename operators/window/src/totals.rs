//! What is kept for a key in a window, and how it is written out.
//!
//! Whatever was accepted can always be added and merged: sums have room for as many numbers as can be counted, so that no row
//! can make a window fail later.

use weir_sdk::json::{append_integer, number_at, refuse_number};
use weir_sdk::prelude::*;
use weir_sdk::{Decimal, Port, Sum};

use crate::config::{Aggregate, NumberKind, Plan};

/// The greatest double that is taken: 2^64 of them still add up to one.
const FLOAT_MAX: f64 = 1e288;

/// What is kept for a key in a window.
pub(crate) trait Totals: Copy + Default + Serialize + for<'de> Deserialize<'de> + 'static {
    /// What one row contributes.
    type Part: Copy;

    /// Reads a row's part. Counts in `rounded` if it is not exactly what is written there.
    ///
    /// # Errors
    /// A rejection: why there is none.
    fn part(plan: &Plan, row: &Row<'_>, rounded: &mut u64) -> Result<Self::Part, Error>;

    /// Takes in a row.
    fn add(&mut self, part: Self::Part);

    /// Takes in the rows of another window.
    fn merge(&mut self, other: &Self);

    /// Appends `,"count":3` and so on.
    fn append_to(&self, aggregates: &[Aggregate], bytes: &mut Vec<u8>);
}

/// Rows only.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Rows(u64);

impl Totals for Rows {
    type Part = ();

    #[inline]
    fn part(_: &Plan, _: &Row<'_>, _: &mut u64) -> Result<(), Error> {
        Ok(())
    }

    #[inline]
    fn add(&mut self, (): ()) {
        self.0 += 1;
    }

    fn merge(&mut self, other: &Rows) {
        self.0 += other.0;
    }

    fn append_to(&self, aggregates: &[Aggregate], bytes: &mut Vec<u8>) {
        for _ in aggregates {
            append_count(self.0, bytes);
        }
    }
}

/// Rows and decimal numbers.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Numbers {
    count: u64,
    sum: Sum,
    min: Decimal,
    max: Decimal,
}

impl Totals for Numbers {
    type Part = Decimal;

    fn part(plan: &Plan, row: &Row<'_>, rounded: &mut u64) -> Result<Decimal, Error> {
        let Some(path) = &plan.field else { return Ok(Decimal::ZERO) };
        let text = number_at(path, row.present_value()?)?;
        let decimal = if plan.numbers == NumberKind::Exact {
            Decimal::parse(text)
        } else {
            Decimal::parse_rounded(text).map(|(decimal, was_rounded)| {
                *rounded += u64::from(was_rounded);
                decimal
            })
        };
        decimal.map_err(|error| refuse_number(path, text, error))
    }

    fn add(&mut self, part: Decimal) {
        let is_first = self.count == 0;
        self.count += 1;
        self.sum.add(part);
        self.min = if is_first { part } else { self.min.min(part) };
        self.max = if is_first { part } else { self.max.max(part) };
    }

    fn merge(&mut self, other: &Numbers) {
        match (self.count, other.count) {
            (_, 0) => {}
            (0, _) => *self = *other,
            _ => {
                self.count += other.count;
                self.sum.merge(&other.sum);
                self.min = self.min.min(other.min);
                self.max = self.max.max(other.max);
            }
        }
    }

    fn append_to(&self, aggregates: &[Aggregate], bytes: &mut Vec<u8>) {
        for aggregate in aggregates {
            match aggregate {
                Aggregate::Count => append_count(self.count, bytes),
                Aggregate::Sum => self.sum.append_to(named("sum", bytes)),
                Aggregate::Min => self.min.append_to(named("min", bytes)),
                Aggregate::Max => self.max.append_to(named("max", bytes)),
                Aggregate::Mean => self.sum.divided_by(self.count).unwrap_or_default().append_to(named("mean", bytes)),
            }
        }
    }
}

/// Rows and doubles.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Floats {
    count: u64,
    sum: f64,
    min: f64,
    max: f64,
}

impl Totals for Floats {
    type Part = f64;

    fn part(plan: &Plan, row: &Row<'_>, _: &mut u64) -> Result<f64, Error> {
        let Some(path) = &plan.field else { return Ok(0.0) };
        let text = number_at(path, row.present_value()?)?;
        match text.parse::<f64>() {
            Ok(number) if number.abs() <= FLOAT_MAX => Ok(number),
            Ok(_) => Err(refuse_number(path, text, "beyond 1e288")),
            Err(_) => Err(refuse_number(path, text, "not a number")),
        }
    }

    fn add(&mut self, part: f64) {
        self.merge(&Floats { count: 1, sum: part, min: part, max: part });
    }

    fn merge(&mut self, other: &Floats) {
        match (self.count, other.count) {
            (_, 0) => {}
            (0, _) => *self = *other,
            _ => {
                self.count += other.count;
                self.sum += other.sum;
                self.min = self.min.min(other.min);
                self.max = self.max.max(other.max);
            }
        }
    }

    fn append_to(&self, aggregates: &[Aggregate], bytes: &mut Vec<u8>) {
        for aggregate in aggregates {
            match aggregate {
                Aggregate::Count => append_count(self.count, bytes),
                Aggregate::Sum => append_float(self.sum, named("sum", bytes)),
                Aggregate::Min => append_float(self.min, named("min", bytes)),
                Aggregate::Max => append_float(self.max, named("max", bytes)),
                Aggregate::Mean => append_float(self.sum / self.count as f64, named("mean", bytes)),
            }
        }
    }
}

fn named<'a>(name: &str, bytes: &'a mut Vec<u8>) -> &'a mut Vec<u8> {
    bytes.extend_from_slice(b",\"");
    bytes.extend_from_slice(name.as_bytes());
    bytes.extend_from_slice(b"\":");
    bytes
}

/// The shortest text that means this number.
fn append_float(number: f64, bytes: &mut Vec<u8>) {
    weir_sdk::serde_json::to_writer(bytes, &number).expect("a finite number has a JSON form and memory takes it");
}

fn append_count(count: u64, bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(b",\"count\":");
    append_integer(bytes, count);
}

/// Writes the result of one window after the other: the part that all keys share is made once.
#[derive(Debug, Default)]
pub(crate) struct Results {
    timestamp: Timestamp,
    head: Vec<u8>,
}

impl Results {
    /// For the window from `start` to before `end`.
    pub(crate) fn of(start: Timestamp, end: Timestamp) -> Results {
        let mut head = b"{\"start\":".to_vec();
        append_integer(&mut head, start);
        head.extend_from_slice(b",\"end\":");
        append_integer(&mut head, end);
        Results { timestamp: end - 1, head }
    }

    /// Sends a key's result.
    pub(crate) fn send<T: Totals>(&self, plan: &Plan, key: &[u8], totals: &T, mut out: Port<'_>) {
        out.write(self.timestamp, key, |bytes| {
            bytes.extend_from_slice(&self.head);
            totals.append_to(&plan.aggregates, bytes);
            bytes.push(b'}');
        });
    }
}

/// Says how many numbers of a call were rounded.
pub(crate) fn count_rounded(rounded: u64) {
    if rounded > 0 {
        weir_sdk::metrics::add("numbers_rounded", rounded);
    }
}
