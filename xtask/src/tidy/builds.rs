//! What is built: once for everything, and operators as they are in the binary. These rules ask cargo, not the files.

use super::Finding;
use crate::operators;
use crate::shell;
use crate::workspace::Workspace;
use anyhow::Result;
use std::collections::BTreeSet;

/// Dependencies have the same features whether dev-dependencies are looked at or not, so that the build of `weir` serves the tests.
pub(super) fn once(workspace: &Workspace, findings: &mut Vec<Finding>) -> Result<()> {
    let tree = |edges: &str| {
        let mut command = workspace.cargo("tree");
        command.args(["--workspace", "--locked", "--no-dedupe", "--prefix", "none", "--format", "{p}|{f}", "--edges", edges]);
        shell::read(&mut command)
    };
    twice(&tree("normal,build")?, &tree("normal,build,dev")?, findings);
    Ok(())
}

/// Names what the first list has and the second has not.
fn twice(without: &str, with: &str, findings: &mut Vec<Finding>) {
    let with: BTreeSet<&str> = with.lines().collect();
    let lines: BTreeSet<&str> = without.lines().collect();
    // Members stand there with their paths.
    for line in lines.into_iter().filter(|line| !line.contains("(/") && !with.contains(line)) {
        let package = line.split('|').next().unwrap_or(line);
        findings.push(Finding::new(
            "tests/Cargo.toml",
            0,
            format!("{package} is built twice: tests ask for more of its features"),
            "name what a dev-dependency adds as a dependency in tests/Cargo.toml (decision 15)",
        ));
    }
}

/// The operators in operators/bundled are built from the sources beside them.
pub(super) fn operators(workspace: &Workspace, findings: &mut Vec<Finding>) -> Result<()> {
    for name in operators::stale(workspace)? {
        findings.push(Finding::new(
            "operators/bundled/index.txt",
            0,
            format!("the sources of {name} are not those that the binary's {name} was built from"),
            "run `cargo xtask operators`; it says whether a new version is needed",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dependency_with_more_features_in_tests_is_named() {
        let mut findings = Vec::new();
        twice(
            "tokio v1.5.0|net,rt\nbytes v1.0.0|std\nweir v0.1.0 (/x)|\n",
            "tokio v1.5.0|net,rt,test-util\nbytes v1.0.0|std\n",
            &mut findings,
        );
        assert_eq!(findings.len(), 1);
        assert!(findings[0].what.starts_with("tokio v1.5.0 is built twice"), "{findings:?}");
    }
}
