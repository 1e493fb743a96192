//! A running `weir run --json`: started, followed line by line, and killed if need be.

use crate::progress::{Event, Progress};
use crate::shell;
use anyhow::{Context, Result, bail};
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

/// A `weir` process whose events we read. Killed when dropped.
pub(crate) struct WeirProcess {
    child: Child,
    events: Receiver<Event>,
    command: String,
    /// Where its messages go.
    messages: PathBuf,
}

/// What [`WeirProcess::next`] saw.
pub(crate) enum Next {
    Event(Event),
    /// Nothing new for a moment.
    Quiet,
    /// Its output has ended; the process is gone or about to be.
    Ended,
}

impl WeirProcess {
    /// Starts it. Its stderr goes to the file `messages`, so that it does not mix with our progress line.
    pub(crate) fn start(command: &mut Command, messages: &Path) -> Result<WeirProcess> {
        let log = File::create(messages).with_context(|| format!("cannot write {}", messages.display()))?;
        let text = shell::display(command);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        let mut child = command.spawn().with_context(|| format!("cannot start `{text}`"))?;
        let stdout = child.stdout.take().context("a child without a stdout")?;
        let (sender, events) = sync_channel(64);
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if let Some(event) = Event::parse(&line)
                    && sender.send(event).is_err()
                {
                    break;
                }
            }
        });
        Ok(WeirProcess { child, events, command: text, messages: messages.to_path_buf() })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next event, if one comes within `wait`.
    pub(crate) fn next(&self, wait: Duration) -> Next {
        match self.events.recv_timeout(wait) {
            Ok(event) => Next::Event(event),
            Err(RecvTimeoutError::Timeout) => Next::Quiet,
            Err(RecvTimeoutError::Disconnected) => Next::Ended,
        }
    }

    /// SIGKILL: no handler, no last word. True if the process died of it, false if it had ended by itself before.
    pub(crate) fn kill(mut self) -> Result<bool> {
        // Nothing to kill is told by the status below.
        let _ = self.child.kill();
        let status = self.child.wait().context("cannot wait for a killed process")?;
        Ok(was_killed(status))
    }

    /// Waits for its end, and fails if it failed, with its last messages.
    pub(crate) fn finish(mut self) -> Result<()> {
        let status = self.child.wait().context("cannot wait for a process")?;
        if !status.success() {
            bail!("`{}` failed: {status}\n{}", self.command, tail(&self.messages));
        }
        Ok(())
    }
}

impl Drop for WeirProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn was_killed(status: ExitStatus) -> bool {
    use std::os::unix::process::ExitStatusExt;
    status.signal() == Some(9)
}

fn tail(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}

/// Follows a run to its end, showing each event.
pub(crate) fn follow(running: WeirProcess, mut show: impl FnMut(&Progress)) -> Result<Option<Progress>> {
    let mut last = None;
    loop {
        match running.next(Duration::from_secs(1)) {
            Next::Event(Event::Progress(progress)) => {
                show(&progress);
                last = Some(progress);
            }
            Next::Event(Event::Summary(summary)) => last = Some(summary),
            Next::Quiet => {}
            Next::Ended => break,
        }
    }
    running.finish()?;
    Ok(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("xtask-child-{}-{name}", std::process::id()))
    }

    #[test]
    fn events_are_read_and_a_kill_is_told_from_an_end() {
        let file = messages("kill");
        let mut command = Command::new("sh");
        let running =
            WeirProcess::start(command.args(["-c", r#"echo '{"event":"progress","rows_in":3}'; exec sleep 60"#]), &file).unwrap();
        assert!(matches!(running.next(Duration::from_secs(30)), Next::Event(Event::Progress(p)) if p.rows_in == 3));
        assert!(running.kill().unwrap());

        let running = WeirProcess::start(&mut Command::new("true"), &file).unwrap();
        while !matches!(running.next(Duration::from_secs(30)), Next::Ended) {}
        // Its output has ended; give it the time to be gone.
        let mut running = running;
        running.child.wait().unwrap();
        assert!(!running.kill().unwrap());
        fs::remove_file(file).unwrap();
    }

    #[test]
    fn a_failing_run_is_told_with_its_last_messages() {
        let file = messages("fail");
        let running = WeirProcess::start(Command::new("sh").args(["-c", "echo no such job >&2; exit 2"]), &file).unwrap();
        let error = follow(running, |_| ()).unwrap_err().to_string();
        assert!(error.contains("no such job") && error.contains('2'), "{error}");
        fs::remove_file(file).unwrap();
    }
}
