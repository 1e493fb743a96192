//! What this machine must have before anything is compiled. Everything that is missing is found within a second, said at once, each
//! thing with what installs it, and installed where we may. Nothing is asked of apt where nothing is missing.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::shell;

/// What the target folder takes when `weir` is built, and when every test is. Measured; with some room.
const HOST_BYTES: u64 = 4 << 30;
const TESTS_BYTES: u64 = 16 << 30;

/// WebAssembly without an operating system: what operators are compiled to.
pub(crate) const WASM_TARGET: &str = "wasm32-unknown-unknown";

/// What the caller is about to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Purpose {
    /// Build and run `weir`.
    Host,
    /// Also build operators from source.
    Operators,
    /// Also run every test.
    Tests,
}

/// One thing that is missing.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Lack {
    /// Debian packages, and what they are needed for.
    Packages(Vec<&'static str>, &'static str),
    /// A target of the Rust toolchain.
    Target(&'static str),
    /// Room in the target folder, in bytes.
    Room { wanted: u64, free: u64 },
}

impl Lack {
    fn line(&self) -> String {
        match self {
            Lack::Packages(packages, why) => format!("{why}: apt-get install {}", packages.join(" ")),
            Lack::Target(target) => format!("the compilation target {target}: rustup target add {target}"),
            Lack::Room { wanted, free } => {
                let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
                format!(
                    "{:.0} GiB of disk for what is built, {:.1} are free: make room, or let CARGO_TARGET_DIR name another disk",
                    gib(*wanted),
                    gib(*free)
                )
            }
        }
    }
}

/// Finds what is missing for a purpose, says all of it, and installs it.
pub(crate) fn ensure(purpose: Purpose, target: &Path) -> Result<()> {
    let missing = missing(purpose, target);
    if missing.is_empty() {
        return Ok(());
    }
    eprintln!("This machine lacks what Weir is built with:");
    for one in &missing {
        eprintln!("  {}", one.line());
    }
    if missing.iter().any(|one| matches!(one, Lack::Room { .. })) {
        bail!("there is not enough disk space; nothing was built");
    }
    let packages: Vec<&str> =
        missing.iter().flat_map(|one| if let Lack::Packages(names, _) = one { names.clone() } else { Vec::new() }).collect();
    install(&packages).context("packages are missing that could not be installed; the list above has them all")?;
    for one in &missing {
        if let Lack::Target(target) = one {
            shell::run(Command::new("rustup").args(["target", "add", target]))
                .with_context(|| format!("operators are built for {target}, and this toolchain does not have it"))?;
        }
    }
    Ok(())
}

fn missing(purpose: Purpose, target: &Path) -> Vec<Lack> {
    let mut missing = Vec::new();
    // aws-lc, zstd and SQLite are C. A compiler that cannot make a program (no libc6-dev) is no compiler.
    if !compiles_c() {
        missing.push(Lack::Packages(vec!["gcc", "libc6-dev"], "a C compiler"));
    }
    if purpose >= Purpose::Operators && !has_target(WASM_TARGET) {
        missing.push(Lack::Target(WASM_TARGET));
    }
    if purpose >= Purpose::Tests {
        if !shell::succeeds(Command::new("git").arg("--version")) {
            missing.push(Lack::Packages(vec!["git"], "git, for the list of files"));
        }
        if !shell::succeeds(Command::new("python3").args(["-c", "import ensurepip, venv"])) {
            missing.push(Lack::Packages(vec!["python3", "python3-venv"], "Python, for the operator that is written in it"));
        }
        if !shell::succeeds(Command::new("kill").arg("-l")) {
            missing.push(Lack::Packages(vec!["procps"], "kill, for tests that stop and end processes"));
        }
        if !shell::succeeds(Command::new("ip").arg("-V")) {
            missing.push(Lack::Packages(vec!["iproute2"], "ip, for tests of bad networks"));
        }
    }
    // What is there already needs no more room.
    let (wanted, there) = (if purpose == Purpose::Tests { TESTS_BYTES } else { HOST_BYTES }, target.join("debug/deps").exists());
    if let Some(free) = free_bytes(target)
        && !there
        && free < wanted
    {
        missing.push(Lack::Room { wanted, free });
    }
    missing
}

/// Whether `cc` makes a program that uses the C library.
fn compiles_c() -> bool {
    let script = "printf '#include <stdio.h>\\nint main(void){return puts(\"\")<0;}' | cc -x c - -o /dev/null";
    shell::succeeds(Command::new("sh").args(["-c", script]))
}

fn has_target(target: &str) -> bool {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let library = shell::read(Command::new(rustc).args(["--print", "target-libdir", "--target", target]));
    library.is_ok_and(|library| Path::new(library.trim()).is_dir())
}

/// Free bytes of the disk that a folder is on, or will be.
fn free_bytes(folder: &Path) -> Option<u64> {
    let there = folder.ancestors().find(|ancestor| ancestor.exists())?;
    let text = shell::read(Command::new("df").args(["-Pk", "--"]).arg(there)).ok()?;
    free_of(&text)
}

/// The fourth word of the second line of `df -Pk`, in KiB there.
fn free_of(df: &str) -> Option<u64> {
    df.lines().nth(1)?.split_whitespace().nth(3)?.parse::<u64>().ok().map(|kib| kib << 10)
}

/// Installs Debian packages.
pub(crate) fn install(packages: &[&str]) -> Result<()> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_room_is_read_from_df() {
        let text = "Filesystem 1024-blocks Used Available Capacity Mounted on\n/dev/sda 100 60 40 60% /\n";
        assert_eq!(free_of(text), Some(40 << 10));
        assert_eq!(free_of("df: nothing\n"), None);
    }

    #[test]
    fn each_missing_thing_is_said_with_what_installs_it() {
        assert_eq!(
            Lack::Packages(vec!["gcc", "libc6-dev"], "a C compiler").line(),
            "a C compiler: apt-get install gcc libc6-dev"
        );
        assert!(Lack::Target(WASM_TARGET).line().ends_with("rustup target add wasm32-unknown-unknown"));
        let room = Lack::Room { wanted: 4 << 30, free: 3 << 29 }.line();
        assert!(room.starts_with("4 GiB of disk") && room.contains("1.5 are free"), "{room}");
    }

    #[test]
    fn a_disk_that_is_too_small_is_found_before_anything_is_built() {
        let found = missing(Purpose::Tests, Path::new("/proc"));
        assert!(found.iter().any(|one| matches!(one, Lack::Room { .. })), "{found:?}");
    }
}
