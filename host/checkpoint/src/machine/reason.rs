//! Why a checkpoint was given up, in words.

use std::fmt;

use weir_model::{CheckpointId, TaskId};

/// Tasks listed by name in a message; the others are counted.
const TASKS_NAMED_MAX: usize = 8;

/// Why a checkpoint was given up. `Display` calls tasks by number, [`AbortReason::describe`] by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AbortReason {
    /// Not all tasks acknowledged it in time.
    TimedOut {
        /// How long was waited.
        after_ms: u64,
        /// Number of tasks of the job.
        tasks: usize,
        /// Those that had not acknowledged it.
        missing: Vec<TaskId>,
    },
    /// A task refused.
    Declined {
        /// The task.
        task: TaskId,
        /// What it said.
        reason: String,
    },
    /// A task could not store its snapshot.
    PersistFailed {
        /// The task.
        task: TaskId,
        /// What went wrong.
        reason: String,
    },
    /// The manifest could not be written.
    ManifestFailed {
        /// What went wrong.
        reason: String,
    },
    /// A newer checkpoint took its place. Not a failure.
    Subsumed {
        /// The newer one.
        by: CheckpointId,
    },
    /// Another checkpoint was one failure too many. Not a failure of its own.
    JobFailed,
}

impl AbortReason {
    /// The reason in words, with each task called what `name` calls it.
    pub fn describe(&self, name: &dyn Fn(TaskId) -> String) -> String {
        match self {
            AbortReason::TimedOut { after_ms, tasks, missing } => {
                let named: Vec<String> = missing.iter().take(TASKS_NAMED_MAX).map(|task| name(*task)).collect();
                let more = match missing.len() - named.len() {
                    0 => String::new(),
                    more => format!(" and {more} more"),
                };
                format!(
                    "timed out after {after_ms} ms: {} of {tasks} tasks have not acknowledged it: {}{more}",
                    missing.len(),
                    named.join(", ")
                )
            }
            AbortReason::Declined { task, reason } => format!("declined by {}: {reason}", name(*task)),
            AbortReason::PersistFailed { task, reason } => format!("{} could not store its snapshot: {reason}", name(*task)),
            AbortReason::ManifestFailed { reason } => format!("its manifest could not be written: {reason}"),
            AbortReason::Subsumed { by } => format!("overtaken by checkpoint {by}"),
            AbortReason::JobFailed => "the job has failed".to_owned(),
        }
    }
}

impl fmt::Display for AbortReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.describe(&numbered))
    }
}

/// Why checkpoint failures end an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobFailure {
    /// The checkpoint that was one too many.
    pub checkpoint: CheckpointId,
    /// Failures in a row, this one included.
    pub failures: u32,
    /// Why the last one failed.
    pub last: AbortReason,
}

impl JobFailure {
    /// The failure in words, with each task called what `name` calls it.
    pub fn describe(&self, name: &dyn Fn(TaskId) -> String) -> String {
        let JobFailure { checkpoint, failures, last } = self;
        let last = last.describe(name);
        format!("checkpoint {checkpoint} failed, failure {failures} in a row of which {} are tolerated: {last}", failures - 1)
    }
}

impl fmt::Display for JobFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.describe(&numbered))
    }
}

fn numbered(task: TaskId) -> String {
    format!("task {task}")
}
