//! Lines of standard input. Cannot go back: what was read and not yet in a completed checkpoint's output is lost with the
//! process, and the source says so.
//!
//! A thread reads, because reading blocks; what it has read waits in a bounded queue. There is one thread in a process,
//! whatever the number of sources made over its life, so a restarted job goes on where the last one stopped polling.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use serde_json::{Map, Value};
use weir_model::{Batch, Oddities};

use super::files::line_rules;
use super::formats::foreign_in_pipe;
use super::lines::{BLOCK_BYTES, Lines, Room, Rules};
use crate::settings::Settings;
use crate::{ConnectorError, More, Polled, SettingError, Source, SourceFactory};

/// Batches of about one block that wait between the thread and the task.
const QUEUE_BATCHES_MAX: usize = 8;

/// When to ask again.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Rows of one batch in the queue.
const QUEUED: Room = Room { rows_max: 16_384, bytes_target: BLOCK_BYTES };

/// Makes `stdin` sources.
pub(crate) struct StdinFactory {
    rules: Rules,
}

impl StdinFactory {
    pub(crate) fn from_settings(map: &Map<String, Value>) -> Result<StdinFactory, SettingError> {
        let settings = Settings::new("a stdin source", map, &["keep_empty", "long_lines"])?;
        Ok(StdinFactory { rules: line_rules(&settings)? })
    }
}

impl SourceFactory for StdinFactory {
    fn create(&self, index: u32, _: u32) -> Result<Box<dyn Source>, ConnectorError> {
        static STDIN: OnceLock<Arc<Mutex<Queue>>> = OnceLock::new();
        if index > 0 {
            return Ok(Box::new(Stdin { queue: None, oddities: Oddities::new() }));
        }
        let queue = match STDIN.get() {
            Some(queue) => queue,
            None => {
                let queue = Queue::reading(io::stdin(), self.rules)?;
                STDIN.get_or_init(|| queue)
            }
        };
        Ok(Box::new(Stdin { queue: Some(Arc::clone(queue)), oddities: Oddities::new() }))
    }

    fn is_replayable(&self) -> bool {
        false
    }

    /// What stands at a process's input is unlike what the one before had: it is read, whatever was read before.
    fn more(&self, _: &BTreeMap<String, Value>) -> Result<More, ConnectorError> {
        Ok(More::Some("standard input".to_owned()))
    }

    fn describe(&self) -> String {
        "reads the lines of standard input".to_owned()
    }
}

/// Some of what the thread has read.
#[derive(Default)]
struct Piece {
    rows: Batch,
    /// Lines that were left out.
    oddities: Oddities,
}

/// What the thread has read.
struct Queue {
    receiver: Receiver<Result<Piece, ConnectorError>>,
    /// A batch of which `begun_rows` rows were given already.
    begun: Batch,
    begun_rows: usize,
    /// Lines that were left out, since the process began.
    oddities: Oddities,
    /// Why nothing more can be read although the input has not ended. Said again after a restart: there is no other thread.
    failure: Option<String>,
}

impl Queue {
    /// Starts the thread.
    fn reading(input: impl Read + Send + 'static, rules: Rules) -> Result<Arc<Mutex<Queue>>, ConnectorError> {
        let (sender, receiver) = sync_channel(QUEUE_BATCHES_MAX);
        thread::Builder::new()
            .name("weir-stdin".to_owned())
            .spawn(move || {
                // Without a word its end would look like that of the input.
                let read = catch_unwind(AssertUnwindSafe(|| forward(input, rules, &sender)));
                let panicked = || io::Error::other("the thread that reads it panicked; this is a bug in weir, please report it");
                if let Err(error) = read.unwrap_or_else(|_| Err(broken(panicked()))) {
                    // No receiver: nobody is left to tell.
                    let _ = sender.send(Err(error));
                }
            })
            .map_err(|error| ConnectorError::io("start a thread to read", Path::new("standard input"), error))?;
        Ok(Arc::new(Mutex::new(Queue {
            receiver,
            begun: Batch::default(),
            begun_rows: 0,
            oddities: Oddities::new(),
            failure: None,
        })))
    }

    fn poll(&mut self, rows: &mut Batch, room: Room) -> Result<Polled, ConnectorError> {
        while self.begun_rows == self.begun.len() {
            match self.receiver.try_recv() {
                Ok(Err(error)) => {
                    self.failure = Some(error.to_string());
                    return Err(error);
                }
                Ok(Ok(Piece { rows, oddities })) => {
                    self.oddities.merge(&oddities);
                    (self.begun, self.begun_rows) = (rows, 0);
                }
                Err(TryRecvError::Empty) => return Ok(Polled::Idle { retry_in: POLL_INTERVAL }),
                Err(TryRecvError::Disconnected) => match &self.failure {
                    None => return Ok(Polled::Ended),
                    Some(failure) => {
                        return Err(ConnectorError::NothingToRead {
                            path: "standard input".to_owned(),
                            reason: format!("it failed before, and the rest of it cannot be had any more: {failure}"),
                            hint: "run the job again, with what was not read as its input",
                        });
                    }
                },
            }
        }
        let first = self.begun_rows;
        let mut bytes = 0;
        while self.begun_rows < self.begun.len()
            && self.begun_rows - first < room.rows_max.max(1)
            && bytes < room.bytes_target.max(1)
        {
            bytes += self.begun.values.get(self.begun_rows).len();
            self.begun_rows += 1;
        }
        rows.extend_range(self.begun.view(), first..self.begun_rows);
        Ok(Polled::Rows)
    }
}

fn broken(error: io::Error) -> ConnectorError {
    ConnectorError::io("read", Path::new("standard input"), error)
}

/// Reads to the end. Returns early when nobody listens any more.
fn forward(mut input: impl Read, rules: Rules, sender: &SyncSender<Result<Piece, ConnectorError>>) -> Result<(), ConnectorError> {
    const NAME: &str = "standard input";
    let mut lines = Lines::default();
    loop {
        let bytes = lines.fill(&mut input).map_err(|error| ConnectorError::io("read", Path::new(NAME), error))?;
        if let Some((format, hint)) = foreign_in_pipe(lines.begin()) {
            return Err(ConnectorError::Format { input: NAME.to_owned(), format, hint });
        }
        loop {
            let mut piece = Piece::default();
            let is_full = lines.split(NAME, &mut piece.rows, QUEUED, rules)?;
            if bytes == 0 && !is_full {
                lines.finish(NAME, &mut piece.rows, rules)?;
            }
            lines.give_oddities(&mut piece.oddities);
            let is_something = !piece.rows.is_empty() || !piece.oddities.is_empty();
            if is_something && sender.send(Ok(piece)).is_err() {
                return Ok(());
            }
            if !is_full {
                break;
            }
        }
        if bytes == 0 {
            return Ok(());
        }
    }
}

/// One subtask; only the first has a queue.
struct Stdin {
    queue: Option<Arc<Mutex<Queue>>>,
    oddities: Oddities,
}

impl Source for Stdin {
    fn restore(&mut self, _: &BTreeMap<String, Value>) -> Result<(), ConnectorError> {
        if self.queue.is_some() {
            tracing::warn!("standard input cannot be replayed: the job goes on with what is read from now on");
        }
        Ok(())
    }

    fn poll(&mut self, rows: &mut Batch, rows_max: usize, bytes_target: usize) -> Result<Polled, ConnectorError> {
        match &self.queue {
            None => Ok(Polled::Ended),
            // Only another subtask that panicked within `poll` could have poisoned it, between two batches.
            Some(queue) => {
                let mut queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
                let polled = queue.poll(rows, Room { rows_max, bytes_target });
                if queue.oddities.total() != self.oddities.total() {
                    self.oddities.clone_from(&queue.oddities);
                }
                polled
            }
        }
    }

    fn position(&mut self) -> BTreeMap<String, Value> {
        BTreeMap::new()
    }

    fn oddities(&self) -> &Oddities {
        &self.oddities
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use std::time::Instant;

    fn over(queue: Arc<Mutex<Queue>>) -> Stdin {
        Stdin { queue: Some(queue), oddities: Oddities::new() }
    }

    /// All rows, and whether it ended within the deadline.
    fn drain(source: &mut Stdin, rows_max: usize) -> Result<Vec<Vec<u8>>, ConnectorError> {
        let deadline = Instant::now() + Duration::from_secs(30);
        let (mut out, mut rows) = (Vec::new(), Batch::default());
        loop {
            rows.clear();
            match source.poll(&mut rows, rows_max, 1 << 20)? {
                Polled::Rows => out.extend(rows.values.iter().map(<[u8]>::to_vec)),
                Polled::Ended => return Ok(out),
                Polled::Idle { .. } => thread::yield_now(),
            }
            assert!(rows.len() <= rows_max && Instant::now() < deadline, "not ended in time");
        }
    }

    #[test]
    fn all_lines_arrive_in_order_whatever_the_size_of_polls() {
        let lines: Vec<Vec<u8>> = (0..50_000).map(|i| format!("line {i}").into_bytes()).collect();
        let mut text = lines.join(&b"\n"[..]);
        for ending in [&b""[..], b"\n"] {
            text.extend_from_slice(ending);
            for rows_max in [7, 100_000] {
                let queue = Queue::reading(io::Cursor::new(text.clone()), Rules::default()).unwrap();
                assert_eq!(drain(&mut over(queue), rows_max).unwrap(), lines);
            }
        }
    }

    #[test]
    fn poll_does_not_wait_for_input_and_a_new_source_continues_the_old() {
        let (reader, writer) = io::pipe().unwrap();
        let queue = Queue::reading(reader, Rules::default()).unwrap();
        let mut rows = Batch::default();
        let mut source = over(Arc::clone(&queue));
        assert!(matches!(source.poll(&mut rows, 10, 10).unwrap(), Polled::Idle { .. }));
        let mut writer = writer;
        io::Write::write_all(&mut writer, b"a\nb\nc").unwrap();
        let deadline = Instant::now() + Duration::from_secs(30);
        while source.poll(&mut rows, 1, 10).unwrap() != Polled::Rows {
            assert!(Instant::now() < deadline);
        }
        assert_eq!(rows.values.get(0), b"a");
        drop((source, writer));
        assert_eq!(drain(&mut over(queue), 10).unwrap(), [&b"b"[..], b"c"]);
    }

    #[test]
    fn an_error_of_the_input_reaches_the_task() {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::ErrorKind::PermissionDenied.into())
            }
        }
        let queue = Queue::reading(Broken, Rules::default()).unwrap();
        let error = drain(&mut over(queue), 10).unwrap_err();
        assert!(error.to_string().contains("standard input"), "{error}");
    }

    #[test]
    fn lines_that_are_too_long_are_counted_and_what_is_no_text_is_refused() {
        let rules = Rules { line_bytes_max: 5, ..Rules::default() };
        let queue = Queue::reading(io::Cursor::new(b"\xef\xbb\xbfa\nmuch too long\nb\n".to_vec()), rules).unwrap();
        let mut source = over(queue);
        assert_eq!(drain(&mut source, 10).unwrap(), [&b"a"[..], b"b"]);
        assert_eq!(source.oddities().rows(weir_model::OddKind::LongLine), 1);
        let queue = Queue::reading(io::Cursor::new(b"\x1f\x8b\x08\x00...".to_vec()), Rules::default()).unwrap();
        let error = drain(&mut over(queue), 10).unwrap_err();
        assert!(error.is_permanent() && error.to_string().contains("zcat"), "{error}");
    }

    #[test]
    fn a_reader_that_panics_or_fails_is_no_end_of_input_also_after_a_restart() {
        struct Buggy(bool);
        impl Read for Buggy {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                if std::mem::replace(&mut self.0, true) {
                    panic!("told to");
                }
                buffer[..4].copy_from_slice(b"a\nb\n");
                Ok(4)
            }
        }
        let queue = Queue::reading(Buggy(false), Rules::default()).unwrap();
        for _ in 0..2 {
            let mut source = Stdin { queue: Some(Arc::clone(&queue)), oddities: Oddities::new() };
            let error = drain(&mut source, 10).unwrap_err().to_string();
            assert!(error.contains("the thread that reads it panicked; this is a bug in weir"), "{error}");
        }
    }
}
