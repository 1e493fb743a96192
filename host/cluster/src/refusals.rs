//! What people are told when something is not done. Each has a page in docs/errors/.

use weir_model::ErrorNumber;
use weir_plan::Diagnostics;
use weir_protocol::api::{JobState, Refusal, RefusalKind, StrayWorker};
use weir_storage::{ComponentError, ComponentErrorKind};

use crate::WriteFailure;
use crate::elsewhere::AdoptionRefusal;

/// What to do where the coordinator's disk does not do it.
const DISK_HINT: &str = "nothing was changed; look at the coordinator's disk and its log, and try again";

/// What to do where it does not answer.
const SLOW_HINT: &str = "it may still be done; look at the coordinator's disk and its log, and at the job before you try again";

fn refusal(kind: RefusalKind, code: ErrorNumber, message: String, hint: impl Into<String>) -> Refusal {
    Refusal { kind, code: code.to_string(), message, hint: Some(hint.into()) }
}

/// The job file is wrong. The code is that of its first problem.
pub fn job_file(problems: &Diagnostics) -> Refusal {
    let code = problems.iter().next().map_or(ErrorNumber::JobFileSyntax, |problem| problem.code.number());
    Refusal { kind: RefusalKind::Invalid, code: code.to_string(), message: problems.to_string(), hint: None }
}

/// A component that a job names is not there.
pub fn component_missing(job: &str, component: &str, digest: Option<String>) -> Refusal {
    let which = digest.map(|digest| format!(" (digest {digest})")).unwrap_or_default();
    let message = format!("cannot submit job {job}: the cluster does not have component {component}{which}");
    let hint = "`weir job submit` uploads what a job names; with other programs, push the component first";
    refusal(RefusalKind::NotFound, ErrorNumber::ComponentMissingOnCluster, message, hint)
}

pub(crate) fn not_over(action: &str, name: &str, state: JobState) -> Refusal {
    let message = format!("cannot {action} job {name}: a job of this name is {state}");
    let stop = format!("stop it first (`weir job stop {name}`)");
    let hint = if action == "submit" { format!("{stop}, or give the other job another name") } else { stop };
    refusal(RefusalKind::Conflict, ErrorNumber::JobNotOver, message, hint)
}

/// There is no job of this name; `known` are those there are.
pub fn no_job<'a>(action: &str, name: &str, known: impl Iterator<Item = &'a str>) -> Refusal {
    let known: Vec<&str> = known.collect();
    let hint = match weir_model::nearest(name, known.iter().copied()) {
        Some(similar) => format!("did you mean {similar}?"),
        None if known.is_empty() => "there are no jobs; `weir job submit FILE` submits one".to_owned(),
        None => "`weir job ls` lists all jobs".to_owned(),
    };
    refusal(RefusalKind::NotFound, ErrorNumber::NoSuchJob, format!("cannot {action} job {name}: there is no such job"), hint)
}

pub(crate) fn over(action: &str, name: &str, state: JobState) -> Refusal {
    let message = format!("cannot {action} job {name}: it is {state} already");
    refusal(RefusalKind::Conflict, ErrorNumber::JobOver, message, "submitted again, it goes on from its last checkpoint")
}

pub(crate) fn ending(action: &str, name: &str, how: &str) -> Refusal {
    let message = format!("cannot {action} job {name}: it was asked to {how}");
    refusal(RefusalKind::Conflict, ErrorNumber::JobOver, message, "wait until it is over, and submit it again")
}

pub(crate) fn rescale(name: &str, parallelism: u32, reason: &str, hint: &str) -> Refusal {
    let message = format!("cannot change the parallelism of job {name} to {parallelism}: {reason}");
    refusal(RefusalKind::Invalid, ErrorNumber::NotRescalable, message, hint)
}

/// Bytes are no component.
pub fn not_a_component(reason: &str) -> Refusal {
    let message = format!("cannot keep a component: {reason}");
    refusal(RefusalKind::Invalid, ErrorNumber::NotAComponent, message, "`weir component check FILE` says more")
}

/// The components of a job say so much of themselves that it cannot be sent to workers.
pub fn descriptions_too_large(bytes: usize, bytes_max: usize) -> Refusal {
    let message = format!("cannot submit the job: its components say {bytes} bytes of themselves, and {bytes_max} are the most");
    refusal(RefusalKind::Invalid, ErrorNumber::NotAComponent, message, "use fewer components, or such with shorter descriptions")
}

/// The component store does not do it.
pub fn component(error: ComponentError) -> Refusal {
    let kind = match error.kind {
        ComponentErrorKind::Unknown => RefusalKind::NotFound,
        ComponentErrorKind::Taken => RefusalKind::Conflict,
        // What the store says to do is for a person on its own machine.
        ComponentErrorKind::Io => return refusal(RefusalKind::Internal, error.code, error.message, DISK_HINT),
        ComponentErrorKind::Damaged => RefusalKind::Internal,
    };
    Refusal { kind, code: error.code.to_string(), message: error.message, hint: error.hint }
}

/// A token cannot be created or revoked.
pub fn token(action: &str, why: &str, hint: String) -> Refusal {
    refusal(RefusalKind::Conflict, ErrorNumber::TokenNotChanged, format!("cannot {action}: {why}"), hint)
}

/// There is no such token.
pub fn no_token<'a>(action: &str, name: &str, known: impl Iterator<Item = &'a str>) -> Refusal {
    let hint = match weir_model::nearest(name, known) {
        Some(similar) => format!("did you mean {similar}?"),
        None => "`weir token ls` lists all tokens".to_owned(),
    };
    refusal(RefusalKind::NotFound, ErrorNumber::TokenNotChanged, format!("cannot {action}: there is no such token"), hint)
}

/// The coordinator's disk does not take it.
pub fn disk(action: &str, error: &WriteFailure) -> Refusal {
    refusal(RefusalKind::Internal, ErrorNumber::CoordinatorDisk, format!("cannot {action}: {error}"), DISK_HINT)
}

/// The coordinator's disk takes its time, and as much waits for it as may.
pub fn disk_is_slow(action: &str) -> Refusal {
    let message = format!("cannot {action}: the coordinator's disk has not taken what was asked for before");
    refusal(RefusalKind::Unavailable, ErrorNumber::CoordinatorDisk, message, SLOW_HINT)
}

pub(crate) fn too_many_jobs(name: &str, max: usize) -> Refusal {
    let message = format!("cannot submit job {name}: this coordinator has {max} jobs, and that is as many as it takes");
    refusal(
        RefusalKind::Unavailable,
        ErrorNumber::TooManyJobs,
        message,
        "remove jobs that are over (`weir job rm`), or use another cluster",
    )
}

/// The coordinator ends.
pub fn coordinator_ends(action: &str) -> Refusal {
    let message = format!("cannot {action}: the coordinator ends");
    refusal(RefusalKind::Unavailable, ErrorNumber::CoordinatorEnds, message, "try again when it is back")
}

/// Workers of a coordinator cannot be adopted.
pub(crate) fn not_adopted(origin: &str, why: &AdoptionRefusal, seen: &[StrayWorker]) -> Refusal {
    let (kind, reason) = match why {
        AdoptionRefusal::NoOrigin => {
            (RefusalKind::Invalid, "that names none: a coordinator's id has at least 8 hexadecimal digits")
        }
        AdoptionRefusal::Unknown => {
            (RefusalKind::NotFound, "no worker that is led by such a one has tried to join in the last minute")
        }
        AdoptionRefusal::Several => (RefusalKind::Conflict, "workers of several such coordinators have tried to join"),
    };
    let known = |seen: &StrayWorker| format!("{} (worker {})", seen.led_by.origin_text(), seen.worker);
    let hint = match seen {
        [] => {
            "start the workers with this coordinator's address; `weir cluster status` shows those that follow another".to_owned()
        }
        _ => format!("seen were those of {}", seen.iter().map(known).collect::<Vec<_>>().join(", ")),
    };
    let message = format!("cannot adopt the workers of coordinator `{}`: {reason}", origin.escape_debug());
    refusal(kind, ErrorNumber::NothingToAdopt, message, hint)
}
