//! How long a checkpoint takes while every channel is full, aligned and unaligned, in one process and between two workers.

use super::cluster::Cluster;
use super::measure::{command, median, percentile};
use super::{Effort, Stand, process};
use crate::child::{Next, WeirProcess};
use crate::progress::{Checkpoint, Event};
use anyhow::{Result, bail};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::{Duration, Instant};

const JOB: &str = "backpressure.toml";
const NAME: &str = "bench-backpressure";
/// What the slow sink takes.
const SLOW: &str = "sink.out.rows_per_second=2000";
/// The same rows without backpressure: a little fewer than the slow sink takes.
const HELD: &str = "source.gen.rows_per_second=1900";
const VALUE_BYTES: [u32; 2] = [64, 1024];

/// How the job is run.
struct Variant {
    what: &'static str,
    unaligned_after: &'static str,
    /// What is set beside that.
    rates: &'static [&'static str],
    /// Whether it takes minutes, and is therefore run once.
    is_long: bool,
}

const VARIANTS: [Variant; 5] = [
    Variant { what: "source held at 1,900 rows/s, \"0s\"", unaligned_after: "0s", rates: &[HELD, SLOW], is_long: false },
    Variant { what: "no slow sink, \"0s\"", unaligned_after: "0s", rates: &[], is_long: false },
    Variant { what: "backpressured, \"0s\"", unaligned_after: "0s", rates: &[SLOW], is_long: false },
    Variant { what: "backpressured, \"1s\"", unaligned_after: "1s", rates: &[SLOW], is_long: false },
    Variant { what: "backpressured, \"never\"", unaligned_after: "never", rates: &[SLOW], is_long: true },
];

/// The variants that are compared: the same rows without and with backpressure.
const FREE: usize = 0;
const FULL: usize = 2;

impl Variant {
    fn settings(&self, value_bytes: u32) -> Vec<String> {
        let mut settings = vec![
            format!("source.gen.value_bytes={value_bytes}"),
            format!("job.checkpoint.unaligned_after={}", self.unaligned_after),
        ];
        settings.extend(self.rates.iter().map(ToString::to_string));
        settings
    }
}

/// Checkpoints that were completed after the job had settled.
struct Watch {
    started: Instant,
    effort: Effort,
    /// Completed before.
    before: Option<u64>,
    seen: BTreeMap<u64, Checkpoint>,
}

impl Watch {
    fn new(effort: Effort) -> Watch {
        Watch { started: Instant::now(), effort, before: None, seen: BTreeMap::new() }
    }

    fn see(&mut self, checkpoint: Checkpoint) {
        if self.started.elapsed() < self.effort.warm_up {
            self.before = Some(checkpoint.id);
        } else if Some(checkpoint.id) > self.before {
            self.seen.insert(checkpoint.id, checkpoint);
        }
    }

    fn is_over(&self) -> bool {
        let watched = self.started.elapsed().saturating_sub(self.effort.warm_up);
        watched >= if self.seen.is_empty() { self.effort.bound } else { self.effort.window }
    }
}

fn in_process(stand: &Stand, settings: &[String]) -> Result<Vec<Checkpoint>> {
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    let mut command = command(stand, &stand.prepared.weir, JOB, &settings);
    let running = WeirProcess::start(command.args(["--json", "--fresh"]), &stand.scratch.join("weir.log"))?;
    let mut watch = Watch::new(stand.effort);
    while !watch.is_over() {
        match running.next(Duration::from_millis(200)) {
            Next::Event(Event::Progress(progress)) => {
                progress.checkpoint.into_iter().for_each(|checkpoint| watch.see(checkpoint));
            }
            Next::Quiet => {}
            Next::Event(Event::Summary(_)) | Next::Ended => {
                running.finish()?;
                bail!("the job ended before its checkpoints were seen");
            }
        }
    }
    // Stopping would take as long as draining its channels.
    running.kill()?;
    Ok(watch.seen.into_values().collect())
}

fn on_cluster(cluster: &Cluster<'_>, effort: Effort, settings: &[String]) -> Result<Vec<Checkpoint>> {
    cluster.submit(JOB, settings, true)?;
    cluster.until_job(NAME, "it runs", |job| job["status"]["state"] == "running")?;
    let mut watch = Watch::new(effort);
    while !watch.is_over() {
        Checkpoint::parse(&cluster.job(NAME)?["status"]["checkpoint"]).into_iter().for_each(|checkpoint| watch.see(checkpoint));
        std::thread::sleep(Duration::from_millis(100));
    }
    cluster.end(NAME, "cancel")?;
    Ok(watch.seen.into_values().collect())
}

/// All variants in turn, as often as asked; the section of the report.
pub(crate) fn section(stand: &Stand) -> Result<String> {
    let mut text = String::from(
        "\n## Checkpoints under backpressure\n\nbackpressure.toml: a sink takes 2,000 rows a second of a source that has millions; \
         by size of values and `unaligned_after`. Medians.\n",
    );
    for place in ["one process", "two workers over QUIC"] {
        let cluster = if place == "one process" { None } else { Some(Cluster::start(stand, 1)?) };
        for value_bytes in VALUE_BYTES {
            let mut found: Vec<Vec<Checkpoint>> = VARIANTS.iter().map(|_| Vec::new()).collect();
            for repetition in 0..stand.effort.repetitions {
                for (variant, found) in VARIANTS.iter().zip(&mut found) {
                    if variant.is_long && repetition > 0 {
                        continue;
                    }
                    eprintln!("backpressure, {place}, {value_bytes} B, {}", variant.what);
                    process::wait_for_quiet(stand.effort.patience)?;
                    let settings = variant.settings(value_bytes);
                    let checkpoints = match &cluster {
                        None => in_process(stand, &settings)?,
                        Some(cluster) => on_cluster(cluster, stand.effort, &settings)?,
                    };
                    eprintln!("    {} checkpoints, {} ms", checkpoints.len(), middle(&checkpoints, |c| c.duration_ms));
                    found.extend(checkpoints);
                }
            }
            table(&mut text, place, value_bytes, &found, stand.effort.bound);
        }
    }
    Ok(text)
}

fn middle(checkpoints: &[Checkpoint], value: fn(&Checkpoint) -> u64) -> f64 {
    median(checkpoints.iter().map(|checkpoint| value(checkpoint) as f64))
}

fn table(text: &mut String, place: &str, value_bytes: u32, found: &[Vec<Checkpoint>], bound: Duration) {
    let _ = writeln!(text, "\n### {place}, values of {value_bytes} bytes\n");
    *text += "| | checkpoints | ms | ms, lowest - highest | KiB | of these in flight, KiB | growth | unaligned |\n|---|---|---|---|---|---|---|---|\n";
    for (variant, checkpoints) in VARIANTS.iter().zip(found) {
        let what = variant.what;
        if checkpoints.is_empty() {
            let _ = writeln!(text, "| {what} | none | > {} | | | | | |", bound.as_millis());
            continue;
        }
        let ms = middle(checkpoints, |c| c.duration_ms);
        let (bytes, in_flight) = (middle(checkpoints, |c| c.bytes), middle(checkpoints, |c| c.in_flight_bytes));
        let durations: Vec<f64> = checkpoints.iter().map(|checkpoint| checkpoint.duration_ms as f64).collect();
        let growth = if bytes > in_flight { format!("{:.1} x", bytes / (bytes - in_flight)) } else { String::new() };
        let unaligned = checkpoints.iter().filter(|checkpoint| checkpoint.unaligned).count();
        let _ = writeln!(
            text,
            "| {what} | {} | {ms:.0} | {:.0} - {:.0} | {:.0} | {:.0} | {growth} | {unaligned} |",
            checkpoints.len(),
            percentile(&durations, 1),
            percentile(&durations, 100),
            bytes / 1024.0,
            in_flight / 1024.0
        );
    }
    let (free, full) = (middle(&found[FREE], |c| c.duration_ms), middle(&found[FULL], |c| c.duration_ms));
    if free.is_finite() && full.is_finite() {
        let target = 1.5 * free + 50.0;
        let _ = writeln!(
            text,
            "\nUnaligned and backpressured: {full:.0} ms, {:.1} times as long as not backpressured (target: at most {target:.0} ms, 1.5 times and 50 ms).",
            full / free.max(1.0)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_by_what_was_in_flight_and_none_in_time_is_said() {
        let checkpoint = |duration_ms, in_flight_bytes| Checkpoint {
            duration_ms,
            bytes: 102_400 + in_flight_bytes,
            in_flight_bytes,
            unaligned: true,
            ..Checkpoint::default()
        };
        let found = [
            vec![checkpoint(20, 0)],
            vec![checkpoint(80, 0)],
            vec![checkpoint(30, 51_200); 3],
            vec![checkpoint(1_030, 51_200)],
            Vec::new(),
        ];
        let mut text = String::new();
        table(&mut text, "one process", 64, &found, Duration::from_secs(60));
        assert!(text.contains("| backpressured, \"0s\" | 3 | 30 | 30 - 30 | 150 | 50 | 1.5 x | 3 |"), "{text}");
        assert!(text.contains("| backpressured, \"never\" | none | > 60000 |"), "{text}");
        assert!(text.contains("1.5 times as long") && text.contains("at most 80 ms"), "{text}");
    }

    #[test]
    fn what_was_complete_before_the_job_had_settled_does_not_count() {
        let effort = Effort { warm_up: Duration::from_secs(3600), ..super::super::QUICK };
        let mut watch = Watch::new(effort);
        watch.see(Checkpoint { id: 3, ..Checkpoint::default() });
        watch.effort.warm_up = Duration::ZERO;
        watch.see(Checkpoint { id: 3, ..Checkpoint::default() });
        assert!(watch.seen.is_empty());
        watch.see(Checkpoint { id: 4, ..Checkpoint::default() });
        assert_eq!(watch.seen.len(), 1);
    }
}
