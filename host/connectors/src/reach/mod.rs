//! Which files a job may reach: any, or only what lies below folders that the owner of a worker has named.
//!
//! All that sources and sinks open, list, make, rename and remove goes through [`Reach`]. What counts is where a file really is. A path
//! is resolved first, with its links, so that links within an allowed folder work; what it comes to must lie below such a folder, and
//! is then opened without following any link (`unlinked`), so that whoever changes folders at that very moment gains nothing.
//! Never keeps a folder open: one that is mounted or made anew is found again.
//!
//! A second name of a file of elsewhere (a hard link) cannot be told from a file. Linux lets nobody make one of a file that they cannot
//! write (`protected_hardlinks`).

#[cfg(test)]
mod connector_tests;
mod folder;
#[cfg(test)]
mod tests;
mod unlinked;

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;

pub(crate) use self::folder::{Entry, Folder};
use crate::sinks::mask;

/// How often a path is looked at again that changes while it is opened.
const ATTEMPTS: usize = 8;

/// Which files may be opened; any, by default.
#[derive(Clone, Debug, Default)]
pub struct Reach {
    /// Folders by their real paths; `None`: everything.
    allowed: Option<Arc<[PathBuf]>>,
}

impl Reach {
    /// Only what is below these folders.
    ///
    /// # Errors
    /// If one of them is not there, or is no folder; the message names it.
    pub fn beneath(folders: &[PathBuf]) -> io::Result<Reach> {
        let allowed = folders.iter().map(|folder| {
            let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", folder.display()));
            let real = folder.canonicalize().map_err(named)?;
            if real.is_dir() { Ok(real) } else { Err(named(io::ErrorKind::NotADirectory.into())) }
        });
        Ok(Reach { allowed: Some(allowed.collect::<io::Result<_>>()?) })
    }

    /// Where a path really is, if that may be reached. What is not there yet is taken as it is written.
    ///
    /// # Errors
    /// If it may not, or if that cannot be told.
    pub fn locate(&self, path: &Path) -> io::Result<PathBuf> {
        let real = resolve(path)?;
        if self.holds(&real) { Ok(real) } else { Err(outside(&real)) }
    }

    fn holds(&self, real: &Path) -> bool {
        self.allowed.as_ref().is_none_or(|allowed| allowed.iter().any(|folder| real.starts_with(folder)))
    }

    /// Opens a file to read it, without waiting as opening a pipe would.
    pub(crate) fn read(&self, path: &Path) -> io::Result<File> {
        self.open(path, OFlags::RDONLY | OFlags::NONBLOCK)
    }

    /// What is at a path, behind links.
    pub(crate) fn metadata(&self, path: &Path) -> io::Result<Metadata> {
        self.open(path, OFlags::PATH)?.metadata()
    }

    /// A folder that is there.
    pub(crate) fn folder(&self, path: &Path) -> io::Result<Folder> {
        Ok(Folder::new(self.open(path, OFlags::RDONLY | OFlags::DIRECTORY)?, path))
    }

    /// A folder, which is made if it is not there, and what is missing above it, with the permissions of output.
    pub(crate) fn make_folder(&self, path: &Path) -> io::Result<Folder> {
        if self.allowed.is_none() {
            mask::make_folder(path)?;
            return self.folder(path);
        }
        let real = self.locate(path)?;
        let (mut there, mut missing) = (real.as_path(), Vec::new());
        let mut folder = loop {
            match self.folder(there) {
                Ok(folder) => break folder,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
            let (Some(name), Some(parent)) = (there.file_name(), there.parent()) else {
                return Err(io::ErrorKind::NotFound.into());
            };
            missing.push(name.to_owned());
            there = parent;
        };
        for name in missing.into_iter().rev() {
            folder = folder.make_folder(&name)?;
        }
        Ok(folder)
    }

    fn open(&self, path: &Path, flags: OFlags) -> io::Result<File> {
        let flags = flags | OFlags::CLOEXEC;
        if self.allowed.is_none() {
            return Ok(openat(CWD, path, flags, Mode::empty())?.into());
        }
        // Most paths have no link in them.
        if is_plain(path) && self.holds(path) {
            match unlinked::open(path, flags) {
                Err(Errno::LOOP) => {}
                opened => return Ok(opened?.into()),
            }
        }
        for _ in 0..ATTEMPTS {
            let real = path.canonicalize()?;
            if !self.holds(&real) {
                return Err(outside(&real));
            }
            match unlinked::open(&real, flags) {
                // A link has come in between.
                Err(Errno::LOOP) => {}
                opened => return Ok(opened?.into()),
            }
        }
        Err(io::Error::other("it changes each time it is looked at"))
    }
}

fn outside(real: &Path) -> io::Error {
    let reason = format!("{} is not below a folder that is allowed here (--allow-path)", real.display());
    io::Error::new(io::ErrorKind::PermissionDenied, reason)
}

/// Whether a path says itself where it is, but for links.
fn is_plain(path: &Path) -> bool {
    path.is_absolute() && path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)))
}

/// Where a path really is: links of what is there are followed; what is not there yet is taken as it is written, without `..`.
fn resolve(path: &Path) -> io::Result<PathBuf> {
    let path = std::path::absolute(path)?;
    let mut missing: Vec<&OsStr> = Vec::new();
    let mut there = path.as_path();
    loop {
        // A link whose target is missing is there: what is made through it is made elsewhere.
        match (there.canonicalize(), there.symlink_metadata()) {
            (Ok(real), _) => return Ok(missing.into_iter().rev().fold(real, |real, part| real.join(part))),
            (Err(error), Ok(_)) => return Err(error),
            (Err(error), Err(_)) if error.kind() == io::ErrorKind::NotFound => {}
            (Err(error), Err(_)) => return Err(error),
        }
        match there.components().next_back() {
            Some(Component::Normal(part)) => missing.push(part),
            _ => return Err(io::Error::other("it goes through `..` of a folder that is not there")),
        }
        there = there.parent().unwrap_or(Path::new("/"));
    }
}

/// A name within a folder: no path, so that it leads nowhere.
fn one_part(name: &OsStr) -> io::Result<&OsStr> {
    let mut parts = Path::new(name).components();
    match (parts.next(), parts.next()) {
        (Some(Component::Normal(part)), None) if part == name => Ok(name),
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{} is no name of a file", OsString::from(name).display()))),
    }
}
