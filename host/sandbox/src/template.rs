//! Templates: an operator right after `open`, sealed, from which all its instances start.

use std::sync::Arc;

use wasmtime::Store;
use wasmtime::component::Instance as RawInstance;
use weir_model::limits;
use xxhash_rust::xxh3::Xxh3Default;

use crate::account::{Charge, OperatorMemory};
use crate::bindings::ContextIn;
use crate::component::{Component, Exports, OperatorContext, Variant};
use crate::error::{SandboxError, Trap};
use crate::host::{Guest, Phase};
use crate::image::{Content, Encoder, Globals, Header, Image, ImageError, Kind, for_each_page, parse_chain};
use crate::instance::{Instance, Standing};
use crate::limits::{InstanceLimits, Limiter};
use crate::memory::{PAGE_BYTES, Region, SealedBuilder, SealedMemory, Start, with_plan};
use crate::reports::{HostEvents, Reports, cut};

/// An operator right after `open`. Cheap to clone and to share between threads; every instance of the operator must
/// come from the same template, or from one restored from its image.
#[derive(Clone)]
pub struct Template {
    inner: Arc<Inner>,
}

struct Inner {
    component: Component,
    limits: InstanceLimits,
    reports: Arc<Reports>,
    memories: Vec<Arc<SealedMemory>>,
    globals: Globals,
    /// Hash of the whole content.
    id: u128,
    account: Arc<OperatorMemory>,
    /// What the template itself holds.
    _charge: Charge,
}

impl Component {
    /// Makes an instance, runs its start-up code and `open`, and seals the result. Anything random the operator drew
    /// on the way is the same in all instances.
    ///
    /// # Errors
    /// If the component does not fit the contract, traps, needs too much memory, or `open` returns an error.
    pub fn template(
        &self,
        context: &OperatorContext,
        limits: &InstanceLimits,
        events: Arc<dyn HostEvents>,
    ) -> Result<Template, SandboxError> {
        let reports = Reports::new(events);
        let account = self.shared().memory.operator(limits.memory_total_bytes);
        let charge = account.take(0).map_err(|reason| self.too_much(reason))?;
        let limiter = Limiter::new(limits.memory_bytes, charge, true);
        let Standing { mut store, exports, regions } = self.start(self.init()?, limits, limiter, &reports, None)?;
        let trapped =
            |error: wasmtime::Error| SandboxError::Start { digest: self.digest(), trap: Trap::of(&error, limits.call_deadline) };
        let context_in =
            ContextIn { job: &context.job, operator: &context.operator, component: &context.component, config: &context.config };
        store.data_mut().begin(Phase::Quiet);
        store.set_epoch_deadline(self.shared().deadline_epochs(limits.call_deadline));
        let opened = exports.open.call(&mut store, (context_in,));
        let met = store.data().limiter.met();
        let (opened,) = opened.map_err(|error| {
            let trap = Trap::of(&error, limits.call_deadline).after(met);
            SandboxError::Start { digest: self.digest(), trap }
        })?;
        opened.map_err(|reason| SandboxError::Open {
            operator: context.operator.clone(),
            reason: cut(&reason, limits::REASON_BYTES_MAX).to_string(),
        })?;
        store.set_epoch_deadline(self.shared().deadline_epochs(limits.call_deadline));
        let globals = read_globals(&mut store, &exports).map_err(trapped)?;
        let memories = regions.iter().map(|region| seal(region)).collect::<Result<_, _>>()?;
        drop((store, regions));
        Template::new(self.clone(), *limits, reports, account, memories, globals)
    }

    /// Builds a template from its image. No guest code runs.
    ///
    /// # Errors
    /// What is wrong with the image, or that its memories exceed the limit.
    pub fn restore_template(
        &self,
        image: &[u8],
        limits: &InstanceLimits,
        events: Arc<dyn HostEvents>,
    ) -> Result<Template, SandboxError> {
        let image = Image::parse(0, image)?;
        if image.header.kind != Kind::Template {
            let (actual, expected) = (image.header.kind.name(), Kind::Template.name());
            return Err(ImageError::Kind { image: 0, actual, expected }.into());
        }
        let component = self.digest();
        if image.header.digest != component {
            return Err(ImageError::WrongComponent { image: 0, image_digest: image.header.digest, component }.into());
        }
        self.check_sizes(image.memories.iter().map(|memory| memory.size), limits)?;
        let chain = std::slice::from_ref(&image);
        let memories = (0..image.memories.len())
            .map(|memory| {
                let builder = SealedBuilder::new(image.memories[memory].size as usize).map_err(make_template)?;
                for_each_page(chain, memory, |first, content| match content {
                    Content::Bytes(bytes) => builder.write(first, bytes).map_err(make_template),
                    Content::Zero(_) => Ok(()),
                })?;
                builder.seal().map(Arc::new).map_err(make_template)
            })
            .collect::<Result<_, SandboxError>>()?;
        let (header, globals) = (image.header, image.globals);
        let account = self.shared().memory.operator(limits.memory_total_bytes);
        let template = Template::new(self.clone(), *limits, Reports::new(events), account, memories, globals)?;
        if template.inner.id != header.template {
            return Err(
                ImageError::WrongTemplate { image: 0, image_template: header.template, template: template.inner.id }.into()
            );
        }
        Ok(template)
    }

    /// Instantiates one form of the component, with its memories as planned.
    fn start(
        &self,
        variant: &Variant,
        limits: &InstanceLimits,
        limiter: Limiter,
        reports: &Arc<Reports>,
        starts: Option<Vec<Start>>,
    ) -> Result<Standing, SandboxError> {
        let mut store = Store::new(&self.shared().engine, Guest::new(limiter, reports.clone()));
        store.set_hostcall_fuel(weir_model::limits::HOSTCALL_BYTES_MAX);
        store.limiter(|guest| &mut guest.limiter);
        store.set_epoch_deadline(self.shared().deadline_epochs(limits.call_deadline));
        let digest = self.digest();
        let made = with_plan(starts, || variant.pre.instantiate(&mut store));
        let met = store.data().limiter.met();
        let (instance, regions): (RawInstance, _) = made.map_err(|error| {
            if error.is::<wasmtime::Trap>() {
                SandboxError::Start { digest, trap: Trap::of(&error, limits.call_deadline).after(met) }
            } else {
                SandboxError::Instantiate { digest, reason: met.unwrap_or_else(|| format!("{error:#}")) }
            }
        })?;
        store.data_mut().limiter.watch(regions.clone());
        let exports = variant
            .exports(&mut store, &instance)
            .map_err(|error| SandboxError::Contract { digest, reason: format!("{error:#}") })?;
        Ok(Standing { store, exports, regions })
    }

    fn too_much(&self, reason: String) -> SandboxError {
        SandboxError::TotalMemory { digest: self.digest(), reason }
    }

    fn check_sizes(&self, sizes: impl Iterator<Item = u64>, limits: &InstanceLimits) -> Result<(), SandboxError> {
        let (needed, limit) = (sizes.sum(), limits.memory_bytes);
        if needed > limit { Err(SandboxError::MemoryLimit { digest: self.digest(), needed, limit }) } else { Ok(()) }
    }
}

impl Template {
    fn new(
        component: Component,
        limits: InstanceLimits,
        reports: Arc<Reports>,
        account: Arc<OperatorMemory>,
        memories: Vec<Arc<SealedMemory>>,
        globals: Globals,
    ) -> Result<Template, SandboxError> {
        let id = identity(&memories, &globals);
        let held: usize = memories.iter().map(|memory| memory.pages().len() * PAGE_BYTES).sum();
        let _charge = account.take(held as u64).map_err(|reason| component.too_much(reason))?;
        account.set_template_bytes(memories.iter().map(|memory| memory.size() as u64).sum());
        let template =
            Template { inner: Arc::new(Inner { component, limits, reports, memories, globals, id, account, _charge }) };
        // Finds out now, not at the first key, whether instances can be made and fit the memories and globals.
        template.instantiate()?;
        Ok(template)
    }

    /// The template as bytes to store: whole, compressed, with a checksum. Enough to restore it elsewhere, given the
    /// component.
    pub fn encode(&self) -> Vec<u8> {
        let inner = &*self.inner;
        let mut encoder = Encoder::new(&self.header(Kind::Template, 0), &inner.globals, inner.memories.len());
        for memory in &inner.memories {
            encoder.memory(memory.size() as u64, memory.pages().iter().map(|page| (page, memory.page(page))));
        }
        encoder.finish()
    }

    /// A new instance, as it was right after `open`. No guest code runs but the setting of globals.
    ///
    /// # Errors
    /// If the operating system has no room for it.
    pub fn instantiate(&self) -> Result<Instance, SandboxError> {
        let sizes = self.inner.memories.iter().map(|memory| memory.size());
        Ok(Instance::new(self.clone(), self.stand(sizes, &self.inner.globals)?))
    }

    /// An instance as it was when the last capture of a chain (encoded, oldest first) was taken. Everything is checked
    /// before anything is made, and no guest code runs but the setting of globals.
    ///
    /// # Errors
    /// What is wrong with which image, that the memories exceed the limit, or that the operating system has no room.
    pub fn restore(&self, chain: &[&[u8]]) -> Result<Instance, SandboxError> {
        let inner = &*self.inner;
        let images = parse_chain(chain, Some((inner.component.digest(), inner.id)))?;
        let newest = images.last().ok_or(ImageError::Empty)?;
        self.check_shape(chain.len() - 1, newest)?;
        inner.component.check_sizes(newest.memories.iter().map(|memory| memory.size), &inner.limits)?;
        let standing = self.stand(newest.memories.iter().map(|memory| memory.size as usize), &newest.globals)?;
        for (index, (region, template)) in standing.regions.iter().zip(&inner.memories).enumerate() {
            for_each_page(&images, index, |first, content| {
                write(region, template, first, &content);
                Ok::<(), ImageError>(())
            })?;
        }
        Instance::restored(self.clone(), standing, newest.header.checkpoint)
    }

    fn check_shape(&self, index: usize, image: &Image<'_>) -> Result<(), ImageError> {
        let inner = &*self.inner;
        let shape = |what: String| Err(ImageError::Shape { image: index, what });
        if image.memories.len() != inner.memories.len() {
            return shape(format!("it has {} memories, the template {}", image.memories.len(), inner.memories.len()));
        }
        if !image.globals.iter().map(Vec::len).eq(inner.globals.iter().map(Vec::len)) {
            return shape("it has other globals than the template".to_string());
        }
        let pairs = image.memories.iter().zip(&inner.memories);
        match pairs.into_iter().position(|(memory, template)| memory.size < template.size() as u64) {
            Some(memory) => shape(format!("memory {memory} is smaller than in the template, and memories never shrink")),
            None => Ok(()),
        }
    }

    /// Makes an instance with memories of these sizes over the template's, and these globals.
    fn stand(&self, sizes: impl Iterator<Item = usize>, globals: &Globals) -> Result<Standing, SandboxError> {
        let inner = &*self.inner;
        let sizes: Vec<usize> = sizes.collect();
        let grown: usize = sizes.iter().zip(&inner.memories).map(|(size, template)| size.saturating_sub(template.size())).sum();
        let charge = inner.account.take(grown as u64).map_err(|reason| inner.component.too_much(reason))?;
        let limiter = Limiter::new(inner.limits.memory_bytes, charge, false);
        let starts = inner.memories.iter().cloned().zip(sizes).map(|(template, size)| Start { template, size }).collect();
        let mut standing = inner.component.start(inner.component.run(), &inner.limits, limiter, &inner.reports, Some(starts))?;
        let failed = |reason: String| SandboxError::Instantiate { digest: inner.component.digest(), reason };
        if !standing.exports.accessors.iter().map(|access| access.slots()).eq(globals.iter().map(Vec::len)) {
            return Err(failed("its globals are not those of its image".to_string()));
        }
        for (access, values) in standing.exports.accessors.iter().zip(globals) {
            access.write(&mut standing.store, values).map_err(|error| failed(format!("cannot set its globals: {error:#}")))?;
        }
        Ok(standing)
    }

    pub(crate) fn component(&self) -> &Component {
        &self.inner.component
    }

    pub(crate) fn limits(&self) -> &InstanceLimits {
        &self.inner.limits
    }

    pub(crate) fn memories(&self) -> &[Arc<SealedMemory>] {
        &self.inner.memories
    }

    pub(crate) fn header(&self, kind: Kind, checkpoint: u64) -> Header {
        Header { kind, digest: self.inner.component.digest(), template: self.inner.id, checkpoint }
    }
}

pub(crate) fn read_globals(store: &mut Store<Guest>, exports: &Exports) -> wasmtime::Result<Globals> {
    exports.accessors.iter().map(|access| access.read(store)).collect()
}

fn make_template(source: std::io::Error) -> SandboxError {
    SandboxError::Memory { action: "make a template's memory", source }
}

#[allow(unsafe_code, reason = "reads a guest's memory")]
fn seal(region: &Region) -> Result<Arc<SealedMemory>, SandboxError> {
    let builder = SealedBuilder::new(region.size()).map_err(make_template)?;
    // SAFETY: `open` has returned and the store is not used while this slice lives.
    builder.write(0, unsafe { region.bytes() }).map_err(make_template)?;
    builder.seal().map(Arc::new).map_err(make_template)
}

/// Puts restored pages in place. Zero pages are written only over a template's content.
#[allow(unsafe_code, reason = "writes a guest's memory")]
fn write(region: &Region, template: &SealedMemory, first: u32, content: &Content<'_>) {
    // SAFETY: the instance has not been handed out yet, so its guest does not run, and no slice of the region lives.
    let put = |page: u32, bytes: &[u8]| unsafe { region.write(page as usize * PAGE_BYTES, bytes) };
    match content {
        Content::Bytes(bytes) => put(first, bytes),
        Content::Zero(count) => {
            (first..first + count).filter(|&page| template.pages().contains(page)).for_each(|page| put(page, &[0; PAGE_BYTES]));
        }
    }
}

/// The hash of everything a template holds.
fn identity(memories: &[Arc<SealedMemory>], globals: &Globals) -> u128 {
    let mut hasher = Xxh3Default::new();
    for memory in memories {
        hasher.update(&(memory.size() as u64).to_le_bytes());
        memory.hashes().iter().for_each(|hash| hasher.update(&hash.to_le_bytes()));
    }
    for values in globals {
        hasher.update(&(values.len() as u64).to_le_bytes());
        values.iter().for_each(|value| hasher.update(&value.to_le_bytes()));
    }
    hasher.digest128()
}
