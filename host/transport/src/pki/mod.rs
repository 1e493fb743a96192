//! The cluster's certificates: `ca.pem` and `ca-key.pem` where nodes are added, and per node a folder with `ca.pem`,
//! `node.pem`, `node-key.pem` and `reset.key`.
//!
//! A node's certificate carries one URI, `weir://<cluster>/<role>/<node>`: with that any authority can issue it. It must be good
//! for both sides of a connection (extended key usage for client and server authentication).
//!
//! Keys are written readable by their owner only, and refused where others can read them. Never overwrites a file. A file `revoked` beside
//! a node's certificate lists those that count no more.

pub(crate) mod certificate;
pub(crate) mod files;
pub(crate) mod revoked;

use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};

pub use self::revoked::revoke;
use crate::{ClusterId, NodeId, Role, TransportError};

/// When a certificate counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// From when on.
    pub from: SystemTime,
    /// Until when.
    pub until: SystemTime,
}

impl Validity {
    /// For some days from now. Starts an hour ago, for nodes whose clocks are behind.
    pub fn days(days: u32) -> Validity {
        const HOUR: Duration = Duration::from_secs(3_600);
        let now = SystemTime::now();
        Validity { from: now - HOUR, until: now + HOUR * 24 * days }
    }
}

/// Makes a cluster: a random id, and in `dir` its authority, `ca.pem` and `ca-key.pem`.
pub fn create_cluster(dir: &Path, validity: &Validity) -> Result<ClusterId, TransportError> {
    let cluster = ClusterId::new(&format!("{:032x}", u128::from_le_bytes(random()?)))?;
    authority(dir, &cluster, "", validity)?;
    Ok(cluster)
}

/// Makes another authority for a cluster that has one in `old_dir`. Its `ca.pem` holds both, the new one first, so that nodes which
/// have it believe certificates of either until the old one is taken out.
pub fn renew_authority(old_dir: &Path, dir: &Path, validity: &Validity) -> Result<ClusterId, TransportError> {
    let path = old_dir.join(files::CA);
    let cluster = certificate::cluster_of_authority(&path)?;
    authority(dir, &cluster, &files::read_text(&path)?, validity)?;
    Ok(cluster)
}

/// The files of an authority; `others` are certificates of other authorities that are believed as well.
fn authority(dir: &Path, cluster: &ClusterId, others: &str, validity: &Validity) -> Result<(), TransportError> {
    let mut params = params(&format!("weir://{cluster}"), "Weir cluster authority", validity)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let key = KeyPair::generate().map_err(failed("generate a key"))?;
    let certificate = params.self_signed(&key).map_err(failed("make a certificate authority"))?;
    files::create_dir(dir)?;
    files::create_secret(&dir.join(files::CA_KEY), key.serialize_pem().as_bytes())?;
    files::create(&dir.join(files::CA), format!("{}{others}", certificate.pem()).as_bytes())
}

/// Issues a certificate for a node that may be this, and puts all that the node needs into `out_dir`. `hosts` are names and addresses at
/// which it also serves HTTPS; between nodes only the name counts.
pub fn add_node(
    ca_dir: &Path,
    out_dir: &Path,
    name: &str,
    role: Role,
    hosts: &[String],
    validity: &Validity,
) -> Result<NodeId, TransportError> {
    let node = NodeId::new(name)?;
    let ca_path = ca_dir.join(files::CA);
    let ca = files::read_text(&ca_path)?;
    let cluster = certificate::cluster_of_authority(&ca_path)?;
    let key_path = ca_dir.join(files::CA_KEY);
    let wrong = |path: &Path, error: &rcgen::Error| TransportError::Identity { path: path.into(), reason: error.to_string() };
    let ca_key = KeyPair::from_pem(&files::read_secret_text(&key_path)?).map_err(|error| wrong(&key_path, &error))?;
    let issuer = Issuer::from_ca_cert_pem(&ca, ca_key).map_err(|error| wrong(&ca_path, &error))?;

    let mut params = params(&format!("weir://{cluster}/{role}/{node}"), node.as_str(), validity)?;
    for host in hosts {
        params.subject_alt_names.push(match host.parse::<IpAddr>() {
            Ok(address) => SanType::IpAddress(address),
            Err(_) => SanType::DnsName(host.as_str().try_into().map_err(failed("put the host into a certificate"))?),
        });
    }
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate().map_err(failed("generate a key"))?;
    let certificate = params.signed_by(&key, &issuer).map_err(failed("issue a certificate"))?;

    files::create_dir(out_dir)?;
    files::create_secret(&out_dir.join(files::NODE_KEY), key.serialize_pem().as_bytes())?;
    files::create(&out_dir.join(files::NODE), certificate.pem().as_bytes())?;
    files::create_secret(&out_dir.join(files::RESET_KEY), &random::<32>()?)?;
    if ca_dir != out_dir {
        files::create(&out_dir.join(files::CA), ca.as_bytes())?;
    }
    Ok(node)
}

fn params(uri: &str, common_name: &str, validity: &Validity) -> Result<CertificateParams, TransportError> {
    let mut params = CertificateParams::default();
    params.not_before = validity.from.into();
    params.not_after = validity.until.into();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params.subject_alt_names = vec![SanType::URI(uri.try_into().map_err(failed("put the name into a certificate"))?)];
    Ok(params)
}

fn failed(action: &'static str) -> impl Fn(rcgen::Error) -> TransportError {
    move |error| TransportError::Crypto { action, reason: error.to_string() }
}

/// Random bytes of the operating system.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], TransportError> {
    let mut bytes = [0; N];
    aws_lc_rs::rand::fill(&mut bytes)
        .map_err(|_| TransportError::Crypto { action: "get random bytes", reason: "the generator failed".into() })?;
    Ok(bytes)
}
