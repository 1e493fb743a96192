//! Files that users name: reading with a good error.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use weir_model::ErrorNumber;

use crate::failure::{Exit, Failure};

/// Reads a file that the user named.
pub(crate) fn read(path: &Path, what: &str) -> Result<Vec<u8>, Failure> {
    fs::read(path).map_err(|error| unreadable(path, what, &error))
}

/// Reads a file that the user named, which has `bytes_max` at most.
pub(crate) fn read_bounded(path: &Path, what: &str, bytes_max: usize) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let take = |file: fs::File| file.take(bytes_max as u64 + 1).read_to_end(&mut bytes);
    match fs::File::open(path).and_then(take) {
        Ok(length) if length > bytes_max => {
            let message = format!("cannot read the {what} {}: it has more than {bytes_max} bytes", path.display());
            Err(Failure::new(ErrorNumber::FileInaccessible, Exit::Usage, message))
        }
        Ok(_) => Ok(bytes),
        Err(error) => Err(unreadable(path, what, &error)),
    }
}

fn unreadable(path: &Path, what: &str, error: &io::Error) -> Failure {
    let failure =
        Failure::new(ErrorNumber::FileInaccessible, Exit::Usage, format!("cannot read the {what} {}: {error}", path.display()));
    match nearest_file(path) {
        Some(near) if error.kind() == io::ErrorKind::NotFound => failure.hint(format!("did you mean {}?", near.display())),
        _ => failure,
    }
}

/// A file beside one that does not exist, with nearly its name.
fn nearest_file(path: &Path) -> Option<PathBuf> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let entries = fs::read_dir(folder).ok()?.flatten().take(1_000);
    let names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    let near = weir_plan::nearest(path.file_name()?.to_str()?, names.iter().map(String::as_str))?;
    Some(path.with_file_name(near))
}
