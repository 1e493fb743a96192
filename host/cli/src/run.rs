//! `weir run`: a whole job in this process.

mod display;
mod json;
mod local;
mod summary;

use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use weir_coordinator::{JobError, MasterJob, Notice, Outcome, Progress};
use weir_model::{CheckpointId, ErrorNumber};
use weir_plan::{Job, parse_duration};
use weir_worker::{ConnectorLine, describe_connectors};

use crate::Native;
use crate::failure::{Exit, Failure};
use crate::global::Global;
use crate::job_file::JobFileArgs;
use crate::job_spec;
use crate::output;
use crate::run::local::StopHandle;
use crate::sandbox::{self, MemoryArgs};

/// Exit code of a job that was interrupted.
const INTERRUPTED: u8 = 130;

/// Exit code of a process that writes to a pipe nobody reads: as of one that SIGPIPE ends.
const READER_GONE: u8 = 141;

/// How long a job that was asked to stop may wait for the reader of standard output.
const READER_PATIENCE: Duration = Duration::from_secs(3);

/// `weir run`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    file: JobFileArgs,
    #[command(flatten)]
    memory: MemoryArgs,
    /// Forget what was processed before, and start over
    #[arg(long)]
    fresh: bool,
    /// Go on although the last checkpoint has state of an operator that the job file no longer names; that state is dropped
    #[arg(long)]
    allow_dropped_state: bool,
    /// Go back to an older checkpoint, where the last is damaged, although a sink cannot take back what it has shown since: those rows
    /// are shown again
    #[arg(long)]
    allow_repeated_output: bool,
    /// Stop with a last checkpoint after this long, such as 30s or 5m
    #[arg(long = "for", value_name = "DURATION", value_parser = duration)]
    stop_after: Option<Duration>,
}

fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).map_err(|error| error.to_string())
}

pub(crate) fn execute(args: &Args, global: &Global, native: &Native) -> anyhow::Result<ExitCode> {
    let (mut spec, job, components) = job_spec::for_this_process(&args.file, native, global)?;
    spec.allow_repeated_output = args.allow_repeated_output;
    let connectors = describe_connectors(&job, Path::new(&spec.job_dir))?;
    let sandbox = sandbox::start(&args.memory, global)?;
    let letters = spec.load().map(|job| job.dead_letters()).unwrap_or_default();
    let view = Arc::new(Mutex::new(View::new(global, &job, &letters)));
    lock(&view).begin(&connectors, &sandbox.tracking().to_string());
    let settings = MasterJob {
        spec,
        default_storage: global.data_dir.join("jobs").to_string_lossy().into_owned(),
        fresh: args.fresh,
        allow_dropped_state: args.allow_dropped_state,
        patient: false,
        adopted: None,
    };
    let shown = view.clone();
    let process = local::Process { sandbox, components, native: native.clone() };
    let job = process.start(settings, Box::new(move |notice| lock(&shown).notice(notice)))?;
    let interrupted = Arc::new(AtomicBool::new(false));
    let signals = listen(job.stop_handle(), interrupted.clone(), global)?;
    let colour = global.colour;
    if let Some(after) = args.stop_after {
        let stop = job.stop_handle();
        std::thread::spawn(move || {
            std::thread::sleep(after);
            stop.stop();
            wait_for_reader(colour);
        });
    }
    let outcome = job.run();
    signals.close();
    lock(&view).end();
    if outcome.is_err() && weir_connectors::stdout_is_closed() {
        // `weir run ... | head`: nobody wants to hear more of it.
        return Ok(ExitCode::from(READER_GONE));
    }
    match outcome.map_err(|error| explained(&error))? {
        Outcome::Finished(progress) => {
            lock(&view).summary("finished", Some(&progress))?;
            Ok(ExitCode::SUCCESS)
        }
        stopped @ (Outcome::Stopped(_) | Outcome::StoppedBetween { .. }) => {
            let with_checkpoint = match &stopped {
                Outcome::Stopped(progress) => Some(&**progress),
                _ => None,
            };
            lock(&view).summary("stopped", with_checkpoint)?;
            let code = if interrupted.load(Ordering::Relaxed) { ExitCode::from(INTERRUPTED) } else { ExitCode::SUCCESS };
            Ok(code)
        }
        Outcome::AlreadyFinished { checkpoint, at_ms, looked_at } => {
            lock(&view).already_finished(checkpoint, at_ms, &looked_at)?;
            Ok(ExitCode::SUCCESS)
        }
        Outcome::Cancelled | Outcome::Left => unreachable!("nobody asks this of a job in this process"),
    }
}

fn lock(view: &Mutex<View>) -> MutexGuard<'_, View> {
    view.lock().expect("nobody panics while it shows something")
}

/// Ctrl-C stops the job with a last checkpoint; a second one ends the process at once, which loses nothing but time.
fn listen(stop: StopHandle, interrupted: Arc<AtomicBool>, global: &Global) -> anyhow::Result<signal_hook::iterator::Handle> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let handle = signals.handle();
    let (quiet, colour) = (global.quiet, global.colour);
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for _ in signals.forever() {
            if interrupted.swap(true, Ordering::Relaxed) {
                std::process::exit(i32::from(INTERRUPTED));
            }
            if !quiet {
                output::message(
                    "\nstopping with a last checkpoint; again to stop at once and resume from the one before",
                    colour,
                );
            }
            stop.stop();
            std::thread::spawn(move || wait_for_reader(colour));
        }
    })?;
    Ok(handle)
}

/// Ends the process, which was asked to stop, if its last checkpoint waits for somebody to read standard output. What was not
/// read is in no checkpoint, and comes again when the job goes on.
fn wait_for_reader(colour: output::Colour) {
    while weir_connectors::stdout_waits_for() < READER_PATIENCE {
        std::thread::sleep(Duration::from_millis(100));
    }
    let message = "warning: what reads standard output takes nothing: stopped without a last checkpoint; the job resumes from the one \
                   before";
    output::message(message, colour);
    std::process::exit(i32::from(INTERRUPTED));
}

/// An error of a job with its number and exit code.
fn explained(error: &JobError) -> anyhow::Error {
    let (number, exit) = match error {
        JobError::JobFile(problems) => return problems.clone().into(),
        JobError::Rejected(_) => (ErrorNumber::WorkerCannotUse, Exit::Usage),
        JobError::Storage(_) => (ErrorNumber::CheckpointStorage, Exit::Failed),
        JobError::Refused(_) => (ErrorNumber::StateDoesNotFit, Exit::Refused),
        JobError::Damaged(_) => (ErrorNumber::NoCheckpointRestorable, Exit::Failed),
        JobError::Failed { .. } => (ErrorNumber::JobFailed, Exit::Failed),
    };
    Failure::new(number, exit, error.to_string()).into()
}

/// What is shown of a job: lines for people, or JSON for programs.
enum View {
    People(display::Display),
    Programs(json::Lines),
}

impl View {
    fn new(global: &Global, job: &Job, letters: &[String]) -> View {
        if global.json {
            View::Programs(json::Lines::new(job, letters))
        } else {
            View::People(display::Display::new(global, job, letters))
        }
    }

    fn begin(&mut self, connectors: &[ConnectorLine], tracking: &str) {
        match self {
            View::People(display) => display.begin(connectors, tracking),
            View::Programs(lines) => lines.begin(connectors, tracking),
        }
    }

    fn notice(&mut self, notice: &Notice) {
        match self {
            View::People(display) => display.notice(notice),
            View::Programs(lines) => lines.notice(notice),
        }
    }

    fn end(&mut self) {
        if let View::People(display) = self {
            display.end();
        }
    }

    fn summary(&mut self, how: &str, progress: Option<&Progress>) -> anyhow::Result<()> {
        match self {
            View::People(display) => display.summary(how, progress),
            View::Programs(lines) => lines.summary(how, progress),
        }
    }

    fn already_finished(&mut self, checkpoint: CheckpointId, at_ms: u64, looked_at: &[(String, String)]) -> anyhow::Result<()> {
        match self {
            View::People(display) => display.already_finished(checkpoint, at_ms, looked_at),
            View::Programs(lines) => lines.already_finished(checkpoint, at_ms, looked_at),
        }
    }
}
