//! Rows whose event time cannot be read: what becomes of them, and what a person should be told.

use serde_json::{Map, Value};
use weir_model::{Batch, OddExample};
use weir_notation::json::Path;
use weir_plan::nearest;

use crate::settings::{self, error};
use crate::{ConnectorError, EventTime, SettingError};

/// What becomes of a row whose event time cannot be read. It is counted in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NoTime {
    /// It gets the greatest time read before it, of the same file where there is one; 0 before any.
    #[default]
    Previous,
    /// It is left out.
    Skip,
    /// The job fails.
    Fail,
}

/// What becomes of rows without a readable time, and what a person needs to know of how it is looked for.
#[derive(Clone, Debug, Default)]
pub struct NoTimeRule {
    pub(crate) outcome: NoTime,
    /// Names from the outside in; empty where the job file names no field.
    path: Vec<String>,
    format: String,
}

const CHOICES: [(&str, NoTime); 3] = [("previous", NoTime::Previous), ("skip", NoTime::Skip), ("fail", NoTime::Fail)];

/// Names that fields with a time usually have.
const USUAL: [&str; 9] = ["time", "timestamp", "ts", "@timestamp", "event_time", "datetime", "date", "at", "created_at"];

/// Field names that a message lists.
const NAMES_MAX: usize = 8;

/// Reads the `event_time` table of a source: where its time is, and `no_time`.
pub fn event_time_settings(map: &Map<String, Value>) -> Result<(EventTime, NoTimeRule), SettingError> {
    const KEY: &str = "event_time.no_time";
    let mut map = map.clone();
    let outcome = match map.shift_remove("no_time") {
        None => NoTime::default(),
        Some(Value::String(text)) => settings::choose(KEY, &text, &CHOICES)?,
        Some(other) => return Err(error(KEY, format!("is {other}; expected \"previous\", \"skip\" or \"fail\""), None)),
    };
    let event_time = EventTime::from_settings(&map)?;
    let text = |key: &str| map.get(key).and_then(Value::as_str);
    let path = text("field").map_or(Vec::new(), |field| Path::new(field).steps().to_vec());
    Ok((event_time, NoTimeRule { outcome, path, format: text("format").unwrap_or("rfc3339").to_owned() }))
}

impl NoTimeRule {
    /// Why no time was read of a row, with the setting that would likely help.
    pub(crate) fn reason(&self, value: &[u8]) -> String {
        let outcome = match self.outcome {
            NoTime::Previous => "it gets the time of the rows before it",
            NoTime::Skip => "it is left out",
            NoTime::Fail => "that fails the job",
        };
        format!("{}; {outcome} (event_time.no_time)", self.cause(value))
    }

    fn cause(&self, value: &[u8]) -> String {
        let format = self.format.as_str();
        match (serde_json::from_slice(value).ok(), self.path.as_slice()) {
            (Some(Value::Object(row)), []) => {
                let likely = USUAL.iter().find(|name| row.contains_key(**name));
                let hint = likely.map_or(String::new(), |name| format!("; perhaps event_time.field = {name:?}"));
                format!("it is a JSON object, and event_time.field does not say where its time is{hint}")
            }
            (Some(row @ Value::Object(_)), path) => in_object(&row, path, format),
            _ if format == "clf" => "it has no bracket with a time such as [10/Oct/2000:13:55:36 -0700]".to_owned(),
            _ => format!("it is no JSON object, and does not begin with a time of the format {format:?}"),
        }
    }

    /// The failure that such a row is.
    pub(crate) fn failure(&self, value: &[u8]) -> ConnectorError {
        let example = OddExample::new(value, &self.cause(value));
        ConnectorError::NoTime { reason: example.reason, value: example.value }
    }
}

/// What is wrong at `path`.
fn in_object(row: &Value, path: &[String], format: &str) -> String {
    let mut at = row;
    for (depth, name) in path.iter().enumerate() {
        let so_far = path[..=depth].join(".");
        let next = match at {
            Value::Object(fields) => fields.get(name),
            Value::Array(items) => name.parse::<usize>().ok().and_then(|index| items.get(index)),
            _ => None,
        };
        let Some(next) = next else {
            let names: Vec<&str> = at.as_object().into_iter().flatten().map(|(name, _)| name.as_str()).collect();
            let near = nearest(name, names.iter().copied()).or_else(|| names.iter().copied().find(|name| USUAL.contains(name)));
            let hint = near.map_or(String::new(), |near| format!("; did you mean {near:?}?"));
            let more = if names.len() > NAMES_MAX { ", ..." } else { "" };
            let listed = names.iter().take(NAMES_MAX).copied().collect::<Vec<_>>().join(", ");
            return format!("it has no field {so_far:?} (event_time.field){hint} (its fields: {listed}{more})");
        };
        at = next;
    }
    let mut shown = at.to_string();
    if shown.chars().count() > 60 {
        shown = shown.chars().take(60).chain(['…']).collect();
    }
    format!("its field {:?} is {shown}, which is no time of the format {format:?} (event_time.format)", path.join("."))
}

/// Takes rows out of a batch. `left_out` is ascending.
pub(crate) fn leave_out(rows: &mut Batch, left_out: &[usize]) {
    let mut kept = Batch::default();
    let mut start = 0;
    for &row in left_out {
        kept.extend_range(rows.view(), start..row);
        start = row + 1;
    }
    kept.extend_range(rows.view(), start..rows.len());
    *rows = kept;
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use serde_json::json;

    fn reason_of(settings: &Value, row: &str) -> String {
        let (event_time, rule) = event_time_settings(settings.as_object().unwrap()).unwrap();
        assert_eq!(event_time.of(row.as_bytes()), None);
        rule.reason(row.as_bytes())
    }

    #[test]
    fn names_are_those_that_the_time_is_looked_for_by() {
        let reason = reason_of(&json!({"field": "/a~1b/~0", "format": "unix-s"}), r#"{"a/b":{"~":"x"}}"#);
        assert!(reason.starts_with("its field \"a/b.~\" is \"x\", which is no time"), "{reason}");
    }

    #[test]
    fn a_misspelt_field_is_named_with_the_nearest_there_is() {
        let reason = reason_of(&json!({"field": "tiem"}), r#"{"path":"/a","time":"2026-03-02T08:04:59Z"}"#);
        assert!(reason.contains("no field \"tiem\"") && reason.contains("did you mean \"time\"?"), "{reason}");
        let reason = reason_of(&json!({"field": "request.when"}), r#"{"request":{"ts":1}}"#);
        assert!(reason.contains("\"request.when\"") && reason.contains("\"ts\""), "{reason}");
        let reason = reason_of(&json!({"field": "time", "no_time": "skip"}), r#"{"time":"yesterday"}"#);
        assert!(reason.contains("is \"yesterday\"") && reason.contains("\"rfc3339\"") && reason.contains("left out"), "{reason}");
        let reason = reason_of(&json!({"format": "unix-s"}), r#"{"ts":1}"#);
        assert!(reason.contains("event_time.field = \"ts\""), "{reason}");
        assert!(reason_of(&json!({"format": "clf"}), "hello").contains("bracket"));
        assert!(reason_of(&json!({"format": "rfc3339"}), "hello").contains("begin with a time"));
    }

    #[test]
    fn settings_of_rows_without_time_are_checked() {
        let settings = |value: Value| event_time_settings(value.as_object().unwrap());
        assert_eq!(settings(json!({"no_time": "fail"})).unwrap().1.outcome, NoTime::Fail);
        let error = settings(json!({"no_time": "fial"})).unwrap_err();
        assert!(error.key == "event_time.no_time" && error.to_string().contains("\"fail\""), "{error}");
        assert_eq!(settings(json!({"no_time": 1})).unwrap_err().key, "event_time.no_time");
        assert_eq!(settings(json!({"feld": "x"})).unwrap_err().key, "event_time.feld");
    }
}
