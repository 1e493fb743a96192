//! One process of a cluster, what it says, and how fast its standard output is read.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;

use super::PATIENCE;

/// Lines of a log that are shown when a test fails.
const SHOWN_LINES: usize = 60;

/// How fast a standard output is read. Outlives the process, for the one that is started in its place.
#[derive(Debug)]
pub(super) struct Reader(AtomicU64);

impl Default for Reader {
    fn default() -> Reader {
        Reader(AtomicU64::new(u64::MAX))
    }
}

impl Reader {
    pub(super) fn set(&self, bytes_per_second: u64) {
        self.0.store(bytes_per_second, Ordering::Relaxed);
    }

    /// Reads until the other end is closed.
    fn read(&self, mut output: impl Read, is_over: &AtomicBool) {
        let mut buffer = [0; 4096];
        while !is_over.load(Ordering::Relaxed) {
            let rate = self.0.load(Ordering::Relaxed);
            if rate == 0 {
                std::thread::sleep(Duration::from_millis(5));
                continue;
            }
            match output.read(&mut buffer) {
                Ok(0) | Err(_) => return,
                Ok(_) if rate == u64::MAX => {}
                Ok(read) => std::thread::sleep(Duration::from_nanos(read as u64 * 1_000_000_000 / rate)),
            }
        }
    }
}

/// A process.
pub(super) struct Node {
    child: Child,
    log: PathBuf,
    first_line: Mutex<Receiver<String>>,
    is_over: Arc<AtomicBool>,
}

impl Node {
    /// Starts it; its messages go to a file, its output is read as fast as `reader` says.
    pub(super) fn start(mut command: Command, log: PathBuf, reader: Arc<Reader>) -> Node {
        let file = fs::File::create(&log).expect("a file for messages");
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(file).spawn().expect("a started process");
        let output = child.stdout.take().expect("its output");
        let is_over = Arc::new(AtomicBool::new(false));
        let (sender, first_line) = sync_channel(1);
        let over = is_over.clone();
        std::thread::spawn(move || {
            let mut output: BufReader<ChildStdout> = BufReader::with_capacity(4096, output);
            let mut line = String::new();
            // The first line tells that a coordinator is ready; of a worker it is the first row.
            if reader.0.load(Ordering::Relaxed) > 0 && output.read_line(&mut line).is_ok() {
                let _ = sender.send(line);
            }
            reader.read(output, &over);
        });
        Node { child, log, first_line: Mutex::new(first_line), is_over }
    }

    /// The first line of its output, as JSON.
    pub(super) fn first_line(&mut self) -> Value {
        let line = self.first_line.lock().expect("nobody panics with it").recv_timeout(PATIENCE);
        let line = line.unwrap_or_else(|_| panic!("it does not say that it is ready:\n{}", end_of(&self.messages())));
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}\n{}", end_of(&self.messages())))
    }

    pub(super) fn signal(&self, name: &str) {
        let status = Command::new("kill").arg(format!("-{name}")).arg(self.child.id().to_string()).status().expect("kill");
        assert!(status.success(), "kill -{name}");
    }

    pub(super) fn kill(self) {
        // Dropping kills.
    }

    fn messages(&self) -> String {
        fs::read_to_string::<&Path>(self.log.as_ref()).unwrap_or_default()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// The last lines of a log.
pub(super) fn end_of(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n")
}
