//! One instance of an operator: called with rows, captured between calls.

use std::sync::Arc;

use wasmtime::Store;
use wasmtime::component::TypedFunc;
use weir_model::{Batch, BatchRef, CheckpointId, Columns, Timestamp, limits};

use crate::account;
use crate::bindings::{BatchIn, Outcome};
use crate::component::Exports;
use crate::emitted_rows::EmittedRows;
use crate::error::{CallError, Refusal, SandboxError, Trap, TrapKind};
use crate::guest::{Guest, KeyShare, Phase};
use crate::image::{Capture, CapturedMemory, Content, Image, ImageError, Kind, PageTaker, parse_chain, put_pages};
use crate::memory::{PAGE_BYTES, PageSet, Region, SealedMemory, Tracker};
use crate::parts::{Parts, check_sizes};
use crate::reports::cut;
use crate::template::Template;

/// Captures that are neither completed nor superseded and are remembered apart; beyond, the oldest two are joined.
const UNCOMMITTED_MAX: usize = 8;

/// A row the operator could not process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// Its index in the rows of the call. Always one of them.
    pub row: u32,
    /// Why, cut to `REASON_BYTES_MAX`.
    pub reason: String,
}

/// One instance of an operator. Used by one thread at a time. A trap makes it unusable: drop it and restore it.
pub struct Instance {
    template: Template,
    store: Store<Guest>,
    exports: Exports,
    memories: Vec<Memory>,
    /// Epochs a call may take.
    deadline_epochs: u64,
    /// Pages of captures whose checkpoint has not completed: they go into the next capture too. Per memory.
    uncommitted: Vec<(CheckpointId, Vec<PageSet>)>,
    last_checkpoint: Option<CheckpointId>,
    /// Why it is unusable.
    broken: Option<String>,
    /// Counts it among its operator's.
    _counted: account::Count,
}

/// One linear memory.
struct Memory {
    region: Arc<Region>,
    tracker: Tracker,
    /// Pages of the template that this instance has written, so that it has them for itself.
    own: PageSet,
    template_pages: u32,
    /// Those of the template that hold no state. They are not looked at, and count as written once any others are.
    scratch: PageSet,
}

impl Instance {
    /// A new instance, as it was right after `open`. No guest code runs but the setting of globals.
    ///
    /// # Errors
    /// If the operating system has no room for it.
    pub fn new(template: &Template) -> Result<Instance, SandboxError> {
        let sizes = template.memories().iter().map(|memory| memory.size());
        Ok(Instance::of(template, template.parts(sizes, template.globals())?))
    }

    /// An instance as it was when the last capture of a chain (encoded, oldest first) was taken. Everything is checked
    /// before anything is made, and no guest code runs but the setting of globals.
    ///
    /// # Errors
    /// What is wrong with which image, that the memories exceed the limit, or that the operating system has no room.
    pub fn restore(template: &Template, chain: &[&[u8]]) -> Result<Instance, SandboxError> {
        let images = parse_chain(chain, Some((template.component().digest(), template.id())))?;
        let newest = images.last().ok_or(ImageError::Empty)?;
        check_shape(template, chain.len() - 1, newest)?;
        check_sizes(template.component(), newest.memories.iter().map(|memory| memory.size), template.limits())?;
        let parts = template.parts(newest.memories.iter().map(|memory| memory.size as usize), &newest.globals)?;
        for (index, (region, template)) in parts.regions.iter().zip(template.memories()).enumerate() {
            put_pages(&images, index, Restoration { region, template })?;
        }
        let mut instance = Instance::of(template, parts);
        instance.after_restore(newest.header.checkpoint)?;
        Ok(instance)
    }

    fn of(template: &Template, parts: Parts) -> Instance {
        let Parts { store, exports, regions } = parts;
        let engine = template.component().engine();
        let memories = regions
            .into_iter()
            .zip(template.memories())
            .map(|(region, template)| Memory {
                region,
                tracker: engine.tracking.tracker(template),
                own: PageSet::default(),
                template_pages: (template.size() / PAGE_BYTES) as u32,
                scratch: template.scratch().clone().collect::<PageSet>().below((template.size() / PAGE_BYTES) as u32),
            })
            .collect();
        let deadline_epochs = engine.deadline_epochs(template.limits().call_deadline);
        let (template, uncommitted, last_checkpoint, broken) = (template.clone(), Vec::new(), None, None);
        let _counted = account::Count::new(store.data().limiter.charge.operator());
        Instance { template, store, exports, memories, deadline_epochs, uncommitted, last_checkpoint, broken, _counted }
    }

    /// Its restored pages have been put in place. They count as unwritten: stored images hold them.
    fn after_restore(&mut self, checkpoint: u64) -> Result<(), SandboxError> {
        self.take_written()?;
        // Its first call would say the same, without saying that the state as it is stored needs so much.
        if let Some(why) = self.store.data().limiter.charge.operator().ended() {
            let digest = self.template.component().digest();
            let reason = format!("its state of checkpoint {checkpoint} does not fit: {why}; the job then goes on from there");
            return Err(SandboxError::TotalMemory { digest, reason });
        }
        self.last_checkpoint = Some(CheckpointId(checkpoint));
        Ok(())
    }

    /// Whether the component says that it keeps no state, so that nothing is lost without a capture.
    pub fn is_stateless(&self) -> bool {
        self.template.is_stateless()
    }

    /// Which keys it is given: from now on rows of outputs that are described as keeps-key have to be of these. To be called on a
    /// keyed operator's instance before its first call; other instances are given any key.
    pub fn keep_to(&mut self, share: KeyShare) {
        self.store.data_mut().keep_to(share);
    }

    /// Hands rows to the operator. What it emits is appended to `emitted`, also while it rejects rows; after an error
    /// nothing of this call is.
    ///
    /// # Errors
    /// The operator's own error, its trap, or that it trapped before.
    #[inline]
    pub fn process(&mut self, input: u32, rows: BatchRef<'_>, emitted: &mut EmittedRows) -> Result<Vec<Rejection>, CallError> {
        debug_assert!(rows.is_valid());
        let Some(columns) = self.template.columns(input) else {
            return Err(CallError::Failed(format!("it has no input {input}: its description has fewer")));
        };
        let rejected = self.emit(emitted, |exports, store| {
            let batch = BatchIn::new(rows, columns)?;
            // Only a copy of the function with the shorter lifetime of this call takes them.
            let process: TypedFunc<(u32, BatchIn<'_>), _> = exports.process;
            // SAFETY: `rows` outlive this function, which takes them back; where it panics, the next call begins without them.
            #[allow(unsafe_code, reason = "the rows of a call are lent to the store for the call")]
            unsafe {
                store.data_mut().lend(input, rows);
            }
            let result = process.call(&mut *store, (input, batch));
            store.data_mut().take_back();
            let (result,) = result?;
            let outside = result.iter().flatten().find(|rejection| rejection.row as usize >= rows.len());
            match outside.map(|rejection| rejection.row) {
                Some(row) => {
                    let given = rows.len();
                    Err(Refusal::contract(format!("process rejected row {row}, but was given {given} rows")))
                }
                None => Ok((result,)),
            }
        });
        let rejected = rejected.map_err(|error| match error {
            CallError::Trapped(trap) => CallError::Trapped(trap.with_rows(rows.len())),
            error => error,
        })?;
        if rejected.is_empty() {
            return Ok(Vec::new());
        }
        let cut = |reason: &str| cut(reason, limits::REASON_BYTES_MAX).to_string();
        Ok(rejected.iter().map(|rejection| Rejection { row: rejection.row, reason: cut(&rejection.reason) }).collect())
    }

    /// Tells the operator that event time has reached `watermark`.
    ///
    /// # Errors
    /// As [`Instance::process`].
    pub fn advance(&mut self, watermark: Timestamp, emitted: &mut EmittedRows) -> Result<(), CallError> {
        self.emit(emitted, |exports, store| exports.advance.call(store, (watermark,)))
    }

    /// Tells the operator that all its inputs have ended.
    ///
    /// # Errors
    /// As [`Instance::process`].
    pub fn finish(&mut self, emitted: &mut EmittedRows) -> Result<(), CallError> {
        self.emit(emitted, |exports, store| exports.finish.call(store, ()))
    }

    /// The operator's state as rows.
    ///
    /// # Errors
    /// As [`Instance::process`]; also if the component has no portable state.
    pub fn save(&mut self) -> Result<Vec<Batch>, CallError> {
        let (save, _) = *self.exports.portable.as_ref().ok_or(CallError::NotPortable)?;
        let saved = self.call(Phase::Saving, |_, store| save.call(store, ()));
        let rows = std::mem::take(&mut self.store.data_mut().saved);
        saved.map(|()| rows)
    }

    /// Hands state to the operator that `written_by` (`name@version`) saved. Only for a new instance.
    ///
    /// # Errors
    /// As [`Instance::save`].
    pub fn load(&mut self, rows: BatchRef<'_>, written_by: &str) -> Result<(), CallError> {
        let (_, load) = *self.exports.portable.as_ref().ok_or(CallError::NotPortable)?;
        // Only a copy of the function with the shorter lifetimes of this call takes them.
        let load: TypedFunc<(BatchIn<'_>, &str), Outcome> = load;
        self.call(Phase::Quiet, |_, store| {
            let rows = BatchIn::new(rows, Columns::KEYS | Columns::VALUES)?;
            load.call(store, (rows, written_by))
        })
    }

    /// Calls what may emit.
    #[inline]
    fn emit<T>(
        &mut self,
        emitted: &mut EmittedRows,
        call: impl FnOnce(&Exports, &mut Store<Guest>) -> wasmtime::Result<(Result<T, String>,)>,
    ) -> Result<T, CallError> {
        let mark = emitted.mark();
        std::mem::swap(emitted, &mut self.store.data_mut().emitted);
        let result = self.call(Phase::Emitting, call);
        std::mem::swap(emitted, &mut self.store.data_mut().emitted);
        if result.is_err() {
            emitted.truncate(mark);
        }
        result
    }

    #[inline]
    fn call<T>(
        &mut self,
        phase: Phase,
        call: impl FnOnce(&Exports, &mut Store<Guest>) -> wasmtime::Result<(Result<T, String>,)>,
    ) -> Result<T, CallError> {
        if let Some(reason) = &self.broken {
            return Err(CallError::Unusable(reason.clone()));
        }
        if let Some(why) = self.store.data().limiter.charge.operator().ended() {
            let trap = Trap { kind: TrapKind::Limit, message: why.to_string() };
            return Err(self.break_with(trap));
        }
        self.store.data_mut().begin(phase);
        self.store.set_epoch_deadline(self.deadline_epochs);
        let result = call(&self.exports, &mut self.store);
        self.store.data_mut().end();
        match result {
            Ok((Ok(value),)) => Ok(value),
            Ok((Err(reason),)) => {
                let reason = cut(&reason, limits::REASON_BYTES_MAX);
                let met = self.store.data().limiter.met().map(|met| format!("; {met}")).unwrap_or_default();
                Err(CallError::Failed(format!("{reason}{met}")))
            }
            Err(error) => {
                let trap = Trap::of(&error, self.template.limits().call_deadline);
                let trap = trap.after(self.store.data().limiter.met());
                Err(self.break_with(trap))
            }
        }
    }

    #[cold]
    fn break_with(&mut self, trap: Trap) -> CallError {
        self.broken = Some(trap.to_string());
        CallError::Trapped(trap)
    }

    /// Copies what the instance knows: all globals, and the pages written since the last completed checkpoint (since
    /// the template, if there is none). Between calls only. The cost is one copy of these pages.
    ///
    /// # Errors
    /// If the instance is unusable, `checkpoint` is not greater than that of the last capture, or the kernel fails, which
    /// makes the instance unusable.
    pub fn capture(&mut self, checkpoint: CheckpointId) -> Result<Capture, SandboxError> {
        if let Some(reason) = &self.broken {
            return Err(SandboxError::Unusable(reason.clone()));
        }
        if let Some(last) = self.last_checkpoint.filter(|&last| last >= checkpoint) {
            return Err(SandboxError::CheckpointOrder { asked: checkpoint.0, last: last.0 });
        }
        let captured = self.try_capture(checkpoint);
        if let Err(error) = &captured {
            // What was written is known no more: another capture would miss pages.
            self.broken = Some(error.to_string());
        }
        captured
    }

    fn try_capture(&mut self, checkpoint: CheckpointId) -> Result<Capture, SandboxError> {
        self.store.data_mut().begin(Phase::Quiet);
        self.store.set_epoch_deadline(self.deadline_epochs);
        let globals = self.exports.read_globals(&mut self.store).map_err(|error| SandboxError::Capture {
            digest: self.template.component().digest(),
            trap: Trap::of(&error, self.template.limits().call_deadline),
        })?;
        let written = self.take_written()?;
        let memories = self
            .memories
            .iter()
            .enumerate()
            .map(|(index, memory)| {
                let pages = self
                    .uncommitted
                    .iter()
                    .fold(written[index].clone(), |pages, (_, uncommitted)| pages.union(&uncommitted[index]));
                memory.copy(&pages)
            })
            .collect();
        self.uncommitted.push((checkpoint, written));
        if self.uncommitted.len() > UNCOMMITTED_MAX {
            // Joined under the newer number, pages are kept longer than needed, never too short.
            let (_, older) = self.uncommitted.remove(0);
            let newer = &mut self.uncommitted[0].1;
            newer.iter_mut().zip(older).for_each(|(newer, older)| *newer = newer.union(&older));
        }
        self.last_checkpoint = Some(checkpoint);
        Ok(Capture { header: self.template.header(Kind::Capture, checkpoint.0), globals, memories })
    }

    /// Pages written since the last time, per memory. Those of the template are the instance's own from now on, and charged.
    fn take_written(&mut self) -> Result<Vec<PageSet>, SandboxError> {
        let written = self.memories.iter_mut().map(Memory::take_written).collect::<Result<Vec<_>, _>>()?;
        let new: usize = self.memories.iter_mut().zip(&written).map(|(memory, written)| memory.add_own(written)).sum();
        if new > 0 {
            self.store.data_mut().limiter.charge.found((new * PAGE_BYTES) as u64);
        }
        Ok(written)
    }

    /// From now on captures build on that of `checkpoint`: what it and older ones hold is left out. The abort of a
    /// checkpoint needs no call.
    pub fn checkpoint_completed(&mut self, checkpoint: CheckpointId) {
        self.uncommitted.retain(|&(uncommitted, _)| uncommitted > checkpoint);
    }

    #[cfg(test)]
    pub(crate) fn region(&self, memory: usize) -> &Region {
        &self.memories[memory].region
    }

    /// Bytes of linear memory.
    pub fn memory_bytes(&self) -> u64 {
        self.memories.iter().map(|memory| memory.region.size() as u64).sum()
    }
}

/// Refuses an image that does not lie over this template.
fn check_shape(template: &Template, index: usize, image: &Image<'_>) -> Result<(), ImageError> {
    let shape = |what: String| Err(ImageError::Shape { image: index, what });
    if image.memories.len() != template.memories().len() {
        return shape(format!("it has {} memories, the template {}", image.memories.len(), template.memories().len()));
    }
    if !image.globals.iter().map(Vec::len).eq(template.globals().iter().map(Vec::len)) {
        return shape("it has other globals than the template".to_string());
    }
    let pairs = image.memories.iter().zip(template.memories());
    match pairs.into_iter().position(|(memory, template)| memory.size < template.size() as u64) {
        Some(memory) => shape(format!("memory {memory} is smaller than in the template, and memories never shrink")),
        None => Ok(()),
    }
}

/// A memory that restored pages are put into. Each is written once; zero pages only over a template's content.
struct Restoration<'a> {
    region: &'a Region,
    template: &'a SealedMemory,
}

#[allow(unsafe_code, reason = "writes a guest's memory")]
impl PageTaker<ImageError> for Restoration<'_> {
    fn room(&mut self, first: u32, pages: u32) -> Option<&mut [u8]> {
        let (offset, length) = (first as usize * PAGE_BYTES, pages as usize * PAGE_BYTES);
        self.region.populate(offset, length);
        // SAFETY: the instance has not been handed out yet, so its guest does not run; the only slice of the region is this one, which
        // borrows the only value that makes them here.
        Some(unsafe { self.region.slice_mut(offset, length) })
    }

    fn give(&mut self, first: u32, content: Content<'_>) -> Result<(), ImageError> {
        // SAFETY: as above.
        let put = |page: u32, bytes: &[u8]| unsafe { self.region.write(page as usize * PAGE_BYTES, bytes) };
        match content {
            Content::Bytes(bytes) => {
                self.region.populate(first as usize * PAGE_BYTES, bytes.len());
                put(first, bytes);
            }
            Content::Zero(count) => {
                let over = |page: &u32| self.template.pages().contains(*page);
                (first..first + count).filter(over).for_each(|page| put(page, &[0; PAGE_BYTES]));
            }
        }
        Ok(())
    }
}

#[allow(unsafe_code, reason = "reads a guest's memory between calls")]
impl Memory {
    fn take_written(&mut self) -> Result<PageSet, SandboxError> {
        // SAFETY: called with the instance borrowed mutably, outside of calls, so the guest does not run; the region
        // belongs to this tracker.
        unsafe { self.tracker.take_written(&self.region) }
            .map_err(|source| SandboxError::Memory { action: "find the written pages of an instance", source })
    }

    /// Gives the number of pages that were shared with the template before.
    fn add_own(&mut self, written: &PageSet) -> usize {
        let written = written.below(self.template_pages);
        if written.runs().is_empty() {
            return 0;
        }
        let before = self.own.len();
        self.own = self.own.union(&written).union(&self.scratch);
        self.own.len() - before
    }

    fn copy(&self, written: &PageSet) -> CapturedMemory {
        // SAFETY: as above: the guest does not run, and nobody else writes.
        CapturedMemory::of(unsafe { self.region.bytes() }, written)
    }
}
