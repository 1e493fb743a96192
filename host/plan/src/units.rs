//! Durations and sizes as people write them: "500ms", "1h30m", "64MiB".

use std::time::Duration;

use weir_notation::span;

/// A text is not a duration or size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    /// Not a duration.
    #[error("expected a duration such as \"500ms\", \"10s\", \"5m\" or \"1h30m\"")]
    Duration,
    /// Not a size.
    #[error("expected a size such as \"64KiB\", \"256MiB\" or \"1GiB\"")]
    Size,
    /// Does not fit.
    #[error("the value is too large")]
    TooLarge,
}

const SIZE_UNITS: [(&str, u64); 9] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
    ("B", 1),
];

/// Reads a duration, by the rules of [`weir_notation::span`].
pub fn parse_duration(text: &str) -> Result<Duration, UnitError> {
    span::parse_ms(text).map(Duration::from_millis).map_err(|error| match error {
        span::NoSpan::Malformed => UnitError::Duration,
        span::NoSpan::TooLong => UnitError::TooLarge,
    })
}

/// Reads a size in bytes: a whole number and one of B, KiB, MiB, GiB, TiB, kB, MB, GB, TB.
pub fn parse_size(text: &str) -> Result<u64, UnitError> {
    let (number, unit) = leading_number(text.trim()).ok_or(UnitError::Size)??;
    let (_, factor) = SIZE_UNITS.iter().find(|(name, _)| *name == unit.trim_start()).ok_or(UnitError::Size)?;
    number.checked_mul(*factor).ok_or(UnitError::TooLarge)
}

/// The number a text starts with, and what follows. None: it starts with none.
fn leading_number(text: &str) -> Option<Result<(u64, &str), UnitError>> {
    let length = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    if length == 0 {
        return None;
    }
    Some(text[..length].parse().map(|number| (number, &text[length..])).map_err(|_| UnitError::TooLarge))
}

/// A duration as [`parse_duration`] reads it, to the millisecond.
pub fn format_duration(duration: Duration) -> String {
    span::format_ms(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

/// A size as [`parse_size`] reads it, in the largest binary unit that holds it exactly.
pub fn format_size(bytes: u64) -> String {
    let units = SIZE_UNITS.iter().take(4).find(|(_, factor)| bytes >= *factor && bytes.is_multiple_of(*factor));
    let (unit, factor) = units.unwrap_or(&("B", 1));
    format!("{}{unit}", bytes / factor)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_durations() {
        for (text, ms) in
            [("0s", 0), ("500ms", 500), ("5m", 300_000), ("1h30m", 5_400_000), ("1h 30m", 5_400_000), ("1d2h3m4s5ms", 93_784_005)]
        {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
    }

    #[test]
    fn refuses_what_is_no_duration() {
        for text in ["", "5", "s", "1.5s", "-1s", "1m1h", "1s1s", "5 m", "5min", "1h30", "٣s"] {
            assert_eq!(parse_duration(text), Err(UnitError::Duration), "{text}");
        }
        assert_eq!(parse_duration("99999999999999999999s"), Err(UnitError::TooLarge));
        assert_eq!(parse_duration("9999999999999999999d"), Err(UnitError::TooLarge));
    }

    #[test]
    fn reads_sizes() {
        for (text, bytes) in [("0B", 0), ("64KiB", 65_536), ("256MiB", 268_435_456), ("1GB", 1_000_000_000), ("1 MiB", 1_048_576)]
        {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in ["", "64", "MiB", "1.5MiB", "1mib", "1MiBx"] {
            assert_eq!(parse_size(text), Err(UnitError::Size), "{text}");
        }
        assert_eq!(parse_size("99999999TiB"), Err(UnitError::TooLarge));
    }

    proptest! {
        #[test]
        fn formatting_and_reading_agree(number in any::<u64>()) {
            let duration = Duration::from_millis(number);
            prop_assert_eq!(parse_duration(&format_duration(duration)), Ok(duration));
            prop_assert_eq!(parse_size(&format_size(number)), Ok(number));
        }
    }
}
