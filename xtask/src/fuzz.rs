//! `cargo xtask fuzz`: looks for input that something does not deal with, for as long as asked.

use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};

use crate::shell::{self, Arguments};
use crate::workspace::Workspace;

pub(crate) fn main(arguments: &[String]) -> Result<()> {
    let (mut minutes, mut seed, mut with_libfuzzer, mut targets) = (10u64, None, false, Vec::new());
    let mut arguments = Arguments::new(arguments);
    while let Some(argument) = arguments.next() {
        match argument {
            "--minutes" => minutes = arguments.value(argument)?.parse().context("--minutes takes a number")?,
            "--seed" => seed = Some(arguments.value(argument)?.parse::<u64>().context("--seed takes a number")?),
            "--libfuzzer" => with_libfuzzer = true,
            flag if flag.starts_with('-') => return shell::unknown("fuzz", flag),
            target => targets.push(target.to_owned()),
        }
    }
    let workspace = Workspace::load()?;
    if with_libfuzzer {
        return libfuzzer(&workspace, minutes, &targets);
    }
    // Another one each time, told so that it can be run again.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |time| time.as_secs());
    let seed = seed.unwrap_or(now);
    println!("seed {seed}");
    let mut command = workspace.cargo("run");
    command.args(["--quiet", "--package", "weir-fuzz", "--", &(minutes * 60).to_string(), &seed.to_string()]);
    shell::run(command.args(targets))
}

/// With the compiler's coverage, one target after the other.
fn libfuzzer(workspace: &Workspace, minutes: u64, targets: &[String]) -> Result<()> {
    if !shell::succeeds(&mut nightly(workspace, &["fuzz", "--version"])) {
        bail!("cargo-fuzz is not installed for a nightly compiler: `cargo install cargo-fuzz`, or run this without --libfuzzer");
    }
    if targets.is_empty() {
        bail!("--libfuzzer needs the names of targets (fuzz/src/targets.rs)");
    }
    let seconds = minutes * 60 / targets.len() as u64;
    for target in targets {
        let corpus = workspace.root.join("fuzz/corpus").join(target);
        let mut command = nightly(workspace, &["fuzz", "run", "--fuzz-dir", "fuzz/libfuzzer", "any"]);
        command.arg(corpus);
        command.args(["--", &format!("-max_total_time={seconds}")]).env("WEIR_FUZZ_TARGET", target);
        shell::run(&mut command)?;
    }
    Ok(())
}

fn nightly(workspace: &Workspace, arguments: &[&str]) -> Command {
    let mut command = Command::new("rustup");
    command.args(["run", "nightly", "cargo"]).args(arguments).current_dir(&workspace.root);
    command
}
