//! Standard output for results, standard error for messages. Plain where it is not a terminal.
//!
//! Everything that commands show passes here, so that no control character of a name, path, reason or log line, which may be a
//! stranger's, reaches a terminal. Rows that a job writes to standard output are its result, and are not touched.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};

use clap::builder::styling::{AnsiColor, Style};

/// When to colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Colour {
    /// On a terminal, unless NO_COLOR is set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

impl Colour {
    /// Whether standard error is coloured.
    pub(crate) fn on_stderr(self) -> bool {
        self.on(io::stderr().is_terminal())
    }

    /// Whether standard output is coloured.
    pub(crate) fn on_stdout(self) -> bool {
        self.on(stdout_is_terminal())
    }

    fn on(self, is_terminal: bool) -> bool {
        match self {
            Colour::Always => true,
            Colour::Never => false,
            Colour::Auto => is_terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
        }
    }
}

/// Whether somebody reads standard output on a terminal.
pub(crate) fn stdout_is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Writes a result.
///
/// # Errors
/// If standard output is closed or full.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(clean(text).as_bytes())?;
    out.flush()?;
    Ok(())
}

/// Writes text of our own, with its styles. Nothing that comes from elsewhere may be in it.
///
/// # Errors
/// If standard output is closed or full.
pub(crate) fn print_styled(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

/// Writes one JSON document as a result.
pub(crate) fn print_json(value: &impl serde::Serialize) -> anyhow::Result<()> {
    print(&format!("{}\n", serde_json::to_string_pretty(value)?))
}

/// Writes a message, its errors, warnings and hints marked with colour. That it cannot be written is no error.
pub(crate) fn message(text: &str, colour: Colour) {
    let text = clean(text);
    let text = if colour.on_stderr() { coloured(&text) } else { text.into_owned() };
    let mut err = io::stderr().lock();
    let _ = writeln!(err, "{}", text.trim_end());
}

/// Shows one line in place of the one that was shown this way before; nothing, to clear it. For a terminal. What is wider than the
/// terminal is cut off: a line that wraps could not be replaced.
pub(crate) fn status(text: &str) {
    let mut err = io::stderr().lock();
    let _ = write!(err, "{}", replacing(text)).and_then(|()| err.flush());
}

/// Back to the line's start, clears it, and writes with wrapping turned off.
fn replacing(text: &str) -> String {
    format!("\r\x1b[2K\x1b[?7l{}\x1b[?7h", line(text))
}

/// A number of things: `count(1, "checkpoint")` is "1 checkpoint", `count(1_200, "row")` is "1,200 rows".
pub(crate) fn count(value: u64, what: &str) -> String {
    format!("{} {what}{}", number(value), if value == 1 { "" } else { "s" })
}

/// Text of several lines in which nothing but line breaks and tabs moves the cursor. Escapes are those of JSON, so JSON stays
/// what it is.
pub(crate) fn clean(text: &str) -> Cow<'_, str> {
    escaped(text, |character| !matches!(character, '\n' | '\t'))
}

/// Text that stays on one line, whatever is in it.
pub(crate) fn line(text: &str) -> Cow<'_, str> {
    escaped(text, |_| true)
}

fn escaped(text: &str, wanted: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.chars().any(|character| is_unseen(character) && wanted(character)) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        match character {
            '\n' if wanted('\n') => escaped.push_str("\\n"),
            '\r' => escaped.push_str("\\r"),
            '\t' if wanted('\t') => escaped.push_str("\\t"),
            other if is_unseen(other) && wanted(other) => escaped.push_str(&format!("\\u{:04x}", u32::from(other))),
            other => escaped.push(other),
        }
    }
    Cow::Owned(escaped)
}

/// Control characters, and those that turn the direction of what follows or break lines without being seen.
fn is_unseen(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

fn coloured(text: &str) -> String {
    let bold = |colour: AnsiColor| Style::new().bold().fg_color(Some(colour.into()));
    let mut marked = String::new();
    for line in text.split_inclusive('\n') {
        let end = line.find(':').map_or(0, |colon| colon + 1);
        let (style, end) = match line {
            _ if line.starts_with("error") => (bold(AnsiColor::Red), end),
            _ if line.starts_with("warning:") => (bold(AnsiColor::Yellow), end),
            _ if line.trim_start().starts_with("= hint:") => (bold(AnsiColor::Cyan), end),
            _ if line.trim_start().starts_with('^') || line.trim_start().starts_with("| ") => {
                (Style::new().fg_color(Some(AnsiColor::Red.into())), line.trim_end().len())
            }
            _ => (Style::new(), 0),
        };
        marked.push_str(&format!("{style}{}{style:#}{}", &line[..end], &line[end..]));
    }
    marked
}

/// Whether the error is that nobody reads our standard output any more (`weir ... | head`).
pub(crate) fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// Rows as columns of text, each on one line. The first row is the header.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let rows: Vec<Vec<Cow<'_, str>>> = rows.iter().map(|row| row.iter().map(|cell| self::line(cell)).collect()).collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<Cow<'_, str>>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

/// A size for people: "1.2 MiB".
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut value, mut unit) = (bytes as f64, 0);
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        (value, unit) = (value / 1024.0, unit + 1);
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

/// How long ago a moment was, for people. `at_ms` is in milliseconds since the Unix epoch.
pub(crate) fn ago(at_ms: u64) -> String {
    let seconds = now_ms().saturating_sub(at_ms) / 1_000;
    let (number, unit) = match seconds {
        0..60 => return "just now".to_owned(),
        60..3_600 => (seconds / 60, "minute"),
        3_600..86_400 => (seconds / 3_600, "hour"),
        _ => (seconds / 86_400, "day"),
    };
    format!("{number} {unit}{} ago", if number == 1 { "" } else { "s" })
}

/// Milliseconds since the Unix epoch.
pub(crate) fn now_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// A number with its thousands set apart: 1,234,567.
pub(crate) fn number(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A moment in UTC to the second: `2026-03-02T08:04:59Z`. `ms` is in milliseconds since the Unix epoch.
pub(crate) fn time(ms: i64) -> String {
    let mut text = Vec::new();
    weir_connectors::write_rfc3339(ms, &mut text);
    let text = String::from_utf8_lossy(&text);
    text.split_once('.').map_or_else(|| text.to_string(), |(seconds, _)| format!("{seconds}Z"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let row = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
        assert_eq!(
            table(&[row(["NAME", "SIZE"]), row(["a", "1 B"]), row(["longer", ""])]),
            "NAME    SIZE\na       1 B\nlonger\n"
        );
    }

    #[test]
    fn s140_control_characters_are_shown_and_not_obeyed() {
        let hostile = "a\u{1b}]0;title\u{7}\rb\u{9b}2J\u{202e}c\u{7f}\u{0}\n\td é";
        assert_eq!(clean(hostile), "a\\u001b]0;title\\u0007\\rb\\u009b2J\\u202ec\\u007f\\u0000\n\td é");
        assert_eq!(line(hostile), clean(hostile).replace('\n', "\\n").replace('\t', "\\t"));
        let rows = [vec!["NAME".to_owned()], vec!["x\ny".to_owned()]];
        assert_eq!(table(&rows), "NAME\nx\\ny\n");
        // What is JSON still says the same.
        let json = serde_json::to_string(hostile).unwrap_or_default();
        assert_eq!(serde_json::from_str::<String>(&clean(&json)).unwrap_or_default(), hostile);
        assert!(!clean(&json).contains('\u{9b}'));
    }

    #[test]
    fn sizes_and_ages_are_for_people() {
        assert_eq!([size(0), size(1023), size(1536), size(5 << 40)], ["0 B", "1023 B", "1.5 KiB", "5.0 TiB"]);
        let now = now_ms();
        assert_eq!(ago(now), "just now");
        assert_eq!(ago(now - 61_000), "1 minute ago");
        assert_eq!(ago(now - 3 * 86_400_000), "3 days ago");
    }

    #[test]
    fn numbers_and_times_are_for_people() {
        assert_eq!([number(0), number(999), number(1_000), number(12_345_678)], ["0", "999", "1,000", "12,345,678"]);
        assert_eq!(time(0), "1970-01-01T00:00:00Z");
        assert_eq!(time(-1), "1969-12-31T23:59:59Z");
        assert_eq!(time(1_772_406_000_000), "2026-03-01T23:00:00Z");
    }

    #[test]
    fn one_of_a_thing_is_not_several_of_it() {
        assert_eq!([0, 1, 1_200].map(|value| count(value, "row")), ["0 rows", "1 row", "1,200 rows"]);
    }

    #[test]
    fn a_status_line_does_not_wrap_and_wrapping_is_on_after_it() {
        let shown = replacing("wide\x1b[?7h");
        assert_eq!(shown, "\r\x1b[2K\x1b[?7lwide\\u001b[?7h\x1b[?7h");
    }

    #[test]
    fn colour_changes_no_text() {
        let plain = "error[E0002]: a: b\n --> x:1:1\n  |\n1 | a\n  | ^\n  = hint: c\n";
        let mut stripped = String::new();
        let mut in_code = false;
        for character in coloured(plain).chars() {
            match character {
                '\u{1b}' => in_code = true,
                'm' if in_code => in_code = false,
                _ if !in_code => stripped.push(character),
                _ => {}
            }
        }
        assert_eq!(stripped, plain);
    }
}
