//! What `weir run` shows to people: one line that is kept up to date on a terminal, plain lines now and then elsewhere.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use weir_coordinator::{Notice, Progress};
use weir_model::{CheckpointId, Timestamp, WATERMARK_END, WATERMARK_START};
use weir_plan::{Job, Vertex, VertexKind};
use weir_worker::ConnectorLine;

use super::summary;
use crate::global::Global;
use crate::odd;
use crate::output::{self, Colour};

/// Time between plain lines where nobody can see one being updated.
const PLAIN_INTERVAL: Duration = Duration::from_secs(5);

/// The lines on standard error.
pub(super) struct Display {
    job: String,
    /// Where rejected rows go.
    letters: Option<String>,
    quiet: bool,
    colour: Colour,
    on_terminal: bool,
    /// A status line stands at the cursor.
    has_status: bool,
    plain_at: Option<Instant>,
    started: Instant,
    /// There is a checkpoint to go on from.
    has_checkpoint: bool,
    /// Sources that read files.
    file_sources: Vec<String>,
}

impl Display {
    /// `letters` says where rejected rows go.
    pub(super) fn new(global: &Global, job: &Job, letters: &[String]) -> Display {
        Display {
            job: job.name.clone(),
            letters: (!letters.is_empty()).then(|| letters.join(", ")),
            quiet: global.quiet,
            colour: global.colour,
            on_terminal: io::stderr().is_terminal(),
            has_status: false,
            plain_at: None,
            started: Instant::now(),
            has_checkpoint: false,
            file_sources: file_sources(job),
        }
    }

    /// Says what the job reads and writes, and what it promises.
    pub(super) fn begin(&mut self, connectors: &[ConnectorLine], tracking: &str) {
        for line in connectors {
            self.say(&format!("{:>12}  {} ({})", line.uid, line.description, line.promise));
        }
        if let Some(letters) = self.letters.clone() {
            self.say(&format!("dead letters  rejected rows, each with its reason, in {letters}"));
        }
        tracing::info!(tracking, "how written pages are found");
    }

    pub(super) fn notice(&mut self, notice: &Notice) {
        match notice {
            Notice::Started { from, .. } => self.has_checkpoint = from.is_some(),
            Notice::MoreInput { .. } | Notice::Completed { .. } => self.has_checkpoint = true,
            _ => {}
        }
        match notice {
            Notice::Started { attempt, from: None } => self.say(&format!("{}: started (attempt {attempt})", self.job)),
            Notice::Started { attempt, from: Some(checkpoint) } => {
                self.say(&format!("{}: resumed from checkpoint {checkpoint} (attempt {attempt})", self.job));
            }
            Notice::MoreInput { checkpoint, found, event_time_max } => {
                let closed = event_time_max.map(closed).unwrap_or_default();
                let text = by_source(found);
                self.say(&format!(
                    "{}: had finished (checkpoint {checkpoint}), and there is more to read\n{text}{closed}",
                    self.job
                ));
            }
            Notice::FellBack { checkpoint, reason } => self.warn(&format!(
                "warning: checkpoint {checkpoint} cannot be used, so an older one is: {reason}; \
                 output that was committed after the older one will be written again"
            )),
            Notice::Progress(progress) => self.status(progress),
            Notice::WaitsForRestore { what, checkpoint, restore } => {
                let (done, all) = (output::size(restore.restored_bytes), output::size(restore.bytes));
                self.say(&format!(
                    "{}: {what} waits until checkpoint {checkpoint} is restored ({done} of {all} so far)",
                    self.job
                ));
            }
            // The next status line has it; the others are of a cluster: a process alone has one worker, and slots for everyone.
            Notice::Completed { .. }
            | Notice::Restored { .. }
            | Notice::Waiting(_)
            | Notice::Deploying { .. }
            | Notice::TakenOver { .. }
            | Notice::WorkerLost { .. }
            | Notice::Ending { .. }
            | Notice::SlowEnd { .. }
            | Notice::NotRecorded { .. }
            | Notice::Rescaling { .. }
            | Notice::RescaleRefused { .. } => {}
            Notice::CheckpointFailed { checkpoint, reason } => {
                self.warn(&format!("warning: checkpoint {checkpoint} failed: {reason}"));
            }
            Notice::Restarting { reason, delay } => {
                let from = if self.has_checkpoint { "the last checkpoint" } else { "the beginning" };
                self.warn(&format!("warning: {reason}; restarting from {from} in {delay:.1?}"));
            }
            Notice::SlowStep { step, waited, .. } => {
                self.warn(&format!("warning: this process {step} (waited for {} s)", waited.as_secs()));
            }
            Notice::SlowStorage { what, place, waited } => {
                self.warn(&format!("warning: {place} has not answered for {} s: {what}", waited.as_secs()));
            }
            Notice::SlowCommit { sinks, waited, .. } => {
                let (sinks, waited) = (sinks.join(", "), waited.as_secs());
                self.warn(&format!(
                    "warning: sink {sinks} has not committed its output for {waited} s; what it writes to may be a mount or a store that hangs"
                ));
            }
            Notice::OddRows { message } => self.warn(&format!("warning: {message}")),
            Notice::Stopping => {}
        }
    }

    fn status(&mut self, progress: &Progress) {
        if self.quiet {
            return;
        }
        let line = self.status_line(progress);
        if self.on_terminal {
            // Return to the line's start and clear what is left of the longer one before.
            output::status(&line);
            self.has_status = true;
        } else if self.plain_at.is_none_or(|at| at.elapsed() >= PLAIN_INTERVAL) {
            self.plain_at = Some(Instant::now());
            output::message(&line, self.colour);
        }
    }

    fn status_line(&self, progress: &Progress) -> String {
        let checkpoint = match (&progress.restore, &progress.checkpoint) {
            (Some(of), _) => format!("restored {} of {}", output::size(of.restored_bytes), output::size(of.bytes)),
            (None, Some(last)) => format!("checkpoint {}: {:.0?}, {}", last.id, round(last.duration), output::size(last.bytes)),
            (None, None) => "no checkpoint yet".to_owned(),
        };
        format!(
            "{}: {}, {} rows/s{} | watermark {} | {checkpoint}",
            self.job,
            output::count(progress.rows_read, "row"),
            output::number(progress.rows_per_second as u64),
            odd::part(&progress.oddities()),
            watermark(progress.watermark),
        )
    }

    /// Leaves the status line as it is.
    pub(super) fn end(&mut self) {
        if std::mem::take(&mut self.has_status) {
            eprint_raw("\n");
        }
    }

    pub(super) fn summary(&mut self, how: &str, progress: Option<&Progress>) -> anyhow::Result<()> {
        if self.quiet {
            // What is wrong is told also where nobody wants to hear of progress.
            let odd = progress.map(|progress| summary::odd(progress, self.letters.as_deref())).unwrap_or_default();
            if !odd.is_empty() {
                output::message(&format!("{}: {how}\n{odd}", self.job), self.colour);
            }
            return Ok(());
        }
        let took = self.started.elapsed();
        let text = match progress {
            Some(progress) => summary::text(&self.job, how, progress, took, self.letters.as_deref()),
            None => format!("{}: {how} while it was not running, so no last checkpoint was taken\n", self.job),
        };
        output::message(&text, self.colour);
        if how == "stopped" {
            let again = match (progress.is_some(), self.has_checkpoint) {
                (true, _) => "go on from here",
                (false, true) => "go on from the checkpoint before",
                (false, false) => "begin again: there is no checkpoint yet",
            };
            output::message(&format!("run the same command again to {again}"), self.colour);
        }
        Ok(())
    }

    pub(super) fn already_finished(
        &mut self,
        checkpoint: CheckpointId,
        at_ms: u64,
        looked_at: &[(String, String)],
    ) -> anyhow::Result<()> {
        let of_files = looked_at.iter().map(|(uid, _)| uid).find(|uid| self.file_sources.contains(*uid));
        let path = of_files.map(|uid| format!("--set source.{uid}.path=... reads other input, ")).unwrap_or_default();
        let text = format!(
            "{}: had finished already, {} (checkpoint {checkpoint}), and there is nothing more to read; nothing was done\n{}  \
             = hint: {path}--fresh starts over, and --set job.name=... makes it another job",
            self.job,
            output::ago(at_ms),
            by_source(looked_at),
        );
        output::message(&text, self.colour);
        Ok(())
    }

    fn say(&mut self, text: &str) {
        if self.quiet {
            return;
        }
        self.warn(text);
    }

    /// Says what is wrong, also where nobody wants to hear of progress.
    fn warn(&mut self, text: &str) {
        self.end();
        output::message(text, self.colour);
    }
}

/// Ids of the sources whose input is named by a path.
fn file_sources(job: &Job) -> Vec<String> {
    let is_file = |vertex: &&Vertex| matches!(&vertex.kind, VertexKind::Source(source) if source.settings.contains_key("path"));
    job.vertices.iter().filter(is_file).map(|vertex| vertex.uid.clone()).collect()
}

/// What sources say, a line each.
fn by_source(said: &[(String, String)]) -> String {
    said.iter().map(|(uid, what)| format!("{uid:>12}  {what}\n")).collect()
}

/// What the end of the input before has closed.
fn closed(event_time_max: Timestamp) -> String {
    format!(
        "{:>12}  event time goes on from {}: what the end has closed stays closed, and earlier rows are late\n",
        "",
        output::time(event_time_max)
    )
}

fn eprint_raw(text: &str) {
    let mut err = io::stderr().lock();
    let _ = err.write_all(text.as_bytes()).and_then(|()| err.flush());
}

/// A duration without digits that nobody reads.
fn round(duration: Duration) -> Duration {
    match duration.as_millis() {
        0 => duration,
        _ => Duration::from_millis(duration.as_millis() as u64),
    }
}

/// Event time for people.
fn watermark(watermark: Timestamp) -> String {
    match watermark {
        WATERMARK_START => "-".to_owned(),
        WATERMARK_END => "end".to_owned(),
        time => output::time(time),
    }
}
