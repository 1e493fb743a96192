//! What can go wrong, in words for the person who has to act.

use std::fmt;
use std::io;
use std::path::PathBuf;

use thiserror::Error;
use weir_model::{Digest, limits};

use crate::image::ImageError;
use crate::intake::IntakeError;

/// Why a component could not be taken in, instantiated, captured or restored.
#[derive(Debug, Error)]
pub enum SandboxError {
    /// The upload is refused.
    #[error(transparent)]
    Intake(#[from] IntakeError),
    /// The engine does not start on this machine.
    #[error("cannot start the WebAssembly engine: {0}")]
    Engine(String),
    /// Kernel tracking was asked for and does not work here.
    #[error("cannot track written pages with the kernel: {0}; use tracking \"auto\" or \"hash\"")]
    Tracking(String),
    /// The compile cache cannot be used.
    #[error("cannot {action} in the compile cache at {path}: {source}; check the folder or choose another", path = path.display())]
    Cache {
        /// What was attempted.
        action: &'static str,
        /// The folder or file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// The compiler refuses the component.
    #[error("cannot compile component {digest}: {reason}")]
    Compile {
        /// The component.
        digest: Digest,
        /// What the compiler says.
        reason: String,
    },
    /// The component asks for something the host does not offer, or lacks what the host calls.
    #[error("component {digest} does not fit the contract: {reason}; compare it with wit/weir.wit")]
    Contract {
        /// The component.
        digest: Digest,
        /// What does not fit.
        reason: String,
    },
    /// What the component says of itself cannot be had or used.
    #[error(
        "component {digest} does not describe itself: {reason}; see `lifecycle.describe` in the contract (`weir component wit`)"
    )]
    Describe {
        /// The component.
        digest: Digest,
        /// What is wrong.
        reason: String,
    },
    /// The start-up code or `open` trapped or exceeded a limit.
    #[error("cannot start component {digest}: {trap}")]
    Start {
        /// The component.
        digest: Digest,
        /// What happened.
        trap: Trap,
    },
    /// The guest's own globals could not be read.
    #[error("cannot capture an instance of component {digest}: {trap}")]
    Capture {
        /// The component.
        digest: Digest,
        /// What happened.
        trap: Trap,
    },
    /// `open` returned an error.
    #[error("operator {operator} refused to open: {reason}; check its configuration in the job file")]
    Open {
        /// The operator's id in the job file.
        operator: String,
        /// What the operator says.
        reason: String,
    },
    /// An instance could not be made.
    #[error("cannot instantiate component {digest}: {reason}")]
    Instantiate {
        /// The component.
        digest: Digest,
        /// What happened.
        reason: String,
    },
    /// An instance would need more memory than it may have.
    #[error(
        "an instance of component {digest} needs {needed} bytes of memory, more than the limit of {limit}; raise `limits.memory` of the \
         operator in the job file"
    )]
    MemoryLimit {
        /// The component.
        digest: Digest,
        /// What it needs.
        needed: u64,
        /// What it may have.
        limit: u64,
    },
    /// The operator's instances, or all operators, would hold more memory than they may together.
    #[error("cannot make an instance of component {digest}: {reason}")]
    TotalMemory {
        /// The component.
        digest: Digest,
        /// Which bound, and what to do.
        reason: String,
    },
    /// The operating system refused a mapping or a file in memory.
    #[error("cannot {action}: {source}; check the limits on memory and mappings (vm.max_map_count)")]
    Memory {
        /// What was attempted.
        action: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// A stored image cannot be used.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The instance cannot be captured any more.
    #[error("instance is unusable after a trap ({0}); restore it from its last checkpoint")]
    Unusable(String),
    /// Checkpoints of one instance must have growing numbers.
    #[error("cannot capture for checkpoint {asked}: checkpoint {last} was captured before; numbers must grow")]
    CheckpointOrder {
        /// The number given.
        asked: u64,
        /// The number of the last capture.
        last: u64,
    },
}

/// Why a call into an instance gave no result.
#[derive(Debug, Error)]
pub enum CallError {
    /// The operator returned an error. The instance can be called again.
    #[error("operator failed: {0}")]
    Failed(String),
    /// The operator trapped or exceeded a limit. The instance is unusable.
    #[error("operator trapped: {0}")]
    Trapped(Trap),
    /// The instance trapped before; why.
    #[error("instance is unusable after a trap ({0}); restore it from its last checkpoint")]
    Unusable(String),
    /// The component keeps no state that could be saved as rows.
    #[error("the component exports no portable state ({})", crate::names::PORTABLE)]
    NotPortable,
}

/// How and why a guest was stopped.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{message} ({kind})")]
pub struct Trap {
    /// What sort of trap.
    pub kind: TrapKind,
    /// What happened, and where in the guest if that is known.
    pub message: String,
}

/// Sorts of traps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TrapKind {
    /// A call took longer than its deadline.
    Deadline,
    /// The call stack is exhausted.
    Stack,
    /// An access outside of linear memory.
    MemoryAccess,
    /// The guest gave up: `unreachable`, a panic or an abort.
    Unreachable,
    /// Division by zero, overflow, conversion of a number that does not fit.
    Arithmetic,
    /// An indirect call that leads nowhere.
    Call,
    /// A bound of the host was exceeded: bytes or batches emitted, sizes of what was returned.
    Limit,
    /// What the guest sent breaks the contract.
    Contract,
    /// Anything else.
    Other,
}

impl fmt::Display for TrapKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TrapKind::Deadline => "deadline",
            TrapKind::Stack => "stack",
            TrapKind::MemoryAccess => "memory access",
            TrapKind::Unreachable => "unreachable",
            TrapKind::Arithmetic => "arithmetic",
            TrapKind::Call => "call",
            TrapKind::Limit => "limit",
            TrapKind::Contract => "contract",
            TrapKind::Other => "other",
        })
    }
}

/// A refusal by one of the host's own functions, carried through wasmtime's error type so that it becomes a trap of
/// the right kind.
#[derive(Debug, Error)]
#[error("{message}")]
pub(crate) struct Refusal {
    pub(crate) kind: TrapKind,
    pub(crate) message: String,
}

impl Refusal {
    pub(crate) fn limit(message: impl Into<String>) -> wasmtime::Error {
        wasmtime::Error::new(Refusal { kind: TrapKind::Limit, message: message.into() })
    }

    pub(crate) fn contract(message: impl Into<String>) -> wasmtime::Error {
        wasmtime::Error::new(Refusal { kind: TrapKind::Contract, message: message.into() })
    }
}

/// What wasmtime says when a guest hands the host more than `HOSTCALL_BYTES_MAX`; the error's type is private to it. A test
/// of floods notices when an update says it otherwise.
const HOSTCALL_FUEL_EXHAUSTED: &str =
    "too much data is being copied between the host and the guest: fuel allocated for hostcalls has been exhausted";

/// Frames of the guest named in a trap's message.
const FRAMES_SHOWN_MAX: usize = 6;

impl Trap {
    /// What stopped a guest, from the error of a call into it.
    pub(crate) fn of(error: &wasmtime::Error, deadline: std::time::Duration) -> Trap {
        let (kind, mut message) = if let Some(refusal) = error.downcast_ref::<Refusal>() {
            (refusal.kind, refusal.message.clone())
        } else if let Some(&trap) = error.downcast_ref::<wasmtime::Trap>() {
            match kind_of(trap) {
                TrapKind::Deadline => (
                    TrapKind::Deadline,
                    format!(
                        "the call took longer than its deadline of {} ms (`limits.call` of the operator)",
                        deadline.as_millis()
                    ),
                ),
                TrapKind::Stack => {
                    let max = limits::GUEST_STACK_BYTES_MAX;
                    (TrapKind::Stack, format!("call stack exhausted: calls nest deeper than the {max} bytes that a stack has"))
                }
                kind => (kind, error.root_cause().to_string().trim_start_matches("wasm trap: ").to_string()),
            }
        } else {
            let message = error.root_cause().to_string();
            if message == HOSTCALL_FUEL_EXHAUSTED {
                let max = limits::HOSTCALL_BYTES_MAX;
                (TrapKind::Limit, format!("one call handed the host too much data: more than {max} bytes"))
            } else {
                (TrapKind::Contract, message)
            }
        };
        if let Some(backtrace) = error.downcast_ref::<wasmtime::WasmBacktrace>() {
            let names: Vec<String> = backtrace
                .frames()
                .iter()
                .take(FRAMES_SHOWN_MAX)
                .map(|frame| frame.func_name().map_or_else(|| format!("function {}", frame.func_index()), str::to_string))
                .collect();
            if !names.is_empty() {
                message = format!("{message}; in {}", names.join(" < "));
            }
        }
        Trap { kind, message }
    }

    /// The same with the limit that the guest had met before it gave up, if it had met one: that is why.
    pub(crate) fn after(self, met: Option<String>) -> Trap {
        match met {
            Some(met) => Trap { kind: TrapKind::Limit, message: format!("{met}; then: {}", self.message) },
            None => self,
        }
    }

    /// The same with the number of rows that the call had, where that may be why.
    pub(crate) fn with_rows(mut self, rows: usize) -> Trap {
        if self.kind == TrapKind::Deadline {
            self.message = format!("{}; the call had {rows} rows", self.message);
        }
        self
    }
}

fn kind_of(trap: wasmtime::Trap) -> TrapKind {
    use wasmtime::Trap as T;
    match trap {
        T::Interrupt => TrapKind::Deadline,
        T::StackOverflow => TrapKind::Stack,
        T::MemoryOutOfBounds => TrapKind::MemoryAccess,
        T::UnreachableCodeReached => TrapKind::Unreachable,
        T::IntegerOverflow | T::IntegerDivisionByZero | T::BadConversionToInteger => TrapKind::Arithmetic,
        T::TableOutOfBounds | T::IndirectCallToNull | T::BadSignature | T::NullReference => TrapKind::Call,
        T::AllocationTooLarge => TrapKind::Limit,
        T::InvalidChar
        | T::StringOutOfBounds
        | T::ListOutOfBounds
        | T::InvalidDiscriminant
        | T::UnalignedPointer
        | T::CannotEnterComponent
        | T::CannotLeaveComponent => TrapKind::Contract,
        _ => TrapKind::Other,
    }
}
