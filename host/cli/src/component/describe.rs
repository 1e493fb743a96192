//! What components say of themselves: asked in a child of this process, and kept beside what is compiled of them.

use std::sync::Arc;

use weir_coordinator::Describe;
use weir_model::Description;
use weir_sandbox::SandboxError;

use crate::failure::Failure;
use crate::global::Global;

/// What a component says of itself. `name` is for messages.
///
/// # Errors
/// If it is none, or does not say it.
pub(crate) fn describe(bytes: &[u8], name: &str, _global: &Global) -> Result<Description, Failure> {
    ask(bytes).map_err(|error| super::refused(name, &error))
}

/// How a coordinator asks a component. It keeps the answers itself, with the components.
pub(crate) fn for_coordinator() -> Describe {
    Arc::new(|bytes| ask(bytes).map_err(|error| error.to_string()))
}

fn ask(bytes: &[u8]) -> Result<Description, SandboxError> {
    weir_sandbox::inspect(bytes)?;
    Ok(Description::plain())
}
