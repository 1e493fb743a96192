//! What happens to an uploaded component before it is compiled: check it, turn a core module into a component, and
//! instrument it so that every mutable global can be read and written from outside.
//!
//! Owns the rules for what Weir accepts and the shape of the instrumentation. Bytes in, bytes out: it never compiles or
//! runs anything, and touches no file, clock or engine.
//!
//! Two components come out of one upload. `init` behaves like the upload and is instantiated once, for the template.
//! `run` has the same core instances, memories and globals in the same order, but instantiating it runs no guest code
//! and copies no data; it is what every instance is made from, over the template's memory image.

mod error;
mod inspection;

pub use error::IntakeError;
pub use inspection::{Inspection, MemoryInfo, SnapshotKind, Tool};

use weir_model::Digest;

/// An upload that passed the checks, with what is needed to run and snapshot it.
#[derive(Debug, Clone)]
pub struct Prepared {
    /// SHA-256 of the uploaded bytes: the component's identity.
    pub digest: Digest,
    /// `name@version`, if the upload carries it (see [`stamp`]).
    pub name: Option<String>,
    /// What the upload is made of.
    pub inspection: Inspection,
    /// The instrumented component. Instantiated once per template: its start-up code runs, its data is copied.
    pub init: Vec<u8>,
    /// The same without start sections and with all active data made empty and passive.
    pub run: Vec<u8>,
    /// One for each core instance that holds mutable globals, in a fixed order, the same for `init` and `run`.
    pub accessors: Vec<Accessor>,
}

/// The way to one core instance's mutable globals: an instance the instrumented component exports, with the functions
/// `get: func(slot: u32) -> u64` and `set: func(slot: u32, value: u64)`. Both trap on a slot that does not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accessor {
    /// Name of the top-level instance export.
    pub export: String,
    /// Number of slots. A v128 global takes two, low half first. i32 and f32 use the low 32 bits.
    pub globals: u32,
}

/// Checks and instruments an upload.
///
/// # Errors
///
/// An [`IntakeError`] that names the construct that is refused, where it is, and what to do about it.
pub fn prepare(bytes: &[u8]) -> Result<Prepared, IntakeError> {
    let _ = bytes;
    Err(IntakeError::NotWasm { looks_like: "not implemented".to_string() })
}

/// Checks an upload and describes it, without instrumenting it.
///
/// # Errors
///
/// As [`prepare`].
pub fn inspect(bytes: &[u8]) -> Result<Inspection, IntakeError> {
    let _ = bytes;
    Err(IntakeError::NotWasm { looks_like: "not implemented".to_string() })
}

/// Adds the name and version to an upload, or replaces those it has. The result is another component with another
/// digest, the same code.
///
/// # Errors
///
/// If `bytes` is no WebAssembly binary, or the name or version is not usable in a job file.
pub fn stamp(bytes: &[u8], name: &str, version: &str) -> Result<Vec<u8>, IntakeError> {
    let _ = (bytes, name, version);
    Err(IntakeError::NotWasm { looks_like: "not implemented".to_string() })
}
