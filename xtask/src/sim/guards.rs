//! Guards of the protocol, each taken out in a copy of the tree: seeds must fail then that go well otherwise. A simulator that finds
//! nothing without a guard is worth nothing, and a guard that nothing misses may be none.
//!
//! A guard is known by the lines that hold it and what stands there without them. A test sees that these lines are still there.

mod list;

use crate::shell;
use crate::workspace::Workspace;
use anyhow::{Context, Result, bail};
use list::GUARDS;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A guard, and how it is taken out.
struct Guard {
    name: &'static str,
    /// What it keeps from happening.
    keeps: &'static str,
    file: &'static str,
    /// The lines that hold it, which stand once in the file.
    holds: &'static str,
    /// What stands there without it.
    without: &'static str,
    /// The kind of run that finds it.
    profile: &'static str,
    /// Within so many seeds, from 0 on.
    seeds: u64,
}

/// Takes out each guard, or the one of this name, and prints a table.
pub(super) fn main(workspace: &Workspace, only: Option<&str>) -> Result<()> {
    let chosen: Vec<&Guard> = GUARDS.iter().filter(|guard| only.is_none_or(|name| guard.name == name)).collect();
    if chosen.is_empty() {
        let names: Vec<&str> = GUARDS.iter().map(|guard| guard.name).collect();
        bail!("there is no such guard; there are: {}", names.join(", "));
    }
    let tree = workspace.target.join("guards");
    copy(&workspace.root, &tree)?;
    let whole = build(workspace, &tree, "whole")?;
    let mut lines = vec!["| guard | without it | found by | within |".to_owned(), "|---|---|---|---|".to_owned()];
    let mut missed = Vec::new();
    for guard in chosen {
        let path = tree.join(guard.file);
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        fs::write(&path, text.replacen(guard.holds, guard.without, 1))?;
        let built = build(workspace, &tree, guard.name);
        fs::write(&path, text)?;
        let found = failing(&built?, guard.profile, 0, guard.seeds)?;
        match found {
            None => missed.push(guard.name),
            Some((seed, _)) if failing(&whole, guard.profile, seed, 1)?.is_some() => {
                bail!("seed {seed} of {} fails also with the guard `{}`", guard.profile, guard.name);
            }
            Some((seed, wrong)) => {
                eprintln!("{}: seed {seed} of {}: {wrong}", guard.name, guard.profile);
                lines.push(format!("| {} | {} | {}, seed {seed} | {} |", guard.name, guard.keeps, guard.profile, guard.seeds));
            }
        }
    }
    println!("{}", lines.join("\n"));
    if !missed.is_empty() {
        bail!("not found without their guard: {}", missed.join(", "));
    }
    Ok(())
}

/// The files of the checkout, as they are, at another place.
fn copy(from: &Path, to: &Path) -> Result<()> {
    let mut git = Command::new("git");
    git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]).current_dir(from);
    for path in shell::read(&mut git)?.split('\0').filter(|path| !path.is_empty()) {
        let (source, target) = (from.join(path), to.join(path));
        let Ok(bytes) = fs::read(&source) else { continue };
        // What has not changed keeps its time, so that it is not built again.
        if fs::read(&target).is_ok_and(|there| there == bytes) {
            continue;
        }
        fs::create_dir_all(target.parent().unwrap_or(to))?;
        fs::write(&target, bytes).with_context(|| format!("cannot write {}", target.display()))?;
    }
    Ok(())
}

/// Builds the program that runs seeds, and keeps it under a name of its own.
fn build(workspace: &Workspace, tree: &Path, name: &str) -> Result<PathBuf> {
    let mut command = shell::cargo();
    command.args(["build", "--quiet", "-p", "weir-sim", "--example", "seeds"]).current_dir(tree);
    // Other people's crates are built once for all.
    command.env("CARGO_TARGET_DIR", &workspace.target).env_remove("CARGO_MANIFEST_DIR");
    shell::run(&mut command).with_context(|| format!("without the guard `{name}` it does not compile"))?;
    let kept = workspace.target.join(format!("guards-{}", name.replace(' ', "-")));
    fs::copy(workspace.target.join("debug/examples/seeds"), &kept)?;
    Ok(kept)
}

/// The first seed that fails, and what goes wrong.
fn failing(program: &Path, profile: &str, first: u64, runs: u64) -> Result<Option<(u64, String)>> {
    let mut command = Command::new(program);
    command.args(["--profile", profile, "--first", &first.to_string(), "--runs", &runs.to_string()]);
    let output = command.stdin(Stdio::null()).stderr(Stdio::piped()).output()?;
    let said: Result<Value, _> = serde_json::from_slice(&output.stdout);
    let Ok(said) = said else {
        // An assertion of the machines themselves.
        let panic = String::from_utf8_lossy(&output.stderr).into_owned();
        bail!("{} ended without a word: {panic}", program.display());
    };
    let failed = &said["failed"];
    let seed = failed["seed"].as_u64();
    Ok(seed.map(|seed| (seed, failed["wrong"].to_string())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_each_guard_stand_once_in_their_file() {
        for guard in GUARDS {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(guard.file);
            let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let count = text.matches(guard.holds).count();
            assert_eq!(
                count, 1,
                "guard `{}`: its lines stand {count} times in {}; mend xtask/src/sim/guards/list.rs",
                guard.name, guard.file
            );
            assert_ne!(guard.holds, guard.without);
        }
    }
}
