//! What each role may, who is said to have asked, and tokens themselves.

use std::io::{Read, Write};

use serde_json::{Value, json};
use weir_protocol::access::{Person, Role};
use weir_protocol::api::Refusal;

use super::world::{World, event};
use crate::{Token, routes};

const JSON: &str = "content-type: application/json\r\n";

fn shown(token: &Token) -> String {
    format!("authorization: Bearer {}\r\n", token.secret())
}

/// A path of a route, with something in each of its places.
fn filled(path: &str) -> String {
    let part = |part: &str| if part.starts_with('{') { "j".to_owned() } else { part.to_owned() };
    path.split('/').map(part).collect::<Vec<_>>().join("/")
}

#[test]
fn every_route_takes_its_role_and_no_less() {
    let world = World::with(Some(Token::generate().unwrap())).with_job("j");
    for role in Role::ALL {
        let token = world.token(&role.to_string(), role);
        for (method, path, needed) in routes::list() {
            let path = filled(path);
            let (status, body) = world.ask(&method.to_uppercase(), &path, &shown(&token), b"");
            assert!(status != 0 && status != 401, "{status} for {method} {path} as {role}: {body}");
            assert_eq!(status == 403, role < needed, "{status} for {method} {path} as {role}: {body}");
            if status == 403 {
                let refusal: Refusal = serde_json::from_str(&body).unwrap();
                assert_eq!(refusal.code, "E0059");
                assert!(refusal.message.contains(&format!("needs the role {needed}")), "{}", refusal.message);
                assert!(refusal.hint.unwrap().contains(&format!("--role {needed}")));
            }
            // What the route did does not count here.
            world.cluster.tell(|told| drop(told.jobs.insert("j".to_owned(), super::world::job_status("j", running()))));
        }
    }
}

fn running() -> weir_protocol::api::JobState {
    weir_protocol::api::JobState::Running
}

#[test]
fn a_viewer_changes_nothing_and_starts_nothing() {
    let world = World::with(Some(Token::generate().unwrap())).with_job("j");
    let viewer = world.token("v", Role::Viewer);
    for (method, path, _) in routes::list() {
        world.ask(&method.to_uppercase(), &filled(path), &format!("{}{JSON}", shown(&viewer)), b"{\"parallelism\":9}");
    }
    let told = world.cluster.told();
    assert_eq!(told.asked, Vec::<Person>::new());
    assert!(told.jobs.contains_key("j") && told.blobs.is_empty() && told.components.is_empty());
}

#[test]
fn the_cluster_is_told_who_asks() {
    let world = World::of_owner(None).with_job("j");
    let ops = world.token("ops", Role::Operator);
    assert_eq!(world.ask("POST", "/api/v1/jobs/j/stop", &shown(&ops), b"").0, 200);
    assert_eq!(world.ask("PUT", "/api/v1/components/a/1", "", b"bytes").0, 200);
    let asked = world.cluster.told().asked.clone();
    assert_eq!(asked[0], Person::Token("ops".to_owned()));
    assert!(matches!(&asked[1], Person::User(name) if !name.is_empty()), "{asked:?}");
}

#[test]
fn a_token_is_told_once_and_counts_until_it_is_revoked() {
    let admin = Token::generate().unwrap();
    let world = World::with(Some(admin.clone())).with_job("j");
    let as_admin = format!("{}{JSON}", shown(&admin));
    let (status, body) = world.ask("POST", "/api/v1/tokens", &as_admin, b"{\"name\":\"ci\",\"role\":\"submitter\"}");
    let made: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, &made["token"]["name"], &made["token"]["role"]), (201, &json!("ci"), &json!("submitter")), "{body}");
    let secret = made["secret"].as_str().unwrap();
    let ci = format!("authorization: Bearer {secret}\r\n");
    assert_eq!(world.ask("DELETE", "/api/v1/components/a/1", &ci, b"").0, 404, "it may");
    assert_eq!(world.ask("GET", "/api/v1/tokens", &ci, b"").0, 403);
    let (status, list) = world.ask("GET", "/api/v1/tokens", &as_admin, b"");
    assert!(status == 200 && list.contains("\"ci\"") && !list.contains(secret), "{list}");
    for wrong in
        [&b"{\"name\":\"x\",\"role\":\"root\"}"[..], b"{\"name\":\"x\"}", b"{\"name\":\"x\",\"role\":\"viewer\",\"x\":1}"]
    {
        assert_eq!(world.ask("POST", "/api/v1/tokens", &as_admin, wrong).0, 400);
    }
    // Also on a connection that stands.
    let mut standing = world.connect();
    let request = format!("GET /api/v1/jobs HTTP/1.1\r\nhost: {}\r\n{ci}\r\n", world.address);
    let mut ask = || {
        standing.write_all(request.as_bytes()).unwrap();
        let mut head = [0; 12];
        standing.read_exact(&mut head).unwrap();
        let mut rest = [0; 4_096];
        let _ = standing.read(&mut rest).unwrap();
        String::from_utf8_lossy(&head).into_owned()
    };
    assert_eq!(ask(), "HTTP/1.1 200");
    assert_eq!(world.ask("DELETE", "/api/v1/tokens/ci", &as_admin, b"").0, 204);
    assert_eq!(ask(), "HTTP/1.1 401");
}

#[test]
fn a_stream_of_events_ends_with_its_token() {
    let world = World::with(Some(Token::generate().unwrap())).with_job("j");
    world.cluster.tell(|told| told.events.push(event(1)));
    let viewer = world.token("v", Role::Viewer);
    let mut stream = world.connect();
    let head = "GET /api/v1/jobs/j/events HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n";
    stream.write_all(format!("{head}{}\r\n", shown(&viewer)).as_bytes()).unwrap();
    let mut seen = Vec::new();
    while !String::from_utf8_lossy(&seen).contains("event 1") {
        let mut part = [0; 1_024];
        let length = stream.read(&mut part).unwrap();
        assert!(length > 0, "it goes on while the token counts");
        seen.extend_from_slice(&part[..length]);
    }
    world.cluster.tell(|told| told.tokens.clear());
    stream.read_to_end(&mut seen).unwrap();
    let text = String::from_utf8_lossy(&seen);
    assert!(text.ends_with("0\r\n\r\n"), "the stream has come to its end: {text}");
}
