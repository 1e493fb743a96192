//! Who may ask: looked at before anything of a request but its head is read.
//!
//! A loopback address keeps other machines out, but not web pages in a browser on this one. A page cannot choose the `Host`
//! that its browser sends, which is that of the page even where its name was rebound to this address; and a browser adds
//! `Origin` to whatever a page sends elsewhere. Both are therefore checked.

use std::net::IpAddr;

use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use weir_model::ErrorNumber;

use crate::Token;
use crate::answer::Refused;

/// The rules of one server.
#[derive(Debug)]
pub(crate) struct Rules {
    /// Only requests that name this machine.
    pub(crate) loopback_only: bool,
    pub(crate) token: Option<Token>,
    /// Processes of this one's user need no token.
    pub(crate) owner_passes: bool,
}

impl Rules {
    /// `is_owner`: it comes from a process of this one's user.
    ///
    /// # Errors
    /// Why the request is refused.
    pub(crate) fn check(&self, uri: &Uri, headers: &HeaderMap, is_owner: bool) -> Result<(), Refused> {
        let host = host(uri, headers)?;
        if self.loopback_only && !is_loopback(&host) {
            let message = format!("cannot answer a request for `{host}`: this API is for this machine only");
            return Err(foreign(message, "name it 127.0.0.1 or localhost"));
        }
        check_origin(&host, headers)?;
        if self.owner_passes && is_owner {
            return Ok(());
        }
        let Some(token) = &self.token else {
            let message = "cannot answer a request: this API is for the user that runs the coordinator".to_owned();
            let hint = "ask as that user, or start the coordinator with --token-file and show that token";
            return Err(foreign(message, hint));
        };
        let shown = headers.get(header::AUTHORIZATION).map(|value| value.as_bytes());
        match shown.and_then(bearer) {
            Some(shown) if token.is(shown) => Ok(()),
            Some(_) => Err(unauthorized("the token is not the one of this cluster")),
            None => Err(unauthorized("there is no token: expected `Authorization: Bearer TOKEN`")),
        }
    }
}

/// The host that is asked for. Where the request line names one, that is what counts (RFC 9112, 3.2.2); both must agree.
fn host(uri: &Uri, headers: &HeaderMap) -> Result<Authority, Refused> {
    let mut named = headers.get_all(header::HOST).iter();
    let (Some(host), None) = (named.next(), named.next()) else {
        return Err(Refused::invalid("cannot answer a request that does not name its host once"));
    };
    let host: Authority = host
        .to_str()
        .ok()
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| Refused::invalid("cannot answer a request whose host is not one"))?;
    match uri.authority() {
        Some(other) if *other != host => {
            Err(Refused::invalid(format!("cannot answer a request for both `{other}` and `{host}`")))
        }
        _ => Ok(host),
    }
}

fn is_loopback(host: &Authority) -> bool {
    if host.as_str().contains('@') {
        return false;
    }
    let name = host.host().trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// A page may only ask the server it came from.
fn check_origin(host: &Authority, headers: &HeaderMap) -> Result<(), Refused> {
    let hint = "web pages of other servers may not use this API";
    for origin in headers.get_all(header::ORIGIN) {
        let is_same =
            origin.to_str().ok().and_then(|text| text.parse::<Uri>().ok()).is_some_and(|uri| uri.authority() == Some(host));
        if !is_same {
            let origin = String::from_utf8_lossy(origin.as_bytes()).into_owned();
            return Err(foreign(format!("cannot answer a request from origin `{origin}`"), hint));
        }
    }
    match headers.get("sec-fetch-site").map(|value| value.as_bytes()) {
        None | Some(b"same-origin" | b"none") => Ok(()),
        Some(_) => Err(foreign("cannot answer a request from another site".to_owned(), hint)),
    }
}

fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then_some(token.trim_ascii())
}

fn foreign(message: String, hint: &str) -> Refused {
    Refused::new(StatusCode::FORBIDDEN, ErrorNumber::RequestFromElsewhere, message, Some(hint))
}

fn unauthorized(why: &str) -> Refused {
    let hint = "WEIR_TOKEN_FILE or --token-file names the token file that `weir cluster init` made";
    Refused::new(StatusCode::UNAUTHORIZED, ErrorNumber::TokenWrong, format!("cannot answer a request: {why}"), Some(hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(loopback_only: bool, uri: &str, lines: &[(&'static str, &str)]) -> Result<(), String> {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, value.parse().unwrap());
        }
        let rules = Rules { loopback_only, token: None, owner_passes: true };
        rules.check(&uri.parse().unwrap(), &headers, true).map_err(|refused| format!("{refused:?}"))
    }

    #[test]
    fn on_loopback_only_requests_for_this_machine_pass() {
        for host in ["127.0.0.1:7701", "localhost", "LocalHost:1", "[::1]:7701", "127.8.9.1"] {
            assert_eq!(verdict(true, "/", &[("host", host)]), Ok(()), "{host}");
        }
        for host in
            ["evil.example:7701", "127.0.0.1.evil.example", "10.0.0.1", "0.0.0.0", "localhost.evil", "a@localhost", "[::]"]
        {
            assert!(verdict(true, "/", &[("host", host)]).is_err(), "{host}");
        }
        assert_eq!(verdict(false, "/", &[("host", "weir.example")]), Ok(()));
    }

    #[test]
    fn the_host_must_be_named_once_and_alike() {
        assert!(verdict(true, "/", &[]).is_err());
        assert!(verdict(true, "/", &[("host", "localhost"), ("host", "localhost")]).is_err());
        assert!(verdict(true, "http://evil.example/", &[("host", "localhost")]).is_err());
        assert!(verdict(true, "http://localhost/", &[("host", "evil.example")]).is_err());
        assert_eq!(verdict(true, "http://localhost/", &[("host", "localhost")]), Ok(()));
    }

    #[test]
    fn pages_of_other_origins_are_refused() {
        let from = |name, value| verdict(false, "/", &[("host", "localhost:7701"), (name, value)]);
        assert_eq!(from("origin", "http://localhost:7701"), Ok(()));
        for origin in ["http://evil.example", "null", "http://localhost:7702", "http://localhost"] {
            assert!(from("origin", origin).is_err(), "{origin}");
        }
        assert_eq!(from("sec-fetch-site", "same-origin"), Ok(()));
        assert!(from("sec-fetch-site", "cross-site").is_err() && from("sec-fetch-site", "same-site").is_err());
    }
}
