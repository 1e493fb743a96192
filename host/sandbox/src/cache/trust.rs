//! Which files and folders may vouch for machine code: those that this user made and nobody else can change or exchange.
//!
//! Every check is made on what was opened, never on a path, and no symbolic link is followed but on the way to the folder.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{CWD, FileType, Mode, OFlags, Stat, fstat, openat, stat};
use rustix::process::geteuid;

/// Why something is not trusted.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Distrust {
    /// The file or folder.
    pub(super) path: PathBuf,
    /// What is wrong with it.
    pub(super) why: &'static str,
}

/// Opens the folder, if neither it nor the way to it can be changed by others.
pub(super) fn folder(path: &Path) -> io::Result<Result<OwnedFd, Distrust>> {
    let distrust = |path: &Path, why| Ok(Err(Distrust { path: path.to_path_buf(), why }));
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = match openat(CWD, path, flags, Mode::empty()) {
        Ok(opened) => opened,
        Err(rustix::io::Errno::LOOP | rustix::io::Errno::NOTDIR) => return distrust(path, "it is a link or no folder"),
        Err(error) => return Err(error.into()),
    };
    if let Some(why) = wrong(&fstat(&opened)?, FileType::Directory, 0o022) {
        return distrust(path, why);
    }
    for above in path.canonicalize()?.ancestors().skip(1) {
        let found = stat(above)?;
        let is_sticky = found.st_mode & 0o1000 != 0;
        if found.st_uid != 0 && found.st_uid != geteuid().as_raw() {
            return distrust(above, "it belongs to another user");
        }
        if found.st_mode & 0o002 != 0 && !is_sticky {
            return distrust(above, "others can write to it");
        }
    }
    Ok(Ok(opened))
}

/// Opens a file of the folder for reading, if only this user can have made it. None if there is none.
pub(super) fn file(folder: impl AsFd, name: &str) -> io::Result<Option<Result<File, &'static str>>> {
    // Without waiting: opening a pipe would, for its other end.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    match openat(folder, name, flags, Mode::empty()) {
        Ok(opened) => Ok(Some(match wrong(&fstat(&opened)?, FileType::RegularFile, 0o077) {
            Some(why) => Err(why),
            None => Ok(File::from(opened)),
        })),
        Err(rustix::io::Errno::NOENT) => Ok(None),
        Err(rustix::io::Errno::LOOP) => Ok(Some(Err("it is a link"))),
        Err(rustix::io::Errno::NXIO) => Ok(Some(Err("it is no regular file"))),
        Err(rustix::io::Errno::ACCESS) => Ok(Some(Err("it cannot be read"))),
        Err(error) => Err(error.into()),
    }
}

/// What is wrong with a file of this kind; `open_to` are the bits that its mode must not have.
fn wrong(found: &Stat, kind: FileType, open_to: u32) -> Option<&'static str> {
    if FileType::from_raw_mode(found.st_mode) != kind {
        return Some(if kind == FileType::Directory { "it is no folder" } else { "it is no regular file" });
    }
    if found.st_uid != geteuid().as_raw() {
        return Some("it belongs to another user");
    }
    if found.st_mode & open_to != 0 {
        return Some(if open_to == 0o022 { "others can write to it" } else { "others can read or write it" });
    }
    // A folder's links are its subfolders.
    if kind == FileType::RegularFile && found.st_nlink != 1 {
        return Some("it has more than one name");
    }
    None
}
