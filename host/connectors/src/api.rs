//! What a task sees of a source or sink.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde_json::Value;
use weir_model::{Attempt, Batch, BatchRef, CheckpointId, Oddities};

use crate::{ConnectorError, SplitTimes};

/// Makes the subtasks of one source.
pub trait SourceFactory: Send + Sync {
    /// Subtask `index` of `parallelism`. Nothing is read before its first `poll`.
    fn create(&self, index: u32, parallelism: u32) -> Result<Box<dyn Source>, ConnectorError>;

    /// Whether the source can go back to a position. If not, rows in flight at a crash are lost: the job is labelled so.
    fn is_replayable(&self) -> bool;

    /// Of a source that has ended: whether there is more to read, with the settings it has. `splits` are the positions of all
    /// subtasks in the job's last checkpoint. A source made and restored with them reads what there is more, and nothing again.
    /// Looks at the input as this process sees it, and may take as long as listing it. What cannot grow has nothing more.
    fn more(&self, _splits: &BTreeMap<String, Value>) -> Result<More, ConnectorError> {
        Ok(More::Nothing(self.describe()))
    }

    /// Whether rows come as they happen, so that one of tomorrow is a mistake.
    fn is_live(&self) -> bool {
        false
    }

    /// One line for people: what is read.
    fn describe(&self) -> String;
}

/// Whether there is more to read after the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum More {
    /// No. Says what was looked at: "logs/*.log: 3 files, all read to their ends".
    Nothing(String),
    /// Yes. Says what: "2 files new (logs/b.log, logs/c.log)".
    Some(String),
}

/// One subtask of a source. Called by one thread, never blocks for long.
pub trait Source: Send {
    /// Goes to where the checkpoint was. `splits` are all splits of the operator, of all its subtasks at the time; those that
    /// fall to this subtask are taken. Called once, before the first `poll`; not called where there is no checkpoint.
    fn restore(&mut self, splits: &BTreeMap<String, Value>) -> Result<(), ConnectorError>;

    /// Appends rows: at most `rows_max`, and no more once their bytes reach `bytes_target` (the last row may pass it).
    fn poll(&mut self, rows: &mut Batch, rows_max: usize, bytes_target: usize) -> Result<Polled, ConnectorError>;

    /// Position of each split of this subtask, after the last row given by `poll`.
    fn position(&mut self) -> BTreeMap<String, Value>;

    /// Where the source reads several splits whose rows are of different times: what it says of the last `poll`, and where the
    /// caller says what times it found. A source that has it keeps the times in its positions.
    fn split_times(&mut self) -> Option<&mut SplitTimes> {
        None
    }

    /// The checkpoint is complete: positions up to it will never be asked for again.
    fn checkpoint_completed(&mut self, _checkpoint: CheckpointId) {}

    /// What did not go the normal way since the subtask was made: lines skipped, input passed over. Asked for after each `poll`;
    /// the numbers only grow.
    fn oddities(&self) -> &Oddities {
        static NONE: Oddities = Oddities::new();
        &NONE
    }
}

/// What a `poll` gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Polled {
    /// At least one row was appended.
    Rows,
    /// None now. Polling again before `retry_in` has passed is allowed and gives nothing new; zero means there is work to
    /// do at once (skipping what a checkpoint has already covered) and no row came of it yet.
    Idle {
        /// When to ask again.
        retry_in: Duration,
    },
    /// None ever again.
    Ended,
}

/// Which subtask of which sink, in which execution.
#[derive(Clone, Debug)]
pub struct SinkContext {
    /// `id` of the sink in the job file.
    pub uid: String,
    /// Subtask.
    pub index: u32,
    /// Of how many.
    pub parallelism: u32,
    /// Execution.
    pub attempt: Attempt,
}

/// What readers of a sink's output may rely on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guarantee {
    /// Each row is visible exactly once.
    ExactlyOnce,
    /// After a restart rows may be visible again.
    AtLeastOnce,
    /// Nothing is written.
    None,
}

impl fmt::Display for Guarantee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Guarantee::ExactlyOnce => "exactly-once",
            Guarantee::AtLeastOnce => "at-least-once: rows are repeated after a restart",
            Guarantee::None => "no output",
        })
    }
}

/// Whether output that readers see can be taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakeBack {
    /// Yes.
    Possible,
    /// There is nothing that readers see.
    NotNeeded,
    /// No: what is written again is seen twice.
    Impossible,
}

/// Makes the subtasks of one sink.
pub trait SinkFactory: Send + Sync {
    /// The writing half of the subtask that `context` names. Made after its other half has recovered.
    fn create(&self, context: &SinkContext) -> Result<Box<dyn Sink>, ConnectorError>;

    /// The other half.
    fn committer(&self, context: &SinkContext) -> Result<Box<dyn Committer>, ConnectorError>;

    /// What readers may rely on.
    fn guarantee(&self) -> Guarantee;

    /// Whether [`Committer::retract`] does what it says. Where it cannot, a job goes back further than its last checkpoint only
    /// if its owner has said that output may be repeated.
    fn take_back(&self) -> TakeBack;

    /// One line for people: where rows go.
    fn describe(&self) -> String;
}

/// The slow half of [`Sink::prepare`]: makes rows durable and gives the committable, if there is anything to commit.
pub type Prepared = Box<dyn FnOnce() -> Result<Option<Value>, ConnectorError> + Send>;

/// The writing half of a subtask of a sink, on its task's thread: the first phase of a two-phase commit.
///
/// The caller keeps every committable from the moment the closure of `prepare` gives it until [`Committer::commit`] has taken it, and
/// puts all it holds into each checkpoint: also those of checkpoints that were aborted, whose rows no later file repeats.
/// After any error the subtask is unusable; the job goes back to its last checkpoint.
pub trait Sink: Send {
    /// Takes rows.
    fn write(&mut self, rows: BatchRef<'_>) -> Result<(), ConnectorError>;

    /// Closes what was written since the last `prepare`: it belongs to `checkpoint`. The closure makes it durable and may run on
    /// another thread. It must run: if it fails or is dropped, the next `write` or `prepare` fails.
    fn prepare(&mut self, checkpoint: CheckpointId) -> Result<Prepared, ConnectorError>;
}

/// What is known at the start of an execution of those before it.
#[derive(Clone, Debug, Default)]
pub struct Recovery {
    /// Every committable in the checkpoint, of all subtasks of this sink, oldest first; none where there is no checkpoint.
    pub keep: Vec<Value>,
}

/// What became of a committable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Commit {
    /// It is visible now.
    Done,
    /// It was visible before, as far as can be known.
    DoneBefore,
    /// It cannot become visible any more: what it stood for is not there, although nobody has committed it. Its rows are lost, so the
    /// job fails, loudly.
    Gone {
        /// What is missing, and how it is known.
        reason: String,
    },
}

/// The other half of a subtask of a sink: the second phase, off the task's thread. A commit that takes long holds up no rows.
pub trait Committer: Send {
    /// At the start of an execution, before anything is written, taken back or committed by any subtask: removes leftovers of earlier
    /// executions, and keeps them from making anything visible that the checkpoint does not hold. What a newer attempt has written
    /// stays, here and in `retract`: a thread that stood still may come late.
    fn recover(&mut self, recovery: &Recovery) -> Result<(), ConnectorError>;

    /// Takes back what was made visible for checkpoints after `checkpoint` (0: for any), because its rows will be written
    /// again: the job starts over, or goes on from a checkpoint older than the last. Once, on the first subtask, after all subtasks
    /// everywhere have recovered. Gives how much was taken back, in the sink's units.
    fn retract(&mut self, checkpoint: CheckpointId) -> Result<u64, ConnectorError>;

    /// Makes a committable visible. Called again for what was committed before, not only after a failure; also takes those of other
    /// subtasks and attempts. Those of one subtask come oldest first.
    fn commit(&mut self, committable: &Value) -> Result<Commit, ConnectorError>;
}

/// The other half of a sink whose rows are written at once, or not at all.
#[derive(Clone, Copy, Debug, Default)]
pub struct NothingToCommit;

impl Committer for NothingToCommit {
    fn recover(&mut self, _: &Recovery) -> Result<(), ConnectorError> {
        Ok(())
    }

    fn retract(&mut self, _: CheckpointId) -> Result<u64, ConnectorError> {
        Ok(0)
    }

    fn commit(&mut self, _: &Value) -> Result<Commit, ConnectorError> {
        Ok(Commit::DoneBefore)
    }
}
