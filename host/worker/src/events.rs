//! What the driver of a job hears, and what it tells those who watch.

use std::sync::mpsc::Sender;
use std::time::Duration;

use weir_model::{Attempt, CheckpointId, TaskId};
use weir_storage::Manifest;
use weir_task::Report;

use crate::persist::Acknowledgement;
use crate::progress::Progress;

/// Something the driver has to act on.
#[derive(Debug)]
pub(crate) enum Event {
    /// From a task.
    Report(TaskId, Report),
    /// A task's snapshot is durable.
    Acknowledged(Box<Acknowledgement>),
    /// A task's snapshot could not be made durable.
    PersistFailed { task: TaskId, checkpoint: CheckpointId, reason: String },
    /// A manifest is durable.
    ManifestWritten(Box<Manifest>),
    /// A manifest could not be written.
    ManifestFailed { checkpoint: CheckpointId, reason: String },
    /// A newer attempt of the job runs elsewhere: this one must end.
    Fenced { reason: String },
    /// Somebody wants the job to stop with a last checkpoint.
    Stop,
}

/// An event with the execution it belongs to; none: whichever runs.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) attempt: Option<Attempt>,
    pub(crate) event: Event,
}

/// Asks a running job to stop with a last checkpoint.
#[derive(Clone, Debug)]
pub struct StopHandle {
    pub(crate) events: Sender<Message>,
}

impl StopHandle {
    /// Asks. Without effect where the job is over.
    pub fn stop(&self) {
        let _ = self.events.send(Message { attempt: None, event: Event::Stop });
    }
}

/// Something that people want to see.
#[derive(Debug)]
pub enum Notice {
    /// An execution begins.
    Started {
        /// Its number.
        attempt: Attempt,
        /// The checkpoint it goes on from.
        from: Option<CheckpointId>,
    },
    /// A checkpoint could not be restored; an older one is tried.
    FellBack {
        /// The one that could not.
        checkpoint: CheckpointId,
        /// Why.
        reason: String,
    },
    /// How far the job is. About every second.
    Progress(Box<Progress>),
    /// A checkpoint is complete.
    Completed {
        /// It.
        checkpoint: CheckpointId,
        /// From its trigger to its manifest.
        duration: Duration,
        /// Bytes written.
        bytes: u64,
    },
    /// A checkpoint failed.
    CheckpointFailed {
        /// It.
        checkpoint: CheckpointId,
        /// Why.
        reason: String,
    },
    /// The job failed and starts again.
    Restarting {
        /// Why it failed.
        reason: String,
        /// When it starts again.
        delay: Duration,
    },
    /// Sources have stopped; the last checkpoint is being taken.
    Stopping,
}
