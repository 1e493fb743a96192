//! Reads an operator's configuration, and says what is wrong with it in the terms of the job file: the key, what was
//! expected, the nearest valid name.

use std::fmt;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::de::value::StrDeserializer;
use serde::de::{self, DeserializeOwned, DeserializeSeed, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde::forward_to_deserialize_any;
use serde_json::{Map, Value};

/// The configuration of an operator that has none.
#[derive(Clone, Copy, Debug, Default, serde::Deserialize, JsonSchema)]
pub struct NoConfig {}

/// The JSON Schema of a configuration, as the description of an operator has it. It refuses keys that [`read`] refuses.
pub fn schema<T: JsonSchema>() -> String {
    let schema = SchemaSettings::draft2020_12().for_deserialize().into_generator().into_root_schema_for::<T>();
    let mut schema = schema.to_value();
    close(&mut schema, true);
    schema.to_string()
}

/// Has a schema, and those within it, refuse the keys that they do not name. One that is put together of several cannot know by itself
/// what the others name, so those stay as they are.
fn close(schema: &mut Value, is_whole: bool) {
    let Value::Object(keywords) = schema else { return };
    let is_composed =
        ["$ref", "allOf", "anyOf", "oneOf", "if", "patternProperties"].iter().any(|word| keywords.contains_key(*word));
    let is_struct = keywords.contains_key("properties") || keywords.get("type").is_some_and(|name| name == "object");
    if is_whole && is_struct && !is_composed && !keywords.contains_key("additionalProperties") {
        keywords.insert("additionalProperties".to_owned(), Value::Bool(false));
    }
    for (word, value) in keywords.iter_mut() {
        match (word.as_str(), value) {
            ("properties" | "$defs", Value::Object(named)) => named.values_mut().for_each(|schema| close(schema, true)),
            ("items" | "additionalProperties", schema) => close(schema, true),
            ("prefixItems", Value::Array(items)) => items.iter_mut().for_each(|schema| close(schema, true)),
            ("allOf" | "anyOf" | "oneOf", Value::Array(forms)) => {
                forms.iter_mut().for_each(|schema| close(schema, is_whole && !is_struct));
            }
            _ => {}
        }
    }
}

/// Reads `text` (JSON) as `T`.
///
/// # Errors
/// `config.size: ...`: what is wrong at which key.
pub fn read<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    let value = if text.trim().is_empty() { Ok(Value::Null) } else { serde_json::from_str(text) };
    let value = match value.map_err(|error| format!("config: not JSON: {error}"))? {
        Value::Null => Value::Object(Map::new()),
        value => value,
    };
    T::deserialize(Checked(value)).map_err(|error| error.to_string())
}

/// The name among `valid` that `name` was probably meant to be.
pub fn nearest<'a>(name: &str, valid: &[&'a str]) -> Option<&'a str> {
    let best = valid.iter().min_by_key(|candidate| distance(name, candidate))?;
    (distance(name, best) <= 2.max(name.len() / 3)).then_some(best)
}

/// Levenshtein distance.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, &y) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

/// `unknown key ...` with what was probably meant, and what is valid.
pub fn unknown(what: &str, name: &str, valid: &[&str]) -> String {
    let meant = nearest(name, valid).map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
    if valid.is_empty() {
        return format!("unknown {what} `{name}`: this operator has none");
    }
    format!("unknown {what} `{name}`{meant} (valid: {})", valid.join(", "))
}

/// An error with the path to where it is.
#[derive(Debug)]
struct ConfigError {
    path: Vec<String>,
    message: String,
}

impl ConfigError {
    fn at(mut self, step: impl Into<String>) -> ConfigError {
        self.path.insert(0, step.into());
        self
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("config")?;
        self.path.iter().try_for_each(|step| write!(f, ".{step}"))?;
        write!(f, ": {}", self.message)
    }
}

impl std::error::Error for ConfigError {}

impl de::Error for ConfigError {
    fn custom<T: fmt::Display>(message: T) -> ConfigError {
        ConfigError { path: Vec::new(), message: message.to_string() }
    }

    fn missing_field(field: &'static str) -> ConfigError {
        ConfigError { path: Vec::new(), message: format!("key `{field}` is missing") }
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> ConfigError {
        ConfigError { path: Vec::new(), message: unknown("key", field, expected) }
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> ConfigError {
        ConfigError { path: Vec::new(), message: unknown("value", variant, expected) }
    }
}

/// JSON that is read with every key of a struct checked.
struct Checked(Value);

impl<'de> de::Deserializer<'de> for Checked {
    type Error = ConfigError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ConfigError> {
        match self.0 {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(value),
            Value::Number(number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
                (Some(value), _, _) => visitor.visit_u64(value),
                (_, Some(value), _) => visitor.visit_i64(value),
                (_, _, value) => visitor.visit_f64(value.unwrap_or(f64::NAN)),
            },
            Value::String(text) => visitor.visit_string(text),
            Value::Array(items) => visitor.visit_seq(Items { items: items.into_iter(), index: 0 }),
            Value::Object(entries) => visitor.visit_map(Entries { entries: entries.into_iter(), current: None }),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ConfigError> {
        if self.0.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, ConfigError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ConfigError> {
        if let Value::Object(entries) = &self.0
            && let Some(name) = entries.keys().find(|name| !fields.contains(&name.as_str()))
        {
            return Err(de::Error::unknown_field(name, fields));
        }
        self.deserialize_any(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ConfigError> {
        match self.0 {
            Value::String(text) => visitor.visit_enum(text.into_deserializer()),
            value => value.deserialize_enum(name, variants, visitor).map_err(de::Error::custom),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map identifier ignored_any
    }
}

struct Entries {
    entries: serde_json::map::IntoIter,
    current: Option<(String, Value)>,
}

impl<'de> MapAccess<'de> for Entries {
    type Error = ConfigError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, ConfigError> {
        self.current = self.entries.next();
        let Some((key, _)) = &self.current else { return Ok(None) };
        let key: StrDeserializer<'_, ConfigError> = key.as_str().into_deserializer();
        seed.deserialize(key).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, ConfigError> {
        let (key, value) = self.current.take().ok_or_else(|| de::Error::custom("a value without a key"))?;
        seed.deserialize(Checked(value)).map_err(|error| error.at(key))
    }
}

struct Items {
    items: std::vec::IntoIter<Value>,
    index: usize,
}

impl<'de> SeqAccess<'de> for Items {
    type Error = ConfigError;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, ConfigError> {
        let Some(item) = self.items.next() else { return Ok(None) };
        let index = self.index;
        self.index += 1;
        seed.deserialize(Checked(item)).map(Some).map_err(|error| error.at(index.to_string()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, Deserialize, JsonSchema)]
    #[serde(rename_all = "lowercase")]
    enum Kind {
        Tumbling,
        Session,
    }

    #[derive(Debug, Deserialize, JsonSchema)]
    struct Part {
        field: String,
    }

    #[derive(Debug, Deserialize, JsonSchema)]
    struct Config {
        kind: Kind,
        #[serde(default)]
        size: u32,
        #[serde(default)]
        parts: Vec<Part>,
    }

    fn error(text: &str) -> String {
        read::<Config>(text).unwrap_err()
    }

    #[test]
    fn s110_a_schema_refuses_the_keys_that_reading_refuses() {
        let parsed: Value = serde_json::from_str(&schema::<Config>()).unwrap();
        assert_eq!(parsed["additionalProperties"], false);
        assert_eq!(parsed["required"], serde_json::json!(["kind"]));
        assert_eq!(parsed["$defs"]["Part"]["additionalProperties"], false);
        assert_eq!(parsed["$defs"]["Kind"]["enum"], serde_json::json!(["tumbling", "session"]));
        let none: Value = serde_json::from_str(&schema::<NoConfig>()).unwrap();
        assert_eq!(none["additionalProperties"], false);
    }

    /// What is flattened into another table adds keys that the table itself does not name.
    #[test]
    fn a_table_of_several_parts_stays_open() {
        #[derive(Deserialize, JsonSchema)]
        #[expect(dead_code, reason = "only its schema matters")]
        struct Whole {
            size: u32,
            #[serde(flatten)]
            mode: Mode,
        }
        #[derive(Deserialize, JsonSchema)]
        #[serde(tag = "mode", rename_all = "lowercase")]
        #[expect(dead_code, reason = "only its schema matters")]
        enum Mode {
            Fast { loss: u32 },
            Safe,
        }
        let parsed: Value = serde_json::from_str(&schema::<Whole>()).unwrap();
        assert!(!parsed.to_string().contains("additionalProperties"), "{parsed}");
        let parsed: Value = serde_json::from_str(&schema::<Mode>()).unwrap();
        assert_eq!(parsed["oneOf"][0]["additionalProperties"], false, "{parsed}");
    }

    #[test]
    fn a_good_configuration_is_read() {
        let config: Config = read(r#"{"kind": "session", "size": 5, "parts": [{"field": "a"}]}"#).unwrap();
        assert!(matches!(config.kind, Kind::Session));
        assert_eq!((config.size, config.parts[0].field.as_str()), (5, "a"));
        assert!(matches!(read::<Config>(r#"{"kind":"tumbling"}"#).unwrap().kind, Kind::Tumbling));
        read::<NoConfig>("").unwrap();
        read::<NoConfig>("null").unwrap();
    }

    #[test]
    fn errors_name_the_key_and_the_nearest_valid_name() {
        assert_eq!(
            error(r#"{"kind":"session","siez":1}"#),
            "config: unknown key `siez`; did you mean `size`? (valid: kind, size, parts)"
        );
        assert_eq!(
            error(r#"{"kind":"sesion"}"#),
            "config.kind: unknown value `sesion`; did you mean `session`? (valid: tumbling, session)"
        );
        assert_eq!(
            error(r#"{"kind":"session","parts":[{"field":"a"},{"felid":"b"}]}"#),
            "config.parts.1: unknown key `felid`; did you mean `field`? (valid: field)"
        );
        assert_eq!(error("{}"), "config: key `kind` is missing");
        assert!(error(r#"{"kind":"session","size":"big"}"#).starts_with("config.size: invalid type: string"));
        assert_eq!(read::<NoConfig>(r#"{"x":1}"#).unwrap_err(), "config: unknown key `x`: this operator has none");
    }
}
