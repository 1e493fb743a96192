//! Operators are foreign code: WebAssembly components. This crate takes them in, runs them, bounds them, and turns
//! everything they know into images that can be stored and restored.
//!
//! Floor 2. Owns the engine, the compile cache, templates, instances and memory images. It is the only crate with
//! `unsafe` code (memory mappings, pages). It never touches job files, storage or channels, and never runs guest code
//! when it restores.
//!
//! The way of a component: [`Sandbox::take_in`] checks, instruments and compiles an upload into a [`Component`];
//! [`Template::open`] runs its start-up code once and seals the result; every [`Instance`] is a copy-on-write overlay of a
//! template. [`Instance::capture`] copies the pages written since the last completed checkpoint, [`Instance::restore`] builds
//! an instance from a chain of such captures.

mod account;
mod bindings;
mod cache;
mod child;
mod compiler;
mod component;
mod config;
mod describe;
mod emitted_rows;
mod engine;
mod error;
#[doc(hidden)]
pub mod fuzz;
mod guest;
mod host;
mod image;
mod instance;
mod intake;
mod limits;
mod lowering;
mod memory;
mod names;
mod output;
mod parts;
mod reports;
mod rows_out;
mod sandbox;
mod template;

#[cfg(test)]
mod tests;

pub use bindings::LogLevel;
pub use child::compile_as_child;
pub use compiler::CompilerProcess;
pub use component::{Component, OperatorContext};
pub use emitted_rows::{EmittedRows, Mark};
pub use engine::SandboxOptions;
pub use error::{CallError, SandboxError, Trap, TrapKind};
pub use guest::KeyShare;
pub use image::{Capture, EncodedImage, ImageError, merge};
pub use instance::{Instance, Rejection};
pub use intake::{Inspection, IntakeError, MemoryInfo, SnapshotKind, Tool};
pub use limits::InstanceLimits;
pub use memory::{Tracking, TrackingInUse, keep_memory_past_the_end};
pub use reports::HostEvents;
pub use sandbox::Sandbox;
pub use template::Template;

/// Says what a component is made of, without compiling it: digest, name, exports, imports, memories, globals, which
/// snapshots it allows.
///
/// # Errors
/// What is wrong with the bytes, if they are no component this host takes in.
pub fn inspect(bytes: &[u8]) -> Result<Inspection, SandboxError> {
    Ok(intake::inspect(bytes)?)
}

/// The component with a name and a version written into it, replacing those it had. Its code is unchanged; its digest
/// is not.
///
/// # Errors
/// If the bytes are no WebAssembly binary, or the name or version cannot be used in a job file.
pub fn stamp(bytes: &[u8], name: &str, version: &str) -> Result<Vec<u8>, SandboxError> {
    Ok(intake::stamp(bytes, name, version)?)
}
