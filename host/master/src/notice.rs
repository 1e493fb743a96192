//! What the master of a job tells those who watch.

use std::time::Duration;

use weir_model::{Attempt, CheckpointId, Timestamp};

use crate::{Progress, RestoreProgress};

/// There are not enough free slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// Slots the job needs.
    pub needed: u32,
    /// Slots that are free.
    pub free: u32,
    /// Slots that jobs wait for which were submitted before. They are served first.
    pub ahead: u32,
    /// Workers that are connected.
    pub workers: u32,
}

/// Something that people want to see.
#[derive(Clone, Debug)]
pub enum Notice {
    /// There are not enough slots; the job waits for them.
    Waiting(Shortage),
    /// The tasks of an execution are being built.
    Deploying {
        /// Its number.
        attempt: Attempt,
        /// Its workers.
        workers: Vec<String>,
    },
    /// An execution begins.
    Started {
        /// Its number.
        attempt: Attempt,
        /// The checkpoint it goes on from.
        from: Option<CheckpointId>,
    },
    /// Something that is wanted of an execution waits until its tasks, which run, have all the state of their checkpoint.
    WaitsForRestore {
        /// What waits.
        what: &'static str,
        /// The checkpoint that is restored.
        checkpoint: CheckpointId,
        /// How far that is.
        restore: RestoreProgress,
    },
    /// The tasks of an execution have all the state of the checkpoint it goes on from.
    Restored {
        /// The checkpoint.
        checkpoint: CheckpointId,
    },
    /// The job had finished, and goes on because there is more to read.
    MoreInput {
        /// Its final checkpoint.
        checkpoint: CheckpointId,
        /// What there is more, by source: its uid, and what it says.
        found: Vec<(String, String)>,
        /// The greatest event time that had been read, from which event time goes on: what the end closed stays closed. None
        /// where nothing had been read.
        event_time_max: Option<Timestamp>,
    },
    /// An execution goes on under a new coordinator; no task was restarted.
    TakenOver {
        /// Its number.
        attempt: Attempt,
    },
    /// A checkpoint could not be restored; an older one is tried.
    FellBack {
        /// The one that could not.
        checkpoint: CheckpointId,
        /// Why.
        reason: String,
    },
    /// How far the job is. About twice a second.
    Progress(Box<Progress>),
    /// A checkpoint is complete.
    Completed {
        /// It.
        checkpoint: CheckpointId,
        /// From its trigger to its manifest.
        duration: Duration,
        /// Bytes written.
        bytes: u64,
        /// Of these, bytes that were in flight.
        in_flight_bytes: u64,
        /// Its barriers overtook rows.
        unaligned: bool,
    },
    /// A checkpoint failed.
    CheckpointFailed {
        /// It.
        checkpoint: CheckpointId,
        /// Why.
        reason: String,
    },
    /// A worker with tasks of the job is gone.
    WorkerLost {
        /// The worker.
        worker: String,
        /// How this is known.
        reason: String,
    },
    /// An execution is over, and its tasks are told to end.
    Ending {
        /// Another is to follow, unless the restart strategy gives up.
        restarts: bool,
        /// Why it is over; none where a person wants it.
        reason: Option<String>,
    },
    /// Workers take long over a step of the start of an execution, and are waited for.
    SlowStep {
        /// Workers that have not finished it.
        workers: Vec<String>,
        /// What they have not done, and why that may be: follows "worker a".
        step: &'static str,
        /// How long they have been waited for.
        waited: Duration,
    },
    /// Tasks do not end as fast as they should.
    SlowEnd {
        /// Workers that have not ended theirs.
        workers: Vec<String>,
        /// How long they have been waited for.
        waited: Duration,
        /// How long they are waited for at most. Reached: nobody waits for them any longer.
        patience: Duration,
    },
    /// The job failed and starts again.
    Restarting {
        /// Why it failed.
        reason: String,
        /// When it starts again.
        delay: Duration,
    },
    /// The job goes on with another parallelism.
    Rescaling {
        /// The one it had.
        from: u32,
        /// The one it gets.
        to: u32,
    },
    /// Another parallelism was asked for and cannot be had; the job goes on as it was.
    RescaleRefused {
        /// The one that was asked for. Another may be wished meanwhile.
        parallelism: u32,
        /// Why.
        reason: String,
    },
    /// Rows do not go the normal way, in a way that somebody should know of. Once for each vertex and kind of them.
    OddRows {
        /// Which, how many, the first of them and the likely setting.
        message: String,
    },
    /// Sources have stopped; the last checkpoint is being taken.
    Stopping,
    /// The storage does not answer, and is waited for.
    SlowStorage {
        /// What is being done there.
        what: String,
        /// What does not answer.
        place: String,
        /// How long it has been waited for.
        waited: Duration,
    },
    /// Sinks take long to make visible what a complete checkpoint holds. Nothing is lost; a job that ends waits for them.
    SlowCommit {
        /// Uids of the sinks.
        sinks: Vec<String>,
        /// Workers whose tasks have not committed.
        workers: Vec<String>,
        /// How long the first of them has been waited for.
        waited: Duration,
    },
    /// The record of an execution that is about to begin was not taken; it is tried again, and nothing is lost but time.
    NotRecorded {
        /// Why.
        reason: String,
    },
}
