//! Passes on the rows whose value meets conditions. See README.md for its configuration. Keeps no state.

mod condition;

use weir_sdk::prelude::*;

use condition::Condition;

/// Conditions on the value of a row.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Config {
    /// Conditions that must all hold
    #[serde(default)]
    all: Vec<Condition>,
    /// Conditions of which one must hold
    #[serde(default)]
    any: Vec<Condition>,
    /// What becomes of rows that do not pass
    #[serde(default)]
    dropped: Dropped,
}

/// What becomes of the rows that do not meet the conditions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Dropped {
    #[default]
    Discard,
    Output,
}

/// The operator.
#[derive(Debug)]
pub struct Filter {
    config: Config,
}

impl Operator for Filter {
    type Config = Config;

    fn describe() -> Description {
        Description::new("Passes on the rows whose value meets conditions")
            .keyed_output("main", "Rows that meet the conditions")
            .keyed_output("dropped", "The others, with dropped = \"output\"")
            .pure()
    }

    fn columns(&self, _: u32) -> Columns {
        Columns::VALUES
    }

    fn open(config: Config, _: &Context) -> Result<Filter, Error> {
        if config.all.is_empty() && config.any.is_empty() {
            return Err(Error::fail(
                "config: give conditions under `all` or `any`, for example all = [{ field = \"status\", ge = 500 }]",
            ));
        }
        for (list, conditions) in [("all", &config.all), ("any", &config.any)] {
            for (index, condition) in conditions.iter().enumerate() {
                condition.check().map_err(|problem| Error::fail(format!("config.{list}.{index}: {problem}")))?;
            }
        }
        Ok(Filter { config })
    }

    fn process(&mut self, row: Row<'_>, out: &mut Outputs) -> Result<(), Error> {
        let Config { all, any, dropped } = &self.config;
        let value = row.present_value()?;
        let mut passes = true;
        for condition in all {
            passes = passes && condition.holds(value).or_reject("reading the value")?;
        }
        if passes && !any.is_empty() {
            passes = false;
            for condition in any {
                passes = passes || condition.holds(value).or_reject("reading the value")?;
            }
        }
        if passes {
            out.forward(row);
        } else if *dropped == Dropped::Output {
            out.to(1).forward(row);
        }
        Ok(())
    }
}

weir_sdk::export!(Filter, stateless);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use weir_sdk::testing::Harness;
    use weir_sdk::{Batch, KEY_ABSENT, NewRow, serde_json};

    #[test]
    fn all_and_any_are_both_needed() {
        let mut filter = Harness::<Filter>::new(
            r#"{"all":[{"field":"status","ge":400,"lt":500}],"any":[{"field":"path","prefix":"/a"},{"field":"path","eq":"/b"}],"dropped":"output"}"#,
        );
        for (status, path) in [(404, "/a/1"), (404, "/b"), (404, "/b/1"), (500, "/b"), (399, "/a")] {
            filter.row(1, "k", format!("{{\"status\":{status},\"path\":\"{path}\"}}"));
        }
        assert_eq!(filter.take(0).len(), 2);
        assert_eq!(filter.take(1).len(), 3);
    }

    #[test]
    fn rows_that_do_not_pass_are_discarded_unless_asked_for() {
        let mut filter = Harness::<Filter>::new(r#"{"any":[{"field":"a","exists":true}]}"#);
        filter.row(1, "k", "{}").row(2, "k", r#"{"a":null}"#).row(3, "k", r#"{"a":0}"#).row(4, "k", "{");
        assert_eq!(filter.take_text(0), [r#"3 k {"a":0}"#]);
        assert!(filter.take(1).is_empty());
        assert_eq!(filter.take_rejections()[0].reason, "reading the value: not JSON at byte 1");
    }

    /// A row that cannot be compared is rejected; only what was compared is dropped.
    #[test]
    fn what_cannot_be_read_is_rejected_with_the_reason() {
        let mut filter = Harness::<Filter>::new(r#"{"all":[{"field":"a","ne":"x"}]}"#);
        let rows: [&[u8]; 4] = [br#"{"a":"\ud800"}"#, b"{\"a\":\"caf\xE9\"}", br#"{"a":truth}"#, br#"{"a":01}"#];
        for value in rows {
            filter.row(1, "k", value);
        }
        let reasons: Vec<String> = filter.take_rejections().into_iter().map(|rejected| rejected.reason).collect();
        assert_eq!(
            reasons,
            [
                "reading the value: field `a` has half of a surrogate pair (as in \"\\ud800\"), which is no character",
                "reading the value: field `a` has bytes that are not UTF-8",
                "reading the value: not JSON at byte 5",
                "reading the value: not JSON at byte 7",
            ]
        );
        assert!(filter.take(0).is_empty());
        // A condition on numbers does not look at texts.
        let mut filter = Harness::<Filter>::new(r#"{"all":[{"field":"a","ne":5}]}"#);
        filter.row(1, "k", r#"{"a":"\ud800"}"#);
        assert_eq!(filter.take(0).len(), 1);
    }

    /// Only values come in, and rows go on with all they have.
    #[test]
    fn s112_rows_pass_with_keys_times_and_headers_that_the_filter_never_sees() {
        let mut filter = Harness::<Filter>::new(r#"{"all":[{"field":"a","eq":1}],"dropped":"output"}"#);
        let mut batch = Batch::default();
        for (key, value) in [(Some(&b"k"[..]), &br#"{"a":1}"#[..]), (None, br#"{"a":1}"#), (Some(b""), br#"{"a":2}"#)] {
            batch.push_row(NewRow { timestamp: 3, key, value: Some(value), headers: &[("trace", b"7")] });
        }
        filter.try_batch(0, &batch).unwrap();
        let passed: Vec<_> = filter.take(0).into_iter().map(|row| (row.timestamp, row.key, row.absent)).collect();
        assert_eq!(passed, [(3, b"k".to_vec(), 0), (3, b"".to_vec(), KEY_ABSENT)]);
        let dropped = filter.take(1);
        assert_eq!((dropped.len(), dropped[0].absent), (1, 0));
        assert_eq!(dropped[0].headers, [(b"trace".to_vec(), b"7".to_vec())]);
    }

    #[test]
    fn s110_the_schema_says_which_conditions_have_an_order() {
        let schema: serde_json::Value = serde_json::from_str(&weir_sdk::config::schema::<Config>()).unwrap();
        let condition = &schema["$defs"]["Condition"];
        assert_eq!(condition["additionalProperties"], false);
        assert_eq!(condition["properties"]["lt"]["type"], serde_json::json!(["string", "number", "null"]));
        assert_eq!(condition["properties"]["eq"]["type"], serde_json::json!(["string", "number", "boolean", "null"]));
    }

    #[test]
    fn what_is_wrong_with_a_configuration_is_named() {
        let error = |config: &str| Harness::<Filter>::try_new(config).unwrap_err();
        assert!(error("{}").starts_with("config: give conditions"));
        assert!(error(r#"{"all":[{"field":"a"}]}"#).starts_with("config.all.0: say what `a` must be"));
        assert!(error(r#"{"any":[{"field":"a","lt":true}]}"#).starts_with("config.any.0: lt compares numbers or texts"));
        assert!(error(r#"{"all":[{"field":"a","contain":"x"}]}"#).contains("did you mean `contains`?"));
        assert!(error(r#"{"all":[{"eq":1}]}"#).starts_with("config.all.0: key `field` is missing"));
    }

    #[test]
    fn s114_a_row_without_a_value_is_rejected_as_what_it_is() {
        let mut filter = Harness::<Filter>::new(r#"{"all":[{"field":"a","eq":1}]}"#);
        let mut rows = weir_sdk::Batch::default();
        rows.push_row(weir_sdk::NewRow { timestamp: 1, key: Some(b"k"), value: None, headers: &[] });
        filter.try_batch(0, &rows).expect("it goes on");
        assert_eq!(filter.take_rejections()[0].reason, "the row has no value (it is a tombstone)");
    }
}
