//! Exact decimal numbers for amounts: sums that are right to the last digit, in any order, after any restart.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Digits after the point.
const SCALE: u32 = 9;

/// 10^[`SCALE`].
const ONE: i128 = 1_000_000_000;

/// A number with nine digits after the point, exact. About 29 digits before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(transparent)]
pub struct Decimal(i128);

impl Decimal {
    /// Nothing.
    pub const ZERO: Decimal = Decimal(0);

    /// The sum, if it is in range.
    #[inline]
    #[must_use]
    pub fn checked_add(self, other: Decimal) -> Option<Decimal> {
        self.0.checked_add(other.0).map(Decimal)
    }

    /// A share of it: rounded to nine digits, halves away from zero. `None` for no parts.
    #[must_use]
    pub fn divided_by(self, parts: u64) -> Option<Decimal> {
        let parts = i128::from(parts);
        let (whole, rest) = (self.0.checked_div(parts)?, self.0.checked_rem(parts)?);
        let up = if rest.abs() * 2 >= parts { rest.signum() } else { 0 };
        Some(Decimal(whole + up))
    }

    /// The number in units of 10^-9.
    pub(crate) fn units(self) -> i128 {
        self.0
    }

    pub(crate) fn from_units(units: i128) -> Decimal {
        Decimal(units)
    }

    /// Reads a number as JSON writes it: `-12.50`, `1e3`.
    ///
    /// # Errors
    /// What is wrong: not a number, more than nine digits after the point, too large.
    pub fn parse(text: &str) -> Result<Decimal, DecimalError> {
        match Decimal::parse_rounded(text)? {
            (decimal, false) => Ok(decimal),
            (_, true) => Err(DecimalError::TooFine),
        }
    }

    /// Reads a number as JSON writes it, rounded to nine digits after the point, halves away from zero; and whether that changed it.
    ///
    /// # Errors
    /// What is wrong: not a number, too large.
    pub fn parse_rounded(text: &str) -> Result<(Decimal, bool), DecimalError> {
        let (negative, unsigned) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, read_exponent(exponent).ok_or(DecimalError::NotANumber)?),
            None => (unsigned, 0),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if whole.is_empty() || !all_digits(whole) || !all_digits(fraction) || mantissa.ends_with('.') {
            return Err(DecimalError::NotANumber);
        }
        let mut digits = whole.bytes().chain(fraction.bytes()).map(|digit| i128::from(digit - b'0'));
        // So many digits are kept: those up to the ninth after the point.
        let mut kept = (whole.len() as i64).saturating_add(exponent).saturating_add(i64::from(SCALE));
        let mut value: i128 = 0;
        if kept >= 0 {
            for digit in digits.by_ref() {
                if kept == 0 {
                    let up = i128::from(digit >= 5);
                    value = value.checked_add(up).ok_or(DecimalError::TooLarge)?;
                    let changed = digit != 0 || digits.any(|digit| digit != 0);
                    return Ok((Decimal(if negative { -value } else { value }), changed));
                }
                kept -= 1;
                value = value.checked_mul(10).and_then(|value| value.checked_add(digit)).ok_or(DecimalError::TooLarge)?;
            }
            // Zeros that are not written.
            while kept > 0 && value != 0 {
                kept -= 1;
                value = value.checked_mul(10).ok_or(DecimalError::TooLarge)?;
            }
            return Ok((Decimal(if negative { -value } else { value }), false));
        }
        Ok((Decimal::ZERO, digits.any(|digit| digit != 0)))
    }

    /// Appends it in decimal, without zeros at the end of the fraction.
    pub fn append_to(self, bytes: &mut Vec<u8>) {
        let magnitude = self.0.unsigned_abs();
        let (whole, mut fraction) = (magnitude / ONE.unsigned_abs(), (magnitude % ONE.unsigned_abs()) as u64);
        if self.0 < 0 {
            bytes.push(b'-');
        }
        crate::json::append_integer(bytes, whole);
        if fraction == 0 {
            return;
        }
        bytes.push(b'.');
        let mut unit = ONE.unsigned_abs() as u64 / 10;
        while fraction > 0 {
            bytes.push(b'0' + (fraction / unit) as u8);
            fraction %= unit;
            unit /= 10;
        }
    }
}

/// The number behind an `e`. What is beyond reach of any number with digits in memory is as good as the bound.
fn read_exponent(text: &str) -> Option<i64> {
    const MAX: i64 = 1 << 58;
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let value = digits.bytes().fold(0i64, |value, digit| (value * 10 + i64::from(digit - b'0')).min(MAX));
    Some(if negative { -value } else { value })
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = Vec::new();
        self.append_to(&mut bytes);
        f.write_str(&String::from_utf8_lossy(&bytes))
    }
}

impl From<i64> for Decimal {
    fn from(value: i64) -> Decimal {
        Decimal(i128::from(value) * ONE)
    }
}

/// Why a text is no [`Decimal`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecimalError {
    /// It is not a number.
    NotANumber,
    /// It has more than nine digits after the point.
    TooFine,
    /// It has more than about 29 digits before the point.
    TooLarge,
}

impl fmt::Display for DecimalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DecimalError::NotANumber => "not a number",
            DecimalError::TooFine => "more than 9 digits after the point",
            DecimalError::TooLarge => "more than 29 digits before the point",
        })
    }
}

impl std::error::Error for DecimalError {}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn text(number: &str) -> String {
        Decimal::parse(number).unwrap().to_string()
    }

    #[test]
    fn numbers_are_read_and_written_exactly() {
        for (read, written) in [
            ("0", "0"),
            ("-0.0", "0"),
            ("12.50", "12.5"),
            ("-0.01", "-0.01"),
            ("1e3", "1000"),
            ("1.25E+2", "125"),
            ("125e-2", "1.25"),
            ("0.123456789", "0.123456789"),
            ("0.1000000000000000000000000000000000000000000000", "0.1"),
            ("12345678901234567890123456789", "12345678901234567890123456789"),
            ("0e999999999", "0"),
        ] {
            assert_eq!(text(read), written, "{read}");
        }
    }

    #[test]
    fn what_cannot_be_kept_exactly_is_refused() {
        for (read, error) in [
            ("", DecimalError::NotANumber),
            ("-", DecimalError::NotANumber),
            ("1.", DecimalError::NotANumber),
            (".5", DecimalError::NotANumber),
            ("1e", DecimalError::NotANumber),
            ("--1", DecimalError::NotANumber),
            ("0.1234567891", DecimalError::TooFine),
            ("1e-10", DecimalError::TooFine),
            ("1e-99999999999999999999", DecimalError::TooFine),
            ("1e-2000000000", DecimalError::TooFine),
            ("1e40", DecimalError::TooLarge),
            ("1e2000000000", DecimalError::TooLarge),
            ("1e99999999999999999999", DecimalError::TooLarge),
            ("1e5x", DecimalError::NotANumber),
            ("170141183460469231731687303716", DecimalError::TooLarge),
        ] {
            assert_eq!(Decimal::parse(read), Err(error), "{read}");
        }
    }

    #[test]
    fn a2_doubles_are_rounded_where_that_is_asked_for() {
        for (read, written, changed) in [
            ("0.30000000000000004", "0.3", true),
            ("0.12345678901", "0.123456789", true),
            ("0.1234567895", "0.12345679", true),
            ("-0.1234567895", "-0.12345679", true),
            ("0.12345678949999999999999999999999999999999999999999", "0.123456789", true),
            ("12345.678900000000000000", "12345.6789", false),
            ("5e-10", "0.000000001", true),
            ("-4.9e-10", "0", true),
            ("1e-400", "0", true),
            ("0e-400", "0", false),
            ("1.5e3", "1500", false),
            ("99999999999999999999999999999.9999999999", "100000000000000000000000000000", true),
        ] {
            let (decimal, was_rounded) = Decimal::parse_rounded(read).unwrap();
            assert_eq!((decimal.to_string().as_str(), was_rounded), (written, changed), "{read}");
        }
        assert_eq!(Decimal::parse_rounded("1.7976931348623157e308"), Err(DecimalError::TooLarge));
        assert_eq!(Decimal::parse_rounded("x"), Err(DecimalError::NotANumber));
    }

    #[test]
    fn tenths_add_up() {
        let tenth = Decimal::parse("0.1").unwrap();
        let sum = (0..10).fold(Decimal::ZERO, |sum, _| sum.checked_add(tenth).unwrap());
        assert_eq!(sum, Decimal::from(1));
        assert_eq!(sum.divided_by(3).unwrap().to_string(), "0.333333333");
        assert_eq!(Decimal::from(-2).divided_by(3).unwrap().to_string(), "-0.666666667");
        assert_eq!(sum.divided_by(0), None);
    }
}
