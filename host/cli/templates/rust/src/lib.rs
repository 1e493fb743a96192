//! {{name}}: counts the rows of each key. A starting point; change it into what you need.
//!
//! The fields of the struct are the operator's state. Weir snapshots the memory they live in, so they are durable and
//! exactly-once without any code here.

use weir_sdk::prelude::*;

/// The operator's `config` table in the job file.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Config {
    /// After how many rows of a key its count is sent on
    pub every: u64,
}

impl Default for Config {
    fn default() -> Config {
        Config { every: 1 }
    }
}

/// The operator.
#[derive(Debug)]
pub struct Count {
    every: u64,
    seen: KeyMap<u64>,
}

impl Operator for Count {
    type Config = Config;

    // What `weir component inspect` shows, and what job files call the outputs.
    fn describe() -> Description {
        Description::new("Counts the rows of each key").keyed_output("main", "How many rows of the key there were, as JSON")
    }

    fn open(config: Config, _: &Context) -> Result<Count, Error> {
        if config.every == 0 {
            return Err(Error::fail("`every` must be at least 1"));
        }
        Ok(Count { every: config.every, seen: KeyMap::default() })
    }

    fn process(&mut self, row: Row<'_>, out: &mut Outputs) -> Result<(), Error> {
        if !row.has_key() {
            // The row goes to the dead-letter output with this reason; the stream goes on.
            return Err(row.reject("the row has no key"));
        }
        // Where the memory is nearly full a new key is rejected; `or_default` would go on until the instance ends for it.
        let seen = self.seen.try_or_default(row.key())?;
        *seen += 1;
        if *seen % self.every == 0 {
            out.emit_json_value(row, seen)?; // under the key and time of the row
        }
        Ok(())
    }
}

// `portable = seen`: another version of this code can take over the counts.
weir_sdk::export!(Count, portable = seen);

#[cfg(test)]
mod tests {
    use super::*;
    use weir_sdk::testing::Harness;
    use weir_sdk::{Batch, NewRow};

    #[test]
    fn counts_the_rows_of_each_key() {
        let mut count = Harness::<Count>::new("{}");
        count.row(1, "anna", "x").row(2, "bert", "x").row(3, "anna", "x");
        assert_eq!(count.take_text(0), ["1 anna 1", "2 bert 1", "3 anna 2"]);
    }

    #[test]
    fn sends_a_count_on_after_every_so_many_rows() {
        let mut count = Harness::<Count>::new(r#"{ "every": 2 }"#);
        count.row(1, "anna", "x").row(2, "anna", "x").row(3, "anna", "x");
        assert_eq!(count.take_text(0), ["2 anna 2"]);
    }

    #[test]
    fn sets_a_row_without_a_key_aside() {
        let mut count = Harness::<Count>::new("{}");
        let mut rows = Batch::default();
        rows.push_row(NewRow { timestamp: 1, key: None, value: Some(b"x"), headers: &[] });
        count.try_batch(0, &rows).unwrap();
        assert_eq!(count.take_rejections()[0].reason, "the row has no key");
    }

    #[test]
    fn an_upgrade_keeps_the_counts() {
        let mut old = Harness::<Count>::new("{}");
        old.row(1, "anna", "x");
        let mut new = old.upgrade::<Count>("{}").unwrap();
        new.row(2, "anna", "x");
        assert_eq!(new.take_text(0), ["2 anna 2"]);
    }
}
