//! What throughput does not show: pauses with large state, the way from start to first row, memory at rest.

use super::measure::command;
use super::{Stand, process};
use crate::child::{Next, WeirProcess};
use crate::progress::{Checkpoint, Event, Pauses, Progress};
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Keys that large.toml names before it goes on at its rate.
const LARGE_KEYS: u64 = 5_000_000;
/// While the state is filled, the generator's rate is no bound.
const NO_RATE: &str = "source.gen.rows_per_second=1000000000";
/// Checkpoints after the filling until it is all in a checkpoint.
const SETTLING: usize = 2;
const GIVE_UP: Duration = Duration::from_secs(900);

/// Checkpoints of a job with a gibibyte of state.
#[derive(Debug)]
pub(crate) struct Large {
    pub(crate) resident_mib: f64,
    pub(crate) rows_per_checkpoint: f64,
    pub(crate) checkpoints: Vec<Checkpoint>,
    pub(crate) pauses: Pauses,
}

/// Fills the state; then watches checkpoints in a second process that goes on from there, so that the filling is in none of its
/// figures.
pub(crate) fn large(stand: &Stand) -> Result<Large> {
    eprintln!("pause: filling the state");
    watch(stand, true, LARGE_KEYS, SETTLING)?;
    eprintln!("pause: watching {} checkpoints", stand.effort.checkpoints);
    watch(stand, false, 1, stand.effort.checkpoints)
}

/// Runs the job until `rows` are read and `count` checkpoints after that are completed.
fn watch(stand: &Stand, is_filling: bool, rows: u64, count: usize) -> Result<Large> {
    let settings: &[&str] = if is_filling { &[NO_RATE] } else { &[] };
    let mut command = command(stand, &stand.prepared.weir, "large.toml", settings);
    if is_filling {
        command.arg("--fresh");
    }
    let running = WeirProcess::start(command.arg("--json"), &stand.scratch.join("weir.log"))?;
    let started = Instant::now();
    let mut seen: BTreeMap<u64, Checkpoint> = BTreeMap::new();
    let (mut last, mut first_rows) = (Progress::default(), None);
    while seen.len() <= count {
        match running.next(Duration::from_secs(1)) {
            Next::Event(Event::Progress(progress)) => {
                if progress.rows_in >= rows
                    && let Some(checkpoint) = progress.checkpoint.clone()
                {
                    first_rows.get_or_insert(progress.rows_in);
                    seen.insert(checkpoint.id, checkpoint);
                }
                last = progress;
            }
            Next::Quiet => {}
            Next::Event(Event::Summary(_)) | Next::Ended => {
                running.finish()?;
                bail!("the job ended before its checkpoints were seen");
            }
        }
        if started.elapsed() > GIVE_UP {
            bail!("only {} checkpoints in {} s", seen.len(), GIVE_UP.as_secs());
        }
    }
    let resident_mib = process::resident_mib(running.pid())?;
    running.kill()?;
    let rows_per_checkpoint = (last.rows_in - first_rows.unwrap_or_default()) as f64 / count as f64;
    // The first one seen was under way, or is the first after the start: it may hold more than one interval's pages.
    Ok(Large { resident_mib, rows_per_checkpoint, checkpoints: seen.into_values().skip(1).collect(), pauses: last.pauses })
}

/// A start with a warm compile cache, and what the job needs while it has next to nothing to do.
#[derive(Debug)]
pub(crate) struct Start {
    pub(crate) first_row_ms: Vec<f64>,
    pub(crate) idle_mib: f64,
    pub(crate) idle_cores: f64,
}

pub(crate) fn start(stand: &Stand) -> Result<Start> {
    eprintln!("start");
    // Fills the compile cache.
    first_row(stand)?;
    let first_row_ms = (0..stand.effort.repetitions.max(3)).map(|_| first_row(stand)).collect::<Result<_>>()?;
    let (idle_mib, idle_cores) = idle(stand)?;
    Ok(Start { first_row_ms, idle_mib, idle_cores })
}

/// Milliseconds from the start of the process to its first row on stdout.
fn first_row(stand: &Stand) -> Result<f64> {
    let started = Instant::now();
    let mut command = command(stand, &stand.prepared.weir, "start.toml", &[]);
    let mut child = command.arg("--fresh").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let mut line = String::new();
    let read = BufReader::new(child.stdout.take().context("a child without a stdout")?).read_line(&mut line);
    let elapsed = started.elapsed();
    let _ = child.kill();
    let status = child.wait()?;
    if read? == 0 {
        bail!("the job ended without a row: {status}");
    }
    Ok(elapsed.as_secs_f64() * 1e3)
}

/// Resident memory and CPU cores of a job at rest.
fn idle(stand: &Stand) -> Result<(f64, f64)> {
    let mut command = command(stand, &stand.prepared.weir, "start.toml", &["sink.out.connector=blackhole"]);
    let running = WeirProcess::start(command.args(["--json", "--fresh"]), &stand.scratch.join("weir.log"))?;
    let mut first = None;
    loop {
        match running.next(Duration::from_secs(1)) {
            Next::Event(Event::Progress(progress)) => {
                let cpu_s = process::cpu_s(running.pid())?;
                let (since, cpu_before) = *first.get_or_insert((progress.at_ms, cpu_s));
                let ms = progress.at_ms.saturating_sub(since);
                if u128::from(ms) >= stand.effort.window.as_millis() {
                    let resident = process::resident_mib(running.pid())?;
                    running.kill()?;
                    return Ok((resident, (cpu_s - cpu_before) * 1e3 / ms as f64));
                }
            }
            Next::Quiet => {}
            Next::Event(Event::Summary(_)) | Next::Ended => {
                running.finish()?;
                bail!("the job ended before it was measured");
            }
        }
    }
}
