//! Files that users name: reading with a good error.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use weir_model::ErrorNumber;

use crate::failure::{Exit, Failure};

/// Reads a file that the user named.
pub(crate) fn read(path: &Path, what: &str) -> Result<Vec<u8>, Failure> {
    fs::read(path).map_err(|error| {
        let failure = Failure::new(
            ErrorNumber::FileInaccessible,
            Exit::Usage,
            format!("cannot read the {what} {}: {error}", path.display()),
        );
        match nearest_file(path) {
            Some(near) if error.kind() == io::ErrorKind::NotFound => failure.hint(format!("did you mean {}?", near.display())),
            _ => failure,
        }
    })
}

/// A file beside one that does not exist, with nearly its name.
fn nearest_file(path: &Path) -> Option<PathBuf> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let entries = fs::read_dir(folder).ok()?.flatten().take(1_000);
    let names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    let near = weir_plan::nearest(path.file_name()?.to_str()?, names.iter().map(String::as_str))?;
    Some(path.with_file_name(near))
}
