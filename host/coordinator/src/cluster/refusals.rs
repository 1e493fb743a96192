//! What people are told when something is not done. Each has a page in docs/errors/.

use weir_model::ErrorNumber;
use weir_plan::Diagnostics;
use weir_protocol::api::{JobState, LedElsewhere, Refusal, RefusalKind};
use weir_storage::{ComponentError, ComponentErrorKind};

use super::elsewhere::NotAdopted;
use crate::metadata::MetadataError;

/// What to do where the coordinator's disk does not do it.
const DISK_HINT: &str = "nothing was changed; look at the coordinator's disk and its log, and try again";

fn refusal(kind: RefusalKind, code: ErrorNumber, message: String, hint: impl Into<String>) -> Refusal {
    Refusal { kind, code: code.to_string(), message, hint: Some(hint.into()) }
}

/// The job file is wrong. The code is that of its first problem.
pub(super) fn job_file(problems: &Diagnostics) -> Refusal {
    let code = problems.iter().next().map_or(ErrorNumber::JobFileSyntax, |problem| problem.code.number());
    Refusal { kind: RefusalKind::Invalid, code: code.to_string(), message: problems.to_string(), hint: None }
}

pub(super) fn component_missing(job: &str, component: &str, digest: Option<String>) -> Refusal {
    let which = digest.map(|digest| format!(" (digest {digest})")).unwrap_or_default();
    let message = format!("cannot submit job {job}: the cluster does not have component {component}{which}");
    let hint = "`weir job submit` uploads what a job names; with other programs, push the component first";
    refusal(RefusalKind::NotFound, ErrorNumber::ComponentMissingOnCluster, message, hint)
}

pub(super) fn not_over(action: &str, name: &str, state: JobState) -> Refusal {
    let message = format!("cannot {action} job {name}: a job of this name is {state}");
    let stop = format!("stop it first (`weir job stop {name}`)");
    let hint = if action == "submit" { format!("{stop}, or give the other job another name") } else { stop };
    refusal(RefusalKind::Conflict, ErrorNumber::JobNotOver, message, hint)
}

pub(super) fn no_job<'a>(action: &str, name: &str, known: impl Iterator<Item = &'a str>) -> Refusal {
    let known: Vec<&str> = known.collect();
    let hint = match weir_model::nearest(name, known.iter().copied()) {
        Some(similar) => format!("did you mean {similar}?"),
        None if known.is_empty() => "there are no jobs; `weir job submit FILE` submits one".to_owned(),
        None => "`weir job ls` lists all jobs".to_owned(),
    };
    refusal(RefusalKind::NotFound, ErrorNumber::NoSuchJob, format!("cannot {action} job {name}: there is no such job"), hint)
}

pub(super) fn over(action: &str, name: &str, state: JobState) -> Refusal {
    let message = format!("cannot {action} job {name}: it is {state} already");
    refusal(RefusalKind::Conflict, ErrorNumber::JobOver, message, "submitted again, it goes on from its last checkpoint")
}

pub(super) fn ending(action: &str, name: &str, how: &str) -> Refusal {
    let message = format!("cannot {action} job {name}: it was asked to {how}");
    refusal(RefusalKind::Conflict, ErrorNumber::JobOver, message, "wait until it is over, and submit it again")
}

pub(super) fn rescale(name: &str, parallelism: u32, reason: &str, hint: &str) -> Refusal {
    let message = format!("cannot change the parallelism of job {name} to {parallelism}: {reason}");
    refusal(RefusalKind::Invalid, ErrorNumber::NotRescalable, message, hint)
}

pub(super) fn not_a_component(reason: &str) -> Refusal {
    let message = format!("cannot keep a component: {reason}");
    refusal(RefusalKind::Invalid, ErrorNumber::NotAComponent, message, "`weir component check FILE` says more")
}

pub(super) fn component(error: ComponentError) -> Refusal {
    let kind = match error.kind {
        ComponentErrorKind::Unknown => RefusalKind::NotFound,
        ComponentErrorKind::Taken => RefusalKind::Conflict,
        // What the store says to do is for a person on its own machine.
        ComponentErrorKind::Io => return refusal(RefusalKind::Internal, error.code, error.message, DISK_HINT),
        ComponentErrorKind::Damaged => RefusalKind::Internal,
    };
    Refusal { kind, code: error.code.to_string(), message: error.message, hint: error.hint }
}

pub(super) fn disk(action: &str, error: &MetadataError) -> Refusal {
    refusal(RefusalKind::Internal, ErrorNumber::CoordinatorDisk, format!("cannot {action}: {error}"), DISK_HINT)
}

pub(super) fn too_many_jobs(name: &str, max: usize) -> Refusal {
    let message = format!("cannot submit job {name}: this coordinator has {max} jobs, and that is as many as it takes");
    refusal(
        RefusalKind::Unavailable,
        ErrorNumber::TooManyJobs,
        message,
        "remove jobs that are over (`weir job rm`), or use another cluster",
    )
}

pub(super) fn coordinator_ends(action: &str) -> Refusal {
    let message = format!("cannot {action}: the coordinator ends");
    refusal(RefusalKind::Unavailable, ErrorNumber::CoordinatorEnds, message, "try again when it is back")
}

/// Workers of a coordinator cannot be adopted.
pub(super) fn not_adopted(origin: &str, why: &NotAdopted, seen: &[LedElsewhere]) -> Refusal {
    let (kind, reason) = match why {
        NotAdopted::NoOrigin => (RefusalKind::Invalid, "that names none: a coordinator's id has at least 8 hexadecimal digits"),
        NotAdopted::Unknown => {
            (RefusalKind::NotFound, "no worker that is led by such a one has tried to join in the last minute")
        }
        NotAdopted::Several => (RefusalKind::Conflict, "workers of several such coordinators have tried to join"),
    };
    let known = |seen: &LedElsewhere| format!("{} (worker {})", seen.led_by.origin_text(), seen.worker);
    let hint = match seen {
        [] => {
            "start the workers with this coordinator's address; `weir cluster status` shows those that follow another".to_owned()
        }
        _ => format!("seen were those of {}", seen.iter().map(known).collect::<Vec<_>>().join(", ")),
    };
    let message = format!("cannot adopt the workers of coordinator `{}`: {reason}", origin.escape_debug());
    refusal(kind, ErrorNumber::NothingToAdopt, message, hint)
}
