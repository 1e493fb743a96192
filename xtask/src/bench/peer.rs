//! The peer: Apache Flink, by the scripts of bench/flink. One repetition of one case at a time, so that runs alternate.

use super::Effort;
use super::measure::Sample;
use crate::shell;
use crate::workspace::Workspace;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// An unpacked Flink and the scripts that run it.
pub(crate) struct Flink {
    scripts: PathBuf,
    pub(crate) java: String,
}

impl Flink {
    /// Finds it by `FLINK_DIST`, and builds the jobs.
    pub(crate) fn find(workspace: &Workspace) -> Result<Flink> {
        if std::env::var_os("FLINK_DIST").is_none() {
            bail!("FLINK_DIST is not set: it must name the folder of an unpacked Flink; see bench/README.md");
        }
        let scripts = workspace.root.join("bench/flink/scripts");
        shell::run(Command::new("bash").arg(scripts.join("build.sh")))?;
        // Java prints its version on stderr.
        let version = Command::new("java").arg("-version").output().context("cannot start java")?;
        let java = String::from_utf8_lossy(&version.stderr).lines().next().unwrap_or_default().to_string();
        Ok(Flink { scripts, java })
    }

    /// Runs one case once, on a cluster of its own.
    pub(crate) fn measure(&self, (job, case): (&str, &str), effort: Effort) -> Result<Sample> {
        let mut command = Command::new("python3");
        command.arg(self.scripts.join("run.py")).args([job, "--reps", "1", "--case", case, "--print"]);
        let seconds = |duration: std::time::Duration| duration.as_secs().max(5).to_string();
        command.args(["--warm-up", &seconds(effort.warm_up * 2), "--window", &seconds(effort.window)]);
        let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output().context("cannot start python3")?;
        let text = String::from_utf8_lossy(&output.stdout);
        let line = text.lines().rev().find(|line| line.starts_with('{'));
        let line = line.with_context(|| format!("`{}` printed no result", shell::display(&command)))?;
        sample(&serde_json::from_str(line)?).with_context(|| format!("result of Flink: {line}"))
    }
}

fn sample(result: &Value) -> Result<Sample> {
    if let Some(error) = result["error"].as_str() {
        bail!("{error}");
    }
    let number = |key: &str| result[key].as_f64().with_context(|| format!("no {key}"));
    let memory = |key: &str| match &result["rss"][key] {
        Value::Array(values) => values.iter().filter_map(Value::as_f64).sum(),
        value => value.as_f64().unwrap_or_default(),
    };
    Ok(Sample {
        rows_per_s: number("rate")?,
        cpu_s_per_million: number("cpu_s_per_M")?,
        resident_max_mib: memory("tm_peak_mb") + memory("jm_peak_mb"),
        others_cores: number("other_cores")?,
        ..Sample::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_result_is_read_and_an_error_is_told() {
        let result =
            json!({"rate": 2e6, "cpu_s_per_M": 0.5, "other_cores": 0.1, "rss": {"tm_peak_mb": [700, 300], "jm_peak_mb": 400}});
        let read = sample(&result).unwrap();
        assert_eq!((read.rows_per_s, read.cpu_s_per_million, read.resident_max_mib), (2e6, 0.5, 1400.0));
        assert!(sample(&json!({"error": "no slots"})).unwrap_err().to_string().contains("no slots"));
    }
}
