//! What people submit to a cluster and are shown of it: the shapes of the HTTP API, and the trait behind it.
//!
//! Times are milliseconds since the Unix epoch.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use weir_model::{CheckpointId, Description, Digest, Epoch, Oddities};

use crate::JobSpec;
use crate::access::{Asker, NewToken, Person, TokenStatus};

/// A job as it is submitted. The components it names must have been pushed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSubmission {
    /// The job.
    pub spec: JobSpec,
    /// Forget all checkpoints of a job of this name and start over.
    #[serde(default)]
    pub fresh: bool,
    /// Go on although the checkpoint has state of an operator that the job no longer has.
    #[serde(default)]
    pub allow_dropped_state: bool,
}

/// Where a job is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum JobState {
    /// There are not enough free slots.
    Waiting,
    /// Its tasks are being built.
    Deploying,
    /// It runs.
    Running,
    /// It failed and will start again.
    Restarting,
    /// It is about to be over: a last checkpoint is being taken, or its tasks are being ended.
    Stopping,
    /// It was stopped with a last checkpoint, from which it can go on.
    Stopped,
    /// All its input is processed.
    Finished,
    /// It failed for good.
    Failed,
    /// It was ended without a last checkpoint.
    Cancelled,
}

impl JobState {
    /// All of them.
    pub const ALL: [JobState; 9] = [
        JobState::Waiting,
        JobState::Deploying,
        JobState::Running,
        JobState::Restarting,
        JobState::Stopping,
        JobState::Stopped,
        JobState::Finished,
        JobState::Failed,
        JobState::Cancelled,
    ];

    /// Whether nothing more happens unless a person does something.
    pub fn is_over(self) -> bool {
        matches!(self, JobState::Stopped | JobState::Finished | JobState::Failed | JobState::Cancelled)
    }
}

impl std::fmt::Display for JobState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            JobState::Waiting => "waiting",
            JobState::Deploying => "deploying",
            JobState::Running => "running",
            JobState::Restarting => "restarting",
            JobState::Stopping => "stopping",
            JobState::Stopped => "stopped",
            JobState::Finished => "finished",
            JobState::Failed => "failed",
            JobState::Cancelled => "cancelled",
        })
    }
}

/// A completed checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointStatus {
    /// Its number.
    pub id: CheckpointId,
    /// From trigger to manifest, in milliseconds.
    pub duration_ms: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Of these, bytes that were in flight.
    pub in_flight_bytes: u64,
    /// Its barriers overtook rows.
    pub unaligned: bool,
    /// When it was complete.
    pub completed_at_ms: u64,
}

/// A job in one line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobStatus {
    /// Its name.
    pub name: String,
    /// Where it is in its life.
    pub state: JobState,
    /// Why it is there, where there is anything to say: what it waits for, why it failed.
    pub reason: Option<String>,
    /// Its current or last attempt; 0 before the first.
    pub attempt: u64,
    /// Attempts begun since it was submitted, but for the first.
    pub restarts: u64,
    /// Slots it takes.
    pub slots: u32,
    /// When it was submitted.
    pub submitted_at_ms: u64,
    /// When its state changed last.
    pub since_ms: u64,
    /// Rows read by its sources in this attempt.
    pub rows_read: u64,
    /// Rows written by its sinks in this attempt.
    pub rows_written: u64,
    /// Rows read per second.
    pub rows_per_second: f64,
    /// Rows that did not go the normal way in this attempt, by kind, without examples: vertices have those.
    #[serde(default)]
    pub oddities: Oddities,
    /// The checkpoint completed last.
    pub checkpoint: Option<CheckpointStatus>,
}

/// One vertex of a running job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VertexStatus {
    /// Its uid.
    pub uid: String,
    /// "source", "operator" or "sink".
    pub kind: String,
    /// Its parallelism.
    pub parallelism: u32,
    /// Rows in (a source: rows read).
    pub rows_in: u64,
    /// Rows out (a sink: rows written).
    pub rows_out: u64,
    /// Rows rejected.
    pub rows_rejected: u64,
    /// Rows that did not go the normal way, by kind, each with the first of them and the reason.
    #[serde(default)]
    pub oddities: Oddities,
    /// Rows in per subtask: shows skew.
    pub rows_in_by_subtask: Vec<u64>,
    /// Worker of each subtask.
    pub workers: Vec<String>,
    /// Share of time the subtasks' tasks waited for room downstream, 0 to 1, since the last heartbeat but one.
    pub backpressured: f64,
    /// The same, with work to do.
    pub busy: f64,
}

/// How much of the state of a checkpoint is with its tasks again, which run meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestoreStatus {
    /// Stored bytes that are.
    pub restored_bytes: u64,
    /// Stored bytes of all; 0 until its workers have said it.
    pub bytes: u64,
}

/// Everything about a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobDetail {
    /// The line.
    pub status: JobStatus,
    /// Path of its job file where it was submitted.
    pub file: String,
    /// Where its checkpoints are.
    pub storage: String,
    /// Where its rejected rows go, as its sinks name the places; none where no operator rejects rows.
    #[serde(default)]
    pub dead_letters: Vec<String>,
    /// Its vertices, in the order of the job file.
    pub vertices: Vec<VertexStatus>,
    /// Its least watermark.
    pub watermark: Option<i64>,
    /// Checkpoints completed and failed in this attempt.
    pub checkpoints_completed: u64,
    /// Checkpoints failed in this attempt.
    pub checkpoints_failed: u64,
    /// What its operators count and measure: `operator.name`.
    pub metrics: BTreeMap<String, f64>,
    /// How far the state of the checkpoint is that it goes on from; none where all is with its tasks.
    #[serde(default)]
    pub restore: Option<RestoreStatus>,
}

/// How much an event matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EventLevel {
    /// In the course of things.
    Info,
    /// The job goes on, but somebody should know.
    Warning,
    /// Somebody has to do something.
    Error,
}

/// Something that happened to a job, or to the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobEvent {
    /// Grows within the job (or for the cluster), without gaps.
    pub number: u64,
    /// When.
    pub at_ms: u64,
    /// How much it matters.
    pub level: EventLevel,
    /// One word for programs, such as "running", "checkpoint-failed", "worker-lost".
    pub kind: String,
    /// One line for people: what, why, and a hint.
    pub message: String,
    /// Who asked for it; none where nobody did, and of events older than this field.
    #[serde(default)]
    pub by: Option<Person>,
}

/// A worker of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerStatus {
    /// Its name.
    pub name: String,
    /// Whether it is connected.
    pub alive: bool,
    /// `host:port` at which other workers reach it.
    pub address: String,
    /// Version of weir.
    pub version: String,
    /// Slots it offers.
    pub slots: u32,
    /// Of these, slots in use.
    pub slots_used: u32,
    /// Jobs that run there.
    pub jobs: Vec<String>,
    /// When it connected, or was lost.
    pub since_ms: u64,
    /// When it was heard last.
    pub heard_at_ms: u64,
    /// Its clock minus the coordinator's when it registered, in milliseconds.
    pub clock_skew_ms: i64,
    /// Until when its certificate counts; 0 where it has not said so yet.
    #[serde(default)]
    pub certificate_until_ms: u64,
    /// Executions that were told to end and have not: they wait for files or a store that do not answer. It takes no more of a job beside
    /// four.
    #[serde(default)]
    pub stuck_executions: u32,
    /// What it said of tasks or jobs that are not its own, and was not heard with. Anything but zero means that it has gone bad.
    #[serde(default)]
    pub reports_refused: u64,
}

/// A component in the cluster's store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComponentStatus {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// SHA-256 of its bytes.
    pub digest: Digest,
    /// Its size.
    pub size_bytes: u64,
    /// When it was pushed.
    pub pushed_at_ms: u64,
}

/// The cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterStatus {
    /// Until when the coordinator's certificate counts.
    #[serde(default)]
    pub certificate_until_ms: u64,
    /// Its id.
    pub cluster: String,
    /// Version of the coordinator.
    pub version: String,
    /// When the coordinator started.
    pub started_at_ms: u64,
    /// Workers that are connected.
    pub workers: u32,
    /// Slots of these.
    pub slots: u32,
    /// Of these, slots in use.
    pub slots_used: u32,
    /// Which coordinator this is: whose metadata it has, and its starts from there.
    pub epoch: Epoch,
    /// Coordinators that are lost for good, whose place it takes because a person said so.
    #[serde(default)]
    pub succeeds: Vec<Epoch>,
    /// Workers that do not join: they run what another coordinator began.
    #[serde(default)]
    pub led_elsewhere: Vec<StrayWorker>,
}

/// A worker that runs what another coordinator began, and so does not join this one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StrayWorker {
    /// Its name.
    pub worker: String,
    /// `host:port` where it connects from.
    pub from: String,
    /// The coordinator that leads it.
    pub led_by: Epoch,
    /// Jobs that it runs.
    pub jobs: Vec<String>,
    /// When it came last.
    pub seen_at_ms: u64,
}

/// What kind of answer a refusal is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RefusalKind {
    /// What was asked for cannot be understood, or is wrong in itself.
    Invalid,
    /// There is no such thing.
    NotFound,
    /// It contradicts what is there.
    Conflict,
    /// It cannot be done now.
    Unavailable,
    /// A bug, or the coordinator's own disk.
    Internal,
}

/// Why something was not done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// What kind of answer it is.
    pub kind: RefusalKind,
    /// Number of the error's page, such as "E0041".
    pub code: String,
    /// What was attempted and why it failed.
    pub message: String,
    /// What to do.
    pub hint: Option<String>,
}

/// Everything people can ask of a cluster. Calls may block for a disk write or a short wait; never call them from async code
/// without a blocking thread. `by` is who asks, whom events then name.
pub trait ClusterApi: Send + Sync {
    /// The cluster in one line.
    fn status(&self) -> ClusterStatus;

    /// Its workers, also those that were lost and whose jobs are not all elsewhere yet.
    fn workers(&self) -> Vec<WorkerStatus>;

    /// Takes the place of a coordinator that is lost for good: workers that are led by it may join this one, and end what they run of it.
    /// `origin` is the beginning of its id, at least 8 hexadecimal digits; one of its workers must have tried to join.
    ///
    /// # Errors
    /// If there is no such worker, or it is not clear which coordinator is meant.
    fn adopt(&self, by: &Person, origin: &str) -> Result<ClusterStatus, Refusal>;

    /// Keeps a component under a name and version, or under its digest alone.
    ///
    /// # Errors
    /// If it is not a component, too large, or the name stands for other bytes.
    fn push_component(&self, by: &Person, bytes: &[u8], name: Option<(&str, &str)>) -> Result<Digest, Refusal>;

    /// What the component of that digest says of itself; none if its bytes are not there.
    ///
    /// # Errors
    /// If nobody has found that out yet, and it cannot be now.
    fn describe_component(&self, digest: Digest) -> Result<Option<Description>, Refusal>;

    /// All components that have names.
    ///
    /// # Errors
    /// If the store cannot be read.
    fn components(&self) -> Result<Vec<ComponentStatus>, Refusal>;

    /// Forgets a name and version.
    ///
    /// # Errors
    /// If there is none.
    fn remove_component(&self, by: &Person, name: &str, version: &str) -> Result<(), Refusal>;

    /// Takes a job, and starts it as soon as there are slots. A job of this name that is over is replaced and goes on from
    /// its last checkpoint.
    ///
    /// # Errors
    /// If the job file is wrong, a component is missing, or a job of this name is not over.
    fn submit(&self, by: &Person, submission: JobSubmission) -> Result<JobStatus, Refusal>;

    /// All jobs.
    fn jobs(&self) -> Vec<JobStatus>;

    /// Everything about a job.
    ///
    /// # Errors
    /// If there is none.
    fn job(&self, name: &str) -> Result<JobDetail, Refusal>;

    /// Stops a job with a last checkpoint. Returns once it has begun to stop.
    ///
    /// # Errors
    /// If there is none, or it is over.
    fn stop(&self, by: &Person, name: &str) -> Result<JobStatus, Refusal>;

    /// Ends a job without a last checkpoint.
    ///
    /// # Errors
    /// If there is none, or it is over.
    fn cancel(&self, by: &Person, name: &str) -> Result<JobStatus, Refusal>;

    /// Changes the parallelism of a job: a checkpoint is taken and the job goes on from it with the new number.
    ///
    /// # Errors
    /// If there is none, it is over, or its state cannot be divided that way.
    fn rescale(&self, by: &Person, name: &str, parallelism: u32) -> Result<JobStatus, Refusal>;

    /// Forgets a job that is over. Its checkpoints stay.
    ///
    /// # Errors
    /// If there is none, or it is not over.
    fn remove(&self, by: &Person, name: &str) -> Result<(), Refusal>;

    /// Events of a job with numbers greater than `after`, oldest first. Where there are none, waits for one at most for
    /// `wait`.
    ///
    /// # Errors
    /// If there is no such job.
    fn events(&self, name: &str, after: u64, wait: Duration) -> Result<Vec<JobEvent>, Refusal>;

    /// What people did to the cluster, as far as it is no job's: components, tokens, jobs that were removed. Events with numbers
    /// greater than `after`, oldest first; no more than a few hundred at once.
    ///
    /// # Errors
    /// If the disk does not give them.
    fn cluster_events(&self, after: u64) -> Result<Vec<JobEvent>, Refusal>;

    /// Who shows the token with this SHA-256; none if it does not count, for whatever reason. Notes that it was used. Unlike the
    /// other calls it never blocks.
    fn who(&self, token: Digest) -> Option<Asker>;

    /// All tokens that were not revoked, by name; also those that have expired. Never blocks either.
    fn tokens(&self) -> Vec<TokenStatus>;

    /// Makes a token count. The caller has made it, and tells only its SHA-256.
    ///
    /// # Errors
    /// If its name is taken or none, or there are as many as there may be.
    fn create_token(&self, by: &Person, token: NewToken, digest: Digest) -> Result<TokenStatus, Refusal>;

    /// Makes a token count no longer.
    ///
    /// # Errors
    /// If there is none, or it is the last with which tokens can be made.
    fn revoke_token(&self, by: &Person, name: &str) -> Result<(), Refusal>;
}
