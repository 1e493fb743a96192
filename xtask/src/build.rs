//! Builds of this workspace's programs, by cargo, with what cargo says that it made.

use crate::shell;
use crate::workspace::Workspace;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Stdio};

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

/// All members are selected, so that dependencies get the features that tests will ask for, and are built once (decision 15).
pub(crate) fn host(workspace: &Workspace, profile: Profile) -> Result<PathBuf> {
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
pub(crate) fn bench(workspace: &Workspace, profile: Profile, package: &str) -> Result<Option<PathBuf>> {
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
