//! `weir run`: a whole job in this process.

mod display;
mod json;
mod summary;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use weir_plan::{ComponentRef, Job, parse_duration};
use weir_sandbox::{Sandbox, SandboxOptions, Tracking};
use weir_worker::{Components, JobError, Notice, Options, Outcome, ResolvedComponent, RunningJob, StopHandle, prepare};

use crate::Native;
use crate::failure::{Exit, Failure};
use crate::global::Global;
use crate::job_file::{self, JobFile, JobFileArgs};
use crate::output;
use crate::store::{self, ComponentStore};

/// Exit code of a job that was interrupted.
const INTERRUPTED: u8 = 130;

/// `weir run`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    file: JobFileArgs,
    /// Forget what was processed before, and start over
    #[arg(long)]
    fresh: bool,
    /// Go on although the last checkpoint has state of an operator that the job file no longer names; that state is dropped
    #[arg(long)]
    allow_dropped_state: bool,
    /// Stop with a last checkpoint after this long, such as 30s or 5m
    #[arg(long = "for", value_name = "DURATION", value_parser = duration, conflicts_with = "until_end")]
    stop_after: Option<Duration>,
    /// Run until all input has ended or the job is interrupted; this is the default
    #[arg(long)]
    until_end: bool,
}

fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).map_err(|error| error.to_string())
}

/// The component store as jobs see it.
struct Store {
    store: ComponentStore,
    job_dir: PathBuf,
}

impl Components for Store {
    fn resolve(&self, component: &ComponentRef) -> Result<ResolvedComponent, String> {
        match store::resolve(&self.store, component, &self.job_dir) {
            Ok(found) => Ok(ResolvedComponent { bytes: found.bytes, name: found.name }),
            Err(failure) => Err(match &failure.hint {
                Some(hint) => format!("{failure}; {hint}"),
                None => failure.to_string(),
            }),
        }
    }
}

pub(crate) fn execute(args: &Args, global: &Global, native: &Native) -> anyhow::Result<ExitCode> {
    let file = job_file::load(&args.file, global)?;
    let options = options(args, &file, global, native)?;
    let tracking = options.sandbox.tracking().to_string();
    let prepared = prepare(file.job, options).map_err(|error| explained(&error))?;
    let mut view = View::new(global, prepared.job());
    view.begin(&prepared, &tracking);
    let running = RunningJob::new(prepared);
    let interrupted = Arc::new(AtomicBool::new(false));
    let signals = listen(running.stop_handle(), interrupted.clone(), global)?;
    if let Some(after) = args.stop_after {
        let stop = running.stop_handle();
        std::thread::spawn(move || {
            std::thread::sleep(after);
            stop.stop();
        });
    }
    let outcome = running.run(&mut |notice| view.notice(&notice));
    signals.close();
    view.end();
    match outcome.map_err(|error| explained(&error))? {
        Outcome::Finished(progress) => {
            view.summary("finished", Some(&progress))?;
            Ok(ExitCode::SUCCESS)
        }
        Outcome::Stopped(progress) => {
            view.summary("stopped", progress.as_deref())?;
            let code = if interrupted.load(Ordering::Relaxed) { ExitCode::from(INTERRUPTED) } else { ExitCode::SUCCESS };
            Ok(code)
        }
        Outcome::AlreadyFinished { checkpoint, at_ms } => {
            view.already_finished(checkpoint, at_ms)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn options(args: &Args, file: &JobFile, global: &Global, native: &Native) -> anyhow::Result<Options> {
    let sandbox = Sandbox::new(SandboxOptions {
        cache: Some(global.data_dir.join("compiled")),
        tracking: Tracking::Auto,
        epoch_interruption: true,
    })
    .map_err(|error| Failure::new("E0030", Exit::Failed, format!("cannot start the sandbox: {error}")))?;
    let store = Store { store: ComponentStore::open(&global.data_dir), job_dir: file.folder.clone() };
    Ok(Options {
        data_dir: global.data_dir.clone(),
        job_dir: file.folder.clone(),
        origin: file.path.to_string_lossy().into_owned(),
        fresh: args.fresh,
        allow_dropped_state: args.allow_dropped_state,
        sandbox,
        components: Arc::new(store),
        native: native.clone(),
    })
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
        }
    })?;
    Ok(handle)
}

/// An error of a job with its number and exit code.
fn explained(error: &JobError) -> anyhow::Error {
    let (number, exit) = match error {
        JobError::JobFile(problems) => return problems.clone().into(),
        JobError::Storage(_) => ("E0031", Exit::Failed),
        JobError::Refused(_) => ("E0032", Exit::Refused),
        JobError::Damaged(_) => ("E0033", Exit::Failed),
        JobError::Failed { .. } => ("E0034", Exit::Failed),
    };
    Failure::new(number, exit, error.to_string()).into()
}

/// What is shown of a job: lines for people, or JSON for programs.
enum View {
    People(display::Display),
    Programs(json::Lines),
}

impl View {
    fn new(global: &Global, job: &Job) -> View {
        if global.json { View::Programs(json::Lines::new(job)) } else { View::People(display::Display::new(global, job)) }
    }

    fn begin(&mut self, prepared: &weir_worker::PreparedJob, tracking: &str) {
        match self {
            View::People(display) => display.begin(prepared, tracking),
            View::Programs(lines) => lines.begin(prepared, tracking),
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

    fn summary(&mut self, how: &str, progress: Option<&weir_worker::Progress>) -> anyhow::Result<()> {
        match self {
            View::People(display) => display.summary(how, progress),
            View::Programs(lines) => lines.summary(how, progress),
        }
    }

    fn already_finished(&mut self, checkpoint: weir_model::CheckpointId, at_ms: u64) -> anyhow::Result<()> {
        match self {
            View::People(display) => display.already_finished(checkpoint, at_ms),
            View::Programs(lines) => lines.already_finished(checkpoint, at_ms),
        }
    }
}
