//! Event time of a row, read from its value: a field of a JSON line, the bracket of a Common Log Format line, or the
//! beginning of any other line. How times and paths are written is the business of `weir-notation`, which operators use too.
//!
//! Never fails and never panics: a row whose time cannot be read has none, and what to do then is the caller's choice.

use serde_json::{Map, Value};
use weir_model::Timestamp;
use weir_notation::json::Path;
use weir_notation::time::TimeFormat;

use crate::SettingError;
use crate::settings::{self, Settings};

pub use weir_notation::time::{TimeFormat as EventTimeFormat, write_rfc3339};

/// Reads the time of a row.
#[derive(Clone, Debug)]
pub struct EventTime {
    /// Path into a JSON line. None: JSON lines have no time.
    path: Option<Path>,
    format: TimeFormat,
}

impl EventTime {
    /// From the job file: `{ field = "time", format = "clf" }`. `field` is a path into JSON lines, of which it is required to
    /// read any; `format` is a name of [`TimeFormat::NAMED`], by default `rfc3339`.
    pub fn from_settings(map: &Map<String, Value>) -> Result<EventTime, SettingError> {
        let nested = |error: SettingError| SettingError { key: format!("event_time.{}", error.key), ..error };
        let settings = Settings::new("event_time", map, &["field", "format"]).map_err(nested)?;
        let format = settings.choice("format", &TimeFormat::NAMED).map_err(nested)?;
        EventTime::new(settings.string("field").map_err(nested)?, format)
    }

    /// The format that a job file calls `name`.
    pub fn format_named(name: &str) -> Result<TimeFormat, SettingError> {
        settings::choose("event_time.format", name, &TimeFormat::NAMED)
    }

    /// `field` is a path into JSON lines: `"request.time"`, `"/request/time"`, `"events.0.at"`.
    pub fn new(field: Option<&str>, format: TimeFormat) -> Result<EventTime, SettingError> {
        let path = field.map(Path::new);
        // An empty name is possible in JSON, but here it is a slip: "a..b", "/".
        if path.as_ref().is_some_and(|path| path.steps().is_empty() || path.steps().iter().any(String::is_empty)) {
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
        let in_json = || self.format.read_json(self.path.as_ref()?, line);
        match line[0] {
            b'{' => in_json(),
            // A JSON array, or a log line that begins with a bracket.
            b'[' => in_json().or_else(|| self.format.read_line(line)),
            _ => self.format.read_line(line),
        }
    }
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
        assert_eq!(ms.of(br#"{"t":1700000000123.0}"#), Some(1_700_000_000_123));
        assert_eq!(ms.of(br#"{"t":18446744073709551615}"#), None);
        assert_eq!(ms.of(br#"{"t":null}"#), None);
        let s = event_time("t", "unix-s");
        assert_eq!(s.of(br#"{"t":1700000000}"#), Some(1_700_000_000_000));
        assert_eq!(s.of(br#"{"t":1700000000.25}"#), Some(1_700_000_000_250));
        assert_eq!(s.of(br#"{"t":"1.9999"}"#), Some(1_999));
        assert_eq!(s.of(br#"{"t":9223372036854775807}"#), None);
        assert_eq!(s.of(br#"{"t":1e300}"#), None);
    }

    /// What `parse` reads with the same words in its configuration, sources read too.
    #[test]
    fn a13_paths_and_times_are_those_of_operators() {
        assert_eq!(event_time("events.0.at", "unix-ms").of(br#"{"events":[{"at":5}]}"#), Some(5));
        assert_eq!(event_time("/a~1b/~0", "unix-ms").of(br#"{"a/b":{"~":5}}"#), Some(5));
        assert_eq!(event_time("0.at", "unix-ms").of(br#"[{"at":5}]"#), Some(5));
        assert_eq!(event_time("0.at", "unix-us").of(br#"[{"at":"1.5e3"}]"#), Some(1));
        assert_eq!(event_time("t", "unix-ns").of(br#"{"t":1700000000123456789}"#), Some(1_700_000_000_123));
        assert_eq!(event_time("t", "unix-s").of(br#"{"t":-0.0005}"#), Some(-1), "cut off towards the past, as in any format");
        assert_eq!(event_time("t", "rfc3339").of(b"2026-03-02 08:04:59Z GET /"), Some(1_772_438_699_000));
        assert_eq!(event_time("t", "rfc3339").of(b"2026-03-02 08:04:59,250+00:00 GET /"), Some(1_772_438_699_250));
        assert_eq!(event_time("time", "clf").of(b"[10/Oct/2000:13:55:36 -0700] GET /"), Some(971_211_336_000));
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
        for field in ["a..b", "", "/", "/a/"] {
            assert_eq!(settings(json!({"field": field})).unwrap_err().key, "event_time.field", "{field}");
        }
    }

    proptest! {
        #[test]
        fn no_line_panics(bytes in proptest::collection::vec(any::<u8>(), 0..80), text in "[\\[\\]{}\":0-9A-Za-z/ +.-]{0,60}") {
            for (format, _) in TimeFormat::NAMED {
                let time = event_time("a.b", format);
                time.of(&bytes);
                time.of(text.as_bytes());
                time.of(format!("{{\"a\":{{\"b\":\"{text}\"}}}}").as_bytes());
            }
        }

        #[test]
        fn every_time_agrees_with_counting(
            (year, month, day) in (1000i64..9999, 1u32..=12, 1u32..=28), (hour, minute, second) in (0i64..24, 0i64..60, 0i64..60),
            (sign, oh, om) in (prop_oneof![Just(1i64), Just(-1)], 0i64..24, 0i64..60), fraction in "[0-9]{1,9}",
            point in "[.,]", blank in "[Tt ]", colon in ":?", before_zone in " ?",
        ) {
            let seconds = slow_days(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second - sign * (oh * 60 + om) * 60;
            let millis: i64 = format!("{fraction}000")[..3].parse().unwrap();
            let sign = if sign > 0 { '+' } else { '-' };
            let zone = format!("{before_zone}{sign}{oh:02}{colon}{om:02}");
            let text = format!("{year:04}-{month:02}-{day:02}{blank}{hour:02}:{minute:02}:{second:02}{point}{fraction}{zone}");
            prop_assert_eq!(TimeFormat::Rfc3339.read(text.as_bytes()), Some(seconds * 1_000 + millis));
            prop_assert_eq!(event_time("t", "rfc3339").of(format!("{text} and more").as_bytes()), Some(seconds * 1_000 + millis));
            let month = &"JanFebMarAprMayJunJulAugSepOctNovDec"[month as usize * 3 - 3..][..3];
            let text = format!("{day:02}/{month}/{year:04}:{hour:02}:{minute:02}:{second:02} {sign}{oh:02}{om:02}");
            prop_assert_eq!(TimeFormat::Clf.read(text.as_bytes()), Some(seconds * 1_000));
            let line = format!("h - - [{text}] \"GET / HTTP/1.1\" 200 1");
            prop_assert_eq!(event_time("t", "clf").of(line.as_bytes()), Some(seconds * 1_000));
        }

        #[test]
        fn what_is_written_is_read_as_the_same(time in -62_000_000_000_000i64..253_000_000_000_000) {
            let mut text = Vec::new();
            write_rfc3339(time, &mut text);
            prop_assert_eq!(TimeFormat::Rfc3339.read(&text), Some(time));
        }

        /// Numbers with a point and an exponent in any place, against arithmetic with 128 bits.
        #[test]
        fn unix_times_are_exact_however_they_are_written(digits in -1_000_000_000_000i64..1_000_000_000_000, places in 0u32..9) {
            let (whole, fraction) = (digits.abs() / 10i64.pow(places), digits.abs() % 10i64.pow(places));
            let sign = if digits < 0 { "-" } else { "" };
            let point = if places == 0 { format!("{sign}{whole}") } else {
                format!("{sign}{whole}.{fraction:0width$}", width = places as usize)
            };
            for (format, power) in [("unix-s", 3), ("unix-ms", 0), ("unix-us", -3), ("unix-ns", -6)] {
                let shift = power - places as i32;
                let exact = i128::from(digits) * 10i128.pow(shift.max(0) as u32);
                let exact = exact.div_euclid(10i128.pow((-shift).max(0) as u32));
                for text in [point.clone(), format!("{digits}e-{places}"), format!("{point}e+0")] {
                    let json = format!("{{\"t\":{text}}}");
                    prop_assert_eq!(event_time("t", format).of(json.as_bytes()).map(i128::from), Some(exact), "{} {}", format, text);
                }
            }
        }
    }

    /// Days counted one year and one month at a time.
    fn slow_days(year: i64, month: u32, day: u32) -> i64 {
        let leap = |y: i64| (y % 4 == 0 && y % 100 != 0) || y % 400 == 0;
        let year_days = |y: i64| if leap(y) { 366 } else { 365 };
        let before: i64 =
            if year >= 1970 { (1970..year).map(year_days).sum() } else { -(year..1970).map(year_days).sum::<i64>() };
        let lengths = [31, if leap(year) { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        before + lengths[..month as usize - 1].iter().sum::<i64>() + i64::from(day) - 1
    }
}
