//! Configuration: flags over environment over `weir.toml` over defaults. Each value remembers where it comes from.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use weir_model::ErrorNumber;

use crate::failure::{Exit, Failure};

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A flag, such as `--data-dir`.
    Flag(&'static str),
    /// An environment variable.
    Environment(&'static str),
    /// A configuration file.
    File(PathBuf),
    /// Nothing says otherwise.
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Flag(flag) => write!(f, "flag {flag}"),
            Origin::Environment(name) => write!(f, "environment {name}"),
            Origin::File(path) => write!(f, "{}", path.display()),
            Origin::Default => f.write_str("default"),
        }
    }
}

/// A setting that can be configured.
pub(crate) struct Setting {
    /// Its key in `weir.toml`.
    pub(crate) key: &'static str,
    pub(crate) flag: &'static str,
    pub(crate) variable: &'static str,
}

pub(crate) const DATA_DIR: Setting = Setting { key: "data_dir", flag: "--data-dir", variable: "WEIR_DATA_DIR" };
pub(crate) const COLOR: Setting = Setting { key: "color", flag: "--color", variable: "WEIR_COLOR" };
pub(crate) const LOG: Setting = Setting { key: "log", flag: "--log", variable: "WEIR_LOG" };

pub(crate) const COORDINATOR: Setting = Setting { key: "coordinator", flag: "--coordinator", variable: "WEIR_COORDINATOR" };
pub(crate) const TOKEN_FILE: Setting = Setting { key: "token_file", flag: "--token-file", variable: "WEIR_TOKEN_FILE" };
pub(crate) const CA: Setting = Setting { key: "ca", flag: "--ca", variable: "WEIR_CA" };

const SETTINGS: [&Setting; 6] = [&DATA_DIR, &COLOR, &LOG, &COORDINATOR, &TOKEN_FILE, &CA];

/// Settings that are paths: in a file they count from its folder.
const PATHS: [&Setting; 3] = [&DATA_DIR, &TOKEN_FILE, &CA];

/// The variable that names the configuration file.
const CONFIG_VARIABLE: &str = "WEIR_CONFIG";

/// What `weir.toml` says.
#[derive(Debug, Default)]
pub(crate) struct ConfigFile {
    path: PathBuf,
    values: BTreeMap<String, String>,
}

impl ConfigFile {
    /// Reads the file that WEIR_CONFIG names, or `weir.toml` here, or that in the user's configuration folder.
    pub(crate) fn find(env: &dyn Fn(&str) -> Option<String>) -> Result<ConfigFile, Failure> {
        if let Some(path) = env(CONFIG_VARIABLE) {
            let read = |error| unreadable(Path::new(&path), &error).hint(format!("{CONFIG_VARIABLE} names this file"));
            let text = std::fs::read_to_string(&path).map_err(read)?;
            return ConfigFile::parse(Path::new(&path), &text);
        }
        let user = env("XDG_CONFIG_HOME").map(PathBuf::from).or_else(|| env("HOME").map(|home| Path::new(&home).join(".config")));
        let places = [Some(PathBuf::from("weir.toml")), user.map(|folder| folder.join("weir").join("weir.toml"))];
        for path in places.into_iter().flatten() {
            match std::fs::read_to_string(&path) {
                Ok(text) => return ConfigFile::parse(&path, &text),
                Err(error) if matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) => {}
                Err(error) => return Err(unreadable(&path, &error)),
            }
        }
        Ok(ConfigFile::default())
    }

    fn parse(path: &Path, text: &str) -> Result<ConfigFile, Failure> {
        let wrong = |message: String| Failure::new(ErrorNumber::WrongConfiguration, Exit::Usage, message);
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let document = toml_edit::Document::parse(text).map_err(|error| {
            let before = text.get(..error.span().unwrap_or_default().start).unwrap_or_default();
            let line = before.matches('\n').count() + 1;
            wrong(format!("cannot read {}:{line}: {}", path.display(), error.message().replace('\n', ", ")))
        })?;
        let mut values = BTreeMap::new();
        for (key, item) in document.iter() {
            if !SETTINGS.iter().any(|setting| setting.key == key) {
                let keys = SETTINGS.map(|setting| setting.key);
                let hint = match weir_plan::nearest(key, keys) {
                    Some(meant) => format!("did you mean `{meant}`?"),
                    None => format!("valid: {}", keys.join(", ")),
                };
                return Err(wrong(format!("unknown key `{key}` in {}", path.display())).hint(hint));
            }
            let Some(value) = item.as_str() else {
                let message = format!("`{key}` in {}: expected a string, found {}", path.display(), item.type_name());
                return Err(wrong(message));
            };
            values.insert(key.to_owned(), value.to_owned());
        }
        Ok(ConfigFile { path, values })
    }

    /// The value of a setting: from the flag, or the environment, or this file; none where nothing sets it. A path in
    /// the file counts from the file's folder.
    pub(crate) fn value(
        &self,
        setting: &Setting,
        flag: Option<String>,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Option<(String, Origin)> {
        if let Some(value) = flag {
            return Some((value, Origin::Flag(setting.flag)));
        }
        if let Some(value) = env(setting.variable).filter(|value| !value.is_empty()) {
            return Some((value, Origin::Environment(setting.variable)));
        }
        let mut value = self.values.get(setting.key)?.clone();
        if PATHS.iter().any(|path| path.key == setting.key) {
            value = self.path.parent().unwrap_or(Path::new("")).join(value).to_string_lossy().into_owned();
        }
        Some((value, Origin::File(self.path.clone())))
    }
}

fn unreadable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(
        ErrorNumber::WrongConfiguration,
        Exit::Usage,
        format!("cannot read the configuration {}: {error}", path.display()),
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    #[test]
    fn flags_come_before_the_environment_and_that_before_the_file() {
        let file = ConfigFile::parse(Path::new("/etc/weir.toml"), "data_dir = \"data\"\nlog = \"info\"\n").unwrap();
        let env = |name: &str| (name == "WEIR_LOG").then(|| "debug".to_owned());
        let flag = |setting, flag: Option<&str>| file.value(setting, flag.map(str::to_owned), &env);
        assert_eq!(flag(&LOG, Some("trace")), Some(("trace".to_owned(), Origin::Flag("--log"))));
        assert_eq!(flag(&LOG, None), Some(("debug".to_owned(), Origin::Environment("WEIR_LOG"))));
        assert_eq!(flag(&DATA_DIR, None), Some(("/etc/data".to_owned(), Origin::File(PathBuf::from("/etc/weir.toml")))));
        assert_eq!(flag(&COLOR, None), None);
    }

    #[test]
    fn what_is_wrong_with_the_file_is_named() {
        let wrong = |text: &str| {
            let failure = ConfigFile::parse(Path::new("/weir.toml"), text).unwrap_err();
            format!("{} / {}", failure.message, failure.hint.unwrap_or_default())
        };
        assert_eq!(wrong("data-dir = \"x\""), "unknown key `data-dir` in /weir.toml / did you mean `data_dir`?");
        assert_eq!(wrong("log = 1"), "`log` in /weir.toml: expected a string, found integer / ");
        assert!(wrong("log = \"x\"\nlog").starts_with("cannot read /weir.toml:2: "), "{}", wrong("log = \"x\"\nlog"));
    }
}
