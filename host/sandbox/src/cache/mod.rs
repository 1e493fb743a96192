//! Compiled components on disk.
//!
//! Machine code is loaded without any check of its content, so an entry counts only if this user's hosts made it on this machine:
//! folder, key and entry are the user's own and nobody else's ([`trust`]), and the entry carries a code over its name, its content
//! and where it was made ([`key`]). Where folder or key are not, there is no cache. An entry that does not count (foreign, torn, of
//! another wasmtime or other settings) is compiled again and replaced. It is found by the SHA-256 of the instrumented component, so
//! a new version of the instrumentation never meets an old artefact. Entries used longest ago go when all together are too large.
#![allow(unsafe_code, reason = "loading machine code is unsafe; only authenticated bytes are loaded")]

mod key;
mod trust;

#[cfg(test)]
mod tests;

use std::fs;
use std::hash::{Hash, Hasher};
use std::io::{self, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Dir, Timespec, Timestamps, UTIME_NOW, futimens, renameat, statat, unlinkat};
use sha2::{Digest as _, Sha256};
use wasmtime::Engine;
use wasmtime::component::Component;
use weir_model::Description;
use weir_model::limits::COMPILED_BYTES_MAX;
use xxhash_rust::xxh3::Xxh3Default;

use crate::error::SandboxError;
use key::{CODE_BYTES, KEY_FILE, Key, TEMPORARY, is_equal};
use trust::Distrust;

/// What the name of a description's entry ends with.
const DESCRIPTION: &str = ".description";

/// A folder of compiled components, and of what they say of themselves.
pub(crate) struct Cache {
    /// For messages.
    path: PathBuf,
    folder: OwnedFd,
    key: Key,
    /// Stands for the version of wasmtime and every setting that changes its code.
    compatibility: u64,
    bytes_max: u64,
}

impl Cache {
    /// Opens or makes a cache. None, with a warning that names the file, if others could have made what is in it.
    pub(crate) fn open(path: &Path, engine: &Engine) -> Result<Option<Cache>, SandboxError> {
        let opened = Cache::try_open(path, engine)?;
        Ok(opened.inspect_err(|Distrust { path, why }| {
            let path = path.display();
            tracing::warn!("compile cache: {path} is not trusted: {why}; components are compiled at every start until it is removed or mended");
        }).ok())
    }

    fn try_open(path: &Path, engine: &Engine) -> Result<Result<Cache, Distrust>, SandboxError> {
        let failed = |action, path: &Path| {
            let path = path.to_path_buf();
            move |source| SandboxError::Cache { action, path, source }
        };
        if path.symlink_metadata().is_err() {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed("make the folder", path))?;
        }
        let folder = match trust::folder(path).map_err(failed("open the folder", path))? {
            Ok(folder) => folder,
            Err(distrust) => return Ok(Err(distrust)),
        };
        let key_path = path.join(KEY_FILE);
        let key = match Key::open(&folder).map_err(failed("read or make the key", &key_path))? {
            Ok(key) => key,
            Err(why) => return Ok(Err(Distrust { path: key_path, why })),
        };
        let mut hasher = Xxh3Default::new();
        engine.precompile_compatibility_hash().hash(&mut hasher);
        let (path, compatibility, bytes_max) = (path.to_path_buf(), hasher.finish(), COMPILED_BYTES_MAX);
        Ok(Ok(Cache { path, folder, key, compatibility, bytes_max }))
    }

    /// The compiled form of an instrumented component, and its bytes, if a trustworthy one is there.
    pub(crate) fn load(&self, engine: &Engine, component: &[u8]) -> Option<(Component, Vec<u8>)> {
        let name = self.name(component);
        let artefact = self.content(&name)?;
        // SAFETY: the code shows that these bytes were written by `store` of a host holding the same key, which writes
        // only what wasmtime serialized. The bytes were read into memory nobody else can change.
        match unsafe { Component::deserialize(engine, &artefact) } {
            Ok(component) => Some((component, artefact)),
            Err(error) => {
                self.warn(&name, &format!("entry does not load: {error:#}; compiling again"));
                None
            }
        }
    }

    /// What an instrumented component says of itself, if it was asked before.
    pub(crate) fn load_description(&self, component: &[u8]) -> Option<Description> {
        let name = self.description_name(component);
        let description = serde_json::from_slice(&self.content(&name)?);
        description.inspect_err(|error| self.warn(&name, &format!("entry is no description: {error}; asking again"))).ok()
    }

    /// What an entry holds, if it is trustworthy.
    fn content(&self, name: &str) -> Option<Vec<u8>> {
        let mut entry = match self.read(name) {
            Ok(Ok(entry)) => entry?,
            Ok(Err(why)) => {
                self.warn(name, &format!("entry is not trusted: {why}; compiling again"));
                return None;
            }
            Err(error) => {
                self.warn(name, &format!("cannot read an entry: {error}; compiling again"));
                return None;
            }
        };
        let trusted =
            entry.split_at_checked(CODE_BYTES).is_some_and(|(code, content)| is_equal(code, &self.key.code(name, content)));
        if !trusted {
            self.warn(name, "entry is damaged or not ours; compiling again");
            return None;
        }
        entry.drain(..CODE_BYTES);
        Some(entry)
    }

    /// Reads an entry whole, and marks it as used.
    fn read(&self, name: &str) -> io::Result<Result<Option<Vec<u8>>, &'static str>> {
        let mut file = match trust::file(&self.folder, name)? {
            Some(Ok(file)) => file,
            Some(Err(why)) => return Ok(Err(why)),
            None => return Ok(Ok(None)),
        };
        if file.metadata()?.len() > self.bytes_max {
            return Ok(Err("it is larger than all entries may be together"));
        }
        let mut entry = Vec::new();
        file.read_to_end(&mut entry)?;
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        // Best effort: without it the entry goes earlier.
        let _ = futimens(&file, &Timestamps { last_access: now, last_modification: now });
        Ok(Ok(Some(entry)))
    }

    /// Keeps the compiled form. Failing to do so costs time later and nothing else, so it is logged.
    pub(crate) fn store(&self, component: &[u8], artefact: &[u8]) {
        let name = self.name(component);
        if let Err(error) = self.put(&name, artefact) {
            self.warn(&name, &format!("cannot keep a component: {error}"));
        }
    }

    /// Keeps what a component says of itself, likewise.
    pub(crate) fn store_description(&self, component: &[u8], description: &Description) {
        let name = self.description_name(component);
        let text = serde_json::to_vec(description).map_err(io::Error::other);
        if let Err(error) = text.and_then(|text| self.put(&name, &text)) {
            self.warn(&name, &format!("cannot keep a description: {error}"));
        }
    }

    fn put(&self, name: &str, artefact: &[u8]) -> io::Result<()> {
        let bytes = (CODE_BYTES + artefact.len()) as u64;
        if bytes > self.bytes_max {
            return Err(io::Error::other(format!("it has {bytes} bytes, and all entries may have {}", self.bytes_max)));
        }
        self.make_room(name, bytes)?;
        let temporary = key::write(&self.folder, &[&self.key.code(name, artefact), artefact])?;
        renameat(&self.folder, &temporary, &self.folder, name).map_err(|error| {
            // Best effort: the error of the renaming says more.
            let _ = unlinkat(&self.folder, &temporary, AtFlags::empty());
            error.into()
        })
    }

    /// Deletes what was used longest ago, until there is room for an entry of so many bytes, and what a host that was killed left.
    fn make_room(&self, name: &str, bytes: u64) -> io::Result<()> {
        let mut entries = Vec::new();
        for entry in Dir::read_from(&self.folder)? {
            let entry = entry?;
            let Ok(other) = entry.file_name().to_str() else { continue };
            if !is_entry(other) && !other.starts_with(TEMPORARY) || other == name {
                continue;
            }
            // Another host may delete it at this moment.
            let Ok(found) = statat(&self.folder, other, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            entries.push((found.st_mtime, found.st_mtime_nsec, u64::try_from(found.st_size).unwrap_or(0), other.to_owned()));
        }
        entries.sort();
        let mut held: u64 = entries.iter().map(|(_, _, bytes, _)| bytes).sum();
        for (_, _, size, other) in entries {
            if held + bytes <= self.bytes_max {
                break;
            }
            match unlinkat(&self.folder, &other, AtFlags::empty()) {
                Ok(()) | Err(rustix::io::Errno::NOENT) => held -= size,
                Err(error) => self.warn(&other, &format!("cannot delete what was not used for long: {error}")),
            }
        }
        Ok(())
    }

    fn warn(&self, name: &str, what: &str) {
        tracing::warn!(entry = %self.path.join(name).display(), "compile cache: {what}");
    }

    fn name(&self, component: &[u8]) -> String {
        let digest = weir_model::Digest(Sha256::digest(component).into());
        format!("{digest}-{:016x}", self.compatibility)
    }

    /// The entry of a component's description lies beside that of its machine code.
    fn description_name(&self, component: &[u8]) -> String {
        format!("{}{DESCRIPTION}", self.name(component))
    }
}

/// Whether a file has a name as entries have. Whatever else lies in the folder is left alone.
fn is_entry(name: &str) -> bool {
    let is_hex = |text: &str, digits| text.len() == digits && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let name = name.strip_suffix(DESCRIPTION).unwrap_or(name);
    name.rsplit_once('-').is_some_and(|(digest, compatibility)| is_hex(digest, 64) && is_hex(compatibility, 16))
}
