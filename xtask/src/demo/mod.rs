//! `cargo xtask demo`: the page-view job of examples/pageviews on a log of two million lines, killed with SIGKILL in the middle and
//! run again. Its output must equal an independent recount of the log.

mod log;
mod random;
mod recount;
mod results;
mod screen;
mod verdict;

use crate::build::Profile;
use crate::child::{self, Next, WeirProcess};
use crate::progress::{Event, Progress};
use crate::setup::{self, Workplace};
use crate::shell::{self, Arguments};
use crate::workspace::Workspace;
use anyhow::{Context, Result, bail};
use screen::Screen;
use std::fs;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use verdict::{Verdict, grouped};

const JOB: &str = "examples/pageviews/job.toml";
/// Often enough for several checkpoints before the kill, also where the whole log takes a second or two.
const CHECKPOINT_INTERVAL: &str = "100ms";
/// The kill comes once this share of the log is read and a checkpoint has completed.
const KILL_AT_PERCENT: u64 = 45;
/// How often a run may end before it could be killed.
const ATTEMPTS_MAX: u32 = 3;

/// The demo's files.
struct Folders {
    log: PathBuf,
    data: PathBuf,
    out: PathBuf,
    late: PathBuf,
    bad: PathBuf,
    messages: PathBuf,
}

pub(crate) fn main(arguments: &[String]) -> Result<()> {
    let mut shape = log::Shape::default();
    let mut arguments = Arguments::new(arguments);
    while let Some(argument) = arguments.next() {
        match argument {
            "--lines" => shape.lines = arguments.value(argument)?.parse().context("--lines needs a number")?,
            "--seed" => shape.seed = arguments.value(argument)?.parse().context("--seed needs a number")?,
            other => return shell::unknown("demo", other),
        }
    }
    let workspace = Workspace::load()?;
    let folder = workspace.target.join("xtask/demo");
    let at = |name: &str| folder.join(name);
    let (log, messages) = (at("access.log"), at("weir.log"));
    let folders = Folders { log, messages, data: at("data"), out: at("out"), late: at("late"), bad: at("bad") };
    for old in [&folders.data, &folders.out, &folders.late, &folders.bad] {
        remove(old)?;
    }
    fs::create_dir_all(&folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;
    let weir = setup::host(&workspace, Profile::Dev)?;
    let prepared = Workplace { weir, data_dir: folders.data.clone() };
    let started = Instant::now();
    let mut screen = Screen::new();
    let is_good = play(&workspace, &prepared, &folders, &shape, &mut screen)?;
    screen.say(&format!("  {:.0} s after the build; files are in {}", started.elapsed().as_secs_f64(), folder.display()));
    if !is_good {
        bail!("the job's output differs from the recount");
    }
    Ok(())
}

/// The demo itself; false if the output is wrong.
fn play(workspace: &Workspace, prepared: &Workplace, folders: &Folders, shape: &log::Shape, screen: &mut Screen) -> Result<bool> {
    screen.say(&format!("\n1. An access log of {} lines, seed {}: {}", grouped(shape.lines), shape.seed, folders.log.display()));
    let written = write_log(folders, shape, screen)?;
    let (late, malformed) = (grouped(written.late), grouped(written.malformed));
    screen.say(&format!("  {} lines, of which {late} come late and {malformed} are malformed", grouped(written.lines)));

    screen.say(&format!("2. weir run {JOB}, killed with SIGKILL in the middle"));
    let killed_at = run_and_kill(workspace, prepared, folders, shape.lines, screen)?;
    let visible = grouped(results::visible_rows(&folders.out)?);
    screen.say(&format!("  killed at {} rows; {visible} results are visible, all of completed checkpoints", grouped(killed_at)));

    screen.say("3. The same command again: it goes on from the last completed checkpoint");
    let running = WeirProcess::start(&mut command(workspace, prepared, folders, false), &folders.messages)?;
    child::follow(running, |progress| screen.progress(progress, shape.lines))?;

    screen.say("4. An independent recount of the log, compared with what the job wrote");
    screen.pass("  counting");
    let recount = recount::recount(&folders.log)?;
    let results = results::Results::read(&folders.out, &folders.late, &folders.bad)?;
    let verdict = Verdict::of(&recount, &results);
    screen.say(&verdict.table(&recount, &results));
    let is_good = verdict.is_good();
    screen.say(if is_good {
        "  EQUAL: every line is counted once, kill or no kill"
    } else {
        "  DIFFERENT: this is a bug in Weir"
    });
    Ok(is_good)
}

fn write_log(folders: &Folders, shape: &log::Shape, screen: &mut Screen) -> Result<log::LogSummary> {
    let file = fs::File::create(&folders.log).with_context(|| format!("cannot write {}", folders.log.display()))?;
    let mut out = BufWriter::with_capacity(1 << 20, file);
    let written = log::write(shape, &mut out, &mut |lines| screen.pass(&format!("  {:>10} lines", grouped(lines))));
    written.with_context(|| format!("cannot write {}", folders.log.display()))
}

/// Starts the job from scratch and kills it in the middle. A machine so fast that the job ended first gets another try, with the kill
/// right after the first checkpoint. Gives the number of rows read when it was killed.
fn run_and_kill(workspace: &Workspace, prepared: &Workplace, folders: &Folders, lines: u64, screen: &mut Screen) -> Result<u64> {
    for attempt in 0..ATTEMPTS_MAX {
        let kill_at = if attempt == 0 { lines * KILL_AT_PERCENT / 100 } else { 1 };
        let running = WeirProcess::start(&mut command(workspace, prepared, folders, attempt > 0), &folders.messages)?;
        match until(&running, kill_at, |progress| screen.progress(progress, lines)) {
            Some(rows) => {
                if running.kill()? {
                    return Ok(rows);
                }
            }
            None => running.finish()?,
        }
        screen.say("  the job ended before it could be killed; once more");
    }
    bail!(
        "the job ended {ATTEMPTS_MAX} times before it could be killed; use a longer log: cargo xtask demo --lines {}",
        lines * 10
    )
}

/// Waits until `rows` are read and a checkpoint has completed. Nothing if the run ended before.
fn until(running: &WeirProcess, rows: u64, mut show: impl FnMut(&Progress)) -> Option<u64> {
    loop {
        match running.next(Duration::from_secs(1)) {
            Next::Event(Event::Progress(progress)) => {
                show(&progress);
                if progress.checkpoint.is_some() && progress.rows_in >= rows {
                    return Some(progress.rows_in);
                }
            }
            Next::Event(Event::Summary(_)) | Next::Ended => return None,
            Next::Quiet => {}
        }
    }
}

fn command(workspace: &Workspace, prepared: &Workplace, folders: &Folders, is_fresh: bool) -> Command {
    let mut command = Command::new(&prepared.weir);
    command.arg("run").arg(workspace.root.join(JOB)).arg("--json").arg("--data-dir").arg(&prepared.data_dir);
    let mut set = |key: &str, value: &Path| {
        command.arg("--set").arg(format!("{key}={}", value.display()));
    };
    set("source.log.path", &folders.log);
    set("sink.out.path", &folders.out);
    set("sink.late.path", &folders.late);
    set("sink.bad.path", &folders.bad);
    set("job.checkpoint.interval", Path::new(CHECKPOINT_INTERVAL));
    if is_fresh {
        command.arg("--fresh");
    }
    command
}

fn remove(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", folder.display()))
        }
        _ => Ok(()),
    }
}
