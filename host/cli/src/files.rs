//! Files on disk: reading with a good error, writing so that a crash leaves the old or the new, never a part.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::failure::{Exit, Failure};

/// Reads a file that the user named.
pub(crate) fn read(path: &Path, what: &str) -> Result<Vec<u8>, Failure> {
    fs::read(path).map_err(|error| {
        let failure = Failure::new("E0023", Exit::Usage, format!("cannot read the {what} {}: {error}", path.display()));
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

/// Writes a file by way of another beside it: whole or not at all, and durable when this returns.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let part = write_part(path, bytes)?;
    fs::rename(&part, path).inspect_err(|_| drop(fs::remove_file(&part)))?;
    sync_folder(path)
}

/// Like [`write_whole`], but never replaces a file: false if there is one already.
pub(crate) fn write_new(path: &Path, bytes: &[u8]) -> io::Result<bool> {
    let part = write_part(path, bytes)?;
    // Unlike a rename, a link fails where the name is taken, whoever takes it at the same moment.
    let linked = fs::hard_link(&part, path);
    fs::remove_file(&part)?;
    match linked {
        Ok(()) => sync_folder(path).map(|()| true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    }
}

/// Makes the creation or removal of a file in its folder durable.
pub(crate) fn sync_folder(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(folder) => File::open(if folder.as_os_str().is_empty() { Path::new(".") } else { folder })?.sync_all(),
        None => Ok(()),
    }
}

fn write_part(path: &Path, bytes: &[u8]) -> io::Result<PathBuf> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let part = path.with_file_name(format!(".{name}.{}-{}.part", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed)));
    let write = || {
        let mut file = File::create(&part)?;
        file.write_all(bytes)?;
        file.sync_all()
    };
    write().inspect_err(|_| drop(fs::remove_file(&part)))?;
    Ok(part)
}
