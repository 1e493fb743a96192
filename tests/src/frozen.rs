//! A folder on a file system of its own that can be frozen: whoever writes to it waits in the kernel, as on a mount whose server does
//! not answer. Reads go on.
//!
//! Needs root, a loop device and e2fsprogs. What cannot be had is said with the reason, so that a test can be skipped.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder. It is thawed and gone when this is dropped, which must come before processes that write there are waited for.
pub struct Frozen {
    folder: tempfile::TempDir,
}

fn run(arguments: &[&str]) -> Result<(), String> {
    let done = Command::new(arguments[0]).args(&arguments[1..]).output().map_err(|error| format!("{}: {error}", arguments[0]))?;
    match done.status.success() {
        true => Ok(()),
        false => Err(format!("`{}`: {}", arguments.join(" "), String::from_utf8_lossy(&done.stderr).trim())),
    }
}

impl Frozen {
    /// Makes it; it is not frozen yet.
    ///
    /// # Errors
    /// What this machine does not allow.
    pub fn new() -> Result<Frozen, String> {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let image = folder.path().join("image");
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let file = std::fs::File::create(&image).and_then(|file| file.set_len(256 << 20));
        file.map_err(|error| error.to_string())?;
        run(&["mkfs.ext4", "-q", &text(&image)])?;
        let made = Frozen { folder };
        std::fs::create_dir(made.path()).map_err(|error| error.to_string())?;
        run(&["mount", "-o", "loop", &text(&image), &text(&made.path())])?;
        Ok(made)
    }

    /// The folder.
    pub fn path(&self) -> PathBuf {
        self.folder.path().join("mount")
    }

    /// From now on nobody who writes there goes on.
    ///
    /// # Errors
    /// If it cannot be frozen.
    pub fn freeze(&self) -> Result<(), String> {
        run(&["fsfreeze", "-f", &self.path().to_string_lossy()])
    }

    /// All go on.
    ///
    /// # Errors
    /// If it is not frozen.
    pub fn thaw(&self) -> Result<(), String> {
        run(&["fsfreeze", "-u", &self.path().to_string_lossy()])
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        // It may not be frozen, or not be mounted. Processes may still have files there, so it goes when the last is closed.
        let _ = self.thaw();
        let _ = run(&["umount", "-l", &self.path().to_string_lossy()]);
    }
}
