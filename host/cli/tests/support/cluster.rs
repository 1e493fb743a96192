//! A coordinator's API in this process, with a cluster that only keeps what it is told.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use weir_api::{ApiOptions, Server, Token, serve};
use weir_model::{CheckpointId, Description, Digest, Epoch};
use weir_protocol::access::{Asker, NewToken, Person, Role, TokenStatus};
use weir_protocol::api::{
    CheckpointStatus, ClusterApi, ClusterStatus, ComponentStatus, EventLevel, JobDetail, JobEvent, JobState, JobStatus,
    JobSubmission, Refusal, RefusalKind, StrayWorker, WorkerStatus,
};
use weir_storage::digest_of;

#[derive(Default)]
pub(crate) struct Told {
    pub(crate) components: BTreeMap<(String, String), Vec<u8>>,
    pub(crate) blobs: BTreeMap<Digest, Vec<u8>>,
    pub(crate) submissions: Vec<JobSubmission>,
    pub(crate) jobs: BTreeMap<String, (JobStatus, Vec<JobEvent>)>,
    /// How a job ends as soon as it is asked after.
    pub(crate) ends: Option<(JobState, String)>,
    pub(crate) pushes: usize,
    pub(crate) tokens: BTreeMap<Digest, TokenStatus>,
}

#[derive(Default)]
pub(crate) struct Fake(Mutex<Told>);

impl Fake {
    pub(crate) fn told(&self) -> MutexGuard<'_, Told> {
        self.0.lock().expect("no test panics with it")
    }
}

fn refusal(kind: RefusalKind, code: &str, message: String) -> Refusal {
    Refusal { kind, code: code.to_owned(), message, hint: Some("a hint of the coordinator".to_owned()) }
}

fn missing(name: &str) -> Refusal {
    refusal(RefusalKind::NotFound, "E0042", format!("there is no job {name}"))
}

fn status(name: &str, state: JobState) -> JobStatus {
    let checkpoint = CheckpointStatus {
        id: CheckpointId(7),
        duration_ms: 40,
        bytes: 2_048,
        in_flight_bytes: 0,
        unaligned: false,
        completed_at_ms: 1,
    };
    JobStatus {
        name: name.to_owned(),
        state,
        reason: None,
        attempt: 1,
        restarts: 0,
        slots: 2,
        submitted_at_ms: 1,
        since_ms: 1,
        rows_read: 12_345,
        rows_written: 99,
        rows_per_second: 10.0,
        oddities: Default::default(),
        checkpoint: Some(checkpoint),
    }
}

impl Told {
    pub(crate) fn add_job(&mut self, name: &str, state: JobState) {
        self.jobs.insert(name.to_owned(), (status(name, state), Vec::new()));
        self.event(name, "submitted", "the job was submitted");
    }

    pub(crate) fn event(&mut self, name: &str, kind: &str, message: &str) {
        let (_, events) = self.jobs.get_mut(name).expect("the job");
        let number = events.len() as u64 + 1;
        let (kind, message) = (kind.to_owned(), message.to_owned());
        events.push(JobEvent { number, at_ms: 0, level: EventLevel::Info, kind, message, by: None });
    }

    fn change(&mut self, name: &str, state: JobState) -> Result<JobStatus, Refusal> {
        let (status, _) = self.jobs.get_mut(name).ok_or_else(|| missing(name))?;
        if status.state.is_over() {
            return Err(refusal(RefusalKind::Conflict, "E0043", format!("job {name} is over")));
        }
        status.state = state;
        Ok(status.clone())
    }
}

impl ClusterApi for Fake {
    fn status(&self) -> ClusterStatus {
        let (cluster, version) = ("c1".to_owned(), "0.1.0".to_owned());
        ClusterStatus {
            cluster,
            version,
            certificate_until_ms: 1,
            started_at_ms: 1,
            workers: 1,
            slots: 4,
            slots_used: 3,
            epoch: Epoch { origin: [7; 16], count: 3 },
            succeeds: Vec::new(),
            led_elsewhere: vec![StrayWorker {
                worker: "worker-2".to_owned(),
                from: "10.0.0.6:7702".to_owned(),
                led_by: Epoch { origin: [1; 16], count: 2 },
                jobs: vec!["theirs".to_owned()],
                seen_at_ms: 1,
            }],
        }
    }

    fn adopt(&self, _by: &Person, origin: &str) -> Result<ClusterStatus, Refusal> {
        match origin {
            "01010101" => Ok(self.status()),
            _ => Err(refusal(RefusalKind::NotFound, "E0048", format!("there is no coordinator {origin}"))),
        }
    }

    fn workers(&self) -> Vec<WorkerStatus> {
        vec![WorkerStatus {
            name: "worker-1".to_owned(),
            alive: true,
            address: "10.0.0.5:7702".to_owned(),
            version: "0.1.0".to_owned(),
            slots: 4,
            slots_used: 3,
            jobs: vec!["try".to_owned()],
            since_ms: 1,
            heard_at_ms: 1,
            clock_skew_ms: 0,
            certificate_until_ms: 0,
            stuck_executions: 0,
            reports_refused: 0,
        }]
    }

    fn push_component(&self, _by: &Person, bytes: &[u8], name: Option<(&str, &str)>) -> Result<Digest, Refusal> {
        let mut told = self.told();
        told.pushes += 1;
        let digest = digest_of(bytes);
        told.blobs.insert(digest, bytes.to_vec());
        if let Some((name, version)) = name {
            let there = told.components.entry((name.to_owned(), version.to_owned())).or_insert_with(|| bytes.to_vec());
            if there != bytes {
                return Err(refusal(RefusalKind::Conflict, "E0021", format!("{name}@{version} stands for other bytes")));
            }
        }
        Ok(digest)
    }

    fn describe_component(&self, digest: Digest) -> Result<Option<Description>, Refusal> {
        Ok(self.told().blobs.contains_key(&digest).then(Description::plain))
    }

    fn components(&self) -> Result<Vec<ComponentStatus>, Refusal> {
        let shown = |((name, version), bytes): (&(String, String), &Vec<u8>)| ComponentStatus {
            name: name.clone(),
            version: version.clone(),
            digest: digest_of(bytes),
            size_bytes: bytes.len() as u64,
            pushed_at_ms: 1,
        };
        Ok(self.told().components.iter().map(shown).collect())
    }

    fn remove_component(&self, _by: &Person, name: &str, version: &str) -> Result<(), Refusal> {
        let removed = self.told().components.remove(&(name.to_owned(), version.to_owned()));
        let none = || refusal(RefusalKind::NotFound, "E0020", format!("there is no component {name}@{version}"));
        removed.map(drop).ok_or_else(none)
    }

    fn submit(&self, _by: &Person, submission: JobSubmission) -> Result<JobStatus, Refusal> {
        let job = submission.spec.load().map_err(|error| refusal(RefusalKind::Invalid, "E0001", error.to_string()))?;
        let mut told = self.told();
        for pin in submission.spec.components.values() {
            if !told.blobs.contains_key(&pin.digest) {
                return Err(refusal(RefusalKind::Invalid, "E0040", format!("there is no component {}", pin.name)));
            }
        }
        told.submissions.push(submission);
        told.add_job(&job.name, JobState::Running);
        Ok(status(&job.name, JobState::Waiting))
    }

    fn jobs(&self) -> Vec<JobStatus> {
        self.told().jobs.values().map(|(status, _)| status.clone()).collect()
    }

    fn job(&self, name: &str) -> Result<JobDetail, Refusal> {
        let mut told = self.told();
        if let Some((state, reason)) = told.ends.clone() {
            let first = !told.jobs.get(name).ok_or_else(|| missing(name))?.0.state.is_over();
            let (status, _) = told.jobs.get_mut(name).ok_or_else(|| missing(name))?;
            (status.state, status.reason) = (state, (!reason.is_empty()).then_some(reason));
            if first {
                told.event(name, "ended", "the job has ended");
            }
        }
        let (status, _) = told.jobs.get(name).ok_or_else(|| missing(name))?;
        Ok(JobDetail {
            status: status.clone(),
            file: "/jobs/job.toml".to_owned(),
            storage: "/checkpoints".to_owned(),
            dead_letters: Vec::new(),
            vertices: Vec::new(),
            watermark: None,
            checkpoints_completed: 7,
            checkpoints_failed: 0,
            metrics: BTreeMap::new(),
            restore: None,
        })
    }

    fn stop(&self, _by: &Person, name: &str) -> Result<JobStatus, Refusal> {
        self.told().change(name, JobState::Stopping)
    }

    fn cancel(&self, _by: &Person, name: &str) -> Result<JobStatus, Refusal> {
        self.told().change(name, JobState::Cancelled)
    }

    fn rescale(&self, _by: &Person, name: &str, parallelism: u32) -> Result<JobStatus, Refusal> {
        let mut status = self.told().change(name, JobState::Running)?;
        status.slots = parallelism;
        Ok(status)
    }

    fn remove(&self, _by: &Person, name: &str) -> Result<(), Refusal> {
        self.told().jobs.remove(name).map(drop).ok_or_else(|| missing(name))
    }

    fn events(&self, name: &str, after: u64, wait: Duration) -> Result<Vec<JobEvent>, Refusal> {
        let newer = || {
            let told = self.told();
            let (_, events) = told.jobs.get(name).ok_or_else(|| missing(name))?;
            Ok::<_, Refusal>(events.iter().filter(|event| event.number > after).cloned().collect::<Vec<_>>())
        };
        if newer()?.is_empty() {
            std::thread::sleep(wait.min(Duration::from_millis(20)));
        }
        newer()
    }

    fn cluster_events(&self, after: u64) -> Result<Vec<JobEvent>, Refusal> {
        let told = self.told();
        let event = |(number, token): (u64, &TokenStatus)| JobEvent {
            number,
            at_ms: 0,
            level: EventLevel::Info,
            kind: "token-created".to_owned(),
            message: format!("token {} was created", token.name),
            by: token.created_by.clone(),
        };
        Ok((1..).zip(told.tokens.values()).filter(|(number, _)| *number > after).map(event).collect())
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
        let NewToken { name, role, valid_ms } = token;
        let created_by = Some(by.clone());
        let status = TokenStatus { name, role, created_at_ms: 1, created_by, expires_at_ms: valid_ms, used_at_ms: None };
        self.told().tokens.insert(digest, status.clone());
        Ok(status)
    }

    fn revoke_token(&self, _by: &Person, name: &str) -> Result<(), Refusal> {
        let mut told = self.told();
        let before = told.tokens.len();
        told.tokens.retain(|_, token| token.name != name);
        let none = || refusal(RefusalKind::NotFound, "E0060", format!("there is no token {name}"));
        (told.tokens.len() < before).then_some(()).ok_or_else(none)
    }
}

fn admin() -> TokenStatus {
    let (name, role) = ("admin".to_owned(), Role::Admin);
    TokenStatus { name, role, created_at_ms: 1, created_by: None, expires_at_ms: None, used_at_ms: None }
}

/// An API that is served until this is dropped.
pub(crate) struct Api {
    pub(crate) cluster: Arc<Fake>,
    pub(crate) address: SocketAddr,
    _server: Server,
    _runtime: tokio::runtime::Runtime,
}

impl Api {
    pub(crate) fn new(token: Option<Token>) -> Api {
        Api::at(SocketAddr::from(([127, 0, 0, 1], 0)), Arc::default(), token)
    }

    pub(crate) fn at(listen: SocketAddr, cluster: Arc<Fake>, token: Option<Token>) -> Api {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
        let owner_passes = token.is_none();
        if let Some(token) = token {
            cluster.told().tokens.insert(token.digest(), admin());
        }
        let options = ApiOptions { listen, tls: None, owner_passes, cluster: cluster.clone() };
        let server = serve(options, runtime.handle()).expect("a free port");
        Api { cluster, address: server.local_addr, _server: server, _runtime: runtime }
    }
}
