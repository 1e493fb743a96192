//! Why an upload is refused.

use thiserror::Error;

/// Why an upload was refused. Every message names what is wrong, where, and what to do.
#[derive(Debug, Error)]
pub enum IntakeError {
    /// The bytes are no WebAssembly binary.
    #[error(
        "not a WebAssembly component: the file looks like {looks_like}; upload the .wasm file of a component made for world {}",
        crate::names::WORLD
    )]
    NotWasm {
        /// What the bytes seem to be.
        looks_like: String,
    },
    /// Validation failed.
    #[error("not a valid WebAssembly component: {message} (at byte {offset:#x}){hint}")]
    Invalid {
        /// What the validator says.
        message: String,
        /// Where in the file.
        offset: u64,
        /// What to do, starting with "; ", or empty.
        hint: String,
    },
    /// A valid core module that carries no component type.
    #[error("a core module, not a component: {reason}; {hint}")]
    CoreModule {
        /// What is missing or went wrong.
        reason: String,
        /// What to do.
        hint: String,
    },
    /// A valid component that uses something Weir does not take.
    #[error("component refused: {construct} in {location}; {hint}")]
    Refused {
        /// The construct that is refused, by name.
        construct: String,
        /// Where it is: module, function, component.
        location: String,
        /// What to do.
        hint: String,
    },
    /// A bound of `weir_model::limits` is exceeded.
    #[error("component refused: {what} is {actual}, more than the limit of {limit}; {hint}")]
    Limit {
        /// What is bounded.
        what: String,
        /// What the upload has; may be a lower bound, as counting ends at the limit.
        actual: u64,
        /// The limit.
        limit: u64,
        /// What to do.
        hint: String,
    },
    /// The name or version given is not usable.
    #[error("cannot stamp a component as {name}@{version}: {reason}")]
    Name {
        /// The name given.
        name: String,
        /// The version given.
        version: String,
        /// What is wrong.
        reason: String,
    },
    /// Instrumentation produced something invalid: a bug in Weir.
    #[error("instrumenting the component failed: {message}; this is a bug in weir, please report it with the component")]
    Internal {
        /// What went wrong.
        message: String,
    },
}
