//! What a file sink has made visible.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// One row of a sink with `format = "json"`.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The file it stands in.
    pub file: String,
    /// Its key.
    pub key: String,
    /// Its event time as the sink wrote it.
    pub time: String,
    /// Its value.
    pub value: Value,
}

/// All rows of a folder, file by file in the order in which their checkpoints completed, then as written.
///
/// # Panics
/// If a visible line is not a whole row: nothing partial may ever be visible.
pub fn rows(folder: &Path) -> Vec<Row> {
    let mut rows = Vec::new();
    for path in files(folder) {
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()));
        assert!(text.is_empty() || text.ends_with('\n'), "{} ends in the middle of a line", path.display());
        let file = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        for line in text.lines() {
            let value: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{}: {error}: {line}", path.display()));
            let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
            rows.push(Row { file: file.clone(), key: text("key"), time: text("time"), value: value["value"].clone() });
        }
    }
    rows
}

/// The rejected rows' values in a dead-letter folder.
pub fn dead_letters(folder: &Path) -> Vec<String> {
    rows(folder).iter().map(|row| row.value["value"].as_str().unwrap_or_default().to_owned()).collect()
}

/// Visible files, in the order of their checkpoints. Hidden ones are not output.
fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|path| path.is_file() && !path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.')));
    files.sort_by_key(|path| (checkpoint_of(path), path.clone()));
    files
}

/// The number of the checkpoint in a file's name: `<uid>-c<checkpoint>-a<attempt>-s<subtask>.<extension>`.
fn checkpoint_of(path: &Path) -> u64 {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let number = name.rsplit("-c").next().and_then(|rest| rest.split("-a").next()).and_then(|number| number.parse().ok());
    number.unwrap_or_else(|| panic!("{} has no checkpoint in its name", path.display()))
}
