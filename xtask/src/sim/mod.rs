//! `cargo xtask sim`: fresh seeds in the simulator, as many as fit into a time; and `--guards`: takes the guards of the protocol out one at a
//! time and sees that seeds find each. Owns neither the simulator nor the guards, only how they are run.

mod guards;

use crate::shell::{self, Arguments};
use crate::workspace::Workspace;
use anyhow::{Context, Result, bail};
use std::time::{SystemTime, UNIX_EPOCH};

const MINUTES: u64 = 5;

pub(crate) fn main(arguments: &[String]) -> Result<()> {
    let (mut minutes, mut seed) = (MINUTES, SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs());
    let (mut with_guards, mut only) = (false, None);
    let mut arguments = Arguments::new(arguments);
    while let Some(argument) = arguments.next() {
        match argument {
            "--minutes" => minutes = arguments.value(argument)?.parse().context("--minutes needs a number")?,
            "--seed" => seed = arguments.value(argument)?.parse().context("--seed needs a number")?,
            "--guards" => with_guards = true,
            "--guard" => (with_guards, only) = (true, Some(arguments.value(argument)?.to_owned())),
            other => return shell::unknown("sim", other),
        }
    }
    let workspace = Workspace::load()?;
    if with_guards {
        return guards::main(&workspace, only.as_deref());
    }
    let mut command = workspace.cargo("run");
    command.args(["--quiet", "-p", "weir-sim", "--example", "seeds", "--"]);
    command.args(["--first", &seed.to_string(), "--minutes", &minutes.to_string()]);
    if shell::run(&mut command).is_err() {
        bail!("a seed failed; the line above replays it");
    }
    Ok(())
}
