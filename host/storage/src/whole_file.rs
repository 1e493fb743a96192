//! Writing small files so that a crash leaves the old or the new, never a part.

use std::fs::{self, File};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

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
    let (mut file, part) = create_part(path)?;
    let mut write = || {
        file.write_all(bytes)?;
        file.sync_all()
    };
    write().inspect_err(|_| drop(fs::remove_file(&part)))?;
    Ok(part)
}

/// A new file beside `path`. Its name cannot be guessed, and what others may have put under it is not opened: nothing is written
/// through a link.
fn create_part(path: &Path) -> io::Result<(File, PathBuf)> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // Keyed anew by the operating system's randomness each time.
    let random = || RandomState::new().build_hasher().finish();
    let mut attempts = (0..8).map(|_| path.with_file_name(format!(".{name}.{:016x}.part", random())));
    attempts
        .find_map(|part| match File::create_new(&part) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => None,
            created => Some(created.map(|file| (file, part))),
        })
        .unwrap_or_else(|| Err(io::ErrorKind::AlreadyExists.into()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn s140_what_is_written_goes_through_no_link() {
        let folder = tempfile::tempdir().unwrap();
        let (victim, path) = (folder.path().join("victim"), folder.path().join("entry"));
        fs::write(&victim, "mine").unwrap();
        symlink(&victim, &path).unwrap();
        write_whole(&path, b"theirs").unwrap();
        assert_eq!((fs::read(&victim).unwrap(), fs::read(&path).unwrap()), (b"mine".to_vec(), b"theirs".to_vec()));
        assert!(fs::symlink_metadata(&path).unwrap().is_file());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "nothing is left over");
        let names: Vec<PathBuf> = (0..2).map(|_| create_part(&path).unwrap().1).collect();
        assert_ne!(names[0], names[1]);
    }
}
