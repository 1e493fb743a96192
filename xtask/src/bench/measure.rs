//! One run of one job: rows, CPU seconds and memory over a window after a warm-up.

use super::Stand;
use super::case::{Case, Variant};
use super::process;
use crate::child::{Next, WeirProcess};
use crate::progress::{Checkpoint, Event, Pauses, Progress};
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// What one run gave.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sample {
    pub(crate) rows_per_s: f64,
    /// CPU seconds for a million rows, of all threads and processes of the contender.
    pub(crate) cpu_s_per_million: f64,
    pub(crate) resident_max_mib: f64,
    /// CPU cores that others on the machine used meanwhile.
    pub(crate) others_cores: f64,
    pub(crate) checkpoints: Vec<Checkpoint>,
    /// Interruptions by checkpoints, since the start.
    pub(crate) pauses: Pauses,
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Sample { rows_per_s, cpu_s_per_million, resident_max_mib, others_cores, checkpoints, .. } = self;
        write!(
            f,
            "{:.2} M rows/s, {cpu_s_per_million:.3} CPU s per M rows, {resident_max_mib:.0} MiB, {} checkpoints, others {others_cores:.2} cores",
            rows_per_s / 1e6,
            checkpoints.len()
        )
    }
}

/// A point in a run.
struct Point {
    at_ms: u64,
    rows: u64,
    cpu_s: f64,
    busy_s: f64,
}

impl Point {
    fn now(progress: &Progress, pid: u32) -> Result<Point> {
        let (cpu_s, busy_s) = (process::cpu_s(pid)?, process::machine_busy_s()?);
        Ok(Point { at_ms: progress.at_ms, rows: progress.rows_in, cpu_s, busy_s })
    }
}

/// The command that runs a bench job. `weir` is the binary to run it with.
pub(crate) fn command(stand: &Stand, weir: &Path, job: &str, settings: &[&str]) -> Command {
    let mut command = Command::new(weir);
    command.arg("run").arg(stand.workspace.root.join("bench/jobs").join(job)).arg("--data-dir").arg(&stand.prepared.data_dir);
    for setting in settings {
        command.args(["--set", setting]);
    }
    command
}

/// Runs a case once.
pub(crate) fn run(stand: &Stand, case: &Case, variant: Variant) -> Result<Sample> {
    let mut settings = case.settings.to_vec();
    if variant == Variant::Unchecked {
        settings.push("job.checkpoint.interval=off");
    }
    let weir = match variant {
        Variant::Native => stand.native.as_deref().context("there is no native binary")?,
        _ => &stand.prepared.weir,
    };
    job(stand, weir, case.job, &settings)
}

/// Runs a job of bench/jobs once, in one process.
pub(crate) fn job(stand: &Stand, weir: &Path, job: &str, settings: &[&str]) -> Result<Sample> {
    process::wait_for_quiet(stand.effort.patience)?;
    let mut command = command(stand, weir, job, settings);
    command.args(["--json", "--fresh"]);
    let running = WeirProcess::start(&mut command, &stand.scratch.join("weir.log"))?;
    let sample = window(&running, stand.effort.warm_up, stand.effort.window);
    if sample.is_err() {
        // A job that failed says why; that is the better message.
        running.finish()?;
    } else {
        running.kill()?;
    }
    sample
}

/// Warms up, then measures between two progress events.
fn window(running: &WeirProcess, warm_up: Duration, window: Duration) -> Result<Sample> {
    let started = Instant::now();
    let mut first: Option<Point> = None;
    let mut checkpoints = BTreeMap::new();
    loop {
        let progress = match running.next(Duration::from_secs(1)) {
            Next::Event(Event::Progress(progress)) => progress,
            Next::Quiet if started.elapsed() < warm_up + window + Duration::from_secs(60) => continue,
            Next::Quiet => bail!("no progress for a minute"),
            Next::Event(Event::Summary(_)) | Next::Ended => bail!("the job ended before it was measured"),
        };
        if started.elapsed() < warm_up || progress.rows_in == 0 {
            continue;
        }
        let point = Point::now(&progress, running.pid())?;
        let Some(first) = &first else {
            first = Some(point);
            continue;
        };
        checkpoints.extend(progress.checkpoint.map(|checkpoint| (checkpoint.id, checkpoint)));
        if point.at_ms.saturating_sub(first.at_ms) < window.as_millis() as u64 {
            continue;
        }
        let (seconds, rows) = ((point.at_ms - first.at_ms) as f64 / 1e3, (point.rows - first.rows) as f64);
        let cpu_s = point.cpu_s - first.cpu_s;
        return Ok(Sample {
            rows_per_s: rows / seconds,
            cpu_s_per_million: cpu_s * 1e6 / rows.max(1.0),
            resident_max_mib: process::resident_max_mib(running.pid())?,
            others_cores: ((point.busy_s - first.busy_s - cpu_s) / seconds).max(0.0),
            checkpoints: checkpoints.into_values().collect(),
            pauses: progress.pauses,
        });
    }
}

/// The value in the middle; of an even number, the mean of the two in the middle.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => values[n / 2],
        n => f64::midpoint(values[n / 2 - 1], values[n / 2]),
    }
}

/// The value below which `percent` of all lie.
pub(crate) fn percentile(values: &[f64], percent: usize) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let rank = (values.len() * percent).div_ceil(100).max(1);
    values.get(rank - 1).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_percentiles() {
        assert_eq!((median([3.0, 1.0, 2.0]), median([4.0, 1.0]), median([7.0])), (2.0, 2.5, 7.0));
        let hundred: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!((percentile(&hundred, 50), percentile(&hundred, 99), percentile(&hundred, 100)), (50.0, 99.0, 100.0));
        assert_eq!(percentile(&[5.0], 99), 5.0);
        assert!(median([]).is_nan() && percentile(&[], 50).is_nan());
    }

    #[test]
    fn a_window_is_measured_between_two_events() {
        let script = r#"i=0; while true; do i=$((i+1)); echo "{\"event\":\"progress\",\"at_ms\":$((i*1000)),\"rows_in\":$((i*5000)),
            \"checkpoint\":{\"id\":$((i/2)),\"duration_ms\":3,\"bytes\":10}}" | tr -d '\n'; echo; sleep 0.01; done"#;
        let file = std::env::temp_dir().join(format!("xtask-measure-{}", std::process::id()));
        let running = WeirProcess::start(Command::new("sh").args(["-c", script]), &file).unwrap();
        let sample = window(&running, Duration::ZERO, Duration::from_secs(10)).unwrap();
        running.kill().unwrap();
        std::fs::remove_file(file).unwrap();
        assert_eq!(sample.rows_per_s, 5000.0);
        assert!((5..=6).contains(&sample.checkpoints.len()), "{sample}");
    }
}
