//! Configuration: flags over environment over `weir.toml` over defaults. Each value remembers where it comes from.
//!
//! There are two files. The user's own says anything. The one in the current folder came with the folder, which somebody else
//! may have written (a checkout, an archive): it says how things look, and the rest only after `weir trust`. A setting that it
//! may not make is an error where it would count, never left out in silence: the command would then do something else than
//! its reader expects.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};

use weir_model::ErrorNumber;
use weir_storage::digest_of;

use crate::failure::{Exit, Failure};
use crate::trusted::{TrustList, user_folder};

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A flag, such as `--data-dir`.
    Flag(&'static str),
    /// An environment variable.
    Environment(&'static str),
    /// The user's own configuration file.
    File(PathBuf),
    /// The configuration file of the current folder.
    Folder(PathBuf),
    /// Nothing says otherwise.
    Default,
}

impl Origin {
    /// Whether only the user can have said it; a file of the current folder is at best one that they let count.
    pub(crate) fn is_own(&self) -> bool {
        !matches!(self, Origin::Folder(_))
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Flag(flag) => write!(f, "flag {flag}"),
            Origin::Environment(name) => write!(f, "environment {name}"),
            Origin::File(path) | Origin::Folder(path) => write!(f, "{}", path.display()),
            Origin::Default => f.write_str("default"),
        }
    }
}

/// A setting that can be configured.
pub(crate) struct Setting {
    /// Its key in `weir.toml`.
    pub(crate) key: &'static str,
    pub(crate) flag: &'static str,
    /// Empty where there is none.
    pub(crate) variable: &'static str,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// How things look: any file may say it.
    Look,
    /// A path: in a file it counts from the file's folder.
    Path,
    Text,
    /// Several strings.
    Names,
}

impl Setting {
    const fn new(key: &'static str, flag: &'static str, variable: &'static str, kind: Kind) -> Setting {
        Setting { key, flag, variable, kind }
    }
}

pub(crate) const DATA_DIR: Setting = Setting::new("data_dir", "--data-dir", "WEIR_DATA_DIR", Kind::Path);
pub(crate) const COLOR: Setting = Setting::new("color", "--color", "WEIR_COLOR", Kind::Look);
pub(crate) const LOG: Setting = Setting::new("log", "--log", "WEIR_LOG", Kind::Look);
pub(crate) const COORDINATOR: Setting = Setting::new("coordinator", "--coordinator", "WEIR_COORDINATOR", Kind::Text);
pub(crate) const TOKEN_FILE: Setting = Setting::new("token_file", "--token-file", "WEIR_TOKEN_FILE", Kind::Path);
pub(crate) const CA: Setting = Setting::new("ca", "--ca", "WEIR_CA", Kind::Path);
/// Environment variables that jobs may take to a cluster.
pub(crate) const ENV: Setting = Setting::new("env", "--env", "", Kind::Names);

const SETTINGS: [&Setting; 7] = [&DATA_DIR, &COLOR, &LOG, &COORDINATOR, &TOKEN_FILE, &CA, &ENV];

/// The variable that names the configuration file.
const CONFIG_VARIABLE: &str = "WEIR_CONFIG";

/// The file's name in each folder.
pub(crate) const FILE_NAME: &str = "weir.toml";

/// Bytes of a configuration file.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// A setting as a file makes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// One, but for settings that are lists.
    pub(crate) values: Vec<String>,
    pub(crate) line: usize,
}

/// What one `weir.toml` says.
#[derive(Clone, Debug)]
pub(crate) struct ConfigFile {
    path: PathBuf,
    entries: BTreeMap<String, Entry>,
    standing: Permission,
}

/// What a file may say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Permission {
    /// The user's own: everything.
    Own,
    /// Of the current folder, and the user let it count: everything.
    TrustList,
    /// Of the current folder: how things look.
    Stranger,
}

/// All configuration files that count here, those that come first in front.
#[derive(Debug, Default)]
pub(crate) struct Config {
    files: Vec<ConfigFile>,
}

type Env<'a> = &'a dyn Fn(&str) -> Option<String>;

impl Config {
    /// Reads the file that WEIR_CONFIG names and no other; else `weir.toml` of the current folder and that of the user.
    pub(crate) fn find(env: Env<'_>) -> Result<Config, Failure> {
        if let Some(path) = env(CONFIG_VARIABLE) {
            let hint = |failure: Failure| failure.hint(format!("{CONFIG_VARIABLE} names this file"));
            let bytes = read(Path::new(&path)).map_err(hint)?.ok_or_else(|| hint(missing(Path::new(&path))))?;
            return Ok(Config { files: vec![ConfigFile::parse(Path::new(&path), &bytes, Permission::Own)?] });
        }
        let own = user_folder(env).map(|folder| folder.join(FILE_NAME));
        let here = here();
        let mut files = Vec::new();
        if let Some(here) = here.filter(|here| !own.as_ref().is_some_and(|own| is_same(own, here)))
            && let Some(bytes) = read(&here)?
        {
            let is_trusted = TrustList::read(env)?.has(&here, digest_of(&bytes));
            let standing = if is_trusted { Permission::TrustList } else { Permission::Stranger };
            files.push(ConfigFile::parse(&here, &bytes, standing)?);
        }
        if let Some(own) = own
            && let Some(bytes) = read(&own)?
        {
            files.push(ConfigFile::parse(&own, &bytes, Permission::Own)?);
        }
        Ok(Config { files })
    }

    /// The value of a setting: from the flag, or the environment, or a file; none where nothing sets it. A path in a file
    /// counts from the file's folder.
    ///
    /// # Errors
    /// If the file of the current folder would decide, and may not.
    pub(crate) fn value(
        &self,
        setting: &Setting,
        flag: Option<String>,
        env: Env<'_>,
    ) -> Result<Option<(String, Origin)>, Failure> {
        if let Some(value) = flag {
            return Ok(Some((value, Origin::Flag(setting.flag))));
        }
        if let Some(value) = env(setting.variable).filter(|value| !value.is_empty()) {
            return Ok(Some((value, Origin::Environment(setting.variable))));
        }
        let entry = self.entry(setting)?;
        Ok(entry.and_then(|(entry, origin)| entry.values.first().map(|value| (value.clone(), origin))))
    }

    /// All values of a setting that is a list, from the first file that has it.
    ///
    /// # Errors
    /// Like [`Config::value`].
    pub(crate) fn values(&self, setting: &Setting) -> Result<Vec<String>, Failure> {
        Ok(self.entry(setting)?.map(|(entry, _)| entry.values).unwrap_or_default())
    }

    fn entry(&self, setting: &Setting) -> Result<Option<(Entry, Origin)>, Failure> {
        let Some((file, entry)) = self.files.iter().find_map(|file| file.entries.get(setting.key).map(|entry| (file, entry)))
        else {
            return Ok(None);
        };
        if file.standing == Permission::Stranger && setting.kind != Kind::Look {
            return Err(refused(setting, entry, file));
        }
        let mut entry = entry.clone();
        if setting.kind == Kind::Path {
            let folder = file.path.parent().unwrap_or(Path::new(""));
            entry.values = entry.values.iter().map(|value| folder.join(value).to_string_lossy().into_owned()).collect();
        }
        let origin = match file.standing {
            Permission::Own => Origin::File(file.path.clone()),
            Permission::TrustList | Permission::Stranger => Origin::Folder(file.path.clone()),
        };
        Ok(Some((entry, origin)))
    }
}

impl ConfigFile {
    /// A file as a stranger wrote it, for showing what it says.
    pub(crate) fn of_stranger(path: &Path, bytes: &[u8]) -> Result<ConfigFile, Failure> {
        ConfigFile::parse(path, bytes, Permission::Stranger)
    }

    /// What it says beyond how things look: key, values and line.
    pub(crate) fn beyond_looks(&self) -> impl Iterator<Item = (&str, &Entry)> {
        let looks = |key: &str| SETTINGS.iter().any(|setting| setting.key == key && setting.kind == Kind::Look);
        self.entries.iter().map(|(key, entry)| (key.as_str(), entry)).filter(move |(key, _)| !looks(key))
    }

    fn parse(path: &Path, bytes: &[u8], standing: Permission) -> Result<ConfigFile, Failure> {
        let wrong = |message: String| Failure::new(ErrorNumber::WrongConfiguration, Exit::Usage, message);
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let shown = path.display();
        let text = std::str::from_utf8(bytes).map_err(|_| wrong(format!("cannot read {shown}: it is not UTF-8")))?;
        let line_at = |offset: usize| text.get(..offset).unwrap_or_default().matches('\n').count() + 1;
        let document = toml_edit::Document::parse(text).map_err(|error| {
            let line = line_at(error.span().unwrap_or_default().start);
            wrong(format!("cannot read {shown}:{line}: {}", error.message().replace('\n', ", ")))
        })?;
        let mut entries = BTreeMap::new();
        for (key, item) in document.iter() {
            let Some(setting) = SETTINGS.iter().find(|setting| setting.key == key) else {
                let keys = SETTINGS.map(|setting| setting.key);
                let hint = match weir_plan::nearest(key, keys) {
                    Some(meant) => format!("did you mean `{meant}`?"),
                    None => format!("valid: {}", keys.join(", ")),
                };
                return Err(wrong(format!("unknown key `{key}` in {shown}")).hint(hint));
            };
            let expected = if setting.kind == Kind::Names { "an array of strings" } else { "a string" };
            let values = match (setting.kind, item.as_str(), item.as_array()) {
                (Kind::Names, _, Some(items)) => items.iter().map(|item| item.as_str().map(str::to_owned)).collect(),
                (Kind::Names, _, None) => None,
                (_, text, _) => text.map(|text| vec![text.to_owned()]),
            };
            let Some(values) = values else {
                return Err(wrong(format!("`{key}` in {shown}: expected {expected}, found {}", item.type_name())));
            };
            entries.insert(key.to_owned(), Entry { values, line: line_at(item.span().unwrap_or_default().start) });
        }
        Ok(ConfigFile { path, entries, standing })
    }
}

/// The configuration file of the current folder, by the folder's real name; whether or not it is there.
pub(crate) fn here() -> Option<PathBuf> {
    std::env::current_dir().ok().map(|folder| folder.canonicalize().unwrap_or(folder).join(FILE_NAME))
}

fn is_same(one: &Path, other: &Path) -> bool {
    one == other || matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
}

/// The bytes of a configuration file; none if it is not there. No more than a configuration can have, and of nothing that
/// would be waited for: it may be anybody's.
pub(crate) fn read(path: &Path) -> Result<Option<Vec<u8>>, Failure> {
    use std::io::ErrorKind::{NotADirectory, NotFound};
    match std::fs::metadata(path) {
        Ok(found) if !found.is_file() => return Err(unreadable(path, "it is not a file")),
        Ok(_) => {}
        Err(error) if matches!(error.kind(), NotFound | NotADirectory) => return Ok(None),
        Err(error) => return Err(unreadable(path, &error.to_string())),
    }
    let mut bytes = Vec::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes));
    match read {
        Ok(length) if length as u64 > FILE_BYTES_MAX => Err(unreadable(path, "it has more than 64 KiB")),
        Ok(_) => Ok(Some(bytes)),
        Err(error) => Err(unreadable(path, &error.to_string())),
    }
}

fn missing(path: &Path) -> Failure {
    unreadable(path, "there is no such file")
}

fn unreadable(path: &Path, reason: &str) -> Failure {
    Failure::new(
        ErrorNumber::WrongConfiguration,
        Exit::Usage,
        format!("cannot read the configuration {}: {reason}", path.display()),
    )
}

fn refused(setting: &Setting, entry: &Entry, file: &ConfigFile) -> Failure {
    let place = format!("{}:{}", file.path.display(), entry.line);
    let message = format!(
        "`{}` in {place} does not count: the file came with this folder, and may only say how things look (color, log)",
        setting.key
    );
    let variable = if setting.variable.is_empty() { String::new() } else { format!(" or {}", setting.variable) };
    let hint = format!(
        "if the file is yours, or you believe who wrote it, `weir trust` shows what it asks for and lets it count; {}{variable} says it \
         for one command",
        setting.flag
    );
    Failure::new(ErrorNumber::FolderNotTrusted, Exit::Refused, message).hint(hint)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    fn config(text: &str, standing: Permission) -> Config {
        Config { files: vec![ConfigFile::parse(Path::new("/etc/weir.toml"), text.as_bytes(), standing).unwrap()] }
    }

    #[test]
    fn flags_come_before_the_environment_and_that_before_the_file() {
        let file = config("data_dir = \"data\"\nlog = \"info\"\n", Permission::Own);
        let env = |name: &str| (name == "WEIR_LOG").then(|| "debug".to_owned());
        let flag = |setting, flag: Option<&str>| file.value(setting, flag.map(str::to_owned), &env).unwrap();
        assert_eq!(flag(&LOG, Some("trace")), Some(("trace".to_owned(), Origin::Flag("--log"))));
        assert_eq!(flag(&LOG, None), Some(("debug".to_owned(), Origin::Environment("WEIR_LOG"))));
        assert_eq!(flag(&DATA_DIR, None), Some(("/etc/data".to_owned(), Origin::File(PathBuf::from("/etc/weir.toml")))));
        assert_eq!(flag(&COLOR, None), None);
    }

    #[test]
    fn s130_a_stranger_says_how_things_look_and_nothing_else() {
        let text = "log = \"info\"\ncolor = \"never\"\ndata_dir = \"d\"\ncoordinator = \"http://evil:80\"\n\
                    token_file = \"t\"\nca = \"c\"\nenv = [\"AWS_SECRET_ACCESS_KEY\"]\n";
        let (stranger, trusted) = (config(text, Permission::Stranger), config(text, Permission::TrustList));
        let none = |_: &str| None;
        for setting in SETTINGS {
            let found = match setting.kind {
                Kind::Names => stranger.values(setting).map(|values| values.len()),
                _ => stranger.value(setting, None, &none).map(|value| value.into_iter().count()),
            };
            match (setting.kind, found) {
                (Kind::Look, Ok(1)) => {}
                (Kind::Look, found) => panic!("{}: {found:?}", setting.key),
                (_, found) => {
                    let failure = found.unwrap_err();
                    let line = text.lines().position(|line| line.starts_with(setting.key)).unwrap() + 1;
                    assert!(failure.message.contains(&format!("/etc/weir.toml:{line} ")), "{failure}");
                    assert!(failure.hint.unwrap().contains("weir trust"), "{}", setting.key);
                }
            }
        }
        // What the user says themselves comes first, so it is no trouble that the file says something.
        assert!(stranger.value(&DATA_DIR, Some("/mine".to_owned()), &none).is_ok());
        let (_, origin) = trusted.value(&COORDINATOR, None, &none).unwrap().unwrap();
        assert!(!origin.is_own());
        assert_eq!(trusted.values(&ENV).unwrap(), ["AWS_SECRET_ACCESS_KEY"]);
    }

    #[test]
    fn s130_a_relative_home_is_no_place_for_the_users_own_configuration() {
        for relative in ["", ".", "checkout"] {
            assert_eq!(user_folder(&|_| Some(relative.to_owned())), None, "{relative}");
        }
        let env = |name: &str| (name == "HOME").then(|| "/home/me".to_owned());
        assert_eq!(user_folder(&env), Some(PathBuf::from("/home/me/.config/weir")));
    }

    #[test]
    fn what_is_wrong_with_the_file_is_named() {
        let wrong = |text: &str| {
            let failure = ConfigFile::parse(Path::new("/weir.toml"), text.as_bytes(), Permission::Own).unwrap_err();
            format!("{} / {}", failure.message, failure.hint.unwrap_or_default())
        };
        assert_eq!(wrong("data-dir = \"x\""), "unknown key `data-dir` in /weir.toml / did you mean `data_dir`?");
        assert_eq!(wrong("log = 1"), "`log` in /weir.toml: expected a string, found integer / ");
        assert_eq!(wrong("env = \"A\""), "`env` in /weir.toml: expected an array of strings, found string / ");
        assert!(wrong("log = \"x\"\nlog").starts_with("cannot read /weir.toml:2: "), "{}", wrong("log = \"x\"\nlog"));
    }
}
