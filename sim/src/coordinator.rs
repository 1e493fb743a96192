//! The coordinator's computer: its processes, each with the cluster's machine and the master of the one job that there is, and what its disk
//! holds. What happens to them is in `world/coordinator.rs`, what they ask the storage for in `world/storekeeper.rs`.
//!
//! What the disk has taken survives a process, nothing else does. Usually there is one process; one that is paused while another
//! takes its place goes on afterwards, and believes that it leads.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use weir_cluster::{Machine, StoredJob};
use weir_master::{Master, RequestId, Store};
use weir_model::Epoch;
use weir_protocol::api::JobState;
use weir_storage::JobLog;

use crate::ids::{ProcessId, Session};
use crate::scenario::Edition;

/// One process.
pub(crate) struct Process {
    pub(crate) machine: Machine,
    pub(crate) master: Option<Master>,
    pub(crate) links: BTreeMap<Session, usize>,
    /// The job's log, as this process knows it. What it has asked for may be done when it is no more.
    pub(crate) log: Arc<Mutex<JobLog>>,
    /// What the storage is asked for, in order.
    pub(crate) requests: VecDeque<Request>,
    /// When the request that is carried out counts for nothing any more.
    pub(crate) storing_until_us: Option<u64>,
    /// When the last change of the metadata is with the disk.
    pub(crate) written_us: u64,
    pub(crate) tick_us: Option<u64>,
}

/// The coordinator's machine, as in: computer.
pub(crate) struct Coordinator {
    pub(crate) processes: BTreeMap<ProcessId, Process>,
    /// The process that workers connect to; none while it is down.
    pub(crate) current: Option<ProcessId>,
    pub(crate) newest: ProcessId,
    /// A process of another origin, on another computer, that workers find as well; none while there is none.
    pub(crate) stranger: Option<ProcessId>,
    /// The metadata on its disk.
    pub(crate) stored: Option<StoredJob>,
    pub(crate) edition: Edition,
    /// The job was submitted with more time.
    pub(crate) was_given_time: bool,
    pub(crate) asked: u64,
    pub(crate) finished: bool,
    /// For messages.
    pub(crate) said_last: String,
    /// Since when somebody wants the job to be cancelled.
    pub(crate) ending_since_us: Option<u64>,
}

impl Coordinator {
    pub(crate) fn new(edition: Edition) -> Coordinator {
        Coordinator {
            processes: BTreeMap::new(),
            current: None,
            newest: 0,
            stranger: None,
            stored: None,
            edition,
            was_given_time: false,
            asked: 0,
            finished: false,
            said_last: String::new(),
            ending_since_us: None,
        }
    }

    /// The process whose connection with a worker this is, of those that workers find.
    pub(crate) fn process_of(&self, worker: usize, session: Session) -> Option<ProcessId> {
        let mut found = self.current.into_iter().chain(self.stranger);
        let has_link = |id: &ProcessId| self.processes.get(id).is_some_and(|of| of.links.get(&session) == Some(&worker));
        found.find(has_link)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.finished
    }

    /// What it is about, for messages.
    pub(crate) fn describe(&self) -> String {
        let Some(process) = self.current.and_then(|id| self.processes.get(&id)) else {
            return "the coordinator is down".to_owned();
        };
        let (state, requests) = (process.state(), process.requests.len());
        format!("the job is {state:?}, its master said last: {}; {requests} requests to the storage", self.said_last)
    }
}

impl Process {
    /// One that has just started.
    pub(crate) fn new(machine: Machine, log: JobLog) -> Process {
        Process {
            machine,
            master: None,
            links: BTreeMap::new(),
            log: Arc::new(Mutex::new(log)),
            requests: VecDeque::new(),
            storing_until_us: None,
            written_us: 0,
            tick_us: None,
        }
    }

    /// Where the job is in its life; none before it was submitted.
    pub(crate) fn state(&self) -> Option<JobState> {
        self.machine.jobs().first().map(|job| job.state)
    }
}

/// Numbers from here on are those of strangers.
pub(crate) const STRANGERS: ProcessId = 1 << 32;

/// The lives of one coordinator follow each other; a stranger is of another origin.
pub(crate) fn epoch(id: ProcessId) -> Epoch {
    Epoch { origin: if id < STRANGERS { [7; 16] } else { [8; 16] }, count: id % STRANGERS }
}

/// Something that the storage is asked for.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) id: RequestId,
    pub(crate) what: Store,
    pub(crate) deadline_us: u64,
    pub(crate) tries: u64,
}

impl Request {
    pub(crate) fn new(id: RequestId, what: Store, deadline_ms: u64) -> Request {
        Request { id, what, deadline_us: deadline_ms.saturating_mul(1_000), tries: 0 }
    }
}

/// A request whose process does not wait for it.
pub(crate) struct Straggler {
    pub(crate) log: Arc<Mutex<JobLog>>,
    pub(crate) what: Store,
}
