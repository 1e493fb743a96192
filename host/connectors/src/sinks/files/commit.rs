//! The second phase: a finished file gets its visible name.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::folders::{PENDING, is_same_folder, open, size, sync, there};
use crate::reach::Folder;
use crate::{Commit, ConnectorError, Reach};

/// A durable file and the name it is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Committable {
    /// The sink's folder.
    pub(super) folder: PathBuf,
    /// Name within its `.pending`.
    pub(super) from: String,
    /// Name within it.
    pub(super) to: String,
    pub(super) bytes: u64,
    pub(super) rows: u64,
}

impl Committable {
    pub(super) fn to_json(&self) -> Value {
        let folder = self.folder.to_string_lossy();
        json!({"folder": folder, "from": self.from, "to": self.to, "bytes": self.bytes, "rows": self.rows})
    }

    pub(super) fn from_json(value: &Value) -> Result<Committable, ConnectorError> {
        // A name with a slash would lead out of the folder, and one with a dot in front to what is hidden there; a checkpoint is
        // input like any other.
        let name = |key: &str| {
            value[key].as_str().filter(|name| !name.is_empty() && !name.contains(['/', '\0']) && !name.starts_with('.'))
        };
        let read = || {
            Some(Committable {
                folder: PathBuf::from(value["folder"].as_str()?),
                from: name("from")?.to_owned(),
                to: name("to")?.to_owned(),
                bytes: value["bytes"].as_u64()?,
                rows: value["rows"].as_u64()?,
            })
        };
        read().ok_or_else(|| ConnectorError::Commit {
            what: value.to_string(),
            reason: "the checkpoint holds it for this sink, and it is not a file of a file sink".to_owned(),
            hint: "give a sink of another kind another id, or start over with --fresh",
        })
    }

    /// Renames the file, in `folder`, which is the sink's: who writes to the checkpoints does not say where files are moved. Doing it
    /// again changes nothing; what is not as the checkpoint says is an error. `is_first`: it is known that nobody has done it before.
    pub(super) fn commit(&self, reach: &Reach, folder: &Path, is_first: bool) -> Result<Commit, ConnectorError> {
        let (from, to) = (self.folder.join(PENDING).join(&self.from), self.folder.join(&self.to));
        if !is_same_folder(&self.folder, folder) {
            // The sink had another path once. What it finished there is nobody's business any more.
            return match there(reach, &self.folder.join(PENDING))? {
                None => Ok(Commit::DoneBefore),
                Some(pending) if size(&pending, &self.from)?.is_none() => Ok(Commit::DoneBefore),
                Some(_) => Err(self.refuse(
                    &to,
                    format!("{} waits for this, and the sink's path is now {}", from.display(), folder.display()),
                    "give the sink its earlier path for one more run, or start over with --fresh",
                )),
            };
        }
        let (pending, finished) = (open(reach, &folder.join(PENDING))?, open(reach, folder)?);
        match (size(&pending, &self.from)?, size(&finished, &self.to)?) {
            (Some(found), None) if found == self.bytes => {
                let failed = |error| ConnectorError::io("rename the finished file to", &to, error);
                pending.rename(OsStr::new(&self.from), &finished, OsStr::new(&self.to)).map_err(failed)?;
                sync(&finished)?;
                sync(&pending)?;
                Ok(Commit::Done)
            }
            // Done before. The crash may have come before the folder was on the disk.
            (None, Some(found)) if found == self.bytes => done_before(&finished),
            (None, None) if is_first => Ok(Commit::Gone {
                reason: format!(
                    "{} was deleted before its {} rows were made visible as {}; only weir may change files in {PENDING}",
                    from.display(),
                    self.rows,
                    to.display()
                ),
            }),
            // Only a commit takes a file out of the pending folder, and the rename is atomic: it was done, and whoever reads the
            // output has moved the file away since.
            (None, None) => {
                tracing::info!(file = %to.display(), rows = self.rows, "committed before, and moved away by its reader");
                Ok(Commit::DoneBefore)
            }
            // Between the two looks, a task of an earlier attempt that stood still may have done it.
            (Some(_), Some(found)) if found == self.bytes && size(&pending, &self.from)?.is_none() => done_before(&finished),
            (Some(_), Some(_)) => Err(self.refuse(
                &to,
                format!("{} is not committed yet, and a file of that name exists already", from.display()),
                "move the existing file away; it was not written by this checkpoint",
            )),
            (Some(found), None) => Err(self.damaged(&to, &from, found)),
            (None, Some(found)) => Err(self.damaged(&to, &to, found)),
        }
    }

    fn damaged(&self, to: &Path, which: &Path, found: u64) -> ConnectorError {
        let reason = format!("{} has {found} bytes, the checkpoint says {}", which.display(), self.bytes);
        self.refuse(to, reason, "the file was changed after it was written; restore it, or go back to an older checkpoint")
    }

    fn refuse(&self, to: &Path, reason: String, hint: &'static str) -> ConnectorError {
        ConnectorError::Commit { what: to.display().to_string(), reason, hint }
    }
}

fn done_before(finished: &Folder) -> Result<Commit, ConnectorError> {
    sync(finished)?;
    Ok(Commit::DoneBefore)
}
