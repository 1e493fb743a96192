//! s132: a worker's certificate is no coordinator's, and one that is revoked is nobody's, also while a connection stands.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::rig::{Cluster, address, bind, control, node, soon};
use crate::pki::{self, Validity};
use crate::{Control, Expected, Identity, Role, TransportError};

/// Why a connection has ended.
async fn end(control: Control) -> String {
    let (sender, _receiver) = control.split();
    soon("the end of the connection", sender.closed()).await.to_string()
}

fn coordinator(cluster: &Cluster) -> Arc<Identity> {
    let folder = cluster.ca().with_file_name("coordinator");
    pki::add_node(&cluster.ca(), &folder, "coordinator", Role::Coordinator, &[], &Validity::days(30)).unwrap();
    Arc::new(Identity::load_as(&folder, Role::Coordinator).unwrap())
}

#[tokio::test]
async fn s132_who_takes_commands_takes_them_from_a_coordinator_only() {
    let cluster = Cluster::new();
    let leader = bind(coordinator(&cluster), "127.0.0.1:0".parse().unwrap());
    let (a, b) = (cluster.endpoint("a"), cluster.endpoint("b"));
    let place = address(&leader);
    let (joined, seen) = tokio::join!(a.connect_control(&place, Expected::Coordinator), soon("the other side", leader.accept()));
    assert!(seen.is_some());
    assert_eq!(*joined.unwrap().peer().node.as_str(), *"coordinator");
    // A worker at the coordinator's address.
    let error = soon("answer", a.connect_control(&address(&b), Expected::Coordinator)).await.unwrap_err();
    assert!(matches!(&error, TransportError::Untrusted { reason, .. } if reason.contains("that of a worker")), "{error}");
    // A coordinator in place of a worker, whatever its name.
    let name = node("coordinator");
    let error = soon("answer", a.connect_control(&address(&leader), Expected::Worker(&name))).await.unwrap_err();
    assert!(error.to_string().contains("that of a coordinator"), "{error}");
    // And one that connects: it has nothing to tell that is not asked for.
    let refused = match leader.connect_control(&address(&b), Expected::Worker(&node("b"))).await {
        Ok(control) => end(control).await,
        Err(error) => error.to_string(),
    };
    assert!(refused.contains("only workers connect"), "{refused}");
}

#[test]
fn s132_a_process_does_not_start_with_the_certificate_of_another_role() {
    let cluster = Cluster::new();
    let error = Identity::load_as(&cluster.folder("a"), Role::Coordinator).unwrap_err().to_string();
    assert!(error.contains("node.pem") && error.contains("add-node --coordinator"), "{error}");
    assert!(Identity::load_as(&cluster.folder("a"), Role::Worker).is_ok());
}

#[test]
fn s132_keys_that_others_can_read_are_refused() {
    let cluster = Cluster::new();
    let loose = |path: &std::path::Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    for file in ["node-key.pem", "reset.key"] {
        let key = cluster.folder("a").join(file);
        loose(&key, 0o640);
        let error = Identity::load(&cluster.folder("a")).unwrap_err().to_string();
        assert!(error.contains(file) && error.contains("its mode is 640") && error.contains("chmod 600"), "{error}");
        loose(&key, 0o600);
    }
    loose(&cluster.ca().join("ca-key.pem"), 0o644);
    let folder = cluster.ca().with_file_name("new");
    let error = pki::add_node(&cluster.ca(), &folder, "new", Role::Worker, &[], &Validity::days(1)).unwrap_err();
    assert!(error.to_string().contains("ca-key.pem"), "{error}");
}

#[tokio::test]
async fn s132_a_revoked_certificate_counts_no_more_also_where_a_connection_stands() {
    let cluster = Cluster::new();
    let (a, b, c) = (cluster.endpoint("a"), cluster.endpoint("b"), cluster.endpoint("c"));
    let (ours, theirs) = control(&a, &b).await;
    let (others, _kept) = control(&c, &b).await;
    let list = pki::revoke(&cluster.ca(), &cluster.folder("a")).unwrap();
    pki::revoke(&cluster.ca(), &cluster.folder("a")).unwrap();
    assert_eq!(fs::read_to_string(&list).unwrap().lines().count(), 1, "once is enough");
    fs::copy(&list, cluster.folder("b").join("revoked")).unwrap();

    let reason = end(ours).await;
    assert!(reason.contains("revoked"), "{reason}");
    end(theirs).await;
    let refused = match a.connect_control(&address(&b), Expected::Worker(&node("b"))).await {
        Ok(control) => end(control).await,
        Err(error) => error.to_string(),
    };
    assert!(refused.contains("revoked"), "{refused}");
    // The other side of the same: it is not talked to either.
    let error = soon("answer", b.connect_control(&address(&a), Expected::Worker(&node("a")))).await.unwrap_err();
    assert!(error.to_string().contains("revoked"), "{error}");
    let (again, _) = control(&c, &b).await;
    drop((others, again));

    // A list that cannot be read lets nobody in.
    fs::write(cluster.folder("b").join("revoked"), "nonsense\n").unwrap();
    let refused = match c.connect_control(&address(&b), Expected::Worker(&node("b"))).await {
        Ok(control) => end(control).await,
        Err(error) => error.to_string(),
    };
    assert!(refused.contains("no SHA-256"), "{refused}");
}

#[tokio::test]
async fn s139_nodes_of_an_old_and_a_new_authority_believe_each_other_until_the_old_one_is_taken_out() {
    let cluster = Cluster::new();
    let (old_a, old_b) = (cluster.identity("a"), cluster.identity("b"));
    let new_ca = cluster.ca().with_file_name("new-ca");
    let id = pki::renew_authority(&cluster.ca(), &new_ca, &Validity::days(30)).unwrap();
    assert_eq!(id, *old_a.cluster(), "it is the same cluster");
    assert!(pki::renew_authority(&cluster.ca(), &new_ca, &Validity::days(30)).is_err(), "nothing is overwritten");
    let both = new_ca.join("ca.pem");

    // Before anyone has the new one, its nodes are strangers.
    let new_b = cluster.ca().with_file_name("b-new");
    pki::add_node(&new_ca, &new_b, "b", Role::Worker, &[], &Validity::days(30)).unwrap();
    let renewed = Arc::new(Identity::load(&new_b).unwrap());
    let any = || "127.0.0.1:0".parse().unwrap();
    let (a, b) = (bind(old_a, any()), bind(renewed.clone(), any()));
    assert!(soon("answer", a.connect_control(&address(&b), Expected::Worker(&node("b")))).await.is_err());

    // All have both: old and new ones talk, whoever connects.
    fs::copy(&both, cluster.folder("a").join("ca.pem")).unwrap();
    let a = bind(cluster.identity("a"), any());
    drop((control(&a, &b).await, control(&b, &a).await));

    // Then all are new, and the old one is taken out: what it issued counts no more.
    let new_a = cluster.ca().with_file_name("a-new");
    pki::add_node(&new_ca, &new_a, "a", Role::Worker, &[], &Validity::days(30)).unwrap();
    let text = fs::read_to_string(&both).unwrap();
    let first = text.split_inclusive("-----END CERTIFICATE-----\n").next().unwrap();
    assert_ne!(first, text);
    fs::write(new_a.join("ca.pem"), first).unwrap();
    let a = bind(Arc::new(Identity::load(&new_a).unwrap()), any());
    drop(control(&a, &b).await);
    let old = bind(old_b, any());
    assert!(soon("answer", a.connect_control(&address(&old), Expected::Worker(&node("b")))).await.is_err());
}

#[tokio::test]
async fn s132_a_certificate_that_expires_ends_a_connection_that_stands() {
    let cluster = Cluster::new();
    let (folder, now) = (cluster.ca().with_file_name("short"), SystemTime::now());
    let validity = Validity { from: now - Duration::from_secs(60), until: now + Duration::from_secs(4) };
    pki::add_node(&cluster.ca(), &folder, "short", Role::Worker, &[], &validity).unwrap();
    let a = bind(Arc::new(Identity::load(&folder).unwrap()), "127.0.0.1:0".parse().unwrap());
    let b = cluster.endpoint("b");
    let (ours, theirs) = control(&a, &b).await;
    let reason = end(ours).await;
    assert!(reason.contains("expired"), "{reason}");
    end(theirs).await;
}
