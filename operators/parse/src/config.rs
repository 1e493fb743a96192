//! The `config` table of a parse operator.

use std::borrow::Cow;

use weir_sdk::json::Path;
use weir_sdk::prelude::*;
use weir_sdk::schemars::{Schema, SchemaGenerator, json_schema};
use weir_sdk::time::TimeFormat;

use crate::clf;
use crate::format::Format;

/// What lines look like, and what becomes of them.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Config {
    /// What a line looks like
    pub(crate) format: Format,
    /// Path of the field that becomes the key; a row keeps its own without it
    pub(crate) key: Option<Path>,
    /// Where the event time is; a row keeps its own without it
    pub(crate) event_time: Option<EventTime>,
    /// What the value becomes: "fields", "line", the path of a field, or a list of paths
    #[serde(default)]
    #[schemars(extend("default" = "fields"))]
    pub(crate) value: Value,
    /// What becomes of lines that are not what they should be
    #[serde(default)]
    pub(crate) malformed: Malformed,
}

/// Where the event time is.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub(crate) struct EventTime {
    /// Path of the field
    pub(crate) field: Path,
    /// How the time is written
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

impl JsonSchema for Value {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Value".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let items = json_schema!({ "type": "string", "examples": ["user.id", "/user/id"] });
        json_schema!({ "anyOf": [
            { "type": "string", "examples": ["fields", "line", "user.id"] },
            { "type": "array", "items": items, "minItems": 1 },
        ] })
    }
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Malformed {
    /// They are rejected, with the reason.
    #[default]
    Reject,
    /// They go to the output `malformed`, as they came.
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
