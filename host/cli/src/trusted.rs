//! The list of `weir.toml` files that count although somebody else may have written them. It is in the user's own configuration
//! folder: each file's path with the digest of its content, so that a file that changes is a stranger again.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use weir_model::{Digest, ErrorNumber};

use crate::failure::{Exit, Failure};

/// The list's name in the user's configuration folder.
const LIST: &str = "trusted";

/// Files that the user lets count: one line each, the digest of the content and the path.
#[derive(Debug, Default)]
pub(crate) struct TrustList(Vec<(String, PathBuf)>);

impl TrustList {
    /// Reads the list; nothing is trusted where there is none.
    pub(crate) fn read(env: &dyn Fn(&str) -> Option<String>) -> Result<TrustList, Failure> {
        let Some(list) = list_of(env) else { return Ok(TrustList::default()) };
        let text = match fs::read_to_string(&list) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(TrustList::default()),
            Err(error) => return Err(failure("read", &list, &error)),
        };
        let entry = |line: &str| line.split_once(' ').map(|(digest, path)| (digest.to_owned(), PathBuf::from(path)));
        Ok(TrustList(text.lines().filter_map(entry).collect()))
    }

    /// Whether this content of this file is trusted.
    pub(crate) fn has(&self, path: &Path, digest: Digest) -> bool {
        let digest = digest.to_string();
        self.0.iter().any(|(trusted, of)| of == path && *trusted == digest)
    }

    /// Trusts this content of a file, whose path is text without line breaks.
    pub(crate) fn add(&mut self, path: &Path, digest: Digest) {
        self.remove(path);
        self.0.push((digest.to_string(), path.to_owned()));
    }

    /// Trusts no content of a file.
    pub(crate) fn remove(&mut self, path: &Path) {
        self.0.retain(|(_, other)| other != path);
    }

    /// Writes the list.
    pub(crate) fn write(&self, list: &Path) -> Result<(), Failure> {
        self.replace(list).map_err(|error| failure("write", list, &error))
    }

    fn replace(&self, list: &Path) -> std::io::Result<()> {
        let folder = list.parent().unwrap_or(Path::new("/"));
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        // Renamed into place, so that two of these at a time leave one whole list.
        let new = list.with_extension(format!("{}.new", std::process::id()));
        let _ = fs::remove_file(&new);
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        for (digest, path) in &self.0 {
            writeln!(file, "{digest} {}", path.display())?;
        }
        file.sync_all()?;
        fs::rename(&new, list)
    }
}

/// The folder of the user's own configuration. What is not absolute would be a folder of whoever wrote the current one.
pub(crate) fn user_folder(env: &dyn Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let set = |name| env(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let folder = set("XDG_CONFIG_HOME").or_else(|| set("HOME").map(|home| home.join(".config")));
    folder.map(|folder| folder.join("weir"))
}

/// Where the list is; none where the user has no folder.
pub(crate) fn list_of(env: &dyn Fn(&str) -> Option<String>) -> Option<PathBuf> {
    user_folder(env).map(|folder| folder.join(LIST))
}

fn failure(what: &str, list: &Path, error: &std::io::Error) -> Failure {
    let message = format!("cannot {what} the list of trusted files {}: {error}", list.display());
    Failure::new(ErrorNumber::WrongConfiguration, Exit::Usage, message)
}
