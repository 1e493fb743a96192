//! The demo's input: a web server's access log in the Combined Log Format, made up but shaped like a real one. Few pages and users
//! get most of the traffic; a user comes for a session of several pages; nights are quiet; lines are written when a request ends,
//! so they stand slightly out of order; some come much too late, as from a proxy that was cut off; a few are no log lines at all.

use super::random::{Random, Zipf, mix};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, Write};

/// What shapes a log.
#[derive(Debug, Clone)]
pub(crate) struct Shape {
    pub(crate) seed: u64,
    pub(crate) lines: u64,
    pub(crate) pages: usize,
    pub(crate) users: usize,
    /// About how much time the log covers.
    pub(crate) hours: u64,
    /// Lines written between [`LATE_S`] after their time, of a million.
    pub(crate) late_per_million: u64,
    /// Lines that are no log lines, of a million.
    pub(crate) malformed_per_million: u64,
}

impl Default for Shape {
    fn default() -> Self {
        Shape {
            seed: 1,
            lines: 2_000_000,
            pages: 1_000,
            users: 100_000,
            hours: 24,
            late_per_million: 1_500,
            malformed_per_million: 60,
        }
    }
}

/// What was written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LogSummary {
    pub(crate) lines: u64,
    pub(crate) malformed: u64,
    pub(crate) late: u64,
}

/// 2026-03-02, a Monday, at midnight in the log's time zone.
const START_UNIX_S: i64 = 1_772_406_000;
/// The log's time zone is not UTC, as with most.
const ZONE_S: i64 = 3_600;
const ZONE: &str = "+0100";
const PAGES_PER_SESSION: f64 = 6.0;
const SECONDS_PER_PAGE: f64 = 25.0;
/// A request takes up to this long, so lines are out of order by that much at most. Below the job's watermark delay.
const REQUEST_S: f64 = 2.0;
/// How late a late line is. Beyond the job's watermark delay; some hit a window that is still open, most do not.
const LATE_S: std::ops::Range<f64> = 30.0..2_400.0;
/// Requests per hour of day, of the busiest hour.
const RHYTHM: [f64; 24] = [
    0.22, 0.15, 0.11, 0.09, 0.09, 0.12, 0.22, 0.40, 0.58, 0.70, 0.76, 0.78, 0.80, 0.76, 0.72, 0.70, 0.72, 0.78, 0.86, 0.95, 1.0,
    0.92, 0.70, 0.42,
];
const AGENTS: [&str; 6] = [
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/131.0.0.0 Safari/537.36",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 18_1 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.1 Mobile/15E148 Safari/604.1",
    "Mozilla/5.0 (X11; Linux x86_64; rv:133.0) Gecko/20100101 Firefox/133.0",
    "Mozilla/5.0 (Linux; Android 14; \\\"Tablet\\\") AppleWebKit/537.36 (KHTML, like Gecko) Chrome/130.0.0.0 Mobile Safari/537.36",
    "Mozilla/5.0 (compatible; searchbot/2.1; +https://bot.example/about)",
    "curl/8.9.1",
];

/// One line to be written. Ordered by when it is written; the number keeps the order total.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Request {
    written_ms: i64,
    number: u64,
    time_s: i64,
    user: usize,
    page: usize,
    previous: Option<usize>,
    is_late: bool,
}

/// Writes a log. `progress` is called now and then with the number of lines so far.
pub(crate) fn write(shape: &Shape, out: &mut impl Write, progress: &mut dyn FnMut(u64)) -> io::Result<LogSummary> {
    let mut random = Random::new(shape.seed);
    let (pages, users) = (Zipf::new(shape.pages, 1.0), Zipf::new(shape.users, 0.8));
    let average = RHYTHM.iter().sum::<f64>() / RHYTHM.len() as f64;
    let sessions_per_s = shape.lines as f64 / PAGES_PER_SESSION / (shape.hours * 3_600) as f64 / average;

    let (mut waiting, mut number, mut now_s) = (BinaryHeap::new(), 0, 0.0);
    let (mut written, mut line) = (LogSummary::default(), Vec::new());
    while written.lines < shape.lines {
        // Sessions come at random at the busiest hour's rate; the day's rhythm lets some of them through.
        now_s += random.exponential(1.0 / sessions_per_s);
        if random.unit() < rhythm_at(now_s) {
            session(now_s, shape, &pages, &users, &mut random, &mut number, &mut waiting);
        }
        // Whatever is due before the next session can start is final.
        while let Some(Reverse(request)) = waiting.peek()
            && request.written_ms <= (now_s * 1_000.0) as i64
            && written.lines < shape.lines
        {
            line.clear();
            written.late += u64::from(request.is_late);
            format(request, &mut random, &mut line);
            waiting.pop();
            if random.chance(shape.malformed_per_million) {
                spoil(&mut line, &mut random);
                written.malformed += 1;
            }
            line.push(b'\n');
            out.write_all(&line)?;
            written.lines += 1;
            if written.lines % 65_536 == 0 {
                progress(written.lines);
            }
        }
    }
    out.flush()?;
    Ok(written)
}

/// How much of the busiest hour's traffic there is, between the hours in a straight line.
fn rhythm_at(seconds: f64) -> f64 {
    let hour = (seconds / 3_600.0) % 24.0;
    let (from, to) = (RHYTHM[hour as usize % 24], RHYTHM[(hour as usize + 1) % 24]);
    from + (to - from) * hour.fract()
}

fn session(
    start_s: f64,
    shape: &Shape,
    pages: &Zipf,
    users: &Zipf,
    random: &mut Random,
    number: &mut u64,
    waiting: &mut BinaryHeap<Reverse<Request>>,
) {
    let user = users.pick(random);
    let (mut time_s, mut previous) = (start_s, None);
    loop {
        let page = pages.pick(random);
        let is_late = random.chance(shape.late_per_million);
        let delay_s =
            if is_late { LATE_S.start + random.unit() * (LATE_S.end - LATE_S.start) } else { random.unit() * REQUEST_S };
        let written_ms = ((time_s + delay_s) * 1_000.0) as i64;
        let time = START_UNIX_S + time_s as i64;
        waiting.push(Reverse(Request { written_ms, number: *number, time_s: time, user, page, previous, is_late }));
        *number += 1;
        if random.unit() < 1.0 / PAGES_PER_SESSION {
            return;
        }
        previous = Some(page);
        time_s += random.exponential(SECONDS_PER_PAGE);
    }
}

fn format(request: &Request, random: &mut Random, line: &mut Vec<u8>) {
    let traits = mix(request.user as u64 + 1);
    let [a, b, c, d, e, ..] = traits.to_le_bytes();
    // Private addresses: nobody's.
    let mut text = format!("10.{a}.{b}.{c} - ");
    match e % 3 {
        0 => text += &format!("user{}", request.user),
        _ => text.push('-'),
    }
    text += &format!(" [{}] \"", clf_time(request.time_s));
    let dice = random.below(1_000);
    let method = if dice < 30 {
        "POST"
    } else if dice < 40 {
        "HEAD"
    } else {
        "GET"
    };
    let protocol = if d % 8 == 0 { "HTTP/1.1" } else { "HTTP/2.0" };
    let (status, bytes) = match random.below(1_000) {
        0..910 => (200, (2_000.0 + random.exponential(14_000.0)) as u64),
        910..960 => (304, 0),
        960..980 => (404, 512),
        980..995 => (301, 178),
        _ => (500, 1_024),
    };
    let query = if random.chance(60_000) { "?utm_source=letter" } else { "" };
    text += &format!("{method} {}{query} {protocol}\" {status} ", page_name(request.page));
    match bytes {
        0 => text.push('-'),
        bytes => text += &bytes.to_string(),
    }
    match request.previous {
        Some(page) => text += &format!(" \"https://shop.example{}\"", page_name(page)),
        None => text += " \"-\"",
    }
    text += &format!(" \"{}\"", AGENTS[d as usize % AGENTS.len()]);
    line.extend_from_slice(text.as_bytes());
}

/// The path of a page, by rank.
fn page_name(page: usize) -> String {
    const SECTIONS: [&str; 5] = ["products", "blog", "help", "news", "offers"];
    match page {
        0 => "/".to_string(),
        page => format!("/{}/{}", SECTIONS[page % SECTIONS.len()], page),
    }
}

/// Turns a good line into one that no parser may accept.
fn spoil(line: &mut Vec<u8>, random: &mut Random) {
    match random.below(5) {
        // The disk was full in the middle of the request.
        0 => {
            let quote = line.iter().position(|byte| *byte == b'"').unwrap_or(line.len());
            line.truncate(quote + 4);
        }
        // Another program wrote into the file.
        1 => *line = b"Traceback (most recent call last):".to_vec(),
        // Not text.
        2 => line.iter_mut().skip(3).for_each(|byte| *byte |= 0x80),
        // A month that does not exist.
        3 => {
            let slash = line.iter().position(|byte| *byte == b'/').unwrap_or_default();
            line[slash + 1..slash + 4].copy_from_slice(b"Foo");
        }
        // A status that is none.
        _ => {
            let text = String::from_utf8_lossy(line).replace("\" 200 ", "\" abc ").replace("\" 304 ", "\" abc ");
            let is_unchanged = !text.contains("\" abc ");
            *line = if is_unchanged { b"-- log rotated --".to_vec() } else { text.into_bytes() };
        }
    }
}

/// `02/Mar/2026:00:00:00 +0100`.
fn clf_time(unix_s: i64) -> String {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let local = unix_s + ZONE_S;
    let (days, second) = (local.div_euclid(86_400), local.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{day:02}/{}/{year}:{hour:02}:{minute:02}:{second:02} {ZONE}", MONTHS[month - 1])
}

/// Year, month from 1, day of a number of days since 1970-01-01. Counts forward: a log covers few years.
fn civil(mut days: i64) -> (i64, usize, i64) {
    let mut year = 1970;
    loop {
        let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let lengths = [31, if is_leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        for (month, length) in lengths.into_iter().enumerate() {
            if days < length {
                return (year, month + 1, days + 1);
            }
            days -= length;
        }
        year += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> Shape {
        Shape { lines: 20_000, users: 1_000, hours: 6, ..Shape::default() }
    }

    fn log(shape: &Shape) -> (Vec<u8>, LogSummary) {
        let mut out = Vec::new();
        let written = write(shape, &mut out, &mut |_| ()).unwrap();
        (out, written)
    }

    #[test]
    fn the_same_seed_gives_the_same_log_and_another_seed_another() {
        let (first, written) = log(&small());
        assert_eq!((&first, written), (&log(&small()).0, log(&small()).1));
        assert_ne!(first, log(&Shape { seed: 2, ..small() }).0);
        assert_eq!(first.split(|byte| *byte == b'\n').count() as u64 - 1, written.lines);
    }

    #[test]
    fn a_log_has_late_and_malformed_lines_in_proportion() {
        let (_, written) = log(&Shape { malformed_per_million: 10_000, late_per_million: 10_000, ..small() });
        assert_eq!(written.lines, 20_000);
        assert!((120..300).contains(&written.malformed), "{written:?}");
        assert!((100..300).contains(&written.late), "{written:?}");
    }

    #[test]
    fn times_are_written_as_web_servers_write_them() {
        assert_eq!(clf_time(START_UNIX_S), "02/Mar/2026:00:00:00 +0100");
        assert_eq!(clf_time(1_709_204_399 - 3_600), "29/Feb/2024:10:59:59 +0100");
        assert_eq!(clf_time(0), "01/Jan/1970:01:00:00 +0100");
    }

    #[test]
    fn nights_are_quiet() {
        let (log, _) = log(&Shape { hours: 24, lines: 60_000, ..small() });
        let text = String::from_utf8_lossy(&log).into_owned();
        let in_hour = |hour: &str| text.lines().filter(|line| line.contains(hour)).count();
        assert!(in_hour("/2026:20:") > 5 * in_hour("/2026:04:"), "{} {}", in_hour("/2026:20:"), in_hour("/2026:04:"));
    }
}
