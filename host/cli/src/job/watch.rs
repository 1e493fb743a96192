//! Watching a job: its events as they happen, and a status line, until it is over. The job never depends on who watches it:
//! Ctrl-C ends the watching, and a coordinator that is gone is waited for.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};
use weir_model::{ErrorNumber, OddKind};
use weir_protocol::api::{EventLevel, JobDetail, JobEvent, JobState, JobStatus};

use super::list;
use crate::client::{self, Client};
use crate::failure::{Exit, Failure};
use crate::global::Global;
use crate::odd;
use crate::output::{self, count, number};

/// Exit code of a command that was interrupted.
const INTERRUPTED: u8 = 130;

/// How long one look at the events waits for one. Also how soon Ctrl-C is heeded at the latest.
const STEP: Duration = Duration::from_millis(500);

/// Time between plain status lines where nobody can see one being updated.
const PLAIN_INTERVAL: Duration = Duration::from_secs(5);

/// What is shown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Until {
    /// Progress as messages, and the job's end as the result.
    Over,
    /// Events as results.
    EventsEnd,
}

/// Number of the last event of a job; 0 if there is no such job.
pub(super) fn last_event(client: &Client, name: &str) -> Result<u64, Failure> {
    match client.events(name, 0, Duration::ZERO) {
        Ok(events) => Ok(events.last().map_or(0, |event| event.number)),
        Err(failure) if failure.exit == Exit::Usage => Ok(0),
        Err(failure) => Err(failure),
    }
}

/// Watches a job from the event after `after` on.
pub(super) fn execute(client: Client, name: &str, after: u64, until: Until, global: &Global) -> anyhow::Result<ExitCode> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // A second one ends the process as usual.
        signal_hook::flag::register_conditional_default(signal, Arc::clone(&interrupted))?;
        signal_hook::flag::register(signal, Arc::clone(&interrupted))?;
    }
    let mut watch = Watch { client, name, after, until, global, line: StatusLine::new(global), state: None, away: false };
    while !interrupted.load(Ordering::Relaxed) {
        match watch.step() {
            Ok(Some(detail)) => return watch.end(&detail),
            Ok(None) => {}
            Err(error) => match error.downcast_ref::<Failure>() {
                Some(failure) if client::is_unreachable(failure) => watch.wait_for_coordinator(failure),
                _ => return Err(error),
            },
        }
    }
    watch.line.clear();
    global.note(&match watch.state {
        Some(JobState::Stopping) => format!("the job goes on stopping; `weir job show {name}` says whether it has stopped"),
        _ => format!("the job goes on; `weir job show {name}` says how it is doing, `weir job stop {name}` stops it"),
    });
    Ok(ExitCode::from(INTERRUPTED))
}

struct Watch<'a> {
    client: Client,
    name: &'a str,
    after: u64,
    until: Until,
    global: &'a Global,
    line: StatusLine,
    /// The job's, when it was seen last.
    state: Option<JobState>,
    /// The coordinator cannot be reached.
    away: bool,
}

impl Watch<'_> {
    /// Shows what is new. Gives the job when it is over and all events were shown.
    fn step(&mut self) -> anyhow::Result<Option<JobDetail>> {
        let events = self.client.events(self.name, self.after, STEP)?;
        if std::mem::take(&mut self.away) {
            self.global.note("the coordinator is there again");
        }
        let is_quiet = events.is_empty();
        for event in events {
            self.after = event.number;
            self.show(&event)?;
        }
        let detail = self.client.job(self.name)?;
        let status = &detail.status;
        self.state = Some(status.state);
        if status.state.is_over() && is_quiet {
            return Ok(Some(detail));
        }
        if self.until == Until::Over && !self.global.json {
            self.line.show(&status_line(status));
        }
        Ok(None)
    }

    fn show(&mut self, event: &JobEvent) -> anyhow::Result<()> {
        self.line.clear();
        match (self.global.json, self.until) {
            (true, _) => list::json_line(event),
            (false, Until::EventsEnd) => output::print(&format!("{}\n", list::event_line(event))),
            (false, Until::Over) => {
                let line = list::event_line(event);
                if event.level == EventLevel::Info {
                    self.global.note(&line);
                } else {
                    self.global.warn(&line);
                }
                Ok(())
            }
        }
    }

    fn wait_for_coordinator(&mut self, failure: &Failure) {
        if !std::mem::replace(&mut self.away, true) {
            self.line.clear();
            self.global.warn(&format!("warning: {failure}; jobs go on without it, and this waits until it is there again"));
        }
        std::thread::sleep(STEP);
    }

    /// Says how the job ended.
    fn end(mut self, detail: &JobDetail) -> anyhow::Result<ExitCode> {
        let status = &detail.status;
        self.line.clear();
        if self.until == Until::EventsEnd {
            return Ok(ExitCode::SUCCESS);
        }
        if self.global.json {
            output::print(&format!("{}\n", serde_json::to_string(status)?))?;
        }
        let reason = status.reason.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default();
        match status.state {
            JobState::Failed => {
                let message = format!("job {} failed{reason}", status.name);
                Err(Failure::new(ErrorNumber::JobFailed, Exit::Failed, message)
                    .hint(format!("`weir job events {}` says what led to it", status.name))
                    .into())
            }
            JobState::Cancelled => {
                self.global.note(&format!("{} was cancelled", status.name));
                Ok(Exit::Failed.into())
            }
            _ => {
                let (read, written) = (count(status.rows_read, "row"), number(status.rows_written));
                let counts = format!("{}: {}{reason}; {read} read, {written} written", status.name, status.state);
                match odd::words(&status.oddities) {
                    None => self.global.note(&counts),
                    Some(odd) => self.global.warn(&format!("{counts}; {odd}{}", letters(detail))),
                }
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}

/// Where rejected rows are, as the end of a sentence.
fn letters(detail: &JobDetail) -> String {
    if detail.status.oddities.rows(OddKind::Rejected) == 0 || detail.dead_letters.is_empty() {
        return String::new();
    }
    format!("; rejected rows, each with its reason, are in {}", detail.dead_letters.join(", "))
}

fn status_line(status: &JobStatus) -> String {
    let last = status
        .checkpoint
        .as_ref()
        .map_or_else(|| "no checkpoint yet".to_owned(), |last| format!("checkpoint {}", list::checkpoint(last)));
    let (rows, rate) = (count(status.rows_read, "row"), number(status.rows_per_second as u64));
    let odd = odd::part(&status.oddities);
    format!("{}: {} | {rows}, {rate} rows/s{odd} | {last}", status.name, list::state(status))
}

/// One line that is kept up to date on a terminal, and printed now and then elsewhere.
struct StatusLine {
    quiet: bool,
    colour: output::Colour,
    on_terminal: bool,
    stands: bool,
    plain_at: Option<Instant>,
}

impl StatusLine {
    fn new(global: &Global) -> StatusLine {
        let on_terminal = std::io::stderr().is_terminal();
        StatusLine { quiet: global.quiet, colour: global.colour, on_terminal, stands: false, plain_at: None }
    }

    fn show(&mut self, text: &str) {
        if self.quiet {
            return;
        }
        if self.on_terminal {
            // Return to the line's start and clear what is left of the longer one before.
            output::status(text);
            self.stands = true;
        } else if self.plain_at.is_none_or(|at| at.elapsed() >= PLAIN_INTERVAL) {
            self.plain_at = Some(Instant::now());
            output::message(text, self.colour);
        }
    }

    fn clear(&mut self) {
        if std::mem::take(&mut self.stands) {
            output::status("");
        }
    }
}
