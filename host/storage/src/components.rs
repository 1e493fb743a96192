//! The component store of one machine: `<data folder>/components/`.
//!
//! ```text
//! blobs/<sha256>.wasm         components by the digest of their bytes
//! descriptions/<sha256>.json  what the component of that digest says of itself, once somebody has found out
//! names/<name>/<version>      which digest a name@version stands for; written once, never changed
//! ```
//!
//! A store may have components **bundled** with the program. Each is copied into the folder when it is first asked for; from then
//! on its name stands for those bytes, whatever a newer program has bundled.
//!
//! A component's identity is the SHA-256 of its bytes as they were uploaded; state in checkpoints belongs to it. A
//! name@version is a pointer that never moves: it can be removed, but not be made to stand for other bytes. Bytes may also be
//! kept without a name, for jobs that name a file.
//!
//! Never looks into a component: whether it is one, and what it says of itself, is for the caller to find out.

mod error;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use sha2::Digest as _;
use weir_model::{Description, Digest, is_component_name, is_component_version, nearest};

use self::error::ComponentErrorKind::{Damaged, Io, Taken, Unknown};
pub use self::error::{ComponentError, ComponentErrorKind};
use crate::whole_file::{sync_folder_of, write_new, write_whole};

/// The store in one data folder. Nothing is created before something is pushed.
#[derive(Clone, Debug)]
pub struct ComponentStore {
    folder: PathBuf,
    bundled: &'static [Bundled],
}

/// A component that comes with the program.
#[derive(Clone, Copy)]
pub struct Bundled {
    /// Its name.
    pub name: &'static str,
    /// Its version.
    pub version: &'static str,
    /// Its bytes.
    pub bytes: &'static [u8],
}

impl std::fmt::Debug for Bundled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Bundled({}@{}, {} bytes)", self.name, self.version, self.bytes.len())
    }
}

/// A name and version in the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StoredComponent {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// SHA-256 of its bytes.
    pub digest: Digest,
    /// Its size.
    pub size_bytes: u64,
    /// When it was pushed, in milliseconds since the Unix epoch. None where it is bundled and was never asked for.
    pub pushed_at_ms: Option<u64>,
}

impl StoredComponent {
    /// `name@version`.
    pub fn full_name(&self) -> String {
        format!("{}@{}", self.name, self.version)
    }
}

/// Content of a file in `names/`.
#[derive(Serialize, Deserialize)]
struct Pointer {
    digest: Digest,
    size_bytes: u64,
    pushed_at_ms: u64,
}

/// What a push did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// The name@version is new.
    New(Digest),
    /// The same bytes were there under this name@version.
    AlreadyThere(Digest),
}

impl Pushed {
    /// The digest of the bytes.
    pub fn digest(self) -> Digest {
        match self {
            Pushed::New(digest) | Pushed::AlreadyThere(digest) => digest,
        }
    }
}

/// SHA-256 of some bytes: the identity of a component.
pub fn digest_of(bytes: &[u8]) -> Digest {
    Digest(sha2::Sha256::digest(bytes).into())
}

impl ComponentStore {
    /// The store in a data folder.
    pub fn open(data_dir: &Path) -> ComponentStore {
        ComponentStore { folder: data_dir.join("components"), bundled: &[] }
    }

    /// The same store, with components that come with the program.
    #[must_use]
    pub fn with_bundled(self, bundled: &'static [Bundled]) -> ComponentStore {
        ComponentStore { bundled, ..self }
    }

    fn bundled(&self, name: &str, version: &str) -> Option<&'static Bundled> {
        self.bundled.iter().find(|bundled| bundled.name == name && bundled.version == version)
    }

    /// Keeps a component under a name and version. Pushing the same bytes again changes nothing (and repairs a damaged
    /// copy).
    ///
    /// # Errors
    /// If this is not a name and a version, they stand for other bytes, or the disk does not take it.
    pub fn push(&self, bytes: &[u8], name: &str, version: &str) -> Result<Pushed, ComponentError> {
        if !is_component_name(name) || !is_component_version(version) {
            let message = format!("cannot push a component as {name}@{version}: this is not a name and a version");
            return Err(ComponentError::new(Unknown, message).hint(
                "both are 1 to 64 letters, digits, `.`, `_`, `-`, and start with a letter or digit; a version may also have `+`",
            ));
        }
        let digest = digest_of(bytes);
        self.check_taken(name, version, digest)?;
        let names = self.folder.join("names").join(name);
        let attempted = |error: io::Error| self.not_written(&format!("{name}@{version}"), &error);
        fs::create_dir_all(&names).map_err(attempted)?;
        // The bytes first: a pointer must never stand for bytes that are not there.
        self.keep_as(bytes, digest, &format!("{name}@{version}"))?;
        let pointer = Pointer { digest, size_bytes: bytes.len() as u64, pushed_at_ms: now_ms() };
        let text = serde_json::to_vec_pretty(&pointer).map_err(|error| attempted(error.into()))?;
        if write_new(&names.join(version), &text).map_err(attempted)? {
            sync_folder_of(&names).map_err(attempted)?;
            return Ok(Pushed::New(digest));
        }
        // Someone else pushed this name@version, now or before.
        self.check_taken(name, version, digest)?;
        Ok(Pushed::AlreadyThere(digest))
    }

    /// Keeps a component under its digest alone. [`sweep`](ComponentStore::sweep) removes it when nothing needs it.
    ///
    /// # Errors
    /// If the disk does not take it.
    pub fn keep(&self, bytes: &[u8]) -> Result<Digest, ComponentError> {
        let digest = digest_of(bytes);
        self.keep_as(bytes, digest, &format!("component {}", short(digest)))?;
        Ok(digest)
    }

    fn keep_as(&self, bytes: &[u8], digest: Digest, what: &str) -> Result<(), ComponentError> {
        let blob = self.blob(digest);
        if fs::read(&blob).ok().is_some_and(|there| digest_of(&there) == digest) {
            return Ok(());
        }
        let written = fs::create_dir_all(self.folder.join("blobs")).and_then(|()| write_whole(&blob, bytes));
        written.map_err(|error| self.not_written(what, &error))
    }

    fn not_written(&self, what: &str, error: &io::Error) -> ComponentError {
        let message = format!("cannot write {what} to the component store {}: {error}", self.folder.display());
        ComponentError::new(Io, message).hint("another place can be named with --data-dir")
    }

    fn check_taken(&self, name: &str, version: &str, digest: Digest) -> Result<(), ComponentError> {
        match self.pointer(name, version)? {
            Some(there) if there.digest != digest => {
                let message = format!(
                    "cannot push {name}@{version}: it stands for other bytes already (digest {}, not {})",
                    short(there.digest),
                    short(digest)
                );
                Err(ComponentError::new(Taken, message)
                    .hint("a version never changes, as state belongs to its bytes: give the new component a new version"))
            }
            _ => Ok(()),
        }
    }

    /// All names and versions, in their order; with those that are bundled.
    ///
    /// # Errors
    /// If the store cannot be read, or a part of it is damaged.
    pub fn list(&self) -> Result<Vec<StoredComponent>, ComponentError> {
        let mut found = Vec::new();
        for name in self.entries("names")? {
            for version in self.entries(&format!("names/{name}"))? {
                if let Some(pointer) = self.pointer(&name, &version)? {
                    found.push(stored(&name, &version, &pointer));
                }
            }
        }
        for Bundled { name, version, bytes } in self.bundled {
            if !found.iter().any(|stored| stored.name == *name && stored.version == *version) {
                let (digest, size_bytes) = (digest_of(bytes), bytes.len() as u64);
                let (name, version) = ((*name).to_owned(), (*version).to_owned());
                found.push(StoredComponent { name, version, digest, size_bytes, pushed_at_ms: None });
            }
        }
        found.sort_by(|a, b| (&a.name, version_order(&a.version)).cmp(&(&b.name, version_order(&b.version))));
        Ok(found)
    }

    /// What a name and version stand for. What is bundled is copied into the store.
    ///
    /// # Errors
    /// If there is no such component, and the hint says what there is; or a copy cannot be written.
    pub fn get(&self, name: &str, version: &str) -> Result<StoredComponent, ComponentError> {
        if self.pointer(name, version)?.is_none()
            && let Some(bundled) = self.bundled(name, version)
        {
            self.push(bundled.bytes, name, version)?;
        }
        match self.pointer(name, version)? {
            Some(pointer) => Ok(stored(name, version, &pointer)),
            None => Err(self.not_found(name, version)),
        }
    }

    /// Whether there are bytes of that digest. Does not read them.
    pub fn has(&self, digest: Digest) -> bool {
        self.blob(digest).is_file()
    }

    /// The bytes of that digest.
    ///
    /// # Errors
    /// If they are not there, or not what they were.
    pub fn bytes(&self, digest: Digest) -> Result<Vec<u8>, ComponentError> {
        let path = self.blob(digest);
        let damaged = |reason: String| {
            let message = format!("cannot use component {}: {} {reason}", short(digest), path.display());
            ComponentError::new(Damaged, message).hint("push the same file again; that repairs it")
        };
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) => match self.bundled.iter().find(|bundled| digest_of(bundled.bytes) == digest) {
                Some(bundled) => return Ok(bundled.bytes.to_vec()),
                None => return Err(damaged(format!("cannot be read: {error}"))),
            },
        };
        let found = digest_of(&bytes);
        if found == digest { Ok(bytes) } else { Err(damaged(format!("does not have its digest any more, but {found}"))) }
    }

    /// What the component of that digest says of itself, if that was kept, by a weir that wrote it as this one does.
    pub fn description(&self, digest: Digest) -> Option<Description> {
        serde_json::from_slice(&fs::read(self.description_file(digest)).ok()?).ok()
    }

    /// Keeps what a component says of itself, as long as its bytes are kept.
    ///
    /// # Errors
    /// If the disk does not take it.
    pub fn keep_description(&self, digest: Digest, description: &Description) -> Result<(), ComponentError> {
        let attempted = |error: io::Error| self.not_written(&format!("the description of {}", short(digest)), &error);
        let text = serde_json::to_vec_pretty(description).map_err(|error| attempted(error.into()))?;
        let folder = fs::create_dir_all(self.folder.join("descriptions"));
        folder.and_then(|()| write_whole(&self.description_file(digest), &text)).map_err(attempted)
    }

    fn description_file(&self, digest: Digest) -> PathBuf {
        self.folder.join("descriptions").join(format!("{digest}.json"))
    }

    /// Removes the bytes of that digest, and what goes with them.
    fn remove_bytes(&self, digest: Digest) -> io::Result<()> {
        // What a component says of itself can be found out again.
        let _ = fs::remove_file(self.description_file(digest));
        fs::remove_file(self.blob(digest))
    }

    /// Forgets a name@version, and the bytes if no other stands for them and they are not `needed` otherwise.
    ///
    /// # Errors
    /// If there is no such component, or the disk does not do it.
    pub fn remove(&self, name: &str, version: &str, needed: &dyn Fn(Digest) -> bool) -> Result<StoredComponent, ComponentError> {
        let removed = match self.pointer(name, version)? {
            Some(pointer) => stored(name, version, &pointer),
            None => return Err(self.not_removable(name, version)),
        };
        let path = self.folder.join("names").join(name).join(version);
        let attempted = |error: io::Error| {
            ComponentError::new(Io, format!("cannot remove {name}@{version} from {}: {error}", self.folder.display()))
        };
        fs::remove_file(&path).and_then(|()| sync_folder_of(&path)).map_err(attempted)?;
        // Fails while other versions are there, which is what is wanted.
        let _ = fs::remove_dir(self.folder.join("names").join(name));
        if !needed(removed.digest) && !self.list()?.iter().any(|other| other.digest == removed.digest) {
            match self.remove_bytes(removed.digest) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(attempted(error)),
                _ => {}
            }
        }
        Ok(removed)
    }

    /// Removes bytes that no name stands for, that are not `needed`, and that have been there for `age`: long enough for
    /// whoever pushed them to submit the job that needs them. Gives how many.
    ///
    /// # Errors
    /// If the store cannot be read; nothing is removed then.
    pub fn sweep(&self, age: Duration, needed: &dyn Fn(Digest) -> bool) -> Result<usize, ComponentError> {
        let named: Vec<Digest> = self.list()?.iter().map(|stored| stored.digest).collect();
        let mut removed = 0;
        for file in self.entries("blobs")? {
            let Some(digest) = file.strip_suffix(".wasm").and_then(|text| text.parse::<Digest>().ok()) else { continue };
            let path = self.blob(digest);
            let is_old = || {
                let modified = fs::metadata(&path).and_then(|metadata| metadata.modified()).ok();
                modified.and_then(|modified| modified.elapsed().ok()).is_some_and(|elapsed| elapsed >= age)
            };
            if !named.contains(&digest) && !needed(digest) && is_old() && self.remove_bytes(digest).is_ok() {
                removed += 1;
            }
        }
        Ok(removed)
    }

    fn not_removable(&self, name: &str, version: &str) -> ComponentError {
        match self.bundled(name, version) {
            Some(_) => ComponentError::new(Unknown, format!("cannot remove {name}@{version}: it is a part of this program"))
                .hint("it takes no room in the store until a job uses it"),
            None => self.not_found(name, version),
        }
    }

    fn not_found(&self, name: &str, version: &str) -> ComponentError {
        let message = format!("there is no component {name}@{version} in {}", self.folder.display());
        let error = ComponentError::new(Unknown, message);
        let all = self.list().unwrap_or_default();
        let versions: Vec<&str> = all.iter().filter(|stored| stored.name == name).map(|stored| stored.version.as_str()).collect();
        if !versions.is_empty() {
            return error.hint(format!("there is {name} in version {}", versions.join(", ")));
        }
        let similar = nearest(name, all.iter().map(|stored| stored.name.as_str()));
        let similar: Vec<String> =
            all.iter().filter(|stored| Some(stored.name.as_str()) == similar).map(StoredComponent::full_name).collect();
        match (similar.is_empty(), all.is_empty()) {
            (false, _) => error.hint(format!("did you mean {}?", similar.join(" or "))),
            (true, true) => error.hint("the store is empty; `weir component push FILE` puts a component in it"),
            (true, false) => {
                let names: Vec<String> = all.iter().take(8).map(StoredComponent::full_name).collect();
                error.hint(format!("there is {} (see `weir component ls`)", names.join(", ")))
            }
        }
    }

    fn blob(&self, digest: Digest) -> PathBuf {
        self.folder.join("blobs").join(format!("{digest}.wasm"))
    }

    /// What a name@version stands for. Names that could not have been pushed stand for nothing.
    fn pointer(&self, name: &str, version: &str) -> Result<Option<Pointer>, ComponentError> {
        if !is_component_name(name) || !is_component_version(version) {
            return Ok(None);
        }
        let path = self.folder.join("names").join(name).join(version);
        let damaged = |reason: String| {
            ComponentError::new(Damaged, format!("cannot read {} of the component store: {reason}", path.display()))
                .hint("remove this file and push the component again")
        };
        match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(|error| damaged(error.to_string())),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
            Err(error) => Err(damaged(error.to_string())),
        }
    }

    /// Names in a folder of the store, without those of unfinished files.
    fn entries(&self, folder: &str) -> Result<Vec<String>, ComponentError> {
        let path = self.folder.join(folder);
        let unreadable =
            |error: io::Error| ComponentError::new(Io, format!("cannot read the component store {}: {error}", path.display()));
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

fn stored(name: &str, version: &str, pointer: &Pointer) -> StoredComponent {
    let Pointer { digest, size_bytes, pushed_at_ms } = *pointer;
    StoredComponent { name: name.to_owned(), version: version.to_owned(), digest, size_bytes, pushed_at_ms: Some(pushed_at_ms) }
}

/// The beginning of a digest, for messages.
fn short(digest: Digest) -> String {
    digest.to_string().chars().take(12).collect()
}

/// Orders versions so that 1.10 comes after 1.9: numbers by value, all else as text.
fn version_order(version: &str) -> Vec<(u64, String)> {
    version.split(['.', '-', '+']).map(|part| (part.parse().unwrap_or(u64::MAX), part.to_owned())).collect()
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
