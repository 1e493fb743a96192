//! What cargo knows about this workspace: packages, folders, dependencies. Read from `cargo metadata`, never guessed.

use crate::shell;
use anyhow::{Context, Result};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// The workspace that this xtask belongs to.
pub(crate) struct Workspace {
    pub(crate) root: PathBuf,
    /// Where cargo builds into; respects `CARGO_TARGET_DIR`.
    pub(crate) target: PathBuf,
    pub(crate) packages: Vec<Package>,
}

/// One member of the workspace.
#[derive(Debug, Clone)]
pub(crate) struct Package {
    pub(crate) name: String,
    /// Its folder below the root, with `/` between parts.
    pub(crate) folder: String,
    pub(crate) version: String,
    pub(crate) dependencies: Vec<Dependency>,
}

/// A dependency as a manifest states it.
#[derive(Debug, Clone)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    pub(crate) kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Normal,
    Build,
    Dev,
}

impl Workspace {
    /// Asks cargo.
    pub(crate) fn load() -> Result<Workspace> {
        // As cargo says it now, not as it was when this was built: checkouts may share a target folder.
        let here = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
        let manifest = Path::new(&here).join("../Cargo.toml");
        let mut command = shell::cargo();
        command.args(["metadata", "--format-version=1", "--no-deps", "--manifest-path"]).arg(&manifest);
        let text = shell::read(&mut command)?;
        Workspace::from_metadata(&serde_json::from_str(&text).context("cargo metadata gave no JSON")?)
    }

    fn from_metadata(metadata: &Value) -> Result<Workspace> {
        let root = PathBuf::from(string(metadata, "workspace_root")?);
        let target = PathBuf::from(string(metadata, "target_directory")?);
        let packages = metadata["packages"].as_array().context("cargo metadata: no packages")?;
        let packages = packages.iter().map(|package| Package::from_metadata(package, &root)).collect::<Result<_>>()?;
        Ok(Workspace { root, target, packages })
    }

    /// The crates that are operators: built to WebAssembly, and pushed into a component store.
    pub(crate) fn operators(&self) -> impl Iterator<Item = &Package> {
        self.packages
            .iter()
            .filter(|package| ["operators/", "bench/operators/"].iter().any(|folder| package.folder.starts_with(folder)))
    }

    /// A cargo command that works on this workspace, wherever we were started.
    pub(crate) fn cargo(&self, subcommand: &str) -> std::process::Command {
        let mut command = shell::cargo();
        command.arg(subcommand).current_dir(&self.root);
        command
    }
}

impl Package {
    fn from_metadata(package: &Value, root: &Path) -> Result<Package> {
        let (name, version) = (string(package, "name")?.to_string(), string(package, "version")?.to_string());
        let manifest = Path::new(string(package, "manifest_path")?);
        let folder = manifest.parent().and_then(|folder| folder.strip_prefix(root).ok());
        let folder = folder.with_context(|| format!("package {name} is outside the workspace folder"))?;
        let folder = folder.to_string_lossy().replace('\\', "/");
        let dependencies = package["dependencies"].as_array().map(Vec::as_slice).unwrap_or_default();
        let dependencies = dependencies.iter().map(Dependency::from_metadata).collect::<Result<_>>()?;
        Ok(Package { name, folder, version, dependencies })
    }
}

impl Dependency {
    fn from_metadata(dependency: &Value) -> Result<Dependency> {
        let kind = match dependency["kind"].as_str() {
            None => Kind::Normal,
            Some("build") => Kind::Build,
            Some(_) => Kind::Dev,
        };
        Ok(Dependency { name: string(dependency, "name")?.to_string(), kind })
    }
}

fn string<'a>(value: &'a Value, key: &str) -> Result<&'a str> {
    value[key].as_str().with_context(|| format!("cargo metadata: no {key}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn packages_are_found_with_folder_and_kinds_of_dependency() {
        let metadata = json!({
            "workspace_root": "/w", "target_directory": "/t",
            "packages": [
                { "name": "weir-task", "version": "0.1.0", "manifest_path": "/w/host/task/Cargo.toml", "dependencies": [
                    { "name": "weir-model", "kind": null }, { "name": "proptest", "kind": "dev" }, { "name": "cc", "kind": "build" } ] },
                { "name": "window", "version": "1.0.0", "manifest_path": "/w/operators/window/Cargo.toml", "dependencies": [] },
            ]
        });
        let workspace = Workspace::from_metadata(&metadata).unwrap();
        assert_eq!(workspace.packages[0].folder, "host/task");
        let kinds: Vec<Kind> = workspace.packages[0].dependencies.iter().map(|d| d.kind).collect();
        assert_eq!(kinds, [Kind::Normal, Kind::Dev, Kind::Build]);
        assert_eq!(workspace.operators().map(|p| p.name.as_str()).collect::<Vec<_>>(), ["window"]);
    }
}
