//! Points in time as logs and programs write them.

mod civil;
mod clf;
mod rfc3339;

use core::fmt;

use crate::json::Path;
use crate::number::scaled;

pub use rfc3339::write_rfc3339;

/// Milliseconds since the Unix epoch, UTC.
pub type Timestamp = i64;

/// How a time is written. What is finer than a millisecond is cut off, towards the past.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeFormat {
    /// `10/Oct/2000:13:55:36 -0700`, as in the Common Log Format, with or without its brackets.
    Clf,
    /// `2000-10-10T13:55:36.123-07:00`. The offset is required. `T` may be a blank or small, the point a comma, `Z` small; the
    /// offset may be without colon, without minutes, and after a blank.
    Rfc3339,
    /// Milliseconds since 1970: a decimal number, with or without fraction and exponent.
    UnixMs,
    /// Seconds since 1970, likewise.
    UnixS,
    /// Microseconds since 1970, likewise.
    UnixUs,
    /// Nanoseconds since 1970, likewise.
    UnixNs,
}

impl TimeFormat {
    /// The formats by the names that job files give them.
    pub const NAMED: [(&'static str, TimeFormat); 6] = [
        ("rfc3339", TimeFormat::Rfc3339),
        ("clf", TimeFormat::Clf),
        ("unix-ms", TimeFormat::UnixMs),
        ("unix-s", TimeFormat::UnixS),
        ("unix-us", TimeFormat::UnixUs),
        ("unix-ns", TimeFormat::UnixNs),
    ];

    pub(crate) const NAMES: [&'static str; 6] = ["rfc3339", "clf", "unix-ms", "unix-s", "unix-us", "unix-ns"];

    /// The time that a text is, whole.
    pub fn read(self, text: &[u8]) -> Option<Timestamp> {
        match self {
            TimeFormat::Clf => {
                let inner = text.strip_prefix(b"[").and_then(|rest| rest.strip_suffix(b"]"));
                clf::parse(inner.unwrap_or(text))
            }
            TimeFormat::Rfc3339 => rfc3339::parse(text),
            format => scaled(text, format.scale()),
        }
    }

    /// The time of a line that is no JSON: with `clf` the first bracket that holds one; otherwise what the line begins with.
    pub fn read_line(self, line: &[u8]) -> Option<Timestamp> {
        match self {
            TimeFormat::Clf => clf::find_in_line(line).map(|found| found.time),
            TimeFormat::Rfc3339 => rfc3339::parse_front(line),
            format => {
                let end = line.iter().position(|byte| matches!(byte, b' ' | b'\t' | b',' | b';')).unwrap_or(line.len());
                scaled(&line[..end], format.scale())
            }
        }
    }

    /// The time at `path` of a JSON value: a string in this format, or for the `unix` formats also a number.
    pub fn read_json(self, path: &Path, json: &[u8]) -> Option<Timestamp> {
        self.read(&path.find(json).ok()??.text().ok()?)
    }

    /// An example, for messages.
    pub fn example(self) -> &'static str {
        match self {
            TimeFormat::Clf => "10/Oct/2000:13:55:36 -0700",
            TimeFormat::Rfc3339 => "2000-10-10T13:55:36.123-07:00",
            TimeFormat::UnixMs => "971211336123",
            TimeFormat::UnixS => "971211336.123",
            TimeFormat::UnixUs => "971211336123456",
            TimeFormat::UnixNs => "971211336123456789",
        }
    }

    /// A number's unit, as a power of ten of a millisecond.
    fn scale(self) -> i64 {
        match self {
            TimeFormat::UnixS => 3,
            TimeFormat::UnixUs => -3,
            TimeFormat::UnixNs => -6,
            TimeFormat::UnixMs | TimeFormat::Clf | TimeFormat::Rfc3339 => 0,
        }
    }
}

/// A bracket of a log line that holds a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bracket {
    /// Where it opens, in bytes from the start of the line.
    pub at: usize,
    /// The time in it.
    pub time: Timestamp,
}

impl Bracket {
    /// Bytes of a time in the Common Log Format, without brackets.
    pub const TIME_BYTES: usize = clf::TEXT_BYTES;

    /// The first bracket of a line that holds a time of the Common Log Format.
    pub fn find(line: &[u8]) -> Option<Bracket> {
        clf::find_in_line(line)
    }
}

impl<'de> serde::Deserialize<'de> for TimeFormat {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<TimeFormat, D::Error> {
        struct FormatVisitor;
        impl serde::de::Visitor<'_> for FormatVisitor {
            type Value = TimeFormat;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a time format")
            }
            fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<TimeFormat, E> {
                let found = TimeFormat::NAMED.iter().find(|(known, _)| *known == name);
                found.map(|(_, format)| *format).ok_or_else(|| E::unknown_variant(name, &TimeFormat::NAMES))
            }
        }
        deserializer.deserialize_str(FormatVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_in_every_format() {
        for (format, text, ms) in [
            (TimeFormat::Clf, "10/Oct/2000:13:55:36 -0700", 971_211_336_000),
            (TimeFormat::Clf, "[29/Feb/2024:23:59:60 +0530]", 1_709_231_400_000),
            (TimeFormat::Clf, "01/Jan/1970:00:00:00 +0000", 0),
            (TimeFormat::Rfc3339, "2000-10-10T13:55:36-07:00", 971_211_336_000),
            (TimeFormat::Rfc3339, "2000-10-10T20:55:36.5Z", 971_211_336_500),
            (TimeFormat::Rfc3339, "2000-10-10 20:55:36.123456789Z", 971_211_336_123),
            (TimeFormat::Rfc3339, "2000-10-10t20:55:36,123z", 971_211_336_123),
            (TimeFormat::Rfc3339, "2000-10-10 13:55:36 -0700", 971_211_336_000),
            (TimeFormat::Rfc3339, "2000-10-10 13:55:36-07", 971_211_336_000),
            (TimeFormat::Rfc3339, "1969-12-31T23:59:59.999+00:00", -1),
            (TimeFormat::UnixMs, "-5", -5),
            (TimeFormat::UnixMs, "1e3", 1_000),
            (TimeFormat::UnixMs, "1700000000123.0", 1_700_000_000_123),
            (TimeFormat::UnixMs, "+5", 5),
            (TimeFormat::UnixS, "971211336.12", 971_211_336_120),
            (TimeFormat::UnixS, "-1", -1_000),
            (TimeFormat::UnixS, "1.7e9", 1_700_000_000_000),
            (TimeFormat::UnixUs, "971211336123456", 971_211_336_123),
            (TimeFormat::UnixNs, "971211336123456789", 971_211_336_123),
        ] {
            assert_eq!(format.read(text.as_bytes()), Some(ms), "{text}");
        }
        for (_, format) in TimeFormat::NAMED {
            assert!(format.read(format.example().as_bytes()).is_some());
        }
        assert!(TimeFormat::NAMED.iter().map(|(name, _)| name).eq(&TimeFormat::NAMES));
    }

    #[test]
    fn what_is_no_time_is_none() {
        for (format, text) in [
            (TimeFormat::Clf, "10/Foo/2000:13:55:36 -0700"),
            (TimeFormat::Clf, "30/Feb/2000:13:55:36 -0700"),
            (TimeFormat::Clf, "10/Oct/2000:13:55:36 -07:0"),
            (TimeFormat::Clf, "[10/Oct/2000:13:55:36 -0700"),
            (TimeFormat::Rfc3339, "2000-10-10T13:55:36"),
            (TimeFormat::Rfc3339, "2001-02-29T13:55:36Z"),
            (TimeFormat::Rfc3339, "2000-10-10T13:55:36.Z"),
            (TimeFormat::Rfc3339, "2000-10-10T13:55:36Z "),
            (TimeFormat::Rfc3339, "971211336"),
            (TimeFormat::UnixS, ""),
            (TimeFormat::UnixS, "null"),
            (TimeFormat::UnixMs, "0x10"),
            (TimeFormat::UnixMs, "99999999999999999999"),
        ] {
            assert_eq!(format.read(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn a_line_begins_with_its_time_or_has_it_in_brackets() {
        for (format, line, ms) in [
            (TimeFormat::Rfc3339, "1970-01-01T00:00:02Z started", 2_000),
            (TimeFormat::Rfc3339, "1970-01-01 00:00:02Z started", 2_000),
            (TimeFormat::Rfc3339, "1970-01-01 00:00:02,5 +0000 INFO", 2_500),
            (TimeFormat::Rfc3339, "1970-01-01T00:00:02Z|x", 2_000),
            (TimeFormat::Rfc3339, "1970-01-01T00:00:02+00,5", 2_000),
            (TimeFormat::UnixMs, "-5,x", -5),
            (TimeFormat::UnixS, "1.5 x", 1_500),
            (TimeFormat::Clf, "::1 - [odd [10/Oct/2000:13:55:36 -0700] \"GET / HTTP/1.0\" 200 1", 971_211_336_000),
        ] {
            assert_eq!(format.read_line(line.as_bytes()), Some(ms), "{line}");
        }
        for (format, line) in [
            (TimeFormat::Rfc3339, "1970-01-01T00:00:02 no offset"),
            (TimeFormat::Rfc3339, "1970-01-01T00:00:02Zulu"),
            (TimeFormat::Rfc3339, "1970-01-01T00:00:02+01:0x"),
            (TimeFormat::Rfc3339, "started 1970-01-01T00:00:02Z"),
            (TimeFormat::UnixS, "1. x"),
            (TimeFormat::Clf, "127.0.0.1 - - [yesterday] x"),
        ] {
            assert_eq!(format.read_line(line.as_bytes()), None, "{line}");
        }
    }

    #[test]
    fn a_time_in_json_is_found_by_any_path() {
        let at = |format: TimeFormat, path: &str, json: &str| format.read_json(&Path::new(path), json.as_bytes());
        assert_eq!(at(TimeFormat::Rfc3339, "events.0.at", r#"{"events":[{"at":"1970-01-01T00:00:01.5Z"}]}"#), Some(1_500));
        assert_eq!(at(TimeFormat::UnixMs, "/a~1b", r#"{"a/b":7}"#), Some(7));
        assert_eq!(at(TimeFormat::UnixS, "t", r#"{"t":0.29}"#), Some(290));
        assert_eq!(at(TimeFormat::UnixS, "t", r#"{"t":"0.29"}"#), Some(290));
        for json in [r#"{"t":null}"#, r#"{"t":true}"#, r#"{"t":{}}"#, r#"{"t":[1]}"#, r#"{"t":"\ud800"}"#, "{}", "{\"t\":1"] {
            let expected = if json == "{\"t\":1" { Some(1_000) } else { None };
            assert_eq!(at(TimeFormat::UnixS, "t", json), expected, "{json}");
        }
    }
}
