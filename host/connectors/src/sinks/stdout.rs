//! Rows on standard output, visible at once: after a restart some are written again, and the sink says so.

use std::io::{self, Write};
use std::path::Path;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Map, Value};
use weir_model::{BatchRef, CheckpointId};

use super::format::Format;
use crate::settings::Settings;
use crate::{
    Committer, ConnectorError, Guarantee, NothingToCommit, Prepared, SettingError, Sink, SinkContext, SinkFactory, TakeBack,
};

/// Whether a sink found that nobody reads this process's standard output any more.
static CLOSED: AtomicBool = AtomicBool::new(false);

/// Since when a sink waits for the reader of standard output, in milliseconds since `START`, plus one; 0: none waits.
static WAITING: AtomicU64 = AtomicU64::new(0);

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Whether a job ended because nobody reads this process's standard output any more, as with `weir run ... | head -1`.
pub fn stdout_is_closed() -> bool {
    CLOSED.load(Ordering::Relaxed)
}

/// How long a sink has waited for the reader of this process's standard output to take something. A task that waits there hears
/// nothing, so whoever wants to end the process must not wait for it.
pub fn stdout_waits_for() -> Duration {
    match WAITING.load(Ordering::Relaxed) {
        0 => Duration::ZERO,
        since => START.elapsed().saturating_sub(Duration::from_millis(since - 1)),
    }
}

/// Makes `stdout` sinks.
pub(crate) struct StdoutFactory {
    format: Format,
}

impl StdoutFactory {
    pub(crate) fn from_settings(map: &Map<String, Value>) -> Result<StdoutFactory, SettingError> {
        let settings = Settings::new("a stdout sink", map, &["format"])?;
        Ok(StdoutFactory { format: Format::from_settings(&settings)? })
    }
}

impl SinkFactory for StdoutFactory {
    fn create(&self, _: &SinkContext) -> Result<Box<dyn Sink>, ConnectorError> {
        Ok(Box::new(Printer { format: self.format, output: io::stdout(), buffer: Vec::new(), is_process: true }))
    }

    fn committer(&self, _: &SinkContext) -> Result<Box<dyn Committer>, ConnectorError> {
        Ok(Box::new(NothingToCommit))
    }

    fn take_back(&self) -> TakeBack {
        TakeBack::Impossible
    }

    fn guarantee(&self) -> Guarantee {
        Guarantee::AtLeastOnce
    }

    fn describe(&self) -> String {
        "writes to standard output at once".to_owned()
    }
}

struct Printer<W> {
    format: Format,
    output: W,
    buffer: Vec<u8>,
    /// `output` is standard output, not a test's.
    is_process: bool,
}

impl<W: Write + Send> Sink for Printer<W> {
    fn write(&mut self, rows: BatchRef<'_>) -> Result<(), ConnectorError> {
        self.buffer.clear();
        self.format.write(rows, &mut self.buffer);
        // One write for a batch, so that the lines of several subtasks do not mix.
        if self.is_process {
            WAITING.store(START.elapsed().as_millis() as u64 + 1, Ordering::Relaxed);
        }
        let written = self.output.write_all(&self.buffer).and_then(|()| self.output.flush());
        if self.is_process {
            WAITING.store(0, Ordering::Relaxed);
        }
        match written {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                CLOSED.fetch_or(self.is_process, Ordering::Relaxed);
                Err(ConnectorError::ReaderGone)
            }
            written => written.map_err(|error| ConnectorError::io("write to", Path::new("standard output"), error)),
        }
    }

    fn prepare(&mut self, _: CheckpointId) -> Result<Prepared, ConnectorError> {
        Ok(Box::new(|| Ok(None)))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use weir_model::Batch;

    #[test]
    fn rows_are_written_before_write_returns_and_nothing_is_to_commit() {
        let mut rows = Batch::default();
        rows.push(0, b"k", b"v");
        let mut output = Vec::new();
        let mut sink =
            Printer { format: Format::Lines, output: io::BufWriter::new(&mut output), buffer: Vec::new(), is_process: false };
        sink.write(rows.view()).unwrap();
        sink.write(rows.view()).unwrap();
        assert_eq!(sink.prepare(CheckpointId(1)).unwrap()().unwrap(), None);
        drop(sink);
        assert_eq!(output, b"v\nv\n");
    }

    #[test]
    fn a_reader_that_left_is_named() {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let mut rows = Batch::default();
        rows.push(0, b"", b"v");
        let error = Printer { format: Format::Json, output: writer, buffer: Vec::new(), is_process: false }
            .write(rows.view())
            .unwrap_err();
        assert!(error.is_permanent() && error.to_string().contains("standard output"), "{error}");
        assert!(!stdout_is_closed(), "that of this process is another one");
    }
}
