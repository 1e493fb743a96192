//! Which tokens count, what of them is there after a restart, and who is said to have asked.

use std::time::Duration;

use weir_model::Digest;
use weir_protocol::access::{Asker, NewToken, Person, Role};
use weir_protocol::api::{ClusterApi, JobState, RefusalKind};

use super::fakes::{World, by, job, one_with_a_job, until, wait_event, wait_state};

fn digest(last: u8) -> Digest {
    let mut digest = Digest([7; 32]);
    digest.0[31] = last;
    digest
}

fn new(name: &str, role: Role) -> NewToken {
    NewToken { name: name.to_owned(), role, valid_ms: None }
}

fn person(name: &str) -> Person {
    Person::Token(name.to_owned())
}

fn asker(name: &str, role: Role) -> Option<Asker> {
    Some(Asker { person: person(name), role })
}

fn happened(cluster: &impl ClusterApi) -> Vec<(String, Option<Person>)> {
    cluster.cluster_events(0).unwrap().into_iter().map(|event| (event.kind, event.by)).collect()
}

#[test]
fn a_token_counts_with_its_role_until_it_is_revoked_also_under_the_next_coordinator() {
    let world = World::new();
    let cluster = world.open();
    assert_eq!(cluster.who(digest(1)), None);
    let made = cluster.create_token(&by(), new("ci", Role::Submitter), digest(1)).unwrap();
    assert_eq!((made.name.as_str(), made.created_by, made.used_at_ms), ("ci", Some(by()), None));
    cluster.create_token(&by(), new("grafana", Role::Viewer), digest(2)).unwrap();
    assert_eq!(cluster.who(digest(1)), asker("ci", Role::Submitter));
    cluster.leave();
    drop(cluster);

    let cluster = world.open();
    assert_eq!(cluster.who(digest(2)), asker("grafana", Role::Viewer));
    let used = cluster.tokens()[0].used_at_ms;
    assert!(used.is_some(), "when it was used is kept when a coordinator ends");
    cluster.revoke_token(&by(), "ci").unwrap();
    assert_eq!(cluster.who(digest(1)), None);
    cluster.leave();
    drop(cluster);

    let cluster = world.open();
    assert_eq!(cluster.who(digest(1)), None);
    assert_eq!(cluster.tokens().iter().map(|token| token.name.clone()).collect::<Vec<_>>(), ["grafana"]);
    let kinds = ["token-created", "token-created", "token-revoked"].map(|kind| (kind.to_owned(), Some(by())));
    assert_eq!(happened(&cluster), kinds);
    cluster.leave();
}

#[test]
fn a_token_ends_when_its_time_does_and_its_use_is_written_once_a_minute() {
    let world = World::new();
    let cluster = world.open();
    cluster.create_token(&by(), NewToken { valid_ms: Some(90_000), ..new("ci", Role::Viewer) }, digest(1)).unwrap();
    world.pass(&cluster, 89_950);
    assert_eq!(cluster.who(digest(1)), asker("ci", Role::Viewer));
    let stored = |cluster: &super::super::Cluster| cluster.inner.database.tokens().unwrap()[0].1.used_at_ms;
    let at = cluster.tokens()[0].used_at_ms;
    world.pass(&cluster, 50);
    until("its use is written", || (stored(&cluster) == at).then_some(()));
    assert_eq!(cluster.who(digest(1)), None, "its end is outside");
    assert_eq!(cluster.tokens().len(), 1, "it is still listed");
    cluster.create_token(&by(), new("other", Role::Viewer), digest(2)).unwrap();
    cluster.who(digest(2)).unwrap();
    world.pass(&cluster, 30_000);
    cluster.inner.write_token_use(false);
    let stored: Vec<_> = cluster.inner.database.tokens().unwrap().into_iter().map(|(_, record)| record.used_at_ms).collect();
    assert_eq!(stored, [at, None], "within a minute of the last time nothing is written");
    cluster.leave();
}

#[test]
fn the_token_in_the_file_is_the_first_admins_and_another_one_takes_its_place() {
    let world = World::new();
    let with = |token| world.open_with(token);
    let cluster = with(Some(digest(1)));
    assert_eq!(cluster.who(digest(1)), asker("init", Role::Admin));
    cluster.leave();
    drop(cluster);
    let cluster = with(Some(digest(1)));
    assert_eq!(cluster.cluster_events(0).unwrap().len(), 1, "the same one is no news");
    cluster.leave();
    drop(cluster);
    let cluster = with(Some(digest(2)));
    assert_eq!((cluster.who(digest(1)), cluster.who(digest(2))), (None, asker("init", Role::Admin)));
    assert_eq!(cluster.create_token(&by(), new("init", Role::Viewer), digest(9)).unwrap_err().code, "E0060");
    cluster.leave();
    drop(cluster);
    let cluster = with(None);
    assert_eq!((cluster.who(digest(2)), cluster.tokens()), (None, Vec::new()), "the file is gone, and so is its token");
    cluster.leave();
    drop(cluster);

    let cluster = with(Some(digest(3)));
    cluster.create_token(&by(), new("anna", Role::Admin), digest(4)).unwrap();
    cluster.revoke_token(&person("anna"), "init").unwrap();
    cluster.leave();
    drop(cluster);
    let cluster = with(Some(digest(3)));
    assert_eq!(cluster.who(digest(3)), None, "it stays revoked although the file still has it");
    cluster.leave();
    drop(cluster);
    // One that somebody made counts as that, also from the file.
    let cluster = with(Some(digest(4)));
    assert_eq!(cluster.who(digest(4)), asker("anna", Role::Admin));
    cluster.leave();
}

#[test]
fn a_made_token_that_was_revoked_is_no_admins_when_it_is_in_the_token_file() {
    let world = World::new();
    let cluster = world.open();
    cluster.create_token(&by(), new("ci", Role::Viewer), digest(1)).unwrap();
    cluster.leave();
    drop(cluster);
    let cluster = world.open_with(Some(digest(1)));
    assert_eq!(cluster.who(digest(1)), asker("ci", Role::Viewer));
    cluster.revoke_token(&by(), "ci").unwrap();
    assert_eq!(cluster.tokens(), Vec::new());
    cluster.create_token(&by(), new("ci", Role::Submitter), digest(2)).expect("its name is free");
    cluster.leave();
    drop(cluster);
    let cluster = world.open_with(Some(digest(1)));
    assert_eq!((cluster.who(digest(1)), cluster.who(digest(2))), (None, asker("ci", Role::Submitter)));
    assert_eq!(cluster.tokens().len(), 1);
    cluster.leave();
}

#[test]
fn the_last_token_with_which_tokens_are_made_stays() {
    let world = World::new();
    let cluster = world.open();
    cluster.create_token(&by(), new("a", Role::Admin), digest(1)).unwrap();
    cluster.create_token(&by(), new("b", Role::Submitter), digest(2)).unwrap();
    cluster.create_token(&by(), NewToken { valid_ms: Some(50), ..new("c", Role::Admin) }, digest(3)).unwrap();
    world.pass(&cluster, 50);
    let refusal = cluster.revoke_token(&by(), "a").unwrap_err();
    assert_eq!((refusal.kind, refusal.code.as_str()), (RefusalKind::Conflict, "E0060"));
    assert!(refusal.hint.unwrap().contains("--role admin"), "what to do");
    cluster.create_token(&by(), new("d", Role::Admin), digest(4)).unwrap();
    for name in ["a", "b", "c"] {
        cluster.revoke_token(&by(), name).unwrap();
    }
    cluster.leave();
}

#[test]
fn what_cannot_be_created_or_revoked_is_refused_with_why() {
    let world = World::new();
    let cluster = world.open();
    cluster.create_token(&by(), new("ci", Role::Viewer), digest(1)).unwrap();
    for wrong in ["", "a b", "a/b", "ü", "a\u{1b}[2J", &"x".repeat(65), "ci"] {
        let refusal = cluster.create_token(&by(), new(wrong, Role::Viewer), digest(2)).unwrap_err();
        assert_eq!(refusal.code, "E0060", "{wrong:?}");
    }
    for valid_ms in [0, u64::MAX] {
        let wrong = NewToken { valid_ms: Some(valid_ms), ..new("x", Role::Viewer) };
        assert!(cluster.create_token(&by(), wrong, digest(2)).is_err());
    }
    let refusal = cluster.revoke_token(&by(), "cj").unwrap_err();
    assert_eq!((refusal.kind, refusal.hint.as_deref()), (RefusalKind::NotFound, Some("did you mean ci?")));
    assert_eq!(cluster.who(digest(2)), None);
    cluster.leave();
}

#[test]
fn every_wish_and_change_says_who_asked() {
    let world = World::new();
    let cluster = world.open();
    let _a = one_with_a_job(&cluster, 1);
    wait_event(&cluster, "j", 0, "running");
    cluster.rescale(&person("r"), "j", 2).unwrap();
    cluster.stop(&person("s"), "j").unwrap();
    wait_state(&cluster, "j", JobState::Stopped);
    cluster.submit(&person("again"), job("j", 1)).unwrap();
    cluster.cancel(&person("c"), "j").unwrap();
    wait_state(&cluster, "j", JobState::Cancelled);
    let named: Vec<(String, Person)> = {
        let events = cluster.events("j", 0, Duration::ZERO).unwrap();
        events.into_iter().filter_map(|event| Some((event.kind, event.by?))).collect()
    };
    let expected = [
        ("submitted", by()),
        ("rescale-requested", person("r")),
        ("stop-requested", person("s")),
        ("resubmitted", person("again")),
        ("cancel-requested", person("c")),
    ];
    assert_eq!(named, expected.map(|(kind, person)| (kind.to_owned(), person)), "what nobody asked for names nobody");

    cluster.push_component(&person("p"), b"\0asm1", Some(("parse", "1.0.0"))).unwrap();
    cluster.push_component(&person("q"), b"\0asm1", Some(("parse", "1.0.0"))).unwrap();
    cluster.push_component(&person("p"), b"\0asm2", None).unwrap();
    cluster.remove_component(&person("x"), "parse", "1.0.0").unwrap();
    cluster.remove(&person("y"), "j").unwrap();
    let expected = [("component-pushed", "p"), ("component-pushed", "p"), ("component-removed", "x"), ("job-removed", "y")];
    assert_eq!(
        happened(&cluster),
        expected.map(|(kind, name)| (kind.to_owned(), Some(person(name)))),
        "the same again is no news"
    );
    cluster.leave();
}
