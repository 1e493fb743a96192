//! Keeps the exact sum of an amount for each key. See README.md for its configuration.

use weir_sdk::json::{Path, append_integer};
use weir_sdk::prelude::*;
use weir_sdk::{Decimal, Port};

/// As written in the job file; see README.md.
#[derive(Debug, Deserialize)]
pub struct Config {
    field: Path,
    #[serde(default)]
    emit: Emit,
}

/// When totals are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
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
    total: Decimal,
    /// Greatest event time of its rows.
    last: Timestamp,
}

impl Operator for Ledger {
    type Config = Config;

    fn open(config: Config, _: &Context) -> Result<Ledger, Error> {
        Ok(Ledger { config, accounts: KeyMap::default() })
    }

    fn preview(&self, rows: BatchRef<'_>) {
        self.accounts.warm(rows.keys);
    }

    fn process(&mut self, row: Row<'_>, out: &mut Outputs) -> Result<(), Error> {
        let path = &self.config.field;
        let raw = path.find(row.value).or_reject("reading the value")?;
        let raw = raw.ok_or_else(|| row.reject(format_args!("field `{path}` is missing")))?;
        let text = raw.number().ok_or_else(|| row.reject(format_args!("field `{path}` is not a number")))?;
        let amount = Decimal::parse(text).map_err(|error| row.reject(format_args!("field `{path}`: {text}: {error}")))?;
        let before = self.accounts.get(row.key).copied();
        let total = before.unwrap_or_default().total.checked_add(amount);
        let total = total.ok_or_else(|| row.reject("the sum is out of range"))?;
        let account = Account {
            count: before.map_or(0, |account| account.count) + 1,
            total,
            last: before.map_or(row.timestamp, |account| account.last.max(row.timestamp)),
        };
        self.accounts.insert(row.key, account);
        if self.config.emit == Emit::Each {
            account.send(row.timestamp, row.key, out.to(0));
        }
        Ok(())
    }

    fn finish(&mut self, out: &mut Outputs) -> Result<(), Error> {
        if self.config.emit == Emit::End {
            self.accounts.for_each(|key, account| account.send(account.last, key, out.to(0)));
        }
        Ok(())
    }
}

impl Account {
    fn send(&self, timestamp: Timestamp, key: &[u8], mut out: Port<'_>) {
        out.write(timestamp, key, |bytes| {
            bytes.extend_from_slice(b"{\"count\":");
            append_integer(bytes, i64::try_from(self.count).unwrap_or(i64::MAX));
            bytes.extend_from_slice(b",\"total\":");
            self.total.append_to(bytes);
            bytes.push(b'}');
        });
    }
}

weir_sdk::export!(Ledger, portable = accounts);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use weir_sdk::testing::Harness;

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
    fn what_is_wrong_with_a_configuration_is_named() {
        let error = |config: &str| Harness::<Ledger>::try_new(config).unwrap_err();
        assert_eq!(error("{}"), "config: key `field` is missing");
        assert!(error(r#"{"field":"a","emit":"final"}"#).starts_with("config.emit: unknown value `final`"));
    }
}
