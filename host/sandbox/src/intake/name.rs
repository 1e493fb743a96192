//! Name and version of a component, in the custom section `weir:component`.

use super::IntakeError;
use super::sections::{self, CUSTOM, HEADER_BYTES};

const SECTION: &[u8] = b"weir:component";

/// Longest name, and longest version.
const PART_BYTES_MAX: usize = 64;

/// The `name@version` that `bytes` carries, if any.
pub(super) fn read(bytes: &[u8]) -> Result<Option<String>, IntakeError> {
    for section in sections::sections(bytes) {
        let (kind, payload) = section?;
        let Some(text) = content(kind, payload) else { continue };
        let parts = std::str::from_utf8(text).ok().and_then(|text| text.split_once('@'));
        let valid = parts.filter(|(name, version)| problem(name, version).is_none());
        let Some((name, version)) = valid else {
            return Err(IntakeError::Refused {
                construct: "a section `weir:component` that holds no name@version".to_string(),
                location: "the component".to_string(),
                hint: "stamp the component with a name and a version again".to_string(),
            });
        };
        return Ok(Some(format!("{name}@{version}")));
    }
    Ok(None)
}

/// `bytes` with the name and version in place of those it carries, if any.
pub(super) fn stamp(bytes: &[u8], name: &str, version: &str) -> Result<Vec<u8>, IntakeError> {
    if let Some(reason) = problem(name, version) {
        return Err(IntakeError::Name { name: name.to_string(), version: version.to_string(), reason });
    }
    let mut out = bytes.get(..HEADER_BYTES).unwrap_or(bytes).to_vec();
    for section in sections::sections(bytes) {
        let (kind, payload) = section?;
        if content(kind, payload).is_none() {
            sections::push(&mut out, kind, payload);
        }
    }
    let mut payload = Vec::new();
    wasm_encoder::Encode::encode(SECTION, &mut payload);
    payload.extend_from_slice(format!("{name}@{version}").as_bytes());
    sections::push(&mut out, CUSTOM, &payload);
    Ok(out)
}

fn content(kind: u8, payload: &[u8]) -> Option<&[u8]> {
    if kind != CUSTOM {
        return None;
    }
    sections::custom(payload).filter(|(name, _)| *name == SECTION).map(|(_, content)| content)
}

/// What is wrong with a name or version. They end up in file names, addresses and job files.
fn problem(name: &str, version: &str) -> Option<String> {
    let bounded = |text: &str| !text.is_empty() && text.len() <= PART_BYTES_MAX;
    let starts_well = |text: &str| text.starts_with(|c: char| c.is_ascii_alphanumeric());
    let is_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let is_version = |c: char| c.is_ascii_alphanumeric() || "-_.+".contains(c);
    if !bounded(name) || !starts_well(name) || !name.chars().all(is_name) {
        return Some("a name is 1 to 64 ASCII letters, digits, `-`, `_`, `.`, and starts with a letter or digit".to_string());
    }
    if !bounded(version) || !starts_well(version) || !version.chars().all(is_version) {
        return Some(
            "a version is 1 to 64 ASCII letters, digits, `-`, `_`, `.`, `+`, and starts with a letter or digit".to_string(),
        );
    }
    None
}
