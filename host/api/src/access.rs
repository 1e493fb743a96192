//! Who asks, and whether they may ask this: looked at before anything of a request but its head is read.
//!
//! A loopback address keeps other machines out, but not web pages in a browser on this one. A page cannot choose the `Host`
//! that its browser sends, which is that of the page even where its name was rebound to this address; and a browser adds
//! `Origin` to whatever a page sends elsewhere. Both are therefore checked.

use std::net::IpAddr;

use axum::http::uri::Authority;
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use weir_model::{Digest, ErrorNumber};
use weir_protocol::access::{Asker, Person, Role};

use crate::Token;
use crate::answer::Refused;

/// The rules of one server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// Only requests that name this machine.
    pub(crate) loopback_only: bool,
}

/// Who asks, of a request that passed the rules.
#[derive(Clone, Debug)]
pub(crate) struct Visitor {
    pub(crate) asker: Asker,
    /// The token that was shown, where it says who asks.
    pub(crate) token: Option<Digest>,
}

impl Rules {
    /// Says who asks. `owner`: the user that it comes from, who may everything without a token. A token that counts says who asks there
    /// too, so that one can do with less.
    ///
    /// # Errors
    /// Why the request is refused.
    pub(crate) fn check(
        self,
        uri: &Uri,
        headers: &HeaderMap,
        owner: Option<&Person>,
        who: impl Fn(Digest) -> Option<Asker>,
    ) -> Result<Visitor, Refused> {
        let host = host(uri, headers)?;
        if self.loopback_only && !is_loopback(&host) {
            let message = format!("cannot answer a request for `{host}`: this API is for this machine only");
            return Err(foreign(message, "name it 127.0.0.1 or localhost"));
        }
        check_origin(&host, headers)?;
        let shown = headers.get(header::AUTHORIZATION).and_then(|value| bearer(value.as_bytes()));
        let known = shown.and_then(Token::new).map(|token| token.digest()).and_then(|digest| Some((who(digest)?, digest)));
        match (known, owner, shown) {
            (Some((asker, digest)), ..) => Ok(Visitor { asker, token: Some(digest) }),
            (None, Some(owner), _) => Ok(Visitor { asker: Asker { person: owner.clone(), role: Role::Admin }, token: None }),
            // Whether there ever was such a token is nobody's business.
            (None, None, Some(_)) => Err(self.unauthorized("the token is none that counts in this cluster")),
            (None, None, None) => Err(self.unauthorized("there is no token: expected `Authorization: Bearer TOKEN`")),
        }
    }

    fn unauthorized(self, why: &str) -> Refused {
        let hint = match self.loopback_only {
            true => "ask as the user that runs the coordinator, or show a token: WEIR_TOKEN_FILE or --token-file names its file",
            false => {
                "WEIR_TOKEN_FILE or --token-file names the file of a token; `weir cluster init` and `weir token create` make them"
            }
        };
        Refused::new(StatusCode::UNAUTHORIZED, ErrorNumber::TokenWrong, format!("cannot answer a request: {why}"), Some(hint))
    }
}

impl Visitor {
    /// Whether a route that needs a role is theirs.
    ///
    /// # Errors
    /// That it is not, which role it would take, and how to get it.
    pub(crate) fn check(&self, needed: Role, method: &Method, path: &str) -> Result<(), Refused> {
        let Asker { person, role } = &self.asker;
        if *role >= needed {
            return Ok(());
        }
        let message = format!("cannot answer {method} {path}: it needs the role {needed}, and {person} has the role {role}");
        let hint = format!(
            "an admin of the cluster makes a token with that role: weir token create NAME --role {needed}; on its own machine, the user that \
             runs the coordinator is one"
        );
        Err(Refused::new(StatusCode::FORBIDDEN, ErrorNumber::RoleMissing, message, Some(&hint)))
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

fn bearer(value: &[u8]) -> Option<&str> {
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| std::str::from_utf8(token).ok())?
}

fn foreign(message: String, hint: &str) -> Refused {
    Refused::new(StatusCode::FORBIDDEN, ErrorNumber::RequestFromElsewhere, message, Some(hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(loopback_only: bool, uri: &str, lines: &[(&'static str, &str)]) -> Result<(), String> {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, value.parse().unwrap());
        }
        let owner = Person::User("me".to_owned());
        let checked = Rules { loopback_only }.check(&uri.parse().unwrap(), &headers, Some(&owner), |_| None);
        checked.map(drop).map_err(|refused| format!("{refused:?}"))
    }

    #[test]
    fn a_token_that_counts_says_who_asks_also_of_the_user_that_needs_none() {
        let token = Token::generate().unwrap();
        let owner = Person::User("me".to_owned());
        let viewer = Asker { person: Person::Token("v".to_owned()), role: Role::Viewer };
        let who = |digest| (digest == token.digest()).then(|| viewer.clone());
        let ask = |shown: &str, owner: Option<&Person>| {
            let headers = HeaderMap::from_iter([
                (header::HOST, "localhost".parse().unwrap()),
                (header::AUTHORIZATION, format!("Bearer {shown}").parse().unwrap()),
            ]);
            Rules { loopback_only: true }.check(&"/".parse().unwrap(), &headers, owner, who).ok().map(|found| found.asker)
        };
        assert_eq!(ask(token.secret(), None), Some(viewer.clone()));
        assert_eq!(ask(token.secret(), Some(&owner)), Some(viewer.clone()));
        let other = Token::generate().unwrap();
        assert_eq!(ask(other.secret(), None), None);
        assert_eq!(
            ask(other.secret(), Some(&owner)),
            Some(Asker { person: owner.clone(), role: Role::Admin }),
            "of another cluster"
        );
    }

    #[test]
    fn a_role_is_enough_from_its_own_on() {
        for has in Role::ALL {
            for needed in Role::ALL {
                let admitted = Visitor { asker: Asker { person: Person::Token("t".to_owned()), role: has }, token: None };
                match admitted.check(needed, &Method::GET, "/x") {
                    Ok(()) => assert!(has >= needed, "{has} for {needed}"),
                    Err(refused) => {
                        let told = format!("{refused:?}");
                        assert!(has < needed && told.contains(&format!("--role {needed}")) && told.contains("E0059"), "{told}");
                    }
                }
            }
        }
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
