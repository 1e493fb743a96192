//! Reads single fields out of JSON text without building the rest, and writes strings and numbers into it.
//!
//! Only what lies before and in the field is looked at; text after it may be malformed without being noticed. The parse
//! operator checks whole lines. Where an object has a name twice, the first counts, as in the sources.

pub use weir_notation::json::{Malformed, NoText, Path, Raw};
pub use weir_notation::number::Number;
pub use weir_notation::text::{Shown, readable};

use crate::{Error, OrReject};

/// The text of the number at `path` of a JSON value, also of one that is written as a string.
///
/// # Errors
/// A rejection that says what is there instead.
pub fn number_at<'a>(path: &Path, value: &'a [u8]) -> Result<&'a str, Error> {
    let raw = path.find(value).or_reject("reading the value")?;
    let raw = raw.ok_or_else(|| Error::reject(format_args!("field `{path}` is missing")))?;
    raw.number().ok_or_else(|| Error::reject(format_args!("field `{path}` is not a number")))
}

/// A rejection of the number at `path`: the field, the number, the reason.
#[cold]
pub fn refuse_number(path: &Path, number: &str, reason: impl std::fmt::Display) -> Error {
    Error::reject(format_args!("field `{path}`: {}: {reason}", Shown(number.as_bytes())))
}

/// Appends `text` as a JSON string with its quotes. Bytes that are not UTF-8 are written as `\xE9` (see [`readable`]).
pub fn append_string(to: &mut Vec<u8>, text: &[u8]) {
    if text.iter().all(|&byte| is_plain(byte)) {
        to.push(b'"');
        to.extend_from_slice(text);
        to.push(b'"');
        return;
    }
    serde_json::to_writer(to, &*readable(text)).expect("text has a JSON form and memory takes it");
}

/// A bound for how many bytes [`append_string`] appends, without writing them.
pub fn string_bytes_max(text: &[u8]) -> usize {
    let bytes = |&byte: &u8| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0C => 2,
        byte if byte < b' ' => 6,
        // If it is not part of a character: `\\xE9`.
        byte if byte >= 0x80 => 5,
        _ => 1,
    };
    text.iter().map(bytes).sum::<usize>() + 2
}

#[inline]
fn is_plain(byte: u8) -> bool {
    (b' '..0x80).contains(&byte) && byte != b'"' && byte != b'\\'
}

/// Appends a whole number in decimal.
pub fn append_integer(to: &mut Vec<u8>, value: impl itoa::Integer) {
    to.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn strings_and_numbers_are_written_as_serde_json_does() {
        for text in ["plain", "quo\"te", "back\\", "new\nline", "grün", "\u{1}\u{7f}"] {
            let mut bytes = Vec::new();
            append_string(&mut bytes, text.as_bytes());
            assert_eq!(bytes, serde_json::to_vec(text).unwrap());
            assert!(bytes.len() <= string_bytes_max(text.as_bytes()));
        }
        for value in [0, 7, 10, -1, i64::MAX, i64::MIN] {
            let mut bytes = Vec::new();
            append_integer(&mut bytes, value);
            assert_eq!(bytes, value.to_string().as_bytes());
        }
    }

    #[test]
    fn what_is_no_text_is_shown_byte_by_byte() {
        let mut bytes = Vec::new();
        append_string(&mut bytes, b"caf\xE9\xFF");
        assert_eq!(bytes, br#""caf\\xE9\\xFF""#);
        assert!(bytes.len() <= string_bytes_max(b"caf\xE9\xFF"));
    }
}
