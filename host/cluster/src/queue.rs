//! Requests about names, one of which is being written. Pure data; `names` says what becomes of them.

use std::collections::VecDeque;

use weir_model::Epoch;
use weir_protocol::JobSpec;
use weir_protocol::access::Person;

use crate::record::JobRecord;
use crate::words::{ChangeId, NameAsk, RequestId};

/// Requests about names that wait for those before them, at most.
pub(crate) const WAITING_MAX: usize = 1_024;

/// Requests about names.
#[derive(Default)]
pub(crate) struct Names {
    pub(crate) waiting: VecDeque<(RequestId, Person, NameAsk)>,
    pub(crate) writing: Option<NameWrite>,
}

impl Names {
    /// What is being submitted.
    pub(crate) fn submitted(&self) -> impl Iterator<Item = &JobSpec> {
        let written = self.writing.iter().filter_map(|writing| match &writing.then {
            Then::Submitted { record, .. } => Some(&record.spec),
            Then::Removed { .. } | Then::Adopted { .. } => None,
        });
        let waiting = self.waiting.iter().filter_map(|(_, _, ask)| match ask {
            NameAsk::Submit(submission) => Some(&submission.spec),
            NameAsk::Remove(_) | NameAsk::Adopt(_) => None,
        });
        written.chain(waiting)
    }
}

/// A change that the disk is taking.
pub(crate) struct NameWrite {
    pub(crate) id: ChangeId,
    pub(crate) request: RequestId,
    /// What was attempted, for messages.
    pub(crate) action: String,
    pub(crate) then: Then,
}

/// What follows when it is written.
pub(crate) enum Then {
    Submitted { name: String, record: Box<JobRecord> },
    Removed { name: String },
    Adopted { succeeds: Vec<Epoch> },
}
