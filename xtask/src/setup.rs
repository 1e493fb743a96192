//! `cargo xtask setup`: what the other commands stand on. Installs what is missing, builds the `weir` binary, and for tests the
//! operators that only they use. Idempotent: with nothing to do it takes a second.

use crate::needs::{self, Purpose};
use crate::operators;
use crate::shell::{self, Arguments};
use crate::workspace::Workspace;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Builds operators written in Python; pinned, because the components it makes are compared with snapshots of themselves.
const COMPONENTIZE_PY: &str = "componentize-py==0.25.1";

/// Which build of the host to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Profile {
    /// Optimised enough to move millions of rows, with assertions on.
    Dev,
    Release,
}

impl Profile {
    /// Its folder below the target folder.
    fn folder(self) -> &'static str {
        match self {
            Profile::Dev => "debug",
            Profile::Release => "release",
        }
    }

    fn flag(self) -> Option<&'static str> {
        (self == Profile::Release).then_some("--release")
    }
}

/// What [`prepare`] leaves behind.
pub(crate) struct Prepared {
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
    println!("weir {}", host(&workspace, profile)?.display());
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
    build_host(workspace, profile)
}

/// Builds everything that tests and benchmarks need: also the operators that are not in the binary, in a component store.
pub(crate) fn prepare(workspace: &Workspace, profile: Profile, data_dir: &Path) -> Result<Prepared> {
    needs::ensure(Purpose::Operators, &workspace.target)?;
    let weir = build_host(workspace, profile)?;
    fs::create_dir_all(data_dir).with_context(|| format!("cannot make the folder {}", data_dir.display()))?;
    // A version of a component never changes once it is pushed. Here it does, whenever somebody works on an operator: so a store of
    // our own is made anew.
    let store = data_dir.join("components");
    if data_dir.starts_with(&workspace.target) && store.exists() {
        fs::remove_dir_all(&store).with_context(|| format!("cannot remove {}", store.display()))?;
    }
    let others: Vec<String> =
        workspace.operators().map(|operator| operator.name.clone()).filter(|name| name.starts_with("bench-")).collect();
    operators::compile(workspace, &others)?;
    for name in &others {
        let component = operators::component(workspace, &weir, name)?;
        let mut push = Command::new(&weir);
        shell::read(push.args(["component", "push"]).arg(&component).arg("--data-dir").arg(data_dir))?;
    }
    Ok(Prepared { weir, data_dir: data_dir.to_path_buf() })
}

/// All members are selected, so that dependencies get the features that tests will ask for, and are built once (decision 15).
pub(crate) fn build_host(workspace: &Workspace, profile: Profile) -> Result<PathBuf> {
    if !workspace.target.join(profile.folder()).join("weir").exists() {
        eprintln!("building weir and its dependencies: about ten minutes on two cores, the first time; then seconds");
    }
    let mut command = workspace.cargo("build");
    // What is measured or handed out has no features that only tests ask for.
    let selected: &[&str] = if profile == Profile::Dev { &["--workspace", "--bin", "weir"] } else { &["--package", "weir"] };
    let built = artifacts(command.args(selected).args(profile.flag()))?;
    let weir = built.into_iter().find(|artifact| artifact.target == "weir" && artifact.executable.is_some());
    weir.and_then(|artifact| artifact.executable).context("cargo built no `weir` binary")
}

/// The package whose binary `weir-native` takes the arguments of `weir`, but has the bench operators linked in natively.
pub(crate) const NATIVE_BENCH: &str = "weir-native-bench";

/// The package whose binary moves the frames of data channels over several links.
pub(crate) const WIRE_BENCH: &str = "weir-bench-wire";

/// Builds the binary of a package that only benchmarks need, if this workspace has it.
pub(crate) fn build_bench(workspace: &Workspace, profile: Profile, package: &str) -> Result<Option<PathBuf>> {
    if !workspace.packages.iter().any(|member| member.name == package) {
        return Ok(None);
    }
    let mut command = workspace.cargo("build");
    let built = artifacts(command.args(["--package", package]).args(profile.flag()))?;
    Ok(built.into_iter().find_map(|artifact| artifact.executable))
}

struct Artifact {
    target: String,
    executable: Option<PathBuf>,
}

/// Runs a cargo build with its progress on our stderr, and gives what it built, from cargo's own account of it.
fn artifacts(command: &mut Command) -> Result<Vec<Artifact>> {
    eprintln!("+ {}", shell::display(command));
    command.arg("--message-format=json-render-diagnostics");
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output().context("cannot start cargo")?;
    if !output.status.success() {
        bail!("`{}` failed: {}", shell::display(command), output.status);
    }
    let messages = String::from_utf8(output.stdout).context("cargo printed something that is not UTF-8")?;
    Ok(messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()).filter_map(|m| artifact(&m)).collect())
}

fn artifact(message: &Value) -> Option<Artifact> {
    if message["reason"] != "compiler-artifact" {
        return None;
    }
    let executable = message["executable"].as_str().map(PathBuf::from);
    Some(Artifact { target: message["target"]["name"].as_str()?.to_string(), executable })
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

/// Makes sure of componentize-py in an environment of its own, and gives its path.
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
    needs::ensure(Purpose::Tests, &workspace.target)?;
    shell::run(Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
    let mut pip = Command::new(folder.join("bin/python"));
    shell::run(pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", COMPONENTIZE_PY]))?;
    Ok(tool)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn binaries_are_taken_from_cargos_account() {
        let binary = json!({"reason": "compiler-artifact", "executable": "/t/weir", "target": {"name": "weir"}});
        assert_eq!(artifact(&binary).unwrap().executable, Some(PathBuf::from("/t/weir")));
        let library = json!({"reason": "compiler-artifact", "executable": null, "target": {"name": "serde"}});
        assert_eq!(artifact(&library).unwrap().executable, None);
        assert!(artifact(&json!({"reason": "build-finished", "success": true})).is_none());
    }
}
