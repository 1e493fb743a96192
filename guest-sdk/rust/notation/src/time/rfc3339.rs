//! The time of RFC 3339: `2000-10-10T13:55:36.123-07:00`, read leniently (see [`TimeFormat`](super::TimeFormat)) and written in UTC
//! with milliseconds.

use alloc::vec::Vec;

use super::Timestamp;
use super::civil::{Civil, date_of_day, four_digits, offset_minutes, two_digits};

/// The time that `text` is, whole. Digits beyond milliseconds are cut off.
pub(super) fn parse(text: &[u8]) -> Option<Timestamp> {
    let (time, rest) = parse_prefix(text)?;
    rest.is_empty().then_some(time)
}

/// The time that a line begins with. Nothing that could belong to it comes after it.
pub(super) fn parse_front(line: &[u8]) -> Option<Timestamp> {
    let (time, rest) = parse_prefix(line)?;
    let goes_on = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b':' | b'.' | b'-' | b'+');
    (!rest.first().is_some_and(goes_on)).then_some(time)
}

/// A time, and what comes after it.
fn parse_prefix(text: &[u8]) -> Option<(Timestamp, &[u8])> {
    if text.len() < 20
        || text[4] != b'-'
        || text[7] != b'-'
        || !matches!(text[10], b'T' | b't' | b' ')
        || text[13] != b':'
        || text[16] != b':'
    {
        return None;
    }
    let mut rest = &text[19..];
    let mut millis = 0;
    if let [b'.' | b',', fraction @ ..] = rest {
        let digits = fraction.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if digits == 0 {
            return None;
        }
        let padded = fraction[..digits].iter().chain(core::iter::repeat(&b'0'));
        millis = padded.take(3).fold(0, |millis, digit| millis * 10 + i64::from(digit - b'0'));
        rest = &fraction[digits..];
    }
    let (offset_minutes, rest) = match rest {
        [b'Z' | b'z', rest @ ..] => (0, rest),
        [b' ', offset @ ..] | offset => {
            let (minutes, length) = offset_minutes(offset)?;
            (minutes, &offset[length..])
        }
    };
    let civil = Civil {
        year: four_digits(text, 0)?,
        month: two_digits(text, 5)?,
        day: two_digits(text, 8)?,
        hour: two_digits(text, 11)?,
        minute: two_digits(text, 14)?,
        second: two_digits(text, 17)?,
        offset_minutes,
    };
    Some((civil.seconds()? * 1_000 + millis, rest))
}

/// Appends a time as `2000-10-10T20:55:36.123Z`. Years beyond four digits get a sign, as in ISO 8601.
pub fn write_rfc3339(time: Timestamp, out: &mut Vec<u8>) {
    let of_day = time.rem_euclid(86_400_000);
    let (year, month, day) = date_of_day(time.div_euclid(86_400_000));
    match year {
        0..=9_999 => push_digits(out, year, 4),
        _ => {
            out.push(if year < 0 { b'-' } else { b'+' });
            push_digits(out, year.abs(), if year.abs() > 999_999 { 9 } else { 6 });
        }
    }
    for (separator, number, digits) in [
        (b'-', i64::from(month), 2),
        (b'-', i64::from(day), 2),
        (b'T', of_day / 3_600_000, 2),
        (b':', of_day / 60_000 % 60, 2),
        (b':', of_day / 1_000 % 60, 2),
        (b'.', of_day % 1_000, 3),
    ] {
        out.push(separator);
        push_digits(out, number, digits);
    }
    out.push(b'Z');
}

fn push_digits(out: &mut Vec<u8>, number: i64, digits: u32) {
    for place in (0..digits).rev() {
        out.push(b'0' + (number / 10_i64.pow(place) % 10) as u8);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use alloc::string::String;

    fn written(time: Timestamp) -> String {
        let mut out = Vec::new();
        write_rfc3339(time, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn known_times() {
        assert_eq!(parse(b"2000-10-10T13:55:36-07:00"), Some(971_211_336_000));
        assert_eq!(parse(b"2000-10-10 20:55:36.9999Z"), Some(971_211_336_999));
        assert_eq!(parse(b"1990-12-31T23:59:60Z"), Some(662_688_000_000), "a leap second is the second after");
        assert_eq!(parse(b"1970-01-01T00:00:00.5+0000"), Some(500));
        assert_eq!(written(971_211_336_123), "2000-10-10T20:55:36.123Z");
        assert_eq!(written(-1), "1969-12-31T23:59:59.999Z");
        assert_eq!(written(i64::MAX), "+292278994-08-17T07:12:55.807Z");
        assert_eq!(written(i64::MIN), "-292275055-05-16T16:47:04.192Z");
    }

    #[test]
    fn anything_else_is_no_time() {
        for text in [
            "2000-10-10T13:55:36",
            "2000-10-10T13:55:36.Z",
            "2000-13-10T13:55:36Z",
            "2000-10-10T25:55:36Z",
            "2000-10-10X13:55:36Z",
            "2000-10-10T13:55:36+24:00",
            "2000-10-10T13:55:36+1:00",
            "2000-10-10T13:55:36  +01:00",
            "2000-10-10T13:55:36 Z",
            "2000-10-10T13:55:36Zx",
            "x000-10-10T13:55:36Z",
            "",
        ] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
    }
}
