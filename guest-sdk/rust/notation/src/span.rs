//! Time spans: `500ms`, `5m`, `1h30m`, `1h 30m`.
//!
//! Whole numbers with the units d, h, m, s, ms: the largest first, each at most once. Blanks may stand around a span and between
//! its parts, never between a number and its unit.

use alloc::borrow::ToOwned;
use alloc::string::String;
use core::fmt::{self, Write};

/// Why a text is no span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoSpan {
    /// It is not written as one.
    Malformed,
    /// It has more milliseconds than 64 bits hold.
    TooLong,
}

impl fmt::Display for NoSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NoSpan::Malformed => {
                "not a time span: write whole numbers with units, the largest first: \"500ms\", \"30s\", \"5m\", \"1h30m\", \"1d\""
            }
            NoSpan::TooLong => "too long for a time span",
        })
    }
}

impl core::error::Error for NoSpan {}

const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// The milliseconds of a span.
///
/// # Errors
/// If the text is not a span, or one that is too long.
pub fn parse_ms(text: &str) -> Result<u64, NoSpan> {
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(NoSpan::Malformed);
    }
    let (mut total_ms, mut units_left) = (0_u64, &UNITS[..]);
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let unit_bytes = rest[digits..].bytes().take_while(u8::is_ascii_alphabetic).count();
        let (number, unit) = (&rest[..digits], &rest[digits..digits + unit_bytes]);
        let index = units_left.iter().position(|(name, _)| *name == unit).filter(|_| digits > 0).ok_or(NoSpan::Malformed)?;
        let number: u64 = number.parse().map_err(|_| NoSpan::TooLong)?;
        let part_ms = number.checked_mul(units_left[index].1).ok_or(NoSpan::TooLong)?;
        total_ms = total_ms.checked_add(part_ms).ok_or(NoSpan::TooLong)?;
        units_left = &units_left[index + 1..];
        rest = rest[digits + unit_bytes..].trim_start();
    }
    Ok(total_ms)
}

/// A span of so many milliseconds, as [`parse_ms`] reads it.
pub fn format_ms(mut ms: u64) -> String {
    if ms == 0 {
        return "0s".to_owned();
    }
    let mut text = String::new();
    for (unit, factor) in UNITS {
        if ms >= factor {
            // Writing to a string does not fail.
            let _ = write!(text, "{}{unit}", ms / factor);
            ms %= factor;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read_as_people_write_them() {
        for (text, ms) in [
            ("0s", 0),
            ("500ms", 500),
            ("5m", 300_000),
            ("1h30m", 5_400_000),
            ("1m 5s", 65_000),
            (" 1d ", 86_400_000),
            ("1d2h3m4s5ms", 93_784_005),
        ] {
            assert_eq!(parse_ms(text), Ok(ms), "{text}");
        }
        for text in ["", " ", "5", "m", "s", "-5m", "1.5s", "5 m", "5min", "5mm", "5m1h", "5m5m", "1h30", "1h, 5m", "٣s"] {
            assert_eq!(parse_ms(text), Err(NoSpan::Malformed), "{text}");
        }
        for text in ["99999999999999999999s", "9999999999999999999d", "300000000000d"] {
            assert_eq!(parse_ms(text), Err(NoSpan::TooLong), "{text}");
        }
    }

    #[test]
    fn what_is_written_is_read_as_the_same() {
        for ms in [0, 1, 999, 1_000, 5_400_000, 93_784_005, u64::MAX] {
            assert_eq!(parse_ms(&format_ms(ms)), Ok(ms));
        }
        assert_eq!(format_ms(5_400_000), "1h30m");
    }
}
