//! The local component store: `<data-dir>/components/`.
//!
//! ```text
//! blobs/<sha256>.wasm         components by the digest of their bytes
//! names/<name>/<version>      which digest a name@version stands for; written once, never changed
//! ```
//!
//! A component's identity is the SHA-256 of its bytes as they were uploaded; state in checkpoints belongs to it. A
//! name@version is a pointer that never moves: it can be removed, but not be made to stand for other bytes.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::Digest as _;
use weir_model::Digest;
use weir_plan::{ComponentRef, is_component_name, is_component_version, nearest};

use crate::failure::{Exit, Failure};
use crate::{files, output};

/// The store in one data folder. Nothing is created before something is pushed.
#[derive(Clone, Debug)]
pub(crate) struct ComponentStore {
    folder: PathBuf,
}

/// A component that was found.
pub(crate) struct Resolved {
    /// Its bytes, as they were uploaded.
    pub(crate) bytes: Vec<u8>,
    /// SHA-256 of the bytes.
    pub(crate) digest: Digest,
    /// `name@version`, or the path of its file as the job file has it.
    pub(crate) name: String,
}

/// A component in the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Stored {
    pub(crate) name: String,
    pub(crate) version: String,
    /// 64 hexadecimal digits.
    pub(crate) digest: String,
    pub(crate) size_bytes: u64,
    /// Milliseconds since the Unix epoch.
    pub(crate) pushed_at_ms: u64,
}

impl Stored {
    /// `name@version`.
    pub(crate) fn full_name(&self) -> String {
        format!("{}@{}", self.name, self.version)
    }
}

/// Content of a file in `names/`.
#[derive(Serialize, Deserialize)]
struct Pointer {
    digest: String,
    size_bytes: u64,
    pushed_at_ms: u64,
}

/// What a push did.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Pushed {
    /// The name@version is new.
    New(Digest),
    /// The same bytes were there under this name@version.
    AlreadyThere(Digest),
}

/// SHA-256 of some bytes: the identity of a component.
pub(crate) fn digest_of(bytes: &[u8]) -> Digest {
    Digest(sha2::Sha256::digest(bytes).into())
}

impl ComponentStore {
    /// The store in a data folder.
    pub(crate) fn open(data_dir: &Path) -> ComponentStore {
        ComponentStore { folder: data_dir.join("components") }
    }

    /// Finds the component that a job file names. Relative paths count from `job_dir`.
    pub(crate) fn resolve(&self, component: &ComponentRef, job_dir: &Path) -> Result<Resolved, Failure> {
        match component {
            ComponentRef::Path(path) => {
                let bytes = files::read(&job_dir.join(path), "component")?;
                Ok(Resolved { digest: digest_of(&bytes), bytes, name: path.clone() })
            }
            ComponentRef::Named { name, version } => {
                let stored = self.get(name, version)?;
                let path = self.blob(&stored.digest);
                let damaged = |reason: String| {
                    let message = format!("cannot use component {name}@{version}: {} {reason}", path.display());
                    Failure::new("E0025", Exit::Failed, message).hint("push the same file again; that repairs it")
                };
                let bytes = fs::read(&path).map_err(|error| damaged(format!("cannot be read: {error}")))?;
                let digest = digest_of(&bytes);
                if digest.to_string() != stored.digest {
                    return Err(damaged(format!("does not have its digest any more, but {digest}")));
                }
                Ok(Resolved { bytes, digest, name: format!("{name}@{version}") })
            }
        }
    }

    /// Keeps a component under a name and version. Pushing the same bytes again changes nothing (and repairs a damaged
    /// copy); other bytes are refused.
    pub(crate) fn push(&self, bytes: &[u8], name: &str, version: &str) -> Result<Pushed, Failure> {
        if !is_component_name(name) || !is_component_version(version) {
            let message = format!("cannot push a component as {name}@{version}: this is not a name and a version");
            return Err(Failure::new("E0020", Exit::Usage, message).hint(
                "both are 1 to 64 letters, digits, `.`, `_`, `-`, and start with a letter or digit; a version may also have `+`",
            ));
        }
        let digest = digest_of(bytes);
        self.check_taken(name, version, digest)?;
        let names = self.folder.join("names").join(name);
        let attempted = |error: io::Error| {
            let message = format!("cannot write {name}@{version} to the component store {}: {error}", self.folder.display());
            Failure::new("E0023", Exit::Failed, message).hint("another place can be named with --data-dir")
        };
        fs::create_dir_all(&names).and_then(|()| fs::create_dir_all(self.folder.join("blobs"))).map_err(attempted)?;
        // The bytes first: a pointer must never stand for bytes that are not there.
        let blob = self.blob(&digest.to_string());
        if fs::read(&blob).ok().is_none_or(|there| digest_of(&there) != digest) {
            files::write_whole(&blob, bytes).map_err(attempted)?;
        }
        let pointer = Pointer { digest: digest.to_string(), size_bytes: bytes.len() as u64, pushed_at_ms: output::now_ms() };
        let text = serde_json::to_vec_pretty(&pointer).map_err(|error| attempted(error.into()))?;
        if files::write_new(&names.join(version), &text).map_err(attempted)? {
            files::sync_folder(&names).map_err(attempted)?;
            return Ok(Pushed::New(digest));
        }
        // Someone else pushed this name@version, now or before.
        self.check_taken(name, version, digest)?;
        Ok(Pushed::AlreadyThere(digest))
    }

    fn check_taken(&self, name: &str, version: &str, digest: Digest) -> Result<(), Failure> {
        match self.pointer(name, version)? {
            Some(there) if there.digest != digest.to_string() => {
                let message = format!(
                    "cannot push {name}@{version}: it stands for other bytes already (digest {}, not {})",
                    short(&there.digest),
                    short(&digest.to_string())
                );
                Err(Failure::new("E0021", Exit::Refused, message)
                    .hint("a version never changes, as state belongs to its bytes: give the new component a new version"))
            }
            _ => Ok(()),
        }
    }

    /// All components, by name and version.
    pub(crate) fn list(&self) -> Result<Vec<Stored>, Failure> {
        let mut found = Vec::new();
        for name in self.entries("names")? {
            for version in self.entries(&format!("names/{name}"))? {
                if let Some(pointer) = self.pointer(&name, &version)? {
                    found.push(stored(&name, &version, pointer));
                }
            }
        }
        found.sort_by(|a, b| (&a.name, version_order(&a.version)).cmp(&(&b.name, version_order(&b.version))));
        Ok(found)
    }

    /// The component of that name and version.
    pub(crate) fn get(&self, name: &str, version: &str) -> Result<Stored, Failure> {
        match self.pointer(name, version)? {
            Some(pointer) => Ok(stored(name, version, pointer)),
            None => Err(self.not_found(name, version)),
        }
    }

    /// Forgets a name@version, and the bytes if no other stands for them.
    pub(crate) fn remove(&self, name: &str, version: &str) -> Result<Stored, Failure> {
        let removed = self.get(name, version)?;
        let path = self.folder.join("names").join(name).join(version);
        let attempted = |error: io::Error| {
            Failure::new("E0023", Exit::Failed, format!("cannot remove {name}@{version} from {}: {error}", self.folder.display()))
        };
        fs::remove_file(&path).and_then(|()| files::sync_folder(&path)).map_err(attempted)?;
        // Fails while other versions are there, which is what is wanted.
        let _ = fs::remove_dir(self.folder.join("names").join(name));
        if !self.list()?.iter().any(|other| other.digest == removed.digest) {
            match fs::remove_file(self.blob(&removed.digest)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(attempted(error)),
                _ => {}
            }
        }
        Ok(removed)
    }

    fn not_found(&self, name: &str, version: &str) -> Failure {
        let message = format!("there is no component {name}@{version} in {}", self.folder.display());
        let failure = Failure::new("E0020", Exit::Usage, message);
        let all = self.list().unwrap_or_default();
        let versions: Vec<&str> = all.iter().filter(|stored| stored.name == name).map(|stored| stored.version.as_str()).collect();
        if !versions.is_empty() {
            return failure.hint(format!("there is {name} in version {}", versions.join(", ")));
        }
        let similar = nearest(name, all.iter().map(|stored| stored.name.as_str()));
        let similar: Vec<String> =
            all.iter().filter(|stored| Some(stored.name.as_str()) == similar).map(Stored::full_name).collect();
        match (similar.is_empty(), all.is_empty()) {
            (false, _) => failure.hint(format!("did you mean {}?", similar.join(" or "))),
            (true, true) => failure.hint("the store is empty; `weir component push FILE` puts a component in it"),
            (true, false) => {
                let names: Vec<String> = all.iter().take(8).map(Stored::full_name).collect();
                failure.hint(format!("there is {} (see `weir component ls`)", names.join(", ")))
            }
        }
    }

    fn blob(&self, digest: &str) -> PathBuf {
        self.folder.join("blobs").join(format!("{digest}.wasm"))
    }

    /// What a name@version stands for. Names that could not have been pushed stand for nothing.
    fn pointer(&self, name: &str, version: &str) -> Result<Option<Pointer>, Failure> {
        if !is_component_name(name) || !is_component_version(version) {
            return Ok(None);
        }
        let path = self.folder.join("names").join(name).join(version);
        let damaged = |reason: String| {
            Failure::new("E0025", Exit::Failed, format!("cannot read {} of the component store: {reason}", path.display()))
                .hint("remove this file and push the component again")
        };
        match fs::read(&path) {
            Ok(bytes) => {
                let pointer: Pointer = serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))?;
                pointer.digest.parse::<Digest>().map_err(|error| damaged(error.to_string()))?;
                Ok(Some(pointer))
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
            Err(error) => Err(damaged(error.to_string())),
        }
    }

    /// Names in a folder of the store, without those of unfinished files.
    fn entries(&self, folder: &str) -> Result<Vec<String>, Failure> {
        let path = self.folder.join(folder);
        let unreadable = |error: io::Error| {
            Failure::new("E0023", Exit::Failed, format!("cannot read the component store {}: {error}", path.display()))
        };
        let entries = match fs::read_dir(&path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(unreadable(error)),
        };
        let mut names = Vec::new();
        for entry in entries {
            let name = entry.map_err(unreadable)?.file_name();
            names.extend(name.into_string().ok().filter(|name| !name.starts_with('.')));
        }
        Ok(names)
    }
}

fn stored(name: &str, version: &str, pointer: Pointer) -> Stored {
    let Pointer { digest, size_bytes, pushed_at_ms } = pointer;
    Stored { name: name.to_owned(), version: version.to_owned(), digest, size_bytes, pushed_at_ms }
}

/// The beginning of a digest, for messages.
pub(crate) fn short(digest: &str) -> &str {
    digest.get(..12).unwrap_or(digest)
}

/// Orders versions so that 1.10 comes after 1.9: numbers by value, all else as text.
fn version_order(version: &str) -> Vec<(u64, String)> {
    version.split(['.', '-', '+']).map(|part| (part.parse().unwrap_or(u64::MAX), part.to_owned())).collect()
}

#[cfg(test)]
mod tests;
