//! A folder that is open. What is in it is named by one part each, and no link is followed, so that all that is done lies in this very
//! folder, whatever becomes of its path.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fd::AsFd;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, fchmod, mkdirat, openat, renameat, statat, unlinkat};
use rustix::io::Errno;

use super::one_part;
use crate::sinks::mask;

/// What the listing of a folder says of one name.
pub(crate) struct Entry {
    pub(crate) name: OsString,
    /// Whether it is a folder itself, and no link to one.
    pub(crate) is_folder: bool,
}

/// An open folder.
#[derive(Debug)]
pub(crate) struct Folder {
    file: File,
    /// For messages.
    path: PathBuf,
}

impl Folder {
    pub(super) fn new(file: File, path: &Path) -> Folder {
        Folder { file, path: path.to_owned() }
    }

    /// As it was opened.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// What is in it, in no order.
    pub(crate) fn list(&self) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for entry in Dir::read_from(&self.file)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            let name: OsString = std::os::unix::ffi::OsStringExt::from_vec(name.to_vec());
            let is_folder = match entry.file_type() {
                FileType::Unknown => self.stat(&name)?.is_some_and(|found| kind(&found).is_dir()),
                kind => kind.is_dir(),
            };
            entries.push(Entry { name, is_folder });
        }
        Ok(entries)
    }

    /// The folder of that name in it, which is made if it is not there, with the permissions of output.
    pub(crate) fn make_folder(&self, name: &OsStr) -> io::Result<Folder> {
        let is_made = match mkdirat(&self.file, one_part(name)?, Mode::from_raw_mode(0o777)) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(error) => return Err(error.into()),
        };
        let folder = self.folder(name)?;
        if let Some(mode) = mask::of_folders().filter(|_| is_made) {
            fchmod(&folder.file, Mode::from_raw_mode(mode))?;
        }
        Ok(folder)
    }

    /// The folder of that name in it; a link to one is none.
    pub(crate) fn folder(&self, name: &OsStr) -> io::Result<Folder> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = openat(&self.file, one_part(name)?, flags, Mode::empty())?;
        Ok(Folder::new(opened.into(), &self.path.join(name)))
    }

    /// A new file, with the permissions of output. There must be nothing of that name.
    pub(crate) fn create(&self, name: &OsStr) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&self.file, one_part(name)?, flags, Mode::from_raw_mode(0o666))?;
        if let Some(mode) = mask::of_files() {
            fchmod(&file, Mode::from_raw_mode(mode))?;
        }
        Ok(file.into())
    }

    /// Bytes of a file; `None`: there is nothing of that name.
    pub(crate) fn size(&self, name: &OsStr) -> io::Result<Option<u64>> {
        match self.stat(one_part(name)?)? {
            Some(found) if !kind(&found).is_file() => Err(io::Error::other("it is not a regular file, and no sink made it")),
            found => Ok(found.map(|found| u64::try_from(found.st_size).unwrap_or_default())),
        }
    }

    /// Whether there is anything of that name.
    pub(crate) fn has(&self, name: &OsStr) -> io::Result<bool> {
        Ok(self.stat(one_part(name)?)?.is_some())
    }

    /// Gives a file another name, in this folder or another. What has that name is replaced.
    pub(crate) fn rename(&self, from: &OsStr, folder: &Folder, to: &OsStr) -> io::Result<()> {
        Ok(renameat(&self.file, one_part(from)?, &folder.file, one_part(to)?)?)
    }

    /// Removes a file.
    pub(crate) fn remove(&self, name: &OsStr) -> io::Result<()> {
        Ok(unlinkat(&self.file, one_part(name)?, AtFlags::empty())?)
    }

    /// Waits until the names in it are on the disk.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    fn stat(&self, name: &OsStr) -> io::Result<Option<Stat>> {
        match statat(self.file.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) => Ok(Some(found)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

fn kind(found: &Stat) -> FileType {
    FileType::from_raw_mode(found.st_mode)
}
