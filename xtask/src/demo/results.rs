//! What the job wrote: its results, its late rows and its dead letters, read from the files that it made visible.

use super::recount::{Views, days_since_epoch, window_of};
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// The job's whole output.
#[derive(Debug, Default)]
pub(crate) struct Results {
    /// Counts of windows.
    pub(crate) counted: Views,
    /// Windows that were given more than once; there must be none.
    pub(crate) twice: u64,
    /// Rows that came after their window had closed.
    pub(crate) late: Views,
    pub(crate) dead_letters: u64,
}

impl Results {
    /// Reads the folders of the job's three sinks.
    pub(crate) fn read(out: &Path, late: &Path, bad: &Path) -> Result<Results> {
        let mut results = Results::default();
        lines(out, |line| results.count(line))?;
        lines(late, |line| results.be_late(line))?;
        lines(bad, |_| {
            results.dead_letters += 1;
            Ok(())
        })?;
        Ok(results)
    }

    /// `{"key": page, "time": .., "value": {"start": .., "end": .., "count": ..}}`
    fn count(&mut self, line: &str) -> Result<()> {
        let row: Value = serde_json::from_str(line)?;
        let page = row["key"].as_str().context("no key")?;
        let start = row["value"]["start"].as_i64().context("no start of the window in the value")?;
        let count = row["value"]["count"].as_u64().context("no count in the value")?;
        if self.counted.insert((start, page.to_string()), count).is_some() {
            self.twice += 1;
        }
        Ok(())
    }

    /// `{"key": page, "time": "2026-03-02T00:04:59.000Z", ..}`
    fn be_late(&mut self, line: &str) -> Result<()> {
        let row: Value = serde_json::from_str(line)?;
        let page = row["key"].as_str().context("no key")?;
        let time = row["time"].as_str().and_then(unix_ms).context("no time as RFC 3339, UTC")?;
        *self.late.entry((window_of(time), page.to_string())).or_default() += 1;
        Ok(())
    }
}

/// `2026-03-02T00:04:59.000Z`, the one form in which sinks write times.
fn unix_ms(time: &str) -> Option<i64> {
    let (date, clock) = time.strip_suffix('Z')?.split_once('T')?;
    let numbers =
        |text: &str, separators: &[char]| text.split(separators).map(|part| part.parse().ok()).collect::<Option<Vec<i64>>>();
    let (date, clock) = (numbers(date, &['-'])?, numbers(clock, &[':', '.'])?);
    let ([year, month, day], [hour, minute, second, ms]) = (date.as_slice(), clock.as_slice()) else { return None };
    Some((((days_since_epoch(*year, *month, *day) * 24 + hour) * 60 + minute) * 60 + second) * 1_000 + ms)
}

/// Number of complete lines that a folder's visible files hold.
pub(crate) fn visible_rows(folder: &Path) -> Result<u64> {
    let mut rows = 0;
    lines(folder, |_| {
        rows += 1;
        Ok(())
    })?;
    Ok(rows)
}

/// Every line of every visible file of a sink. Files whose name begins with a dot or underscore are not visible: their checkpoint has
/// not completed. A last line without its end means that a partial file was visible.
fn lines(folder: &Path, mut each: impl FnMut(&str) -> Result<()>) -> Result<()> {
    for file in visible_files(folder)? {
        let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        if !text.is_empty() && !text.ends_with('\n') {
            bail!("{} ends in the middle of a line", file.display());
        }
        for (number, line) in text.lines().enumerate() {
            each(line).with_context(|| format!("{}:{}: {line}", file.display(), number + 1))?;
        }
    }
    Ok(())
}

fn visible_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    if !folder.exists() {
        return Ok(files);
    }
    for entry in fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))? {
        let entry = entry?;
        let is_hidden = entry.file_name().to_string_lossy().starts_with(['.', '_']);
        if !is_hidden && entry.path().is_dir() {
            files.extend(visible_files(&entry.path())?);
        } else if !is_hidden {
            files.push(entry.path());
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_late_rows_and_windows_given_twice_are_told_apart() {
        let mut results = Results::default();
        let row = r#"{"key":"/a","time":"1970-01-01T00:04:59.999Z","value":{"start":0,"end":300000,"count":7}}"#;
        results.count(row).unwrap();
        results.be_late(r#"{"key":"/a","time":"1970-01-01T00:05:00.001Z","value":{}}"#).unwrap();
        assert_eq!(
            (results.counted[&(0, "/a".to_string())], results.late[&(300_000, "/a".to_string())], results.twice),
            (7, 1, 0)
        );
        results.count(row).unwrap();
        assert_eq!(results.twice, 1);
        assert!(results.count("{}").is_err());
        assert!(results.be_late(r#"{"key":"/a","time":"yesterday","value":{}}"#).is_err());
    }
}
