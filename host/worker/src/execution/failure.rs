//! What can be done about an error. Whatever ends an execution on a worker becomes a [`Failure`] here, and nowhere else.

use weir_connectors::ConnectorError;
use weir_plan::Diagnostics;
use weir_protocol::panics::bug;
use weir_protocol::{Failure, FailureKind};
use weir_sandbox::{ImageError, SandboxError};
use weir_storage::{ErrorKind, StorageError};
use weir_task::TaskError;

use crate::network::PeerLost;

/// A failure on its way to the coordinator: what `?` makes of every error.
#[derive(Debug)]
pub(crate) struct Trouble(pub(crate) Failure);

impl Trouble {
    fn of(kind: FailureKind, reason: impl Into<String>) -> Trouble {
        Trouble(Failure { kind, uid: None, reason: reason.into() })
    }

    /// A restart may help.
    pub(crate) fn transient(reason: impl Into<String>) -> Trouble {
        Trouble::of(FailureKind::Transient, reason)
    }

    /// A person has to mend it.
    pub(crate) fn permanent(reason: impl Into<String>) -> Trouble {
        Trouble::of(FailureKind::Permanent, reason)
    }

    /// An older checkpoint may do where this one is damaged.
    pub(crate) fn damaged(reason: impl Into<String>) -> Trouble {
        Trouble::of(FailureKind::Damaged, reason)
    }

    /// The sandbox does not take a component: it is at fault, at its place in the job file.
    pub(crate) fn component(uid: &str, problems: &Diagnostics) -> Trouble {
        Trouble(Failure { kind: FailureKind::JobFile, uid: Some(uid.to_owned()), reason: problems.to_string() })
    }
}

impl From<Diagnostics> for Trouble {
    fn from(problems: Diagnostics) -> Trouble {
        Trouble::of(FailureKind::JobFile, problems.to_string())
    }
}

impl From<StorageError> for Trouble {
    fn from(error: StorageError) -> Trouble {
        match error.kind() {
            ErrorKind::Damaged => Trouble::damaged(error.to_string()),
            ErrorKind::Retry | ErrorKind::Fenced | ErrorKind::Bug => Trouble::transient(error.to_string()),
            ErrorKind::Configuration => Trouble::permanent(error.to_string()),
        }
    }
}

impl From<&TaskError> for Trouble {
    fn from(error: &TaskError) -> Trouble {
        Trouble::of(if error.is_permanent() { FailureKind::Permanent } else { FailureKind::Transient }, error.to_string())
    }
}

impl From<PeerLost> for Trouble {
    fn from(lost: PeerLost) -> Trouble {
        Trouble::of(FailureKind::PeerLost, format!("the connection to worker {} is lost: {}", lost.worker, lost.reason))
    }
}

/// An error of the sandbox with the operator that it met.
pub(crate) struct OfOperator<'a>(pub(crate) &'a str, pub(crate) SandboxError);

impl From<OfOperator<'_>> for Trouble {
    fn from(OfOperator(uid, error): OfOperator<'_>) -> Trouble {
        match error {
            SandboxError::Open { reason, .. } => {
                Trouble(Failure { kind: FailureKind::Configuration, uid: Some(uid.to_owned()), reason })
            }
            // Whole, and of another version of this program: nothing older is better, and nobody may take it for damage.
            SandboxError::Image(ImageError::Version { .. }) => {
                Trouble::of(FailureKind::Permanent, format!("operator {uid}: {error}"))
            }
            SandboxError::Image(_) => Trouble::damaged(format!("operator {uid}: {error}")),
            error => Trouble::transient(format!("operator {uid}: {error}")),
        }
    }
}

/// An error of a source or sink, outside its task, with which it is.
pub(crate) struct OfConnector<'a>(pub(crate) &'a str, pub(crate) ConnectorError);

impl From<OfConnector<'_>> for Trouble {
    fn from(OfConnector(of, error): OfConnector<'_>) -> Trouble {
        let kind = if error.is_permanent() { FailureKind::Permanent } else { FailureKind::Transient };
        Trouble::of(kind, format!("{of}: {error}"))
    }
}

/// A panic: of what, and its text.
pub(crate) struct Panic<'a>(pub(crate) &'a str, pub(crate) &'a str);

impl From<Panic<'_>> for Trouble {
    fn from(Panic(what, text): Panic<'_>) -> Trouble {
        Trouble::transient(bug(what, text))
    }
}
