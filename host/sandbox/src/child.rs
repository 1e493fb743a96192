//! What this program does as the child of a process that takes components in: it compiles one, or asks one what it is. Both are foreign, so
//! the child has bounds on time, memory, files and network before it reads them.
//!
//! Owns which errand it is, and that of asking; compiling and the bounds are [`crate::compiler`]'s.
#![allow(unsafe_code, reason = "loading machine code is unsafe; it comes from the parent, which had it made")]

use std::io::{self, Read, Write};

use wasmtime::component::Component as Code;
use weir_model::limits::ARTEFACT_BYTES_MAX;

use crate::compiler::{Errand, Settings, bound, compile};
use crate::describe;
use crate::engine::{SandboxOptions, SharedEngine};
use crate::memory::Tracking;

/// Does for the parent process what comes on standard input, behind what a [`crate::CompilerProcess`] says first: compiles a component and
/// writes machine code to standard output, or asks a component what it is and writes that. From before anything foreign is read, the process
/// gets no file or socket open, writes to no file, and uses no more time and memory than it was given. It ends with its parent.
///
/// These are limits of resources. They hold a compiler or a component that goes astray, and no code that has taken control of the process
/// through a fault in compiler or sandbox: that could close one of the three open files, open another, and call whatever this user may.
///
/// # Errors
/// What the compiler or the sandbox says about the component, or which bound cannot be set.
pub fn compile_as_child() -> Result<(), String> {
    let mut input = io::stdin().lock();
    let settings =
        Settings::read(&mut input).map_err(|error| format!("this is for weir's own use: cannot read what to do: {error}"))?;
    match settings.errand {
        Errand::Compile => compile(settings, input),
        Errand::Describe => describe(settings, input),
    }
}

fn describe(settings: Settings, input: impl Read) -> Result<(), String> {
    let Settings { epoch_interruption, .. } = settings;
    // Hashing asks nothing of the kernel, and nothing is captured here.
    let options = SandboxOptions { tracking: Tracking::Hash, epoch_interruption, ..SandboxOptions::default() };
    let engine = SharedEngine::new(options).map_err(|error| error.to_string())?;
    bound(settings).map_err(|error| format!("cannot bound the process that asks: {error}"))?;
    let mut artefact = Vec::new();
    let read = input.take(ARTEFACT_BYTES_MAX).read_to_end(&mut artefact);
    read.map_err(|error| format!("cannot read the machine code: {error}"))?;
    // SAFETY: only the parent writes to this input, and it sends what a compiler's process of its own made, or what its cache vouches for. The
    // bytes are in memory nobody else can change.
    let code = unsafe { Code::deserialize(&engine.engine, &artefact) };
    let code = code.map_err(|error| format!("the machine code does not load: {error:#}"))?;
    drop(artefact);
    let description = describe::ask(&engine, &code)?;
    let text = serde_json::to_vec(&description).map_err(|error| error.to_string())?;
    io::stdout().lock().write_all(&text).map_err(|error| format!("cannot hand over the description: {error}"))
}
