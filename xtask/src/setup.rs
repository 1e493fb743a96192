//! `cargo xtask setup`: what the other commands stand on. Installs what is missing, builds the `weir` binary, and for tests the
//! operators that only they use. Idempotent: with nothing to do it takes a second.

use crate::build::{self, Profile};
use crate::needs::{self, Purpose};
use crate::operators;
use crate::shell::{self, Arguments};
use crate::workspace::Workspace;
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds operators written in Python; pinned, because the components it makes are compared with snapshots of themselves.
const COMPONENTIZE_PY: &str = "componentize-py==0.25.1";

/// What [`prepare`] leaves behind.
pub(crate) struct Workplace {
    /// The `weir` binary.
    pub(crate) weir: PathBuf,
    /// The data folder whose component store holds the operators that are not in the binary.
    pub(crate) data_dir: PathBuf,
}

pub(crate) fn main(arguments: &[String]) -> Result<()> {
    let workspace = Workspace::load()?;
    let (mut profile, mut with_python) = (Profile::Dev, false);
    let mut arguments = Arguments::new(arguments);
    while let Some(argument) = arguments.next() {
        match argument {
            "--release" => profile = Profile::Release,
            "--python" => with_python = true,
            other => return shell::unknown("setup", other),
        }
    }
    needs::ensure(if with_python { Purpose::Tests } else { Purpose::Host }, &workspace.target)?;
    println!("weir {}", build::host(&workspace, profile)?.display());
    if with_python {
        println!("componentize-py {}", python(&workspace)?.display());
    }
    Ok(())
}

/// Where commands that have no wish of their own keep components.
pub(crate) fn default_data_dir(workspace: &Workspace) -> PathBuf {
    workspace.target.join("xtask/data")
}

/// Builds the `weir` binary, with all that needs to be installed for it. The first-party operators are in it.
pub(crate) fn host(workspace: &Workspace, profile: Profile) -> Result<PathBuf> {
    needs::ensure(Purpose::Host, &workspace.target)?;
    build::host(workspace, profile)
}

/// Builds everything that tests and benchmarks need: also the operators that are not in the binary, in a component store. For tests all
/// operators are compiled, in the same go, as those in the binary are compared with what their sources make.
pub(crate) fn prepare(workspace: &Workspace, purpose: Purpose, profile: Profile, data_dir: &Path) -> Result<Workplace> {
    needs::ensure(purpose, &workspace.target)?;
    let weir = build::host(workspace, profile)?;
    fs::create_dir_all(data_dir).with_context(|| format!("cannot make the folder {}", data_dir.display()))?;
    // A version of a component never changes once it is pushed. Here it does, whenever somebody works on an operator: so a store of
    // our own is made anew.
    let store = data_dir.join("components");
    if data_dir.starts_with(&workspace.target) && store.exists() {
        fs::remove_dir_all(&store).with_context(|| format!("cannot remove {}", store.display()))?;
    }
    let others: Vec<String> =
        workspace.operators().map(|operator| operator.name.clone()).filter(|name| name.starts_with("bench-")).collect();
    let all = operators::names(workspace);
    operators::compile(workspace, if purpose == Purpose::Tests { &all } else { &others })?;
    for name in &others {
        let component = operators::component(workspace, &weir, name)?;
        let mut push = Command::new(&weir);
        shell::read(push.args(["component", "push"]).arg(&component).arg("--data-dir").arg(data_dir))?;
    }
    Ok(Workplace { weir, data_dir: data_dir.to_path_buf() })
}

/// Makes sure of cargo-nextest; false if it cannot be had, and then `cargo test` has to do.
pub(crate) fn nextest() -> bool {
    if shell::succeeds(shell::cargo().args(["nextest", "--version"])) {
        return true;
    }
    // Compiled as fast as can be, as it only starts tests and waits.
    let installed = shell::run(shell::cargo().args([
        "install",
        "cargo-nextest",
        "--locked",
        "--debug",
        "--no-default-features",
        "--features",
        "default-no-update",
    ]));
    if let Err(error) = &installed {
        eprintln!("note: no cargo-nextest ({error:#}); using `cargo test`, which runs fewer tests at a time");
    }
    installed.is_ok()
}

/// Makes sure of componentize-py in an environment of its own, and gives its path. What [`Purpose::Tests`] needs must be there.
pub(crate) fn python(workspace: &Workspace) -> Result<PathBuf> {
    let folder = workspace.target.join("xtask/python").join(COMPONENTIZE_PY.replace("==", "-"));
    let tool = folder.join("bin/componentize-py");
    if shell::succeeds(Command::new(&tool).arg("--version")) {
        return Ok(tool);
    }
    // A half-made environment from an interrupted run would be taken for a whole one.
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    shell::run(Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
    let mut pip = Command::new(folder.join("bin/python"));
    shell::run(pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", COMPONENTIZE_PY]))?;
    Ok(tool)
}
