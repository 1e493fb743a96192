//! `weir trust`: which `weir.toml` of which folders count although somebody else may have written them.
//!
//! Owns the list of them, in the user's own configuration folder: the file's path with the digest of its content, so that a
//! file that changes is a stranger again.

use std::fs;
use std::io::{IsTerminal, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use weir_model::{Digest, ErrorNumber};
use weir_storage::digest_of;

use crate::config::{self, ConfigFile, Entry};
use crate::failure::{Exit, Failure};
use crate::global::Global;
use crate::output;

/// The list's name in the user's configuration folder.
const LIST: &str = "trusted";

/// `weir trust`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
    /// Take it back
    #[arg(long, conflicts_with = "yes")]
    forget: bool,
}

/// Files that the user lets count: one line each, the digest of the content and the path.
#[derive(Debug, Default)]
pub(crate) struct Trusted(Vec<(String, PathBuf)>);

impl Trusted {
    /// Reads the list; nothing is trusted where there is none.
    pub(crate) fn read(env: &dyn Fn(&str) -> Option<String>) -> Result<Trusted, Failure> {
        let Some(list) = config::user_folder(env).map(|folder| folder.join(LIST)) else { return Ok(Trusted::default()) };
        let text = match fs::read_to_string(&list) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Trusted::default()),
            Err(error) => return Err(list_failure("read", &list, &error)),
        };
        let entry = |line: &str| line.split_once(' ').map(|(digest, path)| (digest.to_owned(), PathBuf::from(path)));
        Ok(Trusted(text.lines().filter_map(entry).collect()))
    }

    /// Whether this content of this file is trusted.
    pub(crate) fn has(&self, path: &Path, digest: Digest) -> bool {
        let digest = digest.to_string();
        self.0.iter().any(|(trusted, of)| of == path && *trusted == digest)
    }

    fn write(&self, list: &Path) -> std::io::Result<()> {
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

fn list_failure(what: &str, list: &Path, error: &std::io::Error) -> Failure {
    let message = format!("cannot {what} the list of trusted files {}: {error}", list.display());
    Failure::new(ErrorNumber::WrongConfiguration, Exit::Usage, message)
}

/// Shows what the `weir.toml` of the current folder asks for, and lets it count if the user agrees.
pub(crate) fn execute(args: &Args, global: &Global) -> anyhow::Result<()> {
    let env = |name: &str| std::env::var(name).ok();
    let no_home = || {
        let message = "cannot tell where the list of trusted files is: neither XDG_CONFIG_HOME nor HOME is an absolute path";
        Failure::new(ErrorNumber::WrongConfiguration, Exit::Usage, message)
    };
    let list = config::user_folder(&env).map(|folder| folder.join(LIST)).ok_or_else(no_home)?;
    let nothing =
        |path: &Path| Failure::new(ErrorNumber::WrongConfiguration, Exit::Usage, format!("there is no {}", path.display()));
    let path = config::here().ok_or_else(|| nothing(Path::new(config::FILE_NAME)))?;
    let mut trusted = Trusted::read(&env)?;
    if args.forget {
        trusted.0.retain(|(_, other)| *other != path);
        trusted.write(&list).map_err(|error| list_failure("write", &list, &error))?;
        global.note(&format!("{} is not trusted", output::line(&path.display().to_string())));
        return Ok(());
    }
    if path.to_str().is_none_or(|path| path.contains('\n')) {
        let message = format!("cannot trust {}: its path is not UTF-8 or has a line break", path.display());
        return Err(Failure::new(ErrorNumber::WrongConfiguration, Exit::Usage, message).into());
    }
    // What is shown is what is trusted: the file is read once.
    let bytes = config::read(&path)?.ok_or_else(|| nothing(&path))?;
    let file = ConfigFile::of_stranger(&path, &bytes)?;
    let asked: Vec<(&str, &Entry)> = file.beyond_looks().collect();
    if asked.is_empty() {
        global.note(&format!("{} only says how things look, which needs no trust", path.display()));
        return Ok(());
    }
    output::message(&format!("{} sets:", path.display()), global.colour);
    for (key, entry) in &asked {
        let values = entry.values.iter().map(|value| output::line(value)).collect::<Vec<_>>().join(", ");
        output::message(&format!("  {key} = {values}"), global.colour);
    }
    if !args.yes && !agrees()? {
        let message = format!("{} is not trusted: nobody said yes", path.display());
        return Err(Failure::new(ErrorNumber::FolderNotTrusted, Exit::Refused, message)
            .hint("`weir trust --yes` does not ask")
            .into());
    }
    trusted.0.retain(|(_, other)| *other != path);
    trusted.0.push((digest_of(&bytes).to_string(), path.clone()));
    trusted.write(&list).map_err(|error| list_failure("write", &list, &error))?;
    global.note(&format!("{} counts until it changes; `weir trust --forget` takes that back", path.display()));
    Ok(())
}

/// Whether a person at a terminal says yes. Without a terminal, nobody does.
fn agrees() -> std::io::Result<bool> {
    if !std::io::stdin().is_terminal() {
        return Ok(false);
    }
    let mut err = std::io::stderr().lock();
    write!(err, "let that count for all commands in this folder? [y/N] ")?;
    err.flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
