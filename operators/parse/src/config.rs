//! The `config` table of a parse operator.

use weir_sdk::json::Path;
use weir_sdk::prelude::*;
use weir_sdk::time::TimeFormat;

use crate::clf;

/// As written in the job file; see README.md.
#[derive(Debug, Deserialize)]
pub struct Config {
    pub(crate) format: Format,
    pub(crate) key: Option<Path>,
    pub(crate) event_time: Option<EventTime>,
    #[serde(default)]
    pub(crate) value: Value,
    #[serde(default)]
    pub(crate) malformed: Malformed,
}

/// What a line looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Format {
    Json,
    Common,
    Combined,
    Clf,
    Vhost,
}

/// Where the event time is.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct EventTime {
    pub(crate) field: Path,
    pub(crate) format: TimeFormat,
}

/// What the output's value is.
#[derive(Clone, Debug, Default)]
pub(crate) enum Value {
    /// The line as it is.
    Line,
    /// All fields, as a JSON object.
    #[default]
    Fields,
    /// One field, as JSON.
    Field(Path),
    /// Some fields, as a JSON object.
    Some(Vec<(String, Path)>),
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
        struct ValueVisitor;
        impl<'de> serde::de::Visitor<'de> for ValueVisitor {
            type Value = Value;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("\"line\", \"fields\", the path of a field, or a list of paths")
            }
            fn visit_str<E>(self, text: &str) -> Result<Value, E> {
                Ok(match text {
                    "line" => Value::Line,
                    "fields" => Value::Fields,
                    path => Value::Field(Path::new(path)),
                })
            }
            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
                let mut fields = Vec::new();
                while let Some(path) = items.next_element::<Path>()? {
                    fields.push((path.steps().last().cloned().unwrap_or_default(), path));
                }
                Ok(Value::Some(fields))
            }
        }
        deserializer.deserialize_any(ValueVisitor)
    }
}

/// Where lines go that are not what they should be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Malformed {
    /// They are rejected, with the reason.
    #[default]
    Reject,
    /// To port 1, as they are.
    Output,
}

impl Config {
    /// Checks what the types cannot say.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let mut paths: Vec<(&str, &Path)> = self.key.iter().map(|path| ("key", path)).collect();
        paths.extend(self.event_time.iter().map(|time| ("event_time.field", &time.field)));
        match &self.value {
            Value::Field(path) => paths.push(("value", path)),
            Value::Some(fields) if fields.is_empty() => return Err(Error::fail("config.value: the list is empty")),
            Value::Some(fields) => paths.extend(fields.iter().map(|(_, path)| ("value", path))),
            Value::Line | Value::Fields => {}
        }
        for (key, path) in paths {
            let what = if path.steps().iter().all(String::is_empty) { "path" } else { "name in a path" };
            if path.steps().is_empty() || path.steps().iter().any(String::is_empty) {
                let hint = "write for example \"user.id\" or \"/user/id\"";
                return Err(Error::fail(format!("config.{key}: an empty {what}; {hint}")));
            }
            if self.format != Format::Json && clf::Field::of(path).is_none() {
                let unknown = weir_sdk::config::unknown("field", &path.to_string(), &clf::NAMES);
                return Err(Error::fail(format!("config.{key}: {unknown}")));
            }
        }
        Ok(())
    }
}
