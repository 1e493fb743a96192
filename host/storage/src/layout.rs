//! Where a job's objects lie and how they are called.
//!
//! ```text
//! <root>/<job>/log/<number>.json
//! <root>/<job>/manifests/<checkpoint>-<attempt>-<nonce>.json
//! <root>/<job>/files/<attempt>-<checkpoint>-<task>-<sequence>
//! <root>/<job>/lock                                  local storage only
//! ```
//!
//! Every name carries the attempt, so nothing that an older attempt still writes can replace what a newer one wrote.
//! Names that do not parse are not ours and are left alone.

use object_store::path::Path;
use weir_model::{Attempt, CheckpointId, TaskId};

use crate::StorageError;

pub(crate) const MANIFESTS: &str = "manifests";
pub(crate) const FILES: &str = "files";
pub(crate) const LOG: &str = "log";
/// Written before there were logs.
pub(crate) const OLD_JOB_INFO: &str = "job.json";
pub(crate) const LOCK: &str = "lock";

/// File systems allow 255 bytes in one name.
const JOB_FOLDER_BYTES_MAX: usize = 200;

/// The folder of a job; characters that no store takes are percent-encoded.
pub(crate) fn job_folder(job: &str) -> Result<Path, StorageError> {
    let folder = Path::from_iter([job]);
    let invalid = |reason: &str| StorageError::InvalidName { what: "job name", value: job.to_owned(), reason: reason.to_owned() };
    if job.is_empty() {
        return Err(invalid("it is empty; give the job a name"));
    }
    if folder.as_ref().len() > JOB_FOLDER_BYTES_MAX {
        return Err(invalid("it is longer than 200 bytes; shorten it"));
    }
    Ok(folder)
}

/// Name of an entry of the log. Orders by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EntryName(pub(crate) u64);

impl std::fmt::Display for EntryName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:020}.json", self.0)
    }
}

impl EntryName {
    pub(crate) fn parse(name: &str) -> Option<EntryName> {
        let digits = name.strip_suffix(".json").filter(|digits| digits.len() == 20)?;
        number(digits).map(EntryName)
    }
}

/// Name of a manifest: no two writers of a log have the same nonce. Orders by checkpoint.
pub(crate) fn manifest_name(checkpoint: CheckpointId, attempt: Attempt, nonce: u64) -> String {
    format!("{:020}-{attempt}-{nonce:016x}.json", checkpoint.0)
}

/// Of which checkpoint and attempt a manifest is, by its name.
pub(crate) fn parse_manifest_name(name: &str) -> Option<(CheckpointId, Attempt)> {
    let mut parts = name.strip_suffix(".json")?.split('-');
    let checkpoint = number(parts.next()?)?;
    let attempt = number(parts.next()?)?;
    let nonce = parts.next().filter(|nonce| nonce.len() == 16 && nonce.bytes().all(|digit| digit.is_ascii_hexdigit()));
    (nonce.is_some() && parts.next().is_none()).then_some((CheckpointId(checkpoint), Attempt(attempt)))
}

/// Name of a file that a task wrote. `sequence` tells several writers of one process apart.
pub(crate) fn file_name(attempt: Attempt, checkpoint: CheckpointId, task: TaskId, sequence: u64) -> String {
    format!("{attempt}-{checkpoint}-{task}-{sequence}")
}

/// Who wrote a file, by its name.
pub(crate) fn parse_file_name(name: &str) -> Option<(Attempt, CheckpointId)> {
    let mut parts = name.split('-');
    let attempt = number(parts.next()?)?;
    let checkpoint = number(parts.next()?)?;
    let _task = number(parts.next()?)?;
    Some((Attempt(attempt), CheckpointId(checkpoint)))
}

/// Whether a file's name is one that this task gives to what it stores for this checkpoint.
pub fn is_file_of(name: &str, attempt: Attempt, checkpoint: CheckpointId, task: TaskId) -> bool {
    let sequence = name.strip_prefix(&*format!("{attempt}-{checkpoint}-{task}-"));
    sequence.is_some_and(|sequence| !sequence.is_empty() && number(sequence).is_some())
}

/// Decimal digits only: `parse` alone would take a plus sign.
fn number(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn names_survive_printing_and_parsing() {
        let file = file_name(Attempt(3), CheckpointId(12), TaskId(7), 40);
        assert_eq!(file, "3-12-7-40");
        assert_eq!(parse_file_name(&file), Some((Attempt(3), CheckpointId(12))));
        assert!(is_file_of(&file, Attempt(3), CheckpointId(12), TaskId(4)) || !file.ends_with("-4-0"), "{file}");
    }

    #[test]
    fn names_in_the_log_and_of_manifests_survive() {
        assert_eq!(EntryName::parse(&EntryName(7).to_string()), Some(EntryName(7)));
        let name = manifest_name(CheckpointId(12), Attempt(3), u64::MAX);
        assert_eq!(name, "00000000000000000012-3-ffffffffffffffff.json");
        assert_eq!(parse_manifest_name(&name), Some((CheckpointId(12), Attempt(3))));
        for name in ["", "7.json", "00000000000000000012-3.json", "1-2-3.json", "1-2-ffffffffffffffff-4.json", "notes.json"] {
            assert_eq!(EntryName::parse(name), None, "{name}");
            assert_eq!(parse_manifest_name(name), None, "{name}");
        }
    }

    #[test]
    fn names_that_are_not_ours_do_not_parse() {
        for name in ["", "-", "notes.txt", "+3-12-7", "3-12", "a-1-2", "00000000000000000012.json", "1-2.json.bak"] {
            assert_eq!(parse_file_name(name), None, "{name}");
        }
    }

    #[test]
    fn a_job_name_stays_inside_its_own_folder() {
        for name in ["..", ".", "a/b", "größe", "a b", "c%41", "x#1"] {
            let folder = job_folder(name).unwrap();
            assert_eq!(folder.parts().count(), 1, "{name} -> {folder}");
            assert!(!matches!(folder.as_ref(), "." | ".."), "{name} -> {folder}");
        }
        assert_ne!(job_folder("a b").unwrap(), job_folder("a%20b").unwrap());
        assert!(job_folder("").is_err());
        assert!(job_folder(&"x".repeat(201)).is_err());
    }
}
