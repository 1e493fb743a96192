//! Requests to the API, as bytes on a connection, with a cluster behind it that has nothing.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use weir_api::ApiOptions;
use weir_model::{Description, Digest, Epoch};
use weir_protocol::access::{Asker, NewToken, Person, TokenStatus};
use weir_protocol::api::{
    ClusterApi, ClusterStatus, ComponentStatus, JobDetail, JobEvent, JobStatus, JobSubmission, Refusal, RefusalKind, WorkerStatus,
};

pub(super) const WORDS: &[&str] = &[
    "\r\n",
    "\r\n\r\n",
    "GET ",
    "PUT ",
    "POST ",
    "DELETE ",
    "/api/v1/jobs",
    "/api/v1/components/a/1.0.0",
    "/api/v1/tokens/",
    "authorization: Bearer ",
    "%2e%2e",
    "%00",
    "?after=",
    "content-length: ",
    "transfer-encoding: chunked\r\n",
    "host: localhost\r\n",
    "origin: http://x\r\n",
    "0\r\n\r\n",
    "expect: 100-continue\r\n",
    "connection: keep-alive\r\n",
    "content-type: application/json\r\n",
    "{\"spec\":",
    "é",
    "\u{0}",
];

/// A cluster that has nothing and takes nothing.
struct Nothing;

fn none<T>() -> Result<T, Refusal> {
    let (code, message) = ("E0041".to_owned(), "there is none".to_owned());
    Err(Refusal { kind: RefusalKind::NotFound, code, message, hint: None })
}

impl ClusterApi for Nothing {
    fn status(&self) -> ClusterStatus {
        ClusterStatus {
            certificate_until_ms: 1,
            cluster: "c".to_owned(),
            version: "1".to_owned(),
            started_at_ms: 1,
            workers: 0,
            slots: 0,
            slots_used: 0,
            epoch: Epoch { origin: [7; 16], count: 1 },
            succeeds: Vec::new(),
            led_elsewhere: Vec::new(),
        }
    }

    fn adopt(&self, _: &Person, _: &str) -> Result<ClusterStatus, Refusal> {
        none()
    }

    fn workers(&self) -> Vec<WorkerStatus> {
        Vec::new()
    }

    fn push_component(&self, _: &Person, _: &[u8], _: Option<(&str, &str)>) -> Result<Digest, Refusal> {
        none()
    }

    fn describe_component(&self, _: Digest) -> Result<Option<Description>, Refusal> {
        Ok(None)
    }

    fn components(&self) -> Result<Vec<ComponentStatus>, Refusal> {
        Ok(Vec::new())
    }

    fn remove_component(&self, _: &Person, _: &str, _: &str) -> Result<(), Refusal> {
        none()
    }

    fn submit(&self, _: &Person, submission: JobSubmission) -> Result<JobStatus, Refusal> {
        let _ = submission.spec.load();
        none()
    }

    fn jobs(&self) -> Vec<JobStatus> {
        Vec::new()
    }

    fn job(&self, _: &str) -> Result<JobDetail, Refusal> {
        none()
    }

    fn stop(&self, _: &Person, _: &str) -> Result<JobStatus, Refusal> {
        none()
    }

    fn cancel(&self, _: &Person, _: &str) -> Result<JobStatus, Refusal> {
        none()
    }

    fn rescale(&self, _: &Person, _: &str, _: u32) -> Result<JobStatus, Refusal> {
        none()
    }

    fn remove(&self, _: &Person, _: &str) -> Result<(), Refusal> {
        none()
    }

    fn events(&self, _: &str, _: u64, _: Duration) -> Result<Vec<JobEvent>, Refusal> {
        none()
    }

    fn cluster_events(&self, _: u64) -> Result<Vec<JobEvent>, Refusal> {
        Ok(Vec::new())
    }

    fn who(&self, _: Digest) -> Option<Asker> {
        None
    }

    fn tokens(&self) -> Vec<TokenStatus> {
        Vec::new()
    }

    fn create_token(&self, _: &Person, _: NewToken, _: Digest) -> Result<TokenStatus, Refusal> {
        none()
    }

    fn revoke_token(&self, _: &Person, _: &str) -> Result<(), Refusal> {
        none()
    }
}

/// A server that runs as long as the process.
static SERVER: LazyLock<SocketAddr> = LazyLock::new(|| {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    let options = ApiOptions { listen, tls: None, owner_passes: true, cluster: Arc::new(Nothing) };
    let address = weir_api::serve(options, runtime.handle()).map(|server| {
        let address = server.local_addr;
        std::mem::forget((server, runtime));
        address
    });
    address.expect("a server")
});

/// Sends the bytes and reads the answers: statuses, none of them a fault of the server.
pub(super) fn request(bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(*SERVER).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a timeout");
    // It may have refused before it has read everything.
    let _ = stream.write_all(bytes).and_then(|()| stream.shutdown(Shutdown::Write));
    let mut answer = Vec::new();
    if let Err(error) = stream.read_to_end(&mut answer) {
        assert!(error.kind() != std::io::ErrorKind::WouldBlock, "it has not answered in 30 s");
    }
    let answer = String::from_utf8_lossy(&answer);
    let statuses: Vec<&str> = answer.split("HTTP/1.1 ").skip(1).filter_map(|part| part.get(..3)).collect();
    assert!(!statuses.iter().any(|status| status.starts_with('5')), "{answer}");
    let reason = answer.split("\"message\":").nth(1).and_then(|rest| rest.get(..40.min(rest.len()))).unwrap_or_default();
    let names: Vec<&str> = statuses.iter().take(3).map(|status| word(status)).collect();
    format!("{} {reason}", names.join(" "))
}

/// Answers are told apart by letters.
fn word(status: &str) -> &'static str {
    match status {
        "200" => "ok",
        "204" => "done",
        "400" => "bad",
        "401" | "403" => "refused",
        "404" => "nothing",
        "405" => "method",
        "408" => "late",
        "413" | "431" => "large",
        "415" => "type",
        _ => "other",
    }
}

pub(super) fn requests() -> Vec<Vec<u8>> {
    let head = "host: 127.0.0.1\r\n";
    let gets = ["cluster", "workers", "jobs", "jobs/a", "jobs/a/events?after=3", "components", "openapi.json"];
    let mut all: Vec<String> = gets.iter().map(|path| format!("GET /api/v1/{path} HTTP/1.1\r\n{head}\r\n")).collect();
    all.push(format!("GET /metrics HTTP/1.1\r\n{head}\r\n"));
    let spec = r#"{"spec":{"file":"j.toml","text":"[job]\nname=\"j\"\n","overrides":[["a","1"]],"environment":{"A":"1"},"job_dir":"/j","dead_letters":"/d","components":{}},"fresh":true}"#;
    for (method, path, body) in [
        ("POST", "jobs", spec),
        ("POST", "jobs/a/stop", "{}"),
        ("POST", "jobs/a/rescale", "{\"parallelism\":4}"),
        ("DELETE", "jobs/a", ""),
        ("PUT", "components/count/1.0.0", "bytes"),
        ("PUT", "blobs/0000000000000000000000000000000000000000000000000000000000000000", "bytes"),
    ] {
        let length = body.len();
        all.push(format!(
            "{method} /api/v1/{path} HTTP/1.1\r\n{head}content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        ));
    }
    all.into_iter().map(String::into_bytes).collect()
}
