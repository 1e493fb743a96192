//! `cargo xtask bench`: how fast, how steady and how small; alternating with a peer on request. A whole run writes
//! bench/results.md.
//!
//! Figures are only ever compared within one run on one machine, as medians of several repetitions that alternate between the
//! variants, so that whatever else the machine does hits all of them alike.

mod backpressure;
mod case;
mod cluster;
mod dataplane;
mod measure;
mod peer;
mod process;
mod recovery;
mod report;
mod steady;

use crate::build::{self, Profile};
use crate::needs::Purpose;
use crate::setup::{self, Workplace};
use crate::shell::{self, Arguments};
use crate::workspace::Workspace;
use anyhow::{Context, Result, bail};
use case::{CASES, Case, Variant};
use measure::Sample;
use peer::Flink;
use report::{Report, Row};
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

/// How long and how often to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Effort {
    pub(crate) repetitions: usize,
    pub(crate) warm_up: Duration,
    pub(crate) window: Duration,
    /// How long to wait for a quiet machine before each run.
    pub(crate) patience: Duration,
    /// Checkpoints to look at for the distribution of pauses.
    pub(crate) checkpoints: usize,
    /// How long to wait for a checkpoint that may take for ever.
    pub(crate) bound: Duration,
}

const FULL: Effort = Effort {
    repetitions: 3,
    warm_up: Duration::from_secs(4),
    window: Duration::from_secs(8),
    patience: Duration::from_secs(20),
    checkpoints: 60,
    bound: Duration::from_secs(60),
};
const QUICK: Effort = Effort {
    repetitions: 1,
    warm_up: Duration::from_secs(2),
    window: Duration::from_secs(4),
    patience: Duration::ZERO,
    checkpoints: 10,
    bound: Duration::from_secs(8),
};

/// What every measurement needs.
pub(crate) struct Stand {
    pub(crate) workspace: Workspace,
    pub(crate) prepared: Workplace,
    /// The binary that has the bench operators linked in natively; absent while the workspace has none.
    pub(crate) native: Option<PathBuf>,
    /// The program that moves frames over other links; absent while the workspace has none.
    pub(crate) wire: Option<PathBuf>,
    pub(crate) scratch: PathBuf,
    pub(crate) effort: Effort,
}

/// Measures something and gives its section of the report.
type Section = fn(&Stand) -> Result<String>;

/// What needs a cluster.
const CLUSTER_SECTIONS: [(&str, Section); 3] =
    [("backpressure", backpressure::section), ("dataplane", dataplane::section), ("recovery", recovery::section)];

pub(crate) fn main(arguments: &[String]) -> Result<()> {
    let (mut effort, mut profile, mut only, mut with_flink) = (FULL, Profile::Release, String::new(), false);
    let mut words = Arguments::new(arguments);
    while let Some(argument) = words.next() {
        match argument {
            "--quick" => effort = QUICK,
            "--dev" => profile = Profile::Dev,
            "--only" => only = words.value(argument)?.to_string(),
            "--peer" => match words.value(argument)? {
                "flink" => with_flink = true,
                other => bail!("no peer is called `{other}`; there is `flink`"),
            },
            other => return shell::unknown("bench", other),
        }
    }
    let workspace = Workspace::load()?;
    let flink = with_flink.then(|| Flink::find(&workspace)).transpose()?;
    let scratch = workspace.target.join("xtask/bench");
    fs::create_dir_all(&scratch).with_context(|| format!("cannot make the folder {}", scratch.display()))?;
    let prepared = setup::prepare(&workspace, Purpose::Operators, profile, &scratch.join("data"))?;
    // Each of them is minutes of building.
    let build = |needed: bool, package| if needed { build::bench(&workspace, profile, package) } else { Ok(None) };
    let native = build(CASES.iter().any(|case| case.name.contains(&only)), build::NATIVE_BENCH)?;
    let wire = build("dataplane".contains(&only), build::WIRE_BENCH)?;
    let stand = Stand { workspace, prepared, native, wire, scratch, effort };

    // Only a whole run is worth keeping; an excerpt must not take its place.
    let is_whole = only.is_empty() && effort == FULL && profile == Profile::Release;
    let file = if is_whole { stand.workspace.root.join("bench/results.md") } else { stand.scratch.join("results.md") };
    let mut report = Report::new(&stand, arguments, flink.as_ref())?;
    for case in CASES.iter().filter(|case| case.name.contains(&only)) {
        throughput(&stand, case, flink.as_ref(), &mut report)?;
        report.write(&file)?;
    }
    if "pause".contains(&only) {
        report.large(&steady::large(&stand)?);
    }
    if "start".contains(&only) {
        report.start(&steady::start(&stand)?);
    }
    for (name, section) in CLUSTER_SECTIONS.into_iter().filter(|(name, _)| name.contains(&only)) {
        report.section(&section(&stand).with_context(|| format!("measuring {name}"))?);
        report.write(&file)?;
    }
    report.write(&file)?;
    println!("\n{}\nwritten to {}", report.text(), file.display());
    Ok(())
}

/// One case, all its variants in turn, as often as asked.
fn throughput(stand: &Stand, case: &Case, flink: Option<&Flink>, report: &mut Report) -> Result<()> {
    let variants: Vec<Variant> = case.variants(stand.native.is_some(), flink.is_some()).collect();
    let mut samples: Vec<Vec<Sample>> = vec![Vec::new(); variants.len()];
    for repetition in 1..=stand.effort.repetitions {
        for (variant, samples) in variants.iter().zip(&mut samples) {
            eprintln!("{} {} {repetition}/{}", case.name, variant.name(), stand.effort.repetitions);
            let sample = match (variant, flink, case.flink) {
                (Variant::Flink, Some(flink), Some(name)) => flink.measure(name, stand.effort),
                _ => measure::run(stand, case, *variant),
            };
            let sample = sample.with_context(|| format!("measuring {} {}", case.name, variant.name()))?;
            eprintln!("    {sample}");
            samples.push(sample);
        }
    }
    let rows: Vec<Row> = variants.into_iter().zip(samples).map(|(variant, samples)| Row { variant, samples }).collect();
    report.throughput(case, &rows);
    Ok(())
}
