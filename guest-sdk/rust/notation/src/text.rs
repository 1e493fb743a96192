//! Bytes from outside as text for people: nothing unreadable, nothing lost, nothing too long.

use alloc::borrow::Cow;
use alloc::string::String;
use core::fmt::{self, Write};

/// Bytes of a text that a message shows.
const SHOWN_BYTES_MAX: usize = 120;

/// Some text of a row within a message: its beginning, with escapes for what is not readable.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a>(pub &'a [u8]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cut = self.0.len() > SHOWN_BYTES_MAX;
        let mut end = self.0.len().min(SHOWN_BYTES_MAX);
        // Not in the middle of a character.
        while cut && end > SHOWN_BYTES_MAX - 4 && self.0[end] & 0xC0 == 0x80 {
            end -= 1;
        }
        for chunk in self.0[..end].utf8_chunks() {
            for c in chunk.valid().chars() {
                if c.is_control() { write!(f, "{}", c.escape_default())? } else { f.write_char(c)? }
            }
            chunk.invalid().iter().try_for_each(|byte| write!(f, "\\x{byte:02X}"))?;
        }
        if cut { write!(f, "... ({} bytes)", self.0.len()) } else { Ok(()) }
    }
}

/// The bytes as text: what is not UTF-8 is written as `\xE9`, the way web servers write such bytes into their logs.
pub fn readable(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = core::str::from_utf8(bytes) {
        return Cow::Borrowed(text);
    }
    let mut text = String::with_capacity(bytes.len() + 16);
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            // Writing to a string does not fail.
            let _ = write!(text, "\\x{byte:02X}");
        }
    }
    Cow::Owned(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use alloc::vec;

    #[test]
    fn what_is_not_text_is_escaped_and_nothing_else() {
        assert_eq!(readable("grün".as_bytes()), "grün");
        assert_eq!(readable(b"caf\xE9 \xFF\xFEx"), "caf\\xE9 \\xFF\\xFEx");
        assert_eq!(Shown(b"a\x16\n\xE9").to_string(), "a\\u{16}\\n\\xE9");
    }

    #[test]
    fn messages_show_the_beginning_of_a_long_text() {
        assert_eq!(Shown(&vec![b'x'; 70_000]).to_string(), "x".repeat(120) + "... (70000 bytes)");
        let text = "x".repeat(119) + "üüü";
        assert_eq!(Shown(text.as_bytes()).to_string(), "x".repeat(119) + "... (125 bytes)");
    }
}
