//! Opens a path of which no part is a link.

use std::path::{Component, Path};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fd::OwnedFd;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;

/// Set once the kernel has said that it has no `openat2` (before 5.6, or where a filter keeps it from containers).
static IS_OLD: AtomicBool = AtomicBool::new(false);

/// Opens an absolute path without `..`. `Errno::LOOP`: a part of it is a link, so it is not where it was thought to be.
pub(super) fn open(path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    if !IS_OLD.load(Ordering::Relaxed) {
        match at_once(path, flags) {
            Err(Errno::NOSYS | Errno::PERM) => IS_OLD.store(true, Ordering::Relaxed),
            opened => return opened,
        }
    }
    part_by_part(path, flags)
}

/// The kernel checks each part.
pub(super) fn at_once(path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let root = open_root()?;
    let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_SYMLINKS;
    loop {
        match openat2(&root, below_root(path), flags, Mode::empty(), beneath) {
            // Something was renamed anywhere meanwhile, or a signal came.
            Err(Errno::AGAIN | Errno::INTR) => {}
            opened => return opened,
        }
    }
}

/// The same where the kernel cannot: each part is opened below the one before, and none may be a link.
pub(super) fn part_by_part(path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let mut folder = open_root()?;
    let mut parts = below_root(path).components().peekable();
    while let Some(part) = parts.next() {
        let name = match part {
            Component::Normal(name) => name,
            Component::CurDir => return openat(&folder, ".", flags, Mode::empty()),
            _ => return Err(Errno::INVAL),
        };
        if parts.peek().is_none() {
            return open_last(&folder, name, flags);
        }
        folder = match openat(&folder, name, OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
        {
            Err(Errno::NOTDIR) if is_link(&folder, name) => return Err(Errno::LOOP),
            opened => opened?,
        };
    }
    Ok(folder)
}

fn open_last(folder: &OwnedFd, name: &std::ffi::OsStr, flags: OFlags) -> Result<OwnedFd, Errno> {
    // With PATH, a link would be opened itself.
    if flags.contains(OFlags::PATH) && is_link(folder, name) {
        return Err(Errno::LOOP);
    }
    match openat(folder, name, flags | OFlags::NOFOLLOW, Mode::empty()) {
        Err(Errno::NOTDIR) if is_link(folder, name) => Err(Errno::LOOP),
        opened => opened,
    }
}

fn is_link(folder: &OwnedFd, name: &std::ffi::OsStr) -> bool {
    let found = rustix::fs::statat(folder, name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW);
    found.is_ok_and(|found| rustix::fs::FileType::from_raw_mode(found.st_mode).is_symlink())
}

fn open_root() -> Result<OwnedFd, Errno> {
    openat(CWD, "/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

fn below_root(path: &Path) -> &Path {
    match path.strip_prefix("/") {
        Ok(rest) if !rest.as_os_str().is_empty() => rest,
        _ => Path::new("."),
    }
}
