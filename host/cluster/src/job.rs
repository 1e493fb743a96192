//! One job: its page, what is to be written of it, and the way to its master.
//!
//! Changes of one job are written one after the other. The record changes when the disk has taken the change, and whoever waits for that
//! is told then. Owns no decision about the job; never says anything itself.

use std::collections::VecDeque;

use weir_master::{Begun, Input as MasterInput, Wish};
use weir_protocol::access::Person;
use weir_protocol::api::CheckpointStatus;

use crate::book::Book;
use crate::chronicle::Entry;
use crate::record::{Counts, Intent, JobRecord};
use crate::words::{ChangeId, JobAsk, RequestId};

/// What a job's master is told of what was said before it had started, and changes that wait for the disk, at most. Reports beyond that
/// cost a worker its connection, events are lost, and requests are refused.
pub(crate) const WAITING_MAX: usize = 65_536;

/// Changes of one job that wait for the disk at most. Events beyond that are lost, requests are refused.
pub(crate) const CHANGES_WAITING_MAX: usize = 1_024;

/// Heartbeats that a master is told between two signs of life of its own.
const HEARTBEATS_AHEAD_MAX: u32 = 4_096;

/// A job.
pub(crate) struct Job {
    pub(crate) book: Book,
    pub(crate) way: Way,
    /// What is to be written after `writing`, in this order.
    pub(crate) waiting: VecDeque<Item>,
    pub(crate) writing: Option<JobWrite>,
    heartbeats: u32,
}

/// The way to a job's master.
pub(crate) enum Way {
    /// There is none: the job is over.
    Nobody,
    /// There is none yet: it will be told this.
    Later(Vec<MasterInput>),
    /// There is one.
    Master,
}

/// Something that changes a job's record.
pub(crate) enum Item {
    /// Something has happened.
    Note(Box<Note>),
    /// A person asks for something. Judged when all before it is written.
    Ask(RequestId, Person, JobAsk),
    /// An execution is about to begin.
    Record(Box<Begun>),
}

/// Something that has happened. Where the disk does not take it, it is right in memory until the process ends, and what
/// is on disk leads the next coordinator to the same end.
#[derive(Clone)]
pub(crate) struct Note {
    pub(crate) entry: Entry,
    pub(crate) edit: Edit,
}

/// What a note changes beside state and events.
#[derive(Clone)]
pub(crate) enum Edit {
    Nothing,
    /// An attempt of this number begins.
    Attempt(u64),
    /// This parallelism cannot be had. A later wish stays.
    RescaleRefused(u32),
    /// It is over.
    Over {
        counts: Option<Counts>,
        checkpoint: Option<CheckpointStatus>,
    },
}

impl Edit {
    pub(crate) fn apply(&self, record: &mut JobRecord) {
        match self {
            Edit::Nothing => {}
            Edit::Attempt(attempt) => {
                record.attempt = *attempt;
                record.attempts += 1;
            }
            Edit::RescaleRefused(parallelism) => record.rescale = record.rescale.filter(|wanted| wanted != parallelism),
            Edit::Over { counts, checkpoint } => {
                record.rescale = None;
                (record.counts, record.checkpoint) = (counts.clone(), checkpoint.clone());
            }
        }
    }
}

/// A change that the disk is taking.
pub(crate) struct JobWrite {
    pub(crate) id: ChangeId,
    /// The record as it is afterwards.
    pub(crate) record: Box<JobRecord>,
    pub(crate) then: Then,
}

/// What follows when a change is written, or is not.
pub(crate) enum Then {
    Noted(Box<Note>),
    Asked { request: RequestId, action: String, wish: Wish },
    Recorded,
}

impl Job {
    pub(crate) fn new(record: JobRecord) -> Job {
        let way = if record.state.is_over() { Way::Nobody } else { Way::Later(Vec::new()) };
        Job { book: Book::new(record), way, waiting: VecDeque::new(), writing: None, heartbeats: 0 }
    }

    /// Nothing of it is being written, or waits for that.
    pub(crate) fn is_quiet(&self) -> bool {
        self.writing.is_none() && self.waiting.is_empty()
    }

    /// Its master is alive.
    pub(crate) fn master_is_alive(&mut self) {
        self.heartbeats = 0;
    }

    /// Whether its master is to be told another heartbeat: it says something twice a second, unless it does not get to it.
    pub(crate) fn takes_heartbeat(&mut self) -> bool {
        self.heartbeats = self.heartbeats.saturating_add(1);
        matches!(self.way, Way::Master) && self.heartbeats <= HEARTBEATS_AHEAD_MAX
    }

    /// The wishes that its record still holds, for a master that starts.
    pub(crate) fn open_wishes(&self) -> Vec<Wish> {
        let record = &self.book.record;
        match record.desired {
            Intent::Run => record.rescale.map(Wish::Rescale).into_iter().collect(),
            Intent::Stop => vec![Wish::Stop],
            Intent::Cancel => vec![Wish::Cancel],
        }
    }
}
