//! With which permissions sinks make their output.
//!
//! A process of Weir makes files for its own user only, by its mask. What sinks make is for others to read: it has the permissions that
//! the user's own mask gives, which the process has put aside here before it took another.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::OnceLock;

/// One for the process, as the mask itself is.
static MASK: OnceLock<u32> = OnceLock::new();

/// Says which permissions sinks leave out, as `umask` does. The first call counts; without one, the process's own mask does.
pub fn set_output_mask(mask: u32) {
    let _ = MASK.set(mask & 0o777);
}

/// Makes a folder and what is missing above it.
pub(crate) fn make_folder(folder: &Path) -> io::Result<()> {
    let missing: Vec<&Path> =
        folder.ancestors().take_while(|folder| !folder.as_os_str().is_empty() && !folder.exists()).collect();
    fs::create_dir_all(folder)?;
    let Some(mode) = of_folders() else { return Ok(()) };
    missing.into_iter().try_for_each(|made| fs::set_permissions(made, Permissions::from_mode(mode)))
}

/// Permissions of a folder that a sink makes, where it does not leave them to the process's own mask.
pub(crate) fn of_folders() -> Option<u32> {
    MASK.get().map(|mask| 0o777 & !mask)
}

/// Permissions of a file that a sink makes, likewise.
pub(crate) fn of_files() -> Option<u32> {
    MASK.get().map(|mask| 0o666 & !mask)
}
