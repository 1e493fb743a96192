//! The secret that vouches for entries, and the codes made with it (HMAC-SHA256, RFC 2104).
//!
//! The code of an entry also binds it to this machine and to the very file of the key, by the time at which that came to be
//! here: a key that came with a checkout, an archive or a copy knows of no entry that came with it.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags, openat, renameat, renameat_with, unlinkat};
use sha2::{Digest as _, Sha256};

use super::trust;

pub(super) const KEY_FILE: &str = "key";
const KEY_BYTES: usize = 32;
pub(super) const CODE_BYTES: usize = 32;

/// The key of a cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Key {
    secret: [u8; KEY_BYTES],
    /// What an entry is bound to beside its name and content.
    bound_to: Vec<u8>,
}

impl Key {
    /// Reads the key, or makes one. The inner error is why the key that is there is not used.
    pub(super) fn open(folder: &OwnedFd) -> io::Result<Result<Key, &'static str>> {
        // It may take a second try if another host makes one at the same time, or if one is damaged.
        for _ in 0..3 {
            match trust::file(folder, KEY_FILE)? {
                Some(Err(why)) => return Ok(Err(why)),
                Some(Ok(file)) => match read(file)? {
                    Some(key) => return Ok(Ok(key)),
                    None => {
                        tracing::warn!("compile cache: the key is cut short; making a new one");
                        unlinkat(folder, KEY_FILE, AtFlags::empty())?;
                    }
                },
                None => make(folder)?,
            }
        }
        Ok(Err("it changes while it is read"))
    }

    /// The code of an entry.
    pub(super) fn code(&self, name: &str, artefact: &[u8]) -> [u8; CODE_BYTES] {
        hmac_sha256(&self.secret, &[&self.bound_to, name.as_bytes(), artefact])
    }
}

fn read(mut file: File) -> io::Result<Option<Key>> {
    let mut secret = [0; KEY_BYTES];
    let metadata = file.metadata()?;
    if metadata.len() != KEY_BYTES as u64 || file.read_exact(&mut secret).is_err() {
        return Ok(None);
    }
    // Machines without an id are told apart by nothing; the time of the file is still theirs.
    let machine = std::fs::read("/etc/machine-id").unwrap_or_default();
    let (seconds, nanoseconds) = (metadata.ctime().to_le_bytes(), metadata.ctime_nsec().to_le_bytes());
    let bound_to = [&machine[..], &metadata.uid().to_le_bytes(), &seconds, &nanoseconds].concat();
    Ok(Some(Key { secret, bound_to }))
}

/// Makes a key, unless there is one by then.
fn make(folder: &OwnedFd) -> io::Result<()> {
    let mut secret = [0; KEY_BYTES];
    File::open("/dev/urandom")?.read_exact(&mut secret)?;
    let temporary = write(folder, &[&secret])?;
    let renamed = match renameat_with(folder, &temporary, folder, KEY_FILE, RenameFlags::NOREPLACE) {
        // Where the file system cannot tell, the later of two hosts wins, and what the other has stored is compiled again.
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => renameat(folder, &temporary, folder, KEY_FILE),
        renamed => renamed,
    };
    match renamed {
        Ok(()) => Ok(()),
        Err(error) => {
            unlinkat(folder, &temporary, AtFlags::empty())?;
            if error == rustix::io::Errno::EXIST { Ok(()) } else { Err(error.into()) }
        }
    }
}

/// Writes a new file that only this user can read; gives its name, which nobody knows yet.
pub(super) fn write(folder: impl AsFd, parts: &[&[u8]]) -> io::Result<String> {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    let next = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let name = format!("{TEMPORARY}{}-{next}-{now}", std::process::id());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(openat(&folder, &name, flags, Mode::RUSR | Mode::WUSR)?);
    if let Err(error) = parts.iter().try_for_each(|part| file.write_all(part)) {
        // Best effort: the write's own error says more.
        let _ = unlinkat(&folder, &name, AtFlags::empty());
        return Err(error);
    }
    Ok(name)
}

/// Names of files that are being written begin with this.
pub(super) const TEMPORARY: &str = ".new-";

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
pub(super) fn is_equal(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

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
