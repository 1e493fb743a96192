//! What happens to an uploaded component before it is compiled: check it, turn a core module into a component, and
//! instrument it so that every mutable global can be read and written from outside.
//!
//! Owns the rules for what Weir accepts and the shape of the instrumentation. Bytes in, bytes out: it never compiles or
//! runs anything, and touches no file, clock or engine.
//!
//! Two components come out of one upload. `init` behaves like the upload and is instantiated once, for the template.
//! `run` has the same core instances, memories and globals in the same order, but instantiating it runs no guest code
//! and copies no data; it is what every instance is made from, over the template's memory image.

mod accessor;
mod componentize;
mod contract;
mod error;
mod features;
mod handles;
mod inspection;
mod instrument;
mod name;
mod scan;
mod scan_module;
mod sections;
mod structure;
mod tree;

#[cfg(test)]
mod tests;

pub use error::IntakeError;
pub use inspection::{Inspection, SnapshotKind};
pub use tree::{MemoryInfo, Tool};

use std::borrow::Cow;

use sha2::{Digest as _, Sha256};
use weir_model::Digest;

use instrument::Variant;
use tree::Tree;

/// An upload that passed the checks, with what is needed to run and snapshot it.
#[derive(Debug, Clone)]
pub(crate) struct PreparedUpload {
    /// SHA-256 of the uploaded bytes: the component's identity.
    pub(crate) digest: Digest,
    /// `name@version`, if the upload carries it (see [`stamp`]).
    pub(crate) name: Option<String>,
    /// What the upload is made of.
    pub(crate) inspection: Inspection,
    /// The instrumented component. Instantiated once per template: its start-up code runs, its data is copied.
    pub(crate) init: Vec<u8>,
    /// The same without start sections and with all active data made empty and passive.
    pub(crate) run: Vec<u8>,
    /// One for each core instance that holds mutable globals, in a fixed order, the same for `init` and `run`.
    pub(crate) accessors: Vec<Accessor>,
}

/// The way to one core instance's mutable globals: an instance the instrumented component exports, with the functions
/// `get: func(slot: u32) -> u64` and `set: func(slot: u32, value: u64)`. Both trap on a slot that does not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Accessor {
    /// Name of the top-level instance export.
    pub(crate) export: String,
    /// Number of slots. A v128 global takes two, low half first. i32 and f32 use the low 32 bits.
    pub(crate) slots: u32,
}

/// Checks and instruments an upload.
///
/// # Errors
///
/// An [`IntakeError`] that names the construct that is refused, where it is, and what to do about it.
pub(crate) fn prepare(bytes: &[u8]) -> Result<PreparedUpload, IntakeError> {
    let checked = check(bytes)?;
    let accessors = checked.tree.components[0].accessors.iter().enumerate();
    let accessors = accessors.map(|(position, &slots)| Accessor { export: instrument::export_name(position), slots }).collect();
    Ok(PreparedUpload {
        digest: checked.digest,
        name: checked.inspection.name.clone(),
        init: instrument::component(&checked.tree, 0, &checked.component, Variant::Init)?,
        run: instrument::component(&checked.tree, 0, &checked.component, Variant::Run)?,
        accessors,
        inspection: checked.inspection,
    })
}

/// Checks an upload and describes it, without instrumenting it.
///
/// # Errors
///
/// As [`prepare`].
pub(crate) fn inspect(bytes: &[u8]) -> Result<Inspection, IntakeError> {
    Ok(check(bytes)?.inspection)
}

/// Adds the name and version to an upload, or replaces those it has. The result is another component with another
/// digest, the same code.
///
/// # Errors
///
/// If `bytes` is no WebAssembly binary, or the name or version is not usable in a job file.
pub(crate) fn stamp(bytes: &[u8], name: &str, version: &str) -> Result<Vec<u8>, IntakeError> {
    structure::outline(bytes)?;
    name::stamp(bytes, name, version)
}

struct CheckedUpload<'a> {
    digest: Digest,
    component: Cow<'a, [u8]>,
    tree: Tree,
    inspection: Inspection,
}

fn check(bytes: &[u8]) -> Result<CheckedUpload<'_>, IntakeError> {
    let mut outline = structure::outline(bytes)?;
    let name = name::read(bytes)?;
    let digest = Digest(Sha256::digest(bytes).into());
    let mut tree = scan::scan(bytes)?;
    let mut component = Cow::Borrowed(bytes);
    let componentized = !outline.is_component;
    if componentized {
        component = Cow::Owned(componentize::componentize(bytes)?);
        outline = structure::walk(&component)?;
        tree = scan::scan(&component)?;
    }
    if tree.components.is_empty() {
        return Err(IntakeError::Internal { message: "no component was found".to_string() });
    }
    contract::check(&tree.imports, &tree.exports)?;
    let inspection = inspection::describe(bytes, digest, name, outline, &tree, componentized);
    Ok(CheckedUpload { digest, component, tree, inspection })
}
