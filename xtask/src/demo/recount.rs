//! Counts page views per page and window from the log itself, with nothing of Weir's in between: the answer that the job must give.

use anyhow::{Context, Result};
use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

/// Length of the job's windows.
pub(crate) const WINDOW_MS: i64 = 300_000;

/// Page views by start of the window, in milliseconds since the Unix epoch, and page.
pub(crate) type Views = HashMap<(i64, String), u64>;

/// What a log holds.
#[derive(Debug, Default)]
pub(crate) struct Recount {
    pub(crate) lines: u64,
    pub(crate) malformed: u64,
    pub(crate) views: Views,
}

/// The window that a time falls into.
pub(crate) fn window_of(time_ms: i64) -> i64 {
    time_ms.div_euclid(WINDOW_MS) * WINDOW_MS
}

/// Counts a log file.
pub(crate) fn recount(path: &Path) -> Result<Recount> {
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    recount_lines(BufReader::with_capacity(1 << 20, file)).with_context(|| format!("cannot read {}", path.display()))
}

fn recount_lines(mut lines: impl BufRead) -> Result<Recount> {
    let (mut recount, mut line) = (Recount::default(), Vec::new());
    loop {
        line.clear();
        if lines.read_until(b'\n', &mut line)? == 0 {
            return Ok(recount);
        }
        recount.lines += 1;
        match std::str::from_utf8(&line).ok().and_then(|line| view(line.trim_end_matches(['\n', '\r']))) {
            Some((time_s, page)) => *recount.views.entry((window_of(time_s * 1_000), page.to_string())).or_default() += 1,
            None => recount.malformed += 1,
        }
    }
}

/// Time and page of a line in the Combined Log Format:
/// `host ident user [day/Mon/year:h:m:s zone] "method page protocol" status bytes "referrer" "agent"`.
fn view(line: &str) -> Option<(i64, &str)> {
    let (before, rest) = line.split_once(" [")?;
    (before.split(' ').count() == 3).then_some(())?;
    let (time, rest) = rest.split_once("] ")?;
    let (request, rest) = quoted(rest)?;
    let (status, rest) = rest.strip_prefix(' ')?.split_once(' ')?;
    let (bytes, rest) = rest.split_once(' ')?;
    let (_, rest) = quoted(rest)?;
    let (_, rest) = quoted(rest.strip_prefix(' ')?)?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    (rest.is_empty() && status.len() == 3 && is_number(status) && (bytes == "-" || is_number(bytes))).then_some(())?;
    let mut request = request.split(' ');
    let (_, page, _) = (request.next()?, request.next()?, request.next()?);
    // What comes after a question mark is not part of the page's name.
    Some((unix_s(time)?, page.split('?').next()?))
}

/// A quoted text, in which a backslash keeps a quote from closing it, and what comes after.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let text = text.strip_prefix('"')?;
    let mut is_escaped = false;
    let close = text.bytes().position(|byte| {
        let closes = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        closes
    })?;
    Some((&text[..close], &text[close + 1..]))
}

/// `02/Mar/2026:00:00:00 +0100`.
fn unix_s(time: &str) -> Option<i64> {
    let (local, zone) = time.split_once(' ')?;
    let parts: Vec<&str> = local.split(['/', ':']).collect();
    let [day, month, year, hour, minute, second] = parts.as_slice() else { return None };
    let month = "JanFebMarAprMayJunJulAugSepOctNovDec".find(month).filter(|at| month.len() == 3 && at % 3 == 0)? / 3 + 1;
    let days = days_since_epoch(year.parse().ok()?, month as i64, day.parse().ok()?);
    let clock = |text: &str| text.parse::<i64>().ok();
    let of_day = clock(hour)? * 3_600 + clock(minute)? * 60 + clock(second)?;
    let (sign, zone) = (zone.get(..1)?, zone.get(1..)?);
    let offset = clock(zone.get(..2)?)? * 3_600 + clock(zone.get(2..)?)? * 60;
    Some(days * 86_400 + of_day - if sign == "-" { -offset } else { offset })
}

/// Howard Hinnant's `days_from_civil`, with years that begin in March.
pub(crate) fn days_since_epoch(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let of_era = year.rem_euclid(400);
    year.div_euclid(400) * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::super::log;
    use super::*;

    #[test]
    fn a_known_line_is_counted_in_its_window() {
        let line = r#"10.1.2.3 - ann [02/Mar/2026:00:04:59 +0100] "GET /a?b=c HTTP/1.1" 200 17 "-" "an \"agent\"""#;
        assert_eq!(view(line), Some((1_772_406_000 + 299, "/a")));
        let recount = recount_lines(format!("{line}\nbroken\n{line}\n").as_bytes()).unwrap();
        assert_eq!((recount.lines, recount.malformed), (3, 1));
        assert_eq!(recount.views, Views::from([((1_772_406_000_000, "/a".to_string()), 2)]));
    }

    #[test]
    fn zones_and_leap_days_are_right() {
        assert_eq!(unix_s("29/Feb/2024:10:59:59 +0000"), Some(1_709_204_399));
        assert_eq!(unix_s("29/Feb/2024:05:29:59 -0530"), Some(1_709_204_399));
        assert_eq!(unix_s("01/Jan/1970:00:00:00 +0000"), Some(0));
        assert_eq!(unix_s("01/Foo/1970:00:00:00 +0000"), None);
        assert_eq!(unix_s("01/anF/1970:00:00:00 +0000"), None);
    }

    #[test]
    fn lines_that_are_no_log_lines_are_malformed() {
        for line in [
            "",
            r#"10.1.2.3 - - [02/Mar/2026:00:04:59 +0100] "GET"#,
            r#"10.1.2.3 - - [02/Mar/2026:00:04:59 +0100] "GET /a HTTP/1.1" abc 17 "-" "x""#,
            r#"10.1.2.3 - - [02/Foo/2026:00:04:59 +0100] "GET /a HTTP/1.1" 200 17 "-" "x""#,
            r#"10.1.2.3 - - [02/Mar/2026:00:04:59 +0100] "GET /a HTTP/1.1" 200 17"#,
        ] {
            assert_eq!(view(line), None, "{line}");
        }
    }

    #[test]
    fn a_made_up_log_is_counted_as_it_was_written() {
        let shape = log::Shape { lines: 30_000, users: 1_000, malformed_per_million: 5_000, ..log::Shape::default() };
        let mut text = Vec::new();
        let written = log::write(&shape, &mut text, &mut |_| ()).unwrap();
        let recount = recount_lines(text.as_slice()).unwrap();
        assert_eq!((recount.lines, recount.malformed), (written.lines, written.malformed));
        assert_eq!(recount.views.values().sum::<u64>(), written.lines - written.malformed);
        let windows: std::collections::BTreeSet<i64> = recount.views.keys().map(|(window, _)| *window).collect();
        assert!((250..330).contains(&windows.len()), "{} windows", windows.len());
    }
}
