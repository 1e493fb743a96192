//! What it costs to move rows between two processes: a job on two workers beside the same job in one process; and the same
//! frames over QUIC, TCP and TLS without a job, by the program in bench/wire.

use super::cluster::Cluster;
use super::measure::{self, Sample, median};
use super::{Stand, process};
use crate::shell;
use anyhow::{Context, Result};
use serde_json::Value;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const JOB: &str = "dataplane.toml";
const NAME: &str = "bench-dataplane";

/// Link and its arguments, and what it is.
const LINKS: [(&str, &[&str]); 4] = [
    ("QUIC, packets of 6,500 bytes", &["quic", "--packet", "6500"]),
    ("QUIC, packets of 1,452 bytes", &["quic", "--packet", "1452"]),
    ("TCP, not encrypted", &["tcp"]),
    ("TCP with TLS 1.3", &["tls"]),
];
/// Sizes of frames: what a slow source fills in its time, and what a fast one fills.
const FRAMES: [(&str, &str); 2] = [("64 KiB", "65536"), ("2 MiB", "2097152")];

pub(crate) fn section(stand: &Stand) -> Result<String> {
    let mut text = String::from("\n## Data plane\n");
    job(stand, &mut text)?;
    match &stand.wire {
        Some(wire) => links(stand, wire, &mut text)?,
        None => text += "\nNot measured: other links (this workspace has no program for it).\n",
    }
    Ok(text)
}

/// The job in one process and on two workers, in turn.
fn job(stand: &Stand, text: &mut String) -> Result<()> {
    let cluster = Cluster::start(stand, 1)?;
    let (mut alone, mut apart) = (Vec::new(), Vec::new());
    for repetition in 1..=stand.effort.repetitions {
        eprintln!("dataplane, the job {repetition}/{}", stand.effort.repetitions);
        let sample = measure::job(stand, &stand.prepared.weir, JOB, &[])?;
        eprintln!("    one process: {sample}");
        alone.push(sample);
        process::wait_for_quiet(stand.effort.patience)?;
        let sample = on_cluster(&cluster, stand)?;
        eprintln!("    two workers: {sample}");
        apart.push(sample);
    }
    *text += "\ndataplane.toml: source -> hash -> discard. On two workers half of the rows cross from one process to the other, encrypted.\n\n";
    *text += "| | M rows/s | CPU s per M rows |\n|---|---|---|\n";
    let middle = |samples: &[Sample], of: fn(&Sample) -> f64| median(samples.iter().map(of));
    let cpu = |samples| middle(samples, |sample| sample.cpu_s_per_million);
    for (what, samples) in [("one process", &alone), ("two workers over QUIC", &apart)] {
        let (rows, cpu) = (middle(samples, |sample| sample.rows_per_s / 1e6), cpu(samples));
        let _ = writeln!(text, "| {what} | {:.2} | {:.3} |", rows, cpu);
    }
    let crossing = 2.0 * (cpu(&apart) - cpu(&alone));
    let _ = writeln!(
        text,
        "\nTwo workers: {:.3} CPU s per M rows (target: at most 0.15); a million rows that cross cost {crossing:.3} CPU s more than a million that stay.",
        cpu(&apart)
    );
    Ok(())
}

/// Rows read so far, as heartbeats tell them, at the moment when they are told.
fn rows_now(cluster: &Cluster<'_>) -> Result<(Instant, u64)> {
    let rows = |job: &Value| job["status"]["rows_read"].as_u64().unwrap_or_default();
    let before = rows(&cluster.job(NAME)?);
    let job = cluster.until_job(NAME, "it reads rows", |job| rows(job) > before)?;
    Ok((Instant::now(), rows(&job)))
}

fn on_cluster(cluster: &Cluster<'_>, stand: &Stand) -> Result<Sample> {
    cluster.submit(JOB, &[], true)?;
    cluster.until_job(NAME, "it runs", |job| job["status"]["state"] == "running")?;
    std::thread::sleep(stand.effort.warm_up);
    let cpu = || cluster.workers().map(|(_, pid)| process::cpu_s(pid)).sum::<Result<f64>>();
    let resident = || cluster.workers().map(|(_, pid)| process::resident_max_mib(pid)).sum::<Result<f64>>();
    let ((from, rows_before), cpu_before, busy_before) = (rows_now(cluster)?, cpu()?, process::machine_busy_s()?);
    std::thread::sleep(stand.effort.window);
    let ((until, rows), cpu_after, busy_after) = (rows_now(cluster)?, cpu()?, process::machine_busy_s()?);
    let (seconds, rows, cpu_s) = ((until - from).as_secs_f64(), (rows - rows_before) as f64, cpu_after - cpu_before);
    let sample = Sample {
        rows_per_s: rows / seconds,
        cpu_s_per_million: cpu_s * 1e6 / rows.max(1.0),
        resident_max_mib: resident()?,
        others_cores: ((busy_after - busy_before - cpu_s) / seconds).max(0.0),
        ..Sample::default()
    };
    cluster.end(NAME, "cancel")?;
    Ok(sample)
}

/// One run of bench/wire.
#[derive(Debug, Clone, Copy)]
struct WireRun {
    gbit_s: f64,
    rows_m_s: f64,
    cpu_s_per_gb: f64,
    cpu_s_per_million: f64,
}

fn moved(result: &Value) -> Option<WireRun> {
    let number = |key: &str| result[key].as_f64();
    let (seconds, rows, bytes) = (number("seconds")?, number("rows")?, number("bytes")?);
    let cpu_s = number("sender_cpu_s")? + number("receiver_cpu_s")?;
    Some(WireRun {
        gbit_s: bytes * 8e-9 / seconds,
        rows_m_s: rows / 1e6 / seconds,
        cpu_s_per_gb: cpu_s * 1e9 / bytes,
        cpu_s_per_million: cpu_s * 1e6 / rows,
    })
}

fn links(stand: &Stand, wire: &Path, text: &mut String) -> Result<()> {
    let seconds = stand.effort.window.max(Duration::from_secs(1)).as_secs().to_string();
    *text += "\nThe same frames (rows of 80 bytes, 88 with their offsets) from one process to another, two channels, without a job; CPU of both processes.\n\n";
    *text += "| link | frames | Gbit/s | M rows/s | CPU s per GB | CPU s per M rows |\n|---|---|---|---|---|---|\n";
    let mut large = Vec::new();
    for (size, bytes) in FRAMES {
        let mut found: Vec<Vec<WireRun>> = LINKS.iter().map(|_| Vec::new()).collect();
        for _ in 0..stand.effort.repetitions {
            for ((what, link), found) in LINKS.iter().zip(&mut found) {
                eprintln!("dataplane, {what}, frames of {size}");
                process::wait_for_quiet(stand.effort.patience)?;
                let line = shell::read(Command::new(wire).args(*link).args(["--frame", bytes, "--seconds", &seconds]))?;
                let result: Value = serde_json::from_str(&line).with_context(|| format!("{what}: {line}"))?;
                let one = moved(&result).with_context(|| format!("{what}: {line}"))?;
                eprintln!("    {one:.2?}");
                found.push(one);
            }
        }
        for ((what, _), found) in LINKS.iter().zip(&found) {
            let middle = |of: fn(&WireRun) -> f64| median(found.iter().map(of));
            let (gbit_s, rows, gb, million) =
                (middle(|m| m.gbit_s), middle(|m| m.rows_m_s), middle(|m| m.cpu_s_per_gb), middle(|m| m.cpu_s_per_million));
            let _ = writeln!(text, "| {what} | {size} | {gbit_s:.1} | {rows:.1} | {gb:.2} | {million:.3} |");
        }
        large = found;
    }
    let gb = |index: usize| median(large[index].iter().map(|moved: &WireRun| moved.cpu_s_per_gb));
    let _ = writeln!(
        text,
        "\nPer byte, QUIC with large packets costs {:.2} times the CPU of TCP with TLS, and {:.2} times that of TCP; with packets of 1,452 bytes {:.2} times that of TCP with TLS.",
        gb(0) / gb(3),
        gb(0) / gb(2),
        gb(1) / gb(3)
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn cost_is_that_of_both_processes() {
        let result =
            json!({"seconds": 2.0, "rows": 10_000_000, "bytes": 1_000_000_000, "sender_cpu_s": 1.0, "receiver_cpu_s": 0.5});
        let moved = moved(&result).unwrap();
        assert_eq!((moved.gbit_s, moved.rows_m_s, moved.cpu_s_per_gb, moved.cpu_s_per_million), (4.0, 5.0, 1.5, 0.15));
        assert!(super::moved(&json!({"rows": 1})).is_none());
    }
}
