//! Compiling components: foreign input to a large program, so it happens in a process of its own, with bounds on time, memory, files and
//! network, and below everything else in priority. In this process only where nobody says which program does it.
//!
//! Owns both ends of the child: what is sent, what comes back, and what its death means. The artefact is machine code of this host's
//! engine; only the child that this module started makes it.
#![allow(unsafe_code, reason = "loading machine code is unsafe; it comes from a child of this process")]

mod child;
mod turns;

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use wasmtime::Engine;
use wasmtime::component::Component;
use weir_model::{Description, limits};

pub(crate) use child::{Errand, Settings, bound, compile};
pub(crate) use turns::Turns;

/// Bytes of a compiler's last words that are kept.
const WORDS_BYTES_MAX: u64 = 16 << 10;

/// Threads of one compilation.
const THREADS_MAX: usize = 8;

/// A program that compiles components for this process, and asks them what they are: one that calls [`crate::compile_as_child`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompilerProcess {
    /// What is executed. It must be built from the same sources: artefacts of another wasmtime are refused.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// CPU time of one compilation, over all its threads, in seconds. Default [`limits::COMPILE_CPU_S_MAX`].
    pub cpu_s_max: u64,
    /// CPU time in which a component says what it is, in seconds. Default [`limits::DESCRIBE_CPU_S_MAX`].
    pub describe_cpu_s_max: u64,
    /// Memory of one compilation. Default [`limits::COMPILE_MEMORY_BYTES_MAX`].
    pub memory_bytes_max: u64,
    /// Time until it is ended, however little of the CPU it got. Default [`limits::COMPILE_MS_MAX`].
    pub time_max: Duration,
}

impl CompilerProcess {
    /// This very program, also if its file has been replaced since, called with these arguments.
    pub fn this_program(args: impl IntoIterator<Item = OsString>) -> CompilerProcess {
        CompilerProcess {
            program: PathBuf::from("/proc/self/exe"),
            args: args.into_iter().collect(),
            cpu_s_max: limits::COMPILE_CPU_S_MAX,
            describe_cpu_s_max: limits::DESCRIBE_CPU_S_MAX,
            memory_bytes_max: limits::COMPILE_MEMORY_BYTES_MAX,
            time_max: Duration::from_millis(limits::COMPILE_MS_MAX),
        }
    }

    /// Compiles a component; an error is why not, in words for its author.
    pub(crate) fn compile(
        &self,
        engine: &Engine,
        epoch_interruption: bool,
        bytes: &[u8],
    ) -> Result<(Component, Vec<u8>), String> {
        let (errand, cpu_s_max, memory_bytes_max) = (Errand::Compile, self.cpu_s_max, self.memory_bytes_max);
        let settings = Settings { errand, epoch_interruption, cpu_s_max, memory_bytes_max };
        let artefact = self.run(settings, bytes, self.time_max, limits::ARTEFACT_BYTES_MAX)?;
        // SAFETY: a child of this process made these bytes from the component, by the same wasmtime; nobody else could write to its
        // output. They are in memory nobody else can change.
        let component = unsafe { Component::deserialize(engine, &artefact) };
        component
            .map(|component| (component, artefact))
            .map_err(|error| format!("the compiler's output does not load: {error:#}"))
    }

    /// Asks a component what it is, given its machine code; an error is why it does not say, in words for its author. The answer is not
    /// checked.
    pub(crate) fn describe(&self, epoch_interruption: bool, artefact: &[u8]) -> Result<Description, String> {
        // The machine code is there twice for a moment, as it is sent and as it is loaded.
        let memory_bytes_max = limits::DESCRIBE_MEMORY_BYTES_MAX + 2 * artefact.len() as u64;
        let (errand, cpu_s_max) = (Errand::Describe, self.describe_cpu_s_max);
        let settings = Settings { errand, epoch_interruption, cpu_s_max, memory_bytes_max };
        let time_max = Duration::from_millis(limits::DESCRIBE_MS_MAX);
        // JSON takes up to six bytes for one of text.
        let text = self.run(settings, artefact, time_max, 8 * limits::DESCRIPTION_BYTES_MAX as u64)?;
        serde_json::from_slice(&text).map_err(|error| format!("what the process that asks has said is no description: {error}"))
    }

    fn run(&self, settings: Settings, bytes: &[u8], time_max: Duration, answer_bytes_max: u64) -> Result<Vec<u8>, String> {
        let header = settings.header();
        let failed =
            |what: &str, error: io::Error| format!("cannot {what} the compiler's process ({}): {error}", self.program.display());
        let mut child = self.start().map_err(|error| failed("start", error))?;
        let (Some(mut stdin), Some(stdout), Some(stderr)) = (child.stdin.take(), child.stdout.take(), child.stderr.take()) else {
            return Err("the compiler's process has no pipes".to_string());
        };
        let pid = Pid::from_child(&child);
        let (done, until) = sync_channel::<()>(0);
        let (answer, words, late) = std::thread::scope(|scope| {
            // It may end before it has read everything; its status says why.
            scope.spawn(move || stdin.write_all(&header).and_then(|()| stdin.write_all(bytes)));
            let words = scope.spawn(move || read(stderr, WORDS_BYTES_MAX));
            let late = scope.spawn(move || {
                let late = until.recv_timeout(time_max) == Err(RecvTimeoutError::Timeout);
                // It has not been waited for, so the number is still its own.
                late && kill_process(pid, Signal::KILL).is_ok()
            });
            let answer = read(stdout, answer_bytes_max);
            let words = words.join();
            drop(done);
            (answer, words, late.join().unwrap_or(false))
        });
        let status = child.wait().map_err(|error| failed("wait for", error))?;
        let answer = answer.map_err(|error| failed("read from", error))?;
        if status.success() && (answer.len() as u64) < answer_bytes_max {
            return Ok(answer);
        }
        let words = words.ok().and_then(Result::ok).map(|words| String::from_utf8_lossy(&words).trim().to_string());
        let words = words.unwrap_or_default();
        Err(match settings.errand {
            Errand::Compile => self.why(status, late, &words),
            Errand::Describe => why_not_described(settings, status, late, &words),
        })
    }

    fn start(&self) -> io::Result<Child> {
        // Its priority leaves what runs its share; more threads than these only take more memory.
        let threads = std::thread::available_parallelism().map_or(1, |cpus| cpus.get().min(THREADS_MAX));
        Command::new(&self.program)
            .arg0("weir")
            .args(&self.args)
            .env_clear()
            .env("RAYON_NUM_THREADS", threads.to_string())
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
    }

    /// What the end of the child means.
    fn why(&self, status: ExitStatus, late: bool, words: &str) -> String {
        const HINT: &str = "split large functions, inline less, or leave out what the operator does not use";
        let signal = status.signal().map(Signal::from_named_raw);
        if late {
            return format!("it was not compiled within {} s; {HINT}", self.time_max.as_secs());
        }
        if status.success() {
            return format!("its machine code takes more than {} bytes; {HINT}", limits::ARTEFACT_BYTES_MAX);
        }
        match signal.flatten() {
            Some(Signal::XCPU | Signal::KILL) => format!("compiling it takes more than {} s of CPU time; {HINT}", self.cpu_s_max),
            Some(Signal::ABORT) if words.contains("memory allocation") => {
                format!("compiling it takes more than {} bytes of memory; {HINT}", self.memory_bytes_max)
            }
            Some(_) => format!("the compiler's process ended by {status}: {words}"),
            None => words.to_string(),
        }
    }
}

/// What the end of a child means that was to ask a component.
fn why_not_described(settings: Settings, status: ExitStatus, late: bool, words: &str) -> String {
    const HINT: &str = "`describe` says what the component is, and does no work";
    let Settings { cpu_s_max, memory_bytes_max, .. } = settings;
    match status.signal().and_then(Signal::from_named_raw) {
        _ if late => format!("it did not say what it is within {} s; {HINT}", limits::DESCRIBE_MS_MAX / 1_000),
        _ if status.success() => format!("it says more than {} bytes; {HINT}", limits::DESCRIPTION_BYTES_MAX),
        Some(Signal::XCPU | Signal::KILL) => format!("saying what it is takes more than {cpu_s_max} s of CPU time; {HINT}"),
        Some(Signal::ABORT) if words.contains("memory allocation") => {
            format!("saying what it is takes more than {memory_bytes_max} bytes of memory; {HINT}")
        }
        Some(_) => format!("the process that asked it ended by {status}: {words}"),
        None => words.to_string(),
    }
}

fn read(from: impl Read, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(bytes_max).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests;
