//! With which permissions sinks make their output.
//!
//! A process of Weir makes files for its own user only, by its mask. What sinks make is for others to read: it has the permissions that
//! the user's own mask gives, which the process has put aside here before it took another.

use std::fs::{self, File, Permissions};
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
    let Some(mask) = MASK.get() else { return Ok(()) };
    missing.into_iter().try_for_each(|made| fs::set_permissions(made, Permissions::from_mode(0o777 & !mask)))
}

/// Makes a file, which must not exist.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    let file = File::create_new(path)?;
    if let Some(mask) = MASK.get() {
        file.set_permissions(Permissions::from_mode(0o666 & !mask))?;
    }
    Ok(file)
}
