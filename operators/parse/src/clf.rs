//! The Common Log Format and its relatives:
//! `[vhost[:port]] host ident user [time] "method path protocol" status bytes ["referer" "agent"] ...`.
//!
//! A line is accepted if its frame is right: the words before the time, the time, the quotes, status and bytes. What the request
//! says is a stranger's business: any text is one. What is absent, or cannot be told, is absent here, never guessed.

use core::net::IpAddr;
use std::borrow::Cow;

use weir_sdk::json::{Path, append_integer, append_string, readable, string_bytes_max};
use weir_sdk::time::Bracket;

use crate::format::Format;
use crate::request::Request;

/// Names of the fields, in the order of [`Field`].
pub(crate) const NAMES: [&str; 15] = [
    "vhost", "port", "host", "ident", "user", "time", "request", "method", "path", "query", "protocol", "status", "bytes",
    "referer", "agent",
];

/// A field of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Field(usize);

impl Field {
    const VHOST: usize = 0;
    const PORT: usize = 1;
    const HOST: usize = 2;
    const USER: usize = 4;
    const TIME: usize = 5;
    const REQUEST: usize = 6;
    const METHOD: usize = 7;
    const PATH: usize = 8;
    const QUERY: usize = 9;
    const PROTOCOL: usize = 10;
    const STATUS: usize = 11;
    const BYTES: usize = 12;
    const REFERER: usize = 13;
    const AGENT: usize = 14;

    /// The field that a path names.
    pub(crate) fn of(path: &Path) -> Option<Field> {
        let [name] = path.steps() else { return None };
        NAMES.iter().position(|known| known == name).map(Field)
    }

    /// Whether it is a part of the request.
    pub(crate) fn is_of_request(self) -> bool {
        (Field::METHOD..=Field::PROTOCOL).contains(&self.0)
    }

    fn is_number(self) -> bool {
        matches!(self.0, Field::PORT | Field::STATUS | Field::BYTES)
    }
}

/// A line's fields, as they are written there. What is written as `-`, or is empty, is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Line<'a> {
    fields: [Option<&'a [u8]>; NAMES.len()],
}

impl<'a> Line<'a> {
    /// Reads a line.
    ///
    /// # Errors
    /// What is missing or wrong.
    pub(crate) fn parse(text: &'a [u8], format: Format) -> Result<Line<'a>, &'static str> {
        let mut line = Line::default();
        let bracket = Bracket::find(text).ok_or_else(|| no_time(text))?;
        let (front, rest) = text.split_at(bracket.at);
        line.front(front, format)?;
        let (time, rest) = rest[1..].split_at(Bracket::TIME_BYTES);
        line.set(Field::TIME, time);
        let (request, rest) = quoted_request(&rest[1..]).ok_or("no request in quotes after the time")?;
        line.request(request);
        let (status, rest) = word(rest).ok_or("no status after the request")?;
        if status != b"-" && (status.len() != 3 || !is_digits(status)) {
            return Err("the status is not three digits");
        }
        line.set(Field::STATUS, status);
        let (bytes, rest) = word(rest).ok_or("no number of bytes after the status")?;
        if bytes != b"-" && !is_digits(bytes) {
            return Err("the number of bytes is not one");
        }
        line.set(Field::BYTES, bytes);
        line.back(rest, format)?;
        Ok(line)
    }

    /// What stands before the time.
    fn front(&mut self, front: &'a [u8], format: Format) -> Result<(), &'static str> {
        let front = front.strip_suffix(b" ").ok_or("no blank before the time")?;
        let mut words = front.splitn(4, |&byte| byte == b' ');
        let (first, second, third, more) = (words.next(), words.next(), words.next(), words.next());
        let (Some(first), Some(second), Some(third)) = (first, second, third) else {
            return Err("no host, ident and user before the time");
        };
        let rest = &front[first.len() + 1..];
        if format == Format::Vhost || (more.is_some() && is_vhost(first, second, third)) {
            let (vhost, port) = name_and_port(first).unwrap_or((first, b""));
            self.set(Field::VHOST, vhost);
            self.set(Field::PORT, port);
            let mut words = rest.splitn(3, |&byte| byte == b' ');
            let (Some(host), Some(ident), Some(user)) = (words.next(), words.next(), words.next()) else {
                return Err("no host, ident and user between the virtual host and the time");
            };
            return self.client(host, ident, user);
        }
        self.client(first, second, &rest[rest.len() - third.len() - more.map_or(0, |more| more.len() + 1)..])
    }

    /// The three words about the client. A user may have blanks in the name.
    fn client(&mut self, host: &'a [u8], ident: &'a [u8], user: &'a [u8]) -> Result<(), &'static str> {
        if host.is_empty() || ident.is_empty() || user.is_empty() {
            return Err("host, ident or user is empty");
        }
        if user.starts_with(b"- ") {
            return Err(
                "more than host, ident and user before the time; if a virtual host comes first, use the format \"vhost\"",
            );
        }
        for (field, text) in [(Field::HOST, host), (Field::HOST + 1, ident), (Field::USER, user)] {
            self.set(field, text);
        }
        Ok(())
    }

    fn request(&mut self, text: &'a [u8]) {
        self.set(Field::REQUEST, text);
        if self.fields[Field::REQUEST].is_none() {
            return;
        }
        let Request { method, path, query, protocol } = Request::of(text);
        for (field, part) in [(Field::METHOD, method), (Field::PATH, path), (Field::QUERY, query), (Field::PROTOCOL, protocol)] {
            self.set(field, part);
        }
    }

    /// What stands after the number of bytes. Of further text every format makes nothing.
    fn back(&mut self, rest: &'a [u8], format: Format) -> Result<(), &'static str> {
        let needed = format == Format::Combined;
        if format == Format::Common || (!needed && !rest.starts_with(b" \"")) {
            return Ok(());
        }
        let (referer, rest) = quoted(rest).ok_or("no referer in quotes after the number of bytes")?;
        self.set(Field::REFERER, referer);
        if needed || rest.starts_with(b" \"") {
            let (agent, _) = quoted(rest).ok_or("no agent in quotes after the referer")?;
            self.set(Field::AGENT, agent);
        }
        Ok(())
    }

    fn set(&mut self, field: usize, text: &'a [u8]) {
        self.fields[field] = (!text.is_empty() && text != b"-").then_some(text);
    }

    /// A field's text, without the escapes of web servers.
    pub(crate) fn text(&self, field: Field) -> Option<Cow<'a, [u8]>> {
        self.fields[field.0].map(plain)
    }

    /// The text of the request, as it is written.
    pub(crate) fn request_text(&self) -> Option<&'a [u8]> {
        self.fields[Field::REQUEST]
    }

    /// Appends a field as JSON: status, bytes and port as numbers, others as strings, absent ones as null.
    pub(crate) fn append_json(&self, field: Field, to: &mut Vec<u8>) {
        match self.fields[field.0] {
            None => to.extend_from_slice(b"null"),
            Some(number) if field.is_number() => append_number(to, number),
            Some(text) => append_string(to, &plain(text)),
        }
    }

    /// A bound for what [`append_json`](Line::append_json) appends.
    pub(crate) fn json_bytes_max(&self, field: Field) -> usize {
        self.fields[field.0].map_or(4, |text| string_bytes_max(&plain(text)))
    }

    /// The fields that are there; the request itself only where its parts do not say all of it.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (&'static str, Field)> {
        let is_split = [Field::METHOD, Field::PATH, Field::PROTOCOL].iter().all(|field| self.fields[*field].is_some());
        let is_there =
            move |(index, _): &(usize, &&str)| self.fields[*index].is_some() && !(is_split && *index == Field::REQUEST);
        NAMES.iter().enumerate().filter(is_there).map(|(index, name)| (*name, Field(index)))
    }
}

/// Why a line has no time.
#[cold]
fn no_time(text: &[u8]) -> &'static str {
    match text.windows(2).position(|pair| pair == b" [") {
        None => "no time in brackets after host, ident and user",
        Some(at) if !text[at..].contains(&b']') => "the time has no closing bracket",
        Some(_) => "the time is not one",
    }
}

/// Whether a line that has more than three words before the time, which a user with blanks in the name may make too, begins
/// with a virtual host: what comes second is a client's address, or could be its name and the first has a port.
fn is_vhost(first: &[u8], second: &[u8], third: &[u8]) -> bool {
    let is_address = std::str::from_utf8(second).is_ok_and(|text| text.parse::<IpAddr>().is_ok());
    let may_be_host = second != b"-" && (second.contains(&b'.') || third == b"-");
    is_address || (may_be_host && name_and_port(first).is_some())
}

/// `example.org:443`, `[::1]:443`; not `::1`.
fn name_and_port(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = text.iter().rposition(|&byte| byte == b':')?;
    let (name, port) = (&text[..at], &text[at + 1..]);
    let is_name = !name.is_empty() && (!name.contains(&b':') || (name.starts_with(b"[") && name.ends_with(b"]")));
    (is_name && is_digits(port) && port.len() <= 5).then_some((name, port))
}

fn is_digits(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(u8::is_ascii_digit)
}

/// Digits as a JSON number, which has no zeros in front.
fn append_number(to: &mut Vec<u8>, digits: &[u8]) {
    match std::str::from_utf8(digits).ok().and_then(|digits| digits.parse::<u64>().ok()) {
        Some(number) => append_integer(to, number),
        None => {
            let zeros = digits.iter().take_while(|&&digit| digit == b'0').count().min(digits.len() - 1);
            to.extend_from_slice(&digits[zeros..]);
        }
    }
}

/// A word after a blank, and what comes after it.
fn word(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let text = text.strip_prefix(b" ")?;
    let at = text.iter().position(|&byte| byte == b' ').unwrap_or(text.len());
    Some((&text[..at], &text[at..]))
}

/// A text in quotes after a blank, and what comes after it: nothing, or a blank. A backslash keeps a quote from closing it.
fn quoted(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let text = text.strip_prefix(b" \"")?;
    let mut at = 0;
    loop {
        match text.get(at)? {
            b'"' if matches!(text.get(at + 1), None | Some(b' ')) => return Some((&text[..at], &text[at + 1..])),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

/// The request in its quotes after a blank, and what comes after it. Some servers do not escape what a client sends: where the
/// request as such is not followed by a status, and a backslash stands before a quote that is, that quote closes it.
fn quoted_request(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let has_status = |rest: &[u8]| matches!(rest, [b' ', a, b, c] | [b' ', a, b, c, b' ', ..] if is_digits(&[*a, *b, *c]));
    let found = quoted(text);
    if found.is_some_and(|(_, rest)| has_status(rest)) {
        return found;
    }
    let inner = text.strip_prefix(b" \"")?;
    let end = found.map_or(inner.len(), |(request, _)| request.len());
    let closes = |at: &usize| inner[*at..].starts_with(b"\\\"") && has_status(&inner[at + 2..]);
    match (0..end).find(closes) {
        Some(at) => Some((&inner[..=at], &inner[at + 2..])),
        None => found,
    }
}

/// A field as the client sent it: Apache and nginx write what is not printable as `\xC3`, quotes and backslashes with a
/// backslash, Apache some control characters as `\n`. What does not become UTF-8 stays as it is written; bytes that are not
/// UTF-8 are written as servers would.
fn plain(text: &[u8]) -> Cow<'_, [u8]> {
    if text.iter().all(|&byte| byte.is_ascii() && byte != b'\\') {
        return Cow::Borrowed(text);
    }
    if text.contains(&b'\\') {
        let decoded = unescape(text);
        if std::str::from_utf8(&decoded).is_ok() {
            return Cow::Owned(decoded);
        }
    }
    match readable(text) {
        Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    }
}

fn unescape(text: &[u8]) -> Vec<u8> {
    let hex = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [byte, after @ ..] = rest {
        let (decoded, length) = match (byte, after) {
            (b'\\', [kind @ (b'"' | b'\\'), ..]) => (*kind, 2),
            (b'\\', [b'n', ..]) => (b'\n', 2),
            (b'\\', [b'r', ..]) => (b'\r', 2),
            (b'\\', [b't', ..]) => (b'\t', 2),
            (b'\\', [b'b', ..]) => (0x08, 2),
            (b'\\', [b'v', ..]) => (0x0B, 2),
            (b'\\', [b'x', high, low, ..]) => match (hex(*high), hex(*low)) {
                (Some(high), Some(low)) => (high << 4 | low, 4),
                _ => (b'\\', 1),
            },
            _ => (*byte, 1),
        };
        plain.push(decoded);
        rest = &rest[length..];
    }
    plain
}
