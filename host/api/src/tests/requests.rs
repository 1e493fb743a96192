//! What every route does.

use std::io::{BufRead, BufReader, Read, Write};

use serde_json::{Value, json};
use weir_protocol::JobSpec;
use weir_protocol::api::{JobStatus, JobSubmission, Refusal};

use super::world::{World, digest_of, event, until};

fn parse(body: &str) -> Value {
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {body}"))
}

const JSON: &str = "content-type: application/json\r\n";

#[test]
fn the_cluster_is_shown() {
    let world = World::new().with_job("pageviews");
    for (path, expected) in [
        ("/api/v1/cluster", json!("c1")),
        ("/api/v1/workers", json!("w1")),
        ("/api/v1/jobs", json!("pageviews")),
        ("/api/v1/jobs/pageviews", json!("pageviews")),
    ] {
        let (status, body) = world.get(path);
        let value = parse(&body);
        let first = value.get(0).unwrap_or(&value);
        let name = first.get("name").or(first.get("cluster")).or(first.get("status").and_then(|status| status.get("name")));
        assert_eq!((status, name), (200, Some(&expected)), "{path}: {body}");
    }
}

#[test]
fn components_are_pushed_listed_and_removed() {
    let world = World::new();
    let (status, body) = world.ask("PUT", "/api/v1/components/count/1.0.0", "", b"bytes");
    assert_eq!((status, &parse(&body)["digest"]), (200, &json!(digest_of(b"bytes"))), "{body}");
    let (status, body) = world.ask("PUT", "/api/v1/components/count/1.0.0", "", b"other");
    let refusal: Refusal = serde_json::from_str(&body).unwrap();
    assert_eq!((status, refusal.code.as_str(), refusal.hint.as_deref()), (409, "E0021", Some("a hint")));
    assert_eq!(parse(&world.get("/api/v1/components").1)[0]["version"], "1.0.0");
    assert_eq!(world.ask("DELETE", "/api/v1/components/count/1.0.0", "", b"").0, 204);
    assert_eq!(world.ask("DELETE", "/api/v1/components/count/1.0.0", "", b"").0, 404);
}

#[test]
fn bytes_without_a_name_must_have_the_digest_they_are_pushed_under() {
    let world = World::new();
    let path = format!("/api/v1/blobs/{}", digest_of(b"bytes"));
    assert_eq!(world.get(&path).0, 404);
    assert_eq!(world.ask("PUT", &path, "", b"bytez").0, 400);
    assert!(world.cluster.told().blobs.is_empty());
    assert_eq!(world.ask("PUT", &path, "", b"bytes").0, 200);
    assert_eq!(world.get(&path).0, 200);
    assert_eq!(world.get("/api/v1/blobs/xyz").0, 400);
}

#[test]
fn jobs_live_and_are_forgotten() {
    let world = World::new();
    let spec = JobSpec {
        overrides: vec![("a.b".to_owned(), "c".to_owned())],
        job_dir: "/jobs".to_owned(),
        ..JobSpec::new("my job/1", "[job]")
    };
    let submission = serde_json::to_vec(&JobSubmission { spec, fresh: true, allow_dropped_state: false }).unwrap();
    let (status, body) = world.ask("POST", "/api/v1/jobs", JSON, &submission);
    let job: JobStatus = serde_json::from_str(&body).unwrap();
    assert_eq!((status, job.name.as_str()), (201, "my job/1"));
    let path = "/api/v1/jobs/my%20job%2F1";
    assert_eq!(world.get(path).0, 200);
    assert_eq!(parse(&world.ask("POST", &format!("{path}/rescale"), JSON, b"{\"parallelism\":5}").1)["slots"], 5);
    assert_eq!(world.ask("POST", &format!("{path}/rescale"), JSON, b"{\"paralelism\":5}").0, 400);
    assert_eq!(parse(&world.ask("POST", &format!("{path}/stop"), "", b"").1)["state"], "stopping");
    assert_eq!(parse(&world.ask("POST", &format!("{path}/cancel"), "", b"").1)["state"], "cancelled");
    assert_eq!(world.ask("DELETE", path, "", b"").0, 204);
    let (status, body) = world.get(path);
    let refusal: Refusal = serde_json::from_str(&body).unwrap();
    assert_eq!((status, refusal.code.as_str(), refusal.message.as_str()), (404, "E0042", "there is no job my job/1"));
}

#[test]
fn what_is_not_there_is_answered_in_json_too() {
    let world = World::new();
    for (method, path, expected) in
        [("GET", "/nothing", 404), ("PATCH", "/api/v1/jobs", 405), ("GET", "/api/v1/jobs/x/events?aftr=1", 400)]
    {
        let (status, body) = world.ask(method, path, "", b"");
        let refusal: Refusal = serde_json::from_str(&body).unwrap_or_else(|error| panic!("{path}: {error}: {body}"));
        assert_eq!((status, refusal.code.as_str()), (expected, "E0054"), "{path}");
    }
}

#[test]
fn events_are_given_after_a_number_and_waited_for() {
    let world = World::new().with_job("j");
    world.cluster.tell(|told| told.events.extend((1..=3).map(event)));
    let numbers = |body: &str| parse(body).as_array().unwrap().iter().map(|event| event["number"].as_u64().unwrap()).collect();
    let found: Vec<u64> = numbers(&world.get("/api/v1/jobs/j/events?after=1").1);
    assert_eq!(found, [2, 3]);
    let found: Vec<u64> = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| world.get("/api/v1/jobs/j/events?after=3&wait_ms=20000"));
        world.cluster.tell(|told| told.events.push(event(4)));
        numbers(&waiting.join().unwrap().1)
    });
    assert_eq!(found, [4]);
    assert_eq!(world.get("/api/v1/jobs/k/events").0, 404);
}

#[test]
fn a_stream_of_events_goes_on_from_the_last_one_that_was_seen() {
    let world = World::new().with_job("j");
    world.cluster.tell(|told| told.events.extend((1..=2).map(event)));
    let mut stream = world.connect();
    let head = format!(
        "GET /api/v1/jobs/j/events HTTP/1.1\r\nhost: {}\r\naccept: text/event-stream\r\nlast-event-id: 1\r\n\r\n",
        world.address
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut lines = BufReader::new(stream).lines();
    let mut next = |start: &str| lines.by_ref().map(Result::unwrap).find(|line| line.starts_with(start)).unwrap();
    assert!(next("HTTP").contains("200"));
    assert!(next("content-type").contains("text/event-stream"));
    assert_eq!(next("id"), "id: 2");
    assert_eq!(next("event"), "event: running");
    world.cluster.tell(|told| told.events.push(event(3)));
    assert_eq!(parse(next("data").strip_prefix("data: ").unwrap())["number"], 2);
    assert_eq!(next("id"), "id: 3");
}

#[test]
fn a_shut_down_ends_streams_and_refuses_connections() {
    let mut world = World::new().with_job("j");
    let mut stream = world.connect();
    let head = format!("GET /api/v1/jobs/j/events HTTP/1.1\r\nhost: {}\r\naccept: text/event-stream\r\n\r\n", world.address);
    stream.write_all(head.as_bytes()).unwrap();
    let mut first = [0];
    stream.read_exact(&mut first).unwrap();
    world.server.take().unwrap().shutdown();
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    assert!(std::net::TcpStream::connect(world.address).is_err());
}

#[test]
fn metrics_are_a_page_that_names_jobs_and_workers() {
    let world = World::new().with_job("page\"views");
    let (status, page) = world.get("/metrics");
    assert_eq!(status, 200);
    for line in [
        "weir_cluster_slots 4",
        "weir_worker_up{worker=\"w1\"} 1",
        "weir_job_state{job=\"page\\\"views\",state=\"running\"} 1",
        "weir_job_state{job=\"page\\\"views\",state=\"failed\"} 0",
        "weir_job_rows_read_total{job=\"page\\\"views\"} 100",
        "weir_job_checkpoint_duration_seconds{job=\"page\\\"views\"} 0.04",
        "weir_vertex_odd_rows_total{job=\"page\\\"views\",vertex=\"log\",kind=\"long_line\"} 3",
        "weir_vertex_odd_rows_total{job=\"page\\\"views\",vertex=\"log\",kind=\"no_time\"} 0",
        "weir_vertex_backpressured_ratio{job=\"page\\\"views\",vertex=\"log\"} 0.25",
    ] {
        assert!(page.lines().any(|found| found == line), "{line} is not in\n{page}");
    }
    let mut described = std::collections::BTreeSet::new();
    for line in page.lines() {
        match line.strip_prefix("# TYPE ") {
            Some(rest) => assert!(described.insert(rest.split(' ').next().unwrap().to_owned()), "twice: {line}"),
            None if line.starts_with('#') => {}
            None => assert!(described.contains(line.split(['{', ' ']).next().unwrap()), "without a type: {line}"),
        }
    }
}

#[test]
fn calls_into_the_cluster_are_bounded_and_all_get_their_turn() {
    let world = World::new();
    world.cluster.tell(|told| told.held = true);
    std::thread::scope(|scope| {
        let asking: Vec<_> = (0..40).map(|_| scope.spawn(|| world.get("/api/v1/cluster").0)).collect();
        until("calls reach the cluster", || world.cluster.told().at_work == crate::limits::CALLS_MAX);
        world.cluster.tell(|told| told.held = false);
        assert!(asking.into_iter().all(|asking| asking.join().unwrap() == 200));
    });
    assert_eq!(world.cluster.told().at_work_max, crate::limits::CALLS_MAX);
}
