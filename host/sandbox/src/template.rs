//! Templates: an operator right after `open`, sealed, from which all its instances start.

use std::ops::Range;
use std::sync::Arc;

use weir_model::{Columns, Description, Scratch, StateKind, limits};
use xxhash_rust::xxh3::Xxh3Default;

use crate::account::{Charge, OperatorMemory};
use crate::bindings::ContextIn;
use crate::component::{Component, OperatorContext};
use crate::describe;
use crate::error::{SandboxError, Trap};
use crate::guest::{Guest, Phase};
use crate::image::{Content, EncodedImage, Encoder, Globals, Header, Image, ImageError, Kind, for_each_page};
use crate::limits::{InstanceLimits, Limiter};
use crate::memory::{PAGE_BYTES, PageSet, Region, SealedBuilder, SealedMemory, Start};
use crate::parts::{Parts, check_sizes};
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
    description: Arc<Description>,
    /// For each input, what `open` asked for.
    columns: Vec<Columns>,
    memories: Vec<Arc<SealedMemory>>,
    globals: Globals,
    /// Hash of the whole content.
    id: u128,
    account: Arc<OperatorMemory>,
    /// What the template itself holds.
    _charge: Charge,
}

impl Template {
    /// Makes an instance, runs its start-up code and `open`, and seals the result. Anything random the operator drew
    /// on the way is the same in all instances. `description` is what the component says of itself ([`crate::Sandbox::describe`]).
    ///
    /// # Errors
    /// If the component does not fit the contract or the description, traps, needs too much memory, or `open` returns an error.
    pub fn open(
        component: &Component,
        description: &Description,
        context: &OperatorContext,
        limits: &InstanceLimits,
        events: Arc<dyn HostEvents>,
    ) -> Result<Template, SandboxError> {
        let (reports, digest) = (Reports::new(events), component.digest());
        let (engine, description) = (component.engine(), shared(component, description)?);
        let account = component.engine().memory.operator(limits.memory_total_bytes);
        let charge = account.take(0).map_err(|reason| SandboxError::TotalMemory { digest, reason })?;
        let limiter = Limiter::new(limits.memory_bytes, charge, true);
        let guest = Guest::new(limiter, reports.clone(), description.clone());
        let Parts { mut store, exports, regions } = Parts::new(engine, digest, component.init()?, limits, guest, None)?;
        let trapped = |error: wasmtime::Error| SandboxError::Start { digest, trap: Trap::of(&error, limits.call_deadline) };
        let context_in =
            ContextIn { job: &context.job, operator: &context.operator, component: &context.component, config: &context.config };
        store.data_mut().begin(Phase::Quiet);
        store.set_epoch_deadline(component.engine().deadline_epochs(limits.call_deadline));
        let opened = exports.open.call(&mut store, (context_in,));
        store.data_mut().end();
        let met = store.data().limiter.met();
        let (opened,) = opened.map_err(|error| {
            let trap = Trap::of(&error, limits.call_deadline).after(met);
            SandboxError::Start { digest, trap }
        })?;
        let columns = opened.map_err(|reason| SandboxError::Open {
            operator: context.operator.clone(),
            reason: cut(&reason, limits::REASON_BYTES_MAX).to_string(),
        })?;
        let columns: Vec<Columns> = columns.into_iter().map(Columns::from).collect();
        check_columns(&columns, &description).map_err(|reason| SandboxError::Contract { digest, reason })?;
        store.set_epoch_deadline(component.engine().deadline_epochs(limits.call_deadline));
        let globals = exports.read_globals(&mut store).map_err(trapped)?;
        let memories = regions.iter().enumerate().map(|(index, region)| seal(region, scratch_pages(description.scratch, index)));
        let memories = memories.collect::<Result<_, _>>()?;
        drop((store, regions));
        Template::new(component.clone(), *limits, reports, description, columns, account, memories, globals)
    }

    /// Builds a template from its image. No guest code runs. `description` is what the component says of itself.
    ///
    /// # Errors
    /// What is wrong with the image, or that its memories exceed the limit.
    pub fn decode(
        component: &Component,
        description: &Description,
        image: &[u8],
        limits: &InstanceLimits,
        events: Arc<dyn HostEvents>,
    ) -> Result<Template, SandboxError> {
        let (columns, image) = split_columns(image)?;
        let image = Image::parse(0, image)?;
        if image.header.kind != Kind::Template {
            let (actual, expected) = (image.header.kind.name(), Kind::Template.name());
            return Err(ImageError::Kind { image: 0, actual, expected }.into());
        }
        let digest = component.digest();
        if image.header.digest != digest {
            return Err(ImageError::WrongComponent { image: 0, image_digest: image.header.digest, component: digest }.into());
        }
        let description = shared(component, description)?;
        if let Err(what) = check_columns(&columns, &description) {
            return Err(ImageError::Shape { image: 0, what }.into());
        }
        check_sizes(component, image.memories.iter().map(|memory| memory.size), limits)?;
        let chain = std::slice::from_ref(&image);
        let memories = (0..image.memories.len())
            .map(|memory| {
                let builder = SealedBuilder::new(image.memories[memory].size as usize).map_err(make_template)?;
                let builder = builder.with_scratch(scratch_pages(description.scratch, memory));
                for_each_page(chain, memory, |first, content| match content {
                    Content::Bytes(bytes) => builder.write(first, bytes).map_err(make_template),
                    Content::Zero(_) => Ok(()),
                })?;
                builder.seal().map(Arc::new).map_err(make_template)
            })
            .collect::<Result<_, SandboxError>>()?;
        let (header, globals) = (image.header, image.globals);
        let account = component.engine().memory.operator(limits.memory_total_bytes);
        let reports = Reports::new(events);
        let template = Template::new(component.clone(), *limits, reports, description, columns, account, memories, globals)?;
        if template.inner.id != header.template {
            return Err(
                ImageError::WrongTemplate { image: 0, image_template: header.template, template: template.inner.id }.into()
            );
        }
        Ok(template)
    }

    #[allow(clippy::too_many_arguments, reason = "the parts of a template, each made elsewhere")]
    fn new(
        component: Component,
        limits: InstanceLimits,
        reports: Arc<Reports>,
        description: Arc<Description>,
        columns: Vec<Columns>,
        account: Arc<OperatorMemory>,
        memories: Vec<Arc<SealedMemory>>,
        globals: Globals,
    ) -> Result<Template, SandboxError> {
        let id = identity(&columns, &memories, &globals);
        let held: usize = memories.iter().map(|memory| memory.pages().len() * PAGE_BYTES).sum();
        let _charge =
            account.take(held as u64).map_err(|reason| SandboxError::TotalMemory { digest: component.digest(), reason })?;
        account.set_template_bytes(memories.iter().map(|memory| memory.size() as u64).sum());
        let inner = Inner { component, limits, reports, description, columns, memories, globals, id, account, _charge };
        let template = Template { inner: Arc::new(inner) };
        // Finds out now, not at the first key, whether instances can be made and fit the memories and globals.
        template.parts(template.inner.memories.iter().map(|memory| memory.size()), &template.inner.globals)?;
        Ok(template)
    }

    /// The template as bytes to store: whole, compressed. Enough to restore it elsewhere, given the
    /// component.
    pub fn encode(&self) -> Vec<u8> {
        let inner = &*self.inner;
        let mut image = EncodedImage::default();
        let mut encoder = Encoder::new(&mut image, &self.header(Kind::Template, 0), &inner.globals, inner.memories.len());
        for memory in &inner.memories {
            encoder.memory(memory.size() as u64, memory.pages(), &PageSet::default());
            encoder.pages(memory.pages().iter().map(|page| memory.page(page)));
        }
        encoder.finish();
        with_columns(&inner.columns, &image.to_vec())
    }

    /// The parts of an instance with memories of these sizes over the template's, and these globals.
    pub(crate) fn parts(&self, sizes: impl Iterator<Item = usize>, globals: &Globals) -> Result<Parts, SandboxError> {
        let Inner { component, limits, reports, description, memories, account, .. } = &*self.inner;
        let digest = component.digest();
        let sizes: Vec<usize> = sizes.collect();
        let grown: usize = sizes.iter().zip(memories).map(|(size, template)| size.saturating_sub(template.size())).sum();
        let charge = account.take(grown as u64).map_err(|reason| SandboxError::TotalMemory { digest, reason })?;
        let limiter = Limiter::new(limits.memory_bytes, charge, false);
        let starts = memories.iter().cloned().zip(sizes).map(|(template, size)| Start { template, size }).collect();
        let guest = Guest::new(limiter, reports.clone(), description.clone());
        let mut parts = Parts::new(component.engine(), digest, component.run(), limits, guest, Some(starts))?;
        parts
            .exports
            .write_globals(&mut parts.store, globals)
            .map_err(|error| SandboxError::Instantiate { digest, reason: format!("cannot set its globals: {error:#}") })?;
        Ok(parts)
    }

    /// What `open` asked for of an input's rows. None: there is no such input.
    #[inline]
    pub(crate) fn columns(&self, input: u32) -> Option<Columns> {
        self.inner.columns.get(input as usize).copied()
    }

    /// What the component says of itself.
    pub fn description(&self) -> &Description {
        &self.inner.description
    }

    /// Whether it says that its instances keep no state, so that nothing is lost without a capture.
    pub fn is_stateless(&self) -> bool {
        self.inner.description.state == StateKind::None
    }

    pub(crate) fn component(&self) -> &Component {
        &self.inner.component
    }

    pub(crate) fn limits(&self) -> &InstanceLimits {
        &self.inner.limits
    }

    pub(crate) fn globals(&self) -> &Globals {
        &self.inner.globals
    }

    /// Hash of the whole content.
    pub(crate) fn id(&self) -> u128 {
        self.inner.id
    }

    pub(crate) fn memories(&self) -> &[Arc<SealedMemory>] {
        &self.inner.memories
    }

    #[cfg(test)]
    pub(crate) fn held_bytes(&self) -> u64 {
        self.inner.account.held()
    }

    pub(crate) fn header(&self, kind: Kind, checkpoint: u64) -> Header {
        Header { kind, digest: self.inner.component.digest(), template: self.inner.id, checkpoint }
    }
}

/// A description for a template and its instances; what memory depends on is checked once more.
fn shared(component: &Component, description: &Description) -> Result<Arc<Description>, SandboxError> {
    let digest = component.digest();
    describe::check_scratch(description, component.inspection()).map_err(|reason| SandboxError::Contract { digest, reason })?;
    Ok(Arc::new(description.clone()))
}

/// A template as bytes: one byte of the number of inputs, one of the columns of each, then its image. The identity of the template
/// covers them.
fn with_columns(columns: &[Columns], image: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(1 + columns.len() + image.len());
    // A description has far fewer inputs than a byte counts.
    bytes.push(columns.len() as u8);
    bytes.extend(columns.iter().map(|columns| columns.bits()));
    bytes.extend_from_slice(image);
    bytes
}

/// What [`with_columns`] has put together.
fn split_columns(bytes: &[u8]) -> Result<(Vec<Columns>, &[u8]), ImageError> {
    let malformed = |what: &str| ImageError::Malformed { image: 0, what: what.to_string() };
    let (count, rest) = bytes.split_first().ok_or_else(|| malformed("it is empty"))?;
    let (columns, image) = rest.split_at_checked(usize::from(*count)).ok_or_else(|| malformed("it ends within its columns"))?;
    let columns = columns.iter().map(|bits| Columns::from_bits(*bits)).collect::<Option<_>>();
    Ok((columns.ok_or_else(|| malformed("its columns are none"))?, image))
}

/// Checks what `open` answered, or did before the template was stored.
fn check_columns(columns: &[Columns], description: &Description) -> Result<(), String> {
    let (answered, inputs) = (columns.len(), description.inputs.len());
    if answered != inputs {
        return Err(format!(
            "open asked for the columns of {answered} inputs, and {inputs} are described; it has to answer for each"
        ));
    }
    let odd = columns.iter().zip(&description.inputs).find(|(columns, _)| !Columns::WANTED.has(**columns));
    match odd {
        Some((columns, input)) => {
            let more = columns.without(Columns::WANTED);
            Err(format!("open asked for {more} of input `{}`, which come by themselves", input.name))
        }
        None => Ok(()),
    }
}

fn make_template(source: std::io::Error) -> SandboxError {
    SandboxError::Memory { action: "make a template's memory", source }
}

/// Pages of a memory that hold no state, whole ones: a component that says so has one memory only.
fn scratch_pages(scratch: Option<Scratch>, memory: usize) -> Range<u32> {
    let Some(Scratch { offset, len }) = scratch.filter(|_| memory == 0) else { return 0..0 };
    let (page, end) = (PAGE_BYTES as u64, u64::from(offset) + u64::from(len));
    u64::from(offset).div_ceil(page) as u32..(end / page) as u32
}

#[allow(unsafe_code, reason = "reads a guest's memory")]
fn seal(region: &Region, scratch: Range<u32>) -> Result<Arc<SealedMemory>, SandboxError> {
    let builder = SealedBuilder::new(region.size()).map_err(make_template)?.with_scratch(scratch);
    // SAFETY: `open` has returned and the store is not used while this slice lives.
    builder.write(0, unsafe { region.bytes() }).map_err(make_template)?;
    builder.seal().map(Arc::new).map_err(make_template)
}

/// The hash of everything a template holds.
fn identity(columns: &[Columns], memories: &[Arc<SealedMemory>], globals: &Globals) -> u128 {
    let mut hasher = Xxh3Default::new();
    columns.iter().for_each(|columns| hasher.update(&[columns.bits()]));
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
