//! A cluster that only keeps what it is told, behind a server on a free port.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use weir_model::{CheckpointId, Description, Digest, Epoch, OddExample, OddKind, Oddities};
use weir_protocol::access::{Asker, NewToken, Person, Role, TokenStatus};
use weir_protocol::api::{
    CheckpointStatus, ClusterApi, ClusterStatus, ComponentStatus, EventLevel, JobDetail, JobEvent, JobState, JobStatus,
    JobSubmission, Refusal, RefusalKind, StrayWorker, VertexStatus, WorkerStatus,
};

use crate::{ApiOptions, Server, Token, serve};

/// What the cluster was told.
#[derive(Default)]
pub(super) struct Told {
    pub(super) components: BTreeMap<(String, String), Vec<u8>>,
    pub(super) blobs: Vec<Vec<u8>>,
    pub(super) jobs: BTreeMap<String, JobStatus>,
    pub(super) events: Vec<JobEvent>,
    pub(super) tokens: BTreeMap<Digest, TokenStatus>,
    /// Who asked for changes, in their order.
    pub(super) asked: Vec<Person>,
    /// Calls that wait until this is false.
    pub(super) held: bool,
    /// Calls that are being made.
    pub(super) at_work: usize,
    pub(super) at_work_max: usize,
}

#[derive(Default)]
pub(super) struct Fake {
    told: Mutex<Told>,
    changed: Condvar,
}

impl Fake {
    pub(super) fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap()
    }

    pub(super) fn tell(&self, change: impl FnOnce(&mut Told)) {
        change(&mut self.told());
        self.changed.notify_all();
    }
}

fn refusal(kind: RefusalKind, code: &str, message: &str) -> Refusal {
    Refusal { kind, code: code.to_owned(), message: message.to_owned(), hint: Some("a hint".to_owned()) }
}

fn no_job(name: &str) -> Refusal {
    refusal(RefusalKind::NotFound, "E0042", &format!("there is no job {name}"))
}

pub(super) fn job_status(name: &str, state: JobState) -> JobStatus {
    let checkpoint = CheckpointStatus {
        id: CheckpointId(7),
        duration_ms: 40,
        bytes: 1_000,
        in_flight_bytes: 10,
        unaligned: true,
        completed_at_ms: 1_700_000_000_000,
    };
    JobStatus {
        name: name.to_owned(),
        state,
        reason: None,
        attempt: 2,
        restarts: 1,
        slots: 3,
        submitted_at_ms: 1,
        since_ms: 2,
        rows_read: 100,
        rows_written: 90,
        rows_per_second: 12.5,
        oddities: odd(false),
        checkpoint: Some(checkpoint),
    }
}

fn odd(with_example: bool) -> Oddities {
    let mut odd = Oddities::new();
    odd.add_rows(OddKind::LongLine, 3, || OddExample::new(b"GET /", "longer than 16 MiB"));
    if !with_example {
        odd.drop_examples();
    }
    odd
}

pub(super) fn job_detail(name: &str) -> JobDetail {
    let vertex = VertexStatus {
        uid: "log".to_owned(),
        kind: "source".to_owned(),
        parallelism: 1,
        rows_in: 100,
        rows_out: 100,
        rows_rejected: 0,
        oddities: odd(true),
        rows_in_by_subtask: vec![100],
        workers: vec!["w1".to_owned()],
        backpressured: 0.25,
        busy: 0.5,
    };
    JobDetail {
        status: job_status(name, JobState::Running),
        file: "/jobs/job.toml".to_owned(),
        storage: "/checkpoints".to_owned(),
        dead_letters: vec!["bad/".to_owned()],
        vertices: vec![vertex],
        watermark: Some(1_000),
        checkpoints_completed: 7,
        checkpoints_failed: 0,
        metrics: BTreeMap::from([("log.lines".to_owned(), 100.0)]),
        restore: Some(weir_protocol::api::RestoreStatus { restored_bytes: 1, bytes: 2 }),
    }
}

pub(super) fn event(number: u64) -> JobEvent {
    JobEvent {
        number,
        at_ms: 5,
        level: EventLevel::Info,
        kind: "running".to_owned(),
        message: format!("event {number}"),
        by: None,
    }
}

pub(super) fn token_status(name: &str, role: Role) -> TokenStatus {
    let created_by = Some(Person::User("root".to_owned()));
    TokenStatus { name: name.to_owned(), role, created_at_ms: 1, created_by, expires_at_ms: Some(9), used_at_ms: Some(2) }
}

pub(super) const EPOCH: Epoch = Epoch { origin: [7; 16], count: 3 };

pub(super) fn led_elsewhere() -> StrayWorker {
    StrayWorker {
        worker: "w2".to_owned(),
        from: "127.0.0.1:2".to_owned(),
        led_by: Epoch { origin: [1; 16], count: 2 },
        jobs: vec!["theirs".to_owned()],
        seen_at_ms: 4,
    }
}

pub(super) fn worker() -> WorkerStatus {
    WorkerStatus {
        name: "w1".to_owned(),
        alive: true,
        address: "127.0.0.1:1".to_owned(),
        version: "0.1.0".to_owned(),
        slots: 4,
        slots_used: 3,
        jobs: vec!["pageviews".to_owned()],
        since_ms: 1,
        heard_at_ms: 2,
        clock_skew_ms: -3,
        certificate_until_ms: 1,
        stuck_executions: 0,
        reports_refused: 0,
    }
}

pub(super) fn component(name: &str, version: &str, bytes: &[u8]) -> ComponentStatus {
    let digest = digest_of(bytes);
    ComponentStatus {
        name: name.to_owned(),
        version: version.to_owned(),
        digest,
        size_bytes: bytes.len() as u64,
        pushed_at_ms: 3,
    }
}

pub(super) fn digest_of(bytes: &[u8]) -> Digest {
    Digest(aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, bytes).as_ref().try_into().unwrap())
}

impl ClusterApi for Fake {
    fn status(&self) -> ClusterStatus {
        let mut told = self.told();
        told.at_work += 1;
        told.at_work_max = told.at_work_max.max(told.at_work);
        let mut told = self.changed.wait_while(told, |told| told.held).unwrap();
        told.at_work -= 1;
        let (cluster, version) = ("c1".to_owned(), "0.1.0".to_owned());
        ClusterStatus {
            cluster,
            version,
            certificate_until_ms: 1,
            started_at_ms: 1,
            workers: 1,
            slots: 4,
            slots_used: 3,
            epoch: EPOCH,
            succeeds: Vec::new(),
            led_elsewhere: vec![led_elsewhere()],
        }
    }

    fn adopt(&self, by: &Person, origin: &str) -> Result<ClusterStatus, Refusal> {
        self.told().asked.push(by.clone());
        match origin {
            "01010101" => Ok(self.status()),
            _ => Err(refusal(RefusalKind::NotFound, "E0048", "there is no such coordinator")),
        }
    }

    fn workers(&self) -> Vec<WorkerStatus> {
        vec![worker()]
    }

    fn push_component(&self, by: &Person, bytes: &[u8], name: Option<(&str, &str)>) -> Result<Digest, Refusal> {
        self.told().asked.push(by.clone());
        let mut told = self.told();
        match name {
            None => told.blobs.push(bytes.to_vec()),
            Some((name, version)) => {
                let key = (name.to_owned(), version.to_owned());
                if told.components.get(&key).is_some_and(|there| there != bytes) {
                    return Err(refusal(RefusalKind::Conflict, "E0021", "it stands for other bytes"));
                }
                told.components.insert(key, bytes.to_vec());
            }
        }
        Ok(digest_of(bytes))
    }

    fn describe_component(&self, digest: Digest) -> Result<Option<Description>, Refusal> {
        let told = self.told();
        let is_there = told.blobs.iter().chain(told.components.values()).any(|bytes| digest_of(bytes) == digest);
        Ok(is_there.then(Description::plain))
    }

    fn components(&self) -> Result<Vec<ComponentStatus>, Refusal> {
        Ok(self.told().components.iter().map(|((name, version), bytes)| component(name, version, bytes)).collect())
    }

    fn remove_component(&self, by: &Person, name: &str, version: &str) -> Result<(), Refusal> {
        self.told().asked.push(by.clone());
        match self.told().components.remove(&(name.to_owned(), version.to_owned())) {
            Some(_) => Ok(()),
            None => Err(refusal(RefusalKind::NotFound, "E0020", "there is no such component")),
        }
    }

    fn submit(&self, by: &Person, submission: JobSubmission) -> Result<JobStatus, Refusal> {
        self.told().asked.push(by.clone());
        let status = job_status(&submission.spec.file, JobState::Waiting);
        self.told().jobs.insert(status.name.clone(), status.clone());
        Ok(status)
    }

    fn jobs(&self) -> Vec<JobStatus> {
        self.told().jobs.values().cloned().collect()
    }

    fn job(&self, name: &str) -> Result<JobDetail, Refusal> {
        self.told().jobs.get(name).map(|_| job_detail(name)).ok_or_else(|| no_job(name))
    }

    fn stop(&self, by: &Person, name: &str) -> Result<JobStatus, Refusal> {
        self.told().asked.push(by.clone());
        let mut told = self.told();
        let job = told.jobs.get_mut(name).ok_or_else(|| no_job(name))?;
        job.state = JobState::Stopping;
        Ok(job.clone())
    }

    fn cancel(&self, by: &Person, name: &str) -> Result<JobStatus, Refusal> {
        self.told().asked.push(by.clone());
        let mut told = self.told();
        let job = told.jobs.get_mut(name).ok_or_else(|| no_job(name))?;
        job.state = JobState::Cancelled;
        Ok(job.clone())
    }

    fn rescale(&self, by: &Person, name: &str, parallelism: u32) -> Result<JobStatus, Refusal> {
        self.told().asked.push(by.clone());
        let mut told = self.told();
        let job = told.jobs.get_mut(name).ok_or_else(|| no_job(name))?;
        job.slots = parallelism;
        Ok(job.clone())
    }

    fn remove(&self, by: &Person, name: &str) -> Result<(), Refusal> {
        self.told().asked.push(by.clone());
        self.told().jobs.remove(name).map(drop).ok_or_else(|| no_job(name))
    }

    fn events(&self, name: &str, after: u64, wait: Duration) -> Result<Vec<JobEvent>, Refusal> {
        let told = self.told();
        if !told.jobs.contains_key(name) {
            return Err(no_job(name));
        }
        let newer = |told: &Told| told.events.iter().filter(|event| event.number > after).cloned().collect::<Vec<_>>();
        let (told, _) = self.changed.wait_timeout_while(told, wait, |told| newer(told).is_empty()).unwrap();
        Ok(newer(&told))
    }

    fn cluster_events(&self, after: u64) -> Result<Vec<JobEvent>, Refusal> {
        Ok(self.told().events.iter().filter(|event| event.number > after).cloned().collect())
    }

    fn who(&self, token: Digest) -> Option<Asker> {
        let told = self.told();
        let token = told.tokens.get(&token)?;
        Some(Asker { person: Person::Token(token.name.clone()), role: token.role })
    }

    fn tokens(&self) -> Vec<TokenStatus> {
        self.told().tokens.values().cloned().collect()
    }

    fn create_token(&self, by: &Person, token: NewToken, digest: Digest) -> Result<TokenStatus, Refusal> {
        self.told().asked.push(by.clone());
        let status = token_status(&token.name, token.role);
        self.told().tokens.insert(digest, status.clone());
        Ok(status)
    }

    fn revoke_token(&self, by: &Person, name: &str) -> Result<(), Refusal> {
        self.told().asked.push(by.clone());
        self.told().tokens.retain(|_, token| token.name != name);
        Ok(())
    }
}

/// A server with its fake cluster.
pub(super) struct World {
    pub(super) cluster: Arc<Fake>,
    pub(super) server: Option<Server>,
    pub(super) address: SocketAddr,
    /// Lives as long as what it runs.
    pub(super) _runtime: Runtime,
}

impl World {
    pub(super) fn new() -> World {
        World::with(None)
    }

    /// With an admin's token, and where there is one, only for those who show it.
    pub(super) fn with(token: Option<Token>) -> World {
        World::serving(token.is_none(), token)
    }

    /// Where its own user needs no token.
    pub(super) fn of_owner(token: Option<Token>) -> World {
        World::serving(true, token)
    }

    /// A token with a role.
    pub(super) fn token(&self, name: &str, role: Role) -> Token {
        let token = Token::generate().unwrap();
        self.cluster.tell(|told| drop(told.tokens.insert(token.digest(), token_status(name, role))));
        token
    }

    fn serving(owner_passes: bool, token: Option<Token>) -> World {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let cluster = Arc::new(Fake::default());
        if let Some(token) = token {
            cluster.tell(|told| drop(told.tokens.insert(token.digest(), token_status("admin", Role::Admin))));
        }
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        let options = ApiOptions { listen, tls: None, owner_passes, cluster: cluster.clone() };
        let server = serve(options, runtime.handle()).unwrap();
        World { cluster, address: server.local_addr, server: Some(server), _runtime: runtime }
    }

    pub(super) fn with_job(self, name: &str) -> World {
        self.cluster.tell(|told| drop(told.jobs.insert(name.to_owned(), job_status(name, JobState::Running))));
        self
    }

    pub(super) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        // A test that waits for longer has found a server that hangs.
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream
    }

    /// Sends a request as it is, and gives status and body of the answer.
    pub(super) fn raw(&self, request: &[u8]) -> (u16, String) {
        let mut stream = self.connect();
        // The server may answer and close before it has read everything.
        let _ = stream.write_all(request);
        answer(&mut stream)
    }

    /// Sends something that may not be a whole request, and nothing after it.
    pub(super) fn nonsense(&self, bytes: &[u8]) -> (u16, String) {
        let mut stream = self.connect();
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(Shutdown::Write);
        answer(&mut stream)
    }

    /// A request for this server with these header lines (each ended by `\r\n`) and body.
    pub(super) fn ask(&self, method: &str, path: &str, lines: &str, body: &[u8]) -> (u16, String) {
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\ncontent-length: {length}\r\nconnection: close\r\n{lines}\r\n",
            self.address
        );
        self.raw(&[head.as_bytes(), body].concat())
    }

    pub(super) fn get(&self, path: &str) -> (u16, String) {
        self.ask("GET", path, "", b"")
    }
}

/// Reads an answer until the connection is closed.
pub(super) fn answer(stream: &mut TcpStream) -> (u16, String) {
    let mut bytes = Vec::new();
    let mut part = [0; 4_096];
    // A reset after the answer takes nothing away from it.
    while let Ok(length @ 1..) = stream.read(&mut part) {
        bytes.extend_from_slice(&part[..length]);
    }
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return (0, text) };
    (head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0), body.to_owned())
}

/// Waits until something holds.
pub(super) fn until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
