//! The engine: one configuration of wasmtime, its epoch ticker, its compile cache and its way of tracking written
//! pages, shared by everything that runs in a process.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use wasmtime::Engine;
use wasmtime::component::{Component as Code, Linker};

use crate::account::{WorkerMemory, process_bytes};
use crate::cache::Cache;
use crate::compiler::{CompilerProcess, Turns};
use crate::config::config;
use crate::error::SandboxError;
use crate::host::{Guest, link};
use crate::memory::{Tracking, TrackingInUse, choose_tracking};

/// Time between two epochs, which is how exactly deadlines are kept.
const EPOCH: Duration = Duration::from_millis(10);

/// How often the memory of the process is looked at: every 50 ms, in which a core writes some 100 MB of new pages.
const EPOCHS_PER_LOOK: u32 = 5;

/// How a sandbox is set up.
#[derive(Clone, Debug)]
pub struct SandboxOptions {
    /// Folder for compiled components; made if missing. Not used, with a warning, if others could have put something into it.
    /// None: compile every time.
    pub cache: Option<PathBuf>,
    /// The program that compiles components. None: this process does, without bounds on time and memory.
    pub compiler: Option<CompilerProcess>,
    /// How written pages are found.
    pub tracking: Tracking,
    /// Bytes that guests of this process may hold together, and that the process may hold: beyond, growing fails inside the guest,
    /// or the operator that holds most is ended, with its name. None: no bound.
    pub memory_bytes: Option<u64>,
    /// Whether calls have deadlines. Costs what is within the noise of measurements (bench/notes.md). Default: on.
    pub epoch_interruption: bool,
}

impl Default for SandboxOptions {
    fn default() -> SandboxOptions {
        SandboxOptions { cache: None, compiler: None, tracking: Tracking::Auto, memory_bytes: None, epoch_interruption: true }
    }
}

/// What a sandbox and all that came out of it have in common.
pub(crate) struct SharedEngine {
    pub(crate) engine: Engine,
    pub(crate) linker: Linker<Guest>,
    pub(crate) cache: Option<Cache>,
    compiler: Option<CompilerProcess>,
    turns: Turns,
    pub(crate) tracking: TrackingInUse,
    pub(crate) memory: Arc<WorkerMemory>,
    epoch_interruption: bool,
}

impl SharedEngine {
    /// Starts an engine, its ticker thread, and probes how written pages can be tracked here.
    pub(crate) fn new(options: SandboxOptions) -> Result<SharedEngine, SandboxError> {
        let engine_error = |error: wasmtime::Error| SandboxError::Engine(format!("{error:#}"));
        let engine = Engine::new(&config(options.epoch_interruption)).map_err(engine_error)?;
        let mut linker = Linker::new(&engine);
        link(&mut linker).map_err(engine_error)?;
        let cache = options.cache.as_deref().map(|folder| Cache::open(folder, &engine)).transpose()?.flatten();
        let tracking = choose_tracking(options.tracking)?;
        let memory = WorkerMemory::new(options.memory_bytes);
        tick(&engine, &memory)?;
        let SandboxOptions { compiler, epoch_interruption, .. } = options;
        Ok(SharedEngine { engine, linker, cache, compiler, turns: Turns::default(), tracking, memory, epoch_interruption })
    }

    /// Finds the compiled form of an instrumented component in the cache, or makes it. An error is why the compiler does not.
    pub(crate) fn compile(&self, bytes: &[u8]) -> Result<Code, String> {
        if let Some(code) = self.cache.as_ref().and_then(|cache| cache.load(&self.engine, bytes)) {
            return Ok(code);
        }
        let _turn = self.turns.take();
        let (code, artefact) = match &self.compiler {
            Some(compiler) => compiler.compile(&self.engine, self.epoch_interruption, bytes)?,
            None => {
                let code = Code::new(&self.engine, bytes).map_err(|error| format!("{error:#}"))?;
                let Some(_) = &self.cache else { return Ok(code) };
                let artefact = code.serialize().map_err(|error| format!("{error:#}"))?;
                (code, artefact)
            }
        };
        self.cache.iter().for_each(|cache| cache.store(bytes, &artefact));
        Ok(code)
    }

    /// The number of epochs a call may take, so that it gets at least `deadline`.
    pub(crate) fn deadline_epochs(&self, deadline: Duration) -> u64 {
        if self.epoch_interruption {
            (deadline.as_millis().div_ceil(EPOCH.as_millis()) as u64).saturating_add(1)
        } else {
            u64::MAX / 2
        }
    }
}

/// Starts the thread that advances the epoch, and looks at the memory of the process, for as long as anything uses the engine.
fn tick(engine: &Engine, memory: &Arc<WorkerMemory>) -> Result<(), SandboxError> {
    let (engine, memory) = (engine.weak(), Arc::downgrade(memory));
    let run = move || {
        let mut epoch = 0u32;
        loop {
            epoch = epoch.wrapping_add(1);
            let (Some(engine), Some(memory)) = (engine.upgrade(), memory.upgrade()) else { return };
            engine.increment_epoch();
            if epoch.is_multiple_of(EPOCHS_PER_LOOK) && memory.is_bounded() {
                process_bytes().into_iter().for_each(|bytes| memory.look(bytes));
            }
            drop((engine, memory));
            std::thread::sleep(EPOCH);
        }
    };
    let thread = std::thread::Builder::new().name("weir-epoch".to_string()).spawn(run);
    thread.map(|_| ()).map_err(|error| SandboxError::Engine(format!("cannot start the epoch thread: {error}")))
}
