//! Writing small files so that a crash leaves the old or the new, never a part.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Writes a file by way of another beside it: whole or not at all, and durable when this returns.
///
/// # Errors
/// If the disk does not take it; what was there before is still there.
pub fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let part = write_part(path, bytes)?;
    fs::rename(&part, path).inspect_err(|_| drop(fs::remove_file(&part)))?;
    sync_folder_of(path)
}

/// Like [`write_whole`], but never replaces a file: false if there is one already.
pub(crate) fn write_new(path: &Path, bytes: &[u8]) -> io::Result<bool> {
    let part = write_part(path, bytes)?;
    // Unlike a rename, a link fails where the name is taken, whoever takes it at the same moment.
    let linked = fs::hard_link(&part, path);
    fs::remove_file(&part)?;
    match linked {
        Ok(()) => sync_folder_of(path).map(|()| true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    }
}

/// Makes the creation or removal of a file in its folder durable.
pub(crate) fn sync_folder_of(path: &Path) -> io::Result<()> {
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
