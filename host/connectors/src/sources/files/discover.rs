//! Finds the files that a path means: a file, the files of a folder, or the matches of a glob.

use std::fs::{self, Metadata};
use std::io;
use std::path::{Path, PathBuf};

use crate::ConnectorError;

/// What the `path` setting means. Sub-folders and hidden files of a folder are left out.
#[derive(Clone, Debug)]
pub(super) enum Pattern {
    Path(PathBuf),
    Glob(String),
}

const OPTIONS: glob::MatchOptions =
    glob::MatchOptions { case_sensitive: true, require_literal_separator: true, require_literal_leading_dot: true };

impl Pattern {
    /// `Err`: where in the glob it is wrong and why.
    pub(super) fn new(path: &str) -> Result<Pattern, String> {
        // A file whose name looks like a glob is that file.
        if path.contains(['*', '?', '[']) && !Path::new(path).exists() {
            return match glob::Pattern::new(path) {
                Ok(_) => Ok(Pattern::Glob(path.to_owned())),
                Err(error) => Err(format!("is not a valid glob: at character {}: {}", error.pos, error.msg)),
            };
        }
        Ok(Pattern::Path(PathBuf::from(path)))
    }

    /// The files there are now, by name. A file or folder that does not exist is no file.
    pub(super) fn files(&self) -> Result<Vec<(PathBuf, Metadata)>, ConnectorError> {
        let mut files = Vec::new();
        match self {
            Pattern::Glob(glob) => {
                let matches = glob::glob_with(glob, OPTIONS).map_err(|error| nothing(glob, error.msg.to_owned()))?;
                for path in matches {
                    let path = path.map_err(|error| {
                        let path = error.path().to_owned();
                        ConnectorError::io("list", &path, error.into())
                    })?;
                    files.extend(metadata(&path)?.filter(Metadata::is_file).map(|metadata| (path, metadata)));
                }
            }
            Pattern::Path(path) => match metadata(path)? {
                None => {}
                Some(found) if found.is_dir() => files = files_of_folder(path)?,
                Some(found) if found.is_file() => files.push((path.clone(), found)),
                Some(_) => return Err(nothing(&path.to_string_lossy(), "it is neither a file nor a folder".to_owned())),
            },
        }
        files.sort_by(|a, b| a.0.cmp(&b.0));
        match files.iter().find(|(path, _)| path.to_str().is_none()) {
            Some((path, _)) => Err(ConnectorError::NothingToRead {
                path: path.to_string_lossy().into_owned(),
                reason: "its name is not UTF-8, and positions are kept under the name".to_owned(),
                hint: "rename the file, or leave it out with a glob",
            }),
            None => Ok(files),
        }
    }

    /// As the user wrote it.
    pub(super) fn text(&self) -> String {
        match self {
            Pattern::Path(path) => path.to_string_lossy().into_owned(),
            Pattern::Glob(glob) => glob.clone(),
        }
    }

    /// The error for a pattern that means no file at all.
    pub(super) fn no_file(&self) -> ConnectorError {
        let reason = match self {
            Pattern::Glob(_) => "no file matches",
            Pattern::Path(path) if path.is_dir() => "the folder has no file (sub-folders and hidden files are left out)",
            Pattern::Path(_) => "there is no such file or folder",
        };
        nothing(&self.text(), reason.to_owned())
    }
}

/// The files right in a folder.
pub(super) fn files_of_folder(folder: &Path) -> Result<Vec<(PathBuf, Metadata)>, ConnectorError> {
    let failed = |error| ConnectorError::io("list the folder", folder, error);
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if entry.file_name().as_encoded_bytes().starts_with(b".") {
            continue;
        }
        let path = entry.path();
        files.extend(metadata(&path)?.filter(Metadata::is_file).map(|metadata| (path, metadata)));
    }
    Ok(files)
}

/// What is at a path, if anything.
fn metadata(path: &Path) -> Result<Option<Metadata>, ConnectorError> {
    match fs::metadata(path) {
        Ok(metadata) => Ok(Some(metadata)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(ConnectorError::io("look at", path, error)),
    }
}

fn nothing(path: &str, reason: String) -> ConnectorError {
    ConnectorError::NothingToRead {
        path: path.to_owned(),
        reason,
        hint: "check the path, or set follow = true to wait for files",
    }
}
