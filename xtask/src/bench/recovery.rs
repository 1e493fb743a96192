//! `kill -9` of a worker whose job has a gibibyte of state: how long until the job's next row, and where the time goes.

use super::cluster::{Cluster, now_ms};
use super::measure::median;
use super::{Stand, process};
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::fmt::Write;
use std::time::{Duration, Instant};

const JOB: &str = "large.toml";
const NAME: &str = "bench-large";
/// Keys of 100 bytes each; a short run has a tenth of them.
const KEYS: u64 = 5_000_000;
/// While the state is filled, the generator's rate is no bound.
const NO_RATE: &str = "source.gen.rows_per_second=1000000000";
/// Rows become visible at once, so that the first one can be seen.
const VISIBLE: &str = "sink.out.connector=stdout";
const GIVE_UP: Duration = Duration::from_secs(900);

/// Milliseconds from the kill on.
#[derive(Debug, Clone, Copy)]
struct Recovery {
    /// Memory of both workers before the kill.
    resident_mib: f64,
    /// The coordinator knows.
    lost: f64,
    /// Tasks are being built.
    deploying: f64,
    /// State is restored and tasks run.
    running: f64,
    /// The first row that a worker wrote after that.
    row: f64,
    /// The first row that the coordinator was told of.
    told: f64,
}

pub(crate) fn section(stand: &Stand) -> Result<String> {
    let keys = if stand.effort.repetitions > 1 { KEYS } else { KEYS / 10 };
    let cluster = &mut Cluster::start(stand, 2)?;
    fill(cluster, keys)?;
    let mut found = Vec::new();
    for repetition in 1..=stand.effort.repetitions.max(1) {
        process::wait_for_quiet(stand.effort.patience)?;
        eprintln!("recovery {repetition}/{}", stand.effort.repetitions);
        let recovery = kill(cluster)?;
        eprintln!("    {recovery:?}");
        found.push(recovery);
    }
    let mut text = String::from("\n## Recovery\n\n");
    let _ = writeln!(
        text,
        "large.toml with {:.1} M keys of 100 bytes on two workers, with {:.0} MiB resident in both; one that runs its tasks is killed. Medians of {}.\n",
        keys as f64 / 1e6,
        median(found.iter().map(|one| one.resident_mib)),
        found.len()
    );
    table(&mut text, &found);
    Ok(text)
}

/// Fills the state, and has the job go on at its own rate from there.
fn fill(cluster: &Cluster<'_>, keys: u64) -> Result<()> {
    eprintln!("recovery: filling the state");
    let settings = |rate: &[&str]| -> Vec<String> {
        rate.iter().map(ToString::to_string).chain([format!("source.gen.keys={keys}")]).collect()
    };
    cluster.submit(JOB, &settings(&[NO_RATE]), true)?;
    let started = Instant::now();
    loop {
        let status = &cluster.job(NAME)?["status"];
        if status["rows_read"].as_u64() >= Some(keys) {
            break;
        }
        if started.elapsed() > GIVE_UP {
            bail!("only {} rows in {} s", status["rows_read"], GIVE_UP.as_secs());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    cluster.end(NAME, "stop")?;
    cluster.submit(JOB, &settings(&[VISIBLE]), false)
}

/// Kills a worker that runs the job's tasks, once the job is well under way, and waits for the job's next row.
fn kill(cluster: &mut Cluster<'_>) -> Result<Recovery> {
    // Whoever is left must have said what it has; and the state must be in a checkpoint of this attempt.
    let job = cluster.until_job(NAME, "it has two more checkpoints", |job| job["checkpoints_completed"].as_u64() >= Some(2))?;
    let attempt = job["status"]["attempt"].as_u64().unwrap_or_default();
    let mut placed = job["vertices"].as_array().into_iter().flatten().filter_map(|vertex| vertex["workers"][0].as_str());
    let name = placed.next_back().context("the job runs nowhere")?;
    let name = cluster.workers().map(|(name, _)| name).find(|known| *known == name).context("the job runs on a stranger")?;
    let after = cluster.events(NAME, 0)?.last().and_then(|event| event["number"].as_u64()).unwrap_or_default();
    let resident_mib = cluster.workers().map(|(_, pid)| process::resident_mib(pid)).sum::<Result<f64>>()?;
    let killed = cluster.kill_worker(name)?;
    let since = |kind: &str| -> Result<f64> {
        let started = Instant::now();
        loop {
            let events = cluster.events(NAME, after)?;
            if let Some(at) = events.iter().find(|event| event["kind"] == kind).and_then(|event| event["at_ms"].as_u64()) {
                return Ok(at as f64);
            }
            if started.elapsed() > GIVE_UP {
                bail!("the job does not recover: {events:?}");
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    };
    let (lost, deploying) = (since("worker-lost")?, since("deploying")?);
    let running = since("running")?;
    let is_told =
        |job: &Value| job["status"]["attempt"].as_u64() > Some(attempt) && job["status"]["rows_read"].as_u64() > Some(0);
    cluster.until_job(NAME, "it reads rows again", is_told)?;
    let told = now_ms() as f64;
    // Rows before that were written by tasks of the attempt that has ended.
    let row = cluster.output_since(running as u64)? as f64;
    cluster.start_worker(name)?;
    let ms = |at: f64| at - killed as f64;
    Ok(Recovery { resident_mib, lost: ms(lost), deploying: ms(deploying), running: ms(running), row: ms(row), told: ms(told) })
}

fn table(text: &mut String, found: &[Recovery]) {
    let middle = |of: fn(&Recovery) -> f64| median(found.iter().map(of));
    *text += "| ms | | target |\n|---|---|---|\n";
    let steps = [
        ("detect: kill to `worker-lost`", middle(|one| one.lost)),
        ("schedule: to `deploying`", middle(|one| one.deploying - one.lost)),
        ("fetch, build and restore: to `running`", middle(|one| one.running - one.deploying)),
        ("first row written: after that", middle(|one| one.row - one.running)),
    ];
    for (what, ms) in steps {
        let _ = writeln!(text, "| {what} | {ms:.0} | |");
    }
    let _ = writeln!(text, "| **kill to the first row** | {:.0} | 1000 |", middle(|one| one.row));
    let _ = writeln!(text, "| kill to the first heartbeat with a row | {:.0} | |", middle(|one| one.told));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_to_the_first_row_is_divided_at_its_events() {
        let one = |running| Recovery {
            resident_mib: 2e3,
            lost: 20.0,
            deploying: 70.0,
            running,
            row: running + 5.0,
            told: running + 200.0,
        };
        let mut text = String::new();
        table(&mut text, &[one(570.0), one(470.0), one(900.0)]);
        for line in
            ["`worker-lost` | 20 |", "`deploying` | 50 |", "`running` | 500 |", "after that | 5 |", "row** | 575 | 1000 |"]
        {
            assert!(text.contains(line), "{line} in {text}");
        }
    }
}
