//! What components say of themselves: asked in a child of this process, and kept beside what is compiled of them.

use std::path::PathBuf;
use std::sync::Arc;

use weir_coordinator::Describe;
use weir_model::{Description, ErrorNumber};
use weir_sandbox::{Sandbox, SandboxOptions};

use crate::failure::{Exit, Failure};
use crate::global::Global;
use crate::sandbox;

/// What a component says of itself. `name` is for messages.
///
/// # Errors
/// If it is none, or does not say it.
pub(crate) fn describe(bytes: &[u8], name: &str, global: &Global) -> Result<Description, Failure> {
    asker(Some(sandbox::cache(global)))?.describe(bytes).map_err(|error| super::refused(name, &error))
}

/// How a coordinator asks a component. It keeps the answers itself, with the components.
///
/// # Errors
/// If no sandbox can be started.
pub(crate) fn for_coordinator() -> Result<Describe, Failure> {
    let asker = asker(None)?;
    Ok(Arc::new(move |bytes| asker.describe(bytes).map_err(|error| error.to_string())))
}

/// A sandbox in which no job runs: what it compiles and asks, it does in a child.
///
/// # Errors
/// If it cannot be started.
pub(super) fn asker(cache: Option<PathBuf>) -> Result<Sandbox, Failure> {
    let options = SandboxOptions { cache, compiler: Some(sandbox::compiler()), ..SandboxOptions::default() };
    Sandbox::new(options).map_err(|error| {
        Failure::new(ErrorNumber::SandboxDoesNotStart, Exit::Failed, format!("cannot start the sandbox: {error}"))
    })
}
