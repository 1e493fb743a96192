//! What an upload is made of, for people and for `weir component inspect`.

use serde::Serialize;

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
    /// True if it exports weir:operator/portable@0.1.0.
    pub is_portable: bool,
    /// The kinds of snapshot that can be taken of it.
    pub snapshots: Vec<SnapshotKind>,
    /// Languages and tools that made it, from its producers sections, without repetition.
    pub toolchain: Vec<Tool>,
    /// True if the upload was a core module with an embedded component type.
    pub componentized: bool,
}

/// A linear memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct MemoryInfo {
    /// Size at instantiation, in pages of 64 KiB.
    pub initial_pages: u64,
    /// Size it may grow to; none means the limit of the instance.
    pub maximum_pages: Option<u64>,
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

/// One entry of a producers section.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Tool {
    /// `language`, `processed-by` or `sdk`.
    pub role: String,
    /// Name of the language or tool.
    pub name: String,
    /// Its version, as it says.
    pub version: String,
}
