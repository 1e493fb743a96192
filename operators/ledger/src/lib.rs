//! Keeps the exact sum of an amount for each key. See README.md for its configuration.
//!
//! What was accepted can always be added: a sum has room for as many amounts as can be counted.

use weir_sdk::json::{Path, append_integer, number_at, refuse_number};
use weir_sdk::prelude::*;
use weir_sdk::{Decimal, Sum, metrics};

/// What is added up, and when it is told.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Config {
    /// Path of the amount in the value
    field: Path,
    /// How amounts are taken
    #[serde(default)]
    numbers: Numbers,
    /// When totals are sent
    #[serde(default)]
    emit: Emit,
}

/// How amounts are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Numbers {
    /// As they are; those with more than 9 digits after the point are rejected.
    #[default]
    Exact,
    /// To 9 digits after the point.
    Rounded,
}

/// When totals are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Emit {
    /// A key's total after each of its rows.
    #[default]
    Each,
    /// Each key's total when all inputs have ended.
    End,
}

/// The operator.
#[derive(Debug)]
pub struct Ledger {
    config: Config,
    accounts: KeyMap<Account>,
}

/// What is known about a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Account {
    count: u64,
    total: Sum,
    /// Greatest event time of its rows.
    last: Timestamp,
}

impl Operator for Ledger {
    type Config = Config;

    fn describe() -> Description {
        Description::new("Keeps the exact sum of an amount for each key").keyed_output("main", "Count and total of a key")
    }

    fn open(config: Config, _: &Context) -> Result<Ledger, Error> {
        Ok(Ledger { config, accounts: KeyMap::default() })
    }

    fn preview(&self, rows: BatchRef<'_>) {
        self.accounts.warm(rows.keys());
    }

    fn process(&mut self, row: Row<'_>, out: &mut Outputs) -> Result<(), Error> {
        let amount = self.config.amount(row.present_value()?)?;
        let account = self.accounts.try_or_default(row.key())?;
        account.last = if account.count == 0 { row.timestamp() } else { account.last.max(row.timestamp()) };
        account.count += 1;
        account.total.add(amount);
        if self.config.emit == Emit::Each {
            out.to(0).write_value(row, |bytes| account.append_to(bytes));
        }
        Ok(())
    }

    fn finish(&mut self, out: &mut Outputs) -> Result<(), Error> {
        if self.config.emit == Emit::End {
            self.accounts.for_each(|key, account| out.to(0).write(account.last, key, |bytes| account.append_to(bytes)));
        }
        Ok(())
    }
}

impl Config {
    fn amount(&self, value: &[u8]) -> Result<Decimal, Error> {
        let text = number_at(&self.field, value)?;
        let refuse = |error| refuse_number(&self.field, text, error);
        match self.numbers {
            Numbers::Exact => Decimal::parse(text).map_err(refuse),
            Numbers::Rounded => {
                let (amount, was_rounded) = Decimal::parse_rounded(text).map_err(refuse)?;
                if was_rounded {
                    metrics::add("numbers_rounded", 1);
                }
                Ok(amount)
            }
        }
    }
}

impl Account {
    fn append_to(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(b"{\"count\":");
        append_integer(bytes, self.count);
        bytes.extend_from_slice(b",\"total\":");
        self.total.append_to(bytes);
        bytes.push(b'}');
    }
}

weir_sdk::export!(Ledger, portable = accounts);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use weir_sdk::testing::Harness;
    use weir_sdk::{Batch, KEY_ABSENT, NewRow};

    #[test]
    fn totals_are_exact_after_each_row() {
        let mut ledger = Harness::<Ledger>::new(r#"{"field":"/amount"}"#);
        ledger.row(1, "a", r#"{"amount":0.10}"#).row(2, "a", r#"{"amount":0.20}"#).row(3, "b", r#"{"amount":"-5"}"#);
        assert_eq!(
            ledger.take_text(0),
            [r#"1 a {"count":1,"total":0.1}"#, r#"2 a {"count":2,"total":0.3}"#, r#"3 b {"count":1,"total":-5}"#]
        );
        ledger.finish();
        assert!(ledger.take(0).is_empty());
    }

    #[test]
    fn s112_a_total_stands_under_the_key_time_and_headers_of_its_row() {
        let mut ledger = Harness::<Ledger>::new(r#"{"field":"amount"}"#);
        let mut batch = Batch::default();
        batch.push_row(NewRow { timestamp: 3, key: None, value: Some(br#"{"amount":1}"#), headers: &[("trace", b"7")] });
        ledger.try_batch(0, &batch).unwrap();
        let rows = ledger.take(0);
        assert_eq!((rows[0].timestamp, rows[0].absent), (3, KEY_ABSENT));
        assert_eq!(rows[0].headers, [(b"trace".to_vec(), b"7".to_vec())]);
        assert_eq!(rows[0].value, br#"{"count":1,"total":1}"#);
    }

    #[test]
    fn totals_can_wait_for_the_end_and_survive_an_upgrade() {
        let config = r#"{"field":"amount","emit":"end"}"#;
        let mut old = Harness::<Ledger>::new(config);
        old.row(9, "a", r#"{"amount":1.25}"#).row(4, "a", r#"{"amount":1}"#);
        assert!(old.take(0).is_empty());
        let mut new = old.upgrade::<Ledger>(config).unwrap();
        new.row(5, "a", r#"{"amount":-0.25}"#).finish();
        assert_eq!(new.take_text(0), [r#"9 a {"count":3,"total":2}"#]);
    }

    #[test]
    fn rows_without_an_amount_are_rejected_and_change_nothing() {
        let mut ledger = Harness::<Ledger>::new(r#"{"field":"amount"}"#);
        ledger.row(1, "a", "{}").row(1, "a", r#"{"amount":[]}"#).row(1, "a", r#"{"amount":1e-12}"#);
        let reasons: Vec<String> = ledger.take_rejections().into_iter().map(|rejected| rejected.reason).collect();
        assert_eq!(
            reasons,
            [
                "field `amount` is missing",
                "field `amount` is not a number",
                "field `amount`: 1e-12: more than 9 digits after the point"
            ]
        );
        ledger.row(1, "a", r#"{"amount":1}"#);
        assert_eq!(ledger.take_text(0), [r#"1 a {"count":1,"total":1}"#]);
    }

    #[test]
    fn a2_doubles_are_rounded_where_that_is_asked_for() {
        let mut ledger = Harness::<Ledger>::new(r#"{"field":"amount","numbers":"rounded"}"#);
        ledger.row(1, "a", r#"{"amount":0.30000000000000004}"#).row(1, "a", r#"{"amount":1}"#).row(1, "a", r#"{"amount":1e30}"#);
        assert_eq!(ledger.take_text(0), [r#"1 a {"count":1,"total":0.3}"#, r#"1 a {"count":2,"total":1.3}"#]);
        assert_eq!(ledger.counter("numbers_rounded"), 1);
        assert_eq!(ledger.take_rejections()[0].reason, "field `amount`: 1e30: more than 29 digits before the point");
    }

    #[test]
    fn no_amount_makes_a_later_one_overflow() {
        let config = r#"{"field":"amount"}"#;
        let mut ledger = Harness::<Ledger>::new(config);
        let large = r#"{"amount":1e29}"#;
        ledger.row(1, "a", large).row(1, "a", large).row(1, "a", large);
        let mut ledger = ledger.upgrade::<Ledger>(config).unwrap();
        ledger.row(1, "a", r#"{"amount":-0.5}"#);
        assert!(ledger.take_rejections().is_empty());
        assert_eq!(ledger.take_text(0), [r#"1 a {"count":4,"total":299999999999999999999999999999.5}"#]);
    }

    #[test]
    fn new_keys_are_rejected_where_memory_is_full() {
        let mut ledger = Harness::<Ledger>::new(r#"{"field":"amount","emit":"end"}"#);
        let long = "a key that does not fit in the table ";
        ledger.row(1, long, r#"{"amount":1}"#);
        ledger.set_room(Some(0));
        ledger.row(2, long, r#"{"amount":2}"#).row(2, format!("{long} 2"), r#"{"amount":4}"#);
        let rejected = ledger.take_rejections();
        assert!(rejected.len() == 1 && rejected[0].reason.contains("raise limits.memory"), "{rejected:?}");
        ledger.finish();
        assert_eq!(ledger.take_text(0), [format!(r#"2 {long} {{"count":2,"total":3}}"#)]);
    }

    #[test]
    fn what_is_wrong_with_a_configuration_is_named() {
        let error = |config: &str| Harness::<Ledger>::try_new(config).unwrap_err();
        assert_eq!(error("{}"), "config: key `field` is missing");
        assert!(error(r#"{"field":"a","emit":"final"}"#).starts_with("config.emit: unknown value `final`"));
    }
}
