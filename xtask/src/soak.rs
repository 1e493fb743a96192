//! `cargo xtask soak`: what is too long for every change. Fresh seeds in the simulators, and jobs and clusters of real processes killed again
//! and again, until the time is over or something fails. Its log goes to bench/soak.log, to be committed as evidence.

use crate::build::Profile;
use crate::needs::Purpose;
use crate::setup;
use crate::shell::{self, Arguments};
use crate::workspace::Workspace;
use anyhow::{Context, Result, bail};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const MINUTES: u64 = 30;
const LOG: &str = "bench/soak.log";

/// One thing that can be done with a seed.
struct Round {
    name: &'static str,
    package: &'static str,
    filter: &'static str,
    /// Variables for the test, by seed.
    environment: fn(u64) -> Vec<(&'static str, String)>,
}

const ROUNDS: [Round; 3] = [
    Round {
        name: "simulated jobs: 500 seeds",
        package: "weir-sim",
        filter: "test(/^tests::holds/)",
        environment: |seed| vec![("WEIR_SIM_FIRST", seed.to_string()), ("WEIR_SIM_RUNS", "500".to_string())],
    },
    Round {
        name: "a job, killed",
        package: "weir-tests",
        filter: "test(s20_killed_jobs)",
        environment: |seed| vec![("WEIR_SEED", seed.to_string())],
    },
    Round {
        name: "a cluster whose processes are killed 20 times each",
        package: "weir-tests",
        filter: "binary(cluster_kill)",
        environment: |seed| vec![("WEIR_SEED", seed.to_string()), ("WEIR_KILLS", "20".to_string())],
    },
];

pub(crate) fn main(arguments: &[String]) -> Result<()> {
    let (mut minutes, mut seed) = (MINUTES, SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs());
    let mut arguments = Arguments::new(arguments);
    while let Some(argument) = arguments.next() {
        match argument {
            "--minutes" => minutes = arguments.value(argument)?.parse().context("--minutes needs a number")?,
            "--seed" => seed = arguments.value(argument)?.parse().context("--seed needs a number")?,
            other => return shell::unknown("soak", other),
        }
    }
    let workspace = Workspace::load()?;
    let prepared = setup::prepare(&workspace, Purpose::Operators, Profile::Dev, &setup::default_data_dir(&workspace))?;
    let commit = shell::read(Command::new("git").args(["rev-parse", "--short", "HEAD"]).current_dir(&workspace.root))?;
    let mut log = format!("cargo xtask soak --minutes {minutes} --seed {seed}, commit {}\n", commit.trim());
    let (started, length) = (Instant::now(), Duration::from_secs(60 * minutes));
    let mut done = 0;
    let outcome = loop {
        if started.elapsed() >= length {
            break Ok(());
        }
        let round = &ROUNDS[done % ROUNDS.len()];
        let seed = seed.wrapping_add(1_000 * done as u64);
        let environment = (round.environment)(seed);
        let said: Vec<String> = environment.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let began = Instant::now();
        let mut command = workspace.cargo("nextest");
        command.args(["run", "--workspace", "-E", &format!("package({}) & {}", round.package, round.filter), "--no-fail-fast"]);
        command.envs(environment).env("WEIR_BIN", &prepared.weir).env("WEIR_TEST_COMPONENTS", &prepared.data_dir);
        let outcome = shell::run(&mut command);
        let verdict = if outcome.is_ok() { "good" } else { "FAILED" };
        writeln!(
            log,
            "{:>6} s  {verdict}  {}  {}  ({} s)",
            started.elapsed().as_secs(),
            round.name,
            said.join(" "),
            began.elapsed().as_secs()
        )?;
        write(&workspace.root.join(LOG), &log)?;
        done += 1;
        if outcome.is_err() {
            break outcome;
        }
    };
    writeln!(
        log,
        "{done} rounds in {} min: {}",
        started.elapsed().as_secs() / 60,
        if outcome.is_ok() { "all good" } else { "one failed" }
    )?;
    write(&workspace.root.join(LOG), &log)?;
    if let Err(error) = outcome {
        bail!("{error:#}; the log is in {LOG}");
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
