//! The engine: one configuration of wasmtime, its epoch ticker, its compile cache and its way of tracking written
//! pages, shared by everything that runs in a process.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use wasmtime::Engine;
use wasmtime::component::{Component as Code, Linker};
use weir_model::{Description, Digest};

use crate::account::{WorkerMemory, process_bytes};
use crate::cache::Cache;
use crate::compiler::{CompilerProcess, Turns};
use crate::config::config;
use crate::error::SandboxError;
use crate::guest::Guest;
use crate::host::link;
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
        Ok(self.compiled(bytes)?.0)
    }

    /// The compiled form, and its bytes where they are at hand: not where this process compiles and keeps nothing.
    fn compiled(&self, bytes: &[u8]) -> Result<(Code, Vec<u8>), String> {
        if let Some(found) = self.cache.as_ref().and_then(|cache| cache.load(&self.engine, bytes)) {
            return Ok(found);
        }
        let _turn = self.turns.take();
        let (code, artefact) = match &self.compiler {
            Some(compiler) => compiler.compile(&self.engine, self.epoch_interruption, bytes)?,
            None => {
                let code = Code::new(&self.engine, bytes).map_err(|error| format!("{error:#}"))?;
                let Some(_) = &self.cache else { return Ok((code, Vec::new())) };
                let artefact = code.serialize().map_err(|error| format!("{error:#}"))?;
                (code, artefact)
            }
        };
        self.cache.iter().for_each(|cache| cache.store(bytes, &artefact));
        Ok((code, artefact))
    }

    /// What an instrumented component says of itself: from the cache, from a child process, or what `ask` finds out in this process, where
    /// nobody says which program is the child. Unchecked; what `check` refuses is not kept.
    ///
    /// # Errors
    /// If it does not compile, does not say it within its bounds, or is refused.
    pub(crate) fn describe(
        &self,
        digest: Digest,
        bytes: &[u8],
        ask: impl FnOnce(&Code) -> Result<Description, String>,
        check: impl Fn(&Description) -> Result<(), String>,
    ) -> Result<Description, SandboxError> {
        let kept = self.cache.as_ref().and_then(|cache| cache.load_description(bytes));
        if let Some(description) = kept.filter(|description| check(description).is_ok()) {
            return Ok(description);
        }
        let (code, artefact) = self.compiled(bytes).map_err(|reason| SandboxError::Compile { digest, reason })?;
        let failed = |reason: String| SandboxError::Describe { digest, reason };
        let description = match &self.compiler {
            Some(compiler) => {
                let _turn = self.turns.take();
                compiler.describe(self.epoch_interruption, &artefact).map_err(failed)?
            }
            None => ask(&code).map_err(failed)?,
        };
        check(&description).map_err(failed)?;
        self.cache.iter().for_each(|cache| cache.store_description(bytes, &description));
        Ok(description)
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
