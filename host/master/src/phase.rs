//! The phases of a job's life, and which may follow which.

use weir_protocol::{Report, WorkerId};

use crate::deploy::Deploy;
use crate::deployed::{Deployed, Planned};
use crate::ending::Ending;
use crate::run::Run;
use crate::{Adopted, RequestId, Shortage, Slots};

/// What comes next where nothing of the job runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It is to start over: operators are opened first, to see whether they can be, before anything is forgotten.
    Trial,
    /// Whose the state is.
    Claim,
    /// An execution.
    Execution,
}

/// What a job is doing.
pub(crate) enum Phase {
    /// Nothing yet.
    New,
    /// Whose the state is is being asked.
    Claim { request: RequestId },
    /// Whether the newest checkpoint can be divided by the parallelism that is wanted is being asked.
    Fit { request: RequestId, wanted: Box<Planned> },
    /// It waits for slots. `said`: what was told of it.
    Slots { said: Option<Shortage> },
    /// It waits until it is restarted.
    Backoff { until_ms: u64 },
    /// An attempt is being begun.
    Begin { request: RequestId, slots: Slots },
    /// An execution that runs is being taken over.
    Lead(Box<Lead>),
    /// An execution is being built.
    Deploy(Box<Deploy>),
    /// An execution runs.
    Run(Box<Run>),
    /// An execution ends.
    End(Box<Ending>),
    /// The job has ended.
    Over,
}

/// An execution that is being taken over: its tasks run, and what is known of their checkpoints is being read.
pub(crate) struct Lead {
    pub(crate) request: RequestId,
    pub(crate) adopted: Adopted,
    pub(crate) deployed: Deployed,
    /// What workers have said meanwhile, but for how far they are. Bounded by what tasks have to say without a checkpoint.
    pub(crate) later: Vec<(WorkerId, Report)>,
}

/// The same without what belongs to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    New,
    Claim,
    Fit,
    Slots,
    Backoff,
    Begin,
    Lead,
    Deploy,
    Run,
    End,
    Over,
}

impl Phase {
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Phase::New => Kind::New,
            Phase::Claim { .. } => Kind::Claim,
            Phase::Fit { .. } => Kind::Fit,
            Phase::Slots { .. } => Kind::Slots,
            Phase::Backoff { .. } => Kind::Backoff,
            Phase::Begin { .. } => Kind::Begin,
            Phase::Lead(_) => Kind::Lead,
            Phase::Deploy(_) => Kind::Deploy,
            Phase::Run(_) => Kind::Run,
            Phase::End(_) => Kind::End,
            Phase::Over => Kind::Over,
        }
    }

    /// The request whose answer ends the phase.
    pub(crate) fn request(&self) -> Option<RequestId> {
        match self {
            Phase::Claim { request } | Phase::Fit { request, .. } | Phase::Begin { request, .. } => Some(*request),
            Phase::Lead(lead) => Some(lead.request),
            Phase::New
            | Phase::Slots { .. }
            | Phase::Backoff { .. }
            | Phase::Deploy(_)
            | Phase::Run(_)
            | Phase::End(_)
            | Phase::Over => None,
        }
    }
}

/// What is there of the job on its workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum There {
    Nothing,
    /// Tasks that run, and wait for a master.
    Unled,
    /// Tasks that are being built.
    Built,
    /// Tasks that run.
    Running,
    /// Tasks that end.
    Ending,
    /// Nothing any more.
    Over,
}

impl Kind {
    pub(crate) fn there(self) -> There {
        match self {
            Kind::New | Kind::Claim | Kind::Fit | Kind::Slots | Kind::Backoff | Kind::Begin => There::Nothing,
            Kind::Lead => There::Unled,
            Kind::Deploy => There::Built,
            Kind::Run => There::Running,
            Kind::End => There::Ending,
            Kind::Over => There::Over,
        }
    }

    /// Whether a job that was in this phase may be in that one next. Every phase may be the last.
    pub(crate) fn leads_to(self, next: Kind) -> bool {
        let nexts: &[Kind] = match self {
            Kind::New => &[Kind::Lead, Kind::Claim, Kind::Slots],
            Kind::Claim => &[Kind::Fit, Kind::Slots, Kind::Backoff],
            Kind::Fit => &[Kind::Slots, Kind::Fit],
            Kind::Slots => &[Kind::Slots, Kind::Fit, Kind::Begin, Kind::Deploy],
            Kind::Backoff => &[Kind::Claim, Kind::Fit, Kind::Slots],
            Kind::Begin => &[Kind::Deploy, Kind::Backoff],
            Kind::Lead => &[Kind::Run, Kind::End],
            Kind::Deploy => &[Kind::Run, Kind::End],
            Kind::Run => &[Kind::End],
            Kind::End => &[Kind::Claim, Kind::Fit, Kind::Slots, Kind::Backoff],
            Kind::Over => return false,
        };
        next == Kind::Over || nexts.contains(&next)
    }
}
