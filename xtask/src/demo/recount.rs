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
        match view(text(&line).trim_end_matches(['\n', '\r'])) {
            Some((time_s, page)) => *recount.views.entry((window_of(time_s * 1_000), page)).or_default() += 1,
            None => recount.malformed += 1,
        }
    }
}

/// A line as text. Bytes that are none are written as servers would: `\xE9`.
fn text(line: &[u8]) -> String {
    let mut text = String::new();
    for chunk in line.utf8_chunks() {
        text += chunk.valid();
        chunk.invalid().iter().for_each(|byte| text += &format!("\\x{byte:02X}"));
    }
    text
}

/// Time and page of a line in the Combined Log Format, after which there may be more:
/// `[vhost:port] host ident user [day/Mon/year:h:m:s zone] "method page protocol" status bytes "referrer" "agent"`.
fn view(line: &str) -> Option<(i64, String)> {
    let (before, rest) = line.split_once(" [")?;
    let words: Vec<&str> = before.split(' ').collect();
    let has_vhost = words.first()?.rsplit_once(':').is_some_and(|(_, port)| is_number(port));
    // Four words are a virtual host in front, or a user with a blank in the name.
    (words.len() == 3 || (words.len() > 3 && (has_vhost || words[2] != "-"))).then_some(())?;
    let (time, rest) = rest.split_once("] ")?;
    let (request, rest) = quoted(rest).filter(|(_, rest)| has_status(rest)).or_else(|| unescaped(rest))?;
    let (status, rest) = rest.strip_prefix(' ')?.split_once(' ')?;
    let (bytes, rest) = rest.split_once(' ')?;
    let (_, rest) = quoted(rest)?;
    quoted(rest.strip_prefix(' ')?)?;
    ((status == "-" || is_number(status)) && (bytes == "-" || is_number(bytes))).then_some(())?;
    Some((unix_s(time)?, page(request)?))
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn has_status(rest: &str) -> bool {
    let status = rest.strip_prefix(' ').and_then(|rest| rest.split(' ').next());
    status.is_some_and(|status| status == "-" || (status.len() == 3 && is_number(status)))
}

/// The page of a request: between the method, which is of letters, and the protocol, if there is one. What comes after a
/// question mark is not part of its name.
fn page(request: &str) -> Option<String> {
    let (method, rest) = request.split_once(' ')?;
    (!method.is_empty() && method.chars().all(|c| c.is_ascii_alphabetic() || c == '-' || c == '_')).then_some(())?;
    let is_protocol = |word: &str| {
        let (name, version) = word.split_once('/').unwrap_or_default();
        let is_version = version.starts_with(|c: char| c.is_ascii_digit());
        !name.is_empty()
            && name.bytes().all(|byte| byte.is_ascii_uppercase())
            && is_version
            && !version.contains(char::is_alphabetic)
    };
    let target = match rest.rsplit_once(' ') {
        Some((target, protocol)) if is_protocol(protocol) => target,
        None if is_protocol(rest) => "",
        _ => rest,
    };
    let page = target.split('?').next().filter(|page| !page.is_empty() && *page != "-")?;
    Some(plain(page).unwrap_or_else(|| page.to_string()))
}

/// A text without the escapes that web servers write; nothing if that is no text.
fn plain(text: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::new(), text);
    while let Some(at) = rest.find('\\') {
        bytes.extend_from_slice(&rest.as_bytes()[..at]);
        let escape = &rest[at + 1..];
        let hex = escape.strip_prefix('x').and_then(|hex| hex.get(..2)).filter(|hex| !hex.starts_with('+'));
        let hex = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok());
        let known = [('"', b'"'), ('\\', b'\\'), ('n', b'\n'), ('r', b'\r'), ('t', b'\t'), ('b', 8), ('v', 11)];
        let (byte, length) = match (hex, known.iter().find(|(name, _)| escape.starts_with(*name))) {
            (Some(byte), _) => (byte, 3),
            (None, Some((_, byte))) => (*byte, 1),
            (None, None) => (b'\\', 0),
        };
        bytes.push(byte);
        rest = &escape[length..];
    }
    bytes.extend_from_slice(rest.as_bytes());
    String::from_utf8(bytes).ok()
}

/// A text in quotes, in which a backslash keeps a quote from closing it, and what comes after: nothing, or a blank.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let text = text.strip_prefix('"')?;
    let mut is_escaped = false;
    let close = text.bytes().enumerate().position(|(at, byte)| {
        let closes = byte == b'"' && !is_escaped && matches!(text.as_bytes().get(at + 1), None | Some(b' '));
        is_escaped = byte == b'\\' && !is_escaped;
        closes
    })?;
    Some((&text[..close], &text[close + 1..]))
}

/// A request that ends in a backslash, by a server that does not escape.
fn unescaped(text: &str) -> Option<(&str, &str)> {
    let text = text.strip_prefix('"')?;
    let ends = text.match_indices("\\\"").map(|(at, _)| (&text[..=at], &text[at + 2..]));
    ends.into_iter().find(|(_, rest)| has_status(rest) && !rest.starts_with(" -"))
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
        assert_eq!(view(line), Some((1_772_406_000 + 299, "/a".to_string())));
        for (request, page) in [
            ("GET /a b HTTP/1.1", Some("/a b")),
            ("GET /", Some("/")),
            (r"GET /\xC3\xA9", Some("/é")),
            (r"GET /\xE9", Some(r"/\xE9")),
            (r"GET /a\", Some(r"/a\")),
            (r"\x16\x03\x01", None),
            ("-", None),
            ("GET HTTP/1.1", None),
        ] {
            let line = line.replace("GET /a?b=c HTTP/1.1", request).replace("\"an ", "\"a ") + " \"more\" 0.003";
            assert_eq!(view(&line).map(|(_, page)| page).as_deref(), page, "{request}");
            assert_eq!(view(&format!("shop.example:443 {line}")).map(|(_, page)| page).as_deref(), page, "{request}");
        }
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

    mod beside_the_operator {
        use super::*;
        use proptest::prelude::*;
        use proptest::sample::select;
        use weir_sdk::testing::Harness;

        /// A part of a line, as servers and strangers write it.
        fn part(choices: &'static [&'static str]) -> impl Strategy<Value = &'static [u8]> {
            select(choices).prop_map(str::as_bytes)
        }

        fn request() -> impl Strategy<Value = Vec<u8>> {
            let word = r#"([!#-\[\]-~]|\\\\|\\"|\\x[0-9A-Fa-f]{2}|\\[nrtbvzx]|é){1,6}"#;
            prop_oneof![
                (
                    select(vec!["GET", "get", "M-SEARCH", "\\x16\\x03", "", "1"]),
                    word,
                    select(vec!["HTTP/1.1", "HTTP/2", "http/1.1", "x", "HTTP/x", ""])
                )
                    .prop_map(|(method, path, protocol)| format!("{method} /{path} {protocol}").into_bytes()),
                word.prop_map(String::into_bytes),
                (word, word).prop_map(|(a, b)| format!("GET /{a} {b} HTTP/1.0").into_bytes()),
                (word, word).prop_map(|(a, b)| format!("GET /{a}?{b}").into_bytes()),
                Just(b"GET /caf\xE9 HTTP/1.1".to_vec()),
                Just(b"GET HTTP/1.1".to_vec()),
                Just(b"GET  HTTP/1.1".to_vec()),
                Just(b"GET /a\\".to_vec()),
                Just(b"-".to_vec()),
                Just(b"".to_vec()),
            ]
        }

        proptest! {
            #![proptest_config(ProptestConfig::with_cases(3_000))]
            #[test]
            fn every_line_has_the_page_that_parse_finds(
                front in part(&["10.1.2.3 - -", "::1 - ann", "h - john doe", "v.example:443 192.0.2.1 - -", "v:80 localhost - -", "h -", "h - - x", ""]),
                time in part(&["02/Mar/2026:00:04:59 +0100", "29/Feb/2024:23:59:60 -0730", "31/Dec/1999:00:00:00 +0000", "01/Jan/2030:12:30:00 +1400", "02/Foo/2026:00:04:59 +0100", "yesterday"]),
                request in request(),
                status in part(&["200", "404", "-", "304", "500", "400", "abc", "20"]),
                bytes in part(&["0", "17", "-", "0017", "123456", "1k"]),
                tail in part(&[
                    " \"-\" \"-\"", " \"https://a.example/\" \"an \\\"agent\\\"\"", " \"-\" \"x\" \"203.0.113.9\"", " \"-\" \"x\" 0.003", " \"-\"", "",
                    " \"-\" \"x", " \"a \\\\\" \"b\"",
                ]),
            ) {
                let line = [front, b" [", time, b"] \"", &request, b"\" ", status, b" ", bytes, tail].concat();
                let mut parse = Harness::<::parse::Parse>::new(
                    r#"{"format":"combined","key":"path","event_time":{"field":"time","format":"clf"}}"#
                );
                parse.row(0, "", &line);
                let found = parse.take(0).pop().map(|row| (row.timestamp / 1_000, String::from_utf8(row.key).unwrap()));
                let reasons = parse.take_rejections();
                prop_assert_eq!(view(&text(&line)), found, "{} {:?}", String::from_utf8_lossy(&line), reasons);
            }
        }
    }
}
