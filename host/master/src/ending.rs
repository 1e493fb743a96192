//! The end of an execution: its workers are told, and waited for, but not for ever.

use std::collections::BTreeSet;
use std::time::Duration;

use weir_protocol::{Command, Report, WorkerId};

use crate::deployed::Deployed;
use crate::ended::Ended;
use crate::limits::Limits;
use crate::meters::{CheckpointCounts, Meters};
use crate::{Notice, Output, Progress};

/// An execution that ends.
pub(crate) struct Ending {
    deployed: Deployed,
    /// Why; none for a trial that went well.
    why: Option<Ended>,
    /// What it has counted, if its tasks ran.
    counts: Option<(Meters, CheckpointCounts)>,
    /// Workers whose tasks have not ended.
    missing: BTreeSet<WorkerId>,
    since_ms: u64,
    /// It was told that it takes long.
    told: bool,
    ms_max: u64,
}

/// What remains of an execution whose tasks have ended.
pub(crate) struct Remains {
    pub(crate) why: Option<Ended>,
    /// How far it came, if its tasks ran.
    pub(crate) progress: Option<Box<Progress>>,
}

impl Ending {
    /// Tells its workers to end it.
    pub(crate) fn begin(
        deployed: Deployed,
        why: Option<Ended>,
        counts: Option<(Meters, CheckpointCounts)>,
        now_ms: u64,
        limits: &Limits,
        out: &mut Vec<Output>,
    ) -> Ending {
        // What was handed over is still written where the job ends well.
        let finish = why.as_ref().is_some_and(Ended::is_well);
        deployed.tell_all(|execution| Command::Cancel { execution, finish }, out);
        let is_trial = deployed.id.attempt.0 == 0;
        // Whoever tries says what follows from it.
        if let Some(notice) = why.as_ref().filter(|_| !is_trial).and_then(Ended::notice) {
            out.push(Output::Notice(notice));
        }
        let ms_max = if is_trial { limits.trial_end_ms_max } else { limits.end_ms_max };
        Ending { missing: deployed.alive.clone(), deployed, why, counts, since_ms: now_ms, told: false, ms_max }
    }

    /// Whether nobody is waited for any more.
    pub(crate) fn is_over(&self) -> bool {
        self.missing.is_empty()
    }

    /// Whether the job is over once the tasks have ended, whatever anybody wishes meanwhile.
    pub(crate) fn ends_job(&self) -> bool {
        match &self.why {
            Some(Ended::Finished | Ended::Stopped | Ended::StoppedBefore | Ended::Cancelled | Ended::AlreadyFinished { .. }) => {
                true
            }
            Some(Ended::FailedForGood(_) | Ended::Refused(_)) => true,
            Some(Ended::Rescaled(_) | Ended::Failed(_) | Ended::Damaged { .. }) | None => false,
        }
    }

    /// The execution.
    pub(crate) fn deployed(&self) -> &Deployed {
        &self.deployed
    }

    /// A worker of this execution says something.
    pub(crate) fn report(&mut self, worker: &WorkerId, report: Report) {
        if let Report::Ended { progress, .. } = report
            && self.missing.remove(worker)
            && let Some((meters, _)) = &mut self.counts
        {
            meters.hear(worker, *progress);
        }
    }

    /// A worker is lost.
    pub(crate) fn lost(&mut self, worker: &WorkerId) {
        self.missing.remove(worker);
        self.deployed.alive.remove(worker);
    }

    /// Nobody is waited for any more.
    pub(crate) fn give_up(&mut self) {
        self.missing.clear();
    }

    /// When [`Ending::tick`] is due.
    pub(crate) fn deadline_ms(&self, limits: &Limits) -> u64 {
        self.since_ms.saturating_add(if self.told { self.ms_max } else { limits.slow_end_ms })
    }

    /// Time has passed. Whoever is missing after the longest wait is not waited for any more.
    pub(crate) fn tick(&mut self, now_ms: u64, limits: &Limits, out: &mut Vec<Output>) {
        if now_ms < self.deadline_ms(limits) || self.is_over() {
            return;
        }
        let waited_ms = now_ms - self.since_ms;
        let workers = self.missing.iter().map(|worker| worker.to_string()).collect();
        let (waited, patience) = (Duration::from_millis(waited_ms), Duration::from_millis(self.ms_max));
        out.push(Output::Notice(Notice::SlowEnd { workers, waited, patience }));
        self.told = true;
        if waited_ms >= self.ms_max {
            self.missing.clear();
        }
    }

    /// What remains of it.
    pub(crate) fn remains(self, now_ms: u64) -> Remains {
        let Ending { deployed, why, counts, .. } = self;
        let progress = counts.map(|(mut meters, counts)| {
            Box::new(meters.read(now_ms, &deployed.job, &deployed.topology, &deployed.placement, counts))
        });
        Remains { why, progress }
    }
}
