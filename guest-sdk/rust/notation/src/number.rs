//! Decimal numbers of any size and precision, compared exactly as they are written.

use core::cmp::Ordering;

/// Exponents beyond this count as this: no number within reach of memory has as many digits.
const EXPONENT_MAX: i64 = 1 << 58;

/// A number as JSON writes it: `-12.50`, `1e3`, `0.30000000000000004`. Holds the text, not a rounded value.
///
/// The value is `0.d1 d2 d3.. * 10^magnitude`, the digits being those of `whole` and then of `fraction`. `d1` is not 0, and
/// neither is the last digit; zero has no digits.
#[derive(Clone, Copy, Debug)]
pub struct Number<'a> {
    negative: bool,
    magnitude: i64,
    whole: &'a [u8],
    fraction: &'a [u8],
}

/// Sign, digits before and after the point, exponent.
pub(crate) struct Parts<'a> {
    pub(crate) negative: bool,
    pub(crate) whole: &'a [u8],
    pub(crate) fraction: &'a [u8],
    pub(crate) exponent: i64,
}

/// Takes a number apart. A sign of either kind and any zeros in front are fine.
pub(crate) fn parts(text: &[u8]) -> Option<Parts<'_>> {
    let (negative, text) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        all => (false, all),
    };
    let digits = |text: &[u8]| text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (whole, mut rest) = text.split_at(digits(text));
    let mut fraction = &rest[..0];
    if let [b'.', after @ ..] = rest {
        (fraction, rest) = after.split_at(digits(after));
        if fraction.is_empty() {
            return None;
        }
    }
    if whole.is_empty() {
        return None;
    }
    let exponent = match rest {
        [] => 0,
        [b'e' | b'E', exponent @ ..] => exponent_of(exponent)?,
        _ => return None,
    };
    Some(Parts { negative, whole, fraction, exponent })
}

fn exponent_of(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        all => (false, all),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let value = digits.iter().fold(0i64, |value, digit| (value * 10 + i64::from(digit - b'0')).min(EXPONENT_MAX));
    Some(if negative { -value } else { value })
}

impl<'a> Number<'a> {
    /// Reads a number; `None` if the text is not one.
    pub fn parse(text: &'a [u8]) -> Option<Number<'a>> {
        let Parts { negative, whole, fraction, exponent } = parts(text)?;
        let zeros = |digits: &[u8]| digits.iter().take_while(|&&digit| digit == b'0').count();
        let zeros_behind = |digits: &[u8]| digits.iter().rev().take_while(|&&digit| digit == b'0').count();
        let mut whole = &whole[zeros(whole)..];
        let mut magnitude = exponent.saturating_add(whole.len() as i64);
        let mut fraction = &fraction[..fraction.len() - zeros_behind(fraction)];
        if whole.is_empty() {
            let front = zeros(fraction);
            magnitude -= front as i64;
            fraction = &fraction[front..];
        }
        if fraction.is_empty() {
            whole = &whole[..whole.len() - zeros_behind(whole)];
            if whole.is_empty() {
                return Some(Number { negative: false, magnitude: 0, whole, fraction });
            }
        }
        Some(Number { negative, magnitude, whole, fraction })
    }

    fn is_zero(&self) -> bool {
        self.whole.is_empty() && self.fraction.is_empty()
    }

    fn digits(&self) -> impl Iterator<Item = &u8> {
        self.whole.iter().chain(self.fraction)
    }

    fn compare_sizes(&self, other: &Number<'_>) -> Ordering {
        match (self.is_zero(), other.is_zero()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
            // Neither ends in zeros, so the longer of two that begin alike is the greater.
            (false, false) => self.magnitude.cmp(&other.magnitude).then_with(|| self.digits().cmp(other.digits())),
        }
    }
}

impl Ord for Number<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self.negative, other.negative) {
            (false, false) => self.compare_sizes(other),
            (true, true) => other.compare_sizes(self),
            (false, true) => Ordering::Greater,
            (true, false) => Ordering::Less,
        }
    }
}

impl PartialOrd for Number<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Number<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Number<'_> {}

/// `floor(number * 10^scale)`; `None` if the text is no number or the result does not fit.
pub(crate) fn scaled(text: &[u8], scale: i64) -> Option<i64> {
    let Parts { negative, whole, fraction, exponent } = parts(text)?;
    let mut digits = whole.iter().chain(fraction).map(|digit| i64::from(digit - b'0'));
    let zeros = whole.iter().chain(fraction).take_while(|&&digit| digit == b'0').count();
    if zeros == whole.len() + fraction.len() {
        return Some(0);
    }
    // So many digits, counted from the first that is not 0, make up the whole number.
    let kept = (whole.len() as i64).saturating_sub(zeros as i64).saturating_add(exponent).saturating_add(scale);
    if kept > 19 {
        return None;
    }
    let mut value: i64 = 0;
    let mut digits = digits.by_ref().skip(zeros);
    for _ in 0..kept {
        // Negative, since there is one number more on that side.
        value = value.checked_mul(10)?.checked_sub(digits.next().unwrap_or(0))?;
    }
    let has_rest = digits.any(|digit| digit != 0);
    if negative { value.checked_sub(i64::from(has_rest)) } else { value.checked_neg() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use alloc::string::ToString;

    fn number(text: &str) -> Number<'_> {
        Number::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn numbers_are_compared_as_they_are_written() {
        // Ascending; those within a group are equal.
        let groups: [&[&str]; 15] = [
            &["-1e400", "-10e399"],
            &["-1.00000000000000000000000000000000001"],
            &["-1", "-1.0", "-0.1e1", "-100e-2"],
            &["-1e-400"],
            &["0", "-0", "0.0", "-0.000", "0e99999999999999999999", "-0e-5"],
            &["1e-99999999999999999999"],
            &["0.1", "0.10", "1e-1", "0.01E+1", "1000e-4"],
            &["0.3"],
            &["0.30000000000000004"],
            &["0.30000000000000005"],
            &["1", "1.0", "01"],
            &["100", "1E+2", "1e2", "100.000"],
            &["18446744073709551615"],
            &["18446744073709551616"],
            &["1e40", "10000000000000000000000000000000000000000"],
        ];
        for (i, left) in groups.iter().enumerate() {
            for (j, right) in groups.iter().enumerate() {
                for (a, b) in left.iter().flat_map(|a| right.iter().map(move |b| (a, b))) {
                    assert_eq!(number(a).cmp(&number(b)), i.cmp(&j), "{a} {b}");
                }
            }
        }
        assert!(number("1e99999999999999999999") > number("1e40"));
    }

    #[test]
    fn what_is_no_number_is_none() {
        for text in
            ["", "-", "+", ".", ".5", "1.", "1.e5", "1e", "1e+", "--1", "0x1", "1 ", " 1", "1e1.5", "NaN", "inf", "1,5", "٣"]
        {
            assert!(Number::parse(text.as_bytes()).is_none(), "{text}");
            assert_eq!(scaled(text.as_bytes(), 0), None, "{text}");
        }
    }

    #[test]
    fn scaling_is_exact_and_cuts_towards_the_past() {
        for (text, scale, expected) in [
            ("0.29", 3, Some(290)),
            ("1.9999", 3, Some(1_999)),
            ("-1.9999", 3, Some(-2_000)),
            ("-1.9990", 3, Some(-1_999)),
            ("1.7e9", 3, Some(1_700_000_000_000)),
            ("1700000000123456789", -6, Some(1_700_000_000_123)),
            ("-1", -6, Some(-1)),
            ("0.0001", 3, Some(0)),
            ("-0.0", 3, Some(0)),
            ("9223372036854775807", 0, Some(i64::MAX)),
            ("-9223372036854775808", 0, Some(i64::MIN)),
            ("9223372036854775808", 0, None),
            ("1e300", 0, None),
            ("1e-99999999999999999999", 0, Some(0)),
            ("1e99999999999999999999", 0, None),
            ("000000000000000000000000005", 0, Some(5)),
        ] {
            assert_eq!(scaled(text.as_bytes(), scale), expected, "{text}");
        }
        for value in [0, 1, -1, 7, i64::MAX, i64::MIN] {
            assert_eq!(scaled(value.to_string().as_bytes(), 0), Some(value));
        }
    }
}
