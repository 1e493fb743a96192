//! Points in time as logs write them.

use serde::Deserialize;
use weir_sdk::Timestamp;

/// How a time is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum TimeFormat {
    /// `10/Oct/2000:13:55:36 -0700`
    Clf,
    /// `2000-10-10T13:55:36.123-07:00`
    Rfc3339,
    /// Milliseconds since the epoch.
    UnixMs,
    /// Seconds since the epoch, with or without a fraction.
    UnixS,
}

impl TimeFormat {
    /// The time that a text is, whole.
    pub(crate) fn read(self, text: &[u8]) -> Option<Timestamp> {
        match self {
            TimeFormat::Clf => clf(text),
            TimeFormat::Rfc3339 => rfc3339(text),
            TimeFormat::UnixMs => std::str::from_utf8(text).ok()?.parse().ok(),
            TimeFormat::UnixS => unix_s(text),
        }
    }

    /// An example.
    pub(crate) fn example(self) -> &'static str {
        match self {
            TimeFormat::Clf => "10/Oct/2000:13:55:36 -0700",
            TimeFormat::Rfc3339 => "2000-10-10T13:55:36.123-07:00",
            TimeFormat::UnixMs => "971211336123",
            TimeFormat::UnixS => "971211336.123",
        }
    }
}

fn clf(text: &[u8]) -> Option<Timestamp> {
    let separators = [(2, b'/'), (6, b'/'), (11, b':'), (14, b':'), (17, b':'), (20, b' ')];
    if text.len() != 26 || separators.iter().any(|&(at, byte)| text[at] != byte) {
        return None;
    }
    const MONTHS: [&[u8]; 12] = [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];
    let month = MONTHS.iter().position(|month| *month == &text[3..6])? as i64 + 1;
    let day = day_number(digits(&text[7..11])?, month, digits(&text[..2])?)?;
    let seconds = day * 86_400 + clock(&text[12..20])? - offset(&text[21..])?;
    Some(seconds * 1_000)
}

fn rfc3339(text: &[u8]) -> Option<Timestamp> {
    if text.len() < 20 || text[4] != b'-' || text[7] != b'-' || !matches!(text[10], b'T' | b't' | b' ') {
        return None;
    }
    let day = day_number(digits(&text[..4])?, digits(&text[5..7])?, digits(&text[8..10])?)?;
    let seconds = day * 86_400 + clock(&text[11..19])?;
    let (ms, zone) = fraction(&text[19..])?;
    let offset = if matches!(zone, b"Z" | b"z") { 0 } else { offset(zone)? };
    Some((seconds - offset) * 1_000 + ms)
}

fn unix_s(text: &[u8]) -> Option<Timestamp> {
    let (negative, text) = text.strip_prefix(b"-").map_or((false, text), |rest| (true, rest));
    let point = text.iter().position(|&byte| byte == b'.').unwrap_or(text.len());
    let seconds: i64 = std::str::from_utf8(&text[..point]).ok().filter(|_| digits(&text[..point]).is_some())?.parse().ok()?;
    let (ms, rest) = fraction(&text[point..])?;
    let total = seconds.checked_mul(1_000)?.checked_add(ms)?;
    rest.is_empty().then_some(if negative { -total } else { total })
}

/// `.123` in milliseconds, finer digits cut off, and what follows it.
fn fraction(text: &[u8]) -> Option<(i64, &[u8])> {
    let Some(text) = text.strip_prefix(b".") else { return Some((0, text)) };
    let end = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let kept = end.min(3);
    let ms = digits(&text[..kept])? * 10i64.pow(3 - kept as u32);
    Some((ms, &text[end..]))
}

/// `13:55:36` in seconds. A leap second is the second after.
fn clock(text: &[u8]) -> Option<i64> {
    let (hour, minute, second) = (digits(&text[..2])?, digits(&text[3..5])?, digits(&text[6..8])?);
    (text[2] == b':' && text[5] == b':' && hour < 24 && minute < 60 && second <= 60)
        .then_some(hour * 3_600 + minute * 60 + second)
}

/// `+hhmm` or `+hh:mm` in seconds.
fn offset(text: &[u8]) -> Option<i64> {
    let (hour, minute) = match text {
        [_, h @ .., b':', m1, m2] if h.len() == 2 => (digits(h)?, digits(&[*m1, *m2])?),
        [_, h1, h2, m1, m2] => (digits(&[*h1, *h2])?, digits(&[*m1, *m2])?),
        _ => return None,
    };
    let seconds = hour * 3_600 + minute * 60;
    match text[0] {
        b'+' if hour < 24 && minute < 60 => Some(seconds),
        b'-' if hour < 24 && minute < 60 => Some(-seconds),
        _ => None,
    }
}

/// Up to 18 digits.
fn digits(text: &[u8]) -> Option<i64> {
    let valid = !text.is_empty() && text.len() <= 18 && text.iter().all(u8::is_ascii_digit);
    valid.then(|| text.iter().fold(0, |value, digit| value * 10 + i64::from(digit - b'0')))
}

/// Days since 1970 of a date, if there is one. Years begin in March (Howard Hinnant, "chrono-Compatible Low-Level Date
/// Algorithms").
fn day_number(year: i64, month: i64, day: i64) -> Option<i64> {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        2 => 28 + i64::from(leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if !(1..=days).contains(&day) {
        return None;
    }
    let year = year - i64::from(month <= 2);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let of_era = year.rem_euclid(400);
    Some(year.div_euclid(400) * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + day_of_year - 719_468)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_in_each_format() {
        for (format, text, ms) in [
            (TimeFormat::Clf, "10/Oct/2000:13:55:36 -0700", 971_211_336_000),
            (TimeFormat::Clf, "29/Feb/2024:10:59:59 +0000", 1_709_204_399_000),
            (TimeFormat::Clf, "01/Jan/1970:00:00:00 +0000", 0),
            (TimeFormat::Rfc3339, "2000-10-10T13:55:36-07:00", 971_211_336_000),
            (TimeFormat::Rfc3339, "2000-10-10T20:55:36.5Z", 971_211_336_500),
            (TimeFormat::Rfc3339, "2000-10-10 20:55:36.123456789Z", 971_211_336_123),
            (TimeFormat::Rfc3339, "1969-12-31T23:59:59.999+00:00", -1),
            (TimeFormat::UnixMs, "-5", -5),
            (TimeFormat::UnixS, "971211336.12", 971_211_336_120),
            (TimeFormat::UnixS, "-1", -1_000),
        ] {
            assert_eq!(format.read(text.as_bytes()), Some(ms), "{text}");
            assert!(format.read(format.example().as_bytes()).is_some());
        }
    }

    #[test]
    fn what_is_no_time_is_none() {
        for (format, text) in [
            (TimeFormat::Clf, "10/Foo/2000:13:55:36 -0700"),
            (TimeFormat::Clf, "30/Feb/2000:13:55:36 -0700"),
            (TimeFormat::Clf, "10/Oct/2000:24:55:36 -0700"),
            (TimeFormat::Clf, "10/Oct/2000:13:55:36 -07:0"),
            (TimeFormat::Clf, "10/Oct/2000:13:55:36"),
            (TimeFormat::Rfc3339, "2000-10-10T13:55:36"),
            (TimeFormat::Rfc3339, "2001-02-29T13:55:36Z"),
            (TimeFormat::Rfc3339, "2000-10-10T13:55:36.Z"),
            (TimeFormat::UnixMs, "1.5"),
            (TimeFormat::UnixS, ""),
            (TimeFormat::UnixS, "1e3"),
            (TimeFormat::UnixS, "+1"),
        ] {
            assert_eq!(format.read(text.as_bytes()), None, "{text}");
        }
        for cut in 0..26 {
            assert_eq!(clf(&b"10/Oct/2000:13:55:36 -0700"[..cut]), None);
            assert_eq!(rfc3339(&b"2000-10-10T13:55:36-07:00"[..cut.min(24)]), None);
        }
    }
}
