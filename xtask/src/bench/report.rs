//! bench/results.md: the figures with the machine, the versions and the command they belong to.

use super::Stand;
use super::case::{Case, Variant};
use super::measure::{Sample, median, percentile};
use super::peer::Flink;
use super::steady::{Large, Start};
use crate::progress::Checkpoint;
use crate::shell;
use anyhow::{Context, Result};
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

const PAGE_BYTES: f64 = 4_096.0;

/// All samples of one variant of a case.
pub(crate) struct Row {
    pub(crate) variant: Variant,
    pub(crate) samples: Vec<Sample>,
}

impl Row {
    fn median(&self, of: fn(&Sample) -> f64) -> f64 {
        median(self.samples.iter().map(of))
    }

    /// Lowest and highest.
    fn range(&self, of: fn(&Sample) -> f64) -> (f64, f64) {
        let values = || self.samples.iter().map(of);
        (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max))
    }
}

pub(crate) struct Report {
    text: String,
}

impl Report {
    pub(crate) fn new(stand: &Stand, arguments: &[String], flink: Option<&Flink>) -> Result<Report> {
        let mut text = String::from(
            "# Benchmark results\n\nWritten by `cargo xtask bench`; what is measured and how: [README.md](README.md).\n\n",
        );
        let command = ["cargo xtask bench"].into_iter().chain(arguments.iter().map(String::as_str)).collect::<Vec<_>>().join(" ");
        let mut git = Command::new("git");
        let commit = shell::read(git.args(["describe", "--always", "--dirty"]).current_dir(&stand.workspace.root));
        let rustc = shell::read(Command::new("rustc").arg("--version"))?;
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let _ = writeln!(text, "| | |\n|---|---|\n| command | `{command}` |\n| machine | {} |", machine()?);
        let _ = writeln!(text, "| kernel | {} |\n| commit | {} |", kernel.trim(), commit.unwrap_or_default().trim());
        let _ = writeln!(text, "| compiler | {} |\n| wasmtime | {} |", rustc.trim(), wasmtime(stand)?);
        if let Some(flink) = flink {
            let _ = writeln!(text, "| Flink | 2.3.0 on {}, see [flink](flink/README.md) |", flink.java);
        }
        let effort = stand.effort;
        let _ = writeln!(
            text,
            "| effort | {} repetitions, alternating; {} s warm-up, {} s measured |",
            effort.repetitions,
            effort.warm_up.as_secs(),
            effort.window.as_secs()
        );
        if stand.native.is_none() {
            text += "\nNot measured: the operators compiled natively into the same pipeline.\n";
        }
        text += "\n## Throughput\n\nMedian (lowest - highest). \"Others\" is the most that other processes on the machine used meanwhile.\n";
        Ok(Report { text })
    }

    pub(crate) fn throughput(&mut self, case: &Case, rows: &[Row]) {
        let _ = writeln!(self.text, "\n### {}: {}\n", case.name, case.what);
        self.text += "| | M rows/s | CPU s per M rows | resident, MiB | others, cores |\n|---|---|---|---|---|\n";
        for row in rows {
            let _ = writeln!(
                self.text,
                "| {} | {} | {} | {:.0} | {:.2} |",
                row.variant.name(),
                cell(row, |sample| sample.rows_per_s / 1e6, 2),
                cell(row, |sample| sample.cpu_s_per_million, 3),
                row.median(|sample| sample.resident_max_mib),
                row.range(|sample| sample.others_cores).1
            );
        }
        for row in &rows[1..] {
            let _ = writeln!(self.text, "\n{}", comparison(&rows[0], row));
        }
        let checkpoints = || rows[0].samples.iter().flat_map(|sample| &sample.checkpoints);
        if checkpoints().next().is_some() {
            let took = median(checkpoints().map(|checkpoint| checkpoint.duration_ms as f64));
            let kib = median(checkpoints().map(|checkpoint| checkpoint.bytes as f64 / 1024.0));
            let ms = |of: fn(&Sample) -> u64| rows[0].samples.iter().map(of).max().unwrap_or_default() as f64 / 1e3;
            let (p50, p99, max) =
                (ms(|sample| sample.pauses.p50_us), ms(|sample| sample.pauses.p99_us), ms(|sample| sample.pauses.max_us));
            let count = checkpoints().count();
            let _ = writeln!(
                self.text,
                "\n{count} checkpoints of weir: {took:.0} ms, {kib:.0} KiB (medians); interruptions of the worst run: p50 {p50:.2}, p99 {p99:.2}, max {max:.2} ms."
            );
        }
    }

    pub(crate) fn large(&mut self, large: &Large) {
        let Large { resident_mib, rows_per_checkpoint, checkpoints, pauses } = large;
        let of = |value: fn(&Checkpoint) -> u64| -> Vec<f64> {
            checkpoints.iter().map(|checkpoint| value(checkpoint) as f64).collect()
        };
        let took = of(|checkpoint| checkpoint.duration_ms);
        let captured = median(of(|checkpoint| checkpoint.captured_bytes));
        let written = median(of(|checkpoint| checkpoint.bytes - checkpoint.merged_bytes.min(checkpoint.bytes)));
        let merged = of(|checkpoint| checkpoint.merged_bytes).iter().sum::<f64>() / checkpoints.len() as f64;
        let [p50, p99, max] = [pauses.p50_us, pauses.p99_us, pauses.max_us].map(|us| us as f64 / 1e3);
        self.text += "\n## Checkpoints of large state\n\nlarge.toml: 5 M keys of 100 bytes; between two checkpoints about 1 % of the pages change.\n\n";
        let _ = writeln!(self.text, "| | measured | target |\n|---|---|---|\n| process, MiB resident | {resident_mib:.0} | |");
        let _ = writeln!(self.text, "| checkpoints | {} | |", checkpoints.len());
        let _ = writeln!(self.text, "| rows between two checkpoints, each rewriting one key | {rows_per_checkpoint:.0} | |");
        let _ = writeln!(self.text, "| interruption of a task, ms: p50, p99, max | {p50:.2}, {p99:.2}, {max:.2} | p99 under 5 |");
        let _ = writeln!(
            self.text,
            "| checkpoint end to end, ms: p50, max | {:.0}, {:.0} | 200 |",
            percentile(&took, 50),
            percentile(&took, 100)
        );
        let _ = writeln!(self.text, "| pages captured, median | {:.0} | |", captured / PAGE_BYTES);
        let _ = writeln!(self.text, "| bytes written, median | {written:.0} | |");
        let _ = writeln!(self.text, "| bytes written for a byte captured | {:.2} | under 1.3 |", written / captured);
        let _ = writeln!(self.text, "| bytes of merging older captures, mean | {merged:.0} | |");
    }

    pub(crate) fn start(&mut self, start: &Start) {
        let (min, max) = (percentile(&start.first_row_ms, 1), percentile(&start.first_row_ms, 100));
        let first = median(start.first_row_ms.iter().copied());
        self.text += "\n## Start and rest\n\n| | measured | target |\n|---|---|---|\n";
        let _ = writeln!(
            self.text,
            "| start of the process to first row, warm compile cache, ms | {first:.0} ({min:.0} - {max:.0}) | under 200 |"
        );
        let _ = writeln!(self.text, "| resident memory of an idle job, MiB | {:.1} | under 64 |", start.idle_mib);
        let _ = writeln!(self.text, "| CPU of an idle job, cores | {:.4} | |", start.idle_cores);
    }

    /// A section that was written elsewhere.
    pub(crate) fn section(&mut self, text: &str) {
        self.text += text;
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Writes the report. What people wrote about it, in notes.md beside it, is kept apart so that a new run does not lose it.
    pub(crate) fn write(&self, file: &Path) -> Result<()> {
        let mut text = self.text.clone();
        if file.with_file_name("notes.md").exists() {
            text += "\nWhere the time goes: [notes.md](notes.md).\n";
        }
        fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
    }
}

/// What the difference between weir and another row means.
fn comparison(weir: &Row, other: &Row) -> String {
    let rows = weir.median(|sample| sample.rows_per_s) / other.median(|sample| sample.rows_per_s);
    let per_cpu = other.median(|sample| sample.cpu_s_per_million) / weir.median(|sample| sample.cpu_s_per_million);
    match other.variant {
        Variant::Native => {
            format!(
                "The sandboxed operator reaches {rows:.2} of the native one's rows/s, and {per_cpu:.2} of its rows per CPU second (target: at least 0.8)."
            )
        }
        Variant::Unchecked => {
            let (lost, cpu) = ((1.0 - rows) * 100.0, (1.0 / per_cpu - 1.0) * 100.0);
            format!("Checkpoints cost {lost:.1} % of the rows/s (target: at most 5 %), and {cpu:.1} % more CPU per row.")
        }
        _ => {
            let name = other.variant.name();
            format!(
                "Weir does {per_cpu:.1} times the rows per CPU second of {name} (target: at least 2), and {rows:.1} times its rows/s."
            )
        }
    }
}

fn cell(row: &Row, of: fn(&Sample) -> f64, digits: usize) -> String {
    let (min, max) = row.range(of);
    let mid = row.median(of);
    if row.samples.len() < 2 { format!("{mid:.digits$}") } else { format!("{mid:.digits$} ({min:.digits$} - {max:.digits$})") }
}

fn machine() -> Result<String> {
    let cpus = fs::read_to_string("/proc/cpuinfo").context("cannot read /proc/cpuinfo")?;
    let model = cpus
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .map_or("unknown", |name| name.trim_start_matches([' ', '\t', ':']));
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let memory = fs::read_to_string("/proc/meminfo").context("cannot read /proc/meminfo")?;
    let kib = memory.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?.parse::<f64>().ok());
    Ok(format!("{cores} cores, {model}; {:.0} GiB", kib.unwrap_or_default() / 1024.0 / 1024.0))
}

/// The version that the lock file has.
fn wasmtime(stand: &Stand) -> Result<String> {
    let lock = fs::read_to_string(stand.workspace.root.join("Cargo.lock")).context("cannot read Cargo.lock")?;
    let after = lock.split_once("name = \"wasmtime\"\nversion = \"").map(|(_, rest)| rest);
    Ok(after.and_then(|rest| rest.split('"').next()).unwrap_or("unknown").to_string())
}

#[cfg(test)]
mod tests {
    use super::super::case::CASES;
    use super::*;
    use crate::progress::Pauses;

    fn row(variant: Variant, rates: [f64; 3], cpu: f64) -> Row {
        let sample = |rate: f64| Sample { rows_per_s: rate, cpu_s_per_million: cpu, ..Sample::default() };
        Row { variant, samples: rates.map(sample).to_vec() }
    }

    #[test]
    fn ratios_are_of_rows_per_cpu_second_and_costs_of_rows_per_second() {
        let mut report = Report { text: String::new() };
        let mut ours = row(Variant::Sandbox, [9.5e6, 9e6, 10e6], 0.1);
        ours.samples[0].checkpoints =
            vec![Checkpoint { id: 1, duration_ms: 20, bytes: 2048, captured_bytes: 4096, ..Checkpoint::default() }];
        let rows = vec![ours, row(Variant::Unchecked, [10e6, 10e6, 10e6], 0.1), row(Variant::Flink, [5e6, 5e6, 5e6], 0.4)];
        report.throughput(&CASES[2], &rows);
        let text = report.text();
        assert!(text.contains("| weir | 9.50 (9.00 - 10.00) | 0.100"), "{text}");
        assert!(text.contains("4.0 times the rows per CPU second of flink") && text.contains("1.9 times its rows/s"), "{text}");
        assert!(text.contains("cost 5.0 % of the rows/s") && text.contains("1 checkpoints of weir: 20 ms, 2 KiB"), "{text}");
    }

    #[test]
    fn large_state_is_set_against_its_targets() {
        let mut report = Report { text: String::new() };
        let checkpoint =
            |id| Checkpoint { id, duration_ms: id, bytes: 4_000_000, captured_bytes: 4_096_000, ..Checkpoint::default() };
        let pauses = Pauses { p50_us: 500, p99_us: 990, max_us: 1_000 };
        let checkpoints = (1..=100).map(checkpoint).collect();
        report.large(&Large { resident_mib: 1_300.0, rows_per_checkpoint: 990.0, checkpoints, pauses });
        let text = report.text();
        assert!(text.contains("0.50, 0.99, 1.00 | p99 under 5") && text.contains("| 0.98 | under 1.3"), "{text}");
        assert!(text.contains("| pages captured, median | 1000 |") && text.contains("50, 100 | 200"), "{text}");
    }
}
