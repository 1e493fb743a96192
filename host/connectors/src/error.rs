//! What can go wrong, as the user is told it.

use std::io;
use std::path::{Path, PathBuf};

/// A setting of the job file is wrong. The caller knows the file and line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {message}{}", hint_text(hint.as_deref()))]
pub struct SettingError {
    /// The key within the source or sink, dotted where nested; `connector` where the connector itself is unknown.
    pub key: String,
    /// What is wrong, with what was expected.
    pub message: String,
    /// What to do.
    pub hint: Option<String>,
}

/// A source or sink failed.
#[derive(Debug, thiserror::Error)]
pub enum ConnectorError {
    /// The operating system refused something.
    #[error("cannot {action} {}: {source}{}", path.display(), hint_text(*hint))]
    Io {
        /// What was attempted.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
        /// What to do.
        hint: Option<&'static str>,
    },
    /// The path of a file source names nothing.
    #[error("cannot read {path}: {reason}; hint: {hint}")]
    NothingToRead {
        /// The `path` setting, or the file.
        path: String,
        /// What was found instead.
        reason: String,
        /// What to do.
        hint: &'static str,
    },
    /// A line exceeds the limit of a value.
    #[error(
        "{input}: the line at byte {offset} is longer than {limit_bytes} bytes; hint: long_lines = \"skip\" leaves such lines out and counts them"
    )]
    LongLine {
        /// The file.
        input: String,
        /// Where the line starts, in uncompressed bytes.
        offset: u64,
        /// The limit.
        limit_bytes: usize,
    },
    /// A row has no readable event time, and `no_time = "fail"`.
    #[error(
        "the event time of a row cannot be read: {reason}; its value starts with {value:?}; hint: event_time.no_time = \"previous\" or \"skip\" goes on without it"
    )]
    NoTime {
        /// Why not.
        reason: String,
        /// The beginning of the row's value.
        value: String,
    },
    /// A file is of a format that cannot be read.
    #[error("cannot read {input}: it is {format}, not lines of text, gzip or zstd; hint: {hint}")]
    Format {
        /// The file.
        input: String,
        /// What it is.
        format: &'static str,
        /// What to do.
        hint: &'static str,
    },
    /// A compressed file cannot be decompressed.
    #[error("cannot decompress {input} after byte {offset} of its content: {reason}; hint: check the file with `{check}`")]
    Broken {
        /// The file.
        input: String,
        /// Uncompressed bytes that were read before.
        offset: u64,
        /// What the decompressor says.
        reason: String,
        /// A command that checks such files.
        check: &'static str,
    },
    /// The checkpoint was taken over other input than there is now.
    #[error("cannot continue {input} where the checkpoint left it: {reason}; hint: {hint}")]
    Replaced {
        /// The file.
        input: String,
        /// What differs.
        reason: String,
        /// What to do.
        hint: &'static str,
    },
    /// A position in a checkpoint is not one of this source.
    #[error("cannot continue split {split}: {reason}; hint: --fresh starts without the checkpoint")]
    Position {
        /// Id of the split.
        split: String,
        /// What is wrong with its position.
        reason: String,
    },
    /// A committable cannot be committed.
    #[error("cannot commit {what}: {reason}; hint: {hint}")]
    Commit {
        /// The file to be made visible.
        what: String,
        /// Why not.
        reason: String,
        /// What to do.
        hint: &'static str,
    },
    /// What read the output has ended.
    #[error("cannot write to standard output: whatever read it has ended; hint: write to a file sink where nobody reads along")]
    ReaderGone,
    /// The sink failed before and must be made anew.
    #[error("cannot write to {path}: an earlier write of this sink did not reach the disk: {reason}", path = path.display())]
    Unusable {
        /// Where the sink writes.
        path: PathBuf,
        /// What failed before.
        reason: String,
    },
}

impl ConnectorError {
    /// Whether the same will happen again until a person has changed something, so that restarting the job is no use.
    pub fn is_permanent(&self) -> bool {
        match self {
            ConnectorError::NothingToRead { .. }
            | ConnectorError::LongLine { .. }
            | ConnectorError::NoTime { .. }
            | ConnectorError::Format { .. }
            | ConnectorError::ReaderGone
            | ConnectorError::Broken { .. }
            | ConnectorError::Replaced { .. }
            | ConnectorError::Position { .. }
            | ConnectorError::Commit { .. } => true,
            ConnectorError::Io { source, .. } => {
                matches!(
                    source.kind(),
                    io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::NotADirectory
                )
            }
            ConnectorError::Unusable { .. } => false,
        }
    }

    /// Why `action` on `path` failed, with the hint that fits the kind of failure.
    pub(crate) fn io(action: &'static str, path: &Path, source: io::Error) -> ConnectorError {
        let hint = match source.kind() {
            // Not by the operating system, but because of `--allow-path`.
            io::ErrorKind::PermissionDenied if source.raw_os_error().is_none() => {
                Some("use a folder that is allowed on all workers, or ask their owner for this one")
            }
            io::ErrorKind::PermissionDenied => Some("give the user that runs weir access to it"),
            io::ErrorKind::StorageFull => Some("free space on that disk; the job goes on from its last checkpoint"),
            io::ErrorKind::QuotaExceeded => Some("raise the quota or free space; the job goes on from its last checkpoint"),
            io::ErrorKind::ReadOnlyFilesystem => Some("choose a folder on a file system that is not mounted read-only"),
            io::ErrorKind::NotFound => Some("check that it exists and was not moved while the job ran"),
            io::ErrorKind::NotADirectory => Some("a part of the path is a file, not a folder"),
            io::ErrorKind::BrokenPipe => Some("whatever read the output has ended"),
            _ => None,
        };
        ConnectorError::Io { action, path: path.to_owned(), source, hint }
    }
}

/// A hint as the end of a message.
fn hint_text(hint: Option<&str>) -> String {
    hint.map_or(String::new(), |hint| format!("; hint: {hint}"))
}
