//! The `file` source: lines of files, read once to their ends or followed as they grow.
//!
//! | setting | default | |
//! |---|---|---|
//! | `path` | required | a file, a folder (its files, not its sub-folders or hidden files) or a glob |
//! | `follow` | `false` | go on reading as files grow, through rotation; never ends |
//! | `keep_empty` | `false` | empty lines become rows |
//! | `long_lines` | `"skip"` | lines over `limits::VALUE_BYTES_MAX` are left out, counted and logged; `"fail"`: they fail the job |
//! | `order` | `"time"` | without `follow`: by event time, then by age; or `"modified"`, `"name"`: one file after another |
//! | `start` | `"beginning"` | or `"end"`; with `follow`: what is there at the very first start is not read |
//! | `rotate_wait` | `"5s"` | with `follow`: how long a file is read on after it was rotated away |
//! | `lost_files` | `"fail"` | or `"skip"`; with `follow`: a half-read file that is gone after a stop is let go |
//!
//! With `follow`, a new file that begins with the same 1,024 bytes as a known one is taken for a copy of it (rotation by
//! copying or compressing) and is not read again.

mod bounded;
mod discover;
#[cfg(test)]
mod folder_tests;
mod follow;
mod gzip;
mod input;
mod known;
mod names;
mod pattern;
#[cfg(test)]
mod rotation_tests;
mod tailed;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod time_tests;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde_json::{Map, Value};

use self::bounded::BoundedFiles;
use self::follow::Follow;
use self::known::{Position, resolve};
use self::pattern::Pattern;
use self::tailed::TailedFile;
use super::lines::{LongLines, Rules};
use crate::settings::{Settings, error};
use crate::{ConnectorError, More, Reach, SettingError, Source, SourceFactory};

/// How long a file is still read after it was rotated away, by default: its writer may not know yet.
const ROTATE_WAIT_DEFAULT: Duration = Duration::from_secs(5);

/// Which file is read before which, where files are read once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// By turns, so that event time moves on in all of them; the oldest file first where rows have no times.
    Time,
    /// One after another, the one that was modified first before the others.
    Modified,
    /// One after another, by name; numbers in names as numbers.
    Name,
}

/// Settings of a `file` source.
#[derive(Clone, Debug)]
struct FileSettings {
    reach: Reach,
    pattern: Pattern,
    rules: Rules,
    /// Read once only.
    order: Order,
    /// Follow only: files that are there when the job starts for the first time are taken from their ends.
    from_end: bool,
    rotate_wait: Duration,
    /// Follow only: a half-read file that is gone after a stop is let go with a warning instead of failing the job.
    skip_lost: bool,
}

/// Makes `file` sources.
pub(crate) struct FileSourceFactory {
    settings: FileSettings,
    follow: bool,
}

impl FileSourceFactory {
    pub(crate) fn from_settings(map: &Map<String, Value>, reach: &Reach) -> Result<FileSourceFactory, SettingError> {
        const KNOWN: &[&str] = &["path", "follow", "start", "keep_empty", "long_lines", "rotate_wait", "lost_files", "order"];
        let settings = Settings::new("a file source", map, KNOWN)?;
        let path = settings.required("path", "path is a file, a folder or a glob such as \"logs/*.log\"")?;
        let follow = settings.bool("follow", false)?;
        for key in ["start", "rotate_wait", "lost_files"] {
            if !follow && map.contains_key(key) {
                return Err(error(key, "only has a meaning with follow = true", None));
            }
        }
        if follow && map.contains_key("order") {
            return Err(error("order", "only has a meaning without follow", None));
        }
        let file = FileSettings {
            reach: reach.clone(),
            pattern: Pattern::new(path).map_err(|message| error("path", message, None))?,
            rules: line_rules(&settings)?,
            order: settings.choice("order", &[("time", Order::Time), ("modified", Order::Modified), ("name", Order::Name)])?,
            from_end: settings.choice("start", &[("beginning", false), ("end", true)])?,
            rotate_wait: settings.duration("rotate_wait")?.unwrap_or(ROTATE_WAIT_DEFAULT),
            skip_lost: settings.choice("lost_files", &[("fail", false), ("skip", true)])?,
        };
        Ok(FileSourceFactory { settings: file, follow })
    }
}

/// The settings `keep_empty` and `long_lines`.
pub(in crate::sources) fn line_rules(settings: &Settings<'_>) -> Result<Rules, SettingError> {
    let long_lines = settings.choice("long_lines", &[("skip", LongLines::Skip), ("fail", LongLines::Fail)])?;
    Ok(Rules { keep_empty: settings.bool("keep_empty", false)?, long_lines, ..Rules::default() })
}

impl SourceFactory for FileSourceFactory {
    fn create(&self, index: u32, parallelism: u32) -> Result<Box<dyn Source>, ConnectorError> {
        let settings = self.settings.clone();
        Ok(if self.follow {
            Box::new(Follow::new(settings, index, parallelism))
        } else {
            Box::new(BoundedFiles::new(settings, index, parallelism)?)
        })
    }

    fn is_replayable(&self) -> bool {
        true
    }

    fn more(&self, splits: &BTreeMap<String, Value>) -> Result<More, ConnectorError> {
        let FileSettings { pattern, reach, .. } = &self.settings;
        if self.follow {
            return match splits.iter().find(|(_, value)| TailedFile::from_json(value).is_none()) {
                Some((id, value)) => Err(not_followed(id, value)),
                None => Ok(More::Nothing(self.describe())),
            };
        }
        let files = pattern.files(reach)?.files;
        if files.is_empty() {
            return Err(pattern.no_file(reach));
        }
        let count = files.len();
        let resolved = resolve(files, Position::all(splits)?, pattern.text(), reach, |_| true)?;
        Ok(match resolved.summary() {
            Some(what) => More::Some(what),
            None if count == 1 => More::Nothing(format!("{}: the file was read to its end", pattern.text())),
            None => More::Nothing(format!("{}: {count} files, all read to their ends", pattern.text())),
        })
    }

    fn is_live(&self) -> bool {
        self.follow
    }

    fn describe(&self) -> String {
        let verb = if self.follow { "follows" } else { "reads" };
        format!("{verb} the lines of {}", self.settings.pattern.text())
    }
}

/// The error of a source that follows for a position that is none in a followed file.
fn not_followed(id: &str, value: &Value) -> ConnectorError {
    let reason = match Position::from_json(value) {
        Some(_) => "`follow` has changed: this job's positions are of files read once; set it back, or run it as another job: \
                    --set job.name=NAME, and another path for each sink"
            .to_owned(),
        None => format!("{value} is not a position in a followed file"),
    };
    ConnectorError::Position { split: names::shown(Path::new(id)), reason }
}

/// The subtask that has the split called `id`. Frozen: a restored subtask finds its splits by it.
fn owner(id: &str, parallelism: u32) -> u32 {
    (xxhash_rust::xxh3::xxh3_64(id.as_bytes()) % u64::from(parallelism)) as u32
}
