//! Compiled components on disk.
//!
//! Machine code is loaded without any check of its content, so an entry counts only if it carries a code that this
//! host made with a key only it can read (HMAC-SHA256, RFC 2104). Anything else — foreign, torn, of another wasmtime or
//! other settings — is compiled again and replaced. An entry is found by the SHA-256 of the instrumented component, so
//! a new version of the instrumentation never meets an old artefact.
#![allow(unsafe_code, reason = "loading machine code is unsafe; only authenticated bytes are loaded")]

use std::fs::{self, File, OpenOptions};
use std::hash::{Hash, Hasher};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use sha2::{Digest as _, Sha256};
use wasmtime::Engine;
use wasmtime::component::Component;
use xxhash_rust::xxh3::Xxh3Default;

use crate::error::SandboxError;

const KEY_FILE: &str = "key";
const KEY_BYTES: usize = 32;
const CODE_BYTES: usize = 32;

/// A folder of compiled components.
pub(crate) struct Cache {
    folder: PathBuf,
    key: [u8; KEY_BYTES],
    /// Stands for the version of wasmtime and every setting that changes its code.
    compatibility: u64,
}

impl Cache {
    pub(crate) fn open(folder: PathBuf, engine: &Engine) -> Result<Cache, SandboxError> {
        let failed = |action, path: &Path| {
            let path = path.to_path_buf();
            move |source| SandboxError::Cache { action, path, source }
        };
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(failed("make the folder", &folder))?;
        let key = key(&folder).map_err(failed("read or make the key", &folder.join(KEY_FILE)))?;
        let mut hasher = Xxh3Default::new();
        engine.precompile_compatibility_hash().hash(&mut hasher);
        Ok(Cache { folder, key, compatibility: hasher.finish() })
    }

    /// The compiled form of an instrumented component, if a trustworthy one is there.
    pub(crate) fn load(&self, engine: &Engine, component: &[u8]) -> Option<Component> {
        let name = self.name(component);
        let entry = fs::read(self.folder.join(&name)).ok()?;
        let (code, artefact) = entry.split_at_checked(CODE_BYTES)?;
        if !is_equal(code, &self.code(&name, artefact)) {
            tracing::warn!(entry = name, "compile cache: entry is damaged or not ours; compiling again");
            return None;
        }
        // SAFETY: the code shows that these bytes were written by `store` of a host holding the same key, which writes
        // only what wasmtime serialized. The bytes were read into memory nobody else can change.
        match unsafe { Component::deserialize(engine, artefact) } {
            Ok(component) => Some(component),
            Err(error) => {
                tracing::warn!(entry = name, error = format!("{error:#}"), "compile cache: entry does not load; compiling again");
                None
            }
        }
    }

    /// Keeps the compiled form. Failing to do so costs time later and nothing else, so it is logged.
    pub(crate) fn store(&self, component: &[u8], compiled: &Component) {
        let name = self.name(component);
        let stored = compiled.serialize().map_err(io::Error::other).and_then(|artefact| {
            let code = self.code(&name, &artefact);
            put(&self.folder, &name, &[&code, &artefact])
        });
        if let Err(error) = stored {
            tracing::warn!(entry = name, folder = %self.folder.display(), %error, "compile cache: cannot keep a component");
        }
    }

    fn name(&self, component: &[u8]) -> String {
        let digest = weir_model::Digest(Sha256::digest(component).into());
        format!("{digest}-{:016x}", self.compatibility)
    }

    fn code(&self, name: &str, artefact: &[u8]) -> [u8; CODE_BYTES] {
        hmac_sha256(&self.key, &[name.as_bytes(), artefact])
    }
}

/// Reads the key, or makes one. A key that others can read is worth nothing and is replaced.
fn key(folder: &Path) -> io::Result<[u8; KEY_BYTES]> {
    let path = folder.join(KEY_FILE);
    loop {
        match File::open(&path) {
            Ok(mut file) => {
                let is_private = file.metadata()?.permissions().mode() & 0o077 == 0;
                let mut key = [0; KEY_BYTES];
                if is_private && file.read_exact(&mut key).is_ok() {
                    return Ok(key);
                }
                tracing::warn!(key = %path.display(), "compile cache: the key is damaged or readable by others; making a new one");
                fs::remove_file(&path)?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let mut key = [0; KEY_BYTES];
                File::open("/dev/urandom")?.read_exact(&mut key)?;
                let made = temporary(folder);
                OpenOptions::new().write(true).create_new(true).mode(0o600).open(&made)?.write_all(&key)?;
                // A link never replaces: of two hosts that start at once, one wins and both read the winner's key.
                let linked = fs::hard_link(&made, &path);
                fs::remove_file(&made)?;
                match linked {
                    Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                    _ => {}
                }
            }
            Err(error) => return Err(error),
        }
    }
}

fn put(folder: &Path, name: &str, parts: &[&[u8]]) -> io::Result<()> {
    let temporary = temporary(folder);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
    let written = parts.iter().try_for_each(|part| file.write_all(part)).and_then(|()| fs::rename(&temporary, folder.join(name)));
    if written.is_err() {
        // Best effort: the write's own error says more.
        let _ = fs::remove_file(&temporary);
    }
    written
}

fn temporary(folder: &Path) -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    folder.join(format!(".{}-{}-{now}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)))
}

fn hmac_sha256(key: &[u8; KEY_BYTES], parts: &[&[u8]]) -> [u8; CODE_BYTES] {
    let pad = |byte: u8| {
        let mut block = [byte; 64];
        block.iter_mut().zip(key).for_each(|(b, k)| *b ^= k);
        block
    };
    let mut inner = Sha256::new_with_prefix(pad(0x36));
    for part in parts {
        inner.update((part.len() as u64).to_le_bytes());
        inner.update(part);
    }
    let mut outer = Sha256::new_with_prefix(pad(0x5c));
    outer.update(inner.finalize());
    outer.finalize().into()
}

/// Compares in a time that does not depend on where the two differ.
fn is_equal(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const COMPONENT: &str = "(component)";

    fn entry_of(cache: &Cache) -> PathBuf {
        cache.folder.join(cache.name(COMPONENT.as_bytes()))
    }

    fn stored() -> (tempfile::TempDir, Engine, Cache) {
        let folder = tempfile::tempdir().unwrap();
        let engine = Engine::default();
        let cache = Cache::open(folder.path().join("cache"), &engine).unwrap();
        let compiled = Component::new(&engine, wat::parse_str(COMPONENT).unwrap()).unwrap();
        cache.store(COMPONENT.as_bytes(), &compiled);
        (folder, engine, cache)
    }

    #[test]
    fn an_entry_is_found_again_by_a_later_host() {
        let (_folder, engine, cache) = stored();
        let later = Cache::open(cache.folder.clone(), &engine).unwrap();
        assert!(later.load(&engine, COMPONENT.as_bytes()).is_some());
        assert!(later.load(&engine, b"another").is_none());
    }

    #[test]
    fn an_entry_changed_anywhere_is_not_trusted() {
        let (_folder, engine, cache) = stored();
        let path = entry_of(&cache);
        let good = fs::read(&path).unwrap();
        for position in [0, CODE_BYTES, good.len() / 2, good.len() - 1] {
            let mut bad = good.clone();
            bad[position] ^= 1;
            fs::write(&path, &bad).unwrap();
            assert!(cache.load(&engine, COMPONENT.as_bytes()).is_none(), "byte {position}");
        }
        fs::write(&path, &good[..good.len() / 2]).unwrap();
        assert!(cache.load(&engine, COMPONENT.as_bytes()).is_none());
        fs::write(&path, &good).unwrap();
        assert!(cache.load(&engine, COMPONENT.as_bytes()).is_some());
    }

    #[test]
    fn an_entry_under_another_name_or_key_is_not_trusted() {
        let (_folder, engine, cache) = stored();
        fs::copy(entry_of(&cache), cache.folder.join(cache.name(b"another"))).unwrap();
        assert!(cache.load(&engine, b"another").is_none());

        fs::set_permissions(cache.folder.join(KEY_FILE), fs::Permissions::from_mode(0o644)).unwrap();
        let later = Cache::open(cache.folder.clone(), &engine).unwrap();
        assert_ne!(later.key, cache.key, "a key others could read is replaced");
        assert!(later.load(&engine, COMPONENT.as_bytes()).is_none());
    }

    #[test]
    fn the_code_is_hmac_sha256() {
        // Checked against the definition with an independent composition of its two hashes.
        let key = [0x0b; KEY_BYTES];
        let message = [&2u64.to_le_bytes()[..], b"Hi"].concat();
        let mut padded = [0u8; 64];
        padded[..KEY_BYTES].copy_from_slice(&key);
        let inner = Sha256::digest([padded.map(|b| b ^ 0x36).as_slice(), &message].concat());
        let outer = Sha256::digest([padded.map(|b| b ^ 0x5c).as_slice(), inner.as_slice()].concat());
        assert_eq!(hmac_sha256(&key, &[b"Hi"]), <[u8; 32]>::from(outer));
    }
}
