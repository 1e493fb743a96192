//! `cargo xtask operators`: builds the first-party operators into operators/bundled, from where they get into the `weir` binary.
//!
//! They are kept built, so that a version stands for the same bytes on every machine and with every toolchain: state belongs to
//! bytes. An operator whose bytes change needs a new version; `cargo xtask tidy` notices a source that is newer than what was built.

use crate::build::{self, Profile};
use crate::needs::{self, Purpose, WASM_TARGET};
use crate::shell::{self, Arguments};
use crate::workspace::Workspace;
use anyhow::{Context, Result, bail};
use sha2::Digest as _;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The profile of the workspace that makes operators small and fast.
const GUEST_PROFILE: &str = "guest";
/// Built operators and their index, below the root.
const BUNDLED: &str = "operators/bundled";
/// What goes into every operator: the SDK.
const SHARED: &str = "guest-sdk/rust";

/// A line of the index.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    version: String,
    /// SHA-256 of the component.
    component: String,
    /// SHA-256 of all that it is built from in this repository.
    source: String,
}

/// `operators/bundled/index.txt`.
#[derive(Debug, Default, PartialEq, Eq)]
struct Index {
    /// What built them.
    rustc: String,
    entries: BTreeMap<String, Entry>,
}

impl Index {
    fn parse(text: &str) -> Result<Index> {
        let mut index = Index::default();
        for line in text.lines() {
            if let Some(rustc) = line.strip_prefix("# built by ") {
                index.rustc = rustc.to_string();
            }
            if line.starts_with('#') {
                continue;
            }
            let words: Vec<&str> = line.split(' ').collect();
            let [name, version, component, source] = words[..] else { bail!("{BUNDLED}/index.txt: cannot read `{line}`") };
            let entry = Entry { version: version.to_string(), component: component.to_string(), source: source.to_string() };
            index.entries.insert(name.to_string(), entry);
        }
        Ok(index)
    }

    fn text(&self) -> String {
        let mut text = format!(
            "# The first-party operators in the weir binary. Written by `cargo xtask operators`; do not edit.\n# built by {}\n\
             # name version SHA-256-of-the-component SHA-256-of-its-sources\n",
            self.rustc
        );
        for (name, entry) in &self.entries {
            text.push_str(&format!("{name} {} {} {}\n", entry.version, entry.component, entry.source));
        }
        text
    }

    fn load(workspace: &Workspace) -> Result<Index> {
        let path = workspace.root.join(BUNDLED).join("index.txt");
        Index::parse(&fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?)
    }
}

pub(crate) fn main(arguments: &[String]) -> Result<()> {
    let mut check = false;
    let mut arguments = Arguments::new(arguments);
    while let Some(argument) = arguments.next() {
        match argument {
            "--check" => check = true,
            other => return shell::unknown("operators", other),
        }
    }
    let workspace = Workspace::load()?;
    needs::ensure(Purpose::Operators, &workspace.target)?;
    let weir = build::host(&workspace, Profile::Dev)?;
    compile(&workspace, &names(&workspace))?;
    if check { verify(&workspace, &weir) } else { renew(&workspace, &weir) }
}

/// Writes anew what has changed of compiled operators.
fn renew(workspace: &Workspace, weir: &Path) -> Result<()> {
    let old = Index::load(workspace)?;
    let mut new = Index { rustc: rustc()?, entries: BTreeMap::new() };
    for (name, folder, version) in first_party(workspace)? {
        let built = component(workspace, weir, &name)?;
        let entry = Entry { version, component: sha256(std::slice::from_ref(&built))?, source: source(workspace, &folder)? };
        if let Some(old) = old.entries.get(&name)
            && old.version == entry.version
            && old.component != entry.component
        {
            bail!(
                "{name}@{} is in the repository with other bytes than these: give it a new version in {folder}/Cargo.toml (and in \
                 the job files and texts that name it), then run this again",
                entry.version
            );
        }
        let bundled = workspace.root.join(BUNDLED).join(format!("{name}.wasm"));
        fs::copy(&built, &bundled).with_context(|| format!("cannot write {}", bundled.display()))?;
        println!("{name}@{} {}", entry.version, entry.component);
        new.entries.insert(name, entry);
    }
    let index = workspace.root.join(BUNDLED).join("index.txt");
    fs::write(&index, new.text()).with_context(|| format!("cannot write {}", index.display()))
}

/// Compares compiled operators with those in the repository. Another compiler makes other bytes, so nothing can be said then.
pub(crate) fn verify(workspace: &Workspace, weir: &Path) -> Result<()> {
    let index = Index::load(workspace)?;
    let rustc = rustc()?;
    if index.rustc != rustc {
        eprintln!("note: bundled operators were built by {}, this is {rustc}: their bytes are not compared", index.rustc);
        return Ok(());
    }
    for (name, entry) in &index.entries {
        let built = sha256(&[component(workspace, weir, name)?])?;
        if built != entry.component {
            bail!("{name}@{} in {BUNDLED} is not what its sources make: run `cargo xtask operators`", entry.version);
        }
    }
    Ok(())
}

/// Operators whose sources are not those that were built, with what to do. Quick: nothing is built.
pub(crate) fn stale(workspace: &Workspace) -> Result<Vec<String>> {
    let index = Index::load(workspace)?;
    let mut stale = Vec::new();
    for (name, folder, version) in first_party(workspace)? {
        let is_built = match index.entries.get(&name) {
            Some(entry) => entry.version == version && entry.source == source(workspace, &folder)?,
            None => false,
        };
        if !is_built {
            stale.push(name);
        }
    }
    Ok(stale)
}

/// Name, folder and version of each operator that is in the binary.
fn first_party(workspace: &Workspace) -> Result<Vec<(String, String, String)>> {
    let packages = workspace.operators().filter(|package| !package.name.starts_with("bench-"));
    Ok(packages.map(|package| (package.name.clone(), package.folder.clone(), package.version.clone())).collect())
}

/// All operators of the workspace.
pub(crate) fn names(workspace: &Workspace) -> Vec<String> {
    workspace.operators().map(|package| package.name.clone()).collect()
}

/// Compiles operators in one go, so that making components of them one by one finds everything done.
pub(crate) fn compile(workspace: &Workspace, names: &[String]) -> Result<()> {
    if names.is_empty() {
        bail!("no operator found: `cargo metadata` lists no package below operators/");
    }
    let mut command = workspace.cargo("build");
    command.args(["--lib", "--target", WASM_TARGET, "--profile", GUEST_PROFILE]).envs(reproducible());
    for name in names {
        command.args(["--package", name]);
    }
    shell::run(&mut command)
}

/// Makes a component of an operator that is compiled, and gives its file.
pub(crate) fn component(workspace: &Workspace, weir: &Path, name: &str) -> Result<PathBuf> {
    let folder = workspace.target.join("xtask/components");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;
    let operator = workspace.operators().find(|package| package.name == name).with_context(|| format!("no operator {name}"))?;
    let file = folder.join(format!("{name}.wasm"));
    let mut build = Command::new(weir);
    build.args(["component", "build"]).arg(workspace.root.join(&operator.folder)).args(["--profile", GUEST_PROFILE]);
    shell::read(build.arg("--output").arg(&file).envs(reproducible()))?;
    Ok(file)
}

/// Places of sources get into panic messages, and so into the bytes: those of this machine must not.
fn reproducible() -> Vec<(String, String)> {
    let home = std::env::var("CARGO_HOME").ok().or_else(|| Some(format!("{}/.cargo", std::env::var("HOME").ok()?)));
    let flags = home.map(|home| format!("--remap-path-prefix={home}=cargo"));
    flags.into_iter().map(|flags| ("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUSTFLAGS".to_string(), flags)).collect()
}

fn rustc() -> Result<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    Ok(shell::read(Command::new(rustc).arg("--version"))?.trim().to_string())
}

/// SHA-256 of everything in this repository that an operator is built from.
fn source(workspace: &Workspace, folder: &str) -> Result<String> {
    let mut files = Vec::new();
    for part in [SHARED, folder] {
        collect(&workspace.root.join(part), &mut files)?;
    }
    files.sort();
    sha256(&files)
}

fn collect(path: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    if path.is_dir() {
        for entry in fs::read_dir(path).with_context(|| format!("cannot read {}", path.display()))? {
            collect(&entry?.path(), files)?;
        }
    } else if path.exists()
        && (path.extension().is_some_and(|end| end == "rs" || end == "toml" || end == "wit"))
        && !is_test(path)
    {
        files.push(path.to_path_buf());
    }
    Ok(())
}

/// Tests are not in the component.
fn is_test(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == "tests.rs") || path.parent().is_some_and(|parent| parent.ends_with("tests"))
}

/// SHA-256 of files, one after the other.
fn sha256(files: &[PathBuf]) -> Result<String> {
    let mut all = Vec::new();
    for file in files {
        all.extend(fs::read(file).with_context(|| format!("cannot read {}", file.display()))?);
    }
    let digest = sha2::Sha256::digest(&all);
    Ok(digest.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_is_read_as_it_was_written() {
        let entry = Entry { version: "1.1.0".into(), component: "ab".into(), source: "cd".into() };
        let index = Index { rustc: "rustc 1.95.0 (x)".into(), entries: [("window".to_string(), entry)].into() };
        assert_eq!(Index::parse(&index.text()).unwrap(), index);
        assert!(Index::parse("window 1.1.0\n").is_err());
    }

    #[test]
    fn tests_of_an_operator_are_no_part_of_its_sources() {
        assert!(is_test(Path::new("operators/parse/src/tests.rs")) && is_test(Path::new("operators/window/src/tests/late.rs")));
        assert!(!is_test(Path::new("operators/parse/src/lib.rs")));
    }
}
