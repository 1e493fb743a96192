//! Files of jobs stay below folders that the worker's owner named.
//!
//! A job that is submitted names paths of sources, sinks, dead letters and checkpoints, and whoever may submit jobs would read and write
//! whatever the worker's user can. Owns the check of these paths, where connectors and storages are made: what the path really is, with
//! `..` and links resolved, has to lie below a folder that is allowed. Never opens anything.

use std::io;
use std::path::{Component, Path, PathBuf};

use serde_json::{Map, Value};
use weir_connectors::{SettingError, SinkFactory, SourceFactory};
use weir_storage::{JobStorage, StorageError};

use crate::{Connectors, Storages};

/// Makes connectors and storages whose files lie below allowed folders; all others are refused.
#[derive(Debug)]
pub struct Beneath<T> {
    allowed: Vec<PathBuf>,
    inner: T,
}

impl<T> Beneath<T> {
    /// Allows what is below these folders.
    ///
    /// # Errors
    /// If one of them is not there.
    pub fn new(folders: &[PathBuf], inner: T) -> io::Result<Beneath<T>> {
        let allowed = folders.iter().map(|folder| {
            folder.canonicalize().map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", folder.display())))
        });
        Ok(Beneath { allowed: allowed.collect::<io::Result<_>>()?, inner })
    }

    fn check(&self, path: &Path) -> Result<(), String> {
        let real = resolve(path).map_err(|error| format!("cannot tell where {} is: {error}", path.display()))?;
        if self.allowed.iter().any(|folder| real.starts_with(folder)) {
            return Ok(());
        }
        Err(format!("{} is not below a folder that this worker allows (--allow-path)", real.display()))
    }

    fn check_setting(&self, settings: &Map<String, Value>) -> Result<(), SettingError> {
        let Some(path) = settings.get("path").and_then(Value::as_str) else { return Ok(()) };
        // Of a pattern, the part before the first wildcard counts, and whatever matches lies below it.
        let fixed =
            path.find(['*', '?', '[', '{']).map_or(path, |at| path[..at].rsplit_once('/').map_or("", |(folder, _)| folder));
        self.check(Path::new(if fixed.is_empty() { "/" } else { fixed })).map_err(|message| SettingError {
            key: "path".to_owned(),
            message,
            hint: Some("use a folder that is allowed on all workers, or ask their owner for this one".to_owned()),
        })
    }
}

impl<T: Connectors> Connectors for Beneath<T> {
    fn source(&self, connector: &str, settings: &Map<String, Value>) -> Result<Box<dyn SourceFactory>, SettingError> {
        self.check_setting(settings)?;
        self.inner.source(connector, settings)
    }

    fn sink(&self, connector: &str, settings: &Map<String, Value>) -> Result<Box<dyn SinkFactory>, SettingError> {
        self.check_setting(settings)?;
        self.inner.sink(connector, settings)
    }
}

impl<T: Storages> Storages for Beneath<T> {
    fn open(&self, url: &str, job: &str) -> Result<JobStorage, StorageError> {
        let folder = weir_storage::local_folder(url)?;
        let refused = |reason| StorageError::InvalidName { what: "storage", value: url.to_owned(), reason };
        self.check(&folder).map_err(refused)?;
        self.inner.open(url, job)
    }
}

/// Where a path really is: links of what is there are followed; what is not there yet is taken as it is written, without `..`.
fn resolve(path: &Path) -> io::Result<PathBuf> {
    let path = std::path::absolute(path)?;
    let mut missing = Vec::new();
    let mut there = path.as_path();
    loop {
        // A link whose target is missing is there: what is made through it is made elsewhere.
        match (there.canonicalize(), there.symlink_metadata()) {
            (Ok(real), _) => return Ok(missing.into_iter().rev().fold(real, |real, part: &std::ffi::OsStr| real.join(part))),
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use std::fs;
    use std::os::unix::fs::symlink;

    use serde_json::json;

    use super::*;
    use crate::{BuiltinConnectors, UrlStorages};

    #[test]
    fn s137_only_what_really_lies_below_an_allowed_folder_is_opened() {
        let world = tempfile::tempdir().unwrap();
        let root = world.path().canonicalize().unwrap();
        let (mine, other) = (root.join("mine"), root.join("other"));
        fs::create_dir_all(mine.join("in")).unwrap();
        fs::create_dir_all(other.join("in")).unwrap();
        fs::create_dir_all(root.join("mine-too")).unwrap();
        symlink(&other, mine.join("link")).unwrap();
        symlink(mine.join("in"), mine.join("inner")).unwrap();
        symlink(root.join("nothing"), mine.join("dangling")).unwrap();
        let files = Beneath::new(std::slice::from_ref(&mine), BuiltinConnectors).unwrap();
        let stores = Beneath::new(std::slice::from_ref(&mine), UrlStorages).unwrap();
        let sink = |path: &str| {
            let Value::Object(settings) = json!({"path": root.join(path), "format": "lines"}) else { unreachable!() };
            files.sink("file", &settings).map(drop).map_err(|error| error.message)
        };
        let source = |path: &str| {
            let Value::Object(settings) = json!({"path": root.join(path)}) else { unreachable!() };
            files.source("file", &settings).map(drop).map_err(|error| error.message)
        };
        let store = |path: &str| stores.open(root.join(path).to_str().unwrap(), "j").map(drop).map_err(|error| error.to_string());
        for inside in ["mine/out", "mine/new/deeper", "mine/in/../out", "mine/inner/x", "mine"] {
            assert_eq!((sink(inside), source(inside), store(inside)), (Ok(()), Ok(()), Ok(())), "{inside}");
        }
        assert_eq!(source("mine/in/*.log"), Ok(()));
        for outside in [
            "other/out",
            "mine-too/out",
            "mine/../other/out",
            "mine/link/out",
            "mine/dangling/out",
            "mine/dangling",
            ".",
            "mine/new/../../other",
            "mine/link",
        ] {
            for refused in [sink(outside), source(outside), store(outside)] {
                let reason = refused.expect_err(outside);
                assert!(reason.contains("--allow-path") || reason.contains("cannot tell where"), "{outside}: {reason}");
            }
        }
        for pattern in ["other/*.log", "mine/link/*.log", "*/in/x", "mi*/x"] {
            assert!(source(pattern).is_err(), "{pattern}");
        }
        assert!(!other.join("out").exists(), "nothing was made");
        assert!(Beneath::new(&[root.join("nowhere")], UrlStorages).is_err());
        // Connectors without files are not concerned.
        assert!(files.sink("blackhole", &Map::new()).is_ok());
    }
}
