//! What people have asked for: an answer comes in bounded time, and what was accepted is done in bounded time.

use std::collections::BTreeMap;

use weir_cluster::{Intent, RequestId, StoredJob};

use crate::ids::ProcessId;

/// Whoever asks is answered within this much virtual time, unless the process ends meanwhile.
const ANSWER_US: u64 = 20_000_000;

/// A job that is to stop has, and one that is to have another parallelism has it or was refused, within this much virtual time after the
/// last fault: a step may stand still for 20 s and the storage for 15 s, several times.
const OBEY_US: u64 = 150_000_000;

/// What is open.
#[derive(Default)]
pub(crate) struct Wishes {
    asked: BTreeMap<RequestId, (ProcessId, u64)>,
    stop_since_us: Option<u64>,
    rescale_since_us: Option<(u32, u64)>,
}

impl Wishes {
    pub(crate) fn ask(&mut self, request: RequestId, process: ProcessId, now_us: u64) {
        self.asked.insert(request, (process, now_us));
    }

    pub(crate) fn answered(&mut self, request: RequestId) {
        self.asked.remove(&request);
    }

    /// A process is no more: whoever asked it sees that.
    pub(crate) fn hung_up(&mut self, process: ProcessId) {
        self.asked.retain(|_, (of, _)| *of != process);
    }

    /// What the disk has taken: what was accepted, and is not done.
    pub(crate) fn note(&mut self, stored: Option<&StoredJob>, now_us: u64) {
        let record = stored.map(|stored| &stored.record).filter(|record| !record.state.is_over());
        let stops = record.is_some_and(|record| record.desired == Intent::Stop);
        self.stop_since_us = stops.then(|| self.stop_since_us.unwrap_or(now_us));
        let rescale = record.filter(|record| record.desired == Intent::Run).and_then(|record| record.rescale);
        let same = |wanted| self.rescale_since_us.filter(|(before, _)| *before == wanted);
        self.rescale_since_us = rescale.map(|wanted| same(wanted).unwrap_or((wanted, now_us)));
    }

    /// What has taken too long. `calm_us`: when the last fault struck.
    pub(crate) fn overdue(&self, now_us: u64, calm_us: u64) -> Option<String> {
        let late = |since_us: u64| now_us > since_us.max(calm_us) + OBEY_US;
        if self.asked.values().any(|(_, since_us)| now_us > since_us + ANSWER_US) {
            return Some("somebody who has asked for something is not answered".to_owned());
        }
        if self.stop_since_us.is_some_and(late) {
            return Some("a job that was told to stop has not".to_owned());
        }
        let (wanted, _) = self.rescale_since_us.filter(|(_, since_us)| late(*since_us))?;
        Some(format!("nothing has become of the wish for parallelism {wanted}"))
    }
}
