//! `cargo xtask setup`: what the other commands stand on. Installs what is missing, builds the `weir` binary and the operators,
//! and pushes the operators into a component store. Idempotent: with nothing to do it takes a second.

use crate::debian;
use crate::shell::{self, Arguments};
use crate::workspace::Workspace;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const WASM_TARGET: &str = "wasm32-unknown-unknown";
/// The profile of the workspace that makes operators small and fast.
const GUEST_PROFILE: &str = "guest";
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
    fn flag(self) -> Option<&'static str> {
        (self == Profile::Release).then_some("--release")
    }
}

/// What [`prepare`] leaves behind.
pub(crate) struct Prepared {
    /// The `weir` binary.
    pub(crate) weir: PathBuf,
    /// The data folder whose component store holds every operator of this repository.
    pub(crate) data_dir: PathBuf,
}

pub(crate) fn main(arguments: &[String]) -> Result<()> {
    let workspace = Workspace::load()?;
    let (mut data_dir, mut profile, mut with_python) = (default_data_dir(&workspace), Profile::Dev, false);
    let mut arguments = Arguments::new(arguments);
    while let Some(argument) = arguments.next() {
        match argument {
            "--data-dir" => data_dir = PathBuf::from(arguments.value(argument)?),
            "--release" => profile = Profile::Release,
            "--python" => with_python = true,
            other => return shell::unknown("setup", other),
        }
    }
    let prepared = prepare(&workspace, profile, &data_dir)?;
    println!("weir        {}", prepared.weir.display());
    println!("data folder {}", prepared.data_dir.display());
    if with_python {
        println!("componentize-py {}", python(&workspace)?.display());
    }
    Ok(())
}

/// Where commands that have no wish of their own keep components.
pub(crate) fn default_data_dir(workspace: &Workspace) -> PathBuf {
    workspace.target.join("xtask/data")
}

/// Builds everything a job of this repository needs.
pub(crate) fn prepare(workspace: &Workspace, profile: Profile, data_dir: &Path) -> Result<Prepared> {
    ensure_wasm_target()?;
    debian::ensure_compilers()?;
    let weir = build_host(workspace, profile)?;
    fs::create_dir_all(data_dir).with_context(|| format!("cannot make the folder {}", data_dir.display()))?;
    // A version of a component never changes once it is pushed. Here it does, whenever somebody works on an operator: so a store of
    // our own is made anew.
    let store = data_dir.join("components");
    if data_dir.starts_with(&workspace.target) && store.exists() {
        fs::remove_dir_all(&store).with_context(|| format!("cannot remove {}", store.display()))?;
    }
    compile_operators(workspace)?;
    let components = workspace.target.join("xtask/components");
    fs::create_dir_all(&components).with_context(|| format!("cannot make the folder {}", components.display()))?;
    for operator in workspace.operators() {
        let component = components.join(format!("{}.wasm", operator.name));
        let mut build = Command::new(&weir);
        build.args(["component", "build"]).arg(workspace.root.join(&operator.folder)).args(["--profile", GUEST_PROFILE]);
        shell::read(build.arg("--output").arg(&component))?;
        let mut push = Command::new(&weir);
        shell::read(push.args(["component", "push"]).arg(&component).arg("--data-dir").arg(data_dir))?;
    }
    Ok(Prepared { weir, data_dir: data_dir.to_path_buf() })
}

fn ensure_wasm_target() -> Result<()> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let library = shell::read(Command::new(rustc).args(["--print", "target-libdir", "--target", WASM_TARGET]))?;
    if Path::new(library.trim()).is_dir() {
        return Ok(());
    }
    let added = shell::run(Command::new("rustup").args(["target", "add", WASM_TARGET]));
    added.with_context(|| format!("operators are built for {WASM_TARGET}, and this toolchain does not have it"))
}

fn build_host(workspace: &Workspace, profile: Profile) -> Result<PathBuf> {
    let mut command = workspace.cargo("build");
    let built = artifacts(command.args(["--package", "weir"]).args(profile.flag()))?;
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

/// Compiles all operators in one go, so that making components of them one by one finds everything done.
fn compile_operators(workspace: &Workspace) -> Result<()> {
    let names: Vec<&str> = workspace.operators().map(|package| package.name.as_str()).collect();
    if names.is_empty() {
        bail!("no operator found: `cargo metadata` lists no package below operators/");
    }
    let mut command = workspace.cargo("build");
    command.args(["--lib", "--target", WASM_TARGET, "--profile", GUEST_PROFILE]);
    for name in &names {
        command.args(["--package", name]);
    }
    shell::run(&mut command)
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
    let installed = shell::run(shell::cargo().args(["install", "cargo-nextest", "--locked"]));
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
    ensure_venv()?;
    shell::run(Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
    let mut pip = Command::new(folder.join("bin/python"));
    shell::run(pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", COMPONENTIZE_PY]))?;
    Ok(tool)
}

/// Makes sure of Python with virtual environments; on Debian that is a package of its own.
fn ensure_venv() -> Result<()> {
    if shell::succeeds(Command::new("python3").args(["-c", "import ensurepip, venv"])) {
        return Ok(());
    }
    debian::ensure(&["python3", "python3-venv"])
        .context("operators in Python are built in a virtual environment, which needs python3 and python3-venv")
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
