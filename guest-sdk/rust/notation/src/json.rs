//! Single fields of JSON text, found without building the rest: what most operators do with most rows, and how a source finds
//! a row's time.
//!
//! Only what lies before and in the field is looked at; text after it may be malformed without being noticed. Where an object
//! has a name twice, the first counts.

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// The way to a field: `"user.id"`, or `"/user/id"` (JSON Pointer, RFC 6901: `~1` is a slash, `~0` a tilde). A step into an array
/// is an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    steps: Vec<String>,
}

impl Path {
    /// Reads a path. `""` is the whole value.
    pub fn new(text: &str) -> Path {
        let steps = match text.strip_prefix('/') {
            Some(pointer) => pointer.split('/').map(|step| step.replace("~1", "/").replace("~0", "~")).collect(),
            None if text.is_empty() => Vec::new(),
            None => text.split('.').map(String::from).collect(),
        };
        Path { steps }
    }

    /// The steps, outermost first.
    pub fn steps(&self) -> &[String] {
        &self.steps
    }

    /// The field in `json`; `None` if there is none.
    ///
    /// # Errors
    /// If the text is not JSON as far as it had to be read.
    pub fn find<'a>(&self, json: &'a [u8]) -> Result<Option<Raw<'a>>, Malformed> {
        let mut scanner = Scanner { json, at: 0 };
        scanner.blanks();
        for (depth, step) in self.steps.iter().enumerate() {
            let found = match scanner.peek() {
                Some(b'{') => scanner.enter_object(step)?,
                Some(b'[') => scanner.enter_array(step)?,
                // A line of a log is no JSON, though it may begin like a number.
                Some(_) if depth == 0 => {
                    scanner.skip_value()?;
                    scanner.blanks();
                    if scanner.peek().is_some() {
                        return Err(scanner.malformed());
                    }
                    false
                }
                Some(_) => false,
                None => return Err(scanner.malformed()),
            };
            if !found {
                return Ok(None);
            }
        }
        let start = scanner.at;
        scanner.skip_value()?;
        Ok(Some(Raw { text: &json[start..scanner.at] }))
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, step) in self.steps.iter().enumerate() {
            f.write_str(if index == 0 { "" } else { "." })?;
            f.write_str(step)?;
        }
        Ok(())
    }
}

impl<'de> serde::Deserialize<'de> for Path {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Path, D::Error> {
        struct PathVisitor;
        impl serde::de::Visitor<'_> for PathVisitor {
            type Value = Path;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the path of a field, such as \"user.id\" or \"/user/id\"")
            }
            fn visit_str<E>(self, text: &str) -> Result<Path, E> {
                Ok(Path::new(text))
            }
        }
        deserializer.deserialize_str(PathVisitor)
    }
}

/// Text that is not JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// Where, in bytes from the start.
    pub at: usize,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not JSON at byte {}", self.at)
    }
}

impl core::error::Error for Malformed {}

/// Why a value has no text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoText {
    /// It is an object or array.
    Nested,
    /// It is a string with half of a surrogate pair, such as `"\ud800"`.
    Surrogate,
    /// It is a string with an escape that JSON does not have.
    Escape,
    /// It is a string with bytes that are not UTF-8.
    NotUtf8,
}

impl fmt::Display for NoText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NoText::Nested => "is an object or array",
            NoText::Surrogate => "has half of a surrogate pair (as in \"\\ud800\"), which is no character",
            NoText::Escape => "has an escape that JSON does not have",
            NoText::NotUtf8 => "has bytes that are not UTF-8",
        })
    }
}

impl core::error::Error for NoText {}

/// A JSON value as it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Raw<'a> {
    text: &'a [u8],
}

impl<'a> Raw<'a> {
    /// The value as it is written.
    pub fn bytes(self) -> &'a [u8] {
        self.text
    }

    /// Whether it is null.
    pub fn is_null(self) -> bool {
        self.text == b"null"
    }

    /// The characters of a string, or the text of a number, true, false or null.
    ///
    /// # Errors
    /// Why it has no text.
    pub fn text(self) -> Result<Cow<'a, [u8]>, NoText> {
        match self.text {
            [b'{' | b'[', ..] => Err(NoText::Nested),
            [b'"', inner @ .., b'"'] => {
                let text = if inner.contains(&b'\\') { Cow::Owned(unescape(inner)?) } else { Cow::Borrowed(inner) };
                if core::str::from_utf8(&text).is_ok() { Ok(text) } else { Err(NoText::NotUtf8) }
            }
            text => Ok(Cow::Borrowed(text)),
        }
    }

    /// As [`text`](Raw::text), where the reason does not matter.
    pub fn scalar(self) -> Option<Cow<'a, [u8]>> {
        self.text().ok()
    }

    /// The text of a number, also of one that is written as a string.
    pub fn number(self) -> Option<&'a str> {
        let text = match self.text {
            [b'"', inner @ .., b'"'] => inner,
            text => text,
        };
        let first = *text.first()?;
        (first == b'-' || first.is_ascii_digit()).then_some(())?;
        core::str::from_utf8(text).ok()
    }
}

/// The characters of a string between its quotes.
fn unescape(mut inner: &[u8]) -> Result<Vec<u8>, NoText> {
    let mut text = Vec::with_capacity(inner.len());
    while let Some(at) = inner.iter().position(|&byte| byte == b'\\') {
        text.extend_from_slice(&inner[..at]);
        let (&kind, rest) = inner[at + 1..].split_first().ok_or(NoText::Escape)?;
        inner = rest;
        match kind {
            b'"' | b'\\' | b'/' => text.push(kind),
            b'b' => text.push(0x08),
            b'f' => text.push(0x0C),
            b'n' => text.push(b'\n'),
            b'r' => text.push(b'\r'),
            b't' => text.push(b'\t'),
            b'u' => {
                let mut code = unit(&mut inner)?;
                if (0xD800..0xDC00).contains(&code) {
                    inner = inner.strip_prefix(b"\\u").ok_or(NoText::Surrogate)?;
                    let low = unit(&mut inner)?;
                    let low = low.checked_sub(0xDC00).filter(|low| *low < 0x400).ok_or(NoText::Surrogate)?;
                    code = 0x1_0000 + ((code - 0xD800) << 10) + low;
                }
                let c = char::from_u32(code).ok_or(NoText::Surrogate)?;
                text.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            }
            _ => return Err(NoText::Escape),
        }
    }
    text.extend_from_slice(inner);
    Ok(text)
}

/// The four hexadecimal digits of a `\u`.
fn unit(inner: &mut &[u8]) -> Result<u32, NoText> {
    let (digits, rest) = inner.split_first_chunk::<4>().ok_or(NoText::Escape)?;
    *inner = rest;
    let digit = |byte: &u8| char::from(*byte).to_digit(16).ok_or(NoText::Escape);
    digits.iter().try_fold(0, |code, byte| Ok(code * 16 + digit(byte)?))
}

struct Scanner<'a> {
    json: &'a [u8],
    at: usize,
}

impl Scanner<'_> {
    fn malformed(&self) -> Malformed {
        Malformed { at: self.at.min(self.json.len()) }
    }

    #[inline]
    fn peek(&self) -> Option<u8> {
        self.json.get(self.at).copied()
    }

    #[inline]
    fn blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    #[inline]
    fn expect(&mut self, byte: u8) -> Result<(), Malformed> {
        self.blanks();
        if self.peek() != Some(byte) {
            return Err(self.malformed());
        }
        self.at += 1;
        Ok(())
    }

    /// Goes to the value of `name` in the object that starts here.
    fn enter_object(&mut self, name: &str) -> Result<bool, Malformed> {
        self.at += 1;
        self.blanks();
        if self.peek() == Some(b'}') {
            return Ok(false);
        }
        loop {
            self.blanks();
            let start = self.at;
            self.skip_string()?;
            let key = Raw { text: &self.json[start..self.at] };
            self.expect(b':')?;
            self.blanks();
            if key.is_name(name) {
                return Ok(true);
            }
            self.skip_value()?;
            self.blanks();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => return Ok(false),
                _ => return Err(self.malformed()),
            }
        }
    }

    /// Goes to item `index` of the array that starts here.
    fn enter_array(&mut self, index: &str) -> Result<bool, Malformed> {
        let Ok(index) = index.parse::<usize>() else { return Ok(false) };
        self.at += 1;
        self.blanks();
        if self.peek() == Some(b']') {
            return Ok(false);
        }
        for _ in 0..index {
            self.skip_value()?;
            self.blanks();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => return Ok(false),
                _ => return Err(self.malformed()),
            }
            self.blanks();
        }
        Ok(true)
    }

    fn skip_string(&mut self) -> Result<(), Malformed> {
        if self.peek() != Some(b'"') {
            return Err(self.malformed());
        }
        self.at += 1;
        loop {
            match self.peek() {
                Some(b'"') => break,
                Some(b'\\') => self.at += 2,
                Some(_) => self.at += 1,
                None => return Err(self.malformed()),
            }
        }
        self.at += 1;
        Ok(())
    }

    fn skip_value(&mut self) -> Result<(), Malformed> {
        match self.peek() {
            Some(b'"') => self.skip_string(),
            Some(b'{' | b'[') => self.skip_nested(),
            Some(b't') => self.skip_word(b"true"),
            Some(b'f') => self.skip_word(b"false"),
            Some(b'n') => self.skip_word(b"null"),
            Some(b'-' | b'0'..=b'9') => self.skip_number(),
            _ => Err(self.malformed()),
        }
    }

    fn skip_word(&mut self, word: &[u8]) -> Result<(), Malformed> {
        if !self.json[self.at..].starts_with(word) {
            return Err(self.malformed());
        }
        self.at += word.len();
        self.end_of_word()
    }

    fn skip_number(&mut self) -> Result<(), Malformed> {
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        let leading_zero = self.peek() == Some(b'0');
        if self.skip_digits()? > 1 && leading_zero {
            return Err(self.malformed());
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.skip_digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.skip_digits()?;
        }
        self.end_of_word()
    }

    /// Passes over digits, at least one.
    #[inline]
    fn skip_digits(&mut self) -> Result<usize, Malformed> {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        if self.at == start { Err(self.malformed()) } else { Ok(self.at - start) }
    }

    /// No number or word goes on here.
    fn end_of_word(&self) -> Result<(), Malformed> {
        match self.peek() {
            None | Some(b',' | b'}' | b']' | b' ' | b'\t' | b'\n' | b'\r') => Ok(()),
            Some(_) => Err(self.malformed()),
        }
    }

    fn skip_nested(&mut self) -> Result<(), Malformed> {
        let mut depth = 0usize;
        loop {
            match self.peek() {
                Some(b'{' | b'[') => depth += 1,
                Some(b'}' | b']') => depth -= 1,
                Some(b'"') => {
                    self.skip_string()?;
                    continue;
                }
                Some(_) => {}
                None => return Err(self.malformed()),
            }
            self.at += 1;
            if depth == 0 {
                return Ok(());
            }
        }
    }
}

impl Raw<'_> {
    /// Whether it is the string `name`.
    #[inline]
    fn is_name(self, name: &str) -> bool {
        let inner = &self.text[1..self.text.len() - 1];
        *inner == *name.as_bytes() || (inner.contains(&b'\\') && self.scalar().is_some_and(|text| *text == *name.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const LINE: &[u8] =
        br#" {"a" : 1.50, "s":"x\"y", "user": {"na\u006de":"Ann", "id":[10,{"n":-2}, "z"]},"e":{},"t":true,"n":null,"a":2}"#;

    fn find(path: &str) -> Option<String> {
        let raw = Path::new(path).find(LINE).unwrap()?;
        Some(String::from_utf8(raw.bytes().to_vec()).unwrap())
    }

    #[test]
    fn fields_are_found_by_either_notation() {
        assert_eq!(find("/a").as_deref(), Some("1.50"), "the first of two");
        assert_eq!(find("user.name").as_deref(), Some(r#""Ann""#));
        assert_eq!(find("/user/id/1/n").as_deref(), Some("-2"));
        assert_eq!(find("user.id.2").as_deref(), Some(r#""z""#));
        assert_eq!(find("e").as_deref(), Some("{}"));
        assert_eq!(find("n").as_deref(), Some("null"));
        assert_eq!(Path::new("/x~1y/~01").steps(), ["x/y", "~1"]);
        assert!(find("").unwrap().starts_with("{\"a\""));
    }

    #[test]
    fn what_is_not_there_is_none() {
        for path in ["b", "a.b", "user.id.3", "user.id.x", "e.x", "/user/name/0"] {
            assert_eq!(find(path), None, "{path}");
        }
    }

    #[test]
    fn text_is_unescaped_or_there_is_a_reason() {
        let text = |value: &'static str| Path::new("").find(value.as_bytes()).unwrap().unwrap().text();
        assert_eq!(&*text(r#""x\"y\\\/\b\f\n\r\t""#).unwrap(), b"x\"y\\/\x08\x0C\n\r\t");
        assert_eq!(&*text(r#""\u00fc\ud83d\ude00""#).unwrap(), "ü😀".as_bytes());
        assert_eq!(&*text("1.50").unwrap(), b"1.50");
        assert_eq!(&*text("\"\"").unwrap(), b"");
        for (value, reason) in [
            ("{}", NoText::Nested),
            ("[1]", NoText::Nested),
            (r#""\ud800""#, NoText::Surrogate),
            (r#""\ud800x""#, NoText::Surrogate),
            (r#""\ud800\u0041""#, NoText::Surrogate),
            (r#""\udc00""#, NoText::Surrogate),
            (r#""\x""#, NoText::Escape),
            (r#""\u12g4""#, NoText::Escape),
            (r#""\u12""#, NoText::Escape),
        ] {
            assert_eq!(text(value), Err(reason), "{value}");
        }
        assert_eq!(Path::new("").find(b"\"caf\xE9\"").unwrap().unwrap().text(), Err(NoText::NotUtf8));
    }

    #[test]
    fn what_is_no_json_at_all_is_malformed_and_a_scalar_has_no_fields() {
        for text in ["nope", "10.1.0.1 - - [x]", "\\xff", "true x", "-"] {
            assert!(Path::new("a").find(text.as_bytes()).is_err(), "{text}");
        }
        assert!(Path::new("a").find(b"\xff\xfe\x00").is_err());
        for text in ["1", " true ", "\"x\"", "null\n"] {
            assert_eq!(Path::new("a").find(text.as_bytes()).unwrap().map(|raw| raw.bytes().to_vec()), None, "{text}");
        }
    }

    #[test]
    fn malformed_text_is_an_error_and_never_a_panic() {
        for text in ["", "{", "{\"a\"", "{\"a\":", "{\"b\":1", "{\"b\":1 \"a\":2}", "{\"b\":\"x\\", "{\"b\":[}", "{b:1}"] {
            assert!(Path::new("a").find(text.as_bytes()).is_err(), "{text}");
            let _ = Path::new("3").find(text.as_bytes());
        }
        for value in ["tru", "truex", "nul", "01", "-", "1.", "1.e5", "1e", "1e+", "1x", "+1", ".5", "NaN", "'a'", "-a"] {
            assert!(Path::new("").find(value.as_bytes()).is_err(), "{value}");
        }
        for cut in 0..LINE.len() {
            let _ = Path::new("user.id.2").find(&LINE[..cut]);
            let _ = Path::new("n").find(&LINE[cut..]);
        }
    }
}
