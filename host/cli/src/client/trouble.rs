//! What the network says when it does not work, and what to do about it.

use std::io;

use weir_model::ErrorNumber;

use super::{ANSWER_MAX, CONNECT_MAX, Client};
use crate::failure::{Exit, Failure};

const IS_IT_RUNNING: &str = "is it running? The address is the one that `weir coordinator --api` names (TCP), not the one of --listen, \
     which is for workers; it is configured with --coordinator, WEIR_COORDINATOR or `coordinator` in weir.toml";

const IT_IS_OTHER: &str =
    "it ended, or it serves plain HTTP: then write http:// before the address; or this is the address of --listen";

impl Client {
    /// A request that got no answer.
    pub(super) fn trouble(&self, error: &ureq::Error) -> Failure {
        let at = self.address();
        if let Some(tls) = tls_error(error) {
            let message = format!("cannot trust the coordinator at {at}: {}", explained(&tls));
            return Failure::new(ErrorNumber::CoordinatorUntrusted, Exit::Unreachable, message).hint(
                "the certificate authority must be the ca.pem of this cluster, and the node's certificate must name this host",
            );
        }
        let is_plain = at.starts_with("http:");
        let (reason, hint) = match error {
            ureq::Error::HostNotFound => ("there is no host of that name".to_owned(), IS_IT_RUNNING),
            ureq::Error::Timeout(ureq::Timeout::Connect | ureq::Timeout::Resolve) => {
                (format!("no answer within {} s", CONNECT_MAX.as_secs()), IS_IT_RUNNING)
            }
            ureq::Error::Timeout(_) => {
                (format!("no answer within {} s", ANSWER_MAX.as_secs()), "it is overloaded, or its disk hangs: see its log")
            }
            ureq::Error::Io(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                ("connection refused".to_owned(), IS_IT_RUNNING)
            }
            ureq::Error::Io(_) | ureq::Error::Protocol(_) if is_plain => {
                let hint =
                    "it ended, or it serves HTTPS: then write https:// before the address; or this is the address of --listen";
                (innermost(error), hint)
            }
            ureq::Error::Io(_) => (innermost(error), IT_IS_OTHER),
            _ => (innermost(error), IS_IT_RUNNING),
        };
        Failure::new(
            ErrorNumber::CoordinatorUnreachable,
            Exit::Unreachable,
            format!("cannot reach the coordinator at {at}: {reason}"),
        )
        .hint(hint)
    }

    /// An answer that a coordinator of this version does not give.
    pub(super) fn not_a_coordinator(&self, what: &str) -> Failure {
        let message = format!("what answers at {} is not a coordinator of this version of weir: {what}", self.address());
        Failure::new(ErrorNumber::CoordinatorUnreachable, Exit::Unreachable, message)
            .hint("`weir --version` must be the same on both sides; is the port right?")
    }
}

/// The error of TLS, wherever it is wrapped.
fn tls_error(error: &ureq::Error) -> Option<rustls::Error> {
    match error {
        ureq::Error::Rustls(error) => Some(error.clone()),
        ureq::Error::Io(error) => error.get_ref()?.downcast_ref::<rustls::Error>().cloned(),
        _ => None,
    }
}

fn explained(error: &rustls::Error) -> String {
    use rustls::CertificateError::{Expired, ExpiredContext, NotValidForName, NotValidForNameContext, UnknownIssuer};
    match error {
        rustls::Error::InvalidCertificate(UnknownIssuer) => "its certificate was issued by another authority".to_owned(),
        rustls::Error::InvalidCertificate(Expired | ExpiredContext { .. }) => "its certificate has expired".to_owned(),
        rustls::Error::InvalidCertificate(NotValidForName | NotValidForNameContext { .. }) => {
            "its certificate is not for this host; `weir cluster add-node` takes hosts with --host".to_owned()
        }
        rustls::Error::InvalidMessage(_) => {
            "it does not speak TLS there; on its own machine write http:// before the address".to_owned()
        }
        other => other.to_string(),
    }
}

/// The text of the first cause.
fn innermost(error: &ureq::Error) -> String {
    match error {
        ureq::Error::Io(error) => {
            let mut cause: &dyn std::error::Error = error;
            while let Some(deeper) = cause.source() {
                cause = deeper;
            }
            cause.to_string()
        }
        other => other.to_string(),
    }
}
