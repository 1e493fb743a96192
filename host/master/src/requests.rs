//! Requests to the storage that are not answered yet: each has a number and a deadline, and whoever is late is told of.
//!
//! Owns what counts as an answer: one to a request that was given up is dropped here and nowhere else. The same for slots and records.

use std::time::Duration;

use crate::limits::Limits;
use crate::{Notice, Output, RequestId, Store, StoreFailure, StoreFailureKind};

struct Open {
    request: RequestId,
    what: String,
    asked_ms: u64,
    /// When it is told of as slow.
    tell_ms: u64,
    deadline_ms: u64,
}

/// The requests of a master.
pub(crate) struct Requests {
    /// Where the storage is, for people.
    place: String,
    last: RequestId,
    open: Vec<Open>,
}

impl Requests {
    pub(crate) fn new(place: String) -> Requests {
        Requests { place, last: RequestId(0), open: Vec::new() }
    }

    /// Asks for something that is answered.
    pub(crate) fn ask(&mut self, now_ms: u64, limits: &Limits, what: Store, out: &mut Vec<Output>) -> RequestId {
        self.last.0 += 1;
        let request = self.last;
        let deadline_ms = now_ms.saturating_add(wait_ms_max(&what, limits));
        let tell_ms = now_ms.saturating_add(limits.slow_storage_ms);
        self.open.push(Open { request, what: describe(&what), asked_ms: now_ms, tell_ms, deadline_ms });
        out.push(Output::Store { request, what, deadline_ms });
        request
    }

    /// Asks for something that is not answered.
    pub(crate) fn tell(&mut self, now_ms: u64, limits: &Limits, what: Store, out: &mut Vec<Output>) {
        self.last.0 += 1;
        out.push(Output::Store { request: self.last, deadline_ms: now_ms.saturating_add(limits.store_begin_ms_max), what });
    }

    /// Whether an answer to this request is waited for. It is not, from now on.
    pub(crate) fn answered(&mut self, request: RequestId) -> bool {
        let before = self.open.len();
        self.open.retain(|open| open.request != request);
        self.open.len() < before
    }

    /// Whether an answer to this request is waited for.
    pub(crate) fn awaits(&self, request: RequestId) -> bool {
        self.open.iter().any(|open| open.request == request)
    }

    /// No answer is waited for any more.
    pub(crate) fn forget(&mut self) {
        self.open.clear();
    }

    /// When [`Requests::tick`] is due.
    pub(crate) fn deadline_ms(&self) -> Option<u64> {
        self.open.iter().map(|open| open.tell_ms.min(open.deadline_ms)).min()
    }

    /// Tells of those that are slow, and gives one that is late, which counts as answered.
    pub(crate) fn tick(&mut self, now_ms: u64, out: &mut Vec<Output>) -> Option<(RequestId, StoreFailure)> {
        for open in self.open.iter_mut().filter(|open| open.tell_ms <= now_ms && now_ms < open.deadline_ms) {
            let waited_ms = now_ms - open.asked_ms;
            open.tell_ms = now_ms.saturating_add(waited_ms.max(1));
            let (what, place) = (open.what.clone(), self.place.clone());
            out.push(Output::Notice(Notice::SlowStorage { what, place, waited: Duration::from_millis(waited_ms) }));
        }
        let late = self.open.iter().position(|open| open.deadline_ms <= now_ms)?;
        let Open { request, what, asked_ms, .. } = self.open.remove(late);
        let reason = format!(
            "{} has not answered for {} s: {what}; it may be a network or a mount that hangs, and what was asked for may still be done",
            self.place,
            (now_ms - asked_ms) / 1_000
        );
        Some((request, StoreFailure { kind: StoreFailureKind::TimedOut, reason }))
    }
}

/// Questions about slots and records that are to be answered, in their order. Only the last answer is to what is wanted now.
#[derive(Default)]
pub(crate) struct Unanswered {
    slots: u32,
    records: u32,
}

impl Unanswered {
    /// What is asked for.
    pub(crate) fn count(&mut self, out: &[Output]) {
        for output in out {
            self.slots += u32::from(matches!(output, Output::Reserve { .. }));
            self.records += u32::from(matches!(output, Output::Record(_)));
        }
    }

    /// An answer about slots; whether it is the last.
    pub(crate) fn slots(&mut self) -> bool {
        self.slots = self.slots.saturating_sub(1);
        self.slots == 0
    }

    /// An answer about a record; whether it is the last.
    pub(crate) fn record(&mut self) -> bool {
        self.records = self.records.saturating_sub(1);
        self.records == 0
    }
}

fn wait_ms_max(what: &Store, limits: &Limits) -> u64 {
    match what {
        Store::Lead { .. } | Store::Newest | Store::Complete { .. } => limits.store_ms_max,
        Store::Claim { .. } | Store::Begin { .. } | Store::Tidy | Store::Remove(_) => limits.store_begin_ms_max,
    }
}

/// What is waited for, in words.
fn describe(what: &Store) -> String {
    match what {
        Store::Claim { fresh: true, .. } => "that the job starts over is being written, and its checkpoints deleted".to_owned(),
        Store::Claim { fresh: false, .. } => "whose state is there is being read".to_owned(),
        Store::Begin { .. } => "an attempt is being begun, and a checkpoint chosen to go on from".to_owned(),
        Store::Lead { attempt } => format!("the newest checkpoint is being read, to take attempt {attempt} over"),
        Store::Newest => "the newest checkpoint is being read, to see whether the job can have another parallelism".to_owned(),
        Store::Complete { manifest, .. } => {
            format!("the manifest of checkpoint {} (attempt {}) is being written", manifest.id(), manifest.attempt)
        }
        Store::Tidy => "old checkpoints are being deleted".to_owned(),
        Store::Remove(_) => "files of a checkpoint that was given up are being deleted".to_owned(),
    }
}
