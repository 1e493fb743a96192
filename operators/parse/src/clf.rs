//! The Common Log Format, and the Combined one:
//! `host ident user [time] "method path protocol" status bytes "referer" "agent"`.

use weir_sdk::json::{Path, append_string};

use crate::config::Format;
use crate::time::TimeFormat;

/// Names of the fields, in the order of [`Field`].
pub(crate) const NAMES: [&str; 12] =
    ["host", "ident", "user", "time", "method", "path", "query", "protocol", "status", "bytes", "referer", "agent"];

/// A field of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Field(usize);

impl Field {
    pub(crate) const TIME: Field = Field(3);
    const METHOD: usize = 4;
    const PATH: usize = 5;
    const QUERY: usize = 6;
    const PROTOCOL: usize = 7;
    const STATUS: usize = 8;
    const BYTES: usize = 9;
    const REFERER: usize = 10;
    const AGENT: usize = 11;

    /// The field that a path names.
    pub(crate) fn of(path: &Path) -> Option<Field> {
        let [name] = path.steps() else { return None };
        NAMES.iter().position(|known| known == name).map(Field)
    }
}

/// A line's fields. What is written as `-` is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Line<'a> {
    fields: [Option<&'a [u8]>; NAMES.len()],
}

impl<'a> Line<'a> {
    pub(crate) fn get(&self, field: Field) -> Option<&'a [u8]> {
        self.fields[field.0]
    }

    /// Reads a line.
    ///
    /// # Errors
    /// What is missing or wrong.
    pub(crate) fn parse(text: &'a [u8], format: Format) -> Result<Line<'a>, &'static str> {
        let mut line = Line::default();
        const NO_TIME: &str = "no time in brackets after host, ident and user";
        let (host, rest) = until(text, b' ').ok_or(NO_TIME)?;
        let (ident, rest) = until(rest, b' ').ok_or(NO_TIME)?;
        let (user, rest) = user(rest).ok_or(NO_TIME)?;
        if host.is_empty() || ident.is_empty() || user.is_empty() {
            return Err("host, ident or user is empty");
        }
        line.fields[..3].copy_from_slice(&[host, ident, user].map(present));
        let rest = rest.strip_prefix(b"[").ok_or(NO_TIME)?;
        let (time, after) = until(rest, b']').ok_or("the time has no closing bracket")?;
        TimeFormat::Clf.read(time).ok_or("the time is not one")?;
        line.set(Field::TIME.0, time);
        let (request, after) = quoted(after).ok_or("no request in quotes after the time")?;
        line.request(request)?;
        let (status, after) = word(after).ok_or("no status after the request")?;
        if status.len() != 3 || !status.iter().all(u8::is_ascii_digit) {
            return Err("the status is not three digits");
        }
        line.set(Field::STATUS, status);
        let (bytes, after) = word(after).ok_or("no number of bytes after the status")?;
        if bytes != b"-" && (bytes.is_empty() || !bytes.iter().all(u8::is_ascii_digit)) {
            return Err("the number of bytes is not one");
        }
        line.set(Field::BYTES, bytes);
        let mut rest = after;
        if format == Format::Combined || (format == Format::Clf && rest.starts_with(b" \"")) {
            let (referer, after) = quoted(rest).ok_or("no referer in quotes after the number of bytes")?;
            let (agent, after) = quoted(after).ok_or("no agent in quotes after the referer")?;
            line.set(Field::REFERER, referer);
            line.set(Field::AGENT, agent);
            rest = after;
        }
        if format != Format::Clf && !rest.is_empty() {
            return Err("more text than the format has fields; format \"clf\" ignores it");
        }
        Ok(line)
    }

    fn request(&mut self, request: &'a [u8]) -> Result<(), &'static str> {
        if request == b"-" || request.is_empty() {
            return Ok(());
        }
        let mut words = request.split(|&byte| byte == b' ');
        let (Some(method), Some(target), Some(protocol), None) = (words.next(), words.next(), words.next(), words.next()) else {
            return Err("the request is not method, path and protocol");
        };
        self.set(Field::METHOD, method);
        self.set(Field::PROTOCOL, protocol);
        let at = target.iter().position(|&byte| byte == b'?').unwrap_or(target.len());
        self.set(Field::PATH, &target[..at]);
        if at < target.len() {
            self.set(Field::QUERY, &target[at + 1..]);
        }
        Ok(())
    }

    fn set(&mut self, field: usize, text: &'a [u8]) {
        self.fields[field] = present(text);
    }

    /// Appends a field as JSON: status and bytes as numbers, others as strings, absent ones as null.
    pub(crate) fn append_json(&self, field: Field, to: &mut Vec<u8>) {
        match self.fields[field.0] {
            None => to.extend_from_slice(b"null"),
            Some(number) if field.0 == Field::STATUS || field.0 == Field::BYTES => append_number(to, number),
            Some(text) => append_string(to, text),
        }
    }

    /// Appends all fields that are there as a JSON object.
    pub(crate) fn append_object(&self, to: &mut Vec<u8>) {
        let mut separator = b'{';
        for (index, name) in NAMES.iter().enumerate() {
            if self.fields[index].is_some() {
                to.push(separator);
                to.push(b'"');
                to.extend_from_slice(name.as_bytes());
                to.extend_from_slice(b"\":");
                self.append_json(Field(index), to);
                separator = b',';
            }
        }
        to.push(b'}');
    }
}

/// Digits as a JSON number, which has no zeros in front.
fn append_number(to: &mut Vec<u8>, digits: &[u8]) {
    let zeros = digits.iter().take_while(|&&digit| digit == b'0').count().min(digits.len() - 1);
    to.extend_from_slice(&digits[zeros..]);
}

/// A field's text, unless it is written as absent.
fn present(text: &[u8]) -> Option<&[u8]> {
    (text != b"-").then_some(text)
}

/// What comes before a byte, and what after it.
fn until(text: &[u8], end: u8) -> Option<(&[u8], &[u8])> {
    let at = text.iter().position(|&byte| byte == end)?;
    Some((&text[..at], &text[at + 1..]))
}

/// The user, who may have blanks in the name, up to the bracket of the time, and what comes from the bracket on.
fn user(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = text.windows(2).position(|pair| pair == b" [")?;
    Some((&text[..at], &text[at + 1..]))
}

/// A word after a blank, and what comes after it.
fn word(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let text = text.strip_prefix(b" ")?;
    let at = text.iter().position(|&byte| byte == b' ').unwrap_or(text.len());
    Some((&text[..at], &text[at..]))
}

/// A text in quotes after a blank, and what comes after it. A backslash keeps a quote from closing it.
fn quoted(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let text = text.strip_prefix(b" \"")?;
    let mut at = 0;
    loop {
        match text.get(at)? {
            b'"' => return Some((&text[..at], &text[at + 1..])),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}
