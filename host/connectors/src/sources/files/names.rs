//! Paths as text: in positions, where every path must come back as it was, and in messages, where it must be one line.
//!
//! A path is any bytes but NUL. Positions are JSON, so a path that is not UTF-8 is kept as `TEXT NUL HEX`: what can be read of it,
//! and its bytes. No path that is UTF-8 looks like that.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The path as text that [`from_text`] turns back. Of paths that are UTF-8: themselves.
pub(super) fn to_text(path: &Path) -> String {
    match path.to_str() {
        Some(text) => text.to_owned(),
        None => {
            let bytes = path.as_os_str().as_bytes();
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("{}\0{hex}", path.to_string_lossy())
        }
    }
}

/// The path that a text means; `None` if `to_text` never wrote it.
pub(super) fn from_text(text: &str) -> Option<PathBuf> {
    let Some((_, hex)) = text.split_once('\0') else { return Some(PathBuf::from(text)) };
    let digits = hex.as_bytes();
    let byte = |pair: &[u8]| Some((char::from(pair[0]).to_digit(16)? * 16 + char::from(pair[1]).to_digit(16)?) as u8);
    let (pairs, rest) = digits.as_chunks::<2>();
    let bytes: Option<Vec<u8>> = pairs.iter().map(|pair| byte(pair)).collect();
    Some(PathBuf::from(OsString::from_vec(bytes.filter(|_| rest.is_empty())?)))
}

/// The path for a message: what is not text as U+FFFD, control characters escaped, so that no name can break a line or
/// say something to a terminal.
pub(super) fn shown(path: &Path) -> String {
    let text = path.to_string_lossy();
    text.chars().map(|c| if c.is_control() { c.escape_default().to_string() } else { c.to_string() }).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_are_shown_on_one_line() {
        assert_eq!(shown(Path::new("a\nb\x1b[2Jé")), "a\\nb\\u{1b}[2Jé");
        assert_eq!(to_text(Path::new("logs/é")), "logs/é");
        assert_eq!(from_text("x\0zz"), None);
        assert_eq!(from_text("x\0e"), None);
    }

    proptest! {
        #[test]
        fn every_path_comes_back_from_its_text(bytes in proptest::collection::vec(1u8..=255, 1..20)) {
            let path = PathBuf::from(OsString::from_vec(bytes));
            prop_assert_eq!(from_text(&to_text(&path)), Some(path));
        }
    }
}
