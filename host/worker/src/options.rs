//! What a job needs to know of the process it runs in.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use weir_plan::ComponentRef;
use weir_sandbox::Sandbox;
use weir_task::InstanceFactory;

/// A component, found.
pub struct ResolvedComponent {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// `name@version`, or the file it came from.
    pub name: String,
}

/// Where components are found.
pub trait Components: Send + Sync {
    /// Finds a component.
    ///
    /// # Errors
    /// What was looked for, why it was not found, and a hint, for the person who wrote the job file.
    fn resolve(&self, component: &ComponentRef) -> Result<ResolvedComponent, String>;
}

/// Where and how a job runs.
#[derive(Clone)]
pub struct Options {
    /// Folder for what the job keeps: checkpoints by default, dead letters without a sink.
    pub data_dir: PathBuf,
    /// Folder of the job file: relative paths in it start here.
    pub job_dir: PathBuf,
    /// Path of the job file. Another file with the same job name is refused the state of this one.
    pub origin: String,
    /// Forget all checkpoints and start over.
    pub fresh: bool,
    /// Go on although the checkpoint has state of an operator that the job no longer has.
    pub allow_dropped_state: bool,
    /// Runs components.
    pub sandbox: Sandbox,
    /// Finds components.
    pub components: Arc<dyn Components>,
    /// Operators that run natively instead of their component, by uid. For measuring what the sandbox costs: their state is
    /// not captured.
    pub native: BTreeMap<String, Arc<dyn InstanceFactory>>,
}
