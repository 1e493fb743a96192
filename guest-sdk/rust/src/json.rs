//! Reads single fields out of JSON text without building the rest: what most operators do with most rows.
//!
//! Only what lies before and in the field is looked at; text after it may be malformed without being noticed. The parse
//! operator checks whole lines.

use std::borrow::Cow;
use std::fmt;

/// The way to a field: `"/user/id"` (JSON Pointer) or `"user.id"`. A step into an array is an index.
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
            None => text.split('.').map(str::to_owned).collect(),
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
        for step in &self.steps {
            let found = match scanner.peek() {
                Some(b'{') => scanner.enter_object(step)?,
                Some(b'[') => scanner.enter_array(step)?,
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
        f.write_str(&self.steps.join("."))
    }
}

impl<'de> serde::Deserialize<'de> for Path {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Path, D::Error> {
        Ok(Path::new(&Cow::<str>::deserialize(deserializer)?))
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

impl std::error::Error for Malformed {}

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

    /// The characters of a string, or the text of a number, true, false or null. `None` for objects and arrays.
    pub fn scalar(self) -> Option<Cow<'a, [u8]>> {
        match self.text.first()? {
            b'{' | b'[' => None,
            b'"' => {
                let inner = &self.text[1..self.text.len() - 1];
                if inner.contains(&b'\\') {
                    let text: String = serde_json::from_slice(self.text).ok()?;
                    return Some(Cow::Owned(text.into_bytes()));
                }
                Some(Cow::Borrowed(inner))
            }
            _ => Some(Cow::Borrowed(self.text)),
        }
    }

    /// The text of a number, also of one that is written as a string.
    pub fn number(self) -> Option<&'a str> {
        let text = match self.text {
            [b'"', inner @ .., b'"'] => inner,
            text => text,
        };
        let first = *text.first()?;
        (first == b'-' || first.is_ascii_digit()).then_some(())?;
        std::str::from_utf8(text).ok()
    }
}

struct Scanner<'a> {
    json: &'a [u8],
    at: usize,
}

impl Scanner<'_> {
    fn malformed(&self) -> Malformed {
        Malformed { at: self.at }
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
            if key.scalar().is_some_and(|key| *key == *name.as_bytes()) {
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
            Some(b'-' | b'0'..=b'9' | b't' | b'f' | b'n') => {
                while self.peek().is_some_and(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.')) {
                    self.at += 1;
                }
                Ok(())
            }
            _ => Err(self.malformed()),
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

/// Appends `text` as a JSON string with its quotes. Bytes that are not UTF-8 are replaced.
pub fn append_string(to: &mut Vec<u8>, text: &[u8]) {
    if text.iter().all(|&byte| (b' '..0x80).contains(&byte) && byte != b'"' && byte != b'\\') {
        to.push(b'"');
        to.extend_from_slice(text);
        to.push(b'"');
        return;
    }
    let text = String::from_utf8_lossy(text);
    serde_json::to_writer(to, &*text).expect("text has a JSON form and memory takes it");
}

/// Appends a whole number in decimal.
pub fn append_integer(to: &mut Vec<u8>, value: i64) {
    if value < 0 {
        to.push(b'-');
    }
    append_digits(to, value.unsigned_abs());
}

pub(crate) fn append_digits(to: &mut Vec<u8>, mut value: u64) {
    let mut digits = [0; 20];
    let mut first = digits.len();
    loop {
        first -= 1;
        digits[first] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    to.extend_from_slice(&digits[first..]);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const LINE: &[u8] =
        br#" {"a" : 1.50, "s":"x\"y", "user": {"na\u006de":"Ann", "id":[10,{"n":-2}, "z"]},"e":{},"t":true,"n":null}"#;

    fn find(path: &str) -> Option<String> {
        let raw = Path::new(path).find(LINE).unwrap()?;
        Some(String::from_utf8(raw.bytes().to_vec()).unwrap())
    }

    #[test]
    fn fields_are_found_by_either_notation() {
        assert_eq!(find("/a").as_deref(), Some("1.50"));
        assert_eq!(find("user.name").as_deref(), Some(r#""Ann""#));
        assert_eq!(find("/user/id/1/n").as_deref(), Some("-2"));
        assert_eq!(find("user.id.2").as_deref(), Some(r#""z""#));
        assert_eq!(find("e").as_deref(), Some("{}"));
        assert_eq!(find("n").as_deref(), Some("null"));
        assert_eq!(Path::new("/x~1y").steps(), ["x/y"]);
        assert!(find("").unwrap().starts_with("{\"a\""));
    }

    #[test]
    fn what_is_not_there_is_none() {
        for path in ["b", "a.b", "user.id.3", "user.id.x", "e.x", "/user/name/0"] {
            assert_eq!(find(path), None, "{path}");
        }
    }

    #[test]
    fn scalars_are_unescaped() {
        let scalar = |path: &str| Path::new(path).find(LINE).unwrap().unwrap().scalar().map(Cow::into_owned);
        assert_eq!(scalar("s").unwrap(), b"x\"y");
        assert_eq!(scalar("a").unwrap(), b"1.50");
        assert_eq!(scalar("user"), None);
    }

    #[test]
    fn malformed_text_is_an_error_and_never_a_panic() {
        for text in ["", "{", "{\"a\"", "{\"a\":", "{\"b\":1", "{\"b\":1 \"a\":2}", "[1,", "{\"b\":\"x\\", "{\"b\":[}", "{b:1}"] {
            assert!(Path::new("a").find(text.as_bytes()).is_err() || text.starts_with('['), "{text}");
            let _ = Path::new("3").find(text.as_bytes());
        }
        for cut in 0..LINE.len() {
            let _ = Path::new("user.id.2").find(&LINE[..cut]);
            let _ = Path::new("n").find(&LINE[cut..]);
        }
    }

    #[test]
    fn strings_and_numbers_are_written_as_serde_json_does() {
        for text in ["plain", "quo\"te", "back\\", "new\nline", "grün"] {
            let mut bytes = Vec::new();
            append_string(&mut bytes, text.as_bytes());
            assert_eq!(bytes, serde_json::to_vec(text).unwrap());
        }
        for value in [0, 7, 10, -1, i64::MAX, i64::MIN] {
            let mut bytes = Vec::new();
            append_integer(&mut bytes, value);
            assert_eq!(bytes, value.to_string().as_bytes());
        }
    }
}
