//! The time of the Common Log Format: `10/Oct/2000:13:55:36 -0700`.

use super::civil::{Civil, four_digits, offset_minutes, two_digits};
use super::{Bracket, Timestamp};

/// Length of a time, in bytes.
pub(super) const TEXT_BYTES: usize = 26;

/// The first bracket of a line that holds a time.
pub(super) fn find_in_line(line: &[u8]) -> Option<Bracket> {
    let mut from = 0;
    while let Some(at) = line[from..].iter().position(|&byte| byte == b'[').map(|at| from + at) {
        let text = line.get(at + 1..at + 1 + TEXT_BYTES)?;
        if line.get(at + 1 + TEXT_BYTES) == Some(&b']')
            && let Some(time) = parse(text)
        {
            return Some(Bracket { at, time });
        }
        from = at + 1;
    }
    None
}

/// The time that `text` is, whole.
pub(super) fn parse(text: &[u8]) -> Option<Timestamp> {
    if text.len() != TEXT_BYTES
        || text[2] != b'/'
        || text[6] != b'/'
        || text[11] != b':'
        || text[14] != b':'
        || text[17] != b':'
        || text[20] != b' '
    {
        return None;
    }
    let civil = Civil {
        year: four_digits(text, 7)?,
        month: month(&text[3..6])?,
        day: two_digits(text, 0)?,
        hour: two_digits(text, 12)?,
        minute: two_digits(text, 15)?,
        second: two_digits(text, 18)?,
        offset_minutes: offset_minutes(&text[21..]).filter(|(_, length)| *length == 5)?.0,
    };
    Some(civil.seconds()? * 1_000)
}

#[inline]
fn month(name: &[u8]) -> Option<u32> {
    Some(match name {
        b"Jan" => 1,
        b"Feb" => 2,
        b"Mar" => 3,
        b"Apr" => 4,
        b"May" => 5,
        b"Jun" => 6,
        b"Jul" => 7,
        b"Aug" => 8,
        b"Sep" => 9,
        b"Oct" => 10,
        b"Nov" => 11,
        b"Dec" => 12,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_times() {
        assert_eq!(parse(b"10/Oct/2000:13:55:36 -0700"), Some(971_211_336_000));
        assert_eq!(parse(b"01/Jan/1970:00:00:00 +0000"), Some(0));
        assert_eq!(parse(b"31/Dec/1969:23:59:59 +0000"), Some(-1_000));
        assert_eq!(parse(b"29/Feb/2024:00:00:00 +0530"), Some(1_709_145_000_000));
    }

    #[test]
    fn anything_else_is_no_time() {
        for text in [
            "29/Feb/2023:00:00:00 +0000",
            "10/oct/2000:13:55:36 -0700",
            "10/Oct/2000:24:55:36 -0700",
            "10/Oct/2000:13:60:36 -0700",
            "10/Oct/2000:13:55:61 -0700",
            "10/Oct/2000:13:55:36 -2400",
            "10/Oct/2000:13:55:36 -0760",
            "10/Oct/2000:13:55:36 -07:0",
            "10/Oct/2000:13:55:36 0700+",
            "10/Oct/2000:13:55:36",
            "",
            "1a/Oct/2000:13:55:36 -0700",
            "10/Oct/2000 13:55:36 -0700",
            "+1/Oct/2000:13:55:36 -0700",
        ] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
    }
}
