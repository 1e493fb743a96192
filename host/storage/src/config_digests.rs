//! Which configuration an operator was opened with, without saying it: values may come from variables of the environment, and
//! manifests are text that lies about.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::digest_of;

/// SHA-256 of each value of a configuration, by key. Equal where the configurations are, in whatever order their keys stand.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ConfigDigests(BTreeMap<String, String>);

impl ConfigDigests {
    /// Those of a configuration; none of nothing.
    pub fn of(config: &Value) -> ConfigDigests {
        let digest = |value: &Value| digest_of(canonical(value).as_bytes()).to_string();
        ConfigDigests(match config {
            Value::Null => BTreeMap::new(),
            Value::Object(values) => values.iter().map(|(key, value)| (key.clone(), digest(value))).collect(),
            other => BTreeMap::from([(String::new(), digest(other))]),
        })
    }

    /// Keys that differ, each with what became of it.
    pub fn changed(&self, now: &ConfigDigests) -> Vec<String> {
        let keys: BTreeSet<&String> = self.0.keys().chain(now.0.keys()).collect();
        let change = |key: &&String| match (self.0.get(*key), now.0.get(*key)) {
            (before, now) if before == now => None,
            (Some(_), None) => Some(format!("`{key}` is not set any more")),
            (None, _) => Some(format!("`{key}` was not set")),
            _ => Some(format!("`{key}` has another value")),
        };
        keys.iter().filter_map(change).collect()
    }
}

/// JSON with the keys of all objects in order.
fn canonical(value: &Value) -> String {
    match value {
        Value::Object(values) => {
            let sorted: BTreeMap<&String, String> = values.iter().map(|(key, value)| (key, canonical(value))).collect();
            let entry = |(key, value): (&&String, &String)| format!("{}:{value}", Value::from(key.as_str()));
            format!("{{{}}}", sorted.iter().map(entry).collect::<Vec<_>>().join(","))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(canonical).collect::<Vec<_>>().join(",")),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    #[test]
    fn s138_a_configuration_is_recognised_and_not_told() {
        let of = |text: &str| ConfigDigests::of(&serde_json::from_str(text).unwrap());
        assert_eq!(of(r#"{"a": {"x": 1, "y": [2]}, "b": null}"#), of(r#"{"b": null, "a": {"y": [2], "x": 1}}"#));
        let (before, now) = (of(r#"{"a": 1, "b": "s3cret", "c": 3}"#), of(r#"{"a": 1, "b": "other", "d": 4}"#));
        assert_eq!(before.changed(&now), ["`b` has another value", "`c` is not set any more", "`d` was not set"]);
        assert!(before.changed(&before.clone()).is_empty());
        assert!(!serde_json::to_string(&before).unwrap().contains("s3cret"));
        for different in [r#"{"a": "1"}"#, r#"{"a": [1]}"#, r#"{"a": {"1": null}}"#, "{}", "null", "1"] {
            assert!(!of(r#"{"a": 1}"#).changed(&of(different)).is_empty(), "{different}");
        }
    }
}
