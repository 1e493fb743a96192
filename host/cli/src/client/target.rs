//! Where the coordinator is, whom to trust there, and what to show.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use weir_api::Token;
use weir_model::ErrorNumber;

use crate::address::{API_PORT, Address};
use crate::config::{CA, COORDINATOR, Origin, TOKEN_FILE};
use crate::failure::{Exit, Failure};
use crate::global::Global;

/// Where a coordinator of this machine serves its API, unless it is told otherwise.
pub(crate) const DEFAULT: &str = "127.0.0.1:7701";

/// A token itself, for where no file can be had.
const TOKEN_VARIABLE: &str = "WEIR_TOKEN";

/// Flags of all commands that talk to a cluster.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct ClusterArgs {
    /// Address of the coordinator's API: HOST, HOST:PORT or a URL [env: WEIR_COORDINATOR] [default: 127.0.0.1:7701]
    #[arg(long, value_name = "ADDRESS", help_heading = "Cluster options")]
    pub(crate) coordinator: Option<String>,
    /// File with the cluster's token; not needed on the coordinator's machine [env: WEIR_TOKEN_FILE]
    #[arg(long, value_name = "FILE", help_heading = "Cluster options")]
    pub(crate) token_file: Option<String>,
    /// The cluster's certificate authority, ca.pem [env: WEIR_CA]
    #[arg(long, value_name = "FILE", help_heading = "Cluster options")]
    pub(crate) ca: Option<String>,
    /// Talk to a coordinator on another machine without TLS: who is on the way reads and changes everything
    #[arg(long, help_heading = "Cluster options")]
    pub(crate) insecure: bool,
}

/// A coordinator, and how to talk to it.
pub(crate) struct Target {
    /// `http://HOST:PORT` or `https://HOST:PORT`.
    pub(crate) url: String,
    pub(crate) token: Option<Token>,
    ca: Option<String>,
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url)
    }
}

impl ClusterArgs {
    /// The coordinator that is configured; none where nothing names one.
    pub(crate) fn configured(&self, global: &Global) -> Result<Option<Target>, Failure> {
        match global.setting(&COORDINATOR, self.coordinator.clone())? {
            Some((address, origin)) => self.target(&address, &origin, global).map(Some),
            None => Ok(None),
        }
    }

    /// The coordinator that is configured, or else that of this machine.
    pub(crate) fn target_or_local(&self, global: &Global) -> Result<Target, Failure> {
        match self.configured(global)? {
            Some(target) => Ok(target),
            None => self.target(DEFAULT, &Origin::Default, global),
        }
    }

    fn target(&self, address: &str, origin: &Origin, global: &Global) -> Result<Target, Failure> {
        let url = url(address).map_err(|reason| {
            let message = format!("`{address}` ({origin}) is not the address of a coordinator: {reason}");
            Failure::new(ErrorNumber::WrongConfiguration, Exit::Usage, message).hint(
                "write HOST or HOST:PORT, such as 10.0.0.5:7701 or [::1]:7701: the address of its --api, not that of its --listen",
            )
        })?;
        if url.starts_with("http:") && !is_here(&url) && !self.insecure {
            let message = format!(
                "`{address}` ({origin}) is another machine, and plain http shows all that goes there to everybody on the way"
            );
            return Err(Failure::new(ErrorNumber::TokenStaysHere, Exit::Refused, message)
                .hint("write https://, or no scheme; --insecure does it for one command where the way is safe otherwise"));
        }
        let ca = global.setting(&CA, self.ca.clone())?;
        let token = self.token(global)?;
        if let Some((_, of_token)) = &token
            && of_token.is_own()
        {
            let ca_origin =
                ca.as_ref().filter(|_| url.starts_with("https:")).map(|(_, origin)| ("certificate authority", origin));
            let others = std::iter::once(("coordinator", origin)).chain(ca_origin);
            if let Some((what, place)) = others.into_iter().find(|(_, origin)| !origin.is_own()) {
                let message = format!(
                    "the token ({of_token}) does not go to {url}: its {what} is named by {place}, which came with this folder"
                );
                return Err(Failure::new(ErrorNumber::TokenStaysHere, Exit::Refused, message).hint(format!(
                    "name all of them in one place: `token_file` in that file, or the {what} where the token is named"
                )));
            }
        }
        Ok(Target { url, token: token.map(|(token, _)| token), ca: ca.map(|(path, _)| path) })
    }

    fn token(&self, global: &Global) -> Result<Option<(Token, Origin)>, Failure> {
        // A flag names the file for this command alone, so it comes before a variable.
        let variable = std::env::var(TOKEN_VARIABLE).ok().filter(|text| !text.is_empty());
        if let (None, Some(text)) = (&self.token_file, variable) {
            return match Token::new(&text) {
                Some(token) => Ok(Some((token, Origin::Environment(TOKEN_VARIABLE)))),
                None => {
                    Err(Failure::new(ErrorNumber::TokenWrong, Exit::Usage, format!("what {TOKEN_VARIABLE} holds is not a token"))
                        .hint("it is the line in the token file that `weir cluster init` made"))
                }
            };
        }
        let Some((path, origin)) = global.setting(&TOKEN_FILE, self.token_file.clone())? else { return Ok(None) };
        Token::read(Path::new(&path)).map(|token| Some((token, origin.clone()))).map_err(|error| {
            let failure = Failure::new(ErrorNumber::TokenWrong, Exit::Usage, format!("{error} ({origin})"));
            error.hint().into_iter().fold(failure, |failure, hint| failure.hint(hint))
        })
    }
}

impl Target {
    /// TLS as it has to be: nobody is trusted but the cluster's authority.
    pub(super) fn tls(&self) -> Result<TlsConfig, Failure> {
        let builder =
            TlsConfig::builder().unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()));
        if self.url.starts_with("http:") {
            return Ok(builder.root_certs(RootCerts::from([])).build());
        }
        let Some(path) = &self.ca else {
            let message = format!("cannot trust the coordinator at {}: no certificate authority is named", self.url);
            return Err(Failure::new(ErrorNumber::CoordinatorUntrusted, Exit::Usage, message)
                .hint("name the cluster's ca.pem with --ca or WEIR_CA, or as `ca` in weir.toml"));
        };
        let wrong = |reason: String| {
            Failure::new(
                ErrorNumber::CoordinatorUntrusted,
                Exit::Usage,
                format!("cannot read the certificate authority {path}: {reason}"),
            )
        };
        let pem = std::fs::read(path).map_err(|error| wrong(error.to_string()))?;
        let found: Result<Vec<CertificateDer<'static>>, _> = CertificateDer::pem_slice_iter(&pem).collect();
        let found = found.map_err(|error| wrong(error.to_string()))?;
        if found.is_empty() {
            return Err(wrong("there is no certificate in it".to_owned()));
        }
        let certificates: Vec<Certificate<'static>> = found.iter().map(|der| Certificate::from_der(der).to_owned()).collect();
        Ok(builder.root_certs(RootCerts::from(certificates)).build())
    }
}

/// The URL of an address: HTTP on this machine, HTTPS elsewhere, unless it says itself. Without a port, an address means that of
/// coordinators, and a URL that of its scheme.
fn url(text: &str) -> Result<String, String> {
    let text = text.trim().trim_end_matches('/');
    match text.split_once("://") {
        Some((scheme @ ("http" | "https"), rest)) => {
            let standard = if scheme == "http" { 80 } else { 443 };
            Ok(format!("{scheme}://{}", Address::parse(rest)?.with_port(standard)))
        }
        Some((scheme, _)) => Err(format!("`{scheme}` is neither http nor https")),
        None => {
            let address = Address::parse(text)?;
            let scheme = if address.is_loopback() { "http" } else { "https" };
            Ok(format!("{scheme}://{}", address.with_port(API_PORT)))
        }
    }
}

/// Whether a URL that [`url`] made is of this machine.
fn is_here(url: &str) -> bool {
    let address = url.split_once("://").and_then(|(_, rest)| Address::parse(rest).ok());
    address.is_some_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    #[test]
    fn other_machines_are_asked_over_tls_unless_the_url_says_otherwise() {
        for (address, expected) in [
            ("127.0.0.1:7701", Some("http://127.0.0.1:7701")),
            ("localhost:1", Some("http://localhost:1")),
            ("[::1]:7701", Some("http://[::1]:7701")),
            ("10.0.0.5:7701", Some("https://10.0.0.5:7701")),
            ("weir.example:7701", Some("https://weir.example:7701")),
            ("https://127.0.0.1:7701/", Some("https://127.0.0.1:7701")),
            ("http://tunnel:80", Some("http://tunnel:80")),
            ("weir.example", Some("https://weir.example:7701")),
            ("::1", Some("http://[::1]:7701")),
            ("localhost", Some("http://localhost:7701")),
            ("2001:db8::5", Some("https://[2001:db8::5]:7701")),
            ("https://weir.example", Some("https://weir.example:443")),
            ("::1:7701", None),
            ("ftp://a:1", None),
            (":7701", None),
            ("a:port", None),
            ("user@a:1", None),
        ] {
            assert_eq!(url(address).ok().as_deref(), expected, "{address}");
        }
    }

    #[test]
    fn s130_plain_http_goes_no_further_than_this_machine_unless_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let global = Global::for_tests(folder.path());
        let to = |address: &str, insecure| {
            let args = ClusterArgs { coordinator: Some(address.to_owned()), insecure, ..ClusterArgs::default() };
            args.target_or_local(&global).map(|target| target.url)
        };
        let failure = to("http://tunnel:80", false).unwrap_err();
        assert!(failure.number == "E0071" && failure.hint.unwrap().contains("--insecure"));
        assert!(to("http://127.0.0.1.evil.example:80", false).is_err());
        assert!(to("http://tunnel:80", true).is_ok());
        for here in ["http://127.0.0.1:1", "http://[::1]:1", "localhost:1"] {
            assert!(to(here, false).is_ok(), "{here}");
        }
    }

    #[test]
    fn what_is_needed_for_another_machine_is_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let global = Global::for_tests(folder.path());
        let args = |ca: Option<&str>| ClusterArgs {
            coordinator: Some("weir.example:7701".to_owned()),
            ca: ca.map(str::to_owned),
            ..ClusterArgs::default()
        };
        let failure = args(None).target_or_local(&global).unwrap().tls().unwrap_err();
        assert!(failure.number == "E0055" && failure.hint.unwrap().contains("--ca"));
        let empty = folder.path().join("ca.pem");
        std::fs::write(&empty, "nothing").unwrap();
        let failure = args(empty.to_str()).target_or_local(&global).unwrap().tls().unwrap_err();
        assert!(failure.message.ends_with("there is no certificate in it"), "{failure}");
    }
}
