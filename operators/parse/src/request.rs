//! The request of a log line: `GET /a?b=1 HTTP/1.1`, or whatever else a client sent.

/// What a request says. Empty parts are not there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Request<'a> {
    pub(crate) method: &'a [u8],
    pub(crate) path: &'a [u8],
    /// What comes after the first question mark.
    pub(crate) query: &'a [u8],
    pub(crate) protocol: &'a [u8],
}

impl<'a> Request<'a> {
    /// Takes a request apart: a first word of letters is the method, a last one like `HTTP/1.1` the protocol, and what is between
    /// them, blanks included, path and query. A text with no such first word, or with nothing after it, has none of these.
    pub(crate) fn of(text: &'a [u8]) -> Request<'a> {
        let blank = |&byte: &u8| byte == b' ';
        let Some(end) = text.iter().position(blank) else { return Request::default() };
        let (method, rest) = (&text[..end], &text[end + 1..]);
        if method.is_empty() || !method.iter().all(|byte| byte.is_ascii_alphabetic() || matches!(byte, b'-' | b'_')) {
            return Request::default();
        }
        let last = rest.iter().rposition(blank).map_or(0, |at| at + 1);
        let (target, protocol) =
            if is_protocol(&rest[last..]) { (&rest[..last.saturating_sub(1)], &rest[last..]) } else { (rest, &rest[..0]) };
        let question = target.iter().position(|&byte| byte == b'?').unwrap_or(target.len());
        let query = target.get(question + 1..).unwrap_or_default();
        Request { method, path: &target[..question], query, protocol }
    }
}

/// `HTTP/1.1`, `HTTP/2`, `RTSP/1.0`: capitals, a slash, digits and points.
fn is_protocol(word: &[u8]) -> bool {
    let Some(slash) = word.iter().position(|&byte| byte == b'/') else { return false };
    let (name, version) = (&word[..slash], &word[slash + 1..]);
    !name.is_empty()
        && name.iter().all(u8::is_ascii_uppercase)
        && version.first().is_some_and(u8::is_ascii_digit)
        && version.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_taken_apart_as_far_as_they_go() {
        for (text, parts) in [
            ("GET / HTTP/1.1", ["GET", "/", "", "HTTP/1.1"]),
            ("GET /a?b=?c HTTP/2", ["GET", "/a", "b=?c", "HTTP/2"]),
            ("GET /a b HTTP/1.1", ["GET", "/a b", "", "HTTP/1.1"]),
            ("GET /a b?c d HTTP/1.1", ["GET", "/a b", "c d", "HTTP/1.1"]),
            ("GET /", ["GET", "/", "", ""]),
            ("GET /a b", ["GET", "/a b", "", ""]),
            ("GET HTTP/1.1", ["GET", "", "", "HTTP/1.1"]),
            ("GET  HTTP/1.1", ["GET", "", "", "HTTP/1.1"]),
            ("GET ?x HTTP/1.1", ["GET", "", "x", "HTTP/1.1"]),
            ("GET /http HTTP/1.1x", ["GET", "/http HTTP/1.1x", "", ""]),
            ("CONNECT a.example:443 HTTP/1.1", ["CONNECT", "a.example:443", "", "HTTP/1.1"]),
            ("OPTIONS * RTSP/1.0", ["OPTIONS", "*", "", "RTSP/1.0"]),
            ("M-SEARCH * HTTP/1.1", ["M-SEARCH", "*", "", "HTTP/1.1"]),
            ("GET", ["", "", "", ""]),
            ("", ["", "", "", ""]),
            (" / HTTP/1.1", ["", "", "", ""]),
            ("\\x16\\x03\\x01 a HTTP/1.1", ["", "", "", ""]),
            ("\x16\x03\x01", ["", "", "", ""]),
        ] {
            let request = Request::of(text.as_bytes());
            let found = [request.method, request.path, request.query, request.protocol];
            assert_eq!(found.map(|part| std::str::from_utf8(part).unwrap_or("?")), parts, "{text}");
        }
    }
}
