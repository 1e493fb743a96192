//! What a coordinator's process is given.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use weir_model::{Description, Digest};
use weir_storage::{JobStorage, StorageError};

/// Tells what bytes say of themselves as a component that operators can run, or why they are none. The coordinator itself never runs
/// one: somebody else asks it, in bounded time.
pub type Describe = Arc<dyn Fn(&[u8]) -> Result<Description, String> + Send + Sync>;

/// Opens the checkpoints of a job below a URL: (URL, name of the job).
pub type OpenStorage = Arc<dyn Fn(&str, &str) -> Result<JobStorage, StorageError> + Send + Sync>;

/// What a coordinator is made of.
#[derive(Clone)]
pub struct ServeOptions {
    /// Folder of everything it must not forget: jobs, events, components. One coordinator at a time works on it.
    pub data_dir: PathBuf,
    /// Folder of its certificate, as `weir cluster init` makes it.
    pub identity_dir: PathBuf,
    /// Where workers connect to. Port 0: any free one.
    pub listen: SocketAddr,
    /// Where the checkpoints of jobs are that do not say it themselves: a URL that every worker can reach.
    pub default_storage: String,
    /// Opens them, or refuses to.
    pub storage: OpenStorage,
    /// SHA-256 of the token in the coordinator's token file, if there is one: an admin's from the first start on.
    pub token: Option<Digest>,
    /// Looks at components before they are kept.
    pub describe: Describe,
}
