//! Clients that mean harm, or are broken: what they cost is bounded, and others are served.

use std::io::{ErrorKind, Write};
use std::net::Shutdown;
use std::time::{Duration, Instant};

use weir_model::limits::{API_BODY_BYTES_MAX, COMPONENT_BYTES_MAX};

use super::world::{World, answer};
use crate::Token;
use crate::limits::{FOLLOWERS_MAX, HEAD_BYTES_MAX, HEAD_MAX, UPLOADS_MAX};

const JSON: &str = "content-type: application/json\r\n";

#[test]
fn a_body_that_announces_too_much_is_refused_before_it_comes() {
    let world = World::new();
    for (method, path, announced) in [
        ("PUT", "/api/v1/components/a/1", COMPONENT_BYTES_MAX as u64 + 1),
        ("PUT", "/api/v1/components/a/1", u64::MAX),
        ("POST", "/api/v1/jobs", API_BODY_BYTES_MAX as u64 + 1),
    ] {
        let mut stream = world.connect();
        let head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {announced}\r\n{JSON}\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let status = answer(&mut stream).0;
        // hyper itself does not take the greatest length of all.
        assert!([413, 431].contains(&status), "{path} with {announced}: {status}");
    }
}

#[test]
fn a_body_without_a_length_is_cut_off_at_its_bound() {
    let world = World::new();
    let mut stream = world.connect();
    let head = "POST /api/v1/jobs HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\nconnection: close\r\n";
    stream.write_all(format!("{head}{JSON}\r\n").as_bytes()).unwrap();
    let chunk = [b"10000\r\n".as_slice(), &[b' '; 0x10000], b"\r\n"].concat();
    for _ in 0..64 {
        // Four times what is allowed; the server may have had enough before.
        if stream.write_all(&chunk).is_err() {
            break;
        }
    }
    let _ = stream.shutdown(Shutdown::Write);
    let status = answer(&mut stream).0;
    assert!(status == 413 || status == 0, "{status}");
    assert!(world.cluster.told().jobs.is_empty());
    assert_eq!(world.get("/api/v1/cluster").0, 200);
}

#[test]
fn a_component_as_large_as_allowed_is_taken() {
    let world = World::new();
    assert_eq!(world.ask("PUT", "/api/v1/components/a/1", "", &vec![7; COMPONENT_BYTES_MAX]).0, 200);
}

#[test]
fn a_head_that_does_not_end_is_cut_off_by_size_and_by_time() {
    let world = World::new();
    let mut head = b"GET /api/v1/cluster HTTP/1.1\r\nhost: localhost\r\nx: ".to_vec();
    head.resize(4 * HEAD_BYTES_MAX, b'x');
    assert_ne!(world.raw(&head).0, 200);
    let many: String = (0..1_000).map(|number| format!("x{number}: y\r\n")).collect();
    assert_ne!(world.ask("GET", "/api/v1/cluster", &many, b"").0, 200);

    // Ends when the server closes the connection: by itself the client would wait for ever.
    let mut slow = world.connect();
    slow.write_all(b"GET /api/v1/clus").unwrap();
    let mut silent = world.connect();
    assert_ne!(answer(&mut slow).0, 200);
    assert_eq!(answer(&mut silent), (0, String::new()));
}

#[test]
fn a_body_that_stops_coming_gives_its_place_back() {
    let world = World::new();
    let head = "PUT /api/v1/components/a/1 HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\nhalf";
    let mut slow: Vec<_> = (0..UPLOADS_MAX).map(|_| world.connect()).collect();
    for stream in &mut slow {
        stream.write_all(head.as_bytes()).unwrap();
    }
    assert_eq!(world.get("/api/v1/cluster").0, 200, "others are served meanwhile");
    assert_eq!(world.ask("PUT", "/api/v1/components/b/1", "", b"bytes").0, 200, "an upload gets its turn");
    assert!(slow.iter_mut().all(|stream| answer(stream).0 == 408));
    assert!(!world.cluster.told().components.contains_key(&("a".to_owned(), "1".to_owned())));
}

#[test]
fn without_the_token_no_body_is_waited_for() {
    let world = World::with(Some(Token::generate().unwrap()));
    let mut stream = world.connect();
    let head = format!("PUT /api/v1/components/a/1 HTTP/1.1\r\nhost: localhost\r\ncontent-length: {COMPONENT_BYTES_MAX}\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    assert_eq!(answer(&mut stream).0, 401);
}

#[test]
fn s134_a_thousand_silent_or_greedy_sockets_are_in_nobodys_way() {
    let token = Token::generate().unwrap();
    let world = World::with(Some(token.clone()));
    let known = format!("authorization: Bearer {}\r\n", token.secret());
    let request = "GET /api/v1/openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let mut sockets = Vec::new();
    let mut slowest = Duration::ZERO;
    for number in 0..1_000 {
        let mut stream = world.connect();
        match number % 8 {
            0..5 => {}
            5 => drop(stream.write_all(b"GET /api/v1/clus")),
            // Many requests at once, of which no answer is read.
            6 => drop(stream.write_all(request.repeat(50).as_bytes())),
            _ => drop(
                stream
                    .write_all(format!("GET / HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {number}\r\n\r\n").as_bytes()),
            ),
        }
        sockets.push(stream);
        if number % 100 == 99 {
            let asked = Instant::now();
            assert_eq!(world.ask("GET", "/api/v1/cluster", &known, b"").0, 200, "with {number} sockets open");
            slowest = slowest.max(asked.elapsed());
        }
    }
    // Without places of their own, the silent ones would be waited for again and again; how long a slow machine takes is no matter.
    assert!(slowest < 10 * HEAD_MAX, "{slowest:?}");
    let mut quiet = 0;
    for mut stream in sockets {
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let (status, _) = answer(&mut stream);
        assert!([0, 401, 408].contains(&status), "{status}");
        quiet += 1;
    }
    assert_eq!(quiet, 1_000, "the server has closed every one of them");
}

#[test]
fn s134_who_is_refused_is_shown_out() {
    let world = World::with(Some(Token::generate().unwrap()));
    let mut stream = world.connect();
    let request = "GET /api/v1/cluster HTTP/1.1\r\nhost: localhost\r\n\r\n";
    stream.write_all(request.repeat(2).as_bytes()).unwrap();
    let mut text = String::new();
    // The end of the connection is the end of the answer: only the first request got one.
    let _ = std::io::Read::read_to_string(&mut stream, &mut text);
    assert_eq!(text.matches("HTTP/1.1 401").count(), 1, "{text}");
    assert!(text.contains("connection: close"), "{text}");
}

#[test]
fn s134_who_takes_nothing_of_what_is_sent_is_not_waited_for() {
    let world = World::new();
    let request = format!("GET /api/v1/openapi.json HTTP/1.1\r\nhost: {}\r\n\r\n", world.address);
    let mut greedy = world.connect();
    // More answers than all buffers on the way hold; the server stops reading requests once it cannot write.
    greedy.set_write_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut ended = false;
    for _ in 0..10_000 {
        if let Err(error) = greedy.write_all(request.repeat(20).as_bytes()) {
            // Not that this side has given up.
            ended = !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
            break;
        }
    }
    assert!(ended, "the connection was ended by the server");
    assert_eq!(world.get("/api/v1/cluster").0, 200);
}

#[test]
fn followers_beyond_the_bound_are_told_to_come_again_and_calls_go_on() {
    let world = World::new().with_job("j");
    let head = "GET /api/v1/jobs/j/events HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n\r\n";
    let mut followers: Vec<_> = (0..FOLLOWERS_MAX).map(|_| world.connect()).collect();
    for stream in &mut followers {
        stream.write_all(head.as_bytes()).unwrap();
        // Its stream has begun.
        assert!(std::io::Read::read(stream, &mut [0; 64]).unwrap() > 0);
    }
    let (status, body) = world.ask("GET", "/api/v1/jobs/j/events", "accept: text/event-stream\r\n", b"");
    assert_eq!(status, 503, "{body}");
    assert_eq!(world.get("/api/v1/cluster").0, 200);
    assert_eq!(world.get("/api/v1/jobs/j/events").0, 200, "who does not wait needs no place");
    drop(followers);
    super::world::until("places of followers that went away are free", || world.get("/api/v1/jobs/j/events?wait_ms=1").0 == 200);
}

#[test]
fn nonsense_is_no_reason_to_stop() {
    let world = World::new();
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    let good = b"POST /api/v1/jobs HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{\"a\":[{}]".to_vec();
    for round in 0..300 {
        let mut bytes = good.clone();
        for _ in 0..=(random() % 8) {
            let place = (random() % bytes.len() as u64) as usize;
            bytes[place] = random() as u8;
        }
        if round % 3 == 0 {
            bytes.truncate((random() % bytes.len() as u64) as usize);
        }
        let (status, _) = world.nonsense(&bytes);
        assert!(status == 0 || (400..500).contains(&status), "{status} for {}", String::from_utf8_lossy(&bytes));
    }
    assert_eq!(world.get("/api/v1/cluster").0, 200);
}
