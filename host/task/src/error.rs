//! Why a task is over.

use weir_connectors::ConnectorError;
use weir_model::OperatorUid;
use weir_sandbox::{CallError, SandboxError};

/// A failure of a task. The job restarts from its last checkpoint, as its restart strategy says.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    /// The operator's code failed.
    #[error("operator {uid} failed: {reason}")]
    Operator {
        /// The operator.
        uid: OperatorUid,
        /// What it said, or what it did wrong.
        reason: String,
    },
    /// The operator rejected a row, and the job says that this fails it.
    #[error(
        "operator {uid} rejected a row: {reason}; its key is {key} and its value starts with {value}; \
         set on_error = \"dead_letter\" to put such rows aside and go on"
    )]
    Rejected {
        /// The operator.
        uid: OperatorUid,
        /// Why.
        reason: String,
        /// The row's key in quotes; `absent` if it has none.
        key: String,
        /// The start of the row's value in quotes; `absent` if it has none.
        value: String,
    },
    /// The sandbox could not make or capture an instance.
    #[error("operator {uid}: {error}")]
    Sandbox {
        /// The operator.
        uid: OperatorUid,
        /// Why.
        error: SandboxError,
    },
    /// A source or sink failed.
    #[error("{uid}: {error}")]
    Connector {
        /// The source or sink.
        uid: OperatorUid,
        /// Why.
        error: ConnectorError,
    },
    /// What came over a channel, or out of a checkpoint, cannot be right.
    #[error("refused what came from {from}: {reason}; either its worker runs another program, or this is a bug in weir")]
    Peer {
        /// Who sent it.
        from: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The task's thread panicked.
    #[error("task {task} panicked {message}; this is a bug in weir, please report it")]
    Panicked {
        /// The task.
        task: String,
        /// Where, and the panic's message.
        message: String,
    },
}

impl TaskError {
    /// Whether the same will happen again until a person has changed something, so that restarting the job is no use.
    pub fn is_permanent(&self) -> bool {
        match self {
            TaskError::Connector { error, .. } => error.is_permanent(),
            // The job file says that such a row ends the job, and the row comes again after every restart.
            TaskError::Rejected { .. } => true,
            _ => false,
        }
    }

    pub(crate) fn call(uid: &OperatorUid, error: &CallError) -> TaskError {
        TaskError::Operator { uid: uid.clone(), reason: error.to_string() }
    }

    pub(crate) fn connector(uid: &OperatorUid) -> impl FnOnce(ConnectorError) -> TaskError + '_ {
        move |error| TaskError::Connector { uid: uid.clone(), error }
    }
}
