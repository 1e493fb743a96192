//! What is kept for a key in a window, and how it is written out.

use weir_sdk::json::{Path, append_integer};
use weir_sdk::prelude::*;
use weir_sdk::{Decimal, Port};

use crate::config::{Aggregate, Plan};

/// What is kept for a key in a window.
pub(crate) trait Totals: Copy + Default + Serialize + for<'de> Deserialize<'de> + 'static {
    /// What one row contributes.
    type Part: Copy;

    /// Reads a row's part.
    fn part(field: Option<&Path>, row: &Row<'_>) -> Result<Self::Part, Error>;

    /// Takes in a row. Nothing changes where it is refused.
    fn add(&mut self, part: Self::Part) -> Result<(), Error>;

    /// Takes in the rows of another window.
    fn merge(&mut self, other: &Self) -> Result<(), Error>;

    /// Appends `,"count":3` and so on.
    fn append_to(&self, aggregates: &[Aggregate], bytes: &mut Vec<u8>);
}

/// Rows only.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Rows(u64);

impl Totals for Rows {
    type Part = ();

    #[inline]
    fn part(_: Option<&Path>, _: &Row<'_>) -> Result<(), Error> {
        Ok(())
    }

    #[inline]
    fn add(&mut self, (): ()) -> Result<(), Error> {
        self.0 += 1;
        Ok(())
    }

    fn merge(&mut self, other: &Rows) -> Result<(), Error> {
        self.0 += other.0;
        Ok(())
    }

    fn append_to(&self, aggregates: &[Aggregate], bytes: &mut Vec<u8>) {
        for _ in aggregates {
            append_count(self.0, bytes);
        }
    }
}

/// Rows and numbers.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Numbers {
    count: u64,
    sum: Decimal,
    min: Decimal,
    max: Decimal,
}

impl Totals for Numbers {
    type Part = Decimal;

    fn part(field: Option<&Path>, row: &Row<'_>) -> Result<Decimal, Error> {
        let Some(path) = field else { return Ok(Decimal::ZERO) };
        let raw = path.find(row.value).or_reject("reading the value")?;
        let raw = raw.ok_or_else(|| Error::reject(format_args!("field `{path}` is missing")))?;
        let text = raw.number().ok_or_else(|| Error::reject(format_args!("field `{path}` is not a number")))?;
        Decimal::parse(text).map_err(|error| Error::reject(format_args!("field `{path}`: {text}: {error}")))
    }

    fn add(&mut self, part: Decimal) -> Result<(), Error> {
        self.merge(&Numbers { count: 1, sum: part, min: part, max: part })
    }

    fn merge(&mut self, other: &Numbers) -> Result<(), Error> {
        if self.count == 0 {
            *self = *other;
            return Ok(());
        }
        self.sum = self.sum.checked_add(other.sum).ok_or_else(|| Error::reject("the sum is out of range"))?;
        self.count += other.count;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        Ok(())
    }

    fn append_to(&self, aggregates: &[Aggregate], bytes: &mut Vec<u8>) {
        for aggregate in aggregates {
            let (name, number) = match aggregate {
                Aggregate::Count => {
                    append_count(self.count, bytes);
                    continue;
                }
                Aggregate::Sum => ("sum", self.sum),
                Aggregate::Min => ("min", self.min),
                Aggregate::Max => ("max", self.max),
                Aggregate::Mean => ("mean", self.sum.divided_by(self.count).unwrap_or_default()),
            };
            bytes.extend_from_slice(b",\"");
            bytes.extend_from_slice(name.as_bytes());
            bytes.extend_from_slice(b"\":");
            number.append_to(bytes);
        }
    }
}

fn append_count(count: u64, bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(b",\"count\":");
    append_integer(bytes, i64::try_from(count).unwrap_or(i64::MAX));
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
