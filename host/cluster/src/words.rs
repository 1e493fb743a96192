//! What a cluster is told and what it says.

use weir_master::MasterJob;
use weir_model::Epoch;
use weir_protocol::access::Person;
use weir_protocol::api::{EventLevel, JobStatus, JobSubmission, Refusal};
use weir_protocol::{Command, Register, Report, WorkerId};

use crate::{Change, LinkId, WriteFailure};

/// Number of something that a person has asked for. Given by whoever answers people; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// Number of a change of the metadata. Never used twice by one machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChangeId(pub u64);

/// Who is at the other end of a connection, as the connection itself says.
#[derive(Clone, Debug)]
pub struct Hello {
    /// The name in its certificate.
    pub name: WorkerId,
    /// Number of its process.
    pub incarnation: u64,
    /// Where it connects from.
    pub from: String,
}

/// What a person asks for.
#[derive(Clone, Debug)]
pub enum Ask {
    /// Something that decides which names are jobs, or whose place this coordinator takes. One after the other.
    Name(NameAsk),
    /// Something of one job.
    Job {
        /// Its name.
        name: String,
        /// What.
        ask: JobAsk,
    },
}

/// What a person asks for that is about names. Such requests are carried out one after the other, so that one name is never two jobs.
#[derive(Clone, Debug)]
pub enum NameAsk {
    /// A job that is to run. Its components are there.
    Submit(Box<JobSubmission>),
    /// A job that is over is forgotten.
    Remove(String),
    /// The workers of a coordinator that is lost for good may join: the beginning of its origin.
    Adopt(String),
}

/// What a person asks of one job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobAsk {
    /// Stop with a last checkpoint.
    Stop,
    /// End without one.
    Cancel,
    /// Go on with this parallelism.
    Rescale(u32),
}

/// What was done of what a person asked for.
#[derive(Clone, Debug)]
pub enum Receipt {
    /// A job was asked, or submitted; how it is.
    Job(Box<JobStatus>),
    /// The job is forgotten, or the workers may join.
    Written,
}

/// What a cluster is told.
#[derive(Debug)]
pub enum Input {
    /// The first message on a connection. Answered with `Welcome` or `Refused`.
    Register {
        /// The connection, of a number that was never used before.
        link: LinkId,
        /// Who it is.
        hello: Hello,
        /// What it says of itself.
        register: Box<Register>,
    },
    /// A worker says something.
    Report {
        /// The connection it came on.
        link: LinkId,
        /// What it says.
        report: Box<Report>,
    },
    /// A connection is closed.
    Closed {
        /// Which.
        link: LinkId,
        /// Why.
        reason: String,
    },
    /// A worker's process, which seemed to have ended, certainly has.
    Ended {
        /// The worker.
        worker: WorkerId,
        /// Number of the process.
        incarnation: u64,
    },
    /// What a worker said could not be handed on, as too much waits already: the worker is lost.
    Unheard {
        /// The worker.
        worker: WorkerId,
        /// Why.
        reason: String,
    },
    /// A person asks for something. Answered by [`Output::Answer`].
    Asked {
        /// Number of the request.
        request: RequestId,
        /// Who, whom events name.
        by: Person,
        /// What.
        ask: Ask,
    },
    /// The master of a job says something; all but what it asks its storage for.
    Says {
        /// The job.
        job: String,
        /// What.
        says: weir_master::Output,
    },
    /// What became of [`Output::Write`].
    Written {
        /// Which change.
        change: ChangeId,
        /// Whether it is durable. After an error nothing of it is there.
        result: Result<(), WriteFailure>,
    },
    /// Time has passed. To be said much more often than heartbeats are missed.
    Tick {
        /// Until when this node's certificate counts, in milliseconds since the Unix epoch: it may be exchanged.
        certificate_until_ms: u64,
    },
    /// The process ends, and leaves everything as it is for the next coordinator.
    Leave,
}

/// What is to be done, in the order given.
#[derive(Debug)]
pub enum Output {
    /// Tell a worker something. May be lost with its connection.
    Tell {
        /// The connection.
        link: LinkId,
        /// What it is told.
        command: Command,
    },
    /// Close a connection, after what was told over it.
    Close {
        /// Which.
        link: LinkId,
        /// Why.
        reason: String,
    },
    /// Make a change durable. Changes are carried out in the order given. Answered by [`Input::Written`].
    Write {
        /// Number of the change.
        id: ChangeId,
        /// What is written.
        change: Box<Change>,
    },
    /// Start the master of a job, which has none.
    Start {
        /// The job's name.
        job: String,
        /// What its master is to know.
        master: Box<MasterJob>,
    },
    /// Tell a job's master something. Nobody hears it where the job is over.
    Inform {
        /// The job's name.
        job: String,
        /// What it is told.
        input: Box<weir_master::Input>,
    },
    /// Answer a person.
    Answer {
        /// Number of the request.
        request: RequestId,
        /// What was done, or why nothing was.
        answer: Result<Receipt, Refusal>,
    },
    /// Something about a job has changed: wake those who wait for its events.
    News,
    /// Something for the log of this process.
    Log(LogLine),
}

/// A line for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// How much it matters.
    pub level: EventLevel,
    /// What happened.
    pub message: String,
}

impl Output {
    pub(crate) fn log(level: EventLevel, message: impl Into<String>) -> Output {
        Output::Log(LogLine { level, message: message.into() })
    }
}

/// For log lines: who this is.
pub(crate) fn started(epoch: Epoch, jobs: usize) -> Output {
    Output::log(EventLevel::Info, format!("coordinator {epoch} starts with {jobs} jobs"))
}
