//! The way to a coordinator's API: HTTP on this machine, HTTPS with a token elsewhere.
//!
//! Owns where the coordinator is, and how its refusals and the network's troubles become errors for people.

mod target;
mod trouble;

use std::io::Read;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use ureq::http::{Response, StatusCode};
use ureq::{Agent, Body, SendBody};
use weir_model::{Description, Digest};
use weir_protocol::access::{CreatedToken, NewToken, TokenStatus};
use weir_protocol::api::{
    ClusterStatus, ComponentStatus, JobDetail, JobEvent, JobStatus, JobSubmission, Refusal, RefusalKind, WorkerStatus,
};

pub(crate) use self::target::{ClusterArgs, DEFAULT, Target};
use crate::failure::{Exit, Failure};

/// Time to connect.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// What a coordinator answers of the bytes of a component.
#[derive(Deserialize)]
struct ComponentAnswer {
    description: Description,
}

/// Time for an answer, beyond what the request itself waits for. A coordinator may have to wait for its disk.
const ANSWER_MAX: Duration = Duration::from_secs(60);

/// Bytes of an answer: the largest is a list of all jobs.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// A coordinator, as far as HTTP goes.
#[derive(Debug)]
pub(crate) struct Client {
    target: Target,
    agent: Agent,
}

/// Whether a failure is that the coordinator cannot be reached: it may be there again later.
pub(crate) fn is_unreachable(failure: &Failure) -> bool {
    failure.exit == Exit::Unreachable
}

impl Client {
    pub(crate) fn new(target: Target) -> Result<Client, Failure> {
        let config = Agent::config_builder()
            // Its own refusals are read from the answer.
            .http_status_as_error(false)
            // A token goes to the coordinator and nowhere else.
            .proxy(None)
            .max_redirects(0)
            .user_agent(concat!("weir/", env!("CARGO_PKG_VERSION")))
            .timeout_connect(Some(CONNECT_MAX))
            .timeout_resolve(Some(CONNECT_MAX))
            .tls_config(target.tls()?);
        Ok(Client { agent: config.build().new_agent(), target })
    }

    /// Where it is, for messages.
    pub(crate) fn address(&self) -> &str {
        &self.target.url
    }

    pub(crate) fn status(&self) -> Result<ClusterStatus, Failure> {
        self.get("/cluster", ANSWER_MAX)
    }

    pub(crate) fn adopt(&self, origin: &str) -> Result<ClusterStatus, Failure> {
        self.post("/cluster/adopt", &json!({ "origin": origin }))
    }

    pub(crate) fn workers(&self) -> Result<Vec<WorkerStatus>, Failure> {
        self.get("/workers", ANSWER_MAX)
    }

    pub(crate) fn components(&self) -> Result<Vec<ComponentStatus>, Failure> {
        self.get("/components", ANSWER_MAX)
    }

    /// What the component of a digest says of itself; none if the cluster does not have it.
    pub(crate) fn description(&self, digest: Digest) -> Result<Option<Description>, Failure> {
        let response = self.bare("GET", &format!("/blobs/{digest}"), None, ANSWER_MAX)?;
        match response.status() {
            StatusCode::NOT_FOUND => Ok(None),
            _ => self.read::<ComponentAnswer>(response).map(|there| Some(there.description)),
        }
    }

    /// Pushes a component under a name and version, or under its digest alone. `sent` is told how many bytes are on their way.
    pub(crate) fn push(
        &self,
        bytes: &[u8],
        digest: Digest,
        name: Option<(&str, &str)>,
        sent: &mut dyn FnMut(u64),
    ) -> Result<(), Failure> {
        let path = match name {
            Some((name, version)) => format!("/components/{}/{}", encoded(name), encoded(version)),
            None => format!("/blobs/{digest}"),
        };
        let mut body = CountingBody { rest: bytes, sent, count: 0 };
        let request = self.agent.put(self.url(&path)).config().timeout_recv_response(Some(ANSWER_MAX)).build();
        let request = self.authorized(request).header("content-type", "application/wasm");
        let request = request.header("content-length", bytes.len().to_string());
        let response = request.send(SendBody::from_reader(&mut body)).map_err(|error| self.trouble(&error))?;
        self.read::<Value>(response).map(drop)
    }

    pub(crate) fn remove_component(&self, name: &str, version: &str) -> Result<(), Failure> {
        self.nothing("DELETE", &format!("/components/{}/{}", encoded(name), encoded(version)))
    }

    pub(crate) fn submit(&self, submission: &JobSubmission) -> Result<JobStatus, Failure> {
        self.post("/jobs", submission)
    }

    pub(crate) fn jobs(&self) -> Result<Vec<JobStatus>, Failure> {
        self.get("/jobs", ANSWER_MAX)
    }

    pub(crate) fn job(&self, name: &str) -> Result<JobDetail, Failure> {
        self.get(&format!("/jobs/{}", encoded(name)), ANSWER_MAX)
    }

    pub(crate) fn stop(&self, name: &str) -> Result<JobStatus, Failure> {
        self.post(&format!("/jobs/{}/stop", encoded(name)), &json!({}))
    }

    pub(crate) fn cancel(&self, name: &str) -> Result<JobStatus, Failure> {
        self.post(&format!("/jobs/{}/cancel", encoded(name)), &json!({}))
    }

    pub(crate) fn rescale(&self, name: &str, parallelism: u32) -> Result<JobStatus, Failure> {
        self.post(&format!("/jobs/{}/rescale", encoded(name)), &json!({ "parallelism": parallelism }))
    }

    pub(crate) fn remove(&self, name: &str) -> Result<(), Failure> {
        self.nothing("DELETE", &format!("/jobs/{}", encoded(name)))
    }

    /// Events with greater numbers, oldest first; waits for one where there are none.
    pub(crate) fn events(&self, name: &str, after: u64, wait: Duration) -> Result<Vec<JobEvent>, Failure> {
        let path = format!("/jobs/{}/events?after={after}&wait_ms={}", encoded(name), wait.as_millis());
        self.get(&path, ANSWER_MAX + wait)
    }

    /// What people did to the cluster with greater numbers, oldest first.
    pub(crate) fn cluster_events(&self, after: u64) -> Result<Vec<JobEvent>, Failure> {
        self.get(&format!("/events?after={after}"), ANSWER_MAX)
    }

    pub(crate) fn tokens(&self) -> Result<Vec<TokenStatus>, Failure> {
        self.get("/tokens", ANSWER_MAX)
    }

    pub(crate) fn create_token(&self, token: &NewToken) -> Result<CreatedToken, Failure> {
        self.post("/tokens", token)
    }

    pub(crate) fn revoke_token(&self, name: &str) -> Result<(), Failure> {
        self.nothing("DELETE", &format!("/tokens/{}", encoded(name)))
    }

    fn url(&self, path: &str) -> String {
        format!("{}/api/v1{path}", self.target.url)
    }

    fn authorized<B>(&self, request: ureq::RequestBuilder<B>) -> ureq::RequestBuilder<B> {
        match &self.target.token {
            Some(token) => request.header("authorization", format!("Bearer {}", token.secret())),
            None => request,
        }
    }

    fn get<T: DeserializeOwned>(&self, path: &str, wait: Duration) -> Result<T, Failure> {
        let response = self.bare("GET", path, None, wait)?;
        self.read(response)
    }

    fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, Failure> {
        let body = serde_json::to_vec(body).map_err(|error| self.not_a_coordinator(&error.to_string()))?;
        let response = self.bare("POST", path, Some(&body), ANSWER_MAX)?;
        self.read(response)
    }

    fn nothing(&self, method: &str, path: &str) -> Result<(), Failure> {
        let response = self.bare(method, path, None, ANSWER_MAX)?;
        if response.status() == StatusCode::NO_CONTENT { Ok(()) } else { self.read::<Value>(response).map(drop) }
    }

    fn bare(&self, method: &str, path: &str, body: Option<&[u8]>, wait: Duration) -> Result<Response<Body>, Failure> {
        let (url, wait) = (self.url(path), Some(wait));
        let result = match (method, body) {
            ("POST", Some(body)) => {
                let request = self.agent.post(url).config().timeout_recv_response(wait).build();
                self.authorized(request).header("content-type", "application/json").send(body)
            }
            ("DELETE", _) => self.authorized(self.agent.delete(url).config().timeout_recv_response(wait).build()).call(),
            _ => self.authorized(self.agent.get(url).config().timeout_recv_response(wait).build()).call(),
        };
        result.map_err(|error| self.trouble(&error))
    }

    /// What an answer says.
    fn read<T: DeserializeOwned>(&self, mut response: Response<Body>) -> Result<T, Failure> {
        let status = response.status();
        let bytes = response.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_vec();
        let bytes = bytes.map_err(|error| self.trouble(&error))?;
        if status.is_success() {
            return serde_json::from_slice(&bytes).map_err(|error| self.not_a_coordinator(&error.to_string()));
        }
        match serde_json::from_slice::<Refusal>(&bytes) {
            Ok(refusal) => Err(refused(status, refusal)),
            Err(_) => Err(self.not_a_coordinator(&format!("status {status} without a reason"))),
        }
    }
}

/// A refusal of the coordinator as an error of this command.
fn refused(status: StatusCode, refusal: Refusal) -> Failure {
    let exit = match (status, refusal.kind) {
        (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, _) | (_, RefusalKind::Conflict) => Exit::Refused,
        (_, RefusalKind::Invalid | RefusalKind::NotFound) => Exit::Usage,
        (_, RefusalKind::Unavailable | RefusalKind::Internal) => Exit::Failed,
    };
    let failure = Failure::new(refusal.code, exit, refusal.message);
    match refusal.hint {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

/// A body that says how much of it is on its way.
struct CountingBody<'a> {
    rest: &'a [u8],
    sent: &'a mut dyn FnMut(u64),
    count: u64,
}

impl Read for CountingBody<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let length = self.rest.read(buffer)?;
        self.count += length as u64;
        (self.sent)(self.count);
        Ok(length)
    }
}

/// A part of a path: all but letters, digits and what is never special is percent-encoded.
fn encoded(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    match text {
        // As parts of a path these would mean folders.
        "." | ".." => text.replace('.', "%2E"),
        _ => text.bytes().map(byte).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parts_of_a_path_whatever_is_in_them() {
        assert_eq!(encoded("page-views_1.0~"), "page-views_1.0~");
        assert_eq!(encoded("a/b?c#d é%"), "a%2Fb%3Fc%23d%20%C3%A9%25");
        assert_eq!(encoded(".."), "%2E%2E");
    }

    #[test]
    fn a_refusal_ends_the_command_with_its_own_number_and_code() {
        let refusal = |kind| Refusal { kind, code: "E0041".to_owned(), message: "m".to_owned(), hint: None };
        for (status, kind, exit) in [
            (401, RefusalKind::Invalid, Exit::Refused),
            (400, RefusalKind::Invalid, Exit::Usage),
            (404, RefusalKind::NotFound, Exit::Usage),
            (409, RefusalKind::Conflict, Exit::Refused),
            (503, RefusalKind::Unavailable, Exit::Failed),
        ] {
            let failure = refused(StatusCode::from_u16(status).unwrap(), refusal(kind));
            assert_eq!((failure.number.as_ref(), failure.exit), ("E0041", exit), "{status}");
        }
    }
}
