//! The folders of a `file` sink, and looking into them.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;

use crate::reach::Folder;
use crate::{ConnectorError, Reach};

/// Folder of files that are not complete, within the sink's.
pub(super) const PENDING: &str = ".pending";

/// The folder of a sink, or its pending one.
pub(super) fn open(reach: &Reach, folder: &Path) -> Result<Folder, ConnectorError> {
    reach.folder(folder).map_err(|error| ConnectorError::io("open the folder", folder, error))
}

/// The names in a folder.
pub(super) fn list(folder: &Folder) -> Result<Vec<OsString>, ConnectorError> {
    let entries = folder.list().map_err(|error| ConnectorError::io("list the folder", folder.path(), error))?;
    Ok(entries.into_iter().map(|entry| entry.name).collect())
}

/// Waits until the names in a folder are on the disk.
pub(super) fn sync(folder: &Folder) -> Result<(), ConnectorError> {
    folder.sync().map_err(|error| ConnectorError::io("sync the folder", folder.path(), error))
}

/// The first of these names that nothing in the folder has.
pub(super) fn free_name(folder: &Folder, names: &mut dyn Iterator<Item = String>) -> Result<String, ConnectorError> {
    for name in names {
        let failed = |error| ConnectorError::io("look at", &folder.path().join(&name), error);
        if !folder.has(OsStr::new(&name)).map_err(failed)? {
            return Ok(name);
        }
    }
    Ok(String::new())
}

/// Whether two paths are of one folder.
pub(super) fn is_same_folder(a: &Path, b: &Path) -> bool {
    a == b || matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
}

/// A folder, if it is there.
pub(super) fn there(reach: &Reach, folder: &Path) -> Result<Option<Folder>, ConnectorError> {
    match reach.folder(folder) {
        Ok(folder) => Ok(Some(folder)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(ConnectorError::io("open the folder", folder, error)),
    }
}

/// Size of a file, if there is one.
pub(super) fn size(folder: &Folder, name: &str) -> Result<Option<u64>, ConnectorError> {
    folder.size(OsStr::new(name)).map_err(|error| ConnectorError::io("look at", &folder.path().join(name), error))
}
