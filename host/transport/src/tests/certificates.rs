//! Folders of nodes: what is made, and what is refused with which words.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, SystemTime};

use tempfile::TempDir;

use super::rig::{Cluster, copy, node};
use crate::Identity;
use crate::Role;
use crate::pki::{self, Validity};

#[test]
fn a_new_node_can_be_loaded_and_its_keys_are_its_owners_alone() {
    let cluster = Cluster::new();
    let identity = cluster.identity("worker-1");
    assert_eq!(*identity.node(), node("worker-1"));
    assert_eq!(identity.cluster(), cluster.identity("worker-2").cluster());
    assert_ne!(identity.cluster(), Cluster::new().identity("worker-1").cluster());
    assert_ne!(identity.incarnation(), cluster.identity("worker-1").incarnation(), "each run is another");
    for secret in [
        cluster.ca().join("ca-key.pem"),
        cluster.folder("worker-1").join("node-key.pem"),
        cluster.folder("worker-1").join("reset.key"),
    ] {
        assert_eq!(fs::metadata(&secret).unwrap().permissions().mode() & 0o777, 0o600, "{}", secret.display());
    }
}

#[test]
fn nothing_is_overwritten_and_names_are_checked() {
    let cluster = Cluster::new();
    let error = pki::create_cluster(&cluster.ca(), &Validity::days(1)).unwrap_err();
    assert!(error.to_string().contains("ca-key.pem"), "{error}");
    let folder = cluster.folder("worker-1");
    assert!(pki::add_node(&cluster.ca(), &folder, "worker-1", Role::Worker, &[], &Validity::days(1)).is_err());
    let error = pki::add_node(&cluster.ca(), &folder, "a/b", Role::Worker, &[], &Validity::days(1)).unwrap_err();
    assert!(error.to_string().contains("`a/b` is no name"), "{error}");
}

#[test]
fn a_lost_reset_key_is_made_again_and_then_stays() {
    let cluster = Cluster::new();
    let folder = cluster.folder("worker-1");
    fs::remove_file(folder.join("reset.key")).unwrap();
    let first = Identity::load(&folder).unwrap();
    assert_eq!(first.reset_key, Identity::load(&folder).unwrap().reset_key);
}

#[test]
fn every_file_that_does_not_fit_is_named_with_the_reason() {
    let cluster = Cluster::new();
    let other = Cluster::new();
    let refused = |file: &str, words: &[&str], change: &dyn Fn(&std::path::Path)| {
        let folder = cluster.folder("worker-1");
        let copied = TempDir::new().unwrap();
        for entry in fs::read_dir(&folder).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), copied.path().join(entry.file_name())).unwrap();
        }
        change(copied.path());
        let error = Identity::load(copied.path()).unwrap_err().to_string();
        assert!(error.contains(file), "{error}");
        words.iter().for_each(|word| assert!(error.contains(word), "{word}: {error}"));
    };
    refused("ca.pem", &["cannot read", "No such file"], &|dir| fs::remove_file(dir.join("ca.pem")).unwrap());
    refused("node.pem", &["no certificate"], &|dir| fs::write(dir.join("node.pem"), "hello").unwrap());
    refused("node-key.pem", &["no private key"], &|dir| fs::write(dir.join("node-key.pem"), "hello").unwrap());
    refused("node-key.pem", &["does not belong to"], &|dir| {
        copy(&cluster.folder("worker-2").join("node-key.pem"), &dir.join("node-key.pem"));
    });
    refused("node.pem", &["not issued by"], &|dir| copy(&other.folder("worker-1").join("ca.pem"), &dir.join("ca.pem")));
    refused("node.pem", &["weir://<cluster>/<role>/<node>"], &|dir| copy(&dir.join("ca.pem"), &dir.join("node.pem")));
    refused("reset.key", &["3 bytes", "delete it"], &|dir| fs::write(dir.join("reset.key"), "abc").unwrap());
}

#[test]
fn certificates_of_other_times_are_refused_with_the_clock_in_mind() {
    let cluster = Cluster::new();
    let day = Duration::from_secs(86_400);
    let now = SystemTime::now();
    let load = |name: &str, validity: Validity| {
        let folder = TempDir::new().unwrap();
        pki::add_node(&cluster.ca(), folder.path(), name, Role::Worker, &[], &validity).unwrap();
        Identity::load(folder.path()).unwrap_err().to_string()
    };
    let error = load("old", Validity { from: now - 3 * day, until: now - day });
    assert!(error.contains("node.pem") && error.contains("expired at"), "{error}");
    let error = load("new", Validity { from: now + day, until: now + 3 * day });
    assert!(error.contains("not valid before") && error.contains("clock"), "{error}");
}
