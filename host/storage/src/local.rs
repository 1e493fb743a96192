//! Storage in a folder: what a disk needs beyond the `ObjectStore` interface.
//!
//! `LocalFileSystem` writes to a staging file `<name>#<n>`, syncs it, renames it and syncs the folder (`with_fsync`). Left to
//! us are: folders made durable before they are used, staging files that a killed process
//! left behind (`LocalFileSystem` never lists them), and the advisory lock of a job.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path as FsPath, PathBuf};

use object_store::local::LocalFileSystem;
use object_store::path::Path;
use rustix::fs::OFlags;

use crate::StorageError;

/// A folder used as an object store.
pub(crate) struct LocalRoot {
    folder: PathBuf,
}

impl LocalRoot {
    /// Makes the folder that a `file:` URL or plain path names, durably.
    pub(crate) fn open(url: &str) -> Result<LocalRoot, StorageError> {
        let folder = folder_of(url)?;
        let folder = std::path::absolute(&folder).map_err(|error| io_error("resolve", &folder, &error))?;
        make_folder(&folder)?;
        Ok(LocalRoot { folder })
    }

    /// The object store over this folder.
    pub(crate) fn store(&self) -> Result<LocalFileSystem, StorageError> {
        let store = LocalFileSystem::new_with_prefix(&self.folder);
        let store = store.map_err(|error| StorageError::of("open", self.label(), &error))?;
        Ok(store.with_fsync(true))
    }

    /// How the folder is shown to people.
    pub(crate) fn label(&self) -> String {
        self.folder.display().to_string().trim_end_matches('/').to_owned()
    }

    /// Makes a folder and its parents, durably. Without this, two first writers could race: one finds the folder that the
    /// other has made but not synced yet.
    pub(crate) fn make_folder(&self, folder: &Path) -> Result<(), StorageError> {
        make_folder(&self.on_disk(folder))
    }

    /// Deletes staging files in `folder` whose final name satisfies `stale`. Gives how many.
    pub(crate) fn remove_staging(&self, folder: &Path, stale: impl Fn(&str) -> bool) -> Result<usize, StorageError> {
        let folder = self.on_disk(folder);
        let entries = match std::fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(0),
            Err(error) => return Err(io_error("list", &folder, &error)),
        };
        let mut removed = 0;
        for entry in entries {
            let entry = entry.map_err(|error| io_error("list", &folder, &error))?;
            let name = entry.file_name();
            let Some((name, suffix)) = name.to_str().and_then(|name| name.rsplit_once('#')) else { continue };
            if suffix.bytes().all(|byte| byte.is_ascii_digit()) && stale(name) {
                match std::fs::remove_file(entry.path()) {
                    Ok(()) => removed += 1,
                    // Whoever was writing it has finished or given up meanwhile.
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                    Err(error) => return Err(io_error("delete", &entry.path(), &error)),
                }
            }
        }
        Ok(removed)
    }

    /// Locks a file against other processes. `Err(Ok(holder))` says who has it.
    pub(crate) fn lock(&self, path: &Path) -> Result<Result<File, String>, StorageError> {
        let path = self.on_disk(path);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            // Whoever can write to the folder must not be able to have another file emptied.
            .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
            .open(&path)
            .map_err(|error| io_error("open lock file", &path, &error))?;
        match file.try_lock() {
            Ok(()) => {
                let written = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
                written.map_err(|error| io_error("write lock file", &path, &error))?;
                Ok(Ok(file))
            }
            Err(TryLockError::WouldBlock) => {
                // The number is only for people: it may be missing for the moment between lock and write.
                let mut text = String::new();
                let pid = file.read_to_string(&mut text).ok().and_then(|_| text.trim().parse::<u32>().ok());
                Ok(Err(match pid {
                    None => "another process".to_owned(),
                    Some(pid) if pid == std::process::id() => {
                        "a thread of this process that still waits for this storage; it lets go when that answers".to_owned()
                    }
                    Some(pid) => format!("process {pid}"),
                }))
            }
            Err(TryLockError::Error(error)) => Err(io_error("lock", &path, &error)),
        }
    }

    /// Where an object lies. Job folders and names are percent-encoded already, so parts are used as they are.
    fn on_disk(&self, path: &Path) -> PathBuf {
        path.parts().fold(self.folder.clone(), |folder, part| folder.join(part.as_ref()))
    }
}

/// The folder that a storage URL names.
///
/// # Errors
/// If it names none, or storage of another kind.
pub fn folder_of(url: &str) -> Result<PathBuf, StorageError> {
    let invalid = |reason: &str| StorageError::InvalidName { what: "storage", value: url.to_owned(), reason: reason.to_owned() };
    if url.is_empty() {
        return Err(invalid("it is empty; give a folder"));
    }
    if let Some(rest) = url.strip_prefix("file:") {
        let path = match rest.strip_prefix("//") {
            None => rest,
            Some(rest) => {
                let path = rest.strip_prefix("localhost").unwrap_or(rest);
                path.starts_with('/').then_some(path).ok_or_else(|| {
                    invalid("a `file://` URL needs a third slash: `file:///folder`; storage on another host cannot be reached so")
                })?
            }
        };
        let path = percent_decode(path).ok_or_else(|| invalid("a `%` in a URL is followed by two hexadecimal digits"))?;
        return Ok(PathBuf::from(path));
    }
    match url.split_once("://") {
        Some((scheme, _)) if !scheme.is_empty() && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b)) => {
            Err(StorageError::UnsupportedScheme { scheme: scheme.to_ascii_lowercase(), url: url.to_owned() })
        }
        _ => Ok(PathBuf::from(url)),
    }
}

/// Decodes `%41` and the like; `None` if it is not well-formed or not UTF-8.
fn percent_decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte == b'%' {
            let (digits, after) = rest.split_at_checked(2)?;
            if !digits.iter().all(u8::is_ascii_hexdigit) {
                return None;
            }
            bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
            rest = after;
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

/// `create_dir_all`, with every folder whose entries changed synced. The nearest parent is synced even if the folder is there:
/// another process may have made it a moment ago.
fn make_folder(folder: &FsPath) -> Result<(), StorageError> {
    let missing = folder.ancestors().take_while(|ancestor| !ancestor.is_dir()).count();
    std::fs::create_dir_all(folder).map_err(|error| io_error("make folder", folder, &error))?;
    for made in folder.ancestors().take(missing.max(1)) {
        let parent = made.parent().unwrap_or(made);
        File::open(parent).and_then(|parent| parent.sync_all()).map_err(|error| io_error("sync", parent, &error))?;
    }
    Ok(())
}

fn io_error(action: &'static str, path: &FsPath, error: &std::io::Error) -> StorageError {
    StorageError::of_io(action, path.display().to_string(), error)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn urls_and_plain_paths_name_folders() {
        for (url, folder) in [
            ("/var/weir", "/var/weir"),
            ("data/state", "data/state"),
            ("file:/var/weir", "/var/weir"),
            ("file:///var/my%20state", "/var/my state"),
            ("file://localhost/var/weir", "/var/weir"),
            ("file:data", "data"),
        ] {
            assert_eq!(folder_of(url).unwrap(), PathBuf::from(folder), "{url}");
        }
    }

    #[test]
    fn a_lock_that_a_thread_of_this_process_holds_is_said_to_be() {
        let folder = tempfile::tempdir().unwrap();
        let root = LocalRoot::open(folder.path().to_str().unwrap()).unwrap();
        let _held = root.lock(&Path::from("lock")).unwrap().unwrap();
        let holder = root.lock(&Path::from("lock")).unwrap().unwrap_err();
        assert!(holder.starts_with("a thread of this process"), "{holder}");
    }

    #[test]
    fn s140_a_lock_that_is_a_link_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let root = LocalRoot::open(folder.path().to_str().unwrap()).unwrap();
        std::fs::write(folder.path().join("victim"), "mine").unwrap();
        std::os::unix::fs::symlink("victim", folder.path().join("lock")).unwrap();
        assert!(root.lock(&Path::from("lock")).is_err());
        assert_eq!(std::fs::read(folder.path().join("victim")).unwrap(), b"mine");
    }

    #[test]
    fn a_staging_file_that_goes_by_itself_does_not_stop_the_sweep() {
        let folder = tempfile::tempdir().unwrap();
        let root = LocalRoot::open(folder.path().to_str().unwrap()).unwrap();
        for name in ["a#1", "b#1"] {
            std::fs::write(folder.path().join(name), "half").unwrap();
        }
        let gone = |name: &str| {
            if name == "a" {
                std::fs::remove_file(folder.path().join("a#1")).unwrap();
            }
            true
        };
        assert_eq!(root.remove_staging(&Path::from(""), gone).unwrap(), 1);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn other_schemes_are_refused_by_name() {
        for scheme in ["s3", "gs", "az", "https"] {
            let error = folder_of(&format!("{scheme}://bucket/path")).unwrap_err();
            assert!(matches!(&error, StorageError::UnsupportedScheme { scheme: named, .. } if named == scheme), "{error}");
            assert!(error.to_string().contains(&format!("`{scheme}`")), "{error}");
        }
        for url in ["file://host/share", "", "file:///a%zz"] {
            assert!(matches!(folder_of(url), Err(StorageError::InvalidName { .. })), "{url}");
        }
    }
}
