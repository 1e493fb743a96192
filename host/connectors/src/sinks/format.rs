//! Rows as lines of text.

use std::borrow::Cow;

use base64::prelude::{BASE64_STANDARD, Engine};
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use weir_model::{BatchRef, RowRef, headers_of};

use crate::SettingError;
use crate::event_time::write_rfc3339;
use crate::settings::Settings;

/// How a row is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// `{"key":…,"time":…,"value":…}`. The time is RFC 3339, UTC, milliseconds. A key is a string. A value that is JSON stands as
    /// it is, other text as a string. What is not UTF-8 is `{"base64":…}`. What is absent is `null`. Where there are headers,
    /// `"headers":[[name,value],…]` follows, all of them strings or `{"base64":…}`.
    Json,
    /// The value and a line feed. Line feeds within a value are kept, so they cannot be told from ends. A row without value is an empty
    /// line; keys, times and headers are not written.
    Lines,
}

impl Format {
    pub(super) fn from_settings(settings: &Settings<'_>) -> Result<Format, SettingError> {
        settings.choice("format", &[("json", Format::Json), ("lines", Format::Lines)])
    }

    /// Ending of file names.
    pub(super) fn extension(self) -> &'static str {
        match self {
            Format::Json => "json",
            Format::Lines => "txt",
        }
    }

    /// Appends all rows.
    pub(super) fn write(self, rows: BatchRef<'_>, out: &mut Vec<u8>) {
        match self {
            Format::Json => rows.rows().for_each(|row| write_json(row, out)),
            Format::Lines => {
                out.reserve(rows.values.bytes.len() + rows.len());
                for value in rows.values.iter() {
                    out.extend_from_slice(value);
                    out.push(b'\n');
                }
            }
        }
    }
}

fn write_json(row: RowRef<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"key\":");
    match row.key {
        None => out.extend_from_slice(b"null"),
        Some(key) => write_bytes(key, out),
    }
    out.extend_from_slice(b",\"time\":\"");
    write_rfc3339(row.timestamp, out);
    out.extend_from_slice(b"\",\"value\":");
    match row.value.map(|value| (value, std::str::from_utf8(value))) {
        None => out.extend_from_slice(b"null"),
        Some((_, Ok(text))) if is_json(text) => out.extend_from_slice(&one_line(text)),
        Some((_, Ok(text))) => write_string(text, out),
        Some((value, Err(_))) => write_base64(value, out),
    }
    if !row.headers.is_empty() {
        write_headers(row.headers, out);
    }
    out.extend_from_slice(b"}\n");
}

fn write_headers(headers: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b",\"headers\":[");
    for (index, (name, value)) in headers_of(headers).enumerate() {
        out.extend_from_slice(if index == 0 { b"[" } else { b",[" });
        write_bytes(name, out);
        out.push(b',');
        write_bytes(value, out);
        out.push(b']');
    }
    out.push(b']');
}

/// Text as a string, anything else as `{"base64":"..."}`.
fn write_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => write_string(text, out),
        Err(_) => write_base64(bytes, out),
    }
}

/// Whether a text is one JSON value.
fn is_json(text: &str) -> bool {
    // Most other text is told from JSON by its first byte.
    let begins_json =
        |byte: u8| matches!(byte, b'{' | b'[' | b'"' | b'-' | b'0'..=b'9' | b't' | b'f' | b'n' | b' ' | b'\t' | b'\n' | b'\r');
    text.bytes().next().is_some_and(begins_json) && serde_json::from_str::<IgnoredAny>(text).is_ok()
}

/// JSON without line ends, which can only be white space in it.
fn one_line(json: &str) -> Cow<'_, [u8]> {
    let bytes = json.trim_matches([' ', '\t', '\n', '\r']).as_bytes();
    if memchr::memchr2(b'\n', b'\r', bytes).is_none() {
        return Cow::Borrowed(bytes);
    }
    Cow::Owned(bytes.iter().map(|&byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { byte }).collect())
}

fn write_string(text: &str, out: &mut Vec<u8>) {
    // Cannot fail: a text is JSON, and memory takes it.
    let _ = serde_json::to_writer(out, text);
}

fn write_base64(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"base64\":\"");
    out.extend_from_slice(BASE64_STANDARD.encode(bytes).as_bytes());
    out.extend_from_slice(b"\"}");
}

/// Bytes as JSON, wherever they stand in output: text as a string, anything else as `{"base64":"..."}`.
pub fn bytes_as_json(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => Value::from(text),
        Err(_) => json!({"base64": BASE64_STANDARD.encode(bytes)}),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use proptest::prelude::*;
    use weir_model::{Batch, Timestamp, push_header};

    fn line(format: Format, time: Timestamp, key: &[u8], value: &[u8]) -> String {
        line_of(format, RowRef::new(time, key, value))
    }

    fn line_of(format: Format, row: RowRef<'_>) -> String {
        let mut rows = Batch::default();
        rows.push_row(row);
        let mut out = Vec::new();
        format.write(rows.view(), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_row_is_one_json_object() {
        let json = |key: &[u8], value: &[u8]| line(Format::Json, 0, key, value);
        assert_eq!(json(b"/a", b"7"), "{\"key\":\"/a\",\"time\":\"1970-01-01T00:00:00.000Z\",\"value\":7}\n");
        assert_eq!(
            json(b"", b" {\"a\":\n[1,\r2]} "),
            "{\"key\":\"\",\"time\":\"1970-01-01T00:00:00.000Z\",\"value\":{\"a\": [1, 2]}}\n"
        );
        assert!(json(b"k", b"not \"json\"\n\x01").contains(r#""value":"not \"json\"\n\u0001"}"#));
        assert!(json(b"k", b"01").contains(r#""value":"01"}"#), "a leading zero is no JSON number");
        assert!(json(b"k", b"{} {}").contains(r#""value":"{} {}"}"#));
        assert!(json(b"k", b"").contains(r#""value":""}"#));
        assert!(json(b"\xff\x00", b"\"\xff\"").contains(r#"{"key":{"base64":"/wA="},"#));
    }

    #[test]
    fn s114_what_is_absent_is_null_and_headers_are_written_where_there_are_some() {
        let nothing = line_of(Format::Json, RowRef::default());
        assert_eq!(nothing, "{\"key\":null,\"time\":\"1970-01-01T00:00:00.000Z\",\"value\":null}\n");
        assert!(line(Format::Json, 0, b"", b"").contains(r#""value":""}"#), "an empty value is there");
        let mut headers = Vec::new();
        [(&b"trace"[..], &b"a\"b"[..]), (b"", b"\xff"), (b"n", b"7")]
            .iter()
            .for_each(|(name, value)| push_header(&mut headers, name, value));
        let row = RowRef { headers: &headers, ..RowRef::new(0, b"k", b"1") };
        let expected = r#""value":1,"headers":[["trace","a\"b"],["",{"base64":"/w=="}],["n","7"]]}"#;
        assert!(line_of(Format::Json, row).contains(expected), "{}", line_of(Format::Json, row));
        assert_eq!(line_of(Format::Lines, RowRef { value: None, ..row }), "\n");
    }

    #[test]
    fn bytes_are_written_alike_wherever_they_stand() {
        for bytes in [&b"f\xff"[..], b"\xfffoo", b"plain \"text\"\x7f\x08"] {
            let row: Value = serde_json::from_str(&line(Format::Json, 0, bytes, b"v")).unwrap();
            assert_eq!(row["key"], bytes_as_json(bytes));
        }
        assert_eq!(bytes_as_json(b"f\xff"), json!({"base64": "Zv8="}));
    }

    #[test]
    fn lines_are_values() {
        assert_eq!(line(Format::Lines, 5, b"k", b"v v"), "v v\n");
    }

    proptest! {
        #[test]
        fn any_row_is_one_line_of_json_that_holds_it(key in proptest::collection::vec(any::<u8>(), 0..9), text in ".{0,20}", raw: Vec<u8>) {
            for value in [text.as_bytes(), &raw] {
                let line = line(Format::Json, 0, &key, value);
                prop_assert_eq!(line.matches(['\n', '\r']).count(), 1);
                let parsed: Value = serde_json::from_str(&line).unwrap();
                if let (Ok(text), Value::String(found)) = (std::str::from_utf8(value), &parsed["value"]) {
                    prop_assert!(found == text || serde_json::from_str::<Value>(text).unwrap() == parsed["value"]);
                }
                if let Ok(key) = std::str::from_utf8(&key) {
                    prop_assert_eq!(parsed["key"].as_str().unwrap_or(""), key);
                }
            }
        }
    }
}
