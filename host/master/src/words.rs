//! What a master is told and what it says.
//!
//! Everything that may take its time is asked for by a message and answered by another: slots, the record of an execution, and all
//! that the job's storage does. A request that is not answered is the master's to give up, never its driver's to wait for.

use std::sync::Arc;

use weir_model::{Attempt, CheckpointId};
use weir_protocol::{Command, Execution, JobSpec, Prepare, Report, Running, WorkerAddress, WorkerId};
use weir_storage::{Durable, Manifest, Segment};

use crate::{JobError, Notice, Outcome, Shortage, StoreFailure};

/// A job that is to run.
#[derive(Clone, Debug)]
pub struct MasterJob {
    /// The job.
    pub spec: JobSpec,
    /// Where its checkpoints are, unless the job file says it.
    pub default_storage: String,
    /// Forget all checkpoints first.
    pub fresh: bool,
    /// Go on although the checkpoint has state of an operator that the job no longer has.
    pub allow_dropped_state: bool,
    /// Also what fails before the job has run for the first time is tried again, as its restart strategy says. Where a person
    /// waits for the command, it is better to say at once what is wrong.
    pub patient: bool,
    /// An execution that runs already.
    pub adopted: Option<Adopted>,
}

/// The time at which something happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Milliseconds since some start; never goes back.
    pub steady_ms: u64,
    /// Milliseconds since the Unix epoch; for people and manifests only.
    pub wall_ms: u64,
    /// Any uniformly random number, another one each time.
    pub random: u64,
}

/// Number of a request to the storage. Never used twice by one master.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// The slots of a job. A slot runs one subtask of every chain: subtask `i` of each is in slot `i`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slots {
    /// The workers that offer them.
    pub workers: Vec<WorkerAddress>,
    /// By slot: index of its worker.
    pub slots: Vec<u32>,
}

/// What a person wants of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Stop with a last checkpoint.
    Stop,
    /// End without one.
    Cancel,
    /// Go on with another parallelism, from a checkpoint taken now.
    Rescale(u32),
}

/// An execution that is about to begin. Recorded durably before any of its tasks runs, so that a coordinator that is started
/// again can take it over.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Begun {
    /// How it was prepared.
    pub prepare: Prepare,
    /// Where the template of each operator is: by uid.
    pub templates: Vec<(String, Segment)>,
}

/// An execution that a new coordinator takes over from the one before it: all its tasks run.
#[derive(Clone, Debug)]
pub struct Adopted {
    /// What was recorded of it.
    pub begun: Begun,
    /// What each of its workers said when it registered.
    pub running: Vec<(WorkerId, Running)>,
}

impl Adopted {
    /// The execution.
    pub fn execution(&self) -> &Execution {
        &self.begun.prepare.execution
    }

    /// The greatest checkpoint number that any task was told of.
    pub fn last_checkpoint(&self) -> CheckpointId {
        self.running.iter().map(|(_, running)| running.last_checkpoint).max().unwrap_or(CheckpointId(0))
    }
}

/// What a master is told.
#[derive(Debug)]
pub enum Input {
    /// A worker reports about an execution of the job (of any attempt).
    Report {
        /// The worker.
        worker: WorkerId,
        /// What it says.
        report: Box<Report>,
    },
    /// A worker is gone: it is not heard any more, or has started anew.
    WorkerLost {
        /// The worker.
        worker: WorkerId,
        /// How this is known.
        reason: String,
    },
    /// There may be slots where there were none.
    SlotsChanged,
    /// The answer to [`Output::Reserve`].
    Slots(Result<Slots, Shortage>),
    /// A person wants something.
    Wish(Wish),
    /// The answer to [`Output::Store`].
    Stored {
        /// The request.
        request: RequestId,
        /// What became of it.
        answer: Result<Stored, StoreFailure>,
    },
    /// The answer to [`Output::Record`]; the error says what the disk did not take.
    Recorded(Result<(), String>),
    /// Time has passed.
    Tick,
    /// The process ends: give up at once, and leave everything as it is for the next coordinator.
    Leave,
}

/// What is to be done, in the order given.
#[derive(Debug)]
pub enum Output {
    /// Tell a worker something. To one that is lost it goes nowhere.
    Send {
        /// The worker.
        worker: WorkerId,
        /// What it is told.
        command: Command,
    },
    /// Take slots for the job, all or none. Slots that it held before are given back first. Answered by [`Input::Slots`].
    Reserve {
        /// How many.
        slots: u32,
    },
    /// Give the job's slots back.
    Release,
    /// Ask the storage for something. Requests are carried out in the order of their numbers.
    Store {
        /// Number of the request.
        request: RequestId,
        /// What is asked for.
        what: Store,
        /// Steady time after which nobody listens to the answer any more. One that has not begun by then need not be carried out.
        deadline_ms: u64,
    },
    /// Record durably that an execution is about to begin. Answered by [`Input::Recorded`].
    Record(Box<Begun>),
    /// Something that people may want to see.
    Notice(Notice),
    /// The job has ended, or this process leaves it. Nothing follows.
    Over(Box<Result<Outcome, JobError>>),
}

/// What a master asks the storage of its job for.
#[derive(Clone, Debug, PartialEq)]
pub enum Store {
    /// Makes sure that the state, if there is any, is this job file's, and makes it so where there is none. Answered by
    /// [`Stored::Claimed`]. The first request of a master that takes no execution over, and so the one that opens the place and
    /// keeps other processes off it.
    Claim {
        /// Path of the job file.
        origin: String,
        /// Number of key groups of the job.
        key_groups: u16,
        /// Start over, whoever's the state is: that this is so is durable before anything is forgotten.
        fresh: bool,
        /// The wall clock, in milliseconds since the Unix epoch.
        wall_ms: u64,
    },
    /// Begins a new attempt; older ones are fenced from then on. Answered by [`Stored::Begun`]: all that says is durable.
    Begin {
        /// Checkpoints that could not be restored: this attempt goes on from an older one, and none goes on from these any more.
        void: Vec<CheckpointId>,
    },
    /// Asks what an execution that is taken over has to know. Answered by [`Stored::Led`].
    Lead {
        /// Its attempt.
        attempt: Attempt,
    },
    /// Reads the newest checkpoint that is whole. Answered by [`Stored::Newest`].
    Newest,
    /// Completes a checkpoint, and forgets older ones: nobody goes on from those any more. Answered by [`Stored::Completed`].
    Complete {
        /// What it consists of.
        manifest: Arc<Manifest>,
        /// How many checkpoints stay, this one included.
        retained: usize,
    },
    /// Deletes what was forgotten. Not answered.
    Tidy,
    /// Deletes files of a checkpoint that was given up. Not answered.
    Remove(Vec<String>),
}

/// What the storage has done.
#[derive(Clone, Debug, PartialEq)]
pub enum Stored {
    /// The state is the job's.
    Claimed(Claimed),
    /// A new attempt has begun.
    Begun(Box<BegunAttempt>),
    /// An execution may be led.
    Led(Box<Led>),
    /// The newest checkpoint that is whole, if there is any.
    Newest(Option<Durable>),
    /// The checkpoint is complete.
    Completed(Durable),
}

/// Whose the state is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claimed {
    /// The job's, which may have none yet.
    Ours,
    /// Another job file's.
    Others {
        /// Its path.
        origin: String,
    },
}

/// An attempt that has begun.
#[derive(Clone, Debug, PartialEq)]
pub struct BegunAttempt {
    /// Its number.
    pub attempt: Attempt,
    /// The checkpoint it goes on from.
    pub from: Option<Durable>,
    /// Newer checkpoints that were found damaged; none goes on from these any more.
    pub skipped: Vec<Unusable>,
    /// The first number that a checkpoint of this attempt may have.
    pub first_checkpoint: CheckpointId,
    /// Set where rows after this checkpoint will be written again although sinks may have made them visible: the job goes back to an
    /// older checkpoint, or starts over (0), and none has completed since.
    pub retract_after: Option<CheckpointId>,
}

/// A checkpoint that could not be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unusable {
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// Why.
    pub reason: String,
}

/// What is known of an execution that is taken over.
#[derive(Clone, Debug, PartialEq)]
pub struct Led {
    /// The newest attempt that has begun: another than the one that is led has fenced it.
    pub newest_attempt: Attempt,
    /// The newest checkpoint, whichever attempt took it.
    pub newest: Option<Durable>,
    /// A number greater than that of any checkpoint.
    pub next_checkpoint: CheckpointId,
}
