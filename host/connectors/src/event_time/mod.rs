//! Event time of a row, read from its value: a field of a JSON line, the bracket of a Common Log Format line, or the
//! beginning of any other line.
//!
//! Never fails and never panics: a row whose time cannot be read has none, and what to do then is the caller's choice.

mod civil;
mod clf;
mod json;
mod rfc3339;

use serde_json::{Map, Value};
use weir_model::Timestamp;

use crate::SettingError;
use crate::settings::{self, Settings};

pub use rfc3339::write_rfc3339;

/// How a time is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventTimeFormat {
    /// `10/Oct/2000:13:55:36 -0700`, as in the Common Log Format, with or without its brackets.
    Clf,
    /// `2000-10-10T13:55:36.123-07:00`. The offset is required.
    Rfc3339,
    /// Milliseconds since 1970, as a number or its digits.
    UnixMs,
    /// Seconds since 1970, with or without a fraction, as a number or its digits.
    UnixS,
}

const FORMATS: [(&str, EventTimeFormat); 4] = [
    ("rfc3339", EventTimeFormat::Rfc3339),
    ("clf", EventTimeFormat::Clf),
    ("unix-ms", EventTimeFormat::UnixMs),
    ("unix-s", EventTimeFormat::UnixS),
];

/// Reads the time of a row.
#[derive(Clone, Debug)]
pub struct EventTime {
    /// Path into a JSON line, from the outside in. Empty: JSON lines have no time.
    path: Vec<String>,
    format: EventTimeFormat,
}

impl EventTime {
    /// From the job file: `{ field = "time", format = "clf" }`. `field` is a dotted path into JSON lines, of which it is required to
    /// read any; `format` is `rfc3339` (default), `clf`, `unix-ms` or `unix-s`.
    pub fn from_settings(map: &Map<String, Value>) -> Result<EventTime, SettingError> {
        let nested = |error: SettingError| SettingError { key: format!("event_time.{}", error.key), ..error };
        let settings = Settings::new("event_time", map, &["field", "format"]).map_err(nested)?;
        let format = settings.choice("format", &FORMATS).map_err(nested)?;
        EventTime::new(settings.string("field").map_err(nested)?, format)
    }

    /// The format that a job file calls `name`.
    pub fn format_named(name: &str) -> Result<EventTimeFormat, SettingError> {
        settings::choose("event_time.format", name, &FORMATS)
    }

    /// `field` is a dotted path into JSON lines.
    pub fn new(field: Option<&str>, format: EventTimeFormat) -> Result<EventTime, SettingError> {
        // As operators write paths: with dots, or with slashes and one in front.
        let steps = |field: &str| match field.strip_prefix('/') {
            Some(steps) => steps.split('/').map(str::to_owned).collect(),
            None => field.split('.').map(str::to_owned).collect(),
        };
        let path: Vec<String> = field.map_or(Vec::new(), steps);
        if path.iter().any(String::is_empty) {
            let message = format!(
                "is {:?}; expected names joined by dots or slashes, such as \"request.time\" or \"/request/time\"",
                field.unwrap_or_default()
            );
            return Err(settings::error("event_time.field", message, None));
        }
        Ok(EventTime { path, format })
    }

    /// The time of a row.
    #[inline]
    pub fn of(&self, value: &[u8]) -> Option<Timestamp> {
        let start = value.iter().position(|byte| !byte.is_ascii_whitespace())?;
        let line = &value[start..];
        if line[0] == b'{' {
            return if self.path.is_empty() { None } else { json::time_at(line, &self.path, self.format) };
        }
        match self.format {
            EventTimeFormat::Clf => clf::find_in_line(line),
            format => {
                let end = line.iter().position(|byte| matches!(byte, b' ' | b'\t' | b',' | b';')).unwrap_or(line.len());
                format.parse(&line[..end])
            }
        }
    }
}

impl EventTimeFormat {
    /// The time that `text` is, whole.
    fn parse(self, text: &[u8]) -> Option<Timestamp> {
        match self {
            EventTimeFormat::Clf => {
                let inner = text.strip_prefix(b"[").and_then(|rest| rest.strip_suffix(b"]"));
                clf::parse(inner.unwrap_or(text))
            }
            EventTimeFormat::Rfc3339 => rfc3339::parse(text),
            EventTimeFormat::UnixMs => decimal_scaled(text, 0),
            EventTimeFormat::UnixS => decimal_scaled(text, 3),
        }
    }
}

/// A decimal number times `10^scale`; what is left of its fraction is cut off.
fn decimal_scaled(text: &[u8], scale: usize) -> Option<Timestamp> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        all => (false, all),
    };
    let point = digits.iter().position(|&byte| byte == b'.');
    let (whole, fraction) = point.map_or((digits, &digits[..0]), |at| (&digits[..at], &digits[at + 1..]));
    if whole.is_empty() || point.is_some() && fraction.is_empty() || !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let scaled = fraction.iter().chain(std::iter::repeat(&b'0')).take(scale);
    let mut value: i64 = 0;
    for &byte in whole.iter().chain(scaled) {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value.checked_mul(10)?.checked_add(i64::from(digit))?;
    }
    Some(if negative { -value } else { value })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn event_time(field: &str, format: &str) -> EventTime {
        EventTime::from_settings(json!({"field": field, "format": format}).as_object().unwrap()).unwrap()
    }

    #[test]
    fn a_log_line_has_the_time_of_its_bracket() {
        let time = event_time("time", "clf");
        let line = br#"127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /apache_pb.gif HTTP/1.0" 200 2326"#;
        assert_eq!(time.of(line), Some(971_211_336_000));
        assert_eq!(time.of(br#"::1 - [odd [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.0" 200 1"#), Some(971_211_336_000));
        assert_eq!(time.of(b"127.0.0.1 - - [yesterday] x"), None);
        assert_eq!(time.of(br#"  {"time": "[10/Oct/2000:13:55:36 -0700]"}"#), Some(971_211_336_000));
        assert_eq!(time.of(b""), None);
        assert_eq!(time.of(b"   "), None);
    }

    #[test]
    fn a_json_line_has_the_time_of_its_field() {
        let time = event_time("a.b", "rfc3339");
        assert_eq!(time.of(br#"{"b":1,"a":{"x":[{"b":"no"}],"b":"1970-01-01T00:00:01.5Z"},"a2":{}}"#), Some(1_500));
        assert_eq!(time.of(br#"{"a":{"b":7}}"#), None);
        assert_eq!(time.of(br#"{"a":"b"}"#), None);
        assert_eq!(time.of(br#"{"a":{"#), None);
        assert_eq!(time.of(br#"{"\u0061":{"b":"1970-01-01T00:00:01Z"}}"#), Some(1_000), "escaped names are the same names");
        let ms = event_time("t", "unix-ms");
        assert_eq!(ms.of(br#"{"t":1700000000123}"#), Some(1_700_000_000_123));
        assert_eq!(ms.of(br#"{"t":"1700000000123"}"#), Some(1_700_000_000_123));
        assert_eq!(ms.of(br#"{"t":1e3}"#), Some(1_000));
        assert_eq!(ms.of(br#"{"t":18446744073709551615}"#), None);
        assert_eq!(ms.of(br#"{"t":null}"#), None);
        let s = event_time("t", "unix-s");
        assert_eq!(s.of(br#"{"t":1700000000}"#), Some(1_700_000_000_000));
        assert_eq!(s.of(br#"{"t":1700000000.25}"#), Some(1_700_000_000_250));
        assert_eq!(s.of(br#"{"t":"1.9999"}"#), Some(1_999));
        assert_eq!(s.of(br#"{"t":9223372036854775807}"#), None);
        assert_eq!(s.of(br#"{"t":1e300}"#), None);
    }

    #[test]
    fn any_other_line_begins_with_its_time() {
        assert_eq!(event_time("t", "rfc3339").of(b"1970-01-01T00:00:02Z started"), Some(2_000));
        assert_eq!(event_time("t", "unix-ms").of(b"-5,x"), Some(-5));
        assert_eq!(event_time("t", "unix-s").of(b"1.5 x"), Some(1_500));
        assert_eq!(event_time("t", "unix-s").of(b"1. x"), None);
        assert_eq!(event_time("t", "unix-ms").of(b"99999999999999999999"), None);
    }

    #[test]
    fn wrong_settings_are_named() {
        let settings = |value: Value| EventTime::from_settings(value.as_object().unwrap());
        let error = settings(json!({"feld": "x"})).unwrap_err();
        assert!(error.key == "event_time.feld" && error.to_string().contains("\"field\""), "{error}");
        let error = settings(json!({"format": "unix_ms"})).unwrap_err();
        assert!(error.key == "event_time.format" && error.to_string().contains("\"unix-ms\""), "{error}");
        assert_eq!(settings(json!({"field": "a..b"})).unwrap_err().key, "event_time.field");
    }

    proptest! {
        #[test]
        fn no_line_panics(bytes in proptest::collection::vec(any::<u8>(), 0..80), text in "[\\[\\]{}\":0-9A-Za-z/ +.-]{0,60}") {
            for format in ["clf", "rfc3339", "unix-ms", "unix-s"] {
                let time = event_time("a.b", format);
                time.of(&bytes);
                time.of(text.as_bytes());
                time.of(format!("{{\"a\":{{\"b\":\"{text}\"}}}}").as_bytes());
            }
        }
    }
}
