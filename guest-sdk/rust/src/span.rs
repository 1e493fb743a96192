//! Time spans as people write them in a job file: `"500ms"`, `"5m"`, `"1h30m"`. The rules are those of the whole job file.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use weir_notation::span::{NoSpan, format_ms, parse_ms};

/// A time span in milliseconds. Never negative where it was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(i64);

/// The longest span that is read: far longer than any data, and so short that adding it to a time of now cannot overflow.
const MS_MAX: i64 = 1_000_000 * 86_400_000;

impl Span {
    /// A span of so many milliseconds.
    pub const fn from_ms(ms: i64) -> Span {
        Span(ms)
    }

    /// How many milliseconds.
    pub const fn ms(self) -> i64 {
        self.0
    }

    /// Reads a span: whole numbers with the units d, h, m, s, ms, the largest first. At most 1,000,000 days.
    pub fn parse(text: &str) -> Option<Span> {
        i64::try_from(parse_ms(text).ok()?).ok().filter(|ms| *ms <= MS_MAX).map(Span)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Span, D::Error> {
        let text = String::deserialize(deserializer)?;
        match parse_ms(&text).map(i64::try_from) {
            Ok(Ok(ms)) if ms <= MS_MAX => Ok(Span(ms)),
            Ok(_) | Err(NoSpan::TooLong) => {
                Err(de::Error::custom(format!("`{text}` is more than 1000000d, the longest time span")))
            }
            Err(error) => Err(de::Error::custom(format!("`{text}` is {error}"))),
        }
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match u64::try_from(self.0) {
            Ok(ms) => serializer.serialize_str(&format_ms(ms)),
            Err(_) => Err(serde::ser::Error::custom("a negative time span has no written form")),
        }
    }
}

impl JsonSchema for Span {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Span".into()
    }

    /// The parts in their order; that there is one at all is all it leaves out.
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "pattern": r"^\s*([0-9]+d\s*)?([0-9]+h\s*)?([0-9]+m\s*)?([0-9]+s\s*)?([0-9]+ms)?\s*$",
            "minLength": 2,
            "examples": ["30s", "5m", "1h30m"],
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn s110_the_schema_of_a_span_takes_what_is_read() {
        let schema = schemars::schema_for!(Span);
        let pattern = schema.get("pattern").and_then(|pattern| pattern.as_str()).unwrap();
        let pattern = regex_lite::Regex::new(pattern).unwrap();
        for (text, matches) in [
            ("500ms", true),
            (" 1h 30m ", true),
            ("1d2h3m4s5ms", true),
            ("0s", true),
            ("5", false),
            ("5 m", false),
            ("1s1m", false),
            ("-5m", false),
            ("5min", false),
        ] {
            assert_eq!((Span::parse(text).is_some(), pattern.is_match(text)), (matches, matches), "{text}");
        }
    }

    #[test]
    fn spans_are_read_as_people_write_them() {
        for (text, ms) in [("500ms", 500), ("1h30m", 5_400_000), ("1h 30m", 5_400_000), ("0s", 0), ("1000000d", MS_MAX)] {
            assert_eq!(Span::parse(text), Some(Span::from_ms(ms)), "{text}");
            let span: Span = serde_json::from_value(text.into()).unwrap();
            assert_eq!(span.ms(), ms);
            assert_eq!(Span::parse(serde_json::to_value(span).unwrap().as_str().unwrap()), Some(span));
        }
        for (text, reason) in [
            ("5", "`5` is not a time span"),
            ("1s1m", "`1s1m` is not a time span"),
            ("1000000d1ms", "`1000000d1ms` is more than 1000000d"),
            ("99999999999999d", "`99999999999999d` is more than 1000000d"),
            ("99999999999999999999d", "`99999999999999999999d` is more than 1000000d"),
        ] {
            assert_eq!(Span::parse(text), None, "{text}");
            let error = serde_json::from_value::<Span>(text.into()).unwrap_err().to_string();
            assert!(error.starts_with(reason), "{error}");
        }
    }
}
