//! The door of the crate: takes components in.

use std::sync::Arc;

use wasmtime::component::Component as Code;
use weir_model::Description;

use crate::component::Component;
use crate::describe;
use crate::engine::{SandboxOptions, SharedEngine};
use crate::error::SandboxError;
use crate::intake;
use crate::memory::TrackingInUse;

/// Takes components in. Cheap to clone; clones share one engine.
#[derive(Clone)]
pub struct Sandbox {
    engine: Arc<SharedEngine>,
}

impl Sandbox {
    /// Starts an engine, its ticker thread, and probes how written pages can be tracked here.
    ///
    /// # Errors
    /// If the cache folder cannot be used, kernel tracking was asked for and does not work, or the engine does not start.
    pub fn new(options: SandboxOptions) -> Result<Sandbox, SandboxError> {
        Ok(Sandbox { engine: Arc::new(SharedEngine::new(options)?) })
    }

    /// How written pages are found, and why so.
    pub fn tracking(&self) -> TrackingInUse {
        self.engine.tracking.clone()
    }

    /// Checks and instruments an upload, then compiles it or finds it in the cache.
    ///
    /// Time and memory are bounded by the limits intake sets on sizes, functions and nesting, and by those of the
    /// [`CompilerProcess`](crate::CompilerProcess); without one, compilation cannot be interrupted.
    ///
    /// # Errors
    /// What is wrong with the upload, or what the compiler says about it.
    pub fn take_in(&self, bytes: &[u8]) -> Result<Component, SandboxError> {
        Component::new(self.engine.clone(), intake::prepare(bytes)?)
    }

    /// What an upload says of itself, checked. Found once for each component where there is a cache; otherwise the upload is compiled, and
    /// asked in the [`CompilerProcess`](crate::CompilerProcess), within bounds of time and memory that do not depend on it.
    ///
    /// # Errors
    /// What is wrong with the upload, or with what it says.
    pub fn describe(&self, bytes: &[u8]) -> Result<Description, SandboxError> {
        let prepared = intake::prepare(bytes)?;
        let (digest, inspection) = (prepared.digest, &prepared.inspection);
        let ask = |code: &Code| describe::ask(&self.engine, code);
        self.engine.describe(digest, &prepared.init, ask, |description| describe::check(description, inspection))
    }
}
