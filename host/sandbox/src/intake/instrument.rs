//! Writes the instrumented component: everything as it was, with accessors for mutable globals added at the end of each
//! component, so that no index changes its meaning.
//!
//! The method is that of wasmtime-wizer's component support, extended by setters, nested components and modules that are
//! instantiated more than once.

use wasm_encoder::{
    CanonicalFunctionSection, ComponentAliasSection, ComponentExportKind, ComponentExportSection, ComponentInstanceSection,
    ComponentSection, ComponentTypeSection, Encode, ExportKind, InstanceSection, ModuleArg, PrimitiveValType,
};

use super::contract::RESERVED_INSTANCE;
use super::sections::{self, HEADER_BYTES, component, core, read_u32};
use super::tree::{Counts, Module, NestedItem, Step, Tree};
use super::{IntakeError, accessor};

/// What the output is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Variant {
    /// Starts as the upload does.
    Init,
    /// Runs no start function and copies no data.
    Run,
}

/// Name of the instance export for a component's `position`th accessor.
pub(super) fn export_name(position: usize) -> String {
    format!("{RESERVED_INSTANCE}a{position}")
}

/// Instruments component `id` of `tree`, whose bytes are `bytes`.
pub(super) fn component(tree: &Tree, id: usize, bytes: &[u8], variant: Variant) -> Result<Vec<u8>, IntakeError> {
    let mut out = Vec::with_capacity(bytes.len() + bytes.len() / 16);
    out.extend_from_slice(bytes.get(..HEADER_BYTES).ok_or_else(inconsistent)?);
    let mut nested = tree.components[id].nested.iter();
    for section in sections::sections(bytes) {
        let (kind, payload) = section?;
        match kind {
            component::MODULE => {
                let Some(NestedItem::Module(module)) = nested.next() else { return Err(inconsistent()) };
                sections::push(&mut out, kind, &rewrite_module(&tree.modules[*module], payload, variant)?);
            }
            component::COMPONENT => {
                let Some(NestedItem::Component(child)) = nested.next() else { return Err(inconsistent()) };
                sections::push(&mut out, kind, &self::component(tree, *child, payload, variant)?);
            }
            _ => sections::push(&mut out, kind, payload),
        }
    }
    append_accessors(tree, id, &mut out);
    Ok(out)
}

/// A core instance that gets an accessor.
struct Own {
    instance: u32,
    module: usize,
}

fn append_accessors(tree: &Tree, id: usize, out: &mut Vec<u8>) {
    let component = &tree.components[id];
    if component.accessors.is_empty() {
        return;
    }
    let has_globals = |module: usize| !tree.modules[module].captured.is_empty();
    let mut own: Vec<Own> = Vec::new();
    for step in &component.steps {
        match *step {
            Step::Core { instance, module } if has_globals(module) => own.push(Own { instance, module }),
            _ => {}
        }
    }
    let mut instances: Vec<u32> = Vec::new();
    if !own.is_empty() {
        append_own(tree, &own, component.counts, out);
        instances.extend((component.counts.instances..).take(own.len()));
    }
    let mut aliases = ComponentAliasSection::new();
    for step in &component.steps {
        let Step::Child { instance, component: child } = *step else { continue };
        for position in 0..tree.components[child].accessors.len() {
            let name = export_name(position);
            aliases.alias(wasm_encoder::Alias::InstanceExport { instance, kind: ComponentExportKind::Instance, name: &name });
            instances.push(component.counts.instances + number(instances.len()));
        }
    }
    if !aliases.is_empty() {
        append(&aliases, out);
    }
    let mut exports = ComponentExportSection::new();
    for (position, instance) in instances.iter().enumerate() {
        exports.export(export_name(position).as_str(), ComponentExportKind::Instance, *instance, None);
    }
    append(&exports, out);
}

/// For each of a component's own core instances: its accessor's core instance, the lifted functions, and an instance
/// that bundles them. The last are the new component instances, in order.
fn append_own(tree: &Tree, own: &[Own], counts: Counts, out: &mut Vec<u8>) {
    // Instances of one module share an accessor module.
    let mut modules: Vec<usize> = Vec::new();
    let mut core_instances = InstanceSection::new();
    for own in own {
        let known = modules.iter().position(|module| *module == own.module);
        let position = known.unwrap_or_else(|| {
            sections::push(out, component::MODULE, &accessor::module(&tree.modules[own.module].captured));
            modules.push(own.module);
            modules.len() - 1
        });
        core_instances.instantiate(counts.modules + number(position), [(accessor::IMPORT, ModuleArg::Instance(own.instance))]);
    }
    append(&core_instances, out);

    let mut types = ComponentTypeSection::new();
    types.function().params([("slot", PrimitiveValType::U32)]).result(Some(PrimitiveValType::U64.into()));
    types.function().params([("slot", PrimitiveValType::U32), ("value", PrimitiveValType::U64)]).result(None);
    append(&types, out);

    let mut aliases = ComponentAliasSection::new();
    let mut lifts = CanonicalFunctionSection::new();
    let mut bundles = ComponentInstanceSection::new();
    for position in 0..number(own.len()) {
        let instance = counts.core_instances + position;
        for name in ["get", "set"] {
            aliases.alias(wasm_encoder::Alias::CoreInstanceExport { instance, kind: ExportKind::Func, name });
        }
        let core = counts.core_functions + 2 * position;
        lifts.lift(core, counts.types, []);
        lifts.lift(core + 1, counts.types + 1, []);
        let lifted = counts.functions + 2 * position;
        bundles.export_items([("get", ComponentExportKind::Func, lifted), ("set", ComponentExportKind::Func, lifted + 1)]);
    }
    append(&aliases, out);
    append(&lifts, out);
    append(&bundles, out);
}

fn append(section: &impl ComponentSection, out: &mut Vec<u8>) {
    section.append_to_component(out);
}

fn rewrite_module(module: &Module, bytes: &[u8], variant: Variant) -> Result<Vec<u8>, IntakeError> {
    let mut out = Vec::with_capacity(bytes.len());
    out.extend_from_slice(bytes.get(..HEADER_BYTES).ok_or_else(inconsistent)?);
    let mut exported = module.captured.is_empty();
    for section in sections::sections(bytes) {
        let (kind, payload) = section?;
        let comes_after_exports = [core::START, core::ELEMENT, core::DATA_COUNT, core::CODE, core::DATA].contains(&kind);
        if !exported && comes_after_exports {
            sections::push(&mut out, core::EXPORT, &export_globals(module, &[0])?);
            exported = true;
        }
        match (kind, variant) {
            (core::EXPORT, _) if !exported => {
                sections::push(&mut out, core::EXPORT, &export_globals(module, payload)?);
                exported = true;
            }
            (core::START, Variant::Run) => {}
            (core::DATA, Variant::Run) => sections::push(&mut out, core::DATA, &without_active_data(payload)?),
            _ => sections::push(&mut out, kind, payload),
        }
    }
    if !exported {
        sections::push(&mut out, core::EXPORT, &export_globals(module, &[0])?);
    }
    Ok(out)
}

/// An export section's payload with the captured globals added.
fn export_globals(module: &Module, payload: &[u8]) -> Result<Vec<u8>, IntakeError> {
    let (count, entries) = read_u32(payload).ok_or_else(inconsistent)?;
    let mut out = Vec::with_capacity(payload.len() + 24 * module.captured.len());
    (count + number(module.captured.len())).encode(&mut out);
    out.extend_from_slice(entries);
    for (position, global) in module.captured.iter().enumerate() {
        accessor::export_name(position).as_str().encode(&mut out);
        ExportKind::Global.encode(&mut out);
        global.index.encode(&mut out);
    }
    Ok(out)
}

/// A data section's payload in which active segments are passive and empty. An active segment counts as dropped once it
/// is copied, so to the code it looks the same. Passive ones stay: the code may yet copy them.
fn without_active_data(payload: &[u8]) -> Result<Vec<u8>, IntakeError> {
    let reader = wasmparser::BinaryReader::new(payload, 0);
    let segments = wasmparser::DataSectionReader::new(reader).map_err(|_| inconsistent())?;
    let mut out = wasm_encoder::DataSection::new();
    for segment in segments {
        let segment = segment.map_err(|_| inconsistent())?;
        let data = if matches!(segment.kind, wasmparser::DataKind::Passive) { segment.data } else { &[] };
        out.passive(data.iter().copied());
    }
    let mut section = Vec::new();
    out.encode(&mut section);
    // Encoding a section gives its size first.
    let (_, payload) = read_u32(&section).ok_or_else(inconsistent)?;
    Ok(payload.to_vec())
}

/// Counts of items in a file of at most 32 MiB.
fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn inconsistent() -> IntakeError {
    IntakeError::Internal { message: "the component changed between checking and instrumenting".to_string() }
}
