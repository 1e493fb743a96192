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
use weir_model::limits;

pub(crate) use child::Settings;
pub use child::compile_as_child;
pub(crate) use turns::Turns;

/// Bytes of a compiler's last words that are kept.
const WORDS_BYTES_MAX: u64 = 16 << 10;

/// Threads of one compilation.
const THREADS_MAX: usize = 8;

/// A program that compiles components for this process: one that calls [`compile_as_child`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompilerProcess {
    /// What is executed. It must be built from the same sources: artefacts of another wasmtime are refused.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// CPU time of one compilation, over all its threads, in seconds. Default [`limits::COMPILE_CPU_S_MAX`].
    pub cpu_s_max: u64,
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
        let settings = Settings { epoch_interruption, cpu_s_max: self.cpu_s_max, memory_bytes_max: self.memory_bytes_max };
        let artefact = self.run(&settings.header(), bytes)?;
        // SAFETY: a child of this process made these bytes from the component, by the same wasmtime; nobody else could write to its
        // output. They are in memory nobody else can change.
        let component = unsafe { Component::deserialize(engine, &artefact) };
        component
            .map(|component| (component, artefact))
            .map_err(|error| format!("the compiler's output does not load: {error:#}"))
    }

    fn run(&self, header: &[u8], bytes: &[u8]) -> Result<Vec<u8>, String> {
        let failed =
            |what: &str, error: io::Error| format!("cannot {what} the compiler's process ({}): {error}", self.program.display());
        let mut child = self.start().map_err(|error| failed("start", error))?;
        let (Some(mut stdin), Some(stdout), Some(stderr)) = (child.stdin.take(), child.stdout.take(), child.stderr.take()) else {
            return Err("the compiler's process has no pipes".to_string());
        };
        let pid = Pid::from_child(&child);
        let (done, until) = sync_channel::<()>(0);
        let (artefact, words, late) = std::thread::scope(|scope| {
            // It may end before it has read everything; its status says why.
            scope.spawn(move || stdin.write_all(header).and_then(|()| stdin.write_all(bytes)));
            let words = scope.spawn(move || read(stderr, WORDS_BYTES_MAX));
            let late = scope.spawn(move || {
                let late = until.recv_timeout(self.time_max) == Err(RecvTimeoutError::Timeout);
                // It has not been waited for, so the number is still its own.
                late && kill_process(pid, Signal::KILL).is_ok()
            });
            let artefact = read(stdout, limits::ARTEFACT_BYTES_MAX);
            let words = words.join();
            drop(done);
            (artefact, words, late.join().unwrap_or(false))
        });
        let status = child.wait().map_err(|error| failed("wait for", error))?;
        let artefact = artefact.map_err(|error| failed("read from", error))?;
        if status.success() && (artefact.len() as u64) < limits::ARTEFACT_BYTES_MAX {
            return Ok(artefact);
        }
        let words = words.ok().and_then(Result::ok).map(|words| String::from_utf8_lossy(&words).trim().to_string());
        Err(self.why(status, late, &words.unwrap_or_default()))
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

fn read(from: impl Read, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(bytes_max).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests;
