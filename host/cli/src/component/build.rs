//! `weir component build`: cargo, then the component, checked and stamped.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use weir_model::ErrorNumber;

use crate::failure::{Exit, Failure};
use crate::global::Global;
use crate::store::digest_of;
use crate::{files, output};

const TARGET: &str = "wasm32-unknown-unknown";

pub(super) fn execute(folder: &Path, output: Option<&Path>, profile: &str, global: &Global) -> anyhow::Result<()> {
    let package = Package::find(folder)?;
    check_target(folder)?;
    let module = compile(folder, &package, profile, global)?;
    let bytes = files::read(&module, "module")?;
    let shown = module.display().to_string();
    let component = componentize(&bytes, &shown)?;
    let component =
        weir_sandbox::stamp(&component, &package.name, &package.version).map_err(|error| super::refused(&shown, &error))?;
    super::inspect(&component, &package.name)?;

    let path = output.map_or_else(|| folder.join(format!("{}.wasm", package.name)), Path::to_owned);
    weir_storage::write_whole(&path, &component).map_err(|error| {
        Failure::new(
            ErrorNumber::FileInaccessible,
            Exit::Failed,
            format!("cannot write the component {}: {error}", path.display()),
        )
    })?;
    let digest = digest_of(&component);
    if global.json {
        return output::print_json(&json!({
            "file": path, "name": package.name, "version": package.version, "digest": digest.to_string(), "size_bytes": component.len(),
        }));
    }
    let size = output::size(component.len() as u64);
    global.note(&format!(
        "built {}@{}, {size}; to push it: weir component push {}",
        package.name,
        package.version,
        path.display()
    ));
    output::print(&format!("{} {digest}\n", path.display()))
}

/// What cargo says of the package in a folder.
struct Package {
    name: String,
    version: String,
    /// The package's Cargo.toml, as cargo has it.
    manifest: String,
    /// Whether it has a library that can become a component.
    has_cdylib: bool,
}

fn failed(message: impl Into<String>) -> Failure {
    Failure::new(ErrorNumber::ComponentNotBuilt, Exit::Failed, message)
}

fn cargo(folder: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(folder).stdin(Stdio::null());
    command
}

impl Package {
    fn find(folder: &Path) -> Result<Package, Failure> {
        let manifest = folder.join("Cargo.toml");
        let manifest = fs::canonicalize(&manifest).map_err(|error| {
            let message =
                format!("cannot build a component in {}: cannot find {}: {error}", folder.display(), manifest.display());
            Failure { exit: Exit::Usage, ..failed(message) }.hint("`weir component new NAME` makes a crate to start from")
        })?;
        let mut command = cargo(folder);
        let answer = command.args(["metadata", "--no-deps", "--format-version", "1"]).stderr(Stdio::inherit()).output();
        let answer = answer.map_err(|error| no_cargo(&error))?;
        if !answer.status.success() {
            return Err(failed(format!("cannot build a component in {}: cargo cannot read the package", folder.display())));
        }
        let metadata: Value =
            serde_json::from_slice(&answer.stdout).map_err(|error| failed(format!("cargo answered no JSON: {error}")))?;
        let packages = metadata["packages"].as_array().map_or(&[][..], Vec::as_slice);
        let package = packages.iter().find(|package| package["manifest_path"].as_str().map(Path::new) == Some(&manifest));
        let text = |key: &str| package.and_then(|package| package[key].as_str()).map(str::to_owned);
        let (Some(name), Some(version), Some(manifest)) = (text("name"), text("version"), text("manifest_path")) else {
            let message = format!("cannot build a component in {}: its Cargo.toml has no [package]", folder.display());
            return Err(failed(message).hint("name the folder of the operator's own crate"));
        };
        let targets = package.and_then(|package| package["targets"].as_array()).map_or(&[][..], Vec::as_slice);
        let is_cdylib = |target: &Value| target["crate_types"].as_array().is_some_and(|types| types.contains(&json!("cdylib")));
        Ok(Package { name, version, manifest, has_cdylib: targets.iter().any(is_cdylib) })
    }
}

fn no_cargo(error: &std::io::Error) -> Failure {
    failed(format!("cannot run cargo: {error}")).hint("install Rust with rustup, then `rustup target add wasm32-unknown-unknown`")
}

/// Whether the standard library for the target is installed.
fn check_target(folder: &Path) -> Result<(), Failure> {
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    let answer = rustc.args(["--print", "target-libdir", "--target", TARGET]).current_dir(folder).output();
    let answer = answer.map_err(|error| failed(format!("cannot run rustc: {error}")).hint("install Rust with rustup"))?;
    let library = PathBuf::from(String::from_utf8_lossy(&answer.stdout).trim());
    if answer.status.success() && library.is_dir() {
        return Ok(());
    }
    Err(failed(format!("cannot build a component: this Rust has no target {TARGET}")).hint(format!("rustup target add {TARGET}")))
}

/// Runs cargo; the path of the module that came out.
fn compile(folder: &Path, package: &Package, profile: &str, global: &Global) -> Result<PathBuf, Failure> {
    if !package.has_cdylib {
        let message = format!("cannot build a component of {}: its library is no cdylib", package.name);
        let hint = "add to its Cargo.toml:\n\n    [lib]\n    crate-type = [\"cdylib\", \"rlib\"]\n";
        return Err(Failure { exit: Exit::Usage, ..failed(message) }.hint(hint));
    }
    let mut command = cargo(folder);
    command.args(["build", "--lib", "--target", TARGET, "--profile", profile, "--message-format", "json-render-diagnostics"]);
    command.args(["--manifest-path", &package.manifest]);
    if global.quiet {
        command.arg("--quiet");
    }
    let answer = command.stderr(Stdio::inherit()).output().map_err(|error| no_cargo(&error))?;
    if !answer.status.success() {
        return Err(failed(format!("cannot build {}: cargo failed; its messages are above", package.name)));
    }
    let lines = answer.stdout.split(|byte| *byte == b'\n');
    let messages = lines.filter_map(|line| serde_json::from_slice::<Value>(line).ok());
    let ours = messages.filter(|message| {
        message["reason"] == "compiler-artifact" && message["manifest_path"].as_str() == Some(package.manifest.as_str())
    });
    let files = ours.filter_map(|message| message["filenames"].as_array().cloned()).flatten();
    let mut modules = files.filter_map(|file| file.as_str().map(PathBuf::from));
    let module = modules.rfind(|path| path.extension().is_some_and(|extension| extension == "wasm"));
    module.ok_or_else(|| failed(format!("cannot build {}: cargo made no .wasm file", package.name)))
}

/// A component as it is; a core module made one.
fn componentize(bytes: &[u8], shown: &str) -> Result<Vec<u8>, Failure> {
    // Bytes 4 to 8 of a WebAssembly binary are its version; the upper half tells components from core modules.
    if bytes.get(6) == Some(&1) {
        return Ok(bytes.to_vec());
    }
    let encode = || wit_component::ComponentEncoder::default().module(bytes)?.validate(true).encode();
    encode().map_err(|error| {
        Failure::new(ErrorNumber::NotAComponent, Exit::Refused, format!("cannot make a component of {shown}: {error:#}"))
            .hint("does the crate call weir_sdk::export!(...)? Crates that expect JavaScript or a file system cannot be used")
    })
}
