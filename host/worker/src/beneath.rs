//! Files of jobs stay below folders that the worker's owner named.
//!
//! A job that is submitted names paths of sources, sinks, dead letters and checkpoints, and whoever may submit jobs would read and write
//! whatever the worker's user can. Owns what is said of these paths before anything is made: where connectors and storages are made, the
//! job is refused at the place in its file. What is opened later, sources and sinks take through [`Reach`] as well, so that links
//! which a pattern meets, and folders that change meanwhile, lead nowhere else. Never opens anything itself.

use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use weir_connectors::{Reach, SettingError, SinkFactory, SourceFactory};
use weir_storage::{JobStorage, StorageError};

use crate::{Connectors, Storages};

/// Makes connectors and storages whose files lie below allowed folders; all others are refused.
#[derive(Clone, Debug)]
pub struct Beneath {
    reach: Reach,
}

impl Beneath {
    /// Allows what is below these folders.
    ///
    /// # Errors
    /// If one of them is not there.
    pub fn new(folders: &[PathBuf]) -> io::Result<Beneath> {
        Ok(Beneath { reach: Reach::beneath(folders)? })
    }

    fn check(&self, path: &Path) -> Result<(), String> {
        self.reach.locate(path).map(drop).map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied if error.raw_os_error().is_none() => error.to_string(),
            _ => format!("cannot tell where {} is: {error}", path.display()),
        })
    }

    /// A sink takes its path as it is written.
    fn check_sink(&self, settings: &Map<String, Value>) -> Result<(), SettingError> {
        let Some(path) = settings.get("path").and_then(Value::as_str) else { return Ok(()) };
        not_of_a_home(path).and_then(|()| self.check(Path::new(path))).map_err(setting_error)
    }

    /// A source may be given a pattern: what it matches has to lie below the folder before the first wildcard.
    fn check_source(&self, settings: &Map<String, Value>) -> Result<(), SettingError> {
        let Some(path) = settings.get("path").and_then(Value::as_str) else { return Ok(()) };
        not_of_a_home(path).and_then(|()| self.check_pattern(path)).map_err(setting_error)
    }

    fn check_pattern(&self, path: &str) -> Result<(), String> {
        let Some(wildcard) = path.find(['*', '?', '[', '{']) else { return self.check(Path::new(path)) };
        let (fixed, rest) = path.split_at(path[..wildcard].rfind('/').map_or(0, |slash| slash + 1));
        self.check(Path::new(if fixed.is_empty() { "/" } else { fixed }))?;
        // Braces are put together by text, so `..` may come of parts of it: none has to be there.
        let climbs = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte == b'.');
        if rest.split(['/', ',', '{', '}']).any(climbs) {
            return Err(format!(
                "{path} has a part `.` or `..` behind a wildcard, and this worker allows only files below certain folders (--allow-path)"
            ));
        }
        // What has such a name is taken by its name, and may be a link.
        let there = Path::new(path).ancestors().find(|folder| folder.exists());
        there.filter(|folder| folder.as_os_str().len() > fixed.len()).map_or(Ok(()), |folder| self.check(folder))
    }
}

/// A home folder is another one on each worker, and only the connector knows which.
fn not_of_a_home(path: &str) -> Result<(), String> {
    if path.starts_with('~') {
        return Err(format!("{path} is in a home folder; a worker that allows only certain folders (--allow-path) takes no ~"));
    }
    Ok(())
}

fn setting_error(message: String) -> SettingError {
    SettingError {
        key: "path".to_owned(),
        message,
        hint: Some("write out a folder that is allowed on all workers, or ask their owner for this one".to_owned()),
    }
}

impl Connectors for Beneath {
    fn source(&self, connector: &str, settings: &Map<String, Value>) -> Result<Box<dyn SourceFactory>, SettingError> {
        self.check_source(settings)?;
        weir_connectors::source(connector, settings, &self.reach)
    }

    fn sink(&self, connector: &str, settings: &Map<String, Value>) -> Result<Box<dyn SinkFactory>, SettingError> {
        self.check_sink(settings)?;
        weir_connectors::sink(connector, settings, &self.reach)
    }
}

impl Storages for Beneath {
    fn open(&self, url: &str, job: &str) -> Result<JobStorage, StorageError> {
        let folder = weir_storage::local_folder(url)?;
        let refused = |reason| StorageError::InvalidName { what: "storage", value: url.to_owned(), reason };
        self.check(&folder).map_err(refused)?;
        JobStorage::open(url, job)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use std::fs;
    use std::os::unix::fs::symlink;

    use serde_json::json;

    use super::*;

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
        let files = Beneath::new(std::slice::from_ref(&mine)).unwrap();
        let sink = |path: &str| {
            let Value::Object(settings) = json!({"path": root.join(path), "format": "lines"}) else { unreachable!() };
            files.sink("file", &settings).map(drop).map_err(|error| error.message)
        };
        let source = |path: &str| {
            let Value::Object(settings) = json!({"path": root.join(path)}) else { unreachable!() };
            files.source("file", &settings).map(drop).map_err(|error| error.message)
        };
        let store = |path: &str| files.open(root.join(path).to_str().unwrap(), "j").map(drop).map_err(|error| error.to_string());
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
        assert!(Beneath::new(&[root.join("nowhere")]).is_err());
        // Connectors without files are not concerned.
        assert!(files.sink("blackhole", &Map::new()).is_ok());
    }

    #[test]
    fn s137_neither_wildcards_nor_braces_nor_the_home_folder_lead_out_of_an_allowed_folder() {
        let world = tempfile::tempdir().unwrap();
        let root = world.path().canonicalize().unwrap();
        let (mine, other) = (root.join("mine"), root.join("other"));
        fs::create_dir_all(mine.join("in")).unwrap();
        fs::create_dir_all(mine.join("*")).unwrap();
        fs::create_dir_all(&other).unwrap();
        fs::write(other.join("secret"), "x").unwrap();
        symlink(&other, mine.join("odd[1]")).unwrap();
        let files = Beneath::new(std::slice::from_ref(&mine)).unwrap();
        let settings = |path: &str, more: Value| {
            let (Value::Object(mut settings), path) = (more, if path.starts_with('~') { path.into() } else { root.join(path) })
            else {
                unreachable!()
            };
            settings.insert("path".to_owned(), json!(path));
            settings
        };
        let sink = |path: &str| files.sink("file", &settings(path, json!({"format": "lines"}))).map(drop);
        let source = |path: &str| files.source("file", &settings(path, json!({}))).map(drop);
        let refusal = |made: Result<(), SettingError>| made.err().map(|error| error.to_string()).unwrap_or_default();
        for outside in [
            "mine/*/../../other/out",
            "mine/[/../../other/out",
            "mine/{/../../other/out",
            "mine/?/../../other/out",
            "mine/odd[1]/out",
            "mine/odd[1]",
            "~",
            "~/out",
        ] {
            let reason = refusal(sink(outside));
            assert!(reason.contains("--allow-path") || reason.contains("cannot tell where"), "sink {outside}: {reason:?}");
        }
        for outside in [
            "mine/*/../../other/*",
            "mine/i*/../../other/secret",
            "mine/{x,../../other}/secret",
            "mine/{x,..}/{x,..}/other/secret",
            "mine/{.,x}{.,y}/{.,x}{.,y}/other/secret",
            "mine/odd[1]/secret",
            "mine/odd[1]/*",
            "mine/odd[1]",
            "~/secret",
            "~/*",
        ] {
            let reason = refusal(source(outside));
            assert!(reason.contains("--allow-path"), "source {outside}: {reason:?}");
        }
        for inside in ["mine/*/out", "mine/[/out", "mine/a,b", "mine/in{1}"] {
            assert_eq!(sink(inside), Ok(()), "{inside}");
        }
        for inside in ["mine/**/*.log", "mine/{in,out}/*.{log,txt}", "mine/*/x", "mine/*", "mine/in/x..y.[0-9]"] {
            assert_eq!(source(inside), Ok(()), "{inside}");
        }
    }
}
