//! Finds the files that a path means: a file, the files of a folder, or what a glob matches. Whatever else a folder can hold is
//! passed over: other kinds of files, links to nowhere and in circles, folders that may not be looked into (with a word).

use std::cmp::Ordering;
use std::fs::{File, Metadata};
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use super::names::shown;
use super::pattern::{Alternative, OPTIONS, Pattern, Step};
use crate::reach::Entry;
use crate::{ConnectorError, Reach};

/// Files, and what could not be looked at on the way to them.
#[derive(Default)]
pub(super) struct Discovery {
    /// By path; each once.
    pub(super) files: Vec<(PathBuf, Metadata)>,
    /// Paths that were passed over though the pattern means them, with the reason.
    pub(super) skipped: Vec<(PathBuf, String)>,
}

impl Pattern {
    /// The files there are now, by name. A file or folder that does not exist is no file.
    pub(super) fn files(&self, reach: &Reach) -> Result<Discovery, ConnectorError> {
        let mut found = Discovery::default();
        for alternative in self.alternatives() {
            match alternative {
                Alternative::Glob { root, steps } => found.walk(reach, root, steps, true)?,
                Alternative::Path(path) => {
                    match metadata(reach, path).map_err(|error| ConnectorError::io("look at", path, error))? {
                        None => {}
                        Some(there) if there.is_dir() => found.folder(reach, path)?,
                        Some(there) if there.is_file() => found.files.push((path.clone(), there)),
                        Some(_) => {
                            return Err(ConnectorError::NothingToRead {
                                path: shown(path),
                                reason: "it is neither a file nor a folder".to_owned(),
                                hint: "a pipe is read by the connector \"stdin\"",
                            });
                        }
                    }
                }
            }
        }
        found.files.sort_by(|a, b| a.0.cmp(&b.0));
        found.files.dedup_by(|a, b| a.0 == b.0);
        Ok(found)
    }

    /// The error for a pattern that means no file at all.
    pub(super) fn no_file(&self, reach: &Reach) -> ConnectorError {
        let reason = match self.alternatives() {
            [Alternative::Path(path)] if is_folder(reach, path) => {
                "the folder has no file (sub-folders and hidden files are left out)"
            }
            [Alternative::Path(_)] => "there is no such file or folder",
            _ => "no file matches",
        };
        ConnectorError::NothingToRead {
            path: self.text().to_owned(),
            reason: reason.to_owned(),
            hint: "path is a file, a folder or a glob; relative paths count from the job file's folder",
        }
    }
}

/// The files right in a folder, without hidden ones.
pub(super) fn files_of_folder(reach: &Reach, folder: &Path) -> Result<Vec<(PathBuf, Metadata)>, ConnectorError> {
    let mut found = Discovery::default();
    found.folder(reach, folder)?;
    Ok(found.files)
}

impl Discovery {
    fn folder(&mut self, reach: &Reach, folder: &Path) -> Result<(), ConnectorError> {
        let listed = reach.folder(folder).and_then(|folder| folder.list());
        for entry in listed.map_err(|error| ConnectorError::io("list the folder", folder, error))? {
            if !is_hidden(&entry.name) {
                self.file(reach, folder.join(&entry.name));
            }
        }
        Ok(())
    }

    /// Takes what is at a path, if it is a file.
    fn file(&mut self, reach: &Reach, path: PathBuf) {
        match metadata(reach, &path) {
            Ok(there) => self.files.extend(there.filter(Metadata::is_file).map(|there| (path, there))),
            Err(error) => self.skipped.push((path, error.to_string())),
        }
    }

    /// Follows the steps of a glob from a folder on. `is_named`: the pattern names the folder, so it must be readable.
    fn walk(&mut self, reach: &Reach, folder: &Path, steps: &[Step], is_named: bool) -> Result<(), ConnectorError> {
        let Some((step, rest)) = steps.split_first() else { return Ok(()) };
        if let Step::Name(name) = step {
            let path = join(folder, name);
            if rest.is_empty() {
                self.file(reach, path);
                return Ok(());
            }
            return self.walk(reach, &path, rest, is_named);
        }
        if matches!(step, Step::AnyDepth) && !rest.is_empty() {
            self.walk(reach, folder, rest, is_named)?;
        }
        let listed = reach.folder(folder).and_then(|folder| folder.list());
        let mut entries = match listed {
            Ok(entries) => entries,
            Err(error) if is_nothing(&error) => return Ok(()),
            Err(error) if is_named => return Err(ConnectorError::io("list the folder", folder, error)),
            Err(error) => {
                self.skipped.push((folder.to_owned(), error.to_string()));
                return Ok(());
            }
        };
        entries.sort_by(|one, other| one.name.cmp(&other.name));
        for Entry { name, is_folder } in entries {
            let path = join(folder, &name);
            match step {
                Step::Name(_) => {}
                Step::Match(pattern) => {
                    if !pattern.matches_with(&name.to_string_lossy(), OPTIONS) {
                        continue;
                    }
                    if rest.is_empty() {
                        self.file(reach, path);
                        continue;
                    }
                    match metadata(reach, &path) {
                        Ok(there) if there.as_ref().is_some_and(Metadata::is_dir) => self.walk(reach, &path, rest, false)?,
                        Ok(_) => {}
                        Err(error) => self.skipped.push((path, error.to_string())),
                    }
                }
                // Links to folders are not followed at any depth: they may go in circles.
                Step::AnyDepth if is_hidden(&name) => {}
                Step::AnyDepth if is_folder => self.walk(reach, &path, steps, false)?,
                Step::AnyDepth if rest.is_empty() => self.file(reach, path),
                Step::AnyDepth => {}
            }
        }
        Ok(())
    }
}

/// As the pattern writes it: "x", not "./x".
fn join(folder: &Path, name: impl AsRef<Path>) -> PathBuf {
    if folder == Path::new(".") { name.as_ref().to_owned() } else { folder.join(name) }
}

fn is_hidden(name: &std::ffi::OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b".")
}

/// Opens a file to read it. `None`: there is none, or no longer a file that can be read to an end. Never waits, as opening a pipe
/// would.
pub(super) fn open_file(reach: &Reach, path: &Path) -> Result<Option<File>, ConnectorError> {
    match reach.read(path) {
        Ok(file) => {
            let is_file = file.metadata().map_err(|error| ConnectorError::io("look at", path, error))?.is_file();
            Ok(is_file.then_some(file))
        }
        // ENXIO: a socket has taken the name.
        Err(error) if is_nothing(&error) || error.raw_os_error() == Some(Errno::NXIO.raw_os_error()) => Ok(None),
        Err(error) => Err(ConnectorError::io("open", path, error)),
    }
}

/// What is at a path, if anything.
fn metadata(reach: &Reach, path: &Path) -> io::Result<Option<Metadata>> {
    match reach.metadata(path) {
        Ok(metadata) => Ok(Some(metadata)),
        Err(error) if is_nothing(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether there is a folder that may be looked into.
pub(super) fn is_folder(reach: &Reach, path: &Path) -> bool {
    reach.metadata(path).is_ok_and(|there| there.is_dir())
}

/// There is nothing, or a link that leads to nothing, or round in circles.
fn is_nothing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
        || error.raw_os_error() == Some(Errno::LOOP.raw_os_error())
}

/// Order of paths with numbers in them as numbers: `log.2` before `log.10`.
pub(super) fn natural_order(one: &Path, other: &Path) -> Ordering {
    let (mut a, mut b) = (one.as_os_str().as_encoded_bytes(), other.as_os_str().as_encoded_bytes());
    while let (Some(&x), Some(&y)) = (a.first(), b.first()) {
        if x.is_ascii_digit() && y.is_ascii_digit() {
            let (number_a, rest_a) = number(a);
            let (number_b, rest_b) = number(b);
            let order = number_a.len().cmp(&number_b.len()).then_with(|| number_a.cmp(number_b));
            if order != Ordering::Equal {
                return order;
            }
            (a, b) = (rest_a, rest_b);
        } else if x != y {
            return x.cmp(&y);
        } else {
            (a, b) = (&a[1..], &b[1..]);
        }
    }
    // Equal but for leading zeros: any fixed order.
    a.len().cmp(&b.len()).then_with(|| one.cmp(other))
}

/// The digits at the beginning without leading zeros, and what follows them.
fn number(text: &[u8]) -> (&[u8], &[u8]) {
    let end = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let zeros = text[..end].iter().take_while(|&&byte| byte == b'0').count();
    (&text[zeros..end], &text[end..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_names_are_ordered_as_numbers() {
        let mut names = ["x.log.10", "x.log", "x.log.2", "x.log.002", "y", "x.log.1b", "x.log.1a"].map(Path::new);
        names.sort_by(|a, b| natural_order(a, b));
        assert_eq!(names, ["x.log", "x.log.1a", "x.log.1b", "x.log.002", "x.log.2", "x.log.10", "y"].map(Path::new));
    }
}
