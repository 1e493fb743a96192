//! What an upload is made of, for people and for `weir component inspect`.

use serde::Serialize;
use weir_model::Digest;

use super::contract;
use super::structure::Outline;
use super::tree::{MemoryInfo, Tool, Tree};

/// What an upload is made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Inspection {
    /// SHA-256 of the uploaded bytes, in hex.
    pub digest: String,
    /// Size of the uploaded bytes.
    pub size_bytes: u64,
    /// `name@version`, if the upload carries it.
    pub name: Option<String>,
    /// Names of the component's exports, in order.
    pub exports: Vec<String>,
    /// Names of the component's imports, in order.
    pub imports: Vec<String>,
    /// Linear memories of one instance, in order of creation.
    pub memories: Vec<MemoryInfo>,
    /// Mutable globals that the core instances of one instance define.
    pub mutable_globals_defined: u32,
    /// Those of them that are part of a memory image; the others are never written.
    pub mutable_globals_captured: u32,
    /// Core modules defined anywhere in the component.
    pub core_modules: u32,
    /// Core instances made from a core module when the component is instantiated.
    pub core_instances: u32,
    /// Core functions defined anywhere in the component.
    pub functions: u32,
    /// Levels of components: 1 if none is nested.
    pub nesting: u32,
    /// True if it exports `portable`: its state can be saved as rows.
    pub is_portable: bool,
    /// The kinds of snapshot that can be taken of it, unless it says that it keeps no state.
    pub snapshots: Vec<SnapshotKind>,
    /// Languages and tools that made it, from its producers sections, without repetition.
    pub toolchain: Vec<Tool>,
    /// True if the upload was a core module with an embedded component type.
    pub componentized: bool,
}

/// A kind of snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SnapshotKind {
    /// Memories and globals; fits the same component only.
    Image,
    /// Rows written by `portable.save`; outlives the code.
    Portable,
}

pub(super) fn describe(
    bytes: &[u8],
    digest: Digest,
    name: Option<String>,
    outline: Outline,
    tree: &Tree,
    componentized: bool,
) -> Inspection {
    let totals = tree.components[0].totals;
    let is_portable = contract::is_portable(&tree.exports);
    let names = |list: &[(String, bool)]| list.iter().map(|(name, _)| name.clone()).collect();
    Inspection {
        digest: digest.to_string(),
        size_bytes: bytes.len() as u64,
        name,
        exports: names(&tree.exports),
        imports: names(&tree.imports),
        memories: tree.memories(0),
        mutable_globals_defined: bounded(totals.mutable_defined),
        mutable_globals_captured: bounded(totals.globals_captured),
        core_modules: bounded(tree.modules.len() as u64),
        core_instances: bounded(totals.core_instances),
        functions: outline.functions,
        nesting: outline.nesting,
        is_portable,
        snapshots: if is_portable { vec![SnapshotKind::Image, SnapshotKind::Portable] } else { vec![SnapshotKind::Image] },
        toolchain: tree.toolchain.iter().cloned().collect(),
        componentized,
    }
}

fn bounded(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
