//! What the parent tells the child, the bounds that the child takes before it reads anything foreign, and the errand of compiling.

use std::io::{self, Read, Write};

use rustix::process::{Resource, Rlimit, Signal, nice, set_parent_process_death_signal, setrlimit};
use wasmtime::Engine;
use weir_model::limits;

use crate::config::config;

/// How far it steps back behind everything else that wants to run: to a third of what it would get.
const NICE: i32 = 5;

const HEADER_BYTES: usize = 18;

/// What the child is to do with what it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Errand {
    /// Compile a component, which is sent.
    Compile,
    /// Ask a component what it is, whose machine code is sent.
    Describe,
}

/// What the parent decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) errand: Errand,
    /// As of the engine that is to run the code.
    pub(crate) epoch_interruption: bool,
    pub(crate) cpu_s_max: u64,
    pub(crate) memory_bytes_max: u64,
}

impl Settings {
    /// What precedes the component on the child's input.
    pub(crate) fn header(self) -> [u8; HEADER_BYTES] {
        let mut header = [0; HEADER_BYTES];
        header[0] = u8::from(self.epoch_interruption);
        header[HEADER_BYTES - 1] = u8::from(self.errand == Errand::Describe);
        header[1..9].copy_from_slice(&self.cpu_s_max.to_le_bytes());
        header[9..17].copy_from_slice(&self.memory_bytes_max.to_le_bytes());
        header
    }

    /// Reads what the parent has decided.
    pub(crate) fn read(input: &mut impl Read) -> io::Result<Settings> {
        let mut header = [0; HEADER_BYTES];
        input.read_exact(&mut header)?;
        Ok(Settings::of(header))
    }

    fn of(header: [u8; HEADER_BYTES]) -> Settings {
        let number = |at: usize| header[at..at + 8].iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte));
        let errand = if header[HEADER_BYTES - 1] == 0 { Errand::Compile } else { Errand::Describe };
        Settings { errand, epoch_interruption: header[0] != 0, cpu_s_max: number(1), memory_bytes_max: number(9) }
    }
}

/// Compiles the component that comes, and writes machine code to standard output.
///
/// # Errors
/// What the compiler says about the component, or which bound cannot be set.
pub(crate) fn compile(settings: Settings, input: impl Read) -> Result<(), String> {
    let engine = Engine::new(&config(settings.epoch_interruption)).map_err(|error| format!("{error:#}"))?;
    bound(settings).map_err(|error| format!("cannot bound the compiler's process: {error}"))?;
    let mut component = Vec::new();
    // What instrumentation adds is far less than the component again.
    let most = 2 * limits::COMPONENT_BYTES_MAX as u64;
    input.take(most).read_to_end(&mut component).map_err(|error| format!("cannot read the component: {error}"))?;
    let artefact = engine.precompile_component(&component).map_err(|error| format!("{error:#}"))?;
    io::stdout().lock().write_all(&artefact).map_err(|error| format!("cannot hand over the machine code: {error}"))
}

/// Takes the bounds that the parent has decided.
///
/// # Errors
/// If one cannot be set.
pub(crate) fn bound(settings: Settings) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    nice(NICE)?;
    let limit = |resource, soft: u64, hard: u64| setrlimit(resource, Rlimit { current: Some(soft), maximum: Some(hard) });
    limit(Resource::Core, 0, 0)?;
    limit(Resource::Fsize, 0, 0)?;
    // Standard input, output and error are open; there is no other.
    limit(Resource::Nofile, 3, 3)?;
    // Memory of its own, mapped or not by malloc: address space that is only reserved does not count.
    limit(Resource::Data, settings.memory_bytes_max, settings.memory_bytes_max)?;
    limit(Resource::Cpu, settings.cpu_s_max, settings.cpu_s_max + 1)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_child_reads_what_the_parent_has_decided() {
        let settings =
            Settings { errand: Errand::Describe, epoch_interruption: true, cpu_s_max: 7, memory_bytes_max: u64::MAX - 3 };
        assert_eq!(Settings::of(settings.header()), settings);
    }
}
