//! What a component says of itself: its name and version in the custom section `weir:component`, and in `weir:state` that it
//! keeps no state, if it says so.

use super::IntakeError;
use super::sections::{self, CUSTOM, HEADER_BYTES, component};

const SECTION: &[u8] = b"weir:component";

/// Where a binary's header says whether it is a module (0) or a component.
const LAYER: usize = 6;
const COMPONENT_LAYER: u8 = 1;

const STATE_SECTION: &[u8] = b"weir:state";

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

/// Whether `bytes`, or the core module of an operator in them, say that nothing an instance remembers from one call to the next matters, so that it
/// need not be captured. Where components with code are nested only the outermost may say so: a part does not speak for the whole.
/// (Exported interfaces with types are nested components without code.)
pub(super) fn says_stateless(bytes: &[u8]) -> Result<bool, IntakeError> {
    let is_plain = bytes.get(LAYER) == Some(&COMPONENT_LAYER) && {
        let mut nested = sections::sections(bytes).flatten().filter(|(kind, _)| *kind == component::COMPONENT);
        nested.all(|(_, payload)| !holds_code(payload))
    };
    for section in sections::sections(bytes) {
        let (kind, payload) = section?;
        if is_plain && kind == component::MODULE && says_stateless(payload)? {
            return Ok(true);
        }
        let custom = sections::custom(payload).filter(|(name, _)| kind == CUSTOM && *name == STATE_SECTION);
        match custom {
            None => {}
            Some((_, b"none")) => return Ok(true),
            Some(_) => {
                return Err(IntakeError::Refused {
                    construct: "a section `weir:state` that does not hold `none`".to_string(),
                    location: "the component".to_string(),
                    hint: "build it with the SDK of this version of weir".to_string(),
                });
            }
        }
    }
    Ok(false)
}

/// Whether a component has a core module, at any depth.
fn holds_code(component: &[u8]) -> bool {
    sections::sections(component).flatten().any(|(kind, payload)| match kind {
        component::MODULE => true,
        component::COMPONENT => holds_code(payload),
        _ => false,
    })
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
