//! Time spans as people write them in a job file: `"500ms"`, `"5m"`, `"1h30m"`.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A time span in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(i64);

const UNITS: [(&str, i64); 5] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

impl Span {
    /// A span of so many milliseconds.
    pub const fn from_ms(ms: i64) -> Span {
        Span(ms)
    }

    /// How many milliseconds.
    pub const fn ms(self) -> i64 {
        self.0
    }

    /// Reads a span: numbers with the units ms, s, m, h, d.
    pub fn parse(text: &str) -> Option<Span> {
        let mut rest = text.trim();
        let mut total = 0i64;
        if rest.is_empty() {
            return None;
        }
        while !rest.is_empty() {
            let digits = rest.find(|c: char| !c.is_ascii_digit())?;
            let unit_end = rest[digits..].find(|c: char| !c.is_ascii_alphabetic()).map_or(rest.len(), |end| digits + end);
            let (_, factor) = UNITS.iter().find(|(unit, _)| *unit == &rest[digits..unit_end])?;
            let number: i64 = rest[..digits].parse().ok()?;
            total = number.checked_mul(*factor).and_then(|ms| total.checked_add(ms))?;
            rest = rest[unit_end..].trim_start();
        }
        Some(Span(total))
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Span, D::Error> {
        let text = String::deserialize(deserializer)?;
        Span::parse(&text).ok_or_else(|| {
            de::Error::custom(format!(
                "`{text}` is not a time span; write a number with a unit: \"500ms\", \"30s\", \"5m\", \"1h\", \"1d\""
            ))
        })
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{}ms", self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read_as_people_write_them() {
        for (text, ms) in
            [("500ms", 500), ("5m", 300_000), ("1h30m", 5_400_000), ("1d", 86_400_000), ("0s", 0), ("1m 5s", 65_000)]
        {
            assert_eq!(Span::parse(text), Some(Span::from_ms(ms)), "{text}");
        }
        for text in ["", "5", "m", "-5m", "5 m", "5min", "99999999999999d", "5mm"] {
            assert_eq!(Span::parse(text), None, "{text}");
        }
    }
}
