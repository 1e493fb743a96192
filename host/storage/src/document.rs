//! JSON documents that carry their own checksum.
//!
//! The whole file is JSON that any tool reads, in a fixed frame:
//!
//! ```text
//! {"checksum": "<xxh3_64 of the content's bytes, 16 hexadecimal digits>", "content":
//! <content, indented JSON>
//! }
//! ```
//!
//! The checksum is of the bytes as they stand, so that reading never depends on how a JSON library prints a number.

use std::ops::RangeInclusive;

use serde::Serialize;
use serde::de::DeserializeOwned;
use xxhash_rust::xxh3::{Xxh3Default, xxh3_64};

use crate::StorageError;

const BEFORE_CHECKSUM: &str = "{\"checksum\": \"";
const AFTER_CHECKSUM: &str = "\", \"content\":\n";
const END: &str = "\n}\n";

/// xxh3_64 as 16 hexadecimal digits: the form of every checksum of this crate.
pub(crate) fn checksum(bytes: &[u8]) -> String {
    digits(xxh3_64(bytes))
}

fn digits(hash: u64) -> String {
    format!("{hash:016x}")
}

/// The same of bytes that come piece by piece.
#[derive(Default)]
pub(crate) struct Checksum(Xxh3Default);

impl Checksum {
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(crate) fn digits(&self) -> String {
        digits(self.0.digest())
    }
}

/// The bytes of a document.
pub(crate) fn encode<T: Serialize>(content: &T) -> Result<Vec<u8>, StorageError> {
    let content = serde_json::to_string_pretty(content)
        .map_err(|error| StorageError::Misuse(format!("cannot write a document as JSON: {error}")))?;
    Ok(format!("{BEFORE_CHECKSUM}{}{AFTER_CHECKSUM}{content}{END}", checksum(content.as_bytes())).into_bytes())
}

/// Verifies the document that was read from `path`; its `format` must be one of `formats`, where that is said.
pub(crate) fn decode<T: DeserializeOwned>(
    path: &str,
    bytes: &[u8],
    formats: Option<RangeInclusive<u32>>,
) -> Result<T, StorageError> {
    let damaged = |reason: String| StorageError::Damaged { path: path.to_owned(), reason };
    if bytes.is_empty() {
        return Err(damaged("it is empty".to_owned()));
    }
    let (recorded, content) =
        frame(bytes).ok_or_else(|| damaged(format!("it is cut off or was not written by weir ({} bytes)", bytes.len())))?;
    let computed = checksum(content);
    if recorded != computed.as_bytes() {
        let recorded = String::from_utf8_lossy(recorded);
        return Err(damaged(format!("its checksum is {computed}, it should be {recorded}")));
    }
    // The format is looked at before anything else, because the rest may have another shape in another format.
    let value: serde_json::Value =
        serde_json::from_slice(content).map_err(|error| damaged(format!("it is not JSON: {error}")))?;
    if let Some(formats) = formats {
        let found = value.get("format").and_then(serde_json::Value::as_u64);
        let found = found.ok_or_else(|| damaged("it has no format number".to_owned()))?;
        if !u32::try_from(found).is_ok_and(|found| formats.contains(&found)) {
            return Err(StorageError::UnknownFormat { path: path.to_owned(), found, supported: *formats.end() });
        }
    }
    serde_json::from_value(value).map_err(|error| damaged(format!("its content is not as expected: {error}")))
}

/// Splits a document into its recorded checksum and its content.
fn frame(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let rest = bytes.strip_prefix(BEFORE_CHECKSUM.as_bytes())?;
    let (recorded, rest) = rest.split_at_checked(16)?;
    let content = rest.strip_prefix(AFTER_CHECKSUM.as_bytes())?.strip_suffix(END.as_bytes())?;
    Some((recorded, content))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};

    fn sample() -> Value {
        json!({"format": 1, "name": "größe", "float": 0.1, "tiny": 5e-324, "big": u64::MAX, "nested": [{"a": null}]})
    }

    #[test]
    fn a_document_survives_writing_and_reading_and_is_json_as_a_whole() {
        let bytes = encode(&sample()).unwrap();
        assert_eq!(decode::<Value>("x", &bytes, Some(1..=1)).unwrap(), sample());
        let whole: Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(whole["content"]["name"], "größe");
    }

    #[test]
    fn s40_every_flipped_bit_and_every_truncation_is_noticed() {
        let bytes = encode(&sample()).unwrap();
        for position in 0..bytes.len() {
            for bit in 0..8 {
                let mut flipped = bytes.clone();
                flipped[position] ^= 1 << bit;
                let error = decode::<Value>("jobs/x", &flipped, Some(1..=1)).unwrap_err();
                assert!(matches!(error, StorageError::Damaged { .. }), "byte {position} bit {bit}: {error}");
                assert!(error.to_string().contains("jobs/x"));
            }
            assert!(matches!(decode::<Value>("x", &bytes[..position], Some(1..=1)), Err(StorageError::Damaged { .. })));
        }
    }

    #[test]
    fn an_unknown_format_is_named_with_the_supported_one() {
        let bytes = encode(&json!({"format": 7, "shape": "of the future"})).unwrap();
        let error = decode::<Value>("jobs/x", &bytes, Some(1..=1)).unwrap_err();
        assert!(matches!(error, StorageError::UnknownFormat { found: 7, supported: 1, .. }), "{error}");
        assert!(error.to_string().contains("format is 7") && error.to_string().contains("jobs/x"), "{error}");
    }
}
