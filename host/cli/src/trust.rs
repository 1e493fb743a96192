//! `weir trust`: lets the `weir.toml` of a folder count although somebody else may have written it.

use std::io::{IsTerminal, Write};
use std::path::Path;

use weir_model::ErrorNumber;
use weir_storage::digest_of;

use crate::config::{self, ConfigFile, Entry};
use crate::failure::{Exit, Failure};
use crate::global::Global;
use crate::output;
use crate::trusted::{TrustList, list_of};

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

/// Shows what the `weir.toml` of the current folder asks for, and lets it count if the user agrees.
pub(crate) fn execute(args: &Args, global: &Global) -> anyhow::Result<()> {
    let env = |name: &str| std::env::var(name).ok();
    let no_home = || {
        let message = "cannot tell where the list of trusted files is: neither XDG_CONFIG_HOME nor HOME is an absolute path";
        Failure::new(ErrorNumber::WrongConfiguration, Exit::Usage, message)
    };
    let list = list_of(&env).ok_or_else(no_home)?;
    let nothing =
        |path: &Path| Failure::new(ErrorNumber::WrongConfiguration, Exit::Usage, format!("there is no {}", path.display()));
    let path = config::here().ok_or_else(|| nothing(Path::new(config::FILE_NAME)))?;
    let mut trusted = TrustList::read(&env)?;
    if args.forget {
        trusted.remove(&path);
        trusted.write(&list)?;
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
    trusted.add(&path, digest_of(&bytes));
    trusted.write(&list)?;
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
