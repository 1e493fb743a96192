//! Debian packages that a bare machine lacks. Nothing is asked of apt where everything is there.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::shell;

/// What the `weir` binary is built with: RocksDB is C++, and its bindings are made by libclang.
pub(crate) fn ensure_compilers() -> Result<()> {
    let mut missing = Vec::new();
    if !shell::succeeds(Command::new("c++").arg("--version")) {
        missing.push("g++");
    }
    if !has_libclang() {
        missing.push("libclang-dev");
    }
    ensure(&missing).context("the coordinator keeps its metadata in RocksDB, which is built with g++ and libclang-dev")
}

/// What tests of bad networks use. They say so and do nothing where it cannot be had.
pub(crate) fn ensure_network_tools() -> Result<()> {
    if shell::succeeds(Command::new("ip").arg("-V")) {
        return Ok(());
    }
    ensure(&["iproute2"])
}

/// Installs packages.
pub(crate) fn ensure(packages: &[&str]) -> Result<()> {
    if packages.is_empty() {
        return Ok(());
    }
    let is_root = shell::read(Command::new("id").arg("-u"))?.trim() == "0";
    let apt = |arguments: &[&str]| {
        let mut command = Command::new(if is_root { "apt-get" } else { "sudo" });
        if !is_root {
            command.arg("apt-get");
        }
        shell::run(command.env("DEBIAN_FRONTEND", "noninteractive").args(arguments))
    };
    apt(&["update", "-qq"])?;
    apt(&[&["install", "-qq", "-y", "--no-install-recommends"], packages].concat())
}

/// Whether bindgen will find libclang: where it says, or where Debian puts it.
fn has_libclang() -> bool {
    let is_libclang = |path: &Path| {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        name.starts_with("libclang.so") || (name.starts_with("libclang-") && name.contains(".so"))
    };
    let holds = |folder: &Path| {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries.into_iter().any(|entry| is_libclang(&entry.path()))
    };
    if std::env::var_os("LIBCLANG_PATH").is_some() {
        return true;
    }
    let versions = std::fs::read_dir("/usr/lib").into_iter().flatten().flatten().map(|entry| entry.path());
    versions.into_iter().any(|folder| holds(&folder) || holds(&folder.join("lib")))
}
