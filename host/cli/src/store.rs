//! Components as commands and job files name them: in the store of this machine, or a file.

use std::path::Path;

use weir_model::Digest;
use weir_plan::ComponentRef;
use weir_storage::{Bundled, ComponentError, ComponentErrorKind};

use crate::failure::{Exit, Failure};
use crate::{files, sdk};

pub(crate) use weir_storage::{ComponentStore, digest_of};

/// The first-party operators, as they are in the repository's operators/bundled.
static FIRST_PARTY: &[Bundled] = sdk::FIRST_PARTY;

/// The store in a data folder, with the operators that are in this binary.
pub(crate) fn open(data_dir: &Path) -> ComponentStore {
    ComponentStore::open(data_dir).with_bundled(FIRST_PARTY)
}

/// A component that was found.
#[derive(Debug)]
pub(crate) struct ResolvedComponent {
    /// Its bytes, as they were uploaded.
    pub(crate) bytes: Vec<u8>,
    /// SHA-256 of the bytes.
    pub(crate) digest: Digest,
    /// `name@version`, or the path of its file as the job file has it.
    pub(crate) name: String,
}

/// Finds the component that a job file names. Relative paths count from `job_dir`.
pub(crate) fn resolve(store: &ComponentStore, component: &ComponentRef, job_dir: &Path) -> Result<ResolvedComponent, Failure> {
    match component {
        ComponentRef::Path(path) => {
            let file = job_dir.join(path);
            let bytes = files::read(&file, "component").map_err(|failure| match failure.hint {
                None if !file.exists() => failure.hint("`weir component build` makes it"),
                _ => failure,
            })?;
            Ok(ResolvedComponent { digest: digest_of(&bytes), bytes, name: path.clone() })
        }
        ComponentRef::Named { name, version } => {
            let digest = store.get(name, version)?.digest;
            Ok(ResolvedComponent { bytes: store.bytes(digest)?, digest, name: format!("{name}@{version}") })
        }
    }
}

impl From<ComponentError> for Failure {
    fn from(error: ComponentError) -> Failure {
        let exit = match error.kind {
            ComponentErrorKind::Unknown => Exit::Usage,
            ComponentErrorKind::Taken => Exit::Refused,
            ComponentErrorKind::Io | ComponentErrorKind::Damaged => Exit::Failed,
        };
        Failure { hint: error.hint, ..Failure::new(error.code, exit, error.message) }
    }
}

/// The beginning of a digest, for messages.
pub(crate) fn short(digest: &str) -> &str {
    digest.get(..12).unwrap_or(digest)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    #[test]
    fn a_path_counts_from_the_job_files_folder() {
        let folder = tempfile::tempdir().unwrap();
        let store = ComponentStore::open(folder.path());
        std::fs::write(folder.path().join("op.wasm"), b"op").unwrap();
        let found = resolve(&store, &ComponentRef::Path("op.wasm".to_owned()), folder.path()).unwrap();
        assert_eq!((found.bytes.as_slice(), found.name.as_str()), (&b"op"[..], "op.wasm"));
        let failure = resolve(&store, &ComponentRef::Path("opp.wasm".to_owned()), folder.path()).unwrap_err();
        assert!(failure.hint.as_ref().is_some_and(|hint| hint.ends_with("op.wasm?")), "{failure:?}");
        let failure = resolve(&store, &ComponentRef::Path("my-counter.wasm".to_owned()), folder.path()).unwrap_err();
        assert!(failure.hint.as_ref().is_some_and(|hint| hint.contains("component build")), "{failure:?}");
    }

    #[test]
    fn a_name_stands_for_what_the_store_has() {
        let folder = tempfile::tempdir().unwrap();
        let store = ComponentStore::open(folder.path());
        let named = ComponentRef::Named { name: "count".to_owned(), version: "1.0.0".to_owned() };
        let missing = resolve(&store, &named, folder.path()).unwrap_err();
        assert_eq!((missing.number.as_ref(), missing.exit), ("E0020", Exit::Usage));
        store.push(b"one", "count", "1.0.0").unwrap();
        let found = resolve(&store, &named, folder.path()).unwrap();
        assert_eq!((found.bytes.as_slice(), found.digest, found.name.as_str()), (&b"one"[..], digest_of(b"one"), "count@1.0.0"));
        assert_eq!(Failure::from(store.push(b"two", "count", "1.0.0").unwrap_err()).exit, Exit::Refused);
    }
}
