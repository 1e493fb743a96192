//! What a certificate says: who it is for, and when it counts.

use std::path::Path;
use std::time::SystemTime;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use time::OffsetDateTime;
use x509_parser::prelude::{FromDer, GeneralName, ParsedExtension, X509Certificate};

use super::files;
use crate::{ClusterId, NodeId, Role, TransportError};

const SCHEME: &str = "weir://";

/// What a certificate of a node says.
pub(crate) struct Subject {
    pub(crate) cluster: ClusterId,
    pub(crate) node: NodeId,
    pub(crate) role: Role,
    from: SystemTime,
    until: SystemTime,
}

impl Subject {
    /// Reads it from a certificate, whose signature someone else checks. Errors say what is missing.
    pub(crate) fn of(certificate: &CertificateDer<'_>) -> Result<Subject, String> {
        let certificate = parse(certificate)?;
        let uri = weir_uri(&certificate)
            .ok_or_else(|| format!("the certificate has no alternative name {SCHEME}<cluster>/<role>/<node> of type URI"))?;
        let wrong = || format!("the certificate names `{SCHEME}{uri}`, which is not {SCHEME}<cluster>/<role>/<node>");
        let (cluster, rest) = uri.split_once('/').ok_or_else(wrong)?;
        let Some((role, node)) = rest.split_once('/') else {
            return Err(format!(
                "{} and no role, as they once did: make the node's folder anew with `weir cluster add-node`; the authority stays",
                wrong()
            ));
        };
        let validity = certificate.validity();
        Ok(Subject {
            cluster: ClusterId::new(cluster).map_err(|_| wrong())?,
            node: NodeId::new(node).map_err(|_| wrong())?,
            role: Role::parse(role).ok_or_else(wrong)?,
            from: validity.not_before.to_datetime().into(),
            until: validity.not_after.to_datetime().into(),
        })
    }

    /// Until when it counts.
    pub(crate) fn until(&self) -> SystemTime {
        self.until
    }

    /// Whether the certificate counts now; if not, why.
    pub(crate) fn check_time(&self, now: SystemTime) -> Result<(), String> {
        if now < self.from {
            return Err(format!(
                "the certificate is not valid before {}, and now it is {}: is the clock of this machine right?",
                date(self.from),
                date(now)
            ));
        }
        if now > self.until {
            return Err(format!("the certificate expired at {}, and now it is {}: issue a new one", date(self.until), date(now)));
        }
        Ok(())
    }
}

/// The certificates in a PEM file; at least one.
pub(crate) fn read_all(path: &Path) -> Result<Vec<CertificateDer<'static>>, TransportError> {
    let wrong = |reason: String| TransportError::Identity { path: path.into(), reason };
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(&files::read(path)?)
        .collect::<Result<_, _>>()
        .map_err(|error| wrong(format!("it is not a PEM file: {error}")))?;
    if certificates.is_empty() {
        return Err(wrong("there is no certificate in it (`-----BEGIN CERTIFICATE-----`)".into()));
    }
    Ok(certificates)
}

/// The cluster an authority was made for.
pub(crate) fn cluster_of_authority(path: &Path) -> Result<ClusterId, TransportError> {
    let wrong = |reason: String| TransportError::Identity { path: path.into(), reason };
    let certificates = read_all(path)?;
    let certificate = parse(&certificates[0]).map_err(wrong)?;
    let uri = weir_uri(&certificate)
        .ok_or_else(|| wrong(format!("the authority has no alternative name {SCHEME}<cluster>; was it made for a cluster?")))?;
    Ok(ClusterId::new(uri)?)
}

fn parse<'a>(certificate: &'a CertificateDer<'_>) -> Result<X509Certificate<'a>, String> {
    let (_, certificate) =
        X509Certificate::from_der(certificate).map_err(|error| format!("the certificate is damaged: {error}"))?;
    Ok(certificate)
}

/// The part after the scheme of the URI that is ours.
fn weir_uri<'a>(certificate: &X509Certificate<'a>) -> Option<&'a str> {
    certificate.extensions().iter().find_map(|extension| match extension.parsed_extension() {
        ParsedExtension::SubjectAlternativeName(names) => names.general_names.iter().find_map(|name| match name {
            GeneralName::URI(uri) => uri.strip_prefix(SCHEME),
            _ => None,
        }),
        _ => None,
    })
}

fn date(time: SystemTime) -> String {
    let time = OffsetDateTime::from(time);
    let (hour, minute, second) = time.to_hms();
    format!("{}T{hour:02}:{minute:02}:{second:02}Z", time.date())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    #[test]
    fn s132_a_certificate_without_a_role_is_refused_with_the_way_to_renew_it() {
        let of = |uri: &str| {
            let mut params = rcgen::CertificateParams::default();
            params.subject_alt_names = vec![rcgen::SanType::URI(uri.try_into().unwrap())];
            let certificate = params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap();
            Subject::of(certificate.der()).map(|subject| (subject.role, subject.node.to_string()))
        };
        assert_eq!(of("weir://c/worker/w1"), Ok((Role::Worker, "w1".to_owned())));
        assert_eq!(of("weir://c/coordinator/w1"), Ok((Role::Coordinator, "w1".to_owned())));
        let old = of("weir://c/w1").unwrap_err();
        assert!(old.contains("no role") && old.contains("weir cluster add-node"), "{old}");
        for wrong in ["weir://c/client/w1", "weir://c/worker/w1/x", "weir://c/worker/", "weir://c//w1", "http://c/worker/w1"] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }
}
