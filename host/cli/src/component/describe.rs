//! What components say of themselves: asked once for each, in a child of this process, and then kept with them.

use std::sync::Arc;

use weir_coordinator::Describe;
use weir_model::{Description, Digest};
use weir_sandbox::SandboxError;

use crate::failure::Failure;
use crate::global::Global;
use crate::store::ComponentStore;

/// What a component says of itself. `name` is for messages.
///
/// # Errors
/// If it is none, or does not say it.
pub(crate) fn describe(
    store: &ComponentStore,
    bytes: &[u8],
    digest: Digest,
    name: &str,
    global: &Global,
) -> Result<Description, Failure> {
    if let Some(description) = store.description(digest) {
        return Ok(description);
    }
    let description = ask(bytes).map_err(|error| super::refused(name, &error))?;
    // A folder that cannot be written to only costs time.
    if let Err(error) = store.keep_description(digest, &description) {
        global.warn(&format!("{}\n", error.message));
    }
    Ok(description)
}

/// How a coordinator asks a component. It keeps the answers itself.
pub(crate) fn for_coordinator() -> Describe {
    Arc::new(|bytes| ask(bytes).map_err(|error| error.to_string()))
}

fn ask(bytes: &[u8]) -> Result<Description, SandboxError> {
    weir_sandbox::inspect(bytes)?;
    Ok(Description::plain())
}
